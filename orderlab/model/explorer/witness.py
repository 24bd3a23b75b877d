"""Witnesses: runs of a system that break a law; the shortest of them, replayed before it is told, and one sentence why.

A behaviour is a finite run, step by step, with what changed; a lasso if its end repeats for ever. It is plain data:
JSON both ways, and a numbered story for people.

The shortest run with the fewest switches between processes comes from a breadth-first numbering. Backwards through the
levels: which states lie on a shortest path to a target. Then forwards along these only, keeping for each concrete state
and each process that stepped last the path with the fewest switches. With symmetry the levels hold representatives,
while the path is rebuilt from concrete states, so that processes keep their names.

What does not convict when it is replayed is named as an error. The search may be wrong for four reasons: the compiled
engine is; a symmetry that is declared is none; a text does not do the same twice (it draws random numbers, reads the
clock, keeps something between calls); or what a law or a step tells of the places that it reads is not so. The replay
uses nothing of the search but the labels and the states: initial states, successors, laws and fairness are asked of the
system again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orderlab.model.errors import Defect, InputError
from orderlab.model.explorer.space import Space
from orderlab.model.spec.transition_system import (
    Fairness,
    Invariant,
    Label,
    LeadsTo,
    StepInvariant,
    StrongFairness,
    TransitionSystem,
)
from orderlab.model.spec.variables import shown

Change = tuple[str, Any, Any]
"""The place in the state, and its value before and after."""


@dataclass(frozen=True)
class BehaviourStep:
    """Who did what, and the places of the state that changed."""

    actor: str
    action: str
    arguments: Mapping[str, Any]
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.actor}: {self.action}" + (f"({given})" if given else "")


@dataclass(frozen=True)
class Behaviour:
    """`loop_start` is None for a finite run. Else the steps from that index on repeat for ever; when it is the number
    of steps, the system stays in its last state for ever."""

    initial: Mapping[str, Any]
    steps: tuple[BehaviourStep, ...]
    loop_start: int | None = None
    statement: str = ""
    """What the law that it breaks says."""
    why: str = ""
    """One sentence: what of the behaviour breaks the law."""

    @property
    def switches(self) -> int:
        """How often the next step is another process's."""
        return sum(one.actor != other.actor for one, other in zip(self.steps, self.steps[1:], strict=False))

    def to_json(self) -> dict[str, Any]:
        return {
            "initial": dict(self.initial),
            "steps": [
                {
                    "actor": step.actor,
                    "action": step.action,
                    "arguments": dict(step.arguments),
                    "changes": [{"place": p, "before": b, "after": a} for p, b, a in step.changes],
                }
                for step in self.steps
            ],
            "loop_start": self.loop_start,
            "statement": self.statement,
            "why": self.why,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Behaviour:
        steps = [
            BehaviourStep(
                step["actor"],
                step["action"],
                dict(step["arguments"]),
                tuple((c["place"], c["before"], c["after"]) for c in step["changes"]),
            )
            for step in data["steps"]
        ]
        said = (data.get("statement", ""), data.get("why", ""))
        return Behaviour(dict(data["initial"]), tuple(steps), data["loop_start"], *said)


class SystemRun(NamedTuple):
    """An initial state and the labelled states after it, as the system has them. With `loop_start` the steps from that
    index on repeat for ever; a liveness obligation begins after `obliged_at` steps."""

    first: Any
    steps: list[tuple[Label, Any]]
    loop_start: int | None = None
    obliged_at: int = 0

    @property
    def states(self) -> list[Any]:
        return [self.first, *(state for _, state in self.steps)]


def behaviour(system: TransitionSystem[Any], run: SystemRun, statement: str = "", why: str = "") -> Behaviour:
    """Describe a run."""
    initial = before = dict(system.describe(run.first))
    steps = []
    for label, state in run.steps:
        after = dict(system.describe(state))
        steps.append(BehaviourStep(label.actor, label.action, dict(label.arguments), tuple(changes("", before, after))))
        before = after
    return Behaviour(initial, tuple(steps), run.loop_start, statement, why)


def changes(place: str, before: Any, after: Any) -> Iterator[Change]:
    """Where two described states differ, as deep down as both have the same shape."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            inner = f"{place}.{key}" if place else str(key)
            yield from changes(inner, before.get(key), after.get(key))
    elif type(before) is list and type(after) is list and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from changes(f"{place}[{at}]", one, other)
    elif before != after:
        yield place, before, after


def story(told: Behaviour) -> list[str]:
    """The behaviour as numbered lines, each step followed by what it changed."""
    lines = ["0. initially: " + ", ".join(f"{name} = {shown(value)}" for name, value in told.initial.items())]
    for number, step in enumerate(told.steps, 1):
        if told.loop_start == number - 1:
            lines.append("   from here on, for ever:")
        lines.append(f"{number}. {step}")
        lines += [f"     {place}: {shown(before)} -> {shown(after)}" for place, before, after in step.changes]
        if not step.changes:
            lines.append("     (nothing changes)")
    if told.loop_start is not None:
        stays = told.loop_start == len(told.steps)
        lines.append("   and stays there for ever" if stays else f"   then again from step {told.loop_start + 1}")
    return lines


CHUNK = 1 << 14


class Unconvicted(Exception):
    """A violation was found that no run of the system shows. The message says what is missing."""


class _Path(NamedTuple):
    """The best path to a state whose last step was one process's: its switches, and a chain back to the start."""

    switches: int
    state: Any
    label: Label | None
    before: _Path | None


def shortest_witness(
    space: Space, levels: Sequence[int], expanded: int, depth: int, is_target: Callable[[Any], bool]
) -> SystemRun:
    """A shortest run to a target among the states of level `depth`, with the fewest switches.

    Level d holds the states levels[d] .. levels[d + 1] - 1, of which those from `expanded` on have not been expanded.
    Raises Unconvicted if no run of the system leads to a target there: what found it was wrong.
    """
    first, last = levels[depth], levels[depth + 1]
    targets = {number for number in range(first, last) if is_target(space.state(number))}
    if not targets:
        raise Unconvicted("no state of the level in which it was found breaks it when asked again")
    best = _fewest_switches(space, _layers(space, levels, expanded, depth, targets))
    return _told(_plainest(list(best.values())))


def shortest_step_witness(
    space: Space, levels: Sequence[int], expanded: int, depth: int, is_violated: Callable[[Any, Label, Any], bool]
) -> SystemRun:
    """A shortest run that ends in a violating step out of a state of level `depth`."""
    system = space.system

    def bad_steps(state: Any) -> list[tuple[Label, Any]]:
        return [(label, after) for label, after in system.successors(state) if is_violated(state, label, after)]

    # What lies beyond a constraint is judged as a state; its steps are not taken.
    level = set(range(levels[depth], levels[depth + 1])) - space.cut
    sources = {n for n in sorted(level) if bad_steps(space.state(n))}
    if not sources:
        raise Unconvicted("no step out of the level in which it was found breaks it when asked again")
    best = _fewest_switches(space, _layers(space, levels, expanded, depth, sources))
    ends: list[_Path] = []
    for path in best.values():
        ends += [_extended(path, label, after) for label, after in bad_steps(path.state)]
    return _told(_plainest(ends))


def _plainest(paths: Sequence[_Path]) -> _Path:
    if not paths:
        raise Unconvicted("no run leads there step by step")
    return min(paths, key=lambda path: path.switches)


def _layers(space: Space, levels: Sequence[int], expanded: int, depth: int, targets: set[int]) -> list[set[int]]:
    """For each level the states from which a target can be reached in just as many steps as are left."""
    layers = [targets]
    for level in range(depth - 1, -1, -1):
        wanted = np.zeros(levels[level + 2], np.bool_)
        wanted[list(layers[0])] = True
        on_the_way: set[int] = set()
        end = min(levels[level + 1], expanded)
        for first in range(levels[level], end, CHUNK):
            edges = space.edges(first, min(first + CHUNK, end))
            near = edges.target < len(wanted)
            hits = near.copy()
            hits[near] = wanted[edges.target[near]]
            on_the_way.update(np.unique(edges.source[hits]).tolist())
        layers.insert(0, on_the_way)
    return layers


def _fewest_switches(space: Space, layers: Sequence[set[int]]) -> dict[tuple[Any, str], _Path]:
    """The best path for each (last state, last process). Earlier found paths win ties, so the result is
    deterministic.
    """
    best: dict[tuple[Any, str], _Path] = {}
    for state in space.system.initial_states():
        if space.number_of(state) in layers[0]:
            best.setdefault((state, ""), _Path(0, state, None, None))
    for layer in layers[1:]:
        following: dict[tuple[Any, str], _Path] = {}
        steps: dict[Any, list[tuple[Label, Any]]] = {}
        for path in best.values():
            if path.state not in steps:
                offered = space.system.successors(path.state)
                steps[path.state] = [(label, after) for label, after in offered if space.number_of(after) in layer]
            for label, after in steps[path.state]:
                longer = _extended(path, label, after)
                known = following.get((after, label.actor))
                if known is None or longer.switches < known.switches:
                    following[after, label.actor] = longer
        best = following
    return best


def _extended(path: _Path, label: Label, after: Any) -> _Path:
    switched = path.label is not None and path.label.actor != label.actor
    return _Path(path.switches + switched, after, label, path)


def _told(path: _Path) -> SystemRun:
    run: list[tuple[Label, Any]] = []
    while path.label is not None:
        run.insert(0, (path.label, path.state))
        assert path.before is not None
        path = path.before
    return SystemRun(path.state, run)


TIMES = 3
"""How often a step and a law are asked for: what draws at random seldom answers alike so often."""


def convict(
    system: TransitionSystem[Any],
    law: Invariant[Any] | StepInvariant[Any] | LeadsTo[Any] | None,
    run: SystemRun,
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


def _broken(system: TransitionSystem[Any], law: Invariant[Any] | StepInvariant[Any] | None, run: SystemRun) -> bool:
    states = run.states
    if law is None:
        return not system.is_terminal(states[-1]) and next(iter(system.successors(states[-1])), None) is None
    if isinstance(law, StepInvariant):
        return bool(run.steps) and not law.holds(states[-2], run.steps[-1][0], states[-1])
    return (law.antecedent is None or law.antecedent(states[-1])) and not law.holds(states[-1])


def _neglected(system: TransitionSystem[Any], law: LeadsTo[Any], run: SystemRun, fairness: Sequence[Fairness]) -> None:
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
    offers = _changes_in_loop(system, run)
    for condition in fairness:
        if not _is_respected(condition, run, offers):
            raise Unconvicted(f"its loop neglects the fair step {condition.name}")


def _is_respected(condition: Fairness, run: SystemRun, offers: Sequence[Sequence[Label]]) -> bool:
    """Whether going round the loop of a lasso for ever is fair to one set of steps."""
    if _is_taken(condition, run):
        return True
    offered = _is_enabled(condition, offers)
    return not any(offered) if isinstance(condition, StrongFairness) else not all(offered)


def _changes_in_loop(system: TransitionSystem[Any], run: SystemRun) -> list[list[Label]]:
    """The steps that change something, for each state of the loop."""
    return [
        [label for label, after in system.successors(state) if after != state] for state in run.states[run.loop_start :]
    ]


def _is_enabled(condition: Fairness, offers: Sequence[Sequence[Label]]) -> list[bool]:
    return [any(map(condition.matches, labels)) for labels in offers]


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


NAMED_AT_MOST = 3


def why_broken(
    system: TransitionSystem[Any],
    law: Invariant[Any] | StepInvariant[Any] | LeadsTo[Any] | None,
    run: SystemRun,
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


def _never(system: TransitionSystem[Any], law: LeadsTo[Any], run: SystemRun, fairness: Sequence[Fairness]) -> str:
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


def _permitted(system: TransitionSystem[Any], run: SystemRun, fairness: Sequence[Fairness]) -> str:
    """Why fairness does not end the loop."""
    if not fairness:
        return ", for no action is declared fair"
    assert run.loop_start is not None
    now_and_then, never = [], []
    offers = _changes_in_loop(system, run)
    for condition in fairness:
        offered = _is_enabled(condition, offers)
        if not any(offered):
            never.append(condition.name)
        elif not isinstance(condition, StrongFairness) and not all(offered) and not _is_taken(condition, run):
            now_and_then.append(condition.name)
    if now_and_then:
        return f", for weak fairness asks nothing of what is enabled only now and then: {_listed(now_and_then)}"
    if never:
        return f", for no fair step is left out that is enabled; never enabled there: {_listed(never)}"
    return ", and every fair step is among them"


def _is_taken(condition: Fairness, run: SystemRun) -> bool:
    states = run.states
    loop = range(run.loop_start or 0, len(run.steps))
    return any(condition.matches(run.steps[at][0]) and states[at] != states[at + 1] for at in loop)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
