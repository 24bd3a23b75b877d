"""A reader of EDN, the data notation of Clojure, as far as test logs use it: all of its data, any tag, no evaluation.

Vectors and lists become tuples, sets frozen sets, maps dictionaries, keywords `Keyword`, symbols `Symbol`; a tagged
value is its value. Integers have up to 4,300 digits; N and M suffixes are accepted, and what Clojure prints beside: ratios,
hexadecimal numbers (within ``#object[…]``), ##Inf, ##-Inf, ##NaN, patterns ``#"…"`` (a string), ``#'vars`` and ``#:name{…}`` (a map).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

_TOKEN = re.compile(
    r"""(?P<space>(?:[\s,]|;[^\n]*)+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<pattern>\#"(?:[^"\\]|\\.)*")
    |(?P<open>\#?\{|[\[(])
    |(?P<close>[\])}])
    |(?P<discard>\#_)
    |(?P<tag>\#[A-Za-z][\w.*+!?<>=/-]*|\#'|\#::?[\w.*+!?<>=-]*(?=\s*\{))
    |(?P<character>\\(?:newline|return|space|tab|u[0-9a-fA-F]{4}|.))
    |(?P<symbolic>\#\#-?(?:Inf|NaN))
    |(?P<ratio>[+-]?\d+/\d+(?![^\s,;"\[\](){}]))
    |(?P<float>[+-]?\d+(?:\.\d*(?:[eE][+-]?\d+)?|[eE][+-]?\d+)M?(?![^\s,;"\[\](){}]))
    |(?P<hexadecimal>[+-]?0[xX][0-9a-fA-F]+N?(?![^\s,;"\[\](){}]))
    |(?P<integer>[+-]?\d+[NM]?(?![^\s,;"\[\](){}]))
    |(?P<keyword>:[^\s,;"\[\](){}\\]+)
    |(?P<symbol>[^\s,;"\[\](){}\\#\d][^\s,;"\[\](){}\\]*)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SYMBOLIC = {name: float(name) for name in ("NaN", "Inf", "-Inf")}  # one object each: a NaN is the value that was written
_CONSTANTS = {"nil": None, "true": True, "false": False}
_CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t"}
_DIGITS_MAX = 4300
"""Of an integer: Python reads no more, as the time that it takes grows with their square."""

class EdnError(ValueError):
    """The text is not EDN. `offset` is where."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class Keyword(str):
    """A keyword, without its colon."""

    def __repr__(self) -> str:
        return f":{self}"


class Symbol(str):
    """A symbol."""


class _Open:
    """A collection that is being read; `discards` counts the values to come that do not count."""

    def __init__(self, opener: str, offset: int) -> None:
        self.opener, self.offset = opener, offset
        self.items: list[Any] = []
        self.discards = 0


def read_values(text: str, flat: bool = False) -> Iterator[tuple[int, Any]]:
    """(offset, value) of each value at the top level, as they are read. Raises EdnError.

    flat: of a vector or list at the top level give the items instead.
    """
    stack = [_Open("", 0)]
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise EdnError(f"cannot read {text[position : position + 20]!r}", position)
        kind, token, offset = found.lastgroup, found.group(), position
        position = found.end()
        if kind in ("space", "tag"):
            continue
        if kind == "discard":
            stack[-1].discards += 1
            continue
        if kind == "open":
            stack.append(_Open(token, offset))
            continue
        if kind == "close":
            if len(stack) == 1 or _CLOSES[stack[-1].opener] != token:
                raise EdnError(f"{token!r} closes nothing that is open", offset)
            done = stack.pop()
            value, offset = _collection(done), done.offset
            if flat and len(stack) == 1 and done.opener in "[(":
                continue  # its items have been yielded
        else:
            assert kind is not None
            value = _atom(kind, token, offset)
        if stack[-1].discards:
            stack[-1].discards -= 1
        elif len(stack) == 1 or (flat and len(stack) == 2 and stack[1].opener in "[("):
            yield offset, value
        else:
            stack[-1].items.append(value)
    if len(stack) > 1:
        raise EdnError(f"{stack[-1].opener!r} is not closed", stack[-1].offset)


def _collection(done: _Open) -> Any:
    if done.opener == "{":
        if len(done.items) % 2:
            raise EdnError("a map has a key without a value", done.offset)
        return dict(zip(map(_key, done.items[::2]), done.items[1::2], strict=True))
    if done.opener == "#{":
        return frozenset(map(_key, done.items))
    return tuple(done.items)


def _key(value: Any) -> Any:
    """A value as a member of a set or a key; a map there becomes the tuple of its pairs."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _key(item)) for key, item in value.items()), key=repr))
    return tuple(map(_key, value)) if isinstance(value, tuple) else value


def _atom(kind: str, token: str, offset: int) -> Any:
    if kind == "string":
        return _ESCAPE.sub(lambda found: _unescaped(found[1], offset), token[1:-1])
    if kind == "pattern":
        return token[2:-1]
    if kind in ("integer", "ratio") and len(token) > _DIGITS_MAX:
        raise EdnError(f"a number of {len(token)} digits; {_DIGITS_MAX} are read", offset)
    if kind == "integer":
        return int(token.rstrip("NM"))
    if kind == "hexadecimal":
        return int(token.rstrip("N"), 16)
    if kind == "ratio":
        return _ratio(token, offset)
    if kind == "symbolic":
        return _SYMBOLIC[token.lstrip("#")]
    if kind == "float":
        return float(token.rstrip("M"))
    if kind == "keyword":
        return Keyword(token[1:])
    if kind == "character":
        name = token[1:]
        return chr(int(name[1:], 16)) if len(name) == 5 and name[0] == "u" else _CHARACTERS.get(name, name)
    return _CONSTANTS[token] if token in _CONSTANTS else Symbol(token)


def _ratio(token: str, offset: int) -> Fraction | int:
    """A ratio; an integer where it is one, as Clojure reads it."""
    above, below = map(int, token.split("/"))
    if below == 0:
        raise EdnError(f"{token} divides by zero", offset)
    ratio = Fraction(above, below)
    return int(ratio) if ratio.denominator == 1 else ratio


def _unescaped(escape: str, offset: int) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPES:
        raise EdnError(f"unknown escape \\{escape} in a string", offset)
    return _ESCAPES[escape]
