"""Reading and rebuilding a keyspace with plain commands: how a backend that is not ours is dumped and loaded.

The form is that of ``Shard.freeze``: key -> (type, frozen value, deadline in ms or None), with the encodings and the
orders that replies can show. So what one backend dumps, any other can load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.redis.commands.streams import id_text, parse_id
from orderlab.sim.redis.database import name_in, place_of
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.values import EncodingLimits, Hash, List, Set, SortedSet, Stream
from orderlab.sim.redis.values.stream import LAST_ID, NODE_MAX_BYTES, NODE_MAX_ENTRIES, UNKNOWN_READ, Group

Pipeline = Callable[[Sequence[Sequence[bytes]]], list[Reply]]

READERS: dict[bytes, tuple[bytes, ...]] = {
    b"string": (b"GET",),
    b"hash": (b"HGETALL",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
    b"stream": (b"XINFO", b"STREAM", b"FULL", b"COUNT", b"0"),
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
    if kind == b"stream":
        return read_stream(reply).freeze()
    if kind == b"hash":
        fields = Hash()
        fields.fields, fields.hashtable = dict(pairs(reply)), is_large
        return fields.freeze()
    scores = {member: float(score) for member, score in pairs(reply)}
    return SortedSet.of(scores, ALL_LARGE if is_large else ALL_COMPACT).freeze()


def reader_of(kind: bytes, key: bytes) -> tuple[bytes, ...]:
    """The command that reads the whole value of a key of this type."""
    name, *rest = READERS[kind]
    return (name, rest[0], key, *rest[1:]) if kind == b"stream" else (name, key, *rest)


def read_stream(reply: Reply) -> Stream:
    """The stream that XINFO STREAM FULL tells of, with as many nodes as adding its entries anew makes."""
    facts = _facts(reply)
    value = Stream()
    for one, items in facts[b"entries"]:
        value.append(parse_id(one), tuple(items), None, NODE_MAX_BYTES, NODE_MAX_ENTRIES)
    value.set_ids(
        parse_id(facts[b"last-generated-id"]), facts[b"entries-added"], parse_id(facts[b"max-deleted-entry-id"]), None
    )
    for group in map(_facts, facts[b"groups"]):
        read = group[b"entries-read"]
        made = Group(parse_id(group[b"last-delivered-id"]), UNKNOWN_READ if read is None else read)
        for consumer in map(_facts, group[b"consumers"]):
            made.see(consumer[b"name"], consumer[b"seen-time"], None)
        for one, consumer, time_ms, count in group[b"pending"]:
            made.put(parse_id(one), (consumer, time_ms, count), None)
        value.set_group(group[b"name"], made, None)
    return value


def _facts(reply: Reply) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(pairs(reply))


def dump_all(pipeline: Pipeline, place: str, databases: Iterable[int], shows_encodings: bool = True) -> FrozenKeyspace:
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
    Raises InputError for a key of a type that the kernel does not know (a module's type).
    """
    keys = sorted(pipeline([(b"KEYS", b"*")])[0])
    questions = [(b"TYPE",), (b"PEXPIRETIME",), *([(b"OBJECT", b"ENCODING")] if shows_encodings else [])]
    answers = pipeline([(*question, key) for key in keys for question in questions])
    about = [answers[i : i + len(questions)] for i in range(0, len(answers), len(questions))]
    live = [(key, *facts) for key, facts in zip(keys, about, strict=True) if facts[0] != b"none"]
    for key, kind, *_ in live:
        if kind not in READERS:
            known = "strings, hashes, lists, sets, sorted sets and streams"
            raise InputError(f"{place}: key {key!r} is of type {kind.decode()}; use only {known}")
    values = pipeline([reader_of(kind, key) for key, kind, *_ in live])
    frozen: FrozenKeyspace = {}
    for (key, kind, deadline_ms, *encoding), value in zip(live, values, strict=True):
        if value is None or value == []:
            continue  # it expired between the two reads
        is_large = is_large_encoding(kind, encoding[0]) if encoding else is_large_by_default(kind, value)
        frozen[key] = (kind.decode(), frozen_value(kind, value, is_large), deadline_ms if deadline_ms >= 0 else None)
    return frozen


def is_large_encoding(kind: bytes, encoding: bytes) -> bool:
    """Whether the kernel knows the encoding as the large one: a small set of texts has one of its own from Redis 7.2
    on."""
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
    """Commands that build ``keyspace`` on an empty server whose clock stands ``offset_ms`` behind its deadlines, from
    database 0 and back to it."""
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
        elif kind == "stream":
            commands += rebuild_stream(key, Stream.thaw(value))
        else:
            scores = SortedSet.thaw(value).scores
            scored = [part for member, score in scores.items() for part in (repr(score).encode(), member)]
            commands += fill(b"ZADD", b"ZREM", key, scored, value[0] == "skiplist")
        if deadline_ms is not None:
            commands.append((b"PEXPIREAT", key, b"%d" % (deadline_ms - offset_ms)))
    if selected:
        commands.append((b"SELECT", b"0"))
    return commands


def rebuild_stream(key: bytes, value: Stream) -> Iterable[tuple[bytes, ...]]:
    """Commands that build a stream with its groups. What is pending of entries that are gone takes entries in their
    place, which are deleted at the end; when consumers were heard of cannot be given."""
    entries = dict(value.between())
    pending = {one for group in value.groups.values() for one in group.ids}
    lost = sorted(pending - entries.keys())
    for one in sorted((*entries, *lost)):
        yield (b"XADD", key, id_text(one), *entries.get(one, (b"", b"")))
    if not entries and not lost:
        yield (b"XGROUP", b"CREATE", key, b"~", b"0", b"MKSTREAM")
        yield (b"XGROUP", b"DESTROY", key, b"~")
    for name, group in value.groups.items():
        yield (b"XGROUP", b"CREATE", key, name, id_text(group.last_id), b"ENTRIESREAD", b"%d" % group.entries_read)
        for consumer in group.consumers:
            yield (b"XGROUP", b"CREATECONSUMER", key, name, consumer)
        for one in group.ids:
            consumer, time_ms, count = group.pending[one]
            how = (b"TIME", b"%d" % time_ms, b"RETRYCOUNT", b"%d" % count, b"FORCE", b"JUSTID")
            yield (b"XCLAIM", key, name, consumer, b"0", id_text(one), *how)
    first = min(entries, default=LAST_ID)
    if lost and lost[0] < first:
        yield (b"XTRIM", key, b"MINID", id_text(first))  # which leaves the greatest deleted identifier alone
    if lost and lost[-1] > first:
        yield (b"XDEL", key, *(id_text(one) for one in lost if one > first))
    facts = (b"ENTRIESADDED", b"%d" % value.entries_added, b"MAXDELETEDID", id_text(value.max_deleted_id))
    yield (b"XSETID", key, id_text(value.last_id), *facts)


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
