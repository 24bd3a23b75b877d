"""A fair choice of mutants where there are too many to judge all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from orderlab.sim.engine.random_streams import RandomStreams

T = TypeVar("T")


def sample(mutants: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """``limit`` of the mutants, drawn without regard to operator or place, in their order; all without a limit."""
    if limit is None or limit >= len(mutants):
        return list(mutants)
    drawn = RandomStreams(seed).stream("mutants").sample(range(len(mutants)), limit)
    return [mutants[at] for at in sorted(drawn)]
