"""Arguments of commands made of what stands between values and the values of columns.

The text of `prepared.c`, held against it on generated commands; `orderlab.sim.native.choose` picks one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BYTES = -1
Piece = bytes | tuple[int, int]
"""Constant, or the number of a column with how its values are written: ``BYTES`` as they are, else whole numbers with
so many digits at least."""
Column = Sequence[Any] | npt.NDArray[np.int64]
Columns = Sequence[Column]
ReadColumns = Any
"""Columns as ``Render`` takes them: each read once, however many commands are made of it."""
Render = Callable[[Iterable[int], ReadColumns], list[list[bytes]]]


def prepare(arguments: Sequence[tuple[Piece, ...]]) -> Render:
    """What makes the arguments at given places of columns that were read."""

    def text(piece: Piece) -> str:
        if isinstance(piece, bytes):
            return repr(piece)
        column, digits = piece
        value = f"columns[{column}][i]"
        return value if digits == BYTES else f"{b'%%0%dd' % digits if digits else b'%d'!r} % {value}"

    items = ", ".join(
        text(pieces[0]) if len(pieces) == 1 else f"join(({', '.join(map(text, pieces))}))" for pieces in arguments
    )
    # An expression, as for a named tuple: joined pieces take a third of the time of one formatting that is cut again.
    made: Render = eval(f"lambda places, columns: [[{items}] for i in places]", {"join": b"".join})
    return made


def columns_of(columns: Columns) -> ReadColumns:
    """What ``prepare`` takes, in the order of the marks: lists, tuples, arrays of numbers, names that are a prefix and
    a number (`orderlab.sim.engine.packs.NumberedNames`); nobody changes them any more. Python's own numbers: one of
    numpy's would stand among bytes as its memory."""
    return [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
