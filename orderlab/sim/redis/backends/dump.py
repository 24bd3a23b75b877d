"""Reading and rebuilding a keyspace with plain commands: how a backend that is not ours is dumped and loaded.

The form is that of ``Shard.freeze``: key -> (type, frozen value, deadline in ms or None), with the encodings and the
orders that replies can show. So what one backend dumps, any other can load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.redis.database import name_in, place_of
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.values import EncodingLimits, Hash, List, Set, SortedSet

Pipeline = Callable[[Sequence[Sequence[bytes]]], list[Reply]]

READERS: dict[bytes, tuple[bytes, ...]] = {
    b"string": (b"GET",),
    b"hash": (b"HGETALL",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
}
DEFAULT_LIMITS = EncodingLimits()
LARGE_ENCODINGS = (b"hashtable", b"skiplist")
ALL_LARGE = EncodingLimits(zset_max_listpack_entries=-1)
ALL_COMPACT = EncodingLimits(zset_max_listpack_entries=sys.maxsize, zset_max_listpack_value=sys.maxsize)
OUTSIZE = DEFAULT_LIMITS.hash_max_listpack_value + 1
"""Length in bytes of a member that drives a small collection out of its compact encoding."""


def pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Consecutive items in twos."""
    return zip(flat[::2], flat[1::2], strict=True)


def frozen_value(kind: bytes, reply: Reply, is_large: bool) -> Any:
    """The frozen value for what the reader of ``kind`` replied; ``is_large``: it has left its compact encoding."""
    if kind == b"string":
        return bytes(reply)
    if kind == b"list":
        return List(reply).freeze()
    if kind == b"set":
        members = Set()
        members.members, members.intset = set(reply), not is_large
        return members.freeze()
    if kind == b"hash":
        fields = Hash()
        fields.fields, fields.hashtable = dict(pairs(reply)), is_large
        return fields.freeze()
    scores = {member: float(score) for member, score in pairs(reply)}
    return SortedSet.of(scores, ALL_LARGE if is_large else ALL_COMPACT).freeze()


def dump_all(
    pipeline: Pipeline, place: str, databases: Iterable[int], shows_encodings: bool = True
) -> FrozenKeyspace:
    """``dump`` of several databases, from database 0 and back to it."""
    frozen: FrozenKeyspace = {}
    for index in databases:
        pipeline([(b"SELECT", b"%d" % index)])
        found = dump(pipeline, place, shows_encodings)
        frozen |= {name_in(index, key): value for key, value in found.items()} if index else found
    pipeline([(b"SELECT", b"0")])
    return frozen


def dump(pipeline: Pipeline, place: str, shows_encodings: bool = True) -> FrozenKeyspace:
    """All live keys behind ``pipeline``; deadlines as the server stores them.

    Where the encodings cannot be asked for (``shows_encodings``), they are those that a server chooses by default.
    Raises InputError for a key of a type that the kernel does not know (a stream, a module's type).
    """
    keys = sorted(pipeline([(b"KEYS", b"*")])[0])
    questions = [(b"TYPE",), (b"PEXPIRETIME",), *([(b"OBJECT", b"ENCODING")] if shows_encodings else [])]
    answers = pipeline([(*question, key) for key in keys for question in questions])
    about = [answers[i : i + len(questions)] for i in range(0, len(answers), len(questions))]
    live = [(key, *facts) for key, facts in zip(keys, about, strict=True) if facts[0] != b"none"]
    for key, kind, *_ in live:
        if kind not in READERS:
            known = "strings, hashes, lists, sets and sorted sets"
            raise InputError(f"{place}: key {key!r} is of type {kind.decode()}; use only {known}")
    values = pipeline([(READERS[kind][0], key, *READERS[kind][1:]) for key, kind, *_ in live])
    frozen: FrozenKeyspace = {}
    for (key, kind, deadline_ms, *encoding), value in zip(live, values, strict=True):
        if value is None or value == []:
            continue  # it expired between the two reads
        is_large = is_large_encoding(kind, encoding[0]) if encoding else is_large_by_default(kind, value)
        frozen[key] = (kind.decode(), frozen_value(kind, value, is_large), deadline_ms if deadline_ms >= 0 else None)
    return frozen


def is_large_encoding(kind: bytes, encoding: bytes) -> bool:
    """Whether the kernel knows the encoding as the large one: a small set of texts has one of its own from Redis 7.2 on."""
    return encoding in LARGE_ENCODINGS or (kind == b"set" and encoding != b"intset")


def is_large_by_default(kind: bytes, reply: Reply) -> bool:
    """Whether a server with default settings gives this value its large encoding."""
    limits = DEFAULT_LIMITS
    if kind == b"hash":
        longest = max(map(len, reply))
        return len(reply) // 2 > limits.hash_max_listpack_entries or longest > limits.hash_max_listpack_value
    if kind == b"zset":
        longest = max(map(len, reply[::2]))
        return len(reply) // 2 > limits.zset_max_listpack_entries or longest > limits.zset_max_listpack_value
    return kind == b"set" and not Set.of(set(reply), limits.set_max_intset_entries).intset


def rebuild(keyspace: FrozenKeyspace, offset_ms: int = 0) -> list[tuple[bytes, ...]]:
    """Commands that build ``keyspace`` on an empty server whose clock stands ``offset_ms`` behind its deadlines, from database 0 and
    back to it."""
    commands: list[tuple[bytes, ...]] = []
    selected = 0
    for name, (kind, value, deadline_ms) in keyspace.items():
        index, key = place_of(name)
        if index != selected:
            commands.append((b"SELECT", b"%d" % index))
            selected = index
        if kind == "string":
            commands.append((b"SET", key, value))
        elif kind == "list":
            commands.append((b"RPUSH", key, *value))
        elif kind == "set":
            commands += fill(b"SADD", b"SREM", key, value[1], value[0] == "hashtable")
        elif kind == "hash":
            fields = [part for pair in value[1] for part in pair]
            commands += fill(b"HSET", b"HDEL", key, fields, value[0] == "hashtable")
        else:
            scores = SortedSet.thaw(value).scores
            scored = [part for member, score in scores.items() for part in (repr(score).encode(), member)]
            commands += fill(b"ZADD", b"ZREM", key, scored, value[0] == "skiplist")
        if deadline_ms is not None:
            commands.append((b"PEXPIREAT", key, b"%d" % (deadline_ms - offset_ms)))
    if selected:
        commands.append((b"SELECT", b"0"))
    return commands


def fill(add: bytes, remove: bytes, key: bytes, items: Sequence[bytes], is_large: bool) -> Iterable[tuple[bytes, ...]]:
    """Commands that add ``items`` to the collection at ``key``: by way of an outsize member if it must be large."""
    outsize = b"~" * OUTSIZE
    while outsize in items:
        outsize += b"~"
    if is_large:
        yield (add, key, *{b"SADD": (outsize,), b"HSET": (outsize, b""), b"ZADD": (b"0", outsize)}[add])
    yield (add, key, *items)
    if is_large:
        yield (remove, key, outsize)


def check_all(replies: Sequence[Reply], place: str) -> None:
    """InputError with the first error among ``replies``."""
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise InputError(f"{place}: {reply.message.decode(errors='replace')}; correct the server's configuration")
