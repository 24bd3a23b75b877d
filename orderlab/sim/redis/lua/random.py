"""The numbers behind math.random: Redis replaces C's generator by an lrand48 of its own (rand.c).

One sequence serves all scripts and functions of a server. It begins with the process, always with the same number, and
only math.randomseed begins it anew: a script that draws is not a function of its arguments and the keyspace.
"""

from __future__ import annotations

from orderlab.sim.redis.keyspace import Keyspace

_MASK = (1 << 48) - 1
_MULTIPLIER, _INCREMENT = 0x5DEECE66D, 0xB
_SEED_LOW = 0x330E
_LARGEST = (1 << 31) - 1


class LuaRandom:
    """The generator of one shard. Snapshots and rollbacks of the shard carry its ``state``, 48 bits."""

    def __init__(self, shard: Keyspace) -> None:
        self._shard = shard
        self.state = 0x1234ABCD330E

    def draw(self) -> float:
        """The next number, from 0 to 1 inclusive."""
        self._remember()
        self.state = (self.state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self.state >> 17) / _LARGEST

    def seed(self, seed: int) -> None:
        """Begin anew with 32 bits of ``seed``."""
        self._remember()
        self.state = (int(seed) & 0xFFFFFFFF) << 16 | _SEED_LOW

    def _remember(self) -> None:
        if self._shard.undo is not None:
            self._shard.undo.append((setattr, self, "state", self.state))
