"""The whole validation of one store: the analyses in order, each law's verdict with its effort and its gaps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from model.errors import InputError
from model.laws import LAWS, STORE_LAWS
from model.trace import Pass, Step, Trace
from model.verdict import Outcome, Verdict, worst
from properties.validation.confirmation import NOT_BY_RUNNING, Confirmation, confirm, place_of
from properties.validation.crowds import run_crowds
from properties.validation.explanation import explain
from properties.validation.exploration import explore_scopes, small_world
from properties.validation.findings import Finding, Findings
from properties.validation.footprint import Footprint, measure_footprint
from properties.validation.full_scale import at_full_scale, with_fewer_steps
from properties.validation.machine import run_machine
from properties.validation.minimisation import minimise
from properties.validation.scenarios import run_scenarios
from properties.validation.subject import Reruns, Subject
from properties.validation.walks import walk_about
from properties.validation.witness import Witness
from sim.binding.binding import Binding
from sim.binding.scaling import RewrittenLine
from sim.deadline import OutOfTime
from sim.redis.backends import Backend
from sim.session_coverage import BY_LAW

SHARES = {
    "scenarios": 0.0,
    "footprint": 0.15,
    "crowds": 0.1,
    "exploration": 0.35,
    "random walks": 0.15,
    "state machine": 0.25,
}
"""Of the budget; witnesses come on top, and are few."""
LONGEST_S = {
    "scenarios": 8.0,
    "footprint": 25.0,
    "crowds": 15.0,
    "exploration": 2.0,
    "random walks": 2.0,
    "state machine": 10.0,
}
"""Processor time that an analysis may take beyond twice its share: what it must do once, on scripts of ordinary speed."""
WITNESSES_S = 30.0
"""Processor time for all witnesses together, beside the budget once more."""
WITNESS_SECONDS = 4.0
"""For making one witness short, and again for replaying it."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LawResult:
    """A verdict on one law, or the reason why the law says nothing about this store."""

    verdict: Verdict
    not_applicable: str = ""

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

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; laws that say nothing about this store do not count."""
        return worst(result.outcome for result in self.results if not result.not_applicable)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The author's, and what every search takes for granted."""
        callers, taken = self.binding.store.callers, list(self.binding.assumptions)
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
            "laws": [
                {**result.verdict.to_json(), "not_applicable": result.not_applicable or None} for result in self.results
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
    budget_s: float = 30.0,
    seed: int = 0,
    laws: Iterable[str] = STORE_LAWS,
    backend: Backend | None = None,
    progress: Progress = lambda text: None,
) -> Validation:
    """Judge the store of ``binding`` by ``laws`` for about ``budget_s`` seconds.

    ``backend`` is a real server that witnesses are replayed on, if there is one. Raises InputError when the store
    cannot be run at all.
    """
    began = time.monotonic()
    limit = binding.fixed.get("limit")
    if limit is not None and not 1 <= limit <= binding.modulus:
        raise InputError(f"{binding.place}: fixed.limit: {limit} is not in 1..{binding.modulus}; correct it")
    subject = Subject(binding, seed)
    findings = Findings(frozenset(laws))
    small = small_world(subject, findings)
    footprint = Footprint()
    analyses: dict[str, Callable[[float], Any]] = {
        "scenarios": lambda seconds: run_scenarios(small, findings),
        "footprint": lambda seconds: measure_footprint(subject, findings, seconds, footprint),
        "crowds": lambda seconds: run_crowds(subject, findings, seconds),
        "exploration": lambda seconds: explore_scopes(small, findings, seconds),
        "random walks": lambda seconds: walk_about(small, findings, seconds),
        "state machine": lambda seconds: run_machine(subject, findings, seconds),
    }
    try:
        for name, analysis in analyses.items():
            progress(name)
            subject.deadline.set(LONGEST_S[name] + 2 * budget_s * SHARES[name])
            try:
                analysis(budget_s * SHARES[name])
            except OutOfTime:
                findings.gaps.append(f"{name}: not finished, the scripts are too slow")
    except KeyboardInterrupt:
        findings.interrupted = True
    subject.deadline.set(WITNESSES_S + budget_s)
    judge = Judge(subject, small, findings, backend, progress)
    results = tuple(judge.result(law) for law in STORE_LAWS if law in findings.wanted)
    work = {**findings.work, "seconds": round(time.monotonic() - began, 1)}
    rewritten = tuple(small.rewritten)
    return Validation(binding, results, footprint, rewritten, tuple(findings.notes), tuple(findings.gaps), work, seed)


class Judge:
    """From candidates to verdicts: ``subject`` is the store, ``small`` its twin with few identifiers."""

    def __init__(
        self, subject: Subject, small: Subject, findings: Findings, backend: Backend | None, progress: Progress
    ) -> None:
        self.subject = subject
        self.findings = findings
        self.backend = backend
        self.progress = progress
        self.small = Reruns(small)
        self.large = Reruns(subject)
        self.witnesses: list[Witness] = []
        self.lost = ""
        """What became of the server, if it went away."""
        self.confirmed: dict[tuple[tuple[bytes, ...], tuple[Step, ...]], Confirmation] = {}

    def result(self, law: str) -> LawResult:
        """The verdict on one law."""
        operations = self.subject.binding.operations
        situations = [one for one in BY_LAW[law] if all(need in operations for need in one.needs)]
        work = dict(self.findings.work)
        if not situations and law not in self.findings.by_law:
            missing = sorted({need for one in BY_LAW[law] for need in one.needs if need not in operations})
            return LawResult(Verdict(law, Outcome.HOLDS, work=work), f"the store has no {' and no '.join(missing)}")
        work["antecedents"] = min((self.findings.met[one.name] for one in situations), default=0)
        gaps = list(self.findings.gaps)
        if law in self.findings.by_law:
            self.progress(f"witness of {law}")
            reason = "broken in the small scope, and not reproduced on the scripts as they are"
            try:
                witness = self._witness(law)
            except OutOfTime:
                witness, reason = self._unshortened(law), "broken in the small scope; no time was left to reproduce it"
            if witness is not None:
                return LawResult(Verdict(law, Outcome.VIOLATED, witness, work, tuple(gaps)))
            gaps.append(reason)
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)))
        if self.findings.interrupted:
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, (*gaps, "interrupted before the end")))
        unmet = [one.name for one in situations if not self.findings.met[one.name]]
        if unmet:
            gaps.append(f"never came about: {'; '.join(unmet)}")
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)))
        one_sided = LAWS[law].one_sided
        return LawResult(Verdict(law, Outcome.HOLDS, None, work, (*gaps, one_sided) if one_sided else tuple(gaps)))

    def _witness(self, law: str) -> Witness | None:
        """The first candidate that can be reproduced on the store itself, made short, told, and confirmed."""
        for known in self.witnesses:  # what took long to reach for one law often breaks another as well
            if any(isinstance(step, Pass) for step in known.finding.trace.steps):
                broken = self.large.law_broken(known.finding.trace, law)
                if broken is not None:
                    return self._told(Finding(law, broken[1], known.finding.trace, known.finding.analysis))
        for finding in self.findings.by_law[law]:
            found = self._reproduced(finding)
            if found is not None:
                return self._told(found)
        return None

    def _unshortened(self, law: str) -> Witness | None:
        """What was found on the scripts as they are, as it was found."""
        self.subject.deadline.lift()
        modulus = self.subject.binding.modulus
        found = next((one for one in self.findings.by_law[law] if one.trace.modulus == modulus), None)
        witness = None if found is None else self._told(found)
        self.subject.deadline.set(0)
        return witness

    def _reproduced(self, finding: Finding) -> Finding | None:
        """The finding on the scripts as they are, made short; None when they do not show it."""
        law, trace = finding.law, finding.trace
        modulus = self.subject.binding.modulus
        if trace.modulus != modulus:
            trace = minimise(trace, law, self.small, WITNESS_SECONDS)
        found = at_full_scale(trace, law, modulus, self.small, self.large)
        if found is None:
            # What is seen by counting calls does not show in the steps.
            return finding if law in ("one-slot", "bounded") and finding.trace.modulus == modulus else None
        if any(isinstance(step, Pass) for step in found.steps):
            found = with_fewer_steps(found, law, self.large)
        else:
            found = minimise(found, law, self.large, WITNESS_SECONDS)
        broken = self.large.law_broken(found, law)
        return Finding(law, broken[1] if broken is not None else finding.text, found, finding.analysis)

    def _told(self, finding: Finding) -> Witness:
        trace = replace(finding.trace, law=finding.law, store=str(self.subject.binding.path), seed=self.subject.seed)
        explanation = explain(self.large, trace)
        confirmation = self._confirmation(trace, explanation.exhausts)
        witness = Witness(replace(finding, trace=trace), explanation, confirmation)
        self.witnesses.append(witness)
        return witness

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
        return confirm(trace, self.subject.binding, self.backend, self.subject.usual_of(trace.clients))
