"""Active expiry: what the server does ten times a second about keys that nobody asks for (``activeExpireCycle``)."""

from __future__ import annotations

from collections.abc import Callable

from orderlab.sim.redis.keyspace import Keyspace

SAMPLE_SIZE = 20
"""Keys looked at in one round (``ACTIVE_EXPIRE_CYCLE_KEYS_PER_LOOP``)."""
ACCEPTABLE_STALE_PERCENT = 10
"""The cycle goes on while more of a round than this was past its deadline."""


class ExpireCycle:
    """Walks over the keys that have a deadline, a round of samples at a time, and remembers where it stopped.

    The server stops a cycle after a quarter of its CPU time as well; there is no such limit here. Its walk follows its
    hash table; this one follows the order in which deadlines were set.
    """

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._ahead: dict[int, list[bytes]] = {}
        """Keys still to be looked at in the present pass through each database; the next one is last."""
        self.is_enabled = True
        """DEBUG SET-ACTIVE-EXPIRE."""

    def run(self) -> int:
        """One cycle; how many keys it removed. A replica removes none."""
        keyspace = self._keyspace
        if not self.is_enabled or not keyspace.removes_expired:
            return 0
        return self._in_each(self._look_at_samples)

    def remove_all(self) -> int:
        """Remove every key past its deadline at once; how many."""
        return self._in_each(self._remove_all) if self._keyspace.removes_expired else 0

    def _in_each(self, remove: Callable[[], int]) -> int:
        """Call ``remove`` with each database selected."""
        keyspace, removed = self._keyspace, 0
        selected = keyspace.database
        for index in keyspace.databases():
            keyspace.use(index)
            removed += remove()
        keyspace.use(selected)
        return removed

    def _look_at_samples(self) -> int:
        keyspace, removed = self._keyspace, 0
        ahead = self._ahead.get(keyspace.database)
        if not ahead:
            ahead = self._ahead[keyspace.database] = list(reversed(keyspace.deadlines_ms))
        while ahead:
            lapsed = sampled = 0
            while ahead and sampled < SAMPLE_SIZE:
                key = ahead.pop()
                sampled += key in keyspace.deadlines_ms
                if keyspace.is_expired(key):
                    keyspace.expire(key)
                    lapsed += 1
            removed += lapsed
            if lapsed * 100 <= sampled * ACCEPTABLE_STALE_PERCENT:
                break
        return removed

    def _remove_all(self) -> int:
        keyspace = self._keyspace
        lapsed = [key for key in keyspace.deadlines_ms if keyspace.is_expired(key)]
        for key in lapsed:
            keyspace.expire(key)
        return len(lapsed)
