"""A list of elements, quick at both ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

Undo = list[tuple[Any, ...]]
FrozenList = tuple[bytes, ...]

_SLACK_MIN: Final = 32


class List:
    """The elements are ``_cells[_head:]``. Cells before ``_head`` are free room: a pop on the left leaves one behind, a
    push on the left uses one up, and there is never more free room than the elements and a little."""

    __slots__ = ("_cells", "_head")

    encoding = b"quicklist"
    """As OBJECT ENCODING names it: lists know no other encoding in Redis 7.0."""

    def __init__(self, elements: Iterable[bytes] = ()) -> None:
        self._cells: list[bytes] = list(elements)
        self._head = 0

    def __len__(self) -> int:
        return len(self._cells) - self._head

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._cells[self._head :])

    def __getitem__(self, index: int) -> bytes:
        """The element at ``index`` >= 0."""
        return self._cells[self._head + index]

    def slice(self, start: int, stop: int) -> list[bytes]:
        """The elements from ``start`` up to, not including, ``stop``; both within 0..len."""
        return self._cells[self._head + start : self._head + stop]

    # -- mutators: each appends its inverse to ``undo``, if there is one -------------------------------------

    def push_right(self, elements: Sequence[bytes], undo: Undo | None) -> None:
        """Append the elements, first one first."""
        self._cells.extend(elements)
        if undo is not None:
            undo.append((self.pop_right, len(elements), None))

    def push_left(self, elements: Sequence[bytes], undo: Undo | None) -> None:
        """Put the elements before the first one by one, so that the last given becomes the first."""
        count = len(elements)
        if self._head < count:
            room = count + _SLACK_MIN + len(self) // 8 if count < len(self) else count
            self._cells[: self._head] = [b""] * room
            self._head = room
        head = self._head = self._head - count
        self._cells[head : head + count] = elements[::-1]
        if undo is not None:
            undo.append((self.pop_left, count, None))

    def pop_right(self, count: int, undo: Undo | None) -> list[bytes]:
        """Remove ``count`` <= len elements from the right; the last comes first."""
        cells = self._cells
        if count == 1:
            popped = [cells.pop()]
        else:
            at = len(cells) - count
            popped = cells[at:]
            del cells[at:]
            popped.reverse()
        if undo is not None:
            undo.append((self.push_right, popped[::-1], None))
        return popped

    def pop_left(self, count: int, undo: Undo | None) -> list[bytes]:
        """Remove ``count`` <= len elements from the left."""
        cells, head = self._cells, self._head
        beyond = head + count
        popped = cells[head:beyond]
        if beyond > _SLACK_MIN and beyond * 2 > len(cells):
            del cells[:beyond]
            self._head = 0
        else:
            cells[head:beyond] = [b""] * count
            self._head = beyond
        if undo is not None:
            undo.append((self.push_left, popped[::-1], None))
        return popped

    def set(self, index: int, element: bytes, undo: Undo | None) -> None:
        """Replace the element at ``index`` >= 0."""
        at = self._head + index
        if undo is not None:
            undo.append((self.set, index, self._cells[at], None))
        self._cells[at] = element

    def insert(self, index: int, element: bytes, undo: Undo | None) -> None:
        """Put ``element`` before the one at ``index`` >= 0."""
        if undo is not None:
            undo.append((self._delete, index))
        self._cells.insert(self._head + index, element)

    def remove_at(self, indexes: Sequence[int], undo: Undo | None) -> None:
        """Remove the elements at these ascending indexes."""
        cells, head = self._cells, self._head
        if undo is not None:
            undo.append((self._insert_back, [(index, cells[head + index]) for index in indexes]))
        if len(indexes) == 1:
            del cells[head + indexes[0]]
            return
        gone = set(indexes)
        self._cells = [element for index, element in enumerate(self) if index not in gone]
        self._head = 0

    def _delete(self, index: int) -> None:
        del self._cells[self._head + index]

    def _insert_back(self, removed: list[tuple[int, bytes]]) -> None:
        for index, element in removed:
            self._cells.insert(self._head + index, element)

    # -- values ------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenList:
        """The elements as a tuple."""
        return tuple(self)

    @classmethod
    def thaw(cls, frozen: FrozenList) -> List:
        """The list that ``freeze`` gave ``frozen`` for."""
        return cls(frozen)

    def copy(self) -> List:
        """An independent equal value."""
        return List(self)
