"""The whole validation of one store of any kind: analyses and witnesses in turn, each law's verdict, what was left
out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from orderlab.child import asked_to_end
from orderlab.model.contracts.base import Terms
from orderlab.model.verdict import Outcome, worst
from orderlab.platform import rare_collections
from orderlab.properties.validation.effort import STANDARD, name_of_effort
from orderlab.properties.validation.schedule import Schedule
from orderlab.properties.validation.verdicts import Judge, LawResult
from orderlab.sim.stores.binding.binding import Binding

SEARCHING = 0.7
"""Of a cap in seconds, what the analyses may take; the rest is for witnesses."""
CONFIRMING = 0.05
"""And beyond it, for confirmations on a server."""


@dataclass(frozen=True)
class Validation:
    """What validation found out about one store. A kind adds what it alone measures."""

    binding: Binding
    terms: Terms
    results: tuple[LawResult, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    work: dict[str, float]
    seed: int
    effort: float = STANDARD
    seen: frozenset[tuple[str, str]] = frozenset()
    """Law and wording of every way in which one was seen broken, whether or not it became a witness."""
    is_cut: bool = False
    """A cap or an interruption ended it before its end."""

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; laws that say nothing about this store do not count, and if none says anything, nothing is
        known."""
        outcomes = [result.outcome for result in self.results if not result.not_applicable]
        return worst(outcomes) if outcomes else Outcome.UNKNOWN

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The verdict on every law."""
        return {result.law: result.outcome for result in self.results}

    @property
    def caught(self) -> dict[str, str]:
        """The laws that were seen broken, with the shortest way there in words."""
        return {result.law: result.witnesses[0].headline for result in self.results if result.witnesses}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What every search takes for granted."""
        return tuple(self.binding.assumptions)

    @property
    def facts(self) -> dict[str, str]:
        """What was measured, by name."""
        return {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an owner wants to know beside the verdicts."""
        return self.notes

    @property
    def scope(self) -> tuple[str, ...]:
        """What a smaller world differed in, if there was one."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """What is the same for all kinds, in the order of the table of keys (``notes/validate-json.md``,
        ``notes/contracts.md``)."""
        return {
            "store": str(self.binding.path),
            "name": self.binding.name,
            "outcome": str(self.outcome),
            "seed": self.seed,
            "effort": self.effort,
            "laws": [self.law_to_json(result) for result in self.results],
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "not_covered": list(self.gaps),
            "work": self.work,
        }

    def law_to_json(self, result: LawResult) -> dict[str, Any]:
        """One law in plain values."""
        return {
            **result.verdict.to_json(),
            "other_witnesses": [one.to_json() for one in result.others],
            "small_scope_witness": result.small_scope and result.small_scope.to_json(),
            "not_applicable": result.not_applicable or None,
        }


@rare_collections()
def run_rounds(schedule: Schedule, judge: Judge, rounds: Sequence[float], budget_s: float | None = None) -> bool:
    """Analyses and witnesses in turn, one round for each effort; whether that came to its end. ``budget_s`` is a cap in
    seconds on all of it; what it cuts off is told, as is what an interruption does. Where one witness for each law is
    enough it ends with the analysis after which each law has a witness."""
    findings, budget, began = schedule.findings, schedule.budget, time.monotonic()
    budget.is_interruptible = True

    def cap(share: float) -> None:
        if budget_s is not None:
            budget.set(max(share * budget_s + began - time.monotonic(), 0.0), time.monotonic)

    def is_enough(now: float) -> bool:
        return judge.only_first and judge.has_soon(now)

    is_cut = False
    for now in rounds:
        cap(SEARCHING)
        cut_in = schedule.round(now, is_enough)
        budget.allow(inf)
        if judge.only_first and judge.has_all:
            break
        cap(1.0)
        is_whole = judge.consider(now)
        is_cut = bool(cut_in) or not is_whole
        if is_cut:
            why = "an interruption" if asked_to_end else f"the cap of {budget_s:g} s"
            told = (
                f"{why} cut off the round {name_of_effort(now)} in: {cut_in or 'the witnesses'}; what comes after was "
                "not done"
            )
            findings.interrupted = told if asked_to_end else ""
            findings.gaps.append(told)
            break
        if judge.only_first and judge.has_all:
            break
    budget.lift()
    cap(1.0 + CONFIRMING)
    return not is_cut
