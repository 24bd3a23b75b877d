"""An exploration: every law of a system decided, with witnesses, coverage, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.explorer.behaviour import Behaviour
from model.explorer.coverage import coverage_verdict
from model.explorer.search import Options, Progress, Search, search, unreduced_up_to
from model.explorer.space import DEADLOCK
from model.explorer.witness import shortest_step_witness, shortest_witness
from model.transition_system import Invariant, LeadsTo, Sometimes, StepInvariant, TransitionSystem
from model.verdict import Outcome, Verdict, worst


@dataclass(frozen=True)
class Exploration:
    """`distinct_states` counts representatives when symmetry was on. `run` holds what may differ between two runs."""

    specification: str
    parameters: Mapping[str, Any]
    verdicts: tuple[Verdict, ...]
    complete: bool
    stopped_by: str | None
    distinct_states: int
    transitions: int
    depth: int
    actions: Mapping[str, int]
    antecedents: Mapping[str, int]
    goals: Mapping[str, int | None]
    reductions: Mapping[str, Any]
    notes: tuple[str, ...]
    run: Mapping[str, Any]
    search: Search

    @property
    def outcome(self) -> Outcome:
        return worst(verdict.outcome for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        return {
            "specification": self.specification,
            "parameters": dict(self.parameters),
            "outcome": str(self.outcome),
            "complete": self.complete,
            "stopped_by": self.stopped_by,
            "distinct_states": self.distinct_states,
            "transitions": self.transitions,
            "depth": self.depth,
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "actions": dict(self.actions),
            "antecedents": dict(self.antecedents),
            "goals": dict(self.goals),
            "reductions": dict(self.reductions),
            "notes": list(self.notes),
            "run": dict(self.run),
        }


def explore(
    system: TransitionSystem[Any],
    options: Options = Options(),  # noqa: B008 - frozen
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Exploration:
    """Search the system and decide its laws.

    Every law gets a verdict: invariants, step invariants, absence of deadlock, goals, liveness, and `coverage`. After a
    violation the search ends with that level, and laws that were not violated by then are unknown.
    Raises InputError as `search` does, SpecificationError when the text of a specification is wrong.
    """
    run = search(system, options, progress, should_stop)
    seconds = run.meter.total_seconds()
    judge = _Judge(run)
    verdicts = judge.verdicts()
    space = run.space
    return Exploration(
        specification=system.name,
        parameters=system.parameters(),
        verdicts=tuple(verdicts),
        complete=run.complete,
        stopped_by=run.stopped_by,
        distinct_states=space.count,
        transitions=space.steps,
        depth=run.depth,
        actions=dict(space.fired()),
        antecedents=judge.met,
        goals={law.name: _depth_of(run, law.name) for law in system.laws() if isinstance(law, Sometimes)},
        reductions={
            "symmetry": options.symmetry,
            "partial_order": options.reduction,
            "states_reduced": run.reduction.reduced_states if run.reduction else 0,
        },
        notes=tuple(run.notes),
        run={
            "engine": space.engine,
            "seconds": round(seconds, 3),
            "states_per_s": round(space.count / seconds) if seconds > 0 else 0,
            "transitions_per_s": round(space.steps / seconds) if seconds > 0 else 0,
            "bytes": space.bytes_held(),
            "resumed": run.resumed,
        },
        search=run,
    )


def _depth_of(run: Search, law: str) -> int | None:
    """How many steps from an initial state a goal is, or None if it was not reached."""
    number = run.space.found.get(law)
    if number is None:
        return None
    return next(depth for depth, first in enumerate(run.closed_levels()[1:]) if number < first)


class _Judge:
    """Turns one search into verdicts."""

    def __init__(self, run: Search):
        self.run = run
        self.work = {"states": run.space.count, "transitions": run.space.steps}
        self.unfinished = self._why_unfinished()
        self.met = dict(run.space.met())
        """In how many states each antecedent held, liveness included once it is decided."""

    def _why_unfinished(self) -> str | None:
        run = self.run
        known = f"{run.space.count:,} states were seen, {run.expanded:,} of them expanded, to depth {run.depth}"
        if run.stopped_by is not None:
            return f"stopped by {run.stopped_by}: {known}"
        if run.violated():
            return f"stopped at the violation of {', '.join(run.violated())}: {known}"
        return None

    def verdicts(self) -> list[Verdict]:
        laws = self.run.system.laws()
        found = [self._safety(law.name, law) for law in laws if isinstance(law, Invariant | StepInvariant)]
        if self.run.system.deadlock_is_violation:
            found.append(self._safety(DEADLOCK, None))
        found += [self._goal(law) for law in laws if isinstance(law, Sometimes)]
        found += self._liveness([law for law in laws if isinstance(law, LeadsTo)])
        declared = tuple(self.run.system.action_names())
        if declared or self.met:
            found.append(coverage_verdict(self.run.space.fired(), declared, self.met, self.unfinished))
        return found

    def _safety(self, name: str, law: Invariant[Any] | StepInvariant[Any] | None) -> Verdict:
        work = dict(self.work)
        if name in self.met:
            work["antecedents"] = self.met[name]
        if name in self.run.space.found:
            witness, gaps = self._witness(self.run, name, law)
            return Verdict(name, Outcome.VIOLATED, witness, work, gaps)
        if self.unfinished is not None:
            return Verdict(name, Outcome.UNKNOWN, work=work, not_covered=(self.unfinished,))
        return Verdict(name, Outcome.HOLDS, work=work)

    def _witness(
        self, run: Search, name: str, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> tuple[Behaviour, tuple[str, ...]]:
        levels = run.closed_levels()
        depth = _depth_of(run, name)
        assert depth is not None
        if run.reduction is not None and run.reduction.reduced_states:
            again = unreduced_up_to(run, depth + (0 if isinstance(law, Invariant) else 1))
            if name in again.space.found:
                return self._witness(again, name, law)
            return self._build(run, levels, depth, law), ("a shorter witness may exist outside the reduced graph",)
        gaps: tuple[str, ...] = ()
        if run.stopped_by is not None and run.expanded < run.levels[-1]:
            gaps = (f"as short as any, but with more switches than needed perhaps: stopped by {run.stopped_by}",)
        return self._build(run, levels, depth, law), gaps

    def _build(
        self, run: Search, levels: list[int], depth: int, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> Behaviour:
        system = run.system
        if isinstance(law, StepInvariant):
            return shortest_step_witness(run.space, levels, run.expanded, depth, lambda s, m, t: not law.holds(s, m, t))

        def is_target(state: Any) -> bool:
            if law is None:
                return not system.is_terminal(state) and next(iter(system.successors(state)), None) is None
            return (law.antecedent is None or law.antecedent(state)) and not law.holds(state)

        return shortest_witness(run.space, levels, run.expanded, depth, is_target)

    def _goal(self, law: Sometimes[Any]) -> Verdict:
        if law.name in self.run.space.found:
            return Verdict(law.name, Outcome.HOLDS, work=self.work)
        if self.unfinished is not None:
            return Verdict(law.name, Outcome.UNKNOWN, work=self.work, not_covered=(self.unfinished,))
        missed = {"never_reached": law.name, "statement": law.statement}
        return Verdict(law.name, Outcome.VIOLATED, missed, self.work)

    def _liveness(self, laws: list[LeadsTo[Any]]) -> list[Verdict]:
        if not laws:
            return []
        gap = self.unfinished
        if self.run.options.symmetry:
            gap = gap or "liveness is decided on the graph of all states, not of representatives; use --no-symmetry"
        if gap is not None:
            return [Verdict(law.name, Outcome.UNKNOWN, work=self.work, not_covered=(gap,)) for law in laws]
        from model.explorer.liveness import StateGraph, find_lasso

        graph = StateGraph.of(self.run.space)
        fairness = self.run.system.fairness()
        found = []
        for law in laws:
            lasso, obliged = find_lasso(self.run.space, graph, law, fairness)
            self.met[law.name] = obliged
            work = {**self.work, "antecedents": obliged}
            found.append(Verdict(law.name, Outcome.VIOLATED if lasso else Outcome.HOLDS, lasso, work))
        return found
