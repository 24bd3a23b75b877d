"""When two replies agree: when they are equal in type and content, or where the server leaves the difference open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from orderlab.properties.conformance.commands import SAMPLED, TIMED, UNORDERED, UNORDERED_WHEN_LARGE
from orderlab.properties.conformance.grammar import Argv
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace

TOLERANCE_MS = 10_000
"""A real server's clock moves during a sequence; the deadlines that sequences set are 100 times as far apart."""

STALE_ERRNO = b"ERR One or more scores can't be converted into double"
"""SORT of Redis 7.0 says so of good numbers when a command before it has read one that is out of range: it looks at
an errno that it has not reset."""


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


def _same_moment(name: bytes, kernel: Reply, server: Reply) -> bool:
    if name == b"time":
        return bool(abs(int(kernel[0]) - int(server[0])) * 1000 <= TOLERANCE_MS)
    if min(kernel, server) < 0:
        return False
    unit_ms = 1 if name.startswith(b"p") else 1000
    return bool(abs(kernel - server) * unit_ms <= TOLERANCE_MS)


def differences(
    subject: FrozenKeyspace, server: FrozenKeyspace, tolerance_ms: int, name: str = "kernel"
) -> list[str]:
    """In which keys two keyspaces differ, one line each."""
    lines = []
    for key in sorted(subject.keys() | server.keys()):
        ours, theirs = subject.get(key), server.get(key)
        if ours is None or theirs is None or repr(ours[:2]) != repr(theirs[:2]):  # repr tells 0.0 from -0.0
            lines.append(f"key {key!r}: {name} {ours!r}, server {theirs!r}")
        elif (ours[2] is None) != (theirs[2] is None) or not _same_deadline(ours[2] or 0, theirs[2] or 0, tolerance_ms):
            lines.append(f"deadline of {key!r}: {name} {ours[2]}, server {theirs[2]}")
    return lines


def _same_deadline(one_ms: int, other_ms: int, tolerance_ms: int) -> bool:
    precision_ms = one_ms >> 52  # the server's came through Lua, as a double
    return abs(one_ms - other_ms) <= max(tolerance_ms, precision_ms)
