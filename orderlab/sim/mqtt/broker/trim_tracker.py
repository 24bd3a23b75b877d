"""What the limit of a session pushed out. The scripts do not tell, so it is inferred from their replies: of what was saved and
not removed, all but the newest ``limit`` are gone, the oldest first.

Inferred, not seen: replies may overtake each other, so a message that was removed just then may be named too; where a save's
reply is lost with its broker, what it pushed out is not named, and looks lost.
"""

from __future__ import annotations

from collections.abc import Iterable

Copy = tuple[int, int]
"""(message, packet identifier)."""


class Trims:
    """The queues of all sessions, as far as replies tell. ``limit``: messages a session keeps; None: none is ever full."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._live: dict[int, dict[Copy, None]] = {}

    def saved(self, subscriber: int, copies: Iterable[Copy]) -> list[Copy]:
        """These were appended; what had to go for them."""
        assert self.limit is not None
        queue = self._live.setdefault(subscriber, {})
        queue.update(dict.fromkeys(copies))
        gone = list(queue)[: max(len(queue) - self.limit, 0)]
        for copy in gone:
            del queue[copy]
        return gone

    def removed(self, subscriber: int, copy: Copy) -> None:
        """An acknowledgement took it out."""
        self._live.get(subscriber, {}).pop(copy, None)

    def cleared(self, subscriber: int) -> None:
        """The session is over."""
        self._live.pop(subscriber, None)
