"""A sorted set: members by score, then by bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any


class SortedSet:
    """``scores`` answers by member; ``order`` is the sorted list of (score, member). Both change together."""

    __slots__ = ("order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self.scores)

    def put(self, member: bytes, score: float, undo: list[tuple[Any, ...]] | None) -> None:
        """Add ``member`` or move it to ``score``. ``undo``, if given, receives the inverse."""
        old = self.scores.get(member)
        if undo is not None:
            undo.append((self.discard, member, None) if old is None else (self.put, member, old, None))
        order = self.order
        if old is not None:
            del order[bisect_left(order, (old, member))]
        self.scores[member] = score
        entry = (score, member)
        if not order or order[-1] < entry:
            order.append(entry)
        else:
            insort(order, entry)

    def discard(self, member: bytes, undo: list[tuple[Any, ...]] | None) -> bool:
        """Remove ``member``; True if it was there."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        if undo is not None:
            undo.append((self.put, member, score, None))
        del self.order[bisect_left(self.order, (score, member))]
        return True

    def freeze(self) -> tuple[tuple[float, bytes], ...]:
        """The value as a hashable tuple, equal for equal sorted sets."""
        return tuple(self.order)

    @classmethod
    def thaw(cls, frozen: tuple[tuple[float, bytes], ...]) -> SortedSet:
        """The sorted set that ``freeze`` gave ``frozen`` for."""
        value = cls()
        value.order = list(frozen)
        value.scores = {member: score for score, member in frozen}
        return value
