"""What MQTT allows in client identifiers, topics and properties (MQTT 5.0, 1.5.4, 3.1.3.1, 4.7), and what it does not.

Each shrinks to what a person would write first: the client ``c``, the topic ``t``, no property at all.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from orderlab.properties.contracts.session.strategies import HOSTILE_CLIENTS

UTF8_BYTES_MAX = 65535
"""Of any string on the wire (1.5.4)."""
_LETTERS = "cabdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TEXT = st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs"])


def _spelled(letters: str, **sizes: int) -> st.SearchStrategy[str]:
    """Text of these letters; it shrinks to the first of them, not to the one with the smallest code."""
    return st.lists(st.sampled_from(letters), **sizes).map("".join)  # type: ignore[arg-type]


ordinary_clients = _spelled(_LETTERS, min_size=1, max_size=23).map(str.encode)
"""What every server must accept (MQTT-3.1.3-5)."""
allowed_clients = st.one_of(ordinary_clients, st.text(_TEXT, max_size=40).map(str.encode))
"""Any UTF-8 string without U+0000; the empty one asks the server for a name."""
hostile_clients = st.one_of(
    _spelled("}{c:_%", max_size=8).map(str.encode),
    st.sampled_from(HOSTILE_CLIENTS),
    st.binary(max_size=12),
)
"""What breaks hash tags, templates, parsers and buffers."""
clients = st.one_of(ordinary_clients, allowed_clients, hostile_clients)

_level = st.one_of(st.just("t"), _spelled(_LETTERS, min_size=1, max_size=6), st.text(_TEXT, max_size=6)).map(
    lambda text: text.replace("/", "").replace("+", "").replace("#", "")
)
topics = st.lists(_level, min_size=1, max_size=5).map("/".join).filter(bool).map(str.encode)
"""Topic names: at least one character, no wildcard (MQTT-3.3.2-2, -4.7.3-1). Levels may be empty."""
hostile_topics = st.sampled_from([b"", b"+", b"#", b"a/#/b", b"$SYS/x", b"\x00", b"\xff\xfe", b"/" * 100, b"t" * 65536])


@st.composite
def filters(draw: st.DrawFn) -> bytes:
    """Topic filters: levels, ``+`` for one, ``#`` for the rest (4.7.1)."""
    levels = draw(st.lists(st.one_of(_level, st.just("+")), min_size=1, max_size=5))
    if draw(st.booleans()):
        levels = [*levels[:-1], "#"]
    return "/".join(levels).encode() or b"+"


@st.composite
def topic_matched_by(draw: st.DrawFn, pattern: bytes) -> bytes:
    """A topic that a filter matches."""
    levels: list[str] = []
    for level in pattern.decode().split("/"):
        if level == "#":
            levels += draw(st.lists(_level, min_size=0 if any(levels) else 1, max_size=3))
            break
        levels.append(draw(_level) if level == "+" else level)
    topic = "/".join(levels)
    return (topic or "t").encode()


class Properties(NamedTuple):
    """Of a PUBLISH (3.3.2.3): None where absent."""

    expiry_s: int | None = None
    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()


_short = st.text(_TEXT, max_size=12)
properties = st.builds(
    Properties,
    expiry_s=st.one_of(st.none(), st.integers(0, 60), st.sampled_from([(1 << 31) - 1, 1 << 31, (1 << 32) - 1])),
    payload_format=st.one_of(st.none(), st.integers(0, 1)),
    content_type=st.one_of(st.none(), _short),
    response_topic=st.one_of(st.none(), topics.map(bytes.decode)),
    correlation=st.one_of(st.none(), st.binary(max_size=12)),
    user=st.lists(st.tuples(_short, _short), max_size=3).map(tuple),
)
"""The same name may come more than once among the user properties (MQTT-3.3.2-17)."""

payloads = st.one_of(st.just(b""), st.binary(max_size=64), st.sampled_from([b"same", b"P" * 300, b'{"json": "\xff"}']))


class Numbered(NamedTuple):
    """A counter and how many steps it takes."""

    start: int
    steps: int


counters_near_the_wrap = st.builds(
    Numbered, start=st.integers(-4, 4).map(lambda offset: (65535 + offset - 1) % 65535 + 1), steps=st.integers(0, 12)
)
"""A packet identifier within four of the wrap, 1..65535, and a few saves."""


@st.composite
def clock_jumps(draw: st.DrawFn, deadlines_ms: tuple[int, ...], now_ms: int = 0) -> tuple[int, ...]:
    """Moments in order, each at a deadline of ``deadlines_ms``, 1 ms before or 1 ms after, none before ``now_ms``."""
    chosen = (
        draw(st.lists(st.sampled_from(deadlines_ms), max_size=len(deadlines_ms), unique=True)) if deadlines_ms else []
    )
    moments = [deadline + draw(st.sampled_from([0, -1, 1])) for deadline in chosen]
    return tuple(sorted(moment for moment in moments if moment >= now_ms))
