"""OBJECT: how a value is kept."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.lacking import UnsupportedCommand
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import ErrorReply, Reply

_EMBEDDED_MAX = 44
_SHARED_INTEGERS = 10_000
_SHARED_REFCOUNT = (1 << 31) - 1
_SWITCHING = (
    b"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
_NOT_LFU = b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. " + _SWITCHING
_LFU = b"ERR An LFU maxmemory policy is selected, idle time not tracked. " + _SWITCHING


def encoding_of(shard: NodeState, key: bytes) -> bytes | None:
    """The encoding of the value at ``key`` as OBJECT ENCODING names it; None if there is no key."""
    value = shard.peek(key)
    if value is None:
        return None
    if not isinstance(value, bytes):
        return value.encoding
    special = shard.string_encodings.get(key)
    if special is not None:
        return special
    if len(value) <= 20 and parse_integer(value) is not None:
        return b"int"
    return b"embstr" if len(value) <= _EMBEDDED_MAX else b"raw"


@command("object|encoding", 3, "readonly", (2, 2, 1))
def object_encoding(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT ENCODING key."""
    return encoding_of(shard, argv[2])


@command("object|refcount", 3, "readonly", (2, 2, 1))
def object_refcount(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT REFCOUNT key: 1, but for the small integers that all keys share unless use is tracked."""
    key = argv[2]
    value = shard.peek(key)
    if value is None:
        return None
    config = shard.config
    tracks_use = config.maxmemory != 0 and config.maxmemory_policy.endswith(("lru", "lfu"))
    if isinstance(value, bytes) and encoding_of(shard, key) == b"int" and not tracks_use:
        return _SHARED_REFCOUNT if 0 <= int(value) < _SHARED_INTEGERS else 1
    return 1


@command("object|freq", 3, "readonly", (2, 2, 1))
def object_freq(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT FREQ key."""
    if shard.peek(argv[2]) is None:
        return None
    if not shard.config.maxmemory_policy.endswith("lfu"):
        raise ErrorReply(_NOT_LFU)
    if shard.access is None:
        raise UnsupportedCommand("OBJECT FREQ without a maxmemory limit (the kernel tracks use only under one)")
    return shard.access.frequency(argv[2])


@command("object|idletime", 3, "readonly", (2, 2, 1))
def object_idletime(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT IDLETIME key, in seconds."""
    if shard.peek(argv[2]) is None:
        return None
    if shard.config.maxmemory_policy.endswith("lfu"):
        raise ErrorReply(_LFU)
    if shard.access is None:
        raise UnsupportedCommand("OBJECT IDLETIME without a maxmemory limit (the kernel tracks use only under one)")
    return shard.access.idle_ms(argv[2]) // 1000
