"""From what the analyses found to verdicts, for every kind of store: witnesses first, each law with a share of the
work.

A kind says how a finding is reproduced on the scripts as they are and made short, how it is explained, and may bring
searches of its own; the rest is the same for all.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from orderlab.model.contracts.base import Situation, Terms
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.validation.effort import witness_steps
from orderlab.properties.validation.findings import Finding, Findings, Kind
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.properties.witness.shortening import Reruns
from orderlab.properties.witness.witness import Cause, Explanation, Witness
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BudgetExceeded, CpuBudget

CAUSES_MAX = 5
"""Witnesses with different causes that are told of one law."""
BROKEN_SMALL = "broken in the small scope, and not reproduced on the scripts as they are"

WitnessSearch = Callable[[str], Iterator[None]]
"""For witnesses of a law, one candidate after the other."""


@dataclass(frozen=True)
class LawResult:
    """A verdict on one law, or the reason why the law says nothing about this store."""

    verdict: Verdict
    not_applicable: str = ""
    others: tuple[Witness, ...] = ()
    """Of a violated law: witnesses with other causes, the plainest first."""
    small_scope: Witness | None = None
    """Of an unknown one: what breaks it in a smaller world, and was not reproduced on the scripts as they are."""

    @property
    def law(self) -> str:
        return self.verdict.law

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def tested(self) -> int:
        """How often it was tested."""
        return int(self.verdict.work.get("antecedents", 0))

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """The witnesses, the plainest first."""
        first = self.verdict.witness
        return (first, *self.others) if isinstance(first, Witness) else self.others

    @property
    def because(self) -> str:
        """Why a law without a witness is as it is; of a script that had to be ended with its process, which."""
        if self.not_applicable:
            return self.not_applicable
        if self.outcome is Outcome.UNKNOWN:
            return self.verdict.not_covered[-1]
        if self.outcome is Outcome.HOLDS:
            return self.verdict.how
        return str(getattr(self.verdict.witness, "text", ""))


class Judge:
    """The verdicts on one store: ``reruns`` are of its scripts as they are."""

    def __init__(
        self,
        terms: Terms,
        binding: Binding,
        order: WorkOrder,
        reruns: Reruns,
        findings: Findings,
        budget: CpuBudget,
        confirmer: Confirmer,
    ) -> None:
        self.terms, self.binding, self.order = terms, binding, order
        self.seed, self.progress = order.seed, order.progress
        self.only_first = order.only_first or order.any_law
        self.reruns = reruns
        self.findings = findings
        self.budget = budget
        self.confirmer = confirmer
        self.witnesses: dict[str, dict[Cause, Witness]] = {}
        self.rounds = 0
        self.kinds: dict[str, set[Kind]] = defaultdict(set)
        """Of a law, those of its witnesses."""
        self.failed: Counter[tuple[str, Kind]] = Counter()
        """How many findings of a kind were tried as they stand, in any round, and not seen."""
        self._tried: dict[int, Finding] = {}
        """By identity: what was tried as it stands."""
        self._used: Counter[tuple[str, str]] = Counter()
        """Of each law's share of each search in this round."""
        self._share = 0

    # -- what a kind of store brings -----------------------------------------------------------------------------------

    def reproduced(self, finding: Finding) -> Any | None:
        """The finding's trace as it breaks the law on the scripts as they are, made short; None: it does not."""
        raise NotImplementedError

    def explain(self, finding: Finding) -> Explanation:
        """Its last reproduction, with notes."""
        raise NotImplementedError

    def is_counted(self, finding: Finding) -> bool:
        """Whether it was seen by counting calls and keys, which the steps alone do not show."""
        return finding.law == "one-slot"

    def is_soon(self, finding: Finding) -> bool:
        """Whether it takes little work to run."""
        return True

    def cost(self, finding: Finding) -> tuple[Any, ...]:
        """What is tried first has the least."""
        return finding.size

    def searches(self, effort: float) -> Sequence[WitnessSearch]:
        """For witnesses, in order."""
        return (self.plain,) if self.only_first else (self.plain, self.further)

    def share_of(self, search: str, share: int) -> int:
        """Steps that one search for witnesses of one law may take."""
        return share

    @property
    def spent(self) -> int:
        """Steps so far, of all reruns."""
        return self.reruns.spent

    def small_scope(self, law: str) -> Witness | None:
        """What breaks the law in a smaller world, told there."""
        return None

    # -- witnesses ---------------------------------------------------------------------------------------------------

    def consider(self, effort: float) -> bool:
        """Make witnesses of what was found so far. False when the time ran out."""
        self.rounds += 1
        self._used.clear()
        self._share = witness_steps(effort)
        laws = [law for law in self.terms.laws if law in self.findings.by_law]
        for search in self.searches(effort):
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
        self.budget.allow(inf)
        return self.consider(effort) and self.has_all

    @property
    def has_all(self) -> bool:
        """Whether each law that was asked for has a witness."""
        return all(self.witnesses.get(law) for law in self.findings.wanted)

    def _within_share(self, law: str, search: WitnessSearch) -> bool:
        """Search step by step while the law's share lasts; False when the time ran out."""
        steps = search(law)
        name = search.__name__
        share = self.share_of(name, self._share)
        while self._used[law, name] < share:
            before = self.spent
            self.progress(f"witness of {law}")
            try:
                next(steps)
            except StopIteration:
                return True
            except BudgetExceeded:  # or scripts that do not end
                return not self.budget.is_past
            finally:
                self._used[law, name] += self.spent - before
            if self.budget.is_past:
                return False
        return True

    def candidates(self, law: str) -> list[Finding]:
        """What was not tried yet and is of no known kind, what takes the least work first."""
        known = self.kinds[law]
        left = [
            one
            for one in self.findings.by_law[law]
            if id(one) not in self._tried and one.kind not in known and self.failed[law, one.kind] < Findings.KEPT
        ]
        return sorted(left, key=self.cost)

    def plain(self, law: str) -> Iterator[None]:
        """The first witness, of candidates that are soon run."""
        for finding in self.candidates(law):
            if self.witnesses.get(law) or not self.is_soon(finding):
                return
            self.attempt(finding)
            yield

    def further(self, law: str) -> Iterator[None]:
        """Other causes, of candidates that are soon run."""
        for finding in self.candidates(law):
            if not self.is_soon(finding) or len(self.witnesses.get(law, ())) >= CAUSES_MAX:
                return
            if finding.kind not in self.kinds[law]:
                self.attempt(finding)
                yield

    def attempt(self, finding: Finding) -> None:
        """The finding as it stands on the scripts as they are; if they show it, made short and told."""
        self._tried[id(finding)] = finding
        if self.is_counted(finding):
            self.tell(finding)
            return
        trace = self.reproduced(finding)
        if trace is None:
            self.failed[finding.law, finding.kind] += 1
            return
        self.kinds[finding.law].add(finding.kind)
        self.tell(replace(finding, trace=trace))

    def tell(self, finding: Finding) -> None:
        """Explain it; of several witnesses with one cause the shortest stays."""
        law = finding.law
        trace = replace(finding.trace, law=law, store=str(self.binding.path), seed=self.seed)
        if not self.is_counted(finding):
            broken = self.reruns.law_broken(trace, law)
            finding = replace(finding, text=broken[1] if broken else finding.text)
        finding = replace(finding, trace=trace)
        witness = Witness(finding, self.explain(finding), "", self.terms, self.rounds)
        self.kinds[law].add(witness.finding.kind)
        known = self.witnesses.setdefault(law, {})
        other = known.get(witness.cause)
        if other is None or (witness.finding.size < other.finding.size and other.round == self.rounds):
            known[witness.cause] = witness

    def _as_found(self, laws: list[str]) -> None:
        """The time has run out: of each law without a witness, what was found on the scripts as they are, as it was
        found."""
        self.budget.lift()
        for law in laws:
            if not self.witnesses.get(law):
                for finding in self.full_scale(law)[:1]:
                    self.tell(finding)
        self.budget.set(0.0, time.monotonic)

    def full_scale(self, law: str) -> list[Finding]:
        """What was found on the scripts as they are, what is soon run first."""
        return self.findings.by_law[law]

    # -- verdicts ----------------------------------------------------------------------------------------------------

    @property
    def gaps(self) -> list[str]:
        """What was not covered, each told once."""
        return list(dict.fromkeys([*self.findings.gaps, *filter(None, self.findings.cut.values())]))

    def _situations(self, law: str) -> tuple[list[Situation] | None, str]:
        """What must come about on this store; None where the law counts its tests itself. And why the law says nothing
        of it."""
        of_law = self.terms.situations.get(law)
        if of_law is None:
            return None, self.findings.not_applicable.get(law, "")
        operations = self.binding.operations
        applying = [one for one in of_law if all(need in operations for need in one.needs)]
        missing = sorted({need for one in of_law for need in one.needs if need not in operations})
        return applying, "" if applying else f"the store has no {' and no '.join(missing)}"

    def result(self, law: str) -> LawResult:
        """The verdict on one law, from the witnesses that were made."""
        findings = self.findings
        situations, not_applicable = self._situations(law)
        work: dict[str, float] = dict(findings.work)
        if not_applicable and law not in findings.by_law:
            return LawResult(Verdict(law, Outcome.UNKNOWN, work=work, not_covered=(not_applicable,)), not_applicable)
        met = (
            {one.name: findings.coverage[one.name] for one in situations}
            if situations is not None
            else {law: findings.coverage[law]}
        )
        work["antecedents"] = min(met.values(), default=0)
        gaps = self.gaps
        if law in findings.by_law:
            work["antecedents"] = max(work["antecedents"], findings.broken[law])
            told = sorted(self.witnesses.get(law, {}).values(), key=lambda one: (one.round, one.finding.size))
            witnesses = [self._with_confirmation(one) for one in told[:CAUSES_MAX]]
            if witnesses:
                verdict = Verdict(law, Outcome.VIOLATED, witnesses[0], work, tuple(gaps))
                return LawResult(verdict, others=tuple(witnesses[1:]))
            gaps.append(BROKEN_SMALL)
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)), small_scope=self.small_scope(law))
        if findings.interrupted:
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, (*gaps, findings.interrupted)))
        unmet = [name for name, times in met.items() if not times]
        if unmet:
            never = "no reply tested it" if situations is None else f"never came about: {'; '.join(unmet)}"
            gaps.append(findings.untested.get(law) or f"vacuous, not tested: {never}")
            return LawResult(Verdict(law, Outcome.UNKNOWN, None, work, tuple(gaps)))
        one_sided = self.terms.one_sided(law)
        return LawResult(Verdict(law, Outcome.HOLDS, None, work, (*gaps, one_sided) if one_sided else tuple(gaps)))

    def _with_confirmation(self, witness: Witness) -> Witness:
        self.progress(f"confirmation of {witness.finding.law}")
        words = self.confirmer.words(witness.finding.trace, witness.finding.law, witness.explanation.exhausts)
        return replace(witness, confirmation=words)
