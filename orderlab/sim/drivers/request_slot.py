"""Where a request belongs in a cluster: the slot of its first key."""

from __future__ import annotations

from orderlab.sim.redis.cluster.hash_slot import hash_slot
from orderlab.sim.servers.redis import Request

_SCRIPTS = frozenset((b"EVAL", b"EVALSHA", b"FCALL", b"FCALL_RO"))


def slot_of(request: Request) -> int:
    """The slot of what a script (name, digest, number of keys, keys) or a plain command (name, key) is called on."""
    return hash_slot(bytes(request.argv[3 if request.argv[0] in _SCRIPTS else 1]))
