"""Glob-style patterns of KEYS, the SCAN family and CONFIG GET, with the server's corner cases (``stringmatchlen``).

A pattern is cut at its stars into runs of fixed length. The first run must stand at the start, the last at the end,
and each run between is taken at its leftmost place: no pattern, however hostile, costs more than
O(len(pattern) * len(text)).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache


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
