"""Reading and rebuilding a keyspace with plain commands: how a backend that is not ours is dumped and loaded.

The canonical form is that of ``Shard.freeze``: key -> (type, value, deadline in ms or None), where a sorted set is a
tuple of (score, member) in order, a hash and a set are sorted tuples, a list is a tuple, and a string is its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model.errors import InputError
from sim.redis.replies import ErrorReply, Reply
from sim.redis.shard import FrozenKeyspace

Pipeline = Callable[[Sequence[Sequence[bytes]]], list[Reply]]

READERS: dict[bytes, tuple[bytes, ...]] = {
    b"string": (b"GET",),
    b"hash": (b"HGETALL",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
}


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Consecutive items in twos."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def canonical(kind: bytes, reply: Reply) -> Any:
    """The canonical value for what the reader of ``kind`` replied."""
    if kind == b"string":
        return bytes(reply)
    if kind == b"list":
        return tuple(reply)
    if kind == b"set":
        return tuple(sorted(reply))
    if kind == b"hash":
        return tuple(sorted(pairs(reply)))
    return tuple(sorted((float(score), member) for member, score in pairs(reply)))


def dump(pipeline: Pipeline, place: str) -> FrozenKeyspace:
    """All live keys behind ``pipeline``; deadlines as the server stores them.

    Raises InputError for a key of a type that the canonical form does not know (a stream, a module's type).
    """
    keys = sorted(pipeline([(b"KEYS", b"*")])[0])
    about = pipeline([argv for key in keys for argv in ((b"TYPE", key), (b"PEXPIRETIME", key))])
    kinds, deadlines = about[::2], about[1::2]
    for key, kind in zip(keys, kinds, strict=True):
        if kind not in READERS and kind != b"none":
            known = "strings, hashes, lists, sets and sorted sets"
            raise InputError(f"{place}: key {key!r} is of type {kind.decode()}; use only {known}")
    live = [(key, kind, at) for key, kind, at in zip(keys, kinds, deadlines, strict=True) if kind != b"none"]
    values = pipeline([(READERS[kind][0], key, *READERS[kind][1:]) for key, kind, _ in live])
    frozen: FrozenKeyspace = {}
    for (key, kind, deadline_ms), value in zip(live, values, strict=True):
        if value is not None and value != []:  # it expired between the two reads
            frozen[key] = (kind.decode(), canonical(kind, value), deadline_ms if deadline_ms >= 0 else None)
    return frozen


def rebuild(keyspace: FrozenKeyspace, offset_ms: int = 0) -> list[tuple[bytes, ...]]:
    """Commands that build ``keyspace`` in an empty database whose clock stands ``offset_ms`` behind its deadlines."""
    commands: list[tuple[bytes, ...]] = []
    for key, (kind, value, deadline_ms) in keyspace.items():
        if kind == "string":
            commands.append((b"SET", key, value))
        elif kind == "list":
            commands.append((b"RPUSH", key, *value))
        elif kind == "set":
            commands.append((b"SADD", key, *value))
        elif kind == "hash":
            commands.append((b"HSET", key, *(part for pair in value for part in pair)))
        else:
            scored = (part for score, member in value for part in (repr(score).encode(), member))
            commands.append((b"ZADD", key, *scored))
        if deadline_ms is not None:
            commands.append((b"PEXPIREAT", key, b"%d" % (deadline_ms - offset_ms)))
    return commands


def check_all(replies: Sequence[Reply], place: str) -> None:
    """InputError with the first error among ``replies``."""
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise InputError(f"{place}: {reply.message.decode(errors='replace')}; correct the server's configuration")
