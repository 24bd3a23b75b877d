"""Filters: what a template may do to a field before it goes to a script, and a reply's column before it is a result.

In a template a filter encodes (``<payload|base64>``); in ``reply.fields`` it decodes (``"payload|base64"``).
``None``, a field without a value, passes through every filter but ``or``.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

from orderlab.sim.stores.binding.json_bytes import dump_json, load_json, to_bytes

Filter = Callable[[Any, Any], Any]
"""(value, argument or None) -> value. Raises ValueError or TypeError when the value does not fit."""


def to_text(value: Any) -> bytes:
    """``value`` as the bytes of a script argument: decimal numbers, JSON for lists and tables, empty for None.

    >>> to_text(2.0), to_text(1.5), to_text(None), to_text(True), to_text([1, b"a"])
    (b'2', b'1.5', b'', b'1', b'[1,"a"]')
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, int):
        return b"%d" % value
    if value is None:
        return b""
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= 2**53
        return b"%d" % int(value) if whole else repr(value).encode()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return dump_json(value)


def tag(value: bytes) -> bytes:
    """An injective spelling of ``value`` for use inside a hash tag: never empty, never with a brace.

    >>> tag(b"dev-7"), tag(b"}x"), tag(b"{}"), tag(b""), tag(b"50%")
    (b'dev-7', b'%7Dx', b'%7B%7D', b'%', b'50%25')
    """
    if not value:
        return b"%"  # no other value has a % without two hexadecimal digits after it
    return value.replace(b"%", b"%25").replace(b"{", b"%7B").replace(b"}", b"%7D")


def number(value: Any) -> int | float:
    """``value`` as a number; text is read as decimal. Raises ValueError."""
    if isinstance(value, (int, float)):
        return value
    text = to_text(value).decode("ascii")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _exact_quotient(value: int | float, divisor: int) -> int | float:
    quotient = value / divisor if isinstance(value, float) or value % divisor else value // divisor
    return int(quotient) if isinstance(quotient, float) and quotient.is_integer() else quotient


def _rounded(rounding: Callable[[float], int], value: Any) -> Any:
    found = number(value)
    return rounding(found) if math.isfinite(found) else found


def _length(value: Any, _: Any) -> int:
    return len(value)


def _at(value: Any, position: Any) -> Any:
    """Item ``position`` of a list, counted from the end when negative; None beyond its ends or without a list."""
    index = int(position)
    if not isinstance(value, (list, tuple)):
        return None
    return value[index] if -len(value) <= index < len(value) else None


def _packet_id(value: Any, modulus: Any) -> int:
    return (int(number(value)) - 1) % int(modulus) + 1


def _none(value: Any, meaning: Any) -> Any:
    """No value where it is the one that stands for none (``PTTL`` says -1)."""
    try:
        is_it = number(value) == number(meaning)
    except ValueError:
        is_it = to_text(value) == to_text(meaning)
    return None if is_it else value


ENCODERS: dict[str, Filter] = {
    "tag": lambda value, _: tag(to_text(value)),
    "base64": lambda value, _: base64.b64encode(to_text(value)),
    "hex": lambda value, _: to_text(value).hex().encode(),
    "text": lambda value, _: to_text(value),
    "json": lambda value, _: dump_json(value),
    "seconds": lambda value, _: _exact_quotient(number(value), 1000),
    "milliseconds": lambda value, _: number(value) * 1000,
    "floor": lambda value, _: _rounded(math.floor, value),
    "ceil": lambda value, _: _rounded(math.ceil, value),
    "add": lambda value, operand: number(value) + number(operand),
    "subtract": lambda value, operand: number(value) - number(operand),
    "modulo": lambda value, operand: number(value) % number(operand),
    "packet_id": _packet_id,
    "length": _length,
    "at": _at,
    "or": lambda value, other: other if value is None else value,
}
"""Filters of templates. ``seconds`` turns milliseconds into seconds, ``milliseconds`` the other way."""

DECODERS: dict[str, Filter] = {
    "base64": lambda value, _: base64.b64decode(to_text(value), validate=True),
    "hex": lambda value, _: binascii.unhexlify(to_text(value)),
    "json": lambda value, _: load_json(to_text(value)),
    "text": lambda value, _: to_bytes(value) if isinstance(value, str) else to_text(value),
    "none": _none,
    **{
        name: ENCODERS[name]
        for name in ("seconds", "milliseconds", "floor", "ceil", "add", "subtract", "modulo", "packet_id", "at")
    },
}
"""Filters of reply fields."""

TAKES_ARGUMENT = frozenset({"add", "subtract", "modulo", "packet_id", "at", "or", "none"})
"""Filters that need an argument, ``name:argument``; it is a number, a field's name, or for ``or`` any text."""
