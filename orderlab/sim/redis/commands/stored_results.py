"""How a command that computes a collection puts it at its destination key."""

from __future__ import annotations

from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.values import Set, SortedSet

GROWTH_PER_MEMBER = 64
"""Bytes that one more reference to a member costs, roughly: enough to stop a script that multiplies collections."""


def store_result(shard: NodeState, key: bytes, result: SortedSet | Set) -> int:
    """Replace whatever is at ``key``, deadline included, by ``result``; an empty one leaves no key. Its size."""
    if not result:
        if shard.lookup(key) is not None:
            shard.remove(key)
            shard.modified(key)
        return 0
    shard.grow(GROWTH_PER_MEMBER * len(result))
    shard.install(key, result)
    if key in shard.deadlines_ms:
        shard.set_deadline(key, None)
    shard.modified(key)
    return len(result)
