"""Packs: messages and calls that go on together, some forty at a time."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.clock import machine_code

Numbers = Sequence[int] | npt.NDArray[np.int64]


def grouped(values: Iterable[int], keys: Iterable[int]) -> dict[int, list[int]]:
    """The values of each key, in order, by the order of the keys' first places. For packs, which are too small for
    numpy."""
    groups: dict[int, list[int]] = {}
    for value, key in zip(values, keys, strict=True):
        found = groups.get(key)
        if found is None:
            groups[key] = [value]
        else:
            found.append(value)
    return groups


def spread(values: list[Any], begin: int, target: list[Any], places: Sequence[int]) -> int:
    """Put values, from the one at ``begin`` on, at ``places`` of ``target``; the place of the first value that is left.
    Raises IndexError."""
    end = begin + len(places)
    if not 0 <= begin <= end <= len(values) or any(not 0 <= place < len(target) for place in places):
        raise IndexError("fewer values than places, or no such place")
    for place, value in zip(places, values[begin:end], strict=True):
        target[place] = value
    return end


if machine_code is not None and not TYPE_CHECKING:
    grouped, spread = machine_code.grouped, machine_code.spread


def any_of(flags: npt.NDArray[np.bool_]) -> bool:
    """``flags.any()``, which goes through Python and a reduction: for 40 flags it takes ten times as long."""
    return b"\1" in flags.tobytes()


def all_of(flags: npt.NDArray[np.bool_]) -> bool:
    """``flags.all()``."""
    return b"\0" not in flags.tobytes()


class NumberedNames(Sequence[bytes]):
    """Names that are a prefix and a number, of so many digits at least: none is made before somebody wants its bytes,
    in base64 if ``is_encoded``."""

    __slots__ = ("digits", "is_encoded", "numbers", "prefix")

    def __init__(self, prefix: bytes, digits: int, numbers: Numbers, is_encoded: bool = False) -> None:
        self.prefix = prefix
        self.digits = digits
        self.numbers = numbers
        self.is_encoded = is_encoded

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        name = self.prefix + b"%0*d" % (self.digits, self.numbers[place])
        return b2a_base64(name, newline=False) if self.is_encoded else name
