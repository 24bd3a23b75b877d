"""`will`: of every connection that brought a Will Message, the Will is published as MQTT 5.0 says, once, or not at all.

Followed per client and connection from CONNECT rows (`connection`, from 1, and `will_delay_us`), DISCONNECT rows
(`reason_code` 0: the client said goodbye), CLEAR rows, and the PUBLISH rows of Wills, which name the client
(`subscriber`) and its `connection`.

1. A Will is published only after its connection has ended (3.1.2.5), and not before the Will Delay Interval has passed
   or the session has ended, whichever comes first (3.1.3.2.2): that instant is when it is *due*.
2. It is not published if a new connection was opened before it was due (MQTT-3.1.3-9). With a delay of 0 it is due when
   the connection ends, were it by a takeover.
3. It is not published if the client ended the connection with DISCONNECT and Reason Code 0 (MQTT-3.1.2-8,
   MQTT-3.14.4-3).
4. It is published once (MQTT-3.1.2-10); the same message again with DUP is the same publication.
5. Otherwise it is published (MQTT-3.1.2-8); with QoS above 0 the server has it in its log
   (publish_acknowledged): what it handed to a log that did not take it is lost.

Antecedents: connections with a Will that have ended by then. Whether a Will that was published reaches those who have
subscribed to it, and in which order, the other laws say: it is a message like any other.

One-sided: a CONNECT is not an instant but lasts until its CONNACK, so within ``CONNECT_LASTS_US`` of the due time a
connect row excuses either. A Will that was due in the last of these before the end of the recording, or whose recording
was cut, is not missed.

Complexity: O(rows), and memory per connection with a Will. Parts of a history are not judged apart, as what was never
published has no row that lies in one of them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orderlab.model.checkers.findings import Finding, LawTally, verdict_of
from orderlab.model.history.events import (
    CLEAR,
    CONNECT,
    CUT,
    DISCONNECT,
    PUBLISH,
    PUBLISH_ACKNOWLEDGED,
    EventBatch,
    Names,
)
from orderlab.model.verdict import Verdict

LAW = "will"
CONNECT_LASTS_US = 10_000
_KINDS = (PUBLISH, PUBLISH_ACKNOWLEDGED, CLEAR, CONNECT, DISCONNECT)
Message = tuple[int, int, int, int]
"""Publisher, topic, QoS, sequence."""


@dataclass(slots=True)
class _Connection:
    """One that brought a Will."""

    begun_us: int
    event: int
    delay_us: int
    ended_us: int | None = None
    ended_event: int = -1
    said_goodbye: bool = False
    published: list[tuple[int, int, Message]] = field(default_factory=list)
    """Instant, event and message of each publication."""
    is_acknowledged: bool = False


class _Client:
    """Its connections, and the ends of its sessions."""

    def __init__(self) -> None:
        self.connections: dict[int, _Connection] = {}
        self.cleared: list[tuple[int, int]] = []
        """Event and instant of each end of a session."""
        self.open = -1
        """The number of the connection that it has, or had last."""

    def due_us(self, number: int) -> int:
        """When the Will of a connection that has ended is to be published. A session that ends after the client is back
        is another matter."""
        connection, later = self.connections[number], self.connections.get(number + 1)
        assert connection.ended_us is not None
        place = bisect_right(self.cleared, (connection.ended_event, connection.ended_us))
        over = self.cleared[place] if place < len(self.cleared) else None
        due_us = connection.ended_us + connection.delay_us
        return due_us if over is None or (later is not None and later.event < over[0]) else min(due_us, over[1])

    def next_us(self, number: int) -> int | None:
        """When it connected anew."""
        later = self.connections.get(number + 1)
        return None if later is None else later.begun_us


class WillChecker:
    """Takes in the batches of a history in order; then the verdict."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._clients: dict[int, _Client] = {}
        self._rows, self._last_us, self._is_cut = 0, 0, False
        self._started = time.perf_counter()

    @property
    def has_any(self) -> bool:
        """Whether anybody had a Will."""
        return bool(self._clients)

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        self._rows += len(batch)
        if not len(batch):
            return
        self._last_us = max(self._last_us, int(batch.time_us[-1]))
        self._is_cut = self._is_cut or bool(((batch.kind == CUT) & (batch.subscriber < 0)).any())
        if not self._clients and not (batch.will_delay_us >= 0).any():
            return
        of_clients = (batch.subscriber >= 0) & np.isin(batch.kind, _KINDS)
        some = batch.select(np.flatnonzero(of_clients))
        columns = (
            some.kind,
            some.subscriber,
            some.time_us,
            some.event_id,
            some.will_delay_us,
            some.connection,
            some.reason_code,
        )
        messages = zip(
            some.publisher.tolist(), some.topic.tolist(), some.qos.tolist(), some.sequence.tolist(), strict=True
        )
        for row, message in zip(zip(*(column.tolist() for column in columns), strict=True), messages, strict=True):
            self._note(row, message)

    def _note(self, row: tuple[int, ...], message: Message) -> None:
        kind, who, at_us, event, delay_us, number, reason = row
        client = self._clients.get(who)
        if client is None:
            if kind != CONNECT or delay_us < 0:
                return
            client = self._clients[who] = _Client()
        if kind == CONNECT:
            client.open = number if number > 0 else client.open + 1
            client.connections[client.open] = _Connection(at_us, event, delay_us)
        elif kind == DISCONNECT:
            ended = client.connections.get(client.open)
            if ended is not None and ended.ended_us is None:
                ended.ended_us, ended.ended_event, ended.said_goodbye = at_us, event, reason == 0
        elif kind == CLEAR:
            client.cleared.append((event, at_us))
        else:
            about = client.connections.setdefault(number, _Connection(at_us, event, -1))
            if kind == PUBLISH_ACKNOWLEDGED:
                about.is_acknowledged = True
            elif all(message != known for _, _, known in about.published):
                about.published.append((at_us, event, message))

    def verdict(self) -> Verdict:
        """The verdict on the rows taken in."""
        tally, undecided = LawTally({LAW: 0}), 0
        for who, client in self._clients.items():
            for number, connection in client.connections.items():
                if connection.ended_us is None and not connection.published:
                    continue
                tally.meets(LAW)
                wrong = list(self._wrong(client, number, connection))
                undecided += self._is_undecided(client, number, connection)
                for why, event, message in wrong:
                    tally.breaks(LAW, self._finding(who, connection, why, event, message))
        work = {"rows": self._rows, "seconds": round(time.perf_counter() - self._started, 6)}
        return verdict_of(tally.partial(), LAW, undecided, work, ())

    def _wrong(
        self, client: _Client, number: int, connection: _Connection
    ) -> Iterator[tuple[str, int | None, Message | None]]:
        """What is wrong with the Will of a connection: how, at which event, and the message."""
        published, ended_us = connection.published, connection.ended_us
        if published:
            at_us, event, message = published[0]
            if ended_us is None or at_us < ended_us:
                yield f"the Will of connection {number} was published while the client had it", event, message
            elif connection.said_goodbye:
                yield (
                    f"the Will of connection {number} was published though the client had sent DISCONNECT with "
                    "Reason Code 0",
                    event,
                    message,
                )
            elif self._is_back(client, number, connection, -CONNECT_LASTS_US):
                yield (
                    f"the Will of connection {number} was published though the client had connected anew before "
                    "it was due",
                    event,
                    message,
                )
            elif at_us < client.due_us(number):
                early_ms = (client.due_us(number) - at_us) / 1000
                yield f"the Will of connection {number} was published {early_ms:g} ms before it was due", event, message
            for _, event, message in published[1:]:
                yield f"the Will of connection {number} was published again, as another message", event, message
        if self._is_owed(client, number, connection) and not self._is_cut:
            if not published:
                yield f"the Will of connection {number} was never published", None, None
            elif published[0][2][2] > 0 and not connection.is_acknowledged:
                yield (
                    f"the Will of connection {number} was published and the server has not kept it",
                    None,
                    published[0][2],
                )

    def _is_back(self, client: _Client, number: int, connection: _Connection, slack_us: int) -> bool:
        """Whether the client connected anew before the Will was due, and ``slack_us`` later."""
        next_us = client.next_us(number)
        return next_us is not None and next_us < client.due_us(number) + slack_us

    def _is_owed(self, client: _Client, number: int, connection: _Connection) -> bool:
        """Whether the Will was due, and long enough before the end of the recording."""
        if connection.ended_us is None or connection.said_goodbye or connection.delay_us < 0:
            return False
        due_us = client.due_us(number)
        # The CONNECT itself may end the session.
        slack_us = CONNECT_LASTS_US if due_us == connection.ended_us + connection.delay_us else 0
        is_back = connection.delay_us > 0 and self._is_back(client, number, connection, slack_us)
        return not is_back and due_us + CONNECT_LASTS_US < self._last_us

    def _is_undecided(self, client: _Client, number: int, connection: _Connection) -> bool:
        """Whether the recording was cut before the Will came."""
        return self._is_cut and not connection.published and self._is_owed(client, number, connection)

    def _finding(
        self, who: int, connection: _Connection, why: str, event: int | None, message: Message | None
    ) -> Finding:
        names = self._names
        about: dict[str, Any] = {}
        if message is not None:
            publisher, topic, qos, sequence = message
            about = {
                "publisher": names.clients.label(publisher),
                "topic": names.topics.label(topic),
                "qos": qos,
                "sequence": sequence,
            }
        other = connection.ended_event if connection.ended_us is not None else connection.event
        if connection.published and event is not None and event != connection.published[0][1]:
            other = connection.published[0][1]  # it was published before
        return Finding(
            why, event, subscriber=names.clients.label(who), other_event_id=other if other >= 0 else None, **about
        )
