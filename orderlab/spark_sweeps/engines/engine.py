"""What an engine does: see that every chunk is worked through, wherever its workers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from orderlab.spark_sweeps.work import Order

POLL_S = 0.25


class Engine(Protocol):
    """Runs chunks. Rows never come back through it: workers commit them."""

    @property
    def cores(self) -> int:
        """How many chunks run at once."""

    def run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        """Begin the chunks in order; ask ``should_stop`` every POLL_S seconds. False if it said so. Raises InputError."""

    def close(self) -> None:
        """End the workers."""
