"""What the analyses find: for each law the shortest traces that break it, and how often it was tested."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from orderlab.model.contracts.base import AnyTrace, Discrepancy
from orderlab.model.contracts.client_steps import fault_of

_PARTICULARS = re.compile(
    r"(?P<call>(?<=\w)\((?:\w+=|\) replied ).*)"
    r"|(?P<reply>(?<=does not fit ).*(?= \())"
    r"|(?P<kept>user_script:\d+|user_function:\d+|\bline \d+)|(?P<sha>\b[0-9a-f]{40}\b)"
    r"|(?P<names>\bm\d+(?:, m\d+)*(?:, and [\d,]+ more)?)|(?P<number>\d[\d,.]*(?:e[+-]?\d+)?)"
)
"""What differs between two texts that say the same: what a call was given and replied; a reply that no binding reads is
shown whole. Lines of scripts stay."""
_STANDS_FOR = {"call": "", "reply": "a reply", "sha": "sha", "names": "m"}


@lru_cache(1 << 16)
def wording(text: str) -> str:
    """A text without the messages, numbers and times that it names."""
    return _PARTICULARS.sub(
        lambda found: found[0] if found["kept"] else _STANDS_FOR.get(str(found.lastgroup), "#"), text
    )


def was_stopped(law: str, text: str) -> bool:
    """Whether it is said that a script was stopped at its limits of instructions or memory."""
    return law == "bounded" and ("did not end" in text or "out of memory" in text)


FOREIGN_TYPE = "wrong-type"
BOUNDARIES = "boundaries"
"""The analysis that gives calls other values than usual: what it finds comes after other traces of as many steps."""


class Kind(NamedTuple):
    """A way to break a law: what is said of it, after which step, under which fault."""

    wording: str
    step: str
    fault: str


def kind_of(law: str, text: str, step: Any) -> Kind:
    """The kind of one discrepancy. Of keys in several slots there is one kind: operations share their keys."""
    if law == "one-slot":
        return Kind("keys in several slots", "", "")
    fault = fault_of(step)
    called = getattr(step, "call", None)
    name = "" if step is None else type(step).__name__ if called is None else called.name
    return Kind(wording(text), name, "" if fault is None else fault.kind)


def meets_foreign_type(trace: AnyTrace) -> bool:
    """Whether some step finds a value of another type under a store's own key."""
    return any((fault := fault_of(step)) is not None and fault.kind == FOREIGN_TYPE for step in trace.steps)


@dataclass(frozen=True)
class Finding:
    """One law broken at the end of a trace."""

    law: str
    text: str
    trace: Any
    """``AnyTrace`` of the kind of store that it was found on."""
    analysis: str
    """Which analysis found it."""

    @cached_property
    def size(self) -> tuple[bool, int, bool, int]:
        """Steps, whether values are unusual, then the length of what they say: the measure of a short witness. One that
        takes a value of a type that the store never puts there comes after all others."""
        is_unusual = self.analysis == BOUNDARIES
        return meets_foreign_type(self.trace), len(self.trace.steps), is_unusual, len(repr(self.trace.steps))

    @cached_property
    def kind(self) -> Kind:
        """How it breaks the law."""
        return kind_of(self.law, self.text, self.trace.steps[-1] if self.trace.steps else None)


class Explored(NamedTuple):
    """A scope that was explored from one beginning."""

    level: str
    """How much of it, wherever it begins."""
    is_exhausted: bool
    steps: int
    is_core: bool = False
    """No law holds unless all its runs of few operations were seen."""
    operations: int = 0
    """Of one that stopped: all runs of so many operations were seen, of all clients together."""


@dataclass
class Findings:
    """The candidates for each law, the shortest first, and the work that was done."""

    wanted: frozenset[str]
    """Laws that were asked for; others are not kept."""
    by_law: dict[str, list[Finding]] = field(default_factory=dict)
    work: Counter[str] = field(default_factory=Counter)
    """Numbers by name with their unit: states, transitions, examples, steps, operations."""
    coverage: Counter[str] = field(default_factory=Counter)
    """How often each situation that a law speaks of came about (``Terms.situations``), or a law was tested
    that counts that itself."""
    broken: Counter[str] = field(default_factory=Counter)
    """How many steps were seen to break each law."""
    untested: dict[str, str] = field(default_factory=dict)
    """Why a law could not be tested."""
    not_applicable: dict[str, str] = field(default_factory=dict)
    """Why a law says nothing about this store."""
    notes: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """What was not covered, one sentence each."""
    cut: dict[str, str] = field(default_factory=dict)
    """The same of each search that ended before all was seen: a later round may go further."""

    examples: dict[str, str] = field(default_factory=dict)
    """Notes that take an example, by what they say before it."""
    explored: list[Explored] = field(default_factory=list)
    accepted: set[tuple[str, str, str]] = field(default_factory=set)
    """Law, operation and trouble of what was seen and the store's owner accepts."""
    interrupted: str = ""
    """Where it was that the user did not want to wait for the rest, in words."""

    KEPT = 3
    """Candidates kept for each kind: the first may not survive its replay at full scale."""
    KINDS = 24
    """Kinds kept for each law, those with the shortest traces."""

    def add(self, found: Iterable[Discrepancy], trace: AnyTrace, analysis: str) -> None:
        """Keep what is shorter than what is known of its kind."""
        seen: set[tuple[str, Kind]] = set()
        last = trace.steps[-1] if trace.steps else None
        found = list(found)
        for law in {one.law for one in found}:
            self.broken[law] += 1
        for one in found:
            if one.law not in self.wanted:
                continue
            told = one.law, kind_of(one.law, one.text, last)
            if told not in seen:  # as long as the others of its step, of which there may be thousands
                seen.add(told)
                self._keep(Finding(one.law, one.text, trace, analysis), told[1])

    def _keep(self, finding: Finding, kind: Kind) -> None:
        known = self.by_law.setdefault(finding.law, [])
        scale = finding.trace.world
        alike = [one for one in known if one.trace.world == scale and one.kind == kind]
        length = meets_foreign_type(finding.trace), len(finding.trace.steps), finding.analysis == BOUNDARIES, 0
        if len(alike) >= self.KEPT:
            if alike[-1].size <= length or any(one.trace.steps == finding.trace.steps for one in alike):
                return
        elif not alike and len({(one.kind, one.trace.world) for one in known}) >= 2 * self.KINDS:
            if known[-1].size <= length:
                return
            last = known[-1].kind, known[-1].trace.world
            known[:] = [one for one in known if (one.kind, one.trace.world) != last]
        elif any(one.trace.steps == finding.trace.steps for one in alike):
            return
        known.append(finding)
        known.sort(key=lambda one: one.size)
        if len(alike) >= self.KEPT:
            known.remove(next(one for one in reversed(known) if one.trace.world == scale and one.kind == kind))

    def mark(self) -> Findings:
        """A copy as it stands."""
        by_law = {law: list(known) for law, known in self.by_law.items()}
        return Findings(
            self.wanted, by_law, Counter(self.work), Counter(self.coverage), Counter(self.broken), dict(self.untested),
            dict(self.not_applicable), list(self.notes), list(self.gaps), dict(self.cut), dict(self.examples),
            list(self.explored), set(self.accepted), self.interrupted,
        )  # fmt: skip

    def since(self, before: Findings) -> Findings:
        """What has come since the ``mark``."""
        known = {id(each) for of_law in before.by_law.values() for each in of_law}
        by_law = {law: [each for each in of_law if id(each) not in known] for law, of_law in self.by_law.items()}
        return Findings(
            self.wanted, {law: new for law, new in by_law.items() if new}, self.work - before.work,
            self.coverage - before.coverage, self.broken - before.broken, _changed(self.untested, before.untested),
            _changed(self.not_applicable, before.not_applicable), self.notes[len(before.notes) :],
            self.gaps[len(before.gaps) :], _changed(self.cut, before.cut), _changed(self.examples, before.examples),
            self.explored[len(before.explored) :], self.accepted - before.accepted,
        )  # fmt: skip

    def merge(self, part: Findings) -> None:
        """Add what another has found."""
        for of_law in part.by_law.values():
            for each in of_law:
                self._keep(each, each.kind)
        for mine, others in ((self.work, part.work), (self.coverage, part.coverage), (self.broken, part.broken)):
            mine.update(others)
        self.untested |= part.untested
        self.not_applicable |= part.not_applicable
        self.cut |= part.cut
        self.examples = part.examples | self.examples
        self.notes += part.notes
        self.gaps += part.gaps
        self.explored += part.explored
        self.accepted |= part.accepted

    @property
    def seen(self) -> frozenset[tuple[str, str]]:
        """Law and wording of what is kept."""
        return frozenset((law, wording(one.text)) for law, known in self.by_law.items() for one in known)

    @property
    def is_settled(self) -> bool:
        """Whether every law that was asked for has been seen broken, so that there is a witness to look for of each."""
        return self.wanted <= self.by_law.keys()


def _changed(now: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in now.items() if before.get(name) != text}
