"""Glob patterns: against a plain recursive matcher, and against a server."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.scanning import glob
from orderlab.sim.redis.wire import Connection

PIECES = [
    b"a",
    b"b",
    b"ab",
    b"*",
    b"**",
    b"?",
    b"\xff",
    b"\\*",
    b"\\",
    b"[",
    b"]",
    b"^",
    b"-",
    b"[ab]",
    b"[^a]",
    b"[a-c]",
]
TEXTS = [
    b"",
    b"a",
    b"b",
    b"ab",
    b"abb",
    b"a*",
    b"]",
    b"^",
    b"-",
    b"\\",
    b"\xff",
    b"a\xff",
    b"\x80a",
    b"aab",
    b"[a]",
    b"abab",
]

patterns = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)


def matches_plainly(pattern: bytes, text: bytes) -> bool:
    """Without brackets, by plain recursion."""
    if not pattern:
        return not text
    if pattern[:1] == b"*":
        return any(matches_plainly(pattern[1:], text[at:]) for at in range(len(text) + 1))
    escaped = pattern[:1] == b"\\" and len(pattern) > 1
    first, rest = (pattern[1:2], pattern[2:]) if escaped else (pattern[:1], pattern[1:])
    fits = (first == b"?" and not escaped) or first == text[:1]
    return bool(text) and fits and matches_plainly(rest, text[1:])


@given(patterns.filter(lambda pattern: b"[" not in pattern), st.sampled_from(TEXTS[1:]))
def test_against_plain_recursion(pattern: bytes, text: bytes) -> None:
    assert glob(pattern)(text) == matches_plainly(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (b"h[ae]llo", b"hallo", True), (b"h[ae]llo", b"hillo", False), (b"h[^e]llo", b"hallo", True),
        (b"h[^e]llo", b"hello", False), (b"h[a-c]llo", b"hbllo", True), (b"h[c-a]llo", b"hbllo", True),
        (b"h[a", b"ha", True), (b"h[", b"h[", False), (b"[]]", b"]", False), (b"[\\]]", b"]", True),
        (b"[a-\xff]", b"b", False), (b"[a-\xff]", b"A", True), (b"*", b"", False), (b"", b"", True),
        (b"a\n*", b"a\nb", True),
    ],
)  # fmt: skip
def test_corner_cases(pattern: bytes, text: bytes, expected: bool) -> None:
    assert glob(pattern)(text) is expected


def test_a_hostile_pattern_ends() -> None:
    assert not glob(b"a*" * 2000 + b"c")(b"a" * 5000 + b"b")
    assert glob(b"*a" * 2000)(b"a" * 5000)


@pytest.mark.server
def test_random_patterns_agree_with_the_server() -> None:
    draw = random.Random(3)
    chosen = [b"".join(draw.choice(PIECES) for _ in range(draw.randint(0, 6))) for _ in range(3000)]
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        connection.demand(b"HSET", b"h", *(part for text in TEXTS for part in (text, b"1")))
        replies = connection.pipeline([(b"HSCAN", b"h", b"0", b"MATCH", pattern) for pattern in chosen])
        connection.close()
    for pattern, (_, flat) in zip(chosen, replies, strict=True):
        matches = glob(pattern)
        expected = [text for text in TEXTS if matches(text) or pattern == b"*"]
        assert flat[::2] == expected, pattern
