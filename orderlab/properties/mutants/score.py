"""What a campaign says: the score, which law kills what, and who is left."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.mutants.campaign import Judged
from orderlab.properties.mutants.result import OUTCOMES


@dataclass(frozen=True)
class Score:
    """The sum of many judgements."""

    judged: Sequence[Judged]
    laws: tuple[str, ...] = tuple(STORE_LAWS)
    """That the store is held to."""

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """How many met each fate."""
        found = Counter(one.result.outcome for one in self.judged)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def detected(self) -> int:
        """Killed, or timed out: a script that does not end breaks the law ``bounded``."""
        return self.outcomes["killed"] + self.outcomes["timed out"]

    @property
    def score(self) -> float:
        """Detected, of those that are not equivalent; 1 when there are none."""
        meant = len(self.judged) - self.outcomes["equivalent"]
        return self.detected / meant if meant else 1.0

    @property
    def median_s_to_kill(self) -> float:
        """Seconds of one core, from a warm process to the witness at full scale."""
        times = [one.result.cpu_s for one in self.judged if one.result.outcome == "killed"]
        return statistics.median(times) if times else 0.0

    @property
    def survivors(self) -> list[Judged]:
        """What nothing noticed and what is not the original."""
        return [one for one in self.judged if one.result.outcome == "survived"]

    @property
    def equivalents(self) -> list[Judged]:
        """What cannot be told from the original within the scope."""
        return [one for one in self.judged if one.result.outcome == "equivalent"]

    def by_operator(self) -> dict[str, dict[str, int]]:
        """Operator -> outcome -> how many."""
        found: dict[str, dict[str, int]] = {}
        for one in self.judged:
            row = found.setdefault(one.mutant.operator, dict.fromkeys(OUTCOMES, 0))
            row[one.result.outcome] += 1
        return found

    def by_law(self) -> dict[str, int]:
        """How many each law was the first to kill."""
        return dict(Counter(one.result.law for one in self.judged if one.result.law).most_common())

    @property
    def laws_beside(self) -> list[str]:
        """Laws that were never the first to break, and broke beside another."""
        first = self.by_law()
        seen = {law for one in self.judged for law in one.result.beside}
        return [law for law in self.laws if law in seen and law not in first]

    @property
    def idle_laws(self) -> list[str]:
        """Laws that no mutant was seen to break, first or beside another."""
        known = {*self.by_law(), *self.laws_beside}
        return [law for law in self.laws if law not in known]

    def to_json(self) -> dict[str, Any]:
        """Plain values, every mutant among them."""
        return {
            "mutants": len(self.judged),
            "score": round(self.score, 4),
            "outcomes": self.outcomes,
            "median_s_to_kill": round(self.median_s_to_kill, 3),
            "by_operator": self.by_operator(),
            "by_law": self.by_law(),
            "laws_only_beside_others": self.laws_beside,
            "laws_that_kill_nothing": self.idle_laws,
            "judged": [one.to_json() for one in self.judged],
        }
