"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Virtual time, messages published and delivered so far, and the wall time that it took."""

    simulated_s: float
    total_s: float
    messages: int
    wall_s: float
