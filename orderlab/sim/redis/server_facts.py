"""What Redis 7.0.15 says of its commands and its settings, as it said it (``tests/laboratory/server_facts.py`` writes
``facts/``)."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import RepeatedKeys, RepeatedMembers, Reply, Status

_FACTS: Final = Path(__file__).parent / "facts"


def _table(name: str) -> Any:
    return _reply(json.loads(lzma.decompress((_FACTS / f"{name}.json.xz").read_bytes())))


def _reply(value: Any) -> Any:
    """A reply of RESP3 from JSON: a text begins with its kind, and so does a list."""
    if isinstance(value, str):
        return (Status if value[0] == "+" else bytes)(value[1:].encode("latin1"))
    if isinstance(value, list):
        kinds: dict[str, Any] = {"*": list, "~": RepeatedMembers, "%": RepeatedKeys}
        return kinds[value[0]](map(_reply, value[1:]))
    return value


def as_dict(pairs: Any) -> dict[bytes, Any]:
    """A map whose keys and values stand in turn."""
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


@cache
def command_rows() -> dict[bytes, list[Reply]]:
    """The rows of COMMAND by name, subcommands (``container|name``) too; those of containers hold theirs."""
    rows = {row[0]: row for row in _table("commands")}
    return rows | {sub[0]: sub for row in rows.values() for sub in row[9]}


@cache
def command_documents() -> dict[bytes, Reply]:
    """What COMMAND DOCS says, by name; subcommands too."""
    documents = as_dict(_table("docs"))
    subcommands = [as_dict(document).get(b"subcommands", ()) for document in documents.values()]
    return documents | {name: document for each in subcommands for name, document in as_dict(each).items()}


@cache
def setting_defaults() -> dict[bytes, bytes]:
    """Directives with the values that a server comes with; without those of its own process."""
    lines = (_FACTS / "settings.txt").read_bytes().split(b"\n")[:-1]
    return {name: value for name, _, value in (line.partition(b" ") for line in lines)}


class UnknownKeys(Exception):
    """A command's table does not say where its keys are."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """An argument that is a key, and what the command does with it."""

    at: int
    flags: tuple[bytes, ...]


def key_places(argv: Sequence[bytes]) -> list[KeyPlace]:
    """The keys of a call by the key specifications of its command. Raises UnknownKeys where they leave some out."""
    command = find(argv)
    assert command is not None, "asked of a command that there is"
    places = []
    for each in cast("list[Any]", command_rows()[command.name][8]):
        spec = as_dict(each)
        begin, rule = as_dict(spec[b"begin_search"]), as_dict(spec[b"find_keys"])
        if b"unknown" in (begin[b"type"], rule[b"type"]):
            raise UnknownKeys
        flags = spec[b"flags"]
        if command.name == b"set":
            reads = any(word.upper() == b"GET" for word in argv[3:])
            flags = {b"RW", b"access", b"update"} if reads else {b"OW", b"update"}
        elif b"incomplete" in flags or b"variable_flags" in flags:
            raise UnknownKeys
        places += [KeyPlace(at, _in_order(flags)) for at in _positions(argv, begin, rule)]
    return places


_KEY_FLAGS: Final = b"RO RW OW RM access update insert delete not_key incomplete variable_flags".split()


def _in_order(flags: Any) -> tuple[bytes, ...]:
    return tuple(flag for flag in _KEY_FLAGS if flag in flags)


def _positions(argv: Sequence[bytes], begin: dict[bytes, Any], rule: dict[bytes, Any]) -> list[int]:
    where, how = as_dict(begin[b"spec"]), as_dict(rule[b"spec"])
    if begin[b"type"] == b"index":
        first = where[b"index"]
    else:
        first = _after_keyword(argv, where[b"keyword"], where[b"startfrom"])
        if first is None:
            return []
    if rule[b"type"] == b"range":
        last, step = how[b"lastkey"], how[b"keystep"]
        end = first + last if last >= 0 else len(argv) + last
        if how[b"limit"] > 1 and last < 0:
            end = first + (len(argv) - first) // how[b"limit"] + last
        return list(range(first, min(end, len(argv) - 1) + 1, step))
    count_at = first + how[b"keynumidx"]
    count = int(argv[count_at]) if count_at < len(argv) and argv[count_at].isdigit() else 0
    begun = first + how[b"firstkey"]
    return list(range(begun, min(begun + count * how[b"keystep"], len(argv)), how[b"keystep"]))


def _after_keyword(argv: Sequence[bytes], keyword: bytes, start: int) -> int | None:
    """The argument behind the keyword that is found from ``start`` on (negative: backwards from the end)."""
    places = range(start, len(argv)) if start > 0 else range(len(argv) + start, 0, -1)
    return next((at + 1 for at in places if argv[at].upper() == keyword.upper()), None)
