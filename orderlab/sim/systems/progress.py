"""How a run of any system tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """Virtual time, messages published and delivered so far, and the wall time that it took."""

    simulated_s: float
    total_s: float
    messages: int
    wall_s: float
