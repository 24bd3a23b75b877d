"""What commands share that walk over names: glob-style patterns, and the cursors, options and pages of the SCAN family.

Patterns have the server's corner cases (``stringmatchlen``). A pattern is cut at its stars into runs of fixed length.
The first run must stand at the start, the last at the end, and each run between is taken at its leftmost place: no
pattern, however hostile, costs more than O(len(pattern) * len(text)).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply
from orderlab.sim.redis.values.hash_order import scan_page


@lru_cache(maxsize=256)
def glob(pattern: bytes) -> Callable[[bytes], bool]:
    """A predicate on bytes: does the whole text match ``pattern``?"""
    runs, lengths = _runs(pattern)
    first, last = re.compile(runs[0], re.DOTALL), re.compile(runs[-1], re.DOTALL)
    middle = [re.compile(run, re.DOTALL) for run in runs[1:-1]]
    if len(runs) == 1:
        return lambda text: first.fullmatch(text) is not None

    def matches(text: bytes) -> bool:
        if not text or len(text) < lengths[0] + lengths[-1] or first.match(text) is None:
            return False  # the server never lets a star match an empty text
        end = len(text) - lengths[-1]
        if last.match(text, end) is None:
            return False
        at = lengths[0]
        for run in middle:
            found = run.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches


def _runs(pattern: bytes) -> tuple[list[bytes], list[int]]:
    """The regular expression of each run between stars, and the number of bytes it takes."""
    runs, lengths = [b""], [0]
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"*":
            runs.append(b"")
            lengths.append(0)
            at += 1
            continue
        if byte == b"?":
            token = b"."
            at += 1
        elif byte == b"[":
            token, at = _bracket(pattern, at + 1)
        else:
            if byte == b"\\" and at + 1 < len(pattern):
                at += 1
            token = re.escape(pattern[at : at + 1])
            at += 1
        runs[-1] += token
        lengths[-1] += 1
    return runs, lengths


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """The class that begins behind ``[`` at ``at``, and where the pattern goes on. A missing ``]`` is forgiven."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    chosen: set[int] = set()
    while at < len(pattern) and pattern[at] != 0x5D:
        if pattern[at] == 0x5C and at + 1 < len(pattern):
            at += 1
            chosen.add(pattern[at])
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            # The server compares plain (signed) chars and puts a reversed range right.
            low, high = sorted((_signed(pattern[at]), _signed(pattern[at + 2])))
            chosen.update(value & 0xFF for value in range(low, high + 1))
            at += 2
        else:
            chosen.add(pattern[at])
        at += 1
    if negated:
        chosen = set(range(256)) - chosen
    if not chosen:
        return b"(?!)", at + 1
    return b"[" + b"".join(b"\\x%02x" % value for value in sorted(chosen)) + b"]", at + 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


_CURSOR = re.compile(rb"(?:[+-]?[0-9]+)?(?=\0|\Z)")
_CURSOR_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """MATCH, COUNT and TYPE. ``matches`` is None when every member does."""

    count: int = 10
    matches: Callable[[bytes], bool] | None = None
    type_name: bytes | None = None


def parse_cursor(argument: bytes, is_strict: bool) -> int:
    """An unsigned 64-bit cursor; like the server's strtoul it takes a sign, wraps a negative one and allows nothing;
    not so where it ``is_strict`` (from Redis 7.2 on)."""
    if is_strict and not argument.isdigit():
        raise ErrorReply(b"ERR invalid cursor")
    digits = _CURSOR.match(argument)
    if digits is None or len(significant := digits[0].lstrip(b"+-").lstrip(b"0")) > 20:
        raise ErrorReply(b"ERR invalid cursor")
    value = int(significant or b"0")
    if value > _CURSOR_MAX:
        raise ErrorReply(b"ERR invalid cursor")
    return -value & _CURSOR_MAX if digits[0][:1] == b"-" else value


def parse_options(argv: Sequence[bytes], start: int, with_type: bool = False) -> ScanOptions:
    """The options from ``argv[start]`` on; TYPE belongs to SCAN alone."""
    count, matches, type_name = 10, None, None
    at = start
    while at < len(argv):
        if at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        word, argument = option(argv[at]), argv[at + 1]
        if word == b"COUNT":
            count = integer(argument)
            if count < 1:
                raise ErrorReply(SYNTAX_ERROR)
        elif word == b"MATCH":
            matches = glob(argument) if argument != b"*" else None
        elif word == b"TYPE" and with_type:
            type_name = argument
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 2
    return ScanOptions(count, matches, type_name)


def page_of(order: list[bytes], small: bool, cursor: int, options: ScanOptions) -> tuple[bytes, list[bytes]]:
    """The next cursor and the chosen members of one page. A small encoding comes whole, whatever the cursor."""
    if small:
        following, members = 0, order
    else:
        following, members = scan_page(order, cursor, options.count)
    if options.matches is not None:
        members = list(filter(options.matches, members))
    return b"%d" % following, members
