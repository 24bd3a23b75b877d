"""What a server has in flight towards each subscriber: `packet-id` and `receive-maximum`, seen from outside.

Followed per subscriber from DELIVER (PUBLISH with QoS above 0), ACKNOWLEDGE (PUBACK, PUBCOMP), RECEIVE (a PUBREC that
refuses), TRIM, EXPIRE, CONNECT, DISCONNECT and CLEAR rows.

1. `packet-id`: a PUBLISH carries the identifier of an earlier message that is neither acknowledged nor removed, nor
   cleared with its session (MQTT-2.2.1-4). The same message again is a retransmission, wherever its identifier is.
2. `receive-maximum`: more PUBLISH packets are unacknowledged on one connection than its CONNECT allows (MQTT-3.3.4-9).
   A connection whose rows say nothing has `receive_maximum`, by default the protocol's 65,535 (3.1.2.11.3).

Antecedents: for 1 a new message while another one is in flight; for 2 a PUBLISH on a connection that is limited.

Complexity: O(rows) time; memory per identifier that was ever in use, and per client.

Assumes that packet identifiers are recorded: deliveries without one are counted and not followed. `receive-maximum` can
miss and not cry wolf: PUBLISH packets that never reached the subscriber are not in the rows, and a repeat counts once.
A PUBREL that is sent again after a reconnect does not count (4.9 does not count it). `packet-id` can miss likewise what
was under way when a connection was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orderlab.model.arrays import new_table, rows_with_room, slot_of, with_room
from orderlab.model.checkers.findings import Finding, LawTally, Partial, verdict_of
from orderlab.model.history.events import (
    ACKNOWLEDGE,
    CLEAR,
    CONNECT,
    DELIVER,
    DISCONNECT,
    EXPIRE,
    RECEIVE,
    REFUSED,
    TRIM,
    EventBatch,
    Names,
)
from orderlab.model.machine_code import njit
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.model.verdict import Verdict

LAWS = ("packet-id", "receive-maximum")
_ROWS_PER_CHUNK = 1 << 16

# Words of an entry: one per (subscriber, packet identifier) that was ever in use. None is ever removed: identifiers
# come again, at most 65,535 a subscriber, and a table without removals needs no marks of what was removed.
_PUBLISHER, _TOPIC, _QOS, _SEQUENCE, _EVENT, _SENT_IN, _CLEARS = range(7)
_FREE = -1  # as sequence: the identifier is not in use
# Words of a session: one per client.
_CONNECTION, _LIMIT, _HERE, _IN_USE, _CLEARED = range(5)

# Words of `numbers`.
_USED, _UNNAMED, _MET_ID, _FOUND_ID, _MET_MAXIMUM, _FOUND_MAXIMUM, _REUSED = range(7)
_WHY = {
    "packet-id": "{sequence} was sent under packet identifier {number}, which {other} had and was not done with",
    "receive-maximum": "{sequence} was sent while {number} packets were unacknowledged on a connection that "
    "allows {other}",
}


class InflightArrays(NamedTuple):
    """What compiled code reads and writes."""

    table: Any
    entries: Any
    sessions: Any
    numbers: Any
    broken: Any  # per law: row, packet identifier or packets in flight, sequence or limit, event of the other message


@njit(cache=True)
def _entry_of(state: Any, subscriber: Any, packet_id: Any) -> Any:
    """The entry of an identifier, made at its first use."""
    slot = slot_of(state.table, np.int64(subscriber), np.int64(packet_id))
    if state.table[slot, 2] < 0:
        state.table[slot, 0] = subscriber
        state.table[slot, 1] = packet_id
        state.table[slot, 2] = state.numbers[_USED]
        state.entries[state.numbers[_USED], _SEQUENCE] = _FREE
        state.numbers[_USED] += 1
    return state.table[slot, 2]


@njit(cache=True)
def _in_use(entry: Any, session: Any) -> Any:
    return entry[_SEQUENCE] != _FREE and entry[_CLEARS] == session[_CLEARED]


@njit(cache=True)
def _free(entry: Any, session: Any) -> None:
    """A message is acknowledged or removed."""
    if _in_use(entry, session):
        session[_IN_USE] -= 1
        if entry[_SENT_IN] == session[_CONNECTION]:
            session[_HERE] -= 1
    entry[_SEQUENCE] = _FREE


@njit(cache=True)
def _sent(state: Any, row: Any, entry: Any, session: Any, packet_id: Any, event_id: Any, message: Any) -> None:
    """A PUBLISH with QoS above 0."""
    numbers, broken = state.numbers, state.broken
    same = _in_use(entry, session)
    for word in range(4):
        same = same and entry[word] == message[word]
    if not same:
        if session[_IN_USE] > 0:
            numbers[_MET_ID] += 1
        if _in_use(entry, session):
            numbers[_FOUND_ID] += 1
            if broken[0, 0] < 0:
                broken[0, 0], broken[0, 1], broken[0, 2], broken[0, 3] = row, packet_id, entry[_SEQUENCE], entry[_EVENT]
            _free(entry, session)
        elif entry[_EVENT] >= 0:
            numbers[_REUSED] += 1
        for word in range(4):
            entry[word] = message[word]
        entry[_EVENT] = event_id
        entry[_CLEARS] = session[_CLEARED]
        entry[_SENT_IN] = -1
        session[_IN_USE] += 1
    if entry[_SENT_IN] != session[_CONNECTION]:
        entry[_SENT_IN] = session[_CONNECTION]
        session[_HERE] += 1
    if session[_LIMIT] < MODULUS:
        numbers[_MET_MAXIMUM] += 1
    if session[_HERE] > session[_LIMIT]:
        numbers[_FOUND_MAXIMUM] += 1
        if broken[1, 0] < 0:
            broken[1, 0], broken[1, 1], broken[1, 2] = row, session[_HERE] - 1, session[_LIMIT]


_COLUMNS = [
    "event_id",
    "kind",
    "publisher",
    "topic",
    "qos",
    "subscriber",
    "sequence",
    "packet_id",
    "retained",
    "delivered_qos",
    "receive_maximum",
    "reason_code",
]
"""Of the history, as ``_observe`` takes them."""


@njit(cache=True)
def _observe(state: Any, usual: Any, rows: Any) -> None:
    event_id, kind, publisher, topic, qos, subscriber, sequence, packet_id, retained = rows[:9]
    delivered_qos, receive_maximum, reason_code = rows[9:]
    sessions, entries = state.sessions, state.entries
    for row in range(len(kind)):
        what, who = kind[row], subscriber[row]
        if what == DELIVER:
            if qos[row] == 0 or delivered_qos[row] == 0:
                continue
            if packet_id[row] < 0:
                state.numbers[_UNNAMED] += 1
                continue
            level = np.int64(qos[row]) + (4 if retained[row] > 0 else 0)  # with RETAIN it is another message
            message = (np.int64(publisher[row]), np.int64(topic[row]), level, sequence[row])
            entry = _entry_of(state, who, packet_id[row])
            _sent(state, row, entries[entry], sessions[who], packet_id[row], event_id[row], message)
        elif what == ACKNOWLEDGE or (what == RECEIVE and reason_code[row] >= REFUSED):
            if packet_id[row] >= 0:
                _free(entries[_entry_of(state, who, packet_id[row])], sessions[who])
        elif what in (TRIM, EXPIRE):
            if packet_id[row] >= 0:
                entry = _entry_of(state, who, packet_id[row])
                if entries[entry, _SEQUENCE] == sequence[row] and entries[entry, _PUBLISHER] == publisher[row]:
                    _free(entries[entry], sessions[who])
        elif what == CLEAR:
            sessions[who, _CLEARED] += 1
            sessions[who, _HERE] = 0
            sessions[who, _IN_USE] = 0
        elif what in (CONNECT, DISCONNECT):
            sessions[who, _CONNECTION] += 1
            sessions[who, _HERE] = 0
            if what == CONNECT:
                sessions[who, _LIMIT] = receive_maximum[row] if receive_maximum[row] >= 0 else usual


class InflightChecker:
    """Folds batches in time order. Parts are merged by subscriber. ``receive_maximum``: of connections that say
    nothing."""

    laws = LAWS

    def __init__(self, names: Names, receive_maximum: int = MODULUS) -> None:
        self._names, self._usual = names, receive_maximum
        self._new_session = np.array([0, receive_maximum, 0, 0, 0], np.int64)
        self._state = InflightArrays(
            new_table(),
            np.full((256, 7), -1, np.int64),
            np.tile(self._new_session, (256, 1)),
            np.zeros(7, np.int64),
            np.full((2, 4), -1, np.int64),
        )
        self._tally = LawTally({"packet-id": 0, "receive-maximum": 0})

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        clients = int(batch.subscriber.max(initial=-1)) + 1
        for start in range(0, len(batch), _ROWS_PER_CHUNK):
            rows = slice(start, min(start + _ROWS_PER_CHUNK, len(batch)))
            self._make_room(rows.stop - start, clients)
            self._state.broken[:] = -1
            _observe(
                self._state,
                self._usual,
                batch.columns(_COLUMNS, rows),
            )
            self._note(batch, start)

    def _make_room(self, more: int, clients: int) -> None:
        state = self._state
        sessions = rows_with_room(state.sessions, clients)
        sessions[state.sessions.shape[0] :] = self._new_session
        used = int(state.numbers[_USED])
        self._state = state._replace(
            table=with_room(state.table, used, more),
            entries=rows_with_room(state.entries, used + more),
            sessions=sessions,
        )

    def _note(self, batch: EventBatch, start: int) -> None:
        """The first violations of a chunk, and what it has counted."""
        numbers = self._state.numbers
        for place, law in enumerate(LAWS):
            met, found = _MET_ID + 2 * place, _FOUND_ID + 2 * place
            self._tally.meets(law, int(numbers[met]))
            if numbers[found]:
                self._tally.breaks(
                    law, self._finding(batch, start, law, self._state.broken[place]), int(numbers[found])
                )
            numbers[met] = numbers[found] = 0

    def _finding(self, batch: EventBatch, start: int, law: str, broken: Any) -> Finding:
        row, number, other, other_event = (int(word) for word in broken)
        row += start
        sequence = int(batch.sequence[row])
        return Finding(
            _WHY[law].format(sequence=sequence, number=number, other=other),
            int(batch.event_id[row]),
            self._names.clients.label(int(batch.publisher[row])),
            self._names.topics.label(int(batch.topic[row])),
            int(batch.qos[row]),
            sequence,
            self._names.clients.label(int(batch.subscriber[row])),
            other_event if other_event >= 0 else None,
            other if other_event >= 0 else None,
        )

    def partial(self) -> Partial:
        """The result of the rows seen."""
        numbers = self._state.numbers
        self._tally.counts.update(
            {"inflight_without_packet_id": int(numbers[_UNNAMED]), "identifiers_used_again": int(numbers[_REUSED])}
        )
        return self._tally.partial()


def inflight_verdicts(partial: Partial, laws: Sequence[str], work: dict[str, float]) -> list[Verdict]:
    """The verdicts on those of LAWS that are asked for, from a part that covers the history."""
    unnamed = partial.counts["inflight_without_packet_id"]
    notes = [f"{unnamed} deliveries carry no packet identifier and are not followed"] if unnamed else []
    again = {"identifiers_used_again": partial.counts["identifiers_used_again"]}
    return [
        verdict_of(partial, law, 0, work | (again if law == "packet-id" else {}), notes) for law in laws if law in LAWS
    ]
