"""An exploration: every law of a system decided, with witnesses, coverage, and what was left out.

Coverage and vacuity: a law that was never tested, or an action that never happened, is a failure. A
specification whose guard can never be met satisfies every invariant. So a complete exploration in which an action never
fired or an antecedent never held is vacuous in that respect, and vacuous is not held: `coverage` is unknown, names
them, and so is each law that was not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderlab.model.explorer.audit import Audit
from orderlab.model.explorer.search import (
    Options,
    Progress,
    Search,
    constraints_of,
    search,
    unreduced_up_to,
    whole_graph,
)
from orderlab.model.explorer.witness import (
    Behaviour,
    SystemRun,
    Unconvicted,
    behaviour,
    blamed,
    convict,
    shortest_step_witness,
    shortest_witness,
    why_broken,
)
from orderlab.model.spec.transition_system import (
    COVERAGE,
    DEADLOCK,
    Constraint,
    Invariant,
    Law,
    LeadsTo,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict, worst


def coverage_verdict(
    fired: Mapping[str, int],
    declared: tuple[str, ...],
    untested: Sequence[str],
    unfinished: str | None,
    undecided: Sequence[str] = (),
) -> Verdict:
    """Judge declared actions and laws. While states are missing, what was not seen is only not seen yet, and so is what
    a law asks for that was not decided (`undecided`)."""
    silent = [name for name in declared if not fired.get(name)]
    work = {"actions": len(declared), "actions_fired": len(declared) - len(silent)}
    if not silent and not untested and not undecided:
        return Verdict(COVERAGE, Outcome.HOLDS, work=work)
    open_ = tuple(f"{law} was not decided, and so not tested" for law in undecided)
    if unfinished is not None:
        missing = tuple(f"action {name} has not fired" for name in silent)
        missing += tuple(f"{law} has not been tested" for law in untested)
        return Verdict(COVERAGE, Outcome.UNKNOWN, work=work, not_covered=(unfinished, *missing, *open_))
    gaps = tuple(f"vacuous: action {name} never fired" for name in silent)
    gaps += tuple(f"vacuous: {law} was never tested" for law in untested)
    if gaps:
        work = {**work, "antecedents": 0}
    return Verdict(COVERAGE, Outcome.UNKNOWN, work=work, not_covered=(*gaps, *open_))


OUTSIDE_THE_REDUCED_GRAPH = "a shorter witness may exist outside the reduced graph"
NO_DEADLOCK_SAID = "In each state some action is enabled, or stopping there is right."


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
    search: Search | None
    """None for random walks, which visit no whole space."""
    allow_vacuous: bool = False

    @property
    def outcome(self) -> Outcome:
        """The worst of the verdicts; with `allow_vacuous`, of those that were tested."""
        return worst(one.outcome for one in self.verdicts if not (self.allow_vacuous and one.vacuous))

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
    violation the search ends with that level (unless `options.keep_going`), and laws that were not violated by then are
    unknown. So is a law that was not tested (unless `options.allow_vacuous`).
    Raises InputError as `search` does and where the system does not keep what it claims
    (`orderlab.model.explorer.audit`), SpecificationError when the text of a specification is wrong, Defect when an
    engine is.
    """
    run = search(system, options, progress, should_stop)
    seconds = run.meter.total_seconds()
    constraints = constraints_of(system, options)
    audit = Audit(system, run.chosen.laws, constraints, options.seed)
    decided = [law.name for law in run.chosen.laws if run.complete and law.name not in run.space.found]
    audit.check(
        run.space.count, run.space.state, run.space.cut, options.symmetry, run.reduction is not None, decided,
        lambda state: not run.complete or run.reduction is not None or run.space.number_of(state) is not None,
        compiled=run.space.engine == "compiled",
    )  # fmt: skip
    judge = _Judge(run, progress, should_stop)
    verdicts = judge.verdicts()
    space = run.space
    return Exploration(
        specification=system.name,
        parameters=system.parameters(),
        verdicts=tuple(verdicts),
        complete=run.complete,
        stopped_by=run.stopped_by,
        distinct_states=run.distinct_states,
        transitions=space.steps,
        depth=run.depth,
        actions=dict(space.fired()),
        antecedents=judge.met,
        goals={law.name: _depth_of(run, law.name) for law in run.chosen.laws if isinstance(law, Sometimes)},
        reductions={
            "symmetry": options.symmetry,
            "partial_order": run.reduction is not None,
            "states_reduced": run.reduction.reduced_states if run.reduction else 0,
        },
        notes=(*run.notes, *judge.notes, *_notes_on_constraints(run, constraints)),
        run={
            "engine": space.engine,
            "seconds": round(seconds, 3),
            "states_per_s": round(run.distinct_states / seconds) if seconds > 0 else 0,
            "transitions_per_s": round(space.steps / seconds) if seconds > 0 else 0,
            "bytes": space.bytes_held(),
            "resumed": run.resumed,
        },
        search=run,
        allow_vacuous=options.allow_vacuous,
    )


def _depth_of(run: Search, law: str) -> int | None:
    """How many steps from an initial state a goal is, or None if it was not reached."""
    number = run.space.found.get(law)
    if number is None:
        return len(run.seen_before[law]) - 1 if law in run.seen_before else None
    return next(depth for depth, first in enumerate(run.closed_levels()[1:]) if number < first)


def _notes_on_constraints(run: Search, constraints: Sequence[Constraint[Any]]) -> list[str]:
    if not constraints:
        return []
    names = ", ".join(one.name for one in constraints)
    return [f"constraint {names}: {len(run.space.cut):,} states beyond it were judged and not gone on from"]


class _Judge:
    """Turns one search into verdicts."""

    def __init__(
        self,
        run: Search,
        progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        self.run = run
        self.progress, self.should_stop = progress, should_stop
        self.notes: list[str] = []
        self.undecided: list[str] = []
        """Liveness laws that a search which ended early says nothing of."""
        self.laws = run.chosen.laws
        self.work = {"states": run.distinct_states, "transitions": run.space.steps}
        self.unfinished = self._why_unfinished()
        if self.unfinished is not None:
            self.work[UNFINISHED] = 1
        self.beyond: tuple[str, ...] = (
            () if not run.space.cut else ("what lies beyond the constraint was not explored",)
        )
        names = {law.name for law in self.laws}
        self.met = {name: times for name, times in run.space.met().items() if name in names}
        """In how many states each antecedent held, liveness included once it is decided."""

    def _why_unfinished(self) -> str | None:
        run = self.run
        known = f"{run.space.count:,} states were seen, {run.expanded:,} of them expanded, to depth {run.depth}"
        if run.stopped_by is not None:
            return f"stopped by {run.stopped_by}: {known}"
        if run.violated() and not run.complete:
            return f"stopped at the violation of {', '.join(run.violated())}: {known}"
        return None

    def verdicts(self) -> list[Verdict]:
        found = [self._safety(law.name, law) for law in self.laws if isinstance(law, Invariant | StepInvariant)]
        if self.run.chosen.deadlock:
            found.append(self._safety(DEADLOCK, None))
        found += [self._goal(law) for law in self.laws if isinstance(law, Sometimes)]
        found = [self._decided_without(verdict) for verdict in found]
        found += self._liveness([law for law in self.laws if isinstance(law, LeadsTo)])
        told = {verdict.law for verdict in found}
        found += [
            self._untested(name, "its parameters have no values")
            for name in self.run.chosen.unbound
            if name not in told
        ]
        declared = tuple(self.run.system.action_names())
        if self.run.chosen.coverage and (declared or self.met or self.undecided or self.run.chosen.unbound):
            untested = dict.fromkeys([*(n for n, times in self.met.items() if not times), *self.run.chosen.unbound])
            coverage = coverage_verdict(self.run.space.fired(), declared, [*untested], self.unfinished, self.undecided)
            found.append(self._decided_without(coverage))
        return found

    def _untested(self, law: str, reason: str) -> Verdict:
        return Verdict(law, Outcome.UNKNOWN, work={**self.work, "antecedents": 0}, not_covered=(f"vacuous: {reason}",))

    def _why_untested(self, name: str, law: Law | None) -> str | None:
        """Why a law that nothing broke was not tested either."""
        if not self.run.space.count:
            return "there is no initial state"
        if name in self.run.chosen.unbound:
            return "its parameters have no values"
        if self.met.get(name) == 0:
            return "its antecedent was never met"
        if isinstance(law, StepInvariant) and not self.run.space.steps:
            return "no step was taken"
        return None

    def _safety(self, name: str, law: Invariant[Any] | StepInvariant[Any] | None) -> Verdict:
        work = dict(self.work)
        if name in self.met:
            work["antecedents"] = self.met[name]
        if name in self.run.space.found:
            witness, gaps = self._witness(self.run, name, law)
            return Verdict(name, Outcome.VIOLATED, witness, work, gaps)
        if name in self.run.seen_before:
            witness, gaps = self._witness_of_earlier_round(name, law)
            return Verdict(name, Outcome.VIOLATED, witness, work, gaps)
        if self.unfinished is not None:
            return Verdict(name, Outcome.UNKNOWN, work=work, not_covered=(self.unfinished,))
        if reason := self._why_untested(name, law):
            return self._untested(name, reason)
        return Verdict(name, Outcome.HOLDS, work=work, not_covered=self.beyond)

    def _decided_without(self, verdict: Verdict, whole: Search | None = None) -> Verdict:
        """The verdict, saying which of the reductions that were asked for it was decided without; `whole` is the search
        of all states where that is another than the run."""
        options, run = self.run.options, whole or self.run
        left_out = ["symmetry"] if whole is not None and whole is not self.run else []
        left_out += ["reduction"] if options.reduction and run.reduction is None else []
        where = f", on all {run.distinct_states:,} states" if "symmetry" in left_out else ""
        return replace(verdict, how=f"without {' and '.join(left_out)}{where}") if left_out else verdict

    def _witness(
        self, run: Search, name: str, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> tuple[Behaviour, tuple[str, ...]]:
        levels = run.closed_levels()
        depth = _depth_of(run, name)
        assert depth is not None
        if run.reduction is not None and run.reduction.reduced_states:
            again = unreduced_up_to(run, name, depth + (0 if isinstance(law, Invariant) else 1))
            if name in again.space.found:
                return self._witness(again, name, law)
            return self._build(run, levels, depth, name, law), (OUTSIDE_THE_REDUCED_GRAPH,)
        gaps: tuple[str, ...] = ()
        if run.stopped_by is not None and run.expanded < run.levels[-1]:
            gaps = (f"as short as any, but with more switches than needed perhaps: stopped by {run.stopped_by}",)
        return self._build(run, levels, depth, name, law), gaps

    def _witness_of_earlier_round(
        self, name: str, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> tuple[Behaviour, tuple[str, ...]]:
        """As `_witness`, for what the unfinished last round of a reduction has not come to again."""
        states = self.run.seen_before[name]  # representatives, under symmetry
        again = unreduced_up_to(self.run, name, len(states) - (1 if isinstance(law, Invariant) else 0))
        if name in again.space.found:
            return self._witness(again, name, law)
        canonical = self.run.system.canonical if self.run.options.symmetry else lambda state: state
        first = next(state for state in self.run.system.initial_states() if canonical(state) == states[0])
        path = SystemRun(first, [])
        for wanted in states[1:]:
            offered = self.run.system.successors(path.states[-1])
            path.steps.append(next(step for step in offered if canonical(step[1]) == wanted))
        return self._replayed(self.run, path, name, law), (OUTSIDE_THE_REDUCED_GRAPH,)

    def _build(
        self, run: Search, levels: list[int], depth: int, name: str, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> Behaviour:
        """The shortest witness, replayed. Raises an error that names the culprit if it does not convict."""
        try:
            witness = self._shortest(run, levels, depth, law)
        except Unconvicted as reason:
            raise blamed(run.system, name, run.space.engine, run.options.symmetry, reason) from None
        return self._replayed(run, witness, name, law)

    @staticmethod
    def _replayed(
        run: Search, witness: SystemRun, name: str, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> Behaviour:
        try:
            convict(run.system, law, witness)
        except Unconvicted as reason:
            raise blamed(run.system, name, run.space.engine, run.options.symmetry, reason) from None
        statement = law.statement if law is not None else NO_DEADLOCK_SAID
        return behaviour(run.system, witness, statement, why_broken(run.system, law, witness))

    def _shortest(
        self, run: Search, levels: list[int], depth: int, law: Invariant[Any] | StepInvariant[Any] | None
    ) -> SystemRun:
        system, cut = run.system, run.space.cut
        if isinstance(law, StepInvariant):
            return shortest_step_witness(run.space, levels, run.expanded, depth, lambda s, m, t: not law.holds(s, m, t))

        def is_target(state: Any) -> bool:
            if law is None:
                stuck = next(iter(system.successors(state)), None) is None and not system.is_terminal(state)
                return stuck and (not cut or run.space.number_of(state) not in cut)
            return (law.antecedent is None or law.antecedent(state)) and not law.holds(state)

        return shortest_witness(run.space, levels, run.expanded, depth, is_target)

    def _goal(self, law: Sometimes[Any]) -> Verdict:
        if law.name in self.run.space.found or law.name in self.run.seen_before:
            return Verdict(law.name, Outcome.HOLDS, work=self.work)
        if gaps := (self.unfinished,) if self.unfinished is not None else self.beyond:
            return Verdict(law.name, Outcome.UNKNOWN, work=self.work, not_covered=gaps)
        missed = {"never_reached": law.name, "statement": law.statement}
        return Verdict(law.name, Outcome.VIOLATED, missed, self.work)

    def _liveness(self, laws: list[LeadsTo[Any]]) -> list[Verdict]:
        if not laws:
            return []
        run, gap = self.run, self.unfinished
        if gap is None and run.options.symmetry:
            run = whole_graph(run, [law.name for law in laws], self.progress, self.should_stop)
            if not run.complete:
                gap = (
                    "not decided on representatives, whose cycles need not be cycles of one process, and "
                    f"{run.space.count:,}"
                    f" of all states were seen: stopped by {run.stopped_by}"
                )
        if gap is not None:
            self.undecided = [law.name for law in laws]
            return [Verdict(law.name, Outcome.UNKNOWN, work=self.work, not_covered=(gap,)) for law in laws]
        if run is not self.run:
            self.notes.append(
                f"{', '.join(law.name for law in laws)}: decided without symmetry, on all {run.distinct_states:,} "
                "states, for a"
                " cycle of representatives need not be a cycle of one process"
            )
        from orderlab.model.explorer.state_graph import FairnessCondition, StateGraph, find_lasso

        space, system = run.space, run.system
        graph = StateGraph.of(space)
        fairness = system.fairness()
        conditions = [FairnessCondition(graph, one) for one in fairness]
        found = []
        for law in laws:
            lasso, obliged = find_lasso(space, graph, law, conditions)
            self.met[law.name] = obliged
            work = {"states": run.distinct_states, "transitions": run.space.steps, "antecedents": obliged}
            if lasso is None:
                found.append(self._decided_without(self._live(law, work), run))
                continue
            try:
                convict(system, law, lasso, fairness)
            except Unconvicted as reason:
                raise blamed(system, law.name, space.engine, False, reason) from None
            why = why_broken(system, law, lasso, fairness)
            verdict = Verdict(law.name, Outcome.VIOLATED, behaviour(system, lasso, law.statement, why), work)
            found.append(self._decided_without(verdict, run))
        return found

    def _live(self, law: LeadsTo[Any], work: Mapping[str, int]) -> Verdict:
        if not work["antecedents"]:
            return self._untested(law.name, self._why_untested(law.name, law) or "its obligation never began")
        if self.beyond:
            return Verdict(
                law.name,
                Outcome.UNKNOWN,
                work=work,
                not_covered=("behaviours that leave the constraint were not followed",),
            )
        return Verdict(law.name, Outcome.HOLDS, work=work)
