"""Conviction: a witness is replayed on the specification before it is told, and what does not convict is named as an error.

The search may be wrong for four reasons: the compiled engine is; a symmetry that is declared is none; a text does not do
the same twice (it draws random numbers, reads the clock, keeps something between calls); or what a law or a step tells of
the places that it reads is not so. The replay uses nothing of the search but the labels and the states: initial states,
successors, laws and fairness are asked of the system again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orderlab.model.errors import Defect, InputError
from orderlab.model.explorer.behaviour import Run
from orderlab.model.explorer.witness import Unconvicted
from orderlab.model.spec.transition_system import (
    Fairness,
    Invariant,
    LeadsTo,
    StepInvariant,
    StrongFairness,
    TransitionSystem,
)

TIMES = 3
"""How often a step and a law are asked for: what draws at random seldom answers alike so often."""


def convict(
    system: TransitionSystem[Any],
    law: Invariant[Any] | StepInvariant[Any] | LeadsTo[Any] | None,
    run: Run,
    fairness: Sequence[Fairness] = (),
) -> None:
    """Replay the run, and find the law broken at its end (None: a deadlock). Raises Unconvicted if it is not."""
    for _ in range(TIMES):
        if run.first not in list(system.initial_states()):
            raise Unconvicted("its first state is not an initial state")
        before = run.first
        for number, (label, state) in enumerate(run.steps, 1):
            if not any(one[:3] == label[:3] and after == state for one, after in system.successors(before)):
                raise Unconvicted(f"step {number} ({label}) is not enabled, or leads elsewhere")
            before = state
        if isinstance(law, LeadsTo):
            _neglected(system, law, run, fairness)
        elif not _broken(system, law, run):
            raise Unconvicted("its end does not break the law")


def _broken(system: TransitionSystem[Any], law: Invariant[Any] | StepInvariant[Any] | None, run: Run) -> bool:
    states = run.states
    if law is None:
        return not system.is_terminal(states[-1]) and next(iter(system.successors(states[-1])), None) is None
    if isinstance(law, StepInvariant):
        return bool(run.steps) and not law.holds(states[-2], run.steps[-1][0], states[-1])
    return (law.antecedent is None or law.antecedent(states[-1])) and not law.holds(states[-1])


def _neglected(system: TransitionSystem[Any], law: LeadsTo[Any], run: Run, fairness: Sequence[Fairness]) -> None:
    """Raises Unconvicted unless the lasso owes `then`, never comes to it, is closed, and is fair."""
    states = run.states
    assert run.loop_start is not None
    if law.when is None and run.obliged_at != 0:
        raise Unconvicted("its obligation does not begin in the initial state")
    if law.when is not None and not law.when(states[run.obliged_at]):
        raise Unconvicted("its obligation does not begin where it should")
    if any(law.then(state) for state in states[run.obliged_at :]) or run.loop_start < run.obliged_at:
        raise Unconvicted("it comes to what the law asks for")
    if states[-1] != states[run.loop_start]:
        raise Unconvicted("its loop is not closed")
    for condition in fairness:
        if not is_respected(system, condition, run):
            raise Unconvicted(f"its loop neglects the fair step {condition.name}")


def is_respected(system: TransitionSystem[Any], condition: Fairness, run: Run) -> bool:
    """Whether going round the loop of a lasso for ever is fair to one set of steps."""
    assert run.loop_start is not None
    states = run.states
    loop = range(run.loop_start, len(run.steps))
    if any(condition.matches(run.steps[at][0]) and states[at] != states[at + 1] for at in loop):
        return True
    offered = enabled_in_loop(system, condition, run)
    return not any(offered) if isinstance(condition, StrongFairness) else not all(offered)


def enabled_in_loop(system: TransitionSystem[Any], condition: Fairness, run: Run) -> list[bool]:
    """For each state of the loop, whether a changing step of the condition is enabled there."""
    return [
        any(condition.matches(label) and after != state for label, after in system.successors(state))
        for state in run.states[run.loop_start :]
    ]


def blamed(system: TransitionSystem[Any], law: str, engine: str, symmetry: bool, reason: Unconvicted) -> Exception:
    """The error to raise for a violation that does not convict: the author's, or ours."""
    said = f"{system.name}: {law}: a violation was found, but the specification does not replay it: {reason}"
    if symmetry:
        return InputError(
            f"{said}; a set declared symmetric is none (an initial state, an action or a law tells its members apart):"
            " leave out --symmetry, or symmetric=True"
        )
    if engine == "compiled":
        return Defect(f"{said}; the compiled engine is wrong: use --engine interpreted, and report this")
    return InputError(
        f"{said}; its text does not do the same twice (random numbers, the clock, something kept between calls):"
        " let actions and laws depend on the state alone"
    )


def steps_of(system: TransitionSystem[Any], state: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The steps out of a state without their footprints, to be compared."""
    return [(label[:3], after) for label, after in system.successors(state)]
