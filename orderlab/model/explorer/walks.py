"""Random walks: for spaces too large to visit, as many behaviours as asked for, drawn by a seed.

A walk begins in a random initial state and takes a random step each time; the states that it might have gone to are
judged as well, for they are known anyhow. What is found is a violation like any other: shortened, replayed, told. What
is not found is unknown, however many walks there were. Each walk draws from a stream of its own, so a walk does not
depend on those before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.explorer.audit import Audit
from orderlab.model.explorer.exploration import NO_DEADLOCK_SAID, Exploration, coverage_verdict, explore
from orderlab.model.explorer.search import (
    PROGRESS_EVERY_S,
    Budget,
    Chosen,
    Meter,
    Options,
    Progress,
    chosen_laws,
    constraints_of,
)
from orderlab.model.explorer.witness import Behaviour, SystemRun, Unconvicted, behaviour, blamed, convict, why_broken
from orderlab.model.spec.transition_system import (
    DEADLOCK,
    Invariant,
    Label,
    LeadsTo,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict

SHORTEN_WITHIN = 20_000
"""States visited to find a shorter witness than the walk's."""

Safety = Invariant[Any] | StepInvariant[Any] | None


@dataclass
class _Walks:
    """What the walks have met so far. `broken` has for each law the run that broke it first."""

    system: TransitionSystem[Any]
    options: Options
    chosen: Chosen
    meter: Meter
    seen: dict[Any, int] = field(default_factory=dict)
    broken: dict[str, SystemRun] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    steps: int = 0
    deepest: int = 0
    walked: int = 0
    stopped_by: str | None = None

    def __post_init__(self) -> None:
        laws = self.chosen.laws
        self.fired = dict.fromkeys(self.system.action_names(), 0)
        self.invariants = [law for law in laws if isinstance(law, Invariant)]
        self.step_laws = [law for law in laws if isinstance(law, StepInvariant)]
        self.goals = [law for law in laws if isinstance(law, Sometimes)]
        self.met = {law.name: 0 for law in self.invariants if law.antecedent is not None}
        self.constraints = constraints_of(self.system, self.options)

    @property
    def is_over(self) -> bool:
        """Whether a law is broken that ends the search."""
        return not self.options.keep_going and any(name in self.broken for name in self.chosen.safety)

    def enter(self, state: Any, path: list[tuple[Label, Any]], first: Any) -> None:
        """Judge a state that was not met before."""
        if state in self.seen:
            return
        number = self.seen[state] = len(self.seen)
        for law in self.invariants:
            if law.antecedent is not None:
                if not law.antecedent(state):
                    continue
                self.met[law.name] += 1
            if law.name not in self.broken and not law.holds(state):
                self.broken[law.name] = SystemRun(first, list(path))
        for goal in self.goals:
            if goal.name not in self.reached and goal.reached(state):
                self.reached[goal.name] = len(path)
        if not all(one.holds(state) for one in self.constraints):
            self.cut.add(number)

    def walk(self, starts: list[Any], random: Random, depth: int) -> None:
        state = first = random.choice(starts)
        path: list[tuple[Label, Any]] = []
        self.enter(first, path, first)
        while len(path) < depth and self.seen[state] not in self.cut and not self.is_over:
            steps = list(self.system.successors(state))
            for label, after in steps:
                longer = [*path, (label, after)] if after not in self.seen or self.step_laws else path
                self.fired[label.action] = self.fired.get(label.action, 0) + 1
                for law in self.step_laws:
                    if law.name not in self.broken and not law.holds(state, label, after):
                        self.broken[law.name] = SystemRun(first, longer)
                self.enter(after, longer, first)
            self.steps += len(steps)
            if not steps:
                if self.chosen.deadlock and DEADLOCK not in self.broken and not self.system.is_terminal(state):
                    self.broken[DEADLOCK] = SystemRun(first, list(path))
                break
            path.append(random.choice(steps))
            state = path[-1][1]
        self.deepest = max(self.deepest, len(path))


def explore_by_walks(
    system: TransitionSystem[Any],
    options: Options,
    walks: int,
    depth: int,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Exploration:
    """Walk at random, `walks` times at most `depth` steps, and tell what was met.

    Budgets end the walks between two of them. Raises InputError for options that only a search has, and as `explore`.
    """
    if options.symmetry or options.reduction or options.checkpoint is not None or options.engine == "compiled":
        raise InputError(
            f"{system.name}: --walks visits no whole space: leave out --symmetry, --reduction, --checkpoint and "
            "--engine"
        )
    found = _Walks(system, options, chosen_laws(system, options.laws), Meter(options.budget))
    starts = list(system.initial_states())
    told_s = time.monotonic()
    while starts and found.walked < walks and not found.is_over:
        found.stopped_by = found.meter.exhausted(len(found.seen), 0)
        if should_stop():
            found.stopped_by = "an interrupt"
        if found.stopped_by is not None:
            break
        found.walk(starts, Random(f"walk {found.walked} of {options.seed}"), depth)
        found.walked += 1
        if progress is not None and time.monotonic() - told_s >= PROGRESS_EVERY_S:
            told_s = time.monotonic()
            progress(Progress(len(found.seen), found.steps, walks - found.walked, found.deepest, found.meter.seconds()))
    states = list(found.seen)
    Audit(system, found.chosen.laws, found.constraints, options.seed).check(len(states), states.__getitem__, found.cut)
    return _told(found, depth)


def _told(found: _Walks, depth: int) -> Exploration:
    seconds = found.meter.total_seconds()
    system = found.system
    said = f"{found.walked:,} random walks of at most {depth:,} steps, seed {found.options.seed}"
    gap = f"{said}: they met {len(found.seen):,} states, and do not tell of the others"
    if found.stopped_by is not None:
        gap += f"; stopped by {found.stopped_by}"
    notes = [said]
    if found.cut:
        notes.append(f"constraints: {len(found.cut):,} states beyond them were judged and not gone on from")
    return Exploration(
        specification=system.name,
        parameters=system.parameters(),
        verdicts=tuple(_verdicts(found, gap)),
        complete=False,
        stopped_by=found.stopped_by,
        distinct_states=len(found.seen) - len(found.cut),
        transitions=found.steps,
        depth=found.deepest,
        actions=found.fired,
        antecedents=found.met,
        goals={goal.name: found.reached.get(goal.name) for goal in found.goals},
        reductions={"symmetry": False, "partial_order": False, "states_reduced": 0},
        notes=tuple(notes),
        run={
            "engine": "interpreted",
            "seconds": round(seconds, 3),
            "states_per_s": round(len(found.seen) / seconds) if seconds > 0 else 0,
            "transitions_per_s": round(found.steps / seconds) if seconds > 0 else 0,
            "bytes": 0,
            "resumed": False,
        },
        search=None,
        allow_vacuous=found.options.allow_vacuous,
    )


def _verdicts(found: _Walks, gap: str) -> list[Verdict]:
    work = {"states": len(found.seen), "transitions": found.steps, "walks": found.walked, UNFINISHED: 1}
    told: list[Verdict] = []
    laws: list[tuple[str, Safety]] = [
        (law.name, law) for law in found.chosen.laws if isinstance(law, Invariant | StepInvariant)
    ]
    for name, law in [*laws, *([(DEADLOCK, None)] if found.chosen.deadlock else [])]:
        tested = {"antecedents": found.met[name]} if name in found.met else {}
        if name in found.broken:
            witness, note = _shortened(found, name, law)
            told.append(Verdict(name, Outcome.VIOLATED, witness, {**work, **tested}, (note,)))
        else:
            told.append(Verdict(name, Outcome.UNKNOWN, work={**work, **tested}, not_covered=(gap,)))
    for goal in found.goals:
        reached = goal.name in found.reached
        told.append(
            Verdict(goal.name, Outcome.HOLDS, work=work)
            if reached
            else Verdict(goal.name, Outcome.UNKNOWN, work=work, not_covered=(gap,))
        )
    no_end = "random walks do not decide what must happen in the end; search without --walks"
    liveness = [law for law in found.chosen.laws if isinstance(law, LeadsTo)]
    told += [Verdict(law.name, Outcome.UNKNOWN, work=work, not_covered=(no_end,)) for law in liveness]
    declared = tuple(found.system.action_names())
    if found.chosen.coverage and (declared or found.met or found.chosen.unbound or liveness):
        untested = dict.fromkeys([*(name for name, times in found.met.items() if not times), *found.chosen.unbound])
        told.append(coverage_verdict(found.fired, declared, [*untested], gap, [law.name for law in liveness]))
    return told


def _shortened(found: _Walks, name: str, law: Safety) -> tuple[Behaviour, str]:
    """The walk's run without its detours, or the shortest witness where a search of bounded size finds it."""
    system, options = found.system, found.options
    run = without_detours(system, found.broken[name], law)
    try:
        convict(system, law, run)
    except Unconvicted as reason:
        raise blamed(system, name, "interpreted", False, reason) from None
    long = len(found.broken[name].steps)
    budget = Budget(max_states=SHORTEN_WITHIN)
    fewer = len(run.steps) - 1
    if fewer < 0:
        return behaviour(system, run, _statement(law), why_broken(system, law, run)), "an initial state breaks it"
    shorter = explore(system, replace(options, laws=(name,), max_depth=fewer, budget=budget, engine="interpreted"))
    verdict = shorter.verdicts[0]
    if verdict.outcome is Outcome.VIOLATED:
        return verdict.witness, f"a walk of {long} steps broke it; this is the shortest witness"
    witness = behaviour(system, run, _statement(law), why_broken(system, law, run))
    if "the budget of" not in (shorter.stopped_by or ""):
        return witness, f"a walk of {long} steps broke it; no witness is shorter"
    return witness, f"a walk of {long} steps broke it, shortened to {len(run.steps)}; a shorter witness may exist"


def _statement(law: Safety) -> str:
    return law.statement if law is not None else NO_DEADLOCK_SAID


def without_detours(system: TransitionSystem[Any], run: SystemRun, law: Safety) -> SystemRun:
    """The shortest run through states of this one, by steps between them, to the same end.

    The last step of a run that breaks a law of steps stays, for it is what breaks it.
    """
    kept = run.steps[-1:] if isinstance(law, StepInvariant) else []
    states = run.states[: len(run.states) - len(kept)]
    goal = states[-1]
    within = set(states)
    came_by: dict[Any, tuple[Any, Label] | None] = {run.first: None}
    frontier = [run.first]
    while goal not in came_by:
        following = []
        for state in frontier:
            for label, after in system.successors(state):
                if after in within and after not in came_by:
                    came_by[after] = state, label
                    following.append(after)
        if not following:
            return run
        frontier = following
    steps = list(kept)
    while (before := came_by[goal]) is not None:
        steps.insert(0, (before[1], goal))
        goal = before[0]
    return SystemRun(run.first, steps)
