"""What connections were sent from the store, so that the same, pushed by who saved it, goes no further.

A store whose tokens grow with every save tells more: what was pushed and is older than the newest message that was read, and
was not read, had left the queue by then (acknowledged, expired, or trimmed). It would overtake what was read, so it stays
behind. Without tokens such a message cannot be told from a new one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import Deliveries

Found = tuple[int, int, int, bool]
"""As stores answer: (message, packet identifier, token, is a PUBREL)."""


class ReadFromStore:
    """Per subscriber, what was read on its present connection."""

    def __init__(self, has_tokens: bool) -> None:
        self.has_tokens = has_tokens
        self._read_up_to: dict[int, int] = {}
        self._sent_up_to: dict[int, int] = {}
        self._copies: dict[int, set[tuple[int, int]]] = {}

    def note(self, subscriber: int, found: Iterable[Found], newest: int = 0) -> None:
        """These were read, and are sent before anything that was pushed. ``newest``: what the store says is the token of the
        last message saved, if it says so."""
        if self.has_tokens:
            known = self._read_up_to.get(subscriber, 0), self._sent_up_to.get(subscriber, 0)
            up_to = max(newest, *known, *(token for _, _, token, _ in found))
            if up_to:
                self._read_up_to[subscriber] = up_to
        else:
            copies = {(message, packet_id) for message, packet_id, _, is_pubrel in found if not is_pubrel}
            if copies:
                self._copies.setdefault(subscriber, set()).update(copies)

    def beyond(self, pushed: Deliveries) -> Deliveries:
        """Those that have not been sent from the store, or left it before it was read. QoS 0 is not stored."""
        if self._read_up_to:
            return pushed[(pushed[:, 3] > _of(self._read_up_to, pushed)) | (pushed[:, 2] < 0)]
        if self._copies:
            copies, none = self._copies, frozenset[tuple[int, int]]()
            rows = pushed.tolist()
            return pushed[np.array([(row[0], row[2]) not in copies.get(row[1], none) for row in rows], np.bool_)]
        return pushed

    def in_sequence(self, pushed: Deliveries) -> tuple[Deliveries, Deliveries]:
        """Those behind all that was pushed before them, and the others: sent before, or never, who pushes does not know."""
        is_new = np.ones(len(pushed), np.bool_)
        up_to = self._sent_up_to
        for place, (_, subscriber, packet_id, token) in enumerate(pushed.tolist()):
            if packet_id >= 0:
                is_new[place] = token > up_to.get(subscriber, 0)
                up_to[subscriber] = max(token, up_to.get(subscriber, 0))
        return pushed[is_new], pushed[~is_new]

    def forget(self, subscriber: int) -> None:
        """The connection is gone."""
        self._read_up_to.pop(subscriber, None)
        self._sent_up_to.pop(subscriber, None)
        self._copies.pop(subscriber, None)


def _of(up_to: dict[int, int], pushed: Deliveries) -> Ints:
    return np.array([up_to.get(subscriber, 0) for subscriber in pushed[:, 1].tolist()], np.int64)
