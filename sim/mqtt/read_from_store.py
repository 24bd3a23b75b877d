"""What connections were sent from the store, so that the same, pushed by who saved it, goes no further.

A store whose tokens grow with every save tells more: what was pushed and is older than the newest message that was read, and
was not read, had left the queue by then (acknowledged, expired, or trimmed). It would overtake what was read, so it stays
behind. Without tokens such a message cannot be told from a new one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.mqtt.session import Deliveries

Found = tuple[int, int, int, bool]
"""As stores answer: (message, packet identifier, token, is a PUBREL)."""


class ReadFromStore:
    """Per subscriber, what was read on its present connection."""

    def __init__(self, has_tokens: bool) -> None:
        self.has_tokens = has_tokens
        self._newest: dict[int, int] = {}
        self._copies: dict[int, set[tuple[int, int]]] = {}

    def note(self, subscriber: int, found: Iterable[Found]) -> None:
        """These were read, and are sent before anything that was pushed."""
        if self.has_tokens:
            tokens = [token for _, _, token, _ in found]
            if tokens:
                self._newest[subscriber] = max(*tokens, self._newest.get(subscriber, 0))
        else:
            copies = {(message, packet_id) for message, packet_id, _, is_pubrel in found if not is_pubrel}
            if copies:
                self._copies.setdefault(subscriber, set()).update(copies)

    def beyond(self, pushed: Deliveries) -> Deliveries:
        """Those that have not been sent from the store, or left it before it was read. QoS 0 is not stored."""
        if self._newest:
            newest = np.array([self._newest.get(subscriber, 0) for subscriber in pushed[:, 1].tolist()], np.int64)
            return pushed[(pushed[:, 3] > newest) | (pushed[:, 2] < 0)]
        if self._copies:
            copies, none = self._copies, frozenset[tuple[int, int]]()
            rows = pushed.tolist()
            return pushed[np.array([(row[0], row[2]) not in copies.get(row[1], none) for row in rows], np.bool_)]
        return pushed

    def forget(self, subscriber: int) -> None:
        """The connection is gone."""
        self._newest.pop(subscriber, None)
        self._copies.pop(subscriber, None)
