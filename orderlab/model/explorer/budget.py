"""Budgets: how many states, seconds and bytes an exploration may use, and what it says when one runs out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """None is no limit. States and bytes may be passed by the successors of one chunk of states."""

    max_states: int | None = None
    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass
class Meter:
    """Measures one run against its budget. `spent_s` carries over what earlier, interrupted runs took."""

    budget: Budget
    spent_s: float = 0.0
    _began_s: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds of this run alone: a resumed run gets the whole time budget again."""
        return time.monotonic() - self._began_s

    def total_seconds(self) -> float:
        return self.spent_s + self.seconds()

    def exhausted(self, states: int, bytes_held: int) -> str | None:
        """Which budget has run out, in words, or None."""
        budget = self.budget
        if budget.max_states is not None and states >= budget.max_states:
            return f"the budget of {budget.max_states:,} states"
        if budget.max_seconds is not None and self.seconds() >= budget.max_seconds:
            return f"the budget of {budget.max_seconds:g} seconds"
        if budget.max_bytes is not None and bytes_held >= budget.max_bytes:
            return f"the budget of {budget.max_bytes:,} bytes"
        return None
