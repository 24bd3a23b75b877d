"""Packs: messages and calls that go on together, some forty at a time."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.sim.native.choose import grouped, spread

__all__ = ["NumberedNames", "all_of", "any_of", "grouped", "spread"]

Numbers = Sequence[int] | npt.NDArray[np.int64]

NUMBER_BYTES = 9
"""The payload begins with the message's number, in decimal; 9 bytes are 12 characters of base64."""


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
