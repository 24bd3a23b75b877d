"""When two replies agree: when they are equal in type and content, or where the server leaves the difference open; and
what later versions of Redis 7 do otherwise than Redis 7.0, which the kernel follows.

A difference that a rule of a later version explains is counted and named in the report, and the rest of its sequence is
not compared, as the two keyspaces may have parted. Nothing else is excused: a server of another version judges all the
rest. The rules were found by comparing 220,000 commands with Redis 7.4.1, and hold for it; whether a difference came
with 7.2 or with 7.4 was not tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.values.stream import visible
from tests.laboratory.conformance.commands import AGED, SAMPLED, TIMED, UNORDERED, UNORDERED_WHEN_LARGE
from tests.laboratory.conformance.grammar import Argv

TOLERANCE_MS = 10_000
"""A real server's clock moves during a sequence; the deadlines that sequences set are 100 times as far apart."""

STALE_ERRNO = b"ERR One or more scores can't be converted into double"
"""SORT of Redis 7.0 says so of good numbers when a command before it has read one that is out of range: it looks at
an errno that it has not reset."""


USED_UP = {
    b"ERR Elements are too large to be stored",
    b"ERR The ID specified in XADD is equal or smaller than the target stream top item",
}
"""XADD of ``ms-*`` where the sequences of that millisecond are used up: Redis 7.0 says one or the other, by an errno
that it has not set."""


def same(one: Reply, other: Reply) -> bool:
    """Equal in content and in the type of every part."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def agree(argv: Argv, kernel: Reply, server: Reply, is_large: bool, before: Reply = None) -> bool:
    """Whether the kernel's reply to ``argv`` will do where the server said ``server``.

    ``is_large``: the value at the command's key has left its compact encoding. ``before``: the kernel's reply to the
    command before, which for a sampling command is the whole collection.
    """
    if same(kernel, server):
        return True
    name = argv[0].lower()
    if name.startswith(b"sort") and isinstance(server, ErrorReply) and isinstance(kernel, list):
        return server.message == STALE_ERRNO
    if name == b"xadd" and isinstance(kernel, ErrorReply) and isinstance(server, ErrorReply):
        return {kernel.message, server.message} == USED_UP
    if type(kernel) is not type(server) or isinstance(kernel, ErrorReply):
        return False
    if name in UNORDERED or (name in UNORDERED_WHEN_LARGE and is_large):
        return _same_items(name, argv, kernel, server)
    if name.startswith(b"sort") and isinstance(kernel, list) and _is_by_constant(argv):
        return len(kernel) == len(server)  # as a set happens to be ordered inside
    if name.startswith(b"sort") and isinstance(kernel, list) and _leaves_ties(argv):
        return _same_rows(argv, kernel, server)
    if name in SAMPLED:
        return _same_sample(kernel, server, before)
    if name == b"object" and argv[1].lower() == b"refcount":
        return bool(kernel > 0 and server > 0)  # who else holds the object is the server's own business
    if name in AGED:
        return same(_without_ages(kernel), _without_ages(server))
    if name in TIMED:
        return _same_moment(name, kernel, server)
    return False


def _is_by_constant(argv: Argv) -> bool:
    words = [word.upper() for word in argv]
    return any(word == b"BY" and b"*" not in pattern for word, pattern in pairwise(words))


def _leaves_ties(argv: Argv) -> bool:
    """ALPHA compares nothing but the weights that BY leads to: elements of the same weight, or of none, stay as they
    were, which for sets and sorted sets is the order of a hash table."""
    words = [word.upper() for word in argv]
    return b"BY" in words and b"ALPHA" in words


def _same_rows(argv: Argv, kernel: Sequence[Any], server: Sequence[Any]) -> bool:
    """Whether both have the same rows, one column for each GET; with LIMIT, as many."""
    words = [word.upper() for word in argv]
    width = max(words.count(b"GET"), 1)
    if b"LIMIT" in words or len(kernel) != len(server):
        return len(kernel) == len(server)
    ours, theirs = (sorted(repr(one[at : at + width]) for at in range(0, len(one), width)) for one in (kernel, server))
    return ours == theirs


def _same_items(name: bytes, argv: Argv, kernel: Reply, server: Reply) -> bool:
    if name.endswith(b"scan"):
        cursor = argv[1 if name == b"scan" else 2]
        if cursor != b"0" or kernel[0] != b"0" or server[0] != b"0":
            return True  # where a page begins and ends is the server's own business
        kernel, server = kernel[1], server[1]
    if not isinstance(kernel, list):
        return False
    if name in (b"hgetall", b"hscan", b"zscan"):
        kernel, server = _in_pairs(kernel), _in_pairs(server)
    return sorted(kernel, key=repr) == sorted(server, key=repr)


def _in_pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _same_sample(kernel: Reply, server: Reply, before: Reply) -> bool:
    if not isinstance(kernel, list | set):
        return isinstance(kernel, bytes)
    if len(kernel) != len(server) or not isinstance(before, list | set | dict):
        return False
    whole = _atoms(before)
    return _atoms(kernel) <= whole and _atoms(server) <= whole


def _atoms(reply: Reply) -> set[Any]:
    if isinstance(reply, dict):
        return {atom for pair in reply.items() for part in pair for atom in _atoms(part)}
    if isinstance(reply, list | set | tuple):
        return {atom for item in reply for atom in _atoms(item)}
    return {reply}


_AGES = (b"idle", b"seen-time", b"active-time", b"inactive")


def _without_ages(reply: Reply) -> Reply:
    """A reply about consumer groups without the times in it."""
    if isinstance(reply, dict):
        return {name: None if name in _AGES else _without_ages(one) for name, one in reply.items()}
    if not isinstance(reply, list):
        return reply
    kinds = [type(one) for one in reply]
    # Something pending: when it was delivered, or how long ago.
    if kinds in ([bytes, bytes, int, int], [bytes, int, int]):
        return [*reply[:-2], None, reply[-1]]
    return [None if at and reply[at - 1] in _AGES else _without_ages(one) for at, one in enumerate(reply)]


def _same_moment(name: bytes, kernel: Reply, server: Reply) -> bool:
    if name == b"time":
        return bool(abs(int(kernel[0]) - int(server[0])) * 1000 <= TOLERANCE_MS)
    if min(kernel, server) < 0:
        return False
    unit_ms = 1 if name.startswith(b"p") else 1000
    return bool(abs(kernel - server) * unit_ms <= TOLERANCE_MS)


def differences(subject: FrozenKeyspace, server: FrozenKeyspace, tolerance_ms: int, name: str = "kernel") -> list[str]:
    """In which keys two keyspaces differ, one line each."""
    lines = []
    for key in sorted(subject.keys() | server.keys()):
        ours, theirs = _seen(subject.get(key)), _seen(server.get(key))
        if ours is None or theirs is None or repr(ours[:2]) != repr(theirs[:2]):  # repr tells 0.0 from -0.0
            lines.append(f"key {key!r}: {name} {ours!r}, server {theirs!r}")
        elif (ours[2] is None) != (theirs[2] is None) or not _same_deadline(ours[2] or 0, theirs[2] or 0, tolerance_ms):
            lines.append(f"deadline of {key!r}: {name} {ours[2]}, server {theirs[2]}")
    return lines


def _seen(value: tuple[str, Any, int | None] | None) -> tuple[str, Any, int | None] | None:
    """A frozen value as far as a dump of a server can tell it."""
    if value is not None and value[0] == "hash":
        return value[0], value[1][:2], value[2]  # deadlines of fields are compared by replies
    return value if value is None or value[0] != "stream" else (value[0], visible(value[1]), value[2])


def _same_deadline(one_ms: int, other_ms: int, tolerance_ms: int) -> bool:
    precision_ms = one_ms >> 52  # the server's came through Lua, as a double
    return abs(one_ms - other_ms) <= max(tolerance_ms, precision_ms)


FOLLOWED = (7, 0)
"""The version that the kernel follows; no rule applies to it."""

KILLED_BY_FUNCTIONS = frozenset(((7, 4, 1), (8, 2, 3)))
"""Versions that die of FUNCTION FLUSH once a library was loaded: they are asked nothing about functions."""

_FUNCTIONS = (b"function", b"fcall")


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """One way in which servers after 7.0 differ."""

    what: str
    explains: Callable[[bytes, Reply, Reply], bool]
    """Whether it explains two replies to a step; the first argument is the step's words, and those of its scripts."""


def _named(pattern: bytes) -> Callable[[bytes, Reply, Reply], bool]:
    search = re.compile(pattern, re.IGNORECASE).search
    return lambda text, kernel, server: search(text) is not None


DIFFERENCES = (
    VersionDifference(
        "doubles are written with as few digits as they need: 0.1, not 0.10000000000000001",
        lambda text, kernel, server: same_but_for_digits(kernel, server),
    ),
    VersionDifference(
        "blocking commands may be called from scripts",
        lambda text, kernel, server: "not allowed from script" in repr(kernel),
    ),
    VersionDifference(
        "scripts have newproxy and os.clock, or other words for their absence", _named(rb"newproxy|\bos\.")
    ),
    VersionDifference(
        "BITCOUNT and BITPOS read their arguments before they look for the key", _named(rb"\bbit(count|pos)\b")
    ),
    VersionDifference("SCAN and its kin are strict about cursors, and look at them first", _named(rb"\b[hsz]?scan\b")),
    VersionDifference("LREM refuses the smallest integer", _named(rb"\blrem\b")),
    VersionDifference("LSET on a short list answers OK to an index far beyond its end", _named(rb"\blset\b")),
    VersionDifference("small sets and short lists have the encoding listpack", _named(rb"\bobject\b")),
    VersionDifference("ZRANK and ZREVRANK take WITHSCORE", _named(rb"\bz(rev)?rank\b")),
)


def explanation(
    version: tuple[int, ...], steps: Sequence[Argv | int], at: int, kernel: Reply, server: Reply
) -> str | None:
    """Why the replies to ``steps[at]`` may differ on a server of ``version``; None if they may not."""
    if version[:2] == FOLLOWED:
        return None
    step = steps[at]
    assert not isinstance(step, int)
    text = b" ".join(step)
    if step[0].lower().startswith((b"evalsha", *_FUNCTIONS, b"exec")):  # what they run was sent before
        text = b" ".join(word for one in steps[: at + 1] if not isinstance(one, int) for word in one)
    return next((one.what for one in DIFFERENCES if one.explains(text, kernel, server)), None)


def explanation_of_keyspaces(version: tuple[int, ...], steps: Sequence[Argv | int]) -> str | None:
    """Why the keyspaces may differ although no reply did: a script has written a fraction as text."""
    if version[:2] == FOLLOWED or not any(
        not isinstance(one, int) and one[0].lower().startswith(b"eval") for one in steps
    ):
        return None
    return DIFFERENCES[0].what


_OF_ITS_LUA = re.compile(
    rb"2\^3[12]|2\^53|1e7|8100|newproxy|print\(|abc', -2|2147483647|2\^40|\bos\.|COMMAND|DEBUG|cmsgpack\.pack\(\)",
    re.IGNORECASE,
)
"""What depends on the repairs that a server's own Lua has had, within one release; some of it ends Redis 6.2.14."""


def bearable(
    version: tuple[int, ...], steps: tuple[Argv | int, ...], is_its_own: bool = False
) -> tuple[Argv | int, ...]:
    """The steps without those that would kill a server of ``version``, or that tell its Lua from others where
    ``is_its_own`` server is followed."""
    if is_its_own:
        steps = tuple(one for one in steps if isinstance(one, int) or not any(map(_OF_ITS_LUA.search, one)))
    if version not in KILLED_BY_FUNCTIONS:
        return steps
    return tuple(one for one in steps if isinstance(one, int) or not one[0].lower().startswith(_FUNCTIONS))


def same_but_for_digits(kernel: object, server: object) -> bool:
    """Whether both are equal up to doubles, which the kernel writes with 17 digits and the server with as few as tell
    the double from others. Looks into containers."""
    if isinstance(kernel, bytes) and isinstance(server, bytes):
        return kernel == server or _spells_the_same(kernel, server)
    if isinstance(kernel, list | tuple) and isinstance(server, list | tuple):
        return len(kernel) == len(server) and all(map(same_but_for_digits, kernel, server))
    if isinstance(kernel, dict) and isinstance(server, dict):
        return same_but_for_digits(list(kernel.items()), list(server.items()))
    return bool(kernel == server)


def _spells_the_same(kernel: bytes, server: bytes) -> bool:
    try:
        value = float(server)
    except ValueError:
        return False
    return kernel == b"%.17g" % value
