"""What a delivery passes before it is written to a socket: the filter of what the store has replayed, the inflight window; and the queues of
sessions as far as replies tell, to know what their limits pushed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import PACKET_ID, SUBSCRIBER, TOKEN, Deliveries, as_deliveries

StoredMessage = tuple[int, int, int, bool]
"""As stores answer: (message, packet identifier, token, is a PUBREL)."""


class ReplayFilter:
    """Per subscriber, what was read from the store on its present connection, so that the same, pushed by who saved it, goes no further.

    A store whose tokens grow with every save tells more: what was pushed and is older than the newest message that was read, and
    was not read, had left the queue by then (acknowledged, expired, or trimmed). It would overtake what was read, so it stays
    behind. Without tokens such a message cannot be told from a new one.
    """

    def __init__(self, has_tokens: bool) -> None:
        self.has_tokens = has_tokens
        self._read_up_to: dict[int, int] = {}
        self._sent_up_to: dict[int, int] = {}
        self._copies: dict[int, set[tuple[int, int]]] = {}

    def note(self, subscriber: int, found: Iterable[StoredMessage], newest: int = 0) -> None:
        """Note what was read, and is sent before anything that was pushed. ``newest``: what the store says is the token of the
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
            return pushed[(pushed[:, TOKEN] > _of(self._read_up_to, pushed)) | (pushed[:, PACKET_ID] < 0)]
        if self._copies:
            copies, none = self._copies, frozenset[tuple[int, int]]()
            is_new = [
                (message, packet_id) not in copies.get(subscriber, none) for message, subscriber, packet_id, _ in pushed.tolist()
            ]
            return pushed[np.array(is_new, np.bool_)]
        return pushed

    def in_sequence(self, pushed: Deliveries) -> tuple[Deliveries, Deliveries]:
        """(those behind all that was pushed before them, the others). The others were sent before, or never: who pushes does not know."""
        is_new = np.ones(len(pushed), np.bool_)
        up_to = self._sent_up_to
        for place, (_, subscriber, packet_id, token) in enumerate(pushed.tolist()):
            if packet_id >= 0:
                is_new[place] = token > up_to.get(subscriber, 0)
                up_to[subscriber] = max(token, up_to.get(subscriber, 0))
        return pushed[is_new], pushed[~is_new]

    def forget(self, subscriber: int) -> None:
        """Forget a connection that is gone."""
        self._read_up_to.pop(subscriber, None)
        self._sent_up_to.pop(subscriber, None)
        self._copies.pop(subscriber, None)


def _of(up_to: dict[int, int], pushed: Deliveries) -> Ints:
    return np.array([up_to.get(subscriber, 0) for subscriber in pushed[:, SUBSCRIBER].tolist()], np.int64)


Copy = tuple[int, int]
"""(message, packet identifier)."""


class TrimTracker:
    """The queues of all sessions, as far as replies tell, to name what a save pushed out. ``limit``: messages a session keeps; None: none is ever
    full. The scripts do not say what they trim: of what was saved and not removed, all but the newest ``limit`` are gone, the oldest first.

    Inferred, not seen: replies may overtake each other, so a message that was removed just then may be named too; where a save's
    reply is lost with its broker, what it pushed out is not named, and looks lost.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._live: dict[int, dict[Copy, None]] = {}

    def saved(self, subscriber: int, copies: Iterable[Copy]) -> list[Copy]:
        """What had to go for these, which were appended."""
        assert self.limit is not None
        queue = self._live.setdefault(subscriber, {})
        queue.update(dict.fromkeys(copies))
        gone = list(queue)[: max(len(queue) - self.limit, 0)]
        for copy in gone:
            del queue[copy]
        return gone

    def removed(self, subscriber: int, copy: Copy) -> None:
        """Note that an acknowledgement took it out."""
        self._live.get(subscriber, {}).pop(copy, None)

    def cleared(self, subscriber: int) -> None:
        """Forget the queue of a session that is over."""
        self._live.pop(subscriber, None)


UNLIMITED = 65_535
"""The default of the protocol, and what packet identifiers allow at all."""


class InflightWindows:
    """The inflight windows of all subscribers: how many PUBLISH packets with QoS above 0 each takes before it has acknowledged one, and what
    waits for room: deliveries, and whether they come from a backlog.

    What exceeds the Receive Maximum waits at the broker, in order, until a PUBACK or PUBCOMP comes (MQTT-3.3.4-9). A lost connection empties
    the window and the queue: the store has it all, and the next connection fetches it.
    """

    def __init__(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self._sent: dict[int, int] = {}
        self._queues: dict[int, deque[tuple[list[int], bool]]] = {}

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit below what packet identifiers allow anyway."""
        return self.receive_maximum < UNLIMITED

    @property
    def columns(self) -> dict[str, int]:
        """What a connect row of the history says of it."""
        return {"receive_maximum": self.receive_maximum} if self.is_limited else {}

    def admit(self, deliveries: Deliveries, is_backlog: bool) -> Deliveries:
        """What may go out now; the rest queues up."""
        rows = [row for row in deliveries.tolist() if self._admits(row, is_backlog)]
        return as_deliveries(rows)

    def _admits(self, row: list[int], is_backlog: bool) -> bool:
        subscriber = row[SUBSCRIBER]
        sent = self._sent.get(subscriber, 0)
        if sent >= self.receive_maximum or self._queues.get(subscriber):
            self._queues.setdefault(subscriber, deque()).append((row, is_backlog))
            return False
        self._sent[subscriber] = sent + 1
        return True

    def occupy(self, subscriber: int) -> None:
        """Count a PUBREL that goes out again after a reconnect, as its PUBCOMP is missing."""
        self._sent[subscriber] = self._sent.get(subscriber, 0) + 1

    def acknowledged(self, subscriber: int) -> tuple[list[int], bool] | None:
        """The next that may go out, if any, now that one is acknowledged; and whether it is of a backlog."""
        sent = max(self._sent.get(subscriber, 0) - 1, 0)
        queue = self._queues.get(subscriber)
        if not queue or sent >= self.receive_maximum:
            self._sent[subscriber] = sent
            return None
        self._sent[subscriber] = sent + 1
        return queue.popleft()

    def waiting(self, subscriber: int) -> set[tuple[int, int]]:
        """(message, packet identifier) of what waits for room."""
        return {(message, packet_id) for (message, _, packet_id, _), _ in self._queues.get(subscriber, ())}

    def forget(self, subscriber: int) -> None:
        """Forget a connection that is gone."""
        self._sent.pop(subscriber, None)
        self._queues.pop(subscriber, None)
