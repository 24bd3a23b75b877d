"""The whole validation of one store: the analyses in order, each law's verdict with its effort and its gaps."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from orderlab.model.contracts.session.contract import BY_LAW
from orderlab.model.contracts.session.steps import Churn, Step, Trace
from orderlab.model.errors import InputError
from orderlab.model.laws import LAWS, STORE_LAWS
from orderlab.model.verdict import Outcome, Verdict, worst
from orderlab.properties.contracts.session.validation.exploration import explore_scopes, small_world
from orderlab.properties.contracts.session.validation.footprint import Footprint, measure_footprint
from orderlab.properties.contracts.session.validation.machine import run_machine
from orderlab.properties.contracts.session.validation.queue_at_limit import (
    SMALL_QUEUES,
    run_queues_at_limit,
    try_boundaries,
)
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.subject import HEAVY, Reruns, Subject, heaviness
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.confirmation import NOT_BY_RUNNING, Confirmation, confirm, place_of
from orderlab.properties.contracts.session.witness.full_scale import as_it_stands, with_fewer_steps, with_passing
from orderlab.properties.contracts.session.witness.minimisation import minimise
from orderlab.properties.contracts.session.witness.witness import Cause, Witness, explain
from orderlab.properties.validation.effort import (
    INSTRUCTIONS,
    INSTRUCTIONS_MORE,
    QUICK,
    SCALED_STEPS,
    STANDARD,
    WALKS,
    count,
    name_of_effort,
    rounds_of,
    witness_steps,
)
from orderlab.properties.validation.findings import Finding, Findings, Kind, was_stopped, wording
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine
from orderlab.sim.stores.bound import BudgetExceeded

SEARCHING = 0.7
"""Of a cap in seconds, what the analyses may take; the rest is for witnesses."""
CONFIRMING = 0.1
"""And beyond it, for confirmations on a server."""
CAUSES_MAX = 5
"""Witnesses with different causes that are told of one law."""
LONG_QUEUES_FROM = 4.0
"""The effort from which on the longer queues at the limit are run."""
ENDLESS_STEPS = 3_000
"""Steps for making a witness short on the scripts as they are where one of them does not end."""
FURTHER_SCALED = 0.2
"""Of a law's share, what further causes at full scale may take."""
BROKEN_SMALL = "broken in the small scope, and not reproduced on the scripts as they are"

TRIAL = f"an effort below {QUICK:g} (quick) runs no queue at its limit, and no counter round on the scripts as they are"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LawResult:
    """A verdict on one law, or the reason why the law says nothing about this store."""

    verdict: Verdict
    not_applicable: str = ""
    others: tuple[Witness, ...] = ()
    """Of a violated law: witnesses with other causes, the plainest first."""
    small_scope: Witness | None = None
    """Of an unknown one: what breaks it on the scripts with few packet identifiers, and was not reproduced on them as they are."""

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome


@dataclass(frozen=True)
class Validation:
    """What validation found out about one store."""

    binding: Binding
    results: tuple[LawResult, ...]
    footprint: Footprint
    rewritten: tuple[RewrittenLine, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    work: dict[str, float]
    seed: int
    effort: float = STANDARD

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; laws that say nothing about this store do not count, and if none says anything, nothing is known."""
        outcomes = [result.outcome for result in self.results if not result.not_applicable]
        return worst(outcomes) if outcomes else Outcome.UNKNOWN

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The author's, and what every search takes for granted."""
        callers, taken = self.binding.callers, list(self.binding.assumptions)
        if "limit" not in self.binding.fixed and callers.limit != "any":
            taken.append(f"no caller gives a limit that is not in 1..{self.binding.modulus:,}")
        if callers.default_expiry_ms == "positive":
            taken.append("no caller gives a default interval of 0")
        return tuple(taken)

    def to_json(self) -> dict[str, Any]:
        """The schema is in ``notes/semantics.md``."""
        return {
            "store": str(self.binding.path),
            "name": self.binding.name,
            "outcome": str(self.outcome),
            "seed": self.seed,
            "effort": name_of_effort(self.effort),
            "laws": [
                {
                    **result.verdict.to_json(),
                    "other_witnesses": [one.to_json() for one in result.others],
                    "small_scope_witness": result.small_scope and result.small_scope.to_json(),
                    "not_applicable": result.not_applicable or None,
                }
                for result in self.results
            ],
            "footprint": self.footprint.to_json(),
            "scaled_lines": [[line.file, line.line, line.before, line.after] for line in self.rewritten],
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "not_covered": list(self.gaps),
            "work": self.work,
        }


def validate(
    binding: Binding,
    effort: float = STANDARD,
    seed: int = 0,
    laws: Iterable[str] = STORE_LAWS,
    backend: Backend | None = None,
    progress: Progress = lambda text: None,
    budget_s: float | None = None,
    only_first: bool = False,
) -> Validation:
    """Judge the store of ``binding`` by ``laws`` with so much ``effort``; ``budget_s`` is a cap in seconds on all of it.

    ``backend`` is a real server that witnesses are replayed on, if there is one. With ``only_first`` it ends with the analysis
    after which each of ``laws`` has a witness. Raises InputError when the store cannot be run at all.
    """
    began = time.monotonic()
    limit = binding.fixed.get("limit")
    if limit is not None and not 1 <= limit <= binding.modulus:
        raise InputError(f"{binding.place}: fixed.limit: {limit} is not in 1..{binding.modulus}; correct it")
    subject = Subject(binding, seed)
    findings = Findings(frozenset(laws))
    small = small_world(subject, findings)
    footprint = Footprint()
    searches = Searches(subject, small, findings, footprint, progress)
    judge = Judge(subject, small, findings, backend, progress, only_first)

    def is_enough(now: float) -> bool:
        return only_first and judge.has_soon(now)

    def cap(share: float) -> None:
        if budget_s is not None:
            subject.cpu_budget.set(max(share * budget_s + began - time.monotonic(), 0.0), time.monotonic)

    for now in rounds_of(effort):
        try:
            cap(SEARCHING)
            cut_in = searches.round(now, is_enough)
        except KeyboardInterrupt:
            findings.interrupted = True
            break
        subject.cpu_budget.allow(inf)
        if only_first and judge.has_all:
            break
        cap(1.0)
        is_whole = judge.consider(now)
        if cut_in or not is_whole:
            place = cut_in or "the witnesses"
            told = f"the cap of {budget_s:g} s cut off the round {name_of_effort(now)} in: {place}; what comes after was not done"
            findings.gaps.append(told)
            break
        if only_first and judge.has_all:
            break
    if findings.interrupted:
        judge.consider(QUICK)
    subject.cpu_budget.lift()
    cap(1.0 + CONFIRMING)
    results = tuple(judge.result(law) for law in STORE_LAWS if law in findings.wanted)
    gaps = tuple(judge.gaps)
    return Validation(
        binding, results, footprint, tuple(small.rewritten), tuple(findings.notes), gaps, dict(findings.work), seed, effort
    )


class Searches:
    """All analyses of one store, round by round: each goes on where it ended in the round before."""

    def __init__(
        self, subject: Subject, small: Subject, findings: Findings, footprint: Footprint, progress: Progress
    ) -> None:
        self.subject = subject
        self.small = small
        self.findings = findings
        self.footprint = footprint
        self.progress = progress
        self.done = 0.0
        """The effort of the rounds so far."""

    def round(self, effort: float, is_enough: Callable[[float], bool] = lambda effort: False) -> str:
        """Everything up to ``effort``, unless it ``is_enough`` before. Where the time ran out, if it did: the name of that analysis."""
        for name, analysis in self._analyses(effort):
            self.progress(f"{name}, {name_of_effort(effort)}")
            self.subject.cpu_budget.allow(INSTRUCTIONS + INSTRUCTIONS_MORE * effort)
            try:
                analysis()
            except BudgetExceeded:
                if self.subject.cpu_budget.is_past:
                    return name
                self.findings.gaps.append(f"{name}: not finished, the scripts are too slow")
            if is_enough(effort):
                break
        self.done = effort
        return ""

    def _analyses(self, effort: float) -> Iterator[tuple[str, Callable[[], object]]]:
        subject, small, findings, done = self.subject, self.small, self.findings, self.done

        def more(unit: int) -> tuple[int, int]:
            """How many more of what ``unit`` counts, and how many there were."""
            before = count(unit, done) if done else 0
            return count(unit, effort) - before, before

        if not done:
            yield "scenarios", lambda: run_scenarios(small, findings)
            yield "footprint", lambda: measure_footprint(subject, findings, self.footprint)
        is_trial = effort < QUICK
        if is_trial:
            findings.gaps.append(TRIAL)
        elif not done:
            yield "queues at the limit", lambda: run_queues_at_limit(subject, findings, 0, SMALL_QUEUES)
        yield "lengths", lambda: try_boundaries(subject, findings, effort, done)
        yield "exploration", lambda: explore_scopes(small, findings, effort)
        yield "random walks", lambda: walk_about(small, findings, *more(WALKS))
        yield "state machine", lambda: run_machine(subject, findings, *more(1), crosses_the_wrap=not is_trial)
        if done < LONG_QUEUES_FROM <= effort:
            yield "large queues at the limit", lambda: run_queues_at_limit(subject, findings, SMALL_QUEUES)


class Judge:
    """From candidates to verdicts: ``subject`` is the store, ``small`` its twin with few identifiers.

    Every law has its own share of the work. First comes what needs no scaling, one witness for each law; then what must be
    brought to full scale, for laws that have none; then further causes.
    """

    def __init__(
        self,
        subject: Subject,
        small: Subject,
        findings: Findings,
        backend: Backend | None,
        progress: Progress,
        only_first: bool = False,
    ) -> None:
        self.subject = subject
        self.findings = findings
        self.backend = backend
        self.progress = progress
        self.only_first = only_first
        """One witness for each law, which nobody reads to its end: where messages pass it stays as long as it is."""
        self.small = Reruns(small)
        self.large = Reruns(subject)
        self.modulus = subject.binding.modulus
        self.witnesses: dict[str, dict[Cause, Witness]] = {}
        self.rounds = 0
        self.lost = ""
        """What became of the server, if it went away."""
        self.confirmed: dict[tuple[tuple[bytes, ...], tuple[Step, ...]], Confirmation] = {}
        self._kinds: dict[str, set[Kind]] = defaultdict(set)
        """Of a law, those of its witnesses."""
        self._tried: dict[int, Finding] = {}
        """By identity: what was tried as it stands."""
        self._failed: Counter[tuple[str, Kind]] = Counter()
        """How many findings of a kind were tried as they stand, in any round, and not seen."""
        self._shortened: set[tuple[str, Trace]] = set()
        """Of a law, the traces of the small scope that were tried once they were short."""
        self._in_vain: dict[int, Finding] = {}
        """The same of what was tried with others passing."""
        self._pending: dict[str, list[Finding]] = defaultdict(list)
        """Of a law, what breaks it in the small scope and not, as it stands, on the scripts as they are; made short."""
        self._used: Counter[tuple[str, str]] = Counter()
        """Of each law's share of each search in this round."""
        self._share = 0

    # -- witnesses ---------------------------------------------------------------------------------------------------

    def consider(self, effort: float) -> bool:
        """Make witnesses of what was found so far. False when the time ran out."""
        self.rounds += 1
        self._used.clear()
        self._share = witness_steps(effort)
        laws = [law for law in STORE_LAWS if law in self.findings.by_law]
        further = [self._further] if effort < STANDARD else [self._further, self._further_scaled]
        for search in (self._plain, self._scaled, *(() if self.only_first else further)):
            for law in laws:
                self.progress(f"witness of {law}")
                if not self._within_share(law, search):
                    self._as_found(laws)
                    return False
        return True

    def has_soon(self, effort: float) -> bool:
        """Whether each law that was asked for has a witness, with those that can be made of what was found so far."""
        if not self.findings.wanted <= self.findings.by_law.keys():
            return False
        self.subject.cpu_budget.allow(inf)
        return self.consider(effort) and self.has_all

    @property
    def has_all(self) -> bool:
        """Whether each law that was asked for has a witness."""
        return all(self.witnesses.get(law) for law in self.findings.wanted)

    def _within_share(self, law: str, search: Callable[[str], Iterator[None]]) -> bool:
        """Search step by step while the law's share lasts; False when the time ran out."""
        steps = search(law)
        name = search.__name__
        share = max(self._share, SCALED_STEPS) if name == "_scaled" else self._share
        if name == "_further_scaled":  # each carries on for some ten thousand steps, and the law is known to be violated
            share = int(self._share * FURTHER_SCALED)
        while self._used[law, name] < share:
            before = self._spent()
            try:
                next(steps)
            except StopIteration:
                return True
            except BudgetExceeded:  # or scripts that do not end
                return not self.subject.cpu_budget.is_past
            finally:
                self._used[law, name] += self._spent() - before
        return True

    def _spent(self) -> int:
        rehearsal = self.large.rehearsal
        return self.small.spent + self.large.spent + (rehearsal.spent if rehearsal else 0)

    def _candidates(self, law: str) -> list[Finding]:
        """What was not tried yet and is of no known kind, what takes the least work first."""
        known = self._kinds[law]
        left = [
            one
            for one in self.findings.by_law[law]
            if id(one) not in self._tried and one.kind not in known and self._failed[law, one.kind] < Findings.KEPT
        ]

        def cost(one: Finding) -> tuple[bool, bool, tuple[int, int]]:
            is_scaled = one.trace.modulus != self.modulus
            # A script that does not end is stopped much sooner in the small world, so that its trace is made short there.
            return heaviness(one.trace) > HEAVY, is_scaled is not is_endless(one), one.size

        return sorted(left, key=cost)

    def _plain(self, law: str) -> Iterator[None]:
        """The first witness, of candidates that are soon run."""
        for finding in self._candidates(law):
            if self.witnesses.get(law) or heaviness(finding.trace) > HEAVY:
                return
            self._try(finding)
            yield

    def _scaled(self, law: str) -> Iterator[None]:
        """The first witness, of what takes long: messages that must pass, queues at the limit."""
        if self.witnesses.get(law):
            return
        for known in self._with_passing():  # what took long to reach for one law often breaks another as well
            broken = self.large.law_broken(known.finding.trace, law)
            if broken is not None:
                self._tell(Finding(law, broken[1], known.finding.trace, known.finding.analysis))
                return
            yield
        yield from self._bring_to_scale(law)
        for finding in self._candidates(law):
            if self.witnesses.get(law):
                return
            self._try(finding)
            yield

    def _further(self, law: str) -> Iterator[None]:
        """Other causes, of candidates that are soon run."""
        for finding in self._candidates(law):
            if heaviness(finding.trace) > HEAVY or len(self.witnesses.get(law, ())) >= CAUSES_MAX:
                return
            if finding.kind not in self._kinds[law]:
                self._try(finding)
                yield

    def _further_scaled(self, law: str) -> Iterator[None]:
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
            if id(finding) in self._in_vain or finding.kind in self._kinds[law]:
                continue
            found = with_passing(finding.trace, law, self.modulus, self.small, self.large)
            self._in_vain[id(finding)] = finding
            if found is not None:
                broken = self.large.law_broken(found, law)
                self._kinds[law].add(finding.kind)
                self._tell(replace(finding, trace=self._short(found, law), text=broken[1] if broken else finding.text))
            yield

    def _try(self, finding: Finding) -> None:
        """The finding as it stands on the scripts as they are; if they show it, made short and told."""
        self._tried[id(finding)] = finding
        law, trace = finding.law, finding.trace
        if is_counted(finding):
            self._tell(finding)
            return
        if trace.modulus != self.modulus:
            trace = minimise(trace, law, self.small, wording=finding.kind.wording)
            if (law, trace) in self._shortened:  # other findings have come down to the same steps
                self._failed[law, finding.kind] += 1
                return
            self._shortened.add((law, trace))
        found = as_it_stands(trace, law, self.modulus, self.large)
        if found is None:
            self._failed[law, finding.kind] += 1
            if trace.modulus != self.modulus:
                self._pending[law].append(replace(finding, trace=trace))
            return
        self._kinds[law].add(finding.kind)
        self._tell(replace(finding, trace=self._short(found, law)))

    def _short(self, found: Trace, law: str) -> Trace:
        """A trace on the scripts as they are, made short."""
        if any(isinstance(step, Churn) for step in found.steps):
            return found if self.only_first else with_fewer_steps(found, law, self.large)
        broken = self.large.law_broken(found, law)
        if broken and is_endless(Finding(law, broken[1], found, "")):
            return minimise(found, law, self.large, ENDLESS_STEPS)
        return minimise(found, law, self.large, wording=wording(broken[1]) if broken else "")

    def _tell(self, finding: Finding) -> None:
        """Explain it; of several witnesses with one cause the shortest stays."""
        law = finding.law
        trace = replace(finding.trace, law=law, store=str(self.subject.binding.path), seed=self.subject.seed)
        if not is_counted(finding):
            broken = self.large.law_broken(trace, law)
            finding = replace(finding, text=broken[1] if broken else finding.text)
        witness = Witness(replace(finding, trace=trace), explain(self.large, trace), "", self.rounds)
        self._kinds[law].add(witness.finding.kind)
        known = self.witnesses.setdefault(law, {})
        other = known.get(witness.cause)
        if other is None or (witness.finding.size < other.finding.size and other.round == self.rounds):
            known[witness.cause] = witness

    def _as_found(self, laws: list[str]) -> None:
        """The time has run out: of each law without a witness, what was found on the scripts as they are, as it was found."""
        self.subject.cpu_budget.lift()
        for law in laws:
            if self.witnesses.get(law):
                continue
            full = [one for one in self.findings.by_law[law] if one.trace.modulus == self.modulus]
            light = [one for one in full if heaviness(one.trace) <= HEAVY]
            for finding in light[:1] or full[:1]:
                self._tell(finding)
        self.subject.cpu_budget.set(0.0, time.monotonic)

    # -- verdicts ----------------------------------------------------------------------------------------------------

    @property
    def gaps(self) -> list[str]:
        """What was not covered, each told once."""
        return list(dict.fromkeys([*self.findings.gaps, *filter(None, self.findings.cut.values())]))

    def result(self, law: str) -> LawResult:
        """The verdict on one law, from the witnesses that were made."""
        findings = self.findings
        operations = self.subject.binding.operations
        situations = [one for one in BY_LAW[law] if all(need in operations for need in one.needs)]
        work: dict[str, float] = dict(findings.work)
        if not situations and law not in findings.by_law:
            missing = sorted({need for one in BY_LAW[law] for need in one.needs if need not in operations})
            reason = f"the store has no {' and no '.join(missing)}"
            return LawResult(Verdict(law, Outcome.UNKNOWN, work=work, not_covered=(reason,)), reason)
        work["antecedents"] = min((findings.coverage[one.name] for one in situations), default=0)
        gaps = self.gaps
        if law in findings.by_law:
            work["antecedents"] = max(work["antecedents"], findings.broken[law])
            told = sorted(self.witnesses.get(law, {}).values(), key=lambda one: (one.round, one.finding.size))
            witnesses = [self._with_confirmation(one) for one in told[:CAUSES_MAX]]
            if witnesses:
                verdict = Verdict(law, Outcome.VIOLATED, witnesses[0], work, tuple(gaps))
                return LawResult(verdict, others=tuple(witnesses[1:]))
            gaps.append(BROKEN_SMALL)
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)), small_scope=self._in_small_scope(law))
        if findings.interrupted:
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, (*gaps, "interrupted before the end")))
        unmet = [one.name for one in situations if not findings.coverage[one.name]]
        if unmet:
            gaps.append(f"vacuous, not put to the test: never came about: {'; '.join(unmet)}")
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)))
        one_sided = LAWS[law].one_sided
        return LawResult(Verdict(law, Outcome.HOLDS, None, work, (*gaps, one_sided) if one_sided else tuple(gaps)))

    def _in_small_scope(self, law: str) -> Witness | None:
        """What breaks the law on the scripts with few identifiers, told on these."""
        small = self.small.subject
        known = [*self._pending[law], *(one for one in self.findings.by_law[law] if one.trace.modulus != self.modulus)]
        if not known or not small.rewritten:
            return None
        self.subject.cpu_budget.lift()
        trace = replace(known[0].trace, law=law, store=str(small.binding.path), seed=small.seed)
        explanation = explain(Reruns(small.recording()), trace)
        return Witness(replace(known[0], trace=trace), explanation, f"with {trace.modulus} packet identifiers only", self.rounds)

    def _with_confirmation(self, witness: Witness) -> Witness:
        self.progress(f"confirmation of {witness.finding.law}")
        return replace(witness, confirmation=self._confirmation(witness.finding.trace, witness.explanation.exhausts))

    def _confirmation(self, trace: Trace, exhausts: bool) -> str:
        """In words; a server that goes away takes no verdict with it."""
        if self.backend is None:
            return "not confirmed: no real server"
        if self.lost:
            return f"not confirmed: {self.lost}"
        steps = trace.clients, trace.steps
        if trace.law in NOT_BY_RUNNING:
            return Confirmation(place_of(self.backend)).words(trace.law)
        if steps not in self.confirmed:
            if self.subject.cpu_budget.is_past:
                return "not confirmed: the cap on the time was reached"
            try:
                self.confirmed[steps] = self._confirm(trace, exhausts)
            except InputError as error:
                self.lost = str(error)
                return f"not confirmed: {self.lost}"
        return self.confirmed[steps].words(trace.law)

    def _confirm(self, trace: Trace, exhausts: bool) -> Confirmation:
        assert self.backend is not None
        if exhausts:
            reason = "a script that was stopped at its limits here is not let loose on a server"
            return Confirmation(place_of(self.backend), cannot=reason)
        return confirm(trace, self.subject.binding, self.backend, self.subject.baselines_of(trace.clients))


def is_endless(finding: Finding) -> bool:
    """Whether a script was stopped at its limits, which takes long each time."""
    return was_stopped(finding.law, finding.text)


def is_counted(finding: Finding) -> bool:
    """Whether it was seen by counting calls and keys, which the steps alone do not show."""
    by_footprint = finding.analysis == "footprint" or finding.analysis.startswith("a queue of")
    return finding.law == "one-slot" or (finding.law == "bounded" and by_footprint and not is_endless(finding))
