"""Prepared commands: arguments with places for values, cut once at marks that stand in the place of the values. After
that a command is what stands between the values joined with them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orderlab.sim.native.choose import columns_of, prepare
from orderlab.sim.redis.prepared import BYTES, Column, ReadColumns, Render

__all__ = ["BYTES", "Column", "PreparedCommand", "ReadColumns", "Render", "columns_of"]


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
        self.render: Render = prepare(arguments)
        """The arguments of the commands at given places of columns that were read (`columns_of`)."""

    def takes(self, mark: int) -> bool:
        """Whether the command has the value of a mark."""
        return mark in self._taken
