"""The 80-bit long doubles of a server on x86-64 (INCRBYFLOAT, HINCRBYFLOAT, timeouts).

Their mantissa has 64 bits. They are computed here with exact fractions that are rounded to 64 bits after every step, so
that the digits are the same on every machine that runs the kernel.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from orderlab.sim.redis.numbers import NUMBER

LongDouble = Fraction | float
"""A finite long double as the fraction that it is exactly; an infinity as the float."""

_MANTISSA_BITS = 64
_LEAST_EXPONENT = -16445
_OVERFLOW = Fraction(1 << 16384)
_LONG_DOUBLE_TEXT_MAX = 5 * 1024 - 1
_EXPONENT_BEYOND_USE = 30_000


def _round_to_long_double(value: Fraction) -> LongDouble:
    """The long double next to ``value``, ties to even."""
    if not value:
        return value
    numerator, denominator = abs(value.numerator), value.denominator
    exponent = numerator.bit_length() - denominator.bit_length() - _MANTISSA_BITS
    if Fraction(numerator, denominator) >= _power_of_two(exponent + _MANTISSA_BITS):
        exponent += 1
    exponent = max(exponent, _LEAST_EXPONENT)
    unit = _power_of_two(exponent)
    rounded = round(value / unit) * unit
    if abs(rounded) >= _OVERFLOW:
        return math.inf if value > 0 else -math.inf
    return rounded


def _exponent(text: bytes | None) -> int:
    """A written exponent; one beyond all use is cut short, so that no text is too long to convert."""
    if text is None:
        return 0
    digits = text.lstrip(b"+-").lstrip(b"0")[:9] or b"0"
    return -int(digits) if text[:1] == b"-" else int(digits)


def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def parse_long_double(text: bytes) -> LongDouble | None:
    """The long double that ``text`` spells, or None where the server says "not a valid float" (``string2ld``)."""
    if len(text) > _LONG_DOUBLE_TEXT_MAX:
        return None
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    negative = match["sign"] == b"-"
    if match["infinity"] is not None:
        return -math.inf if negative else math.inf
    if match["hex"] is not None:
        whole, _, fraction = match["hex"].partition(b".")
        power = _exponent(match["power"]) - 4 * len(fraction)
        mantissa = Fraction(int(whole + fraction, 16))
        if mantissa and abs(power) > _EXPONENT_BEYOND_USE:
            return None
        exact = mantissa * _power_of_two(power) if mantissa else mantissa
    else:
        if not match["digits"].strip(b"0."):
            return Fraction(0)
        decimal = Decimal(match["digits"].decode())
        exponent = _exponent(match["exponent"])
        if abs(decimal.adjusted() + exponent) > _EXPONENT_BEYOND_USE:
            return None
        exact = Fraction(decimal) * (Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent))
    rounded = _round_to_long_double(exact)
    if exact and (not rounded or isinstance(rounded, float)):
        return None
    return -rounded if negative else rounded


def add_long_doubles(one: LongDouble, other: LongDouble) -> Fraction | None:
    """The sum as the processor rounds it; None if it is infinite or not a number."""
    if isinstance(one, float) or isinstance(other, float):
        return None
    total = _round_to_long_double(one + other)
    return None if isinstance(total, float) else total


def long_double_text(value: Fraction) -> bytes:
    """17 decimals without trailing zeros, never an exponent (``%.17Lf`` trimmed), as INCRBYFLOAT stores it."""
    scaled = round(value * 10**17)
    whole, fraction = divmod(abs(scaled), 10**17)
    text = format(Decimal(whole), "f")
    if fraction:
        text += "." + f"{fraction:017d}".rstrip("0")
    return (("-" if scaled < 0 else "") + text).encode()
