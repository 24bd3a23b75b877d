"""How long work on untrusted scripts may go on: a script that is slow, but ends, must not hold a caller up.

Work is counted in Lua instructions, so that it ends at the same place on every machine. A time is a cap on top of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

CHARGED = 1_000_000
"""Instructions of one script are counted in whole millions: what ends sooner is counted by its steps."""


class BudgetExceeded(Exception):
    """The work, or the time, that was set for it has run out."""


@dataclass
class CpuBudget:
    """Shared by all stores of one piece of work."""

    at_s: float = inf
    clock: Callable[[], float] = time.process_time
    instructions_left: float = inf
    charged: int = 0
    """How often ``CHARGED`` instructions were taken, in all."""

    def set(self, seconds: float, clock: Callable[[], float] = time.process_time) -> None:
        """Let the work go on for so many seconds from now: of this process, unless ``clock`` is another."""
        self.clock = clock
        self.at_s = clock() + seconds

    def lift(self) -> None:
        """No limit any more."""
        self.at_s = self.instructions_left = inf

    def allow(self, instructions: float) -> None:
        """Let scripts take so many instructions from now."""
        self.instructions_left = instructions

    def charge(self, times: int) -> None:
        """Scripts have taken ``CHARGED`` instructions so many times."""
        self.charged += times
        self.instructions_left -= CHARGED * times

    @property
    def left_s(self) -> float:
        """Seconds that are left; infinite without a cap."""
        return self.at_s - self.clock() if self.at_s < inf else inf

    @property
    def is_past(self) -> bool:
        """Whether the time has run out."""
        return self.at_s < inf and self.clock() >= self.at_s

    def check(self) -> None:
        """Raises BudgetExceeded when the time or the instructions have run out."""
        if self.instructions_left <= 0 or self.is_past:
            raise BudgetExceeded
