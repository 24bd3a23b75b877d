"""Numbers as the server reads and writes them: 64-bit integers and doubles."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

INTEGER_MAX: Final = (1 << 63) - 1
INTEGER_MIN = -(1 << 63)

NUMBER = re.compile(
    rb"(?P<sign>[+-]?)"
    rb"(?:0[xX](?P<hex>[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP](?P<power>[+-]?[0-9]+))?"
    rb"|(?P<digits>[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?"
    rb"|(?P<infinity>[iI][nN][fF](?:[iI][nN][iI][tT][yY])?))"
)
"""All that C's strtod takes whole, but for NaN, which the server refuses everywhere."""


def parse_integer(text: bytes) -> int | None:
    """The signed 64-bit integer that ``text`` spells in its one canonical form, or None (``string2ll``)."""
    if text.isdigit():
        if len(text) < 19:
            return int(text) if text[0] != 48 or len(text) == 1 else None
    elif not (text[:1] == b"-" and text[1:].isdigit() and text[1] != 48):
        return None
    if len(text) > 20 or text[0] == 48:
        return None
    value = int(text)
    return value if INTEGER_MIN <= value <= INTEGER_MAX else None


def strtod(text: bytes) -> tuple[float, bool] | None:
    """What C's strtod makes of the whole of ``text``: the value, and whether it was out of range (ERANGE with an
    infinite or a zero result). None if it would leave a rest, take nothing, or give NaN."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    if match["infinity"] is not None:
        return (-math.inf if match["sign"] == b"-" else math.inf), False
    if match["hex"] is not None:
        try:
            value = float.fromhex(text.decode())
        except OverflowError:
            return (-math.inf if match["sign"] == b"-" else math.inf), True
        return value, value == 0.0 and match["hex"].strip(b"0.") != b""
    value = float(text)
    return value, math.isinf(value) or (value == 0.0 and match["digits"].strip(b"0.") != b"")


def parse_double(text: bytes) -> float | None:
    """The double that ``text`` spells, or None where the server says "not a valid float" (``getDoubleFromObject``)."""
    if len(text) < 300 and (text.isdigit() or text.replace(b".", b"", 1).isdigit()):
        return float(text)  # the common forms, too short to be out of range
    read = strtod(text)
    return None if read is None or read[1] else read[0]


def shortest_text(value: float) -> bytes:
    """A double as Redis 7.2 and later spell it: by as few digits as tell it from others (``d2string``, which writes
    them as ``fpconv_dtoa`` does)."""
    if value != value or math.isinf(value):
        return b"%.17g" % value
    if abs(value) <= _INTEGRAL_MAX and value == (whole := int(value)):
        return b"%d" % whole if whole or math.copysign(1.0, value) > 0 else b"-0"
    _, parts, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits, sign = bytes(48 + part for part in parts), b"-" if value < 0 else b""
    count, scale = len(digits), abs(exponent + len(digits) - 1)
    if exponent >= 0 and scale < count + 7:
        return sign + digits + b"0" * exponent
    if exponent < 0 and (exponent > -7 or scale < 4):
        point = count + exponent
        if point <= 0:
            return sign + b"0." + b"0" * -point + digits
        return sign + digits[:point] + b"." + digits[point:]
    fraction = b"." + digits[1:] if count > 1 else b""
    return sign + digits[:1] + fraction + (b"e-%d" if exponent + count - 1 < 0 else b"e+%d") % scale


_INTEGRAL_MAX: Final = float(1 << 62)


def double_text(value: float) -> bytes:
    """A double as replies spell it under RESP2: 17 significant digits, ``inf``, ``-inf``, ``-0``."""
    if -1e15 < value < 1e15 and value == (whole := int(value)) and (whole or math.copysign(1.0, value) > 0):
        return b"%d" % whole
    return b"%.17g" % value
