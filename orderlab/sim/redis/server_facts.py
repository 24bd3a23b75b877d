"""What Redis 7.0.15 says of its commands and its settings, as it said it (``tests/laboratory/server_facts.py`` writes
``facts/``)."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

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


@cache
def help_pages() -> dict[str, list[Reply]]:
    """What HELP of a container says (and DEBUG HELP), by the container's name."""
    pages = json.loads(lzma.decompress((_FACTS / "help.json.xz").read_bytes()))
    return {name: [Status(line.encode()) for line in lines] for name, lines in pages.items()}


class UnknownKeys(Exception):
    """A command's table does not say where its keys are."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """An argument that is a key, and what the command does with it."""

    at: int
    flags: tuple[bytes, ...]


LIKE: Final = {
    **dict.fromkeys((b"client|setinfo", b"client|no-touch"), b"client|setname"),
    **dict.fromkeys((b"hexpire", b"hexpireat", b"hpexpire", b"hpexpireat", b"hpersist", b"hsetex"), b"hset"),
    **dict.fromkeys((b"httl", b"hpttl", b"hexpiretime", b"hpexpiretime"), b"hget"),
    **dict.fromkeys((b"hgetdel", b"hgetex"), b"hincrby"),
}
"""Commands that came after Redis 7.0 -> one of the same categories, whose keys stand and are used alike (COMMAND
INFO of 8.2.3)."""


def called_row(argv: Sequence[bytes]) -> list[Reply] | None:
    """The row of the command, or subcommand, that a line calls, the kernel's or not; None: a server has none such."""
    rows, name = command_rows(), argv[0].lower()
    row = rows.get(name)
    if row is not None and row[9] and len(argv) > 1:
        name = b"%b|%b" % (name, argv[1].lower())
        row = rows.get(name)
    return [name, *rows[LIKE[name]][1:]] if row is None and name in LIKE else row


def key_places(argv: Sequence[bytes]) -> list[KeyPlace]:
    """The keys of a call by the key specifications of its command, or by what a server looks for where these leave some
    out. Raises UnknownKeys where neither is known here."""
    row = called_row(argv)
    assert row is not None, "asked of a command that there is"
    special = _SPECIAL_PLACES.get(cast(bytes, row[0]))
    if special is not None:
        return special(argv)
    places = []
    for each in cast("list[Any]", row[8]):
        spec = as_dict(each)
        begin, rule = as_dict(spec[b"begin_search"]), as_dict(spec[b"find_keys"])
        if b"unknown" in (begin[b"type"], rule[b"type"]):
            raise UnknownKeys
        flags = spec[b"flags"]
        if b"incomplete" in flags or b"variable_flags" in flags:
            raise UnknownKeys
        places += [KeyPlace(at, _in_order(flags)) for at in _positions(argv, begin, rule)]
    return places


_READ: Final = (b"RO", b"access")
_READ_AND_WRITE: Final = (b"RW", b"access", b"update")
_OVERWRITE: Final = (b"OW", b"update")


def _places_of_set(argv: Sequence[bytes]) -> list[KeyPlace]:
    reads = any(word.upper() == b"GET" for word in argv[3:])
    return [KeyPlace(1, _READ_AND_WRITE if reads else _OVERWRITE)]


def _places_of_bitfield(argv: Sequence[bytes]) -> list[KeyPlace]:
    """Read alone, if all that is asked for are GETs."""
    at, length = 2, {b"GET": 3, b"OVERFLOW": 2}
    while at < len(argv):
        words = length.get(argv[at].upper())
        if words is None or at + words > len(argv):
            return [KeyPlace(1, _READ_AND_WRITE)]
        at += words
    return [KeyPlace(1, _READ)]


def _places_of_sort(argv: Sequence[bytes]) -> list[KeyPlace]:
    """The key, and what the last STORE names. Keys made from patterns are not known beforehand."""
    stored: list[KeyPlace] = []
    at = 2
    while at < len(argv):
        word = argv[at].upper()
        if word == b"STORE" and at + 1 < len(argv):
            stored = [KeyPlace(at + 1, _OVERWRITE)]
        at += {b"LIMIT": 3, b"GET": 2, b"BY": 2, b"STORE": 2}.get(word, 1)
    return [KeyPlace(1, _READ), *stored]


_SPECIAL_PLACES: Final[dict[bytes, Callable[[Sequence[bytes]], list[KeyPlace]]]] = {
    b"set": _places_of_set,
    b"bitfield": _places_of_bitfield,
    b"sort": _places_of_sort,
    b"sort_ro": lambda argv: [KeyPlace(1, _READ)],
}
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
