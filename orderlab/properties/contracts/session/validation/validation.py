"""The validation of one session store: its analyses, its small world with few packet identifiers, its verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orderlab.model.contracts.session.contract import SessionTerms
from orderlab.model.contracts.session.traces import Churn, Trace
from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.subject import (
    HEAVY,
    REHEARSAL_MODULUS,
    Reruns,
    Subject,
    heaviness,
)
from orderlab.properties.contracts.session.validation.exploration import MODULUS, explore_scopes, small_world
from orderlab.properties.contracts.session.validation.footprint import Footprint, measure_footprint
from orderlab.properties.contracts.session.validation.machine import run_machine
from orderlab.properties.contracts.session.validation.queue_at_limit import (
    SMALL_QUEUES,
    run_queues_at_limit,
    try_boundaries,
)
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.confirmation import SessionPerformer
from orderlab.properties.contracts.session.witness.explanation import explain
from orderlab.properties.contracts.session.witness.full_scale import as_it_stands, with_fewer_steps, with_passing
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.validation.effort import QUICK, SCALED_STEPS, STANDARD, WALKS, count, name_of_effort, rounds_of
from orderlab.properties.validation.findings import Finding, Findings, was_stopped, wording
from orderlab.properties.validation.schedule import Analysis, Schedule
from orderlab.properties.validation.validation import Validation, run_rounds
from orderlab.properties.validation.verdicts import CAUSES_MAX, Judge, WitnessSearch
from orderlab.properties.validation.work_order import USUAL, WorkOrder
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.properties.witness.witness import Explanation, Witness
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine, scale

LONG_QUEUES_FROM = 4.0
"""The effort from which on the longer queues at the limit are run."""
ENDLESS_STEPS = 3_000
"""Steps for making a witness short on the scripts as they are where one of them does not end."""
FURTHER_SCALED = 0.2
"""Of a law's share, what further causes at full scale may take."""
TRIAL = f"an effort below {QUICK:g} (quick) runs no queue at its limit, and takes no counter round in the state machine"
TERMS = SessionTerms("session")
OF_NODES = ("one-slot", "bounded")
"""Laws that speak of scripts on a node."""


@dataclass(frozen=True)
class SessionValidation(Validation):
    """With the footprint of the operations, and the lines that were rewritten for the small world."""

    footprint: Footprint = field(default_factory=Footprint)
    rewritten: tuple[RewrittenLine, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The author's, and what every search takes for granted."""
        callers, taken = self.binding.callers, list(self.binding.assumptions)
        if "limit" not in self.binding.fixed and callers.limit != "any":
            taken.append(f"no caller gives a limit that is not in 1..{self.binding.modulus:,}")
        if callers.default_expiry_ms == "positive":
            taken.append("no caller gives a default interval of 0")
        return tuple(taken)

    @property
    def facts(self) -> dict[str, str]:
        """Commands and time of each operation."""
        return {f"commands of {name}": _costs(by_length) for name, by_length in self.footprint.costs.items()}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the keys and commands of operations an owner wants to know."""
        told = [
            f"undeclared keys of {operation}: {', '.join(keys)}"
            for operation, keys in self.footprint.undeclared_patterns().items()
        ]
        commands = sorted(self.footprint.writes.get("fetch") or ())
        return (*told, *([f"fetch writes: {', '.join(commands)}"] if commands else []), *self.notes)

    @property
    def scope(self) -> tuple[str, ...]:
        """The lines that were rewritten for the small scope."""
        places = [f"{line.file}:{line.line}" if line.line else line.file for line in self.rewritten]
        return tuple(
            f"for the small scope, {place} reads: {line.after.strip()}"
            for place, line in zip(places, self.rewritten, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """The schema is in ``notes/validate-json.md``."""
        return {
            **super().to_json(),
            "effort": name_of_effort(self.effort),
            "footprint": self.footprint.to_json(),
            "scaled_lines": [[line.file, line.line, line.before, line.after] for line in self.rewritten],
        }


def laws_of(binding: Binding) -> list[str]:
    """The laws that a store is held to: tables have no slots, and no scripts that block a node."""
    return [law for law in STORE_LAWS if binding.tables is None or law not in OF_NODES]


def _costs(by_length: Mapping[int, tuple[int, float]]) -> str:
    return ", ".join(f"{calls:,} for {length:,} ({ms:.2f} ms)" for length, (calls, ms) in sorted(by_length.items()))


def validate(binding: Binding, order: WorkOrder = USUAL) -> SessionValidation:
    """Judge the store of ``binding``. Raises InputError when it cannot be run at all."""
    limit = binding.fixed.get("limit")
    if limit is not None and not 1 <= limit <= binding.modulus:
        raise InputError(f"{binding.place}: fixed.limit: {limit} is not in 1..{binding.modulus}; correct it")
    subject = Subject(binding, order.seed)
    findings = Findings(frozenset(laws_of(binding) if order.laws is None else order.laws))
    small = small_world(subject, findings)
    footprints: list[Footprint] = []
    analyses = analyses_of(subject, small, footprints)
    schedule = Schedule(analyses, findings, subject.cpu_budget, order.progress, order.processes)
    judge = SessionJudge(subject, small, findings, order)
    is_whole = run_rounds(schedule, judge, rounds_of(order.effort), order.budget_s)
    results = tuple(judge.result(law) for law in STORE_LAWS if law in findings.wanted)
    notes, gaps, rewritten = tuple(findings.notes), tuple(judge.gaps), tuple(small.rewritten)
    return SessionValidation(
        binding, TERMS, results, notes, gaps, dict(findings.work), order.seed, order.effort, findings.seen,
        not is_whole, footprints[-1] if footprints else Footprint(), rewritten,
    )  # fmt: skip


def worlds_of(binding: Binding) -> list[Binding]:
    """The store as it is, and with few packet identifiers."""
    return [binding, *(scale(binding, modulus)[0] for modulus in (MODULUS, REHEARSAL_MODULUS))]


def analyses_of(subject: Subject, small: Subject, footprints: list[Footprint]) -> tuple[Analysis, ...]:
    """What is done with a session store, the quickest first. Its footprint goes to ``footprints``."""

    def more(unit: int, effort: float, done: float) -> tuple[int, int]:
        """How many more of what ``unit`` counts, and how many there were."""
        before = count(unit, done) if done else 0
        return count(unit, effort) - before, before

    def machine(own: Findings, effort: float, done: float) -> None:
        if effort < QUICK:
            own.gaps.append(TRIAL)
        run_machine(subject, own, *more(1, effort, done), crosses_the_wrap=effort >= QUICK)

    def note_footprint(footprint: Footprint | None) -> None:
        if footprint is not None:
            footprints.append(footprint)

    return (
        Analysis("scenarios", lambda own, effort, done: run_scenarios(small, own), 0.0),
        Analysis("footprint", lambda own, effort, done: measure_footprint(subject, own), 0.0, note_footprint),
        Analysis(
            "queues at the limit", lambda own, effort, done: run_queues_at_limit(subject, own, 0, SMALL_QUEUES), QUICK
        ),
        Analysis("lengths", lambda own, effort, done: try_boundaries(subject, own, effort, done)),
        Analysis("exploration", lambda own, effort, done: explore_scopes(small, own, effort)),
        Analysis("random walks", lambda own, effort, done: walk_about(small, own, *more(WALKS, effort, done))),
        Analysis("state machine", machine),
        Analysis(
            "large queues at the limit",
            lambda own, effort, done: run_queues_at_limit(subject, own, SMALL_QUEUES),
            LONG_QUEUES_FROM,
        ),
    )


class SessionJudge(Judge):
    """``Judge`` with a twin ``small`` that has few packet identifiers: what breaks it is brought to full scale.

    First comes what needs no scaling, one witness for each law; then what must be brought to full scale, for laws that
    have none; then further causes.
    """

    def __init__(
        self,
        subject: Subject,
        small: Subject,
        findings: Findings,
        order: WorkOrder,
    ) -> None:
        self.small = Reruns(small)
        self.large = Reruns(subject)
        self.modulus = subject.binding.modulus
        self._shortened: set[tuple[str, Trace]] = set()
        """Of a law, the traces of the small scope that were tried once they were short."""
        self._in_vain: dict[int, Finding] = {}
        """What was tried with others passing, by identity."""
        self._pending: dict[str, list[Finding]] = defaultdict(list)
        """Of a law, what breaks it in the small scope and not, as it stands, on the scripts as they are; made short."""
        budget = subject.cpu_budget
        server = None if subject.binding.tables else order.backend  # which is one of Redis
        confirmer = Confirmer(server, SessionPerformer(subject.binding, subject.baselines_of), budget)
        super().__init__(TERMS, subject.binding, order, self.large, findings, budget, confirmer)

    def searches(self, effort: float) -> Sequence[WitnessSearch]:
        """With what must be brought to full scale after what needs no scaling."""
        further = [self.further] if effort < STANDARD else [self.further, self.further_scaled]
        return (self.plain, self.scaled, *(() if self.only_first else further))

    def share_of(self, search: str, share: int) -> int:
        """Each further cause at full scale carries on for some ten thousand steps, and the law is known to be
        violated."""
        if search == "further_scaled":
            return int(share * FURTHER_SCALED)
        return max(share, SCALED_STEPS) if search == "scaled" else share

    @property
    def spent(self) -> int:
        """Steps in the small world, at full scale and in rehearsal."""
        rehearsal = self.large.rehearsal
        return self.small.spent + self.large.spent + (rehearsal.spent if rehearsal else 0)

    def is_counted(self, finding: Finding) -> bool:
        """Whether it was seen by counting calls and keys."""
        return is_counted(finding)

    def is_soon(self, finding: Finding) -> bool:
        """Whether few messages pass in it."""
        return heaviness(finding.trace) <= HEAVY

    def cost(self, finding: Finding) -> tuple[Any, ...]:
        """A script that does not end is stopped much sooner in the small world, so that its trace is made short
        there."""
        is_scaled = finding.trace.modulus != self.modulus
        return heaviness(finding.trace) > HEAVY, is_scaled is not is_endless(finding), finding.size

    def full_scale(self, law: str) -> list[Finding]:
        """What was found with all packet identifiers, of few messages if there is such."""
        full = [one for one in self.findings.by_law[law] if one.trace.modulus == self.modulus]
        return [one for one in full if self.is_soon(one)] or full

    def explain(self, finding: Finding) -> Explanation:
        """On the scripts as they are."""
        return explain(self.large, finding.trace)

    def scaled(self, law: str) -> Iterator[None]:
        """The first witness, of what takes long: messages that must pass, queues at the limit."""
        if self.witnesses.get(law):
            return
        for known in self._with_passing():  # what took long to reach for one law often breaks another as well
            broken = self.large.law_broken(known.finding.trace, law)
            if broken is not None:
                self.tell(Finding(law, broken[1], known.finding.trace, known.finding.analysis))
                return
            yield
        yield from self._bring_to_scale(law)
        for finding in self.candidates(law):
            if self.witnesses.get(law):
                return
            self.attempt(finding)
            yield

    def further_scaled(self, law: str) -> Iterator[None]:
        """Other causes, with messages that must pass."""
        if len(self.witnesses.get(law, ())) < CAUSES_MAX:
            yield from self._bring_to_scale(law, further=True)

    def _with_passing(self) -> list[Witness]:
        known = [one for causes in self.witnesses.values() for one in causes.values()]
        return [one for one in known if any(isinstance(step, Churn) for step in one.finding.trace.steps)]

    def _bring_to_scale(self, law: str, further: bool = False) -> Iterator[None]:
        for finding in list(self._pending[law]):
            if self.witnesses.get(law) and not further:
                return
            if id(finding) in self._in_vain or finding.kind in self.kinds[law]:
                continue
            is_short = not self.only_first
            found = with_passing(finding.trace, law, self.modulus, self.small, self.large, is_short)
            self._in_vain[id(finding)] = finding
            if found is not None:
                broken = self.large.law_broken(found, law)
                self.kinds[law].add(finding.kind)
                self.tell(replace(finding, trace=found, text=broken[1] if broken else ""))
            yield

    def reproduced(self, finding: Finding) -> Trace | None:
        """As it stands on the scripts as they are, made short before if it is of the small world."""
        law, trace = finding.law, finding.trace
        if trace.modulus != self.modulus:
            trace = minimise(trace, law, self.small, wording=finding.kind.wording)
            if (law, trace) in self._shortened:  # other findings have come down to the same steps
                return None
            self._shortened.add((law, trace))
        found = as_it_stands(trace, law, self.modulus, self.large)
        if found is None:
            if trace.modulus != self.modulus:
                self._pending[law].append(replace(finding, trace=trace))
            return None
        return self._short(found, law)

    def _short(self, found: Trace, law: str) -> Trace:
        """A trace on the scripts as they are, made short."""
        if any(isinstance(step, Churn) for step in found.steps):
            return found if self.only_first else with_fewer_steps(found, law, self.large)
        broken = self.large.law_broken(found, law)
        if broken and is_endless(Finding(law, broken[1], found, "")):
            return minimise(found, law, self.large, ENDLESS_STEPS)
        return minimise(found, law, self.large, wording=wording(broken[1]) if broken else "")

    def small_scope(self, law: str) -> Witness | None:
        """What breaks the law on the scripts with few identifiers, told on these."""
        small = self.small.subject
        known = [*self._pending[law], *(one for one in self.findings.by_law[law] if one.trace.modulus != self.modulus)]
        if not known or not small.rewritten:
            return None
        self.budget.lift()
        trace = replace(known[0].trace, law=law, store=str(small.binding.path), seed=small.seed)
        explanation = explain(Reruns(small.recording()), trace)
        return Witness(
            replace(known[0], trace=trace),
            explanation,
            f"with {trace.modulus} packet identifiers only",
            TERMS,
            self.rounds,
        )


def is_endless(finding: Finding) -> bool:
    """Whether a script was stopped at its limits, which takes long each time."""
    return was_stopped(finding.law, finding.text)


def is_counted(finding: Finding) -> bool:
    """Whether it was seen by counting calls and keys, which the steps alone do not show."""
    by_footprint = finding.analysis == "footprint" or finding.analysis.startswith("a queue of")
    return finding.law == "one-slot" or (finding.law == "bounded" and by_footprint and not is_endless(finding))
