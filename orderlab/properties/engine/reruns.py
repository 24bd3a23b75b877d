"""Traces taken again and again on one store, whatever its contract: where they break a law, and which they break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from orderlab.model.contracts.base import Discrepancy
from orderlab.properties.validation.findings import wording
from orderlab.properties.witness.shortening import Broken


class Judged(Protocol):
    """What one step did, judged."""

    @property
    def discrepancies(self) -> Sequence[Discrepancy]:
        """The laws that it broke, each with what happened."""
        ...

    @property
    def diverges(self) -> bool:
        """Whether nothing after it can be judged."""
        ...


class Driver(Protocol):
    """Carries steps out on a store and has each judged: on the kernel, on a server, on tables."""

    def perform(self, step: Any) -> Judged:
        """One step. What has no meaning where the run stands does nothing."""
        ...


class TakenAgain:
    """``orderlab.properties.witness.shortening.Reruns`` for whoever says how a trace is taken."""

    def taken(self, trace: Any) -> Iterator[tuple[int, Judged]]:
        """The steps from an empty store, numbered from 1, up to one after which nothing can be judged, or to one that
        clients would not take."""
        raise NotImplementedError

    def law_broken(self, trace: Any, law: str, words: str = "") -> Broken | None:
        """How many steps it takes to break ``law`` and what is then said; in this wording, if one is given."""
        for at, report in self.taken(trace):
            for one in report.discrepancies:
                if one.law == law and (not words or wording(one.text) == words):
                    return at, one.text
        return None

    def breaks_any(self, trace: Any) -> bool:
        """Whether the steps break any law."""
        return any(report.discrepancies for _, report in self.taken(trace))

    def laws_at_the_end(self, trace: Any) -> tuple[str, ...]:
        """The laws that the last step breaks, or the one after which nothing can be judged."""
        laws: tuple[str, ...] = ()
        for _, report in self.taken(trace):
            laws = tuple(dict.fromkeys(one.law for one in report.discrepancies))
        return laws

    def takes(self, trace: Any) -> bool:
        """Whether clients would take all the steps: always, where they name things by names of their own."""
        return True

    def hands_back(self, trace: Any) -> frozenset[int]:
        """The steps whose replies the last call hands back: none, where things have names of their clients'."""
        return frozenset()
