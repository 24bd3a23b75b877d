"""Random draws of a shard: one 64-bit state, so that snapshots, rollbacks and frozen states carry it for nothing."""

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
