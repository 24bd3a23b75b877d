"""What later versions of Redis 7 do otherwise than Redis 7.0, which the kernel follows.

A difference that one of these rules explains is counted and named in the report, and the rest of its sequence is not
compared, as the two keyspaces may have parted. Nothing else is excused: a server of another version judges all the rest.
The rules were found by comparing 220,000 commands with Redis 7.4.1, and hold for it; whether a difference came with 7.2
or with 7.4 was not tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orderlab.properties.conformance.grammar import Argv
from orderlab.sim.redis.replies import Reply

FOLLOWED = (7, 0)
"""The version that the kernel follows; no rule applies to it."""

KILLED_BY_FUNCTIONS = frozenset(((7, 4, 1),))
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
    VersionDifference("scripts have newproxy and os.clock, or other words for their absence", _named(rb"newproxy|\bos\.")),
    VersionDifference("BITCOUNT and BITPOS read their arguments before they look for the key", _named(rb"\bbit(count|pos)\b")),
    VersionDifference("SCAN and its kin are strict about cursors, and look at them first", _named(rb"\b[hsz]?scan\b")),
    VersionDifference("LREM refuses the smallest integer", _named(rb"\blrem\b")),
    VersionDifference("LSET on a short list answers OK to an index far beyond its end", _named(rb"\blset\b")),
    VersionDifference("small sets and short lists have the encoding listpack", _named(rb"\bobject\b")),
    VersionDifference("ZRANK and ZREVRANK take WITHSCORE", _named(rb"\bz(rev)?rank\b")),
)


def explanation(version: tuple[int, ...], steps: Sequence[Argv | int], at: int, kernel: Reply, server: Reply) -> str | None:
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
    if version[:2] == FOLLOWED or not any(not isinstance(one, int) and one[0].lower().startswith(b"eval") for one in steps):
        return None
    return DIFFERENCES[0].what


def bearable(version: tuple[int, ...], steps: tuple[Argv | int, ...]) -> tuple[Argv | int, ...]:
    """The steps without those that would kill a server of ``version``."""
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
