"""Numbers and texts of Lua 5.1: how they are read and written, and what is calculated with doubles."""

from __future__ import annotations

import math
import re
from typing import Any

_ESCAPE = re.compile(rb"\\(\r\n|\d{1,3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NUMBER = re.compile(rb"\s*(-?)(?:(0[xX][0-9a-fA-F]+)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))\s*")


class NotFollowed(Exception):
    """The script does what this interpreter does not do."""


def unescaped(text: bytes) -> bytes:
    """The bytes that a short string stands for."""

    def byte(match: re.Match[bytes]) -> bytes:
        what = match[1]
        return bytes((int(what) % 256,)) if what.isdigit() else _LETTERS.get(what, what)

    return _ESCAPE.sub(byte, text) if b"\\" in text else text


def number_of(value: Any) -> float | None:
    """The number that Lua takes a value for."""
    if isinstance(value, float):
        return value
    if not isinstance(value, bytes):
        return None
    match = _NUMBER.fullmatch(value)
    if match is None:
        return None
    number = float(int(match[2], 16)) if match[2] else float(match[3])
    return -number if match[1] else number


def text_of(number: float) -> bytes:
    """A number as ``tostring`` writes it."""
    if number == math.floor(number) and abs(number) < 1e14:
        return b"%d" % int(number) if number or math.copysign(1, number) > 0 else b"-0"
    return b"%.14g" % number


def calculated(operator: bytes, a: float, b: float) -> float:
    """The result of an operator. Raises NotFollowed for an unknown one."""
    try:
        if operator == b"+":
            return a + b
        if operator == b"-":
            return a - b
        if operator == b"*":
            return a * b
        if operator == b"/":
            return a / b
        if operator == b"%":
            return a - math.floor(a / b) * b
        if operator == b"^":
            return math.pow(a, b)
    except (ZeroDivisionError, OverflowError, ValueError):
        return math.nan if not a or operator == b"%" else math.copysign(math.inf, a)
    raise NotFollowed(f"the operator {operator.decode()}")
