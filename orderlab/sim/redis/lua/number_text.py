"""Numbers as Lua's C library writes and reads them: with a point whatever the locale, and by ``%.17g`` as arguments."""

from __future__ import annotations

from _locale import LC_NUMERIC, setlocale  # what locale wraps in Python: it is asked at each run of a script
from collections.abc import Callable, Sequence
from typing import Any, Final

ZEROS_LOOKED_AT: Final = 9
"""Arguments of redis.call among which redis.lua has made sure that no zero is negative. Numbers of a greater zero, and
NaN, go back to Lua, which alone sees their sign."""


def set_point() -> str:
    """Numbers with a point for Lua: the locale that was set, for ``put_back_point``. Lua's C library follows it;
    Python leaves it alone, the program around it may not."""
    numbers = setlocale(LC_NUMERIC)
    if numbers != "C":
        setlocale(LC_NUMERIC, "C")
    return numbers


def put_back_point(numbers: str) -> None:
    """Set the locale that ``set_point`` returned."""
    if numbers != "C":
        setlocale(LC_NUMERIC, numbers)


class NotText(Exception):
    """An argument of redis.call is not a string. ``case`` says what Lua does about it."""

    def __init__(self, case: bytes) -> None:
        super().__init__()
        self.case = case


def texts(argv: Sequence[Any], spell: Callable[[float], bytes] | None = None) -> tuple[bytes, ...]:
    """Arguments with their numbers as ``%.17g`` writes them, or ``spell``. Raises NotText."""
    if len(argv) > ZEROS_LOOKED_AT and 0 in argv:
        raise NotText(b"retry")
    return tuple([one if type(one) is bytes else _text(one, spell) for one in argv])


def _text(argument: Any, spell: Callable[[float], bytes] | None) -> bytes:
    kind = type(argument)
    if kind is int and -(10**17) < argument < 10**17:
        return b"%d" % argument
    if kind is not int and kind is not float:
        raise NotText(b"error")
    if argument != argument:
        raise NotText(b"retry")
    return b"%.17g" % argument if spell is None else spell(float(argument))
