"""A small grammar for command lines, so that every form of every command is one readable line of a table, and the kinds
of argument that it names, each with its usual, odd and hostile values.

    SET string_key value [EX seconds|PX milliseconds] [NX|XX] [GET]

Upper case is literal; lower case names a kind of argument; ``[a|b]`` is one of the alternatives or nothing, ``{a|b}``
one of them; ``x...`` repeats, ``(x y)...`` repeats a group; ``#key...`` is a count followed by as many keys; ``;``
separates the commands of one step, in which ``@1`` is the first argument of the first command. Options that stand
side by side come in any order.

Times come in two sorts. *Relative* ones (EX, EXPIRE) are far apart from each other, so that the moment at which a
command happens to run never decides which deadline is later. *Absolute* ones (PXAT, EXPIREAT) lie in the distant past
or future.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Argv = tuple[bytes, ...]
REPEAT_MAX = 4
SAME_KEY = b"@1"
"""The back-reference as a token; told apart from a drawn argument by identity."""


class Draw(Protocol):
    """A source of choices: seeded for speed, Hypothesis' own for shrinking."""

    serial: int
    """How many distinct numbers have been handed out in this sequence."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def randrange(self, stop: int) -> int:
        """Uniform in 0..stop-1."""
        ...


ArgumentKind = Callable[[Draw], bytes]
Part = Callable[[list[bytes], Draw], None]
"""Appends what it generates."""

_TOKEN = re.compile(r"\.\.\.|[\[\]{}()|;#]|[^\s\[\]{}()|;#.]+(?:\.\d+)?")


class Template:
    """The forms of one step, ready to be drawn from."""

    def __init__(self, text: str, kinds: Mapping[str, ArgumentKind]) -> None:
        """Raises ValueError when ``text`` is not of the grammar, KeyError when it names an unknown kind."""
        self.text = text
        self._kinds = kinds
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._commands = [self._parse_sequence()]
        while self._peek() == ";":
            self._at += 1
            self._commands.append(self._parse_sequence())
        if self._peek() is not None:
            raise ValueError(f"{text!r}: unexpected {self._peek()!r}")
        self.names = tuple(command.split()[0].lower() for command in text.split(";"))

    def generate(self, draw: Draw) -> list[Argv]:
        """The commands of one step."""
        step: list[Argv] = []
        for command in self._commands:
            out: list[bytes] = []
            command(out, draw)
            step.append(tuple(step[0][1] if word is SAME_KEY else word for word in out) if step else tuple(out))
        return step

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _parse_sequence(self) -> Part:
        """A run of parts, up to a closing bracket, a bar or a semicolon."""
        parts: list[Part] = []
        options: list[Part] = []  # the current run of optional parts
        while (token := self._peek()) is not None and token not in "]})|;":
            part = self._parse_part()
            if token == "[":
                options.append(part)
                continue
            if options:
                parts.append(_any_order(options))
                options = []
            parts.append(part)
        if options:
            parts.append(_any_order(options))
        return _in_order(parts)

    def _parse_part(self) -> Part:
        token = self._tokens[self._at]
        self._at += 1
        if token == "[":
            part = _maybe(_one_of(self._parse_alternatives("]")))
        elif token == "{":
            part = _one_of(self._parse_alternatives("}"))
        elif token == "(":
            part = self._parse_alternatives(")")[0]
        elif token == "#":
            counted = self._parse_part()
            return _counted(counted)
        elif token.islower() or token.replace("_", "").islower():
            part = _argument(self._kinds[token])
        else:
            part = _literal(SAME_KEY if token == "@1" else token.encode())
        if self._peek() == "...":
            self._at += 1
            part = _repeated(part)
        return part

    def _parse_alternatives(self, closing: str) -> list[Part]:
        alternatives = [self._parse_sequence()]
        while self._peek() == "|":
            self._at += 1
            alternatives.append(self._parse_sequence())
        if self._peek() != closing:
            raise ValueError(f"{self.text!r}: missing {closing!r}")
        self._at += 1
        return alternatives


def _in_order(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]

    def generate(out: list[bytes], draw: Draw) -> None:
        for part in parts:
            part(out, draw)

    return generate


def _any_order(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]

    def generate(out: list[bytes], draw: Draw) -> None:
        waiting = list(parts)
        while waiting:
            waiting.pop(draw.randrange(len(waiting)))(out, draw)

    return generate


def _one_of(parts: list[Part]) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        parts[draw.randrange(len(parts))](out, draw)

    return generate


def _maybe(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        if draw.random() < 0.35:
            part(out, draw)

    return generate


def _repeated(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        for _ in range(1 + draw.randrange(REPEAT_MAX)):
            part(out, draw)

    return generate


def _counted(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        at = len(out)
        part(out, draw)
        out.insert(at, b"%d" % (len(out) - at))

    return generate


def _argument(kind: ArgumentKind) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        out.append(kind(draw))

    return generate


def _literal(word: bytes) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        out.append(word)

    return generate


STRINGS = (b"s1", b"s2", b"s3", b"\x00\xff\r\n", b"")
HASHES = (b"h1", b"h2", b"h\xc3\xa9")
LISTS = (b"l1", b"l2", b"l3")
SETS = (b"t1", b"t2", b"t3")
ZSETS = (b"z1", b"z2", b"z3")
EQUAL_SCORES = (b"y1", b"y2")
"""Sorted sets whose scores are all 0; no other kind of key gives their names."""
STREAMS = (b"x1", b"x2")
LATE_STREAMS = (b"w1", b"w2")
"""Streams whose last identifier lies in the far future, so that the next one is known; no other kind of key gives their
names."""
PLACES = (b"g1", b"g2")
LOGLOGS = (b"p1", b"p2")
KEYS = STRINGS + HASHES + LISTS + SETS + ZSETS + STREAMS
MEMBERS = (b"a", b"b", b"c", b"d", b"e", b"1", b"2", b"3", b"-7", b"100", b"", b"\xff\x00", b"aa", b"ab", b"B")
TEXTS = (*MEMBERS, b"hello world", b"3.0e3", b"9223372036854775807", b" 1", b"0", b"x" * 70)
SMALL_INTEGERS = (b"0", b"1", b"2", b"3", b"-1", b"-2", b"5", b"10")
EDGES = (b"-9223372036854775808", b"9223372036854775807", b"9223372036854775808")
INTEGERS = (*SMALL_INTEGERS, *EDGES, b"01", b"1.5", b"x")
FLOATS = (b"0", b"1", b"-1", b"1.5", b"3.14159", b"2.5e-3", b"1e10", b"0.1", b"17", b"-0.0", b"1e17", b"0x1p3")
ODD_FLOATS = (b"inf", b"-inf", b"+inf", b"nan", b"1e400", b"x", b"", b" 1", b"1 ", b"1e-400", b"5e-324")
SCORE_BOUNDS = (b"-inf", b"+inf", b"0", b"(0", b"1", b"(1", b"1.5", b"(1.5", b"-1", b"10", b"(inf", b"x", b"(")
LEX_BOUNDS = (b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[", b"(", b"[aa", b"a", b"")
PATTERNS = (b"*", b"?", b"s*", b"[hl]*", b"*1", b"[^s]?", b"h[1-2]", b"\\*", b"*\xff*", b"[a", b"a*", b"\x00*")
ODD_IDS = (
    *(
        b"0-0",
        b"0",
        b"0-1",
        b"1",
        b"1-1",
        b"-",
        b"+",
        b"$",
        b">",
        b"x",
        b"",
        b"1-",
        b"-1",
        b"1-x",
        b"01-1",
        b" 1-1",
        b"+1-1",
        b"1--1",
        b"1000000000000--01",
        b"1-1-1",
        b"0-*",
    ),
    *(
        b"18446744073709551615-18446744073709551615",
        b"18446744073709551615-1",
        b"18446744073709551616-1",
        b"1-1\x00x",
        b"1-*",
        b"1" * 130,
    ),
)
WORDS = tuple(b"XX NX GT LT CH INCR GET EX PX LIMIT WITHSCORES KEEPTTL ASC REV".split())
JUNK = (*WORDS, b"", b"x", b"-1", b"0", b"(", b"\x00", b"nosuch", b"1e5", b"s1", b"h1", b"z1", b"[a")

TIME_STEP_S = 1000
FAR_S = 4_000_000_000
"""Absolute deadlines lie beyond it (the year 2096); relative ones stay below."""


def choice(values: Sequence[bytes]) -> ArgumentKind:
    """One of ``values``."""
    size = len(values)
    return lambda draw: values[draw.randrange(size)]


def mostly(usual: Sequence[bytes], odd: Sequence[bytes], odd_share: float = 0.08) -> ArgumentKind:
    """One of ``usual``; now and then one of ``odd``."""
    pick_usual, pick_odd = choice(usual), choice(odd)
    return lambda draw: pick_odd(draw) if draw.random() < odd_share else pick_usual(draw)


def binary(draw: Draw) -> bytes:
    """Some bytes, mostly few."""
    size = draw.randrange(12) if draw.random() < 0.95 else draw.randrange(200)
    return bytes(draw.randrange(256) for _ in range(size))


def value(draw: Draw) -> bytes:
    """A value or element: small texts and numbers, sometimes any bytes."""
    return binary(draw) if draw.random() < 0.05 else TEXTS[draw.randrange(len(TEXTS))]


def relative_seconds(draw: Draw) -> bytes:
    """A time to live in seconds, different from every other one drawn; or one that is refused or passed at once."""
    if draw.random() < 0.12:
        odd = (b"0", b"-1", b"-9223372036854775808", b"9223372036854775807", b"9223372036854776", b"x", b"1.5", b"")
        return odd[draw.randrange(len(odd))]
    draw.serial += 1
    return b"%d" % ((1000 * (1 + draw.randrange(1000)) + draw.serial % 1000) * TIME_STEP_S)


def relative_milliseconds(draw: Draw) -> bytes:
    """The same in milliseconds."""
    seconds = relative_seconds(draw)
    return seconds + b"000" if len(seconds) < 13 and seconds.isdigit() and seconds != b"0" else seconds


def absolute_seconds(draw: Draw) -> bytes:
    """A moment in the distant past or future, Unix time in seconds."""
    if draw.random() < 0.15:
        odd = (b"0", b"1", b"-1", b"1000000", b"9223372036854775807", b"x", b"")
        return odd[draw.randrange(len(odd))]
    return b"%d" % (FAR_S + draw.randrange(100_000))


def absolute_milliseconds(draw: Draw) -> bytes:
    """The same in milliseconds."""
    seconds = absolute_seconds(draw)
    return b"%b%03d" % (seconds, draw.randrange(1000)) if len(seconds) == 10 else seconds


def new_id(draw: Draw) -> bytes:
    """An identifier beyond every one that was drawn before; now and then one that is not."""
    if draw.random() < 0.1:
        return ODD_IDS[draw.randrange(len(ODD_IDS))]
    draw.serial += 1
    return b"%d-%d" % (1 + draw.serial // 3, draw.serial % 3)


def half_new_id(draw: Draw) -> bytes:
    """A time alone, whose sequence the server chooses."""
    draw.serial += draw.randrange(3)
    return b"%d-*" % (1 + draw.serial // 3)


def old_id(draw: Draw) -> bytes:
    """An identifier that was perhaps drawn before."""
    if draw.random() < 0.05:
        return ODD_IDS[draw.randrange(len(ODD_IDS))]
    if draw.random() < 0.6:
        serial = max(0, draw.serial - draw.randrange(7))
        return b"%d-%d" % (1 + serial // 3, serial % 3)
    ms = max(1, 1 + draw.serial // 3 - draw.randrange(12))
    return b"%d" % ms if draw.random() < 0.15 else b"%d-%d" % (ms, draw.randrange(3))


def id_bound(draw: Draw) -> bytes:
    """One end of a range of identifiers."""
    if draw.random() < 0.3:
        return (b"-", b"+", b"(-", b"(", b"(0", b"(18446744073709551615-18446744073709551615", b"0-0", b"$")[
            draw.randrange(8)
        ]
    return old_id(draw) if draw.random() < 0.8 else b"(" + old_id(draw)


def key_of(own: Sequence[bytes]) -> ArgumentKind:
    """A key that usually holds the right type."""
    return mostly(own, KEYS, 0.08)


def element(draw: Draw) -> bytes:
    """Something to be counted: seldom twice the same."""
    return b"%d" % draw.randrange(100_000)


KINDS: dict[str, ArgumentKind] = {
    "key": choice(KEYS),
    "string_key": key_of(STRINGS),
    "hash_key": key_of(HASHES),
    "list_key": key_of(LISTS),
    "set_key": key_of(SETS),
    "zset_key": key_of(ZSETS),
    "stream_key": key_of(STREAMS),
    "late_key": mostly(LATE_STREAMS, STRINGS, 0.02),
    "new_id": new_id,
    "half_new_id": half_new_id,
    "old_id": old_id,
    "id_bound": id_bound,
    "group": mostly((b"g1", b"g2"), (b"", b"g\xff\r\n\x00x"), 0.03),
    "consumer": mostly((b"c1", b"c2", b"c3"), (b"", b"\x00c"), 0.03),
    "idle": mostly((b"0", b"0", b"1000000000000000"), (b"-1", b"x", b"1.5"), 0.06),
    "read": mostly((b"0", b"1", b"3", b"7", b"-1"), (b"-2", b"x"), 0.06),
    "lex_key": mostly(EQUAL_SCORES, STRINGS + LISTS),
    "value": value,
    "member": mostly(MEMBERS, TEXTS, 0.05),
    "field": mostly(MEMBERS, TEXTS, 0.05),
    "integer": mostly(SMALL_INTEGERS, INTEGERS, 0.15),
    "index": mostly(SMALL_INTEGERS, INTEGERS, 0.06),
    "count": mostly(SMALL_INTEGERS, INTEGERS, 0.04),
    "natural": mostly((b"0", b"1", b"2", b"3", b"10"), INTEGERS, 0.04),
    "offset": mostly((b"0", b"1", b"3", b"7", b"10", b"100"), (b"-1", b"x", b"536870912"), 0.06),
    "bit_offset": mostly((b"0", b"1", b"3", b"7", b"10", b"100"), (b"-1", b"x", b"4294967296", b"#2", b"#-1"), 0.06),
    "float": mostly(FLOATS, ODD_FLOATS),
    "score": mostly(FLOATS, ODD_FLOATS),
    "bits": mostly((b"u8", b"i8", b"u4", b"i5", b"u1", b"i64", b"u63"), (b"u64", b"i65", b"u0", b"x8", b"u"), 0.06),
    "bit": mostly((b"0", b"1"), (b"2", b"x", b"-1"), 0.05),
    "score_bound": mostly(SCORE_BOUNDS[:-2], SCORE_BOUNDS, 0.1),
    "lex_bound": mostly(LEX_BOUNDS[:-2], LEX_BOUNDS, 0.1),
    "pattern": choice(PATTERNS),
    "sort_pattern": choice((b"s*", b"h1->*", b"h*->a", b"#", b"*", b"constant", b"t*", b"s*->", b"")),
    "relative_s": relative_seconds,
    "relative_ms": relative_milliseconds,
    "absolute_s": absolute_seconds,
    "absolute_ms": absolute_milliseconds,
    "cursor": mostly((b"0",), (b"x", b"-1", b"18446744073709551616", b"1.5"), 0.04),
    "type": mostly((b"string", b"hash", b"list", b"set", b"zset", b"stream"), (b"STRING", b"nosuch"), 0.1),
    "database": mostly((b"0", b"0", b"1", b"2"), (b"15", b"16", b"-1", b"2147483648", b"01", b"x", b""), 0.05),
    "geo_key": key_of(PLACES + PLACES + ZSETS),
    "longitude": mostly(
        (b"13.361389", b"15.087269", b"-122.4", b"0", b"179.99", b"-180", b"180", b"0.001"), ODD_FLOATS
    ),
    "latitude": mostly((b"38.115556", b"37.502669", b"0", b"-33.9", b"85.05", b"-85.05112878", b"0.002"), ODD_FLOATS),
    "radius": mostly((b"0", b"1", b"200", b"166274", b"5000", b"1e7", b"3.5"), ODD_FLOATS),
    "unit": mostly((b"m", b"km", b"ft", b"mi", b"KM"), (b"x", b""), 0.05),
    "loglog_key": key_of(LOGLOGS),
    "element": element,
    "header": choice((b"\x00", b"\x01\x00", b"\x02", b"\x01" + bytes(11) + b"\x7f")),
    "junk": choice(JUNK),
}
