"""One sentence for each witness: what of it breaks the law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orderlab.model.explorer.behaviour import Run, shown
from orderlab.model.explorer.conviction import enabled_in_loop
from orderlab.model.spec.transition_system import (
    Fairness,
    Invariant,
    LeadsTo,
    StepInvariant,
    StrongFairness,
    TransitionSystem,
)

NAMED_AT_MOST = 3


def why_broken(
    system: TransitionSystem[Any],
    law: Invariant[Any] | StepInvariant[Any] | LeadsTo[Any] | None,
    run: Run,
    fairness: Sequence[Fairness] = (),
) -> str:
    """What breaks the law (None: absence of deadlock), where in the run, and for a lasso why it may stay so."""
    if isinstance(law, LeadsTo):
        return _never(system, law, run, fairness)
    states = run.states
    if law is None:
        return f"{_after(len(run.steps))} no action is enabled, and stopping there is not right (`terminal`)"
    if isinstance(law, StepInvariant):
        told = law.why(states[-2], run.steps[-1][0], states[-1]) if law.why else ""
        return f"step {len(run.steps)} breaks it" + (f": {told}" if told else "")
    told = law.why(states[-1]) if law.why else _looked_at(system, law, states[-1])
    return f"{_after(len(run.steps))} it is false" + (f": {told}" if told else "")


def _after(steps: int) -> str:
    return f"after step {steps}" if steps else "initially"


def _looked_at(system: TransitionSystem[Any], law: Invariant[Any], state: Any) -> str:
    """The values of the places that the law says it reads, where the description knows them by name."""
    if law.reads is None:
        return ""
    described = system.describe(state)
    names = {place[0] if isinstance(place, tuple) else place for place in law.reads(state)}
    return ", ".join(f"{name} = {shown(value)}" for name, value in described.items() if name in names)


def _never(system: TransitionSystem[Any], law: LeadsTo[Any], run: Run, fairness: Sequence[Fairness]) -> str:
    assert run.loop_start is not None
    begins = f"{law.when_said or 'its obligation'} {'holds' if law.when_said else 'begins'} " if law.when else ""
    begins += _after(run.obliged_at)
    never = f"{law.then_said} holds in no state from there on" if law.then_said else "what it asks for never comes"
    around = len(run.steps) - run.loop_start
    if around:
        lasts = f"steps {run.loop_start + 1} to {len(run.steps)}" if around > 1 else f"step {len(run.steps)}"
        stays = f"{lasts} can repeat for ever"
    else:
        stays = "nothing more need happen"
    return f"{begins}: {never}; {stays}{_permitted(system, run, fairness)}"


def _permitted(system: TransitionSystem[Any], run: Run, fairness: Sequence[Fairness]) -> str:
    """Why fairness does not end the loop."""
    if not fairness:
        return ", for no action is declared fair"
    assert run.loop_start is not None
    now_and_then, never = [], []
    for condition in fairness:
        offered = enabled_in_loop(system, condition, run)
        if not any(offered):
            never.append(condition.name)
        elif not isinstance(condition, StrongFairness) and not all(offered) and not _is_taken(condition, run):
            now_and_then.append(condition.name)
    if now_and_then:
        return f", for weak fairness asks nothing of what is enabled only now and then: {_listed(now_and_then)}"
    if never:
        return f", for no fair step is left out that is enabled; never enabled there: {_listed(never)}"
    return ", and every fair step is among them"


def _is_taken(condition: Fairness, run: Run) -> bool:
    states = run.states
    loop = range(run.loop_start or 0, len(run.steps))
    return any(condition.matches(run.steps[at][0]) and states[at] != states[at + 1] for at in loop)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
