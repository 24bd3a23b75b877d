"""What the sweep benchmark runs: a run that burns a stated amount of processor time, and one that does nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any


def burn(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Arithmetic for ``seconds`` of processor time."""
    return {"rounds": float(burned(float(parameters["seconds"])))}


def burned(seconds: float) -> int:
    """Rounds of arithmetic done in so much processor time; the peers call it directly."""
    end, rounds, value = time.process_time() + seconds, 0, 1
    while time.process_time() < end:
        for _ in range(200):
            value = value * 1103515245 + 12345 & 0x7FFFFFFF
        rounds += 1
    return rounds


def trivial(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Nothing to speak of."""
    return {"seed": float(seed % 7)}
