"""What the analyses find: for each law the shortest trace that breaks it, and how often it was put to the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from model.refinement import Discrepancy
from model.trace import Trace


@dataclass(frozen=True)
class Finding:
    """One law broken at the end of a trace."""

    law: str
    text: str
    trace: Trace
    analysis: str
    """Which analysis found it."""

    @cached_property
    def size(self) -> tuple[int, int]:
        """Steps, then the length of what they say: the measure of a short witness."""
        return len(self.trace.steps), len(repr(self.trace.steps))


@dataclass
class Findings:
    """The candidates for each law, the shortest first, and the work that was done."""

    wanted: frozenset[str]
    """Laws that were asked for; others are not kept."""
    by_law: dict[str, list[Finding]] = field(default_factory=dict)
    work: Counter[str] = field(default_factory=Counter)
    """Numbers by name with their unit: states, transitions, examples, steps, operations."""
    met: Counter[str] = field(default_factory=Counter)
    """How often each situation that a law speaks of came about (``sim.session_coverage``)."""
    notes: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """What was not covered, one sentence each."""

    interrupted: bool = False
    """The user did not want to wait for the rest."""

    KEPT = 4
    """Candidates kept for each law: the first may not survive its replay at full scale."""

    def add(self, found: Iterable[Discrepancy], trace: Trace, analysis: str) -> None:
        """Keep what is shorter than what is known."""
        told: Counter[str] = Counter()
        for one in found:
            told[one.law] += 1
            if one.law not in self.wanted or told[one.law] > self.KEPT:
                continue  # as long as the others of its step, of which there may be thousands
            known = self.by_law.setdefault(one.law, [])
            if len(known) == self.KEPT and known[-1].size <= (len(trace.steps), 0):
                continue
            known.append(Finding(one.law, one.text, trace, analysis))
            known.sort(key=lambda finding: finding.size)
            del known[self.KEPT :]

    @property
    def is_settled(self) -> bool:
        """Whether every law that was asked for has been seen broken, so that nothing is left to look for."""
        return self.wanted <= self.by_law.keys()
