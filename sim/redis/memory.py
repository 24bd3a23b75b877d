"""How much memory a node uses: an estimate per key that follows the sizes of Redis 7.0 on a 64-bit machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.redis.values import Value

if TYPE_CHECKING:
    from sim.redis.keyspace import Keyspace

STARTUP_BYTES = 862_000
"""``used_memory_startup`` of an idle server."""


class MemoryAccount:
    """Bytes of every key, measured again only after a change."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._bytes: dict[bytes, int] = {}
        self._total = 0
        self._unmeasured: set[bytes] = set()
        self._data: dict[bytes, Value] | None = None

    def forget(self, key: bytes) -> None:
        """``key`` may have changed."""
        self._unmeasured.add(key)
