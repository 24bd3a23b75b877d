"""Random draws of a shard: one 64-bit state for commands, so that snapshots and rollbacks carry it for nothing, and the
numbers behind math.random, for which Redis replaces C's generator by an lrand48 of its own (rand.c).

One sequence of the latter serves all scripts and functions of a server. It begins with the process, always with the
same number, and only math.randomseed begins it anew: a script that draws is not a function of its arguments and the
keyspace.
"""

from __future__ import annotations

from orderlab.model.errors import InputError
from orderlab.sim.redis.keyspace import Keyspace

_MASK = (1 << 64) - 1
DRAWS_MAX = 1_000_000
"""A negative count of SRANDMEMBER and its kin asks for that many draws; more than this would hang the kernel."""


def draw(shard: Keyspace, below: int) -> int:
    """A uniform integer in ``0..below-1`` from the shard's stream (SplitMix64, Steele et al. 2014).

    The bias of the final modulus is below 2**-32 for every collection that fits in memory.
    """
    if shard.undo is not None:
        shard.undo.append((setattr, shard, "random_state", shard.random_state))
    state = shard.random_state = (shard.random_state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return (state ^ (state >> 31)) % below


def draw_positions(shard: Keyspace, size: int, count: int) -> list[int]:
    """Positions in a collection of ``size`` as the commands with a count choose them: ``count`` distinct ones (all,
    in order, if there are no more), or ``-count`` independent ones if it is negative.

    Raises InputError beyond DRAWS_MAX independent draws.
    """
    if count < 0:
        if -count > DRAWS_MAX:
            raise InputError(
                f"a count of {count}: the kernel draws at most {DRAWS_MAX} members at once; "
                "use a smaller count or --backend redis://HOST:PORT"
            )
        return [draw(shard, size) for _ in range(-count)]
    if count >= size:
        return list(range(size))
    moved: dict[int, int] = {}  # a Fisher-Yates shuffle that keeps only what it has moved
    chosen = []
    for step in range(count):
        at = step + draw(shard, size - step)
        chosen.append(moved.get(at, at))
        moved[at] = moved.get(step, step)
    return chosen


_MASK_48 = (1 << 48) - 1
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
        self.state = (self.state * _MULTIPLIER + _INCREMENT) & _MASK_48
        return (self.state >> 17) / _LARGEST

    def seed(self, seed: int) -> None:
        """Begin anew with 32 bits of ``seed``."""
        self._remember()
        self.state = (int(seed) & 0xFFFFFFFF) << 16 | _SEED_LOW

    def _remember(self) -> None:
        if self._shard.undo is not None:
            self._shard.undo.append((setattr, self, "state", self.state))
