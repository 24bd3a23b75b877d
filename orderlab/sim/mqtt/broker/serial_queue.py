"""One save in flight per session: a store that knows a batch again by its number refuses one that comes after its successor.

So the saves of a session wait for one another, and where one fails, those behind it have to come again with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class Turns:
    """The saves of a pack, by their places in it. ``session_of``: per place."""

    def __init__(self, session_of: Sequence[int]) -> None:
        self._session_of = session_of
        self._lines: dict[int, deque[int]] = {}
        """Per session that has a save in flight, the places that wait."""

    def enter(self, places: Iterable[int]) -> list[int]:
        """These are to be saved, in order; those that may go now."""
        lines, goes = self._lines, []
        for place in places:
            line = lines.get(self._session_of[place])
            if line is None:
                lines[self._session_of[place]] = deque()
                goes.append(place)
            else:
                line.append(place)
        return goes

    def over(self, place: int, has_failed: bool) -> tuple[list[int], list[int]]:
        """A save is over; (who may go now, who fails with it)."""
        line = self._lines[self._session_of[place]]
        if line and not has_failed:
            return [line.popleft()], []
        del self._lines[self._session_of[place]]
        return [], list(line)
