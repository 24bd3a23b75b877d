"""`expiry`, seen from outside: deadlines that a history shows to be broken.

A message's deadline is the time of its first publish row plus its expiry interval. A copy that its publisher sent again
may be a new message to the server (MQTT-4.3.2-5), with an interval of its own, so where there are copies what is left
lies between what the first and the last of them leave.

1. Its first delivery to a subscriber comes at or after the deadline (MQTT-3.3.2-5). Repeats may come later: the
   standard speaks of delivery that has not *started*. DUP on the first row at QoS 1 or 2 proves that it had, by a
   packet that never came, unless the subscriber was away from the publish on until it connected for this delivery.
2. A delivery carries an interval that is not what is left, to within `resolution_us` (MQTT-3.3.2-6).
3. An expire row lies before the deadline: something shortened it.

Complexity: O(rows) time; memory 32 bytes for each message that carries an interval, 24 a client, and runs of delivered
numbers.

Assumes the publish row's time is when the server received the message. Recorded at the publisher, deadlines come out
early by the network's delay, and rule 1 can cry wolf by that much: `tolerance_us` allows for it. It can miss: a
default interval that the server applies is not in the publish row, so such messages have no deadline here. Nor can it
tell when a packet that never came was sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orderlab.model.arrays import SequenceSets, add, new_table, rows_with_room, slot_of, with_room
from orderlab.model.checkers.delivery.event_pass import ROWS_PER_CHUNK, locate_rows
from orderlab.model.checkers.findings import Finding, LawTally, Partial, verdict_of
from orderlab.model.history.events import CONNECT, DELIVER, DISCONNECT, EXPIRE, PUBLISH, EventBatch, Names
from orderlab.model.machine_code import njit
from orderlab.model.verdict import Verdict

LAWS = ("expiry",)
RESOLUTION_US = 1_000_000
"""MQTT sends whole seconds."""
_ONE_LEVEL = np.full(ROWS_PER_CHUNK, -1, np.int8)
"""In place of the QoS of deliveries: delivery has started, whatever QoS a copy for another subscription has."""
_CLOCK_ENDS = 2**63 - 1  # a deadline beyond is none: an interval of 2^63 - 1 says "never"
_AFTER_DEADLINE, _WRONG_INTERVAL, _BEFORE_DEADLINE = 0, 1, 2
_WHY = (
    "{sequence} was first delivered {late} us after its deadline",
    "{sequence} was delivered with an expiry interval that is off by {late} us",
    "{sequence} was expired {late} us before its deadline",
)


# Words of a row of `connections`, one per client: when it connected last, when the connection before that ended, when
# this one did (-1: not yet).
_CONNECTED_US, _BEFORE_ENDED_US, _ENDED_US = range(3)


@njit(cache=True)
def _follow(connection: Any, what: Any, time_us: Any) -> None:
    """A CONNECT or DISCONNECT row. A connect without one is a takeover (3.1.4), which ends the connection before it."""
    if what == CONNECT:
        is_open = connection[_CONNECTED_US] >= 0 and connection[_ENDED_US] < 0
        connection[_BEFORE_ENDED_US] = time_us if is_open else connection[_ENDED_US]
        connection[_CONNECTED_US] = time_us
        connection[_ENDED_US] = -1
    else:
        connection[_ENDED_US] = time_us


@njit(cache=True)
def _has_begun(connection: Any, published_us: Any) -> Any:
    """Whether a packet may have been sent on an earlier connection, or on one since before the publish row."""
    return connection[_CONNECTED_US] <= published_us or connection[_BEFORE_ENDED_US] >= published_us


@njit(cache=True)
def _observe(
    deadlines: Any,
    copies: Any,
    used: Any,
    connections: Any,
    delivered: Any,
    tolerance_us: Any,
    resolution_us: Any,
    time_us: Any,
    kind: Any,
    fifo_of_row: Any,
    lane_of_row: Any,
    sequence: Any,
    retained: Any,
    expiry_interval_us: Any,
    subscriber: Any,
    dup: Any,
    level: Any,
    broken: Any,
) -> Any:
    """Fills `broken` with (row, why, off by); returns (antecedents, violations)."""
    met, found = 0, 0
    for row in range(len(kind)):
        what = kind[row]
        if what == PUBLISH and expiry_interval_us[row] >= 0 and time_us[row] <= _CLOCK_ENDS - expiry_interval_us[row]:
            slot = slot_of(deadlines, fifo_of_row[row], sequence[row])
            if deadlines[slot, 2] < 0:
                deadlines[slot, 0] = fifo_of_row[row]
                deadlines[slot, 1] = sequence[row]
                deadlines[slot, 2] = time_us[row] + expiry_interval_us[row]
                deadlines[slot, 3] = time_us[row]
                used[0] += 1
            else:
                copy = slot_of(copies, fifo_of_row[row], sequence[row])
                if copies[copy, 2] < 0:
                    copies[copy, 0] = fifo_of_row[row]
                    copies[copy, 1] = sequence[row]
                    used[1] += 1
                copies[copy, 2] = time_us[row] + expiry_interval_us[row]
        elif what in (CONNECT, DISCONNECT):
            _follow(connections[subscriber[row]], what, time_us[row])
        elif what in (DELIVER, EXPIRE):
            first = what == DELIVER and (retained[row] > 0 or add(delivered, lane_of_row[row], sequence[row], 0) != 1)
            message = deadlines[slot_of(deadlines, fifo_of_row[row], sequence[row])]
            deadline = message[2]
            if deadline < 0:
                continue
            if first and dup[row] > 0 and level[row] > 0:
                first = not _has_begun(connections[subscriber[row]], message[3])
            met += 1
            left = deadline - time_us[row]
            most = max(left, copies[slot_of(copies, fifo_of_row[row], sequence[row]), 2] - time_us[row])
            why, off = -1, np.int64(0)
            if what == EXPIRE:
                if left > tolerance_us:
                    why, off = 2, left
            elif first and most <= -tolerance_us:
                why, off = 0, -most
            elif expiry_interval_us[row] >= 0:
                off = np.int64(max(0, max(left, 0) - expiry_interval_us[row], expiry_interval_us[row] - max(most, 0)))
                if off >= resolution_us + tolerance_us:
                    why = 1
            if why >= 0:
                if found == 0:
                    broken[0], broken[1], broken[2] = row, why, off
                found += 1
    return met, found


class ExpiryChecker:
    """Folds batches in time order. Parts are merged by logical FIFO.

    tolerance_us: by how much recorded times may be off.
    """

    laws = LAWS

    def __init__(self, names: Names, tolerance_us: int = 0) -> None:
        self._names, self._tolerance_us = names, tolerance_us
        self._fifos, self._lanes, self._deadlines = new_table(), new_table(), new_table()
        self._copies = new_table()
        """The deadlines of the last copies of messages that were published again."""
        self._counts, self._used = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self._delivered = SequenceSets.empty()
        self._connections = np.full((256, 3), -1, np.int64)
        self._rows = np.zeros((2, ROWS_PER_CHUNK), np.int64)
        self._tally = LawTally({"expiry": 0})

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        known = len(self._connections)
        self._connections = rows_with_room(self._connections, int(batch.subscriber.max(initial=-1)) + 1)
        self._connections[known:] = -1
        for start in range(0, len(batch), ROWS_PER_CHUNK):
            self._observe_chunk(batch, slice(start, min(start + ROWS_PER_CHUNK, len(batch))))

    def _observe_chunk(self, batch: EventBatch, rows: slice) -> None:
        kind = batch.kind[rows]
        more = len(kind)
        self._fifos = with_room(self._fifos, int(self._counts[0]), more)
        self._lanes = with_room(self._lanes, int(self._counts[1]), more)
        self._deadlines = with_room(self._deadlines, int(self._used[0]), more)
        self._copies = with_room(self._copies, int(self._used[1]), more)
        self._delivered.make_room(int(self._counts[1]) + more, more)
        fifo_of_row, lane_of_row = self._rows[0, :more], self._rows[1, :more]
        locate_rows(
            self._fifos,
            self._lanes,
            self._counts,
            kind,
            batch.publisher[rows],
            batch.topic[rows],
            batch.qos[rows],
            batch.subscriber[rows],
            _ONE_LEVEL[:more],
            fifo_of_row,
            lane_of_row,
        )
        broken = np.zeros(3, np.int64)
        met, found = _observe(
            self._deadlines,
            self._copies,
            self._used,
            self._connections,
            self._delivered.arrays,
            self._tolerance_us,
            RESOLUTION_US,
            batch.time_us[rows],
            kind,
            fifo_of_row,
            lane_of_row,
            batch.sequence[rows],
            batch.retained[rows],
            batch.expiry_interval_us[rows],
            batch.subscriber[rows],
            batch.dup[rows],
            np.where(batch.delivered_qos[rows] >= 0, batch.delivered_qos[rows], batch.qos[rows]),
            broken,
        )
        self._tally.meets("expiry", int(met))
        if found:
            row, why, off = int(broken[0]) + rows.start, int(broken[1]), int(broken[2])
            sequence = int(batch.sequence[row])
            finding = Finding(
                _WHY[why].format(sequence=sequence, late=off),
                int(batch.event_id[row]),
                self._names.clients.label(int(batch.publisher[row])),
                self._names.topics.label(int(batch.topic[row])),
                int(batch.qos[row]),
                sequence,
                self._names.clients.label(int(batch.subscriber[row])),
            )
            self._tally.breaks("expiry", finding, int(found))

    def partial(self) -> Partial:
        """The result of the rows seen."""
        return self._tally.partial()


def expiry_verdict(partial: Partial, work: dict[str, float]) -> Verdict:
    """The verdict on `expiry`, from a part that covers the history."""
    return verdict_of(partial, "expiry", 0, work, ())
