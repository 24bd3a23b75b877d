"""What a store leaves behind in its keys: payloads of messages that are gone, references, remains of a cleared session.

A layout is not known, so leftovers are found by what any layout shows: the bytes of a payload, and the number of
elements (strings, members, fields, items). A store that has settled must hold no more elements than after a handful of
messages that were saved, fetched and acknowledged; after a clear no more than after the clear of a session that never
held a message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.commands.streams import id_text
from orderlab.sim.redis.keyspace import TYPES
from orderlab.sim.redis.shard import FrozenKeyspace

SHORTEST_MARK = 4
"""Different bytes of a payload below which finding it says nothing: zeros and nines, also as the digits of a number in
hexadecimal, are everywhere."""
SHOWN_MAX = 300
"""Characters of one value."""
LONG_MARK = 16
"""Bytes of a payload from which finding it says something, however monotonous it is."""


def elements_of(keyspace: FrozenKeyspace) -> dict[bytes, int]:
    """How many elements each key holds."""
    return {key: size_of(kind, value) for key, (kind, value, _) in keyspace.items()}


def size_of(kind: str, value: Any) -> int:
    """Elements of one frozen value; a string is one."""
    if kind == "stream":
        return len(items_of(kind, value))
    return 1 if kind == "string" else len(TYPES[kind].thaw(value))


def bytes_of(keyspace: FrozenKeyspace) -> dict[bytes, int]:
    """How many bytes the elements of each key hold."""
    return {key: sum(map(len, bytes_in(value))) for key, (_, value, _) in keyspace.items()}


def bytes_in(value: Any) -> Iterator[bytes]:
    """Every byte string inside a frozen value."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from bytes_in(item)


def text_of(keyspace: FrozenKeyspace) -> bytes:
    """All that the keyspace holds, as one text to search in."""
    parts: list[bytes] = []
    for key, (_, value, _) in keyspace.items():
        parts.append(key)
        parts += bytes_in(value)
    return b"\n".join(parts)


def spellings(payload: bytes) -> set[bytes]:
    """How a payload may be written inside a value, or a client inside a key: raw, base64, hex, JSON text."""
    found = {payload, base64.b64encode(payload), payload.hex().encode()}
    found.add(json.dumps(payload.decode("latin-1"), ensure_ascii=False)[1:-1].encode("latin-1"))
    return found


def is_mark(payload: bytes) -> bool:
    """Whether it says anything that a payload is found: not of one that is short or monotonous."""
    return len(payload) >= LONG_MARK or len(set(payload)) >= SHORTEST_MARK


def holds(text: bytes, payload: bytes) -> bool:
    """Whether ``payload`` is somewhere in ``text``; False for one that is no mark."""
    return is_mark(payload) and any(spelling in text for spelling in spellings(payload))


def keys_of(keyspace: FrozenKeyspace, client: bytes, others: tuple[bytes, ...]) -> FrozenKeyspace:
    """The keys of one client: all of them when it is alone, otherwise those that bear its name and no other's, however
    it is spelt."""
    if not others:
        return keyspace
    mine = spellings(client)
    not_mine = [spelling for other in others for spelling in spellings(other)]
    return {
        key: value
        for key, value in keyspace.items()
        if any(name in key for name in mine) and not any(name in key for name in not_mine)
    }


def surplus(found: Mapping[bytes, int], baseline: Mapping[bytes, int]) -> str:
    """Which keys hold more than their baseline, in words; empty when none does."""
    more = {key: size for key, size in found.items() if size > baseline.get(key, 0)}
    return ", ".join(
        f"{key.decode('latin-1')} ({size} instead of {baseline.get(key, 0)})" for key, size in more.items()
    )


def changes(before: FrozenKeyspace, after: FrozenKeyspace) -> list[bytes]:
    """Keys that hold something that they did not hold before. That something is gone may be a clean-up."""
    return [key for key, now in after.items() if key not in before or not is_part_of(now, before[key])]


def is_part_of(now: tuple[str, Any, int | None], then: tuple[str, Any, int | None]) -> bool:
    """Whether a value is the same as another one, or that one with elements removed."""
    if now[:2] == then[:2]:
        return True
    if now[0] != then[0] or now[0] == "string":
        return False
    return set(items_of(now[0], now[1])) <= set(items_of(then[0], then[1]))


def items_of(kind: str, value: Any) -> list[Any]:
    """The elements of a frozen collection, with what belongs to each."""
    thawed = TYPES[kind].thaw(value)
    if kind == "zset":
        return list(thawed.scores.items())
    if kind == "hash":
        return list(thawed.fields.items())
    if kind == "stream":
        entries = [b" ".join((b"%d-%d" % one, *items)) for one, items in thawed.between()]
        for name, group in thawed.groups.items():
            entries += [b"pending in %b: %d-%d of %b" % (name, *one, group.pending[one][0]) for one in group.ids]
        return entries
    return list(thawed.members) if kind == "set" else list(thawed.freeze())


def shown_keyspace(keyspace: FrozenKeyspace) -> dict[str, str]:
    """Each key with its type, value and deadline, short enough to read."""
    return {
        shown_bytes(key[:80]): f"{kind} {shown_value(kind, value)}" + (f" until {deadline}" if deadline else "")
        for key, (kind, value, deadline) in sorted(keyspace.items())[:40]
    }


def shown_value(kind: str, value: Any) -> str:
    """The value of a key of that type, as text that is short enough to read."""
    if isinstance(value, bytes):
        parts = [shown_bytes(value)]
    elif kind in ("zset", "hash"):
        pairs = items_of(kind, value)
        pairs = sorted(pairs, key=lambda pair: (pair[1], pair[0])) if kind == "zset" else sorted(pairs)
        parts = [
            f"{shown_bytes(name)} = {one:.17g}" if kind == "zset" else f"{shown_bytes(name)} = {shown_bytes(one)}"
            for name, one in pairs[:SHOWN_MAX]
        ]
    elif kind == "stream":
        stream = TYPES[kind].thaw(value)
        parts = [shown_bytes(b" ".join((id_text(one), *fields))) for one, fields in list(stream.between())[:SHOWN_MAX]]
        parts += [
            f"{shown_bytes(id_text(one))} pending in {shown_bytes(name)} of {shown_bytes(group.pending[one][0])}"
            for name, group in stream.groups.items()
            for one in list(group.ids)[:SHOWN_MAX]
        ]
    else:
        items = items_of(kind, value)
        parts = [shown_bytes(one) for one in (items if kind == "list" else sorted(items))[:SHOWN_MAX]]
    text = ", ".join(parts)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
