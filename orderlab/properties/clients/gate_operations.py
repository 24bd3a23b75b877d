"""Operations of a contract on a real server: what clients were answered there is judged as a history, as on the kernel.

An operation begins when its first step is let pass and ends when it has returned; the turn waits for that, up to
``HELD_S``, so that one that is over does not overlap the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

from orderlab.model.contracts.base import Contract
from orderlab.properties.clients.execution import Execution
from orderlab.properties.clients.footprints import Touched
from orderlab.properties.clients.gate import Lane, Run, current
from orderlab.properties.clients.history import OperationHistory
from orderlab.sim.redis.backends.backend import FIRST_MS


class _OnServer:
    """What a history asks of an execution."""

    def __init__(self) -> None:
        self.touched = Touched()
        self.shard = self
        self._begun = time.monotonic()

    @property
    def lane(self) -> Lane | None:
        return current.lane

    @property
    def now_ms(self) -> int:
        return FIRST_MS + int((time.monotonic() - self._begun) * 1000)


class ServerOperations(OperationHistory):
    """The operations of one run on a server."""

    def __init__(self, contract: Contract, run: Run) -> None:
        super().__init__(contract, cast(Execution, _OnServer()), run.violate)
        self._lock = threading.RLock()

    def tell(self, what: Callable[[], Any]) -> Any:
        """Ask the judge; threads ask in turn."""
        with self._lock:
            return super().tell(what)


def operations_of(contract: Contract | None) -> Callable[[Run], Any] | None:
    """What makes the history of a run, if there is a contract."""
    return None if contract is None else lambda run: ServerOperations(contract, run)
