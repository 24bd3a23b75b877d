"""Prepared commands: arguments with places for values, cut once at marks that stand in the place of the values.

After that a command is what stands between the values joined with them, made in machine code where there is any
(``prepared.c``, held against this text on generated commands).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.sim.native.install import extension

BYTES = -1
Piece = bytes | tuple[int, int]
"""Constant, or the number of a column with how its values are written: ``BYTES`` as they are, else whole numbers with
so many digits at least."""
Column = Sequence[Any] | npt.NDArray[np.int64]
Columns = Sequence[Column]
ReadColumns = Any
"""Columns as `PreparedCommand.render` takes them: each read once, however many commands are made of it."""
Render = Callable[[Iterable[int], ReadColumns], list[list[bytes]]]


class PreparedCommand:
    """A command with places for values. ``marks``: for each value, the bytes that stand in its place and how it is
    written (``Piece``)."""

    def __init__(self, argv: Sequence[bytes], marks: Sequence[tuple[bytes, int]]) -> None:
        number_of = {mark: number for number, (mark, _) in enumerate(marks)}
        pattern = re.compile(
            b"(" + b"|".join(re.escape(mark) for mark in sorted(number_of, key=len, reverse=True)) + b")"
        )
        arguments = []
        for argument in argv:
            texts = [text for text in pattern.split(argument) if text] or [b""]
            arguments.append(
                tuple((number_of[text], marks[number_of[text]][1]) if text in number_of else text for text in texts)
            )
        self._taken = {piece[0] for pieces in arguments for piece in pieces if isinstance(piece, tuple)}
        self.render: Render = compiled(arguments) or interpreted(arguments)
        """The arguments of the commands at given places of columns that were read (`columns_of`)."""

    def takes(self, mark: int) -> bool:
        """Whether the command has the value of a mark."""
        return mark in self._taken


def interpreted(arguments: Sequence[tuple[Piece, ...]]) -> Render:
    """What makes the arguments in Python."""

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


def read_columns(columns: Columns) -> ReadColumns:
    """What ``interpreted`` takes. Python's own numbers: one of numpy's would stand among bytes as its memory."""
    return [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]


def compiled(arguments: Sequence[tuple[Piece, ...]]) -> Render | None:
    """What makes the arguments in machine code, where there is any."""
    if _machine_code is None:
        return None
    prepared, render = _machine_code.prepare(tuple(arguments)), _machine_code.render
    return lambda places, columns: render(prepared, places, columns)


_machine_code = extension(Path(__file__).with_suffix(".c"))
columns_of: Callable[[tuple[Column, ...]], ReadColumns] = (
    read_columns if _machine_code is None else _machine_code.columns
)
"""Read columns, which are in the order of the marks and which nobody changes any more: lists, tuples, arrays of
numbers, names that are a prefix and a number (`orderlab.sim.engine.packs.NumberedNames`)."""
