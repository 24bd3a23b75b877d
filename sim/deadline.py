"""Processor time that work on untrusted scripts may take: a script that is slow, but ends, must not hold a caller up."""

from __future__ import annotations

import time
from dataclasses import dataclass


class OutOfTime(Exception):
    """The time that was set for this work has run out."""


@dataclass
class Deadline:
    """Shared by all stores of one piece of work. Processor time, so that a busy machine changes no verdict."""

    at_s: float = float("inf")

    def set(self, seconds: float) -> None:
        """Let the work go on for so many seconds of this process from now."""
        self.at_s = time.process_time() + seconds

    def lift(self) -> None:
        """No limit any more."""
        self.at_s = float("inf")

    def check(self) -> None:
        """Raises OutOfTime when the time has run out."""
        if time.process_time() >= self.at_s:
            raise OutOfTime
