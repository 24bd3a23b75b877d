"""How commands read their arguments: option words and numbers, with the server's error texts."""

from __future__ import annotations

import math
from fractions import Fraction

from orderlab.sim.redis.long_doubles import add_long_doubles, parse_long_double
from orderlab.sim.redis.numbers import INTEGER_MAX, parse_double, parse_integer
from orderlab.sim.redis.replies import NOT_A_FLOAT, NOT_AN_INTEGER, ErrorReply

SMALL_INTEGERS = {b"%d" % value: value for value in range(-100, 1000)}
"""The integers that commands mostly get, read in one look-up."""

MUST_BE_POSITIVE = b"ERR value is out of range, must be positive"


def option(argument: bytes) -> bytes:
    """An option word in upper case. The server compares C strings, so that a NUL byte ends the word."""
    word = argument.upper()
    return word if b"\0" not in word else word[: word.index(b"\0")]


def integer(argument: bytes, message: bytes = NOT_AN_INTEGER) -> int:
    """A signed 64-bit integer, else the error ``message``."""
    value = SMALL_INTEGERS.get(argument)
    if value is None:
        value = parse_integer(argument)
    if value is None:
        raise ErrorReply(message)
    return value


def integer_between(argument: bytes, low: int, high: int, message: bytes | None = None) -> int:
    """An integer in ``low..high``. ``message`` replaces both of the server's own error texts."""
    value = parse_integer(argument)
    if value is None:
        raise ErrorReply(message or NOT_AN_INTEGER)
    if not low <= value <= high:
        raise ErrorReply(message or b"ERR value is out of range, value must between %d and %d" % (low, high))
    return value


def natural(argument: bytes, message: bytes = MUST_BE_POSITIVE) -> int:
    """An integer from 0 on."""
    return integer_between(argument, 0, INTEGER_MAX, message)


def double(argument: bytes, message: bytes = NOT_A_FLOAT) -> float:
    """A double that is not NaN, else the error ``message``."""
    value = parse_double(argument)
    if value is None:
        raise ErrorReply(message)
    return value


def timeout_ms_of(argument: bytes, now_ms: int, in_seconds: bool = True) -> int:
    """The deadline of a blocking command whose timeout counts from ``now_ms``: the last moment of the wait, 0 for a
    wait without end. Raises the server's errors."""
    if in_seconds:
        seconds = parse_long_double(argument)
        if seconds is None:
            raise ErrorReply(b"ERR timeout is not a float or out of range")
        exact = add_long_doubles(seconds * 1000, Fraction(0))
        milliseconds = -1 if exact is None else math.ceil(exact)
    else:
        milliseconds = integer(argument, b"ERR timeout is not an integer or out of range")
    if not 0 <= milliseconds <= INTEGER_MAX:  # a C cast wraps: "negative"
        raise ErrorReply(b"ERR timeout is negative")
    return now_ms + milliseconds if milliseconds else 0
