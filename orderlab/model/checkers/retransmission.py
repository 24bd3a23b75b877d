"""`retransmission`: what a session sends again after a reconnect, and how.

Followed per subscriber, by packet identifier, from DELIVER (PUBLISH), RECEIVE (PUBREC), RELEASE (PUBREL), ACKNOWLEDGE
(PUBACK, PUBCOMP), TRIM, EXPIRE, CONNECT, DISCONNECT and CLEAR rows. Broken when, of what was unacknowledged at a
reconnect,

1. a PUBLISH comes again without DUP, or under another packet identifier (MQTT-4.4.0-1, MQTT-3.3.1-1);
2. a PUBLISH comes again out of the original order, or a PUBREL out of the order of the PUBRECs (MQTT-4.6.0-1, -4);
3. a PUBLISH comes again although its sender has the PUBREC: that acknowledges it, and only what is unacknowledged goes
   again (MQTT-4.3.3-3, MQTT-4.4.0-1; after the PUBREL also MQTT-4.3.3-6);
4. something comes again although the connection was never lost (MQTT-4.4.0-1: at no other time);
5. one is skipped: a later one was resent and the connection ended, or the history ended while connected;

or when, of what was acknowledged before a reconnect,

6. a PUBLISH comes again under its packet identifier, or a PUBREL, although its sender has the PUBACK or PUBCOMP:
   unacknowledged it was until then (MQTT-4.3.2-3, MQTT-4.3.3-5), and nothing else goes again (MQTT-4.4.0-1). The
   receiver of a PUBACK's message takes it for a new one (MQTT-4.3.2-5).

Complexity: O(rows) time plus, for a DUP under an unknown identifier, the inflight window; memory O(inflight messages).

Assumes that packet identifiers are recorded, and for 4 and 5 that connections are. Rule 5 can cry wolf where a
recording stops in the middle of a resend without a cut row. It can miss: a copy of the message under a new identifier
without DUP is a new message on the wire; `exactly-once` sees it. So is one with DUP and QoS 1 behind the message
itself, sent again: a second copy (its publisher or its broker sent the message twice), whose first packet went with the
connection; what took the message's own place is none. Of a client that has subscribed to several filters, which may
overlap (3.3.4), that goes for QoS 2 as well. Rule 6 takes the same message under the same identifier for the same copy,
but where there may be another: without DUP, of a client with several filters or of a message that its publisher has
sent again. A message with RETAIN under another identifier is another one too, since each SUBSCRIBE may be answered with
it.

What leaves the queue, trimmed or expired, need not be sent again (where the row has no identifier, what comes with DUP
all the same keeps its place in the order: another copy has left); nor what does so while its packet is on its way: TRIM
or EXPIRE, then DELIVER under the same identifier on the same connection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orderlab.model.arrays import new_table, rows_with_room, slot_of, with_room
from orderlab.model.checkers.findings import Finding, LawTally, Partial, verdict_of
from orderlab.model.history.events import (
    ACKNOWLEDGE,
    CLEAR,
    CONNECT,
    CUT,
    DELIVER,
    DISCONNECT,
    EXPIRE,
    PUBLISH,
    RECEIVE,
    REFUSED,
    RELEASE,
    SUBSCRIBE,
    EventBatch,
    Names,
)
from orderlab.model.machine_code import njit
from orderlab.model.verdict import Verdict

LAWS = ("retransmission",)
_ROWS_PER_CHUNK = 1 << 16

# Words of an entry: one per (subscriber, packet identifier) that was ever in use. None is ever removed: identifiers
# come again, at most 65,535 a subscriber, and a table without removals needs no marks of what was removed.
_PUBLISHER, _TOPIC, _QOS, _SEQUENCE, _STAGE, _ORDER, _SENT_IN, _EVENT, _NEXT, _PREVIOUS, _OWNER, _ID, _RESENT_IN = (
    range(13)
)
_ENTRY = 13
_FREE, _SENT, _PUBREC, _PUBREL = 0, 1, 2, 3  # stages
_DONE = 5  # the stage of what was acknowledged, in the connection that _SENT_IN holds; it is in no list either
_GONE = 4  # the stage of what left the queue and may be on its way; it is in no list, as nothing is owed
_RETAINED = 4  # added to the QoS of a message that carries RETAIN: that is another message than the one without
# Words of a session: one per client.
_CONNECTION, _CONNECTED, _LAST_PUBLISH, _LAST_PUBREL, _HEAD, _CLEARED_IN, _CUT_OFF, _FILTER = range(8)
# Taken as connected: a recording may begin in the middle.
_NEW_SESSION = np.array([0, 1, -1, -1, -1, -1, 0, -1], dtype=np.int64)

_SEVERAL = -2  # in place of the one filter that the client has subscribed to
# Words of `numbers`: entries in use, send order, antecedents, violations, cuts, deliveries without identifier, messages
# that were published again.
_USED, _CLOCK, _MET, _FOUND, _CUTS, _UNNAMED, _AGAIN = range(7)

_WHY = (
    "{sequence} was sent again without DUP",
    "{sequence} was sent again under another packet identifier than {identifier}",
    "{sequence} was sent again after one that had been sent after it",
    "the PUBREL of {sequence} was sent again after one whose PUBREC came later",
    "{sequence} was sent again although its PUBREC had been sent",
    "{sequence} was sent again although the connection had not been lost",
    "{sequence} was unacknowledged and was not sent again",
    "{sequence} was sent again although it had been acknowledged before the connection was made",
    "the PUBREL of {sequence} was sent again although its PUBCOMP had come before the connection was made",
)
(
    _NO_DUP,
    _OTHER_ID,
    _ORDER_BROKEN,
    _PUBREL_ORDER,
    _AFTER_PUBREC,
    _NO_RECONNECT,
    _SKIPPED,
    _AFTER_PUBACK,
    _AFTER_PUBCOMP,
) = range(9)


class ResendArrays(NamedTuple):
    """What compiled code reads and writes."""

    table: Any
    again: Any  # (publisher << 32 | topic, sequence << 2 | QoS) of what was published again
    entries: Any
    sessions: Any
    numbers: Any
    broken: Any  # event id, why, then the entry's words


@njit(cache=True)
def _breaks(state: Any, event_id: Any, why: Any, entry: Any) -> None:
    state.numbers[_FOUND] += 1
    if state.broken[0] < 0:
        state.broken[0] = event_id
        state.broken[1] = why
        for word in range(_ENTRY):
            state.broken[2 + word] = state.entries[entry, word]


@njit(cache=True)
def _unlink(state: Any, entry: Any) -> None:
    entries = state.entries
    after, before = entries[entry, _NEXT], entries[entry, _PREVIOUS]
    if before >= 0:
        entries[before, _NEXT] = after
    else:
        state.sessions[entries[entry, _OWNER], _HEAD] = after
    if after >= 0:
        entries[after, _PREVIOUS] = before
    entries[entry, _STAGE] = _FREE


@njit(cache=True)
def _is_unacknowledged(state: Any, entry: Any) -> Any:
    """Whether the entry is in its session's list."""
    return state.entries[entry, _STAGE] >= _SENT and state.entries[entry, _STAGE] <= _PUBREL


@njit(cache=True)
def _acknowledge(state: Any, entry: Any, subscriber: Any) -> None:
    _unlink(state, entry)
    state.entries[entry, _STAGE] = _DONE
    state.entries[entry, _SENT_IN] = state.sessions[subscriber, _CONNECTION]
    state.entries[entry, _OWNER] = subscriber


@njit(cache=True)
def _again_after_the_end(state: Any, entry: Any, event_id: Any, why: Any) -> None:
    """Rule 6: something comes again of what was acknowledged."""
    session, acknowledged_in = state.sessions[state.entries[entry, _OWNER]], state.entries[entry, _SENT_IN]
    if session[_CLEARED_IN] < acknowledged_in and acknowledged_in < session[_CONNECTION]:
        state.numbers[_MET] += 1
        _breaks(state, event_id, why, entry)
        state.entries[entry, _SENT_IN] = session[_CONNECTION]


@njit(cache=True)
def _close_connection(state: Any, subscriber: Any, event_id: Any, ended: Any) -> None:
    """Rule 5, when a connection ends (`ended` 0) or the history does while it is up (1)."""
    entries, session = state.entries, state.sessions[subscriber]
    connection, last_publish, last_pubrel = session[_CONNECTION], session[_LAST_PUBLISH], session[_LAST_PUBREL]
    entry = session[_HEAD]
    while entry >= 0:
        if entries[entry, _SENT_IN] < connection:
            last = last_publish if entries[entry, _STAGE] == _SENT else last_pubrel
            if ended == 1 or entries[entry, _ORDER] < last:
                state.numbers[_MET] += 1
                _breaks(state, event_id, _SKIPPED, entry)
        entry = entries[entry, _NEXT]


@njit(cache=True)
def _same_message(state: Any, entry: Any, publisher: Any, topic: Any, qos: Any, sequence: Any) -> Any:
    words = state.entries[entry]
    return (
        words[_SEQUENCE] == sequence
        and words[_PUBLISHER] == publisher
        and words[_TOPIC] == topic
        and words[_QOS] == qos
    )


@njit(cache=True)
def _find_message(state: Any, subscriber: Any, publisher: Any, topic: Any, qos: Any, sequence: Any) -> Any:
    entry = state.sessions[subscriber, _HEAD]
    while entry >= 0 and not _same_message(state, entry, publisher, topic, qos, sequence):
        entry = state.entries[entry, _NEXT]
    return entry


@njit(cache=True)
def _next_of_message(state: Any, entry: Any, publisher: Any, topic: Any, qos: Any, sequence: Any) -> Any:
    entry = state.entries[entry, _NEXT]
    while entry >= 0 and not _same_message(state, entry, publisher, topic, qos, sequence):
        entry = state.entries[entry, _NEXT]
    return entry


@njit(cache=True)
def _slot_again(state: Any, publisher: Any, topic: Any, qos: Any, sequence: Any) -> Any:
    return slot_of(state.again, (np.int64(publisher) << 32) | np.int64(topic), (sequence << 2) | np.int64(qos))


@njit(cache=True)
def _published_again(state: Any, publisher: Any, topic: Any, qos: Any, sequence: Any) -> None:
    slot = _slot_again(state, publisher, topic, qos, sequence)
    if state.again[slot, 2] < 0:
        state.again[slot, 0] = (np.int64(publisher) << 32) | np.int64(topic)
        state.again[slot, 1] = (sequence << 2) | np.int64(qos)
        state.again[slot, 2] = 0
        state.numbers[_AGAIN] += 1


@njit(cache=True)
def _has_copies(state: Any, subscriber: Any, message: Any) -> Any:
    """Whether the subscriber may be sent several copies of a message: for several filters, or as its publisher sent it
    again."""
    publisher, topic, qos, sequence = message
    return (
        state.sessions[subscriber, _FILTER] == _SEVERAL
        or state.again[_slot_again(state, publisher, topic, qos & 3, sequence), 2] >= 0
    )


@njit(cache=True)
def _is_other_copy(state: Any, entry: Any, qos: Any) -> Any:
    """Whether what comes with DUP under another identifier may be another copy of an entry's message, whose first
    packet went with a connection."""
    overlaps = state.sessions[state.entries[entry, _OWNER], _FILTER] == _SEVERAL
    return ((qos == 1 or overlaps) and _was_resent(state, entry)) or (overlaps and state.entries[entry, _STAGE] > _SENT)


@njit(cache=True)
def _was_resent(state: Any, entry: Any) -> Any:
    """Whether a PUBLISH has come again over the present connection, or came with DUP for the first time."""
    connection = state.sessions[state.entries[entry, _OWNER], _CONNECTION]
    return connection > 0 and state.entries[entry, _STAGE] == _SENT and state.entries[entry, _RESENT_IN] == connection


@njit(cache=True)
def _entry_of(state: Any, subscriber: Any, packet_id: Any) -> Any:
    """The entry of an identifier, made at its first use."""
    slot = slot_of(state.table, np.int64(subscriber), np.int64(packet_id))
    if state.table[slot, 2] < 0:
        state.table[slot, 0] = subscriber
        state.table[slot, 1] = packet_id
        state.table[slot, 2] = state.numbers[_USED]
        state.entries[state.numbers[_USED], _STAGE] = _FREE
        state.numbers[_USED] += 1
    return state.table[slot, 2]


@njit(cache=True)
def _note_gone(state: Any, subscriber: Any, packet_id: Any, message: Any) -> None:
    entry = _entry_of(state, subscriber, packet_id)
    entries = state.entries
    if not _is_unacknowledged(state, entry):
        for word in range(4):
            entries[entry, word] = message[word]
        entries[entry, _STAGE] = _GONE
        entries[entry, _SENT_IN] = state.sessions[subscriber, _CONNECTION]


@njit(cache=True)
def _start(state: Any, entry: Any, subscriber: Any, packet_id: Any, event_id: Any, dup: Any, message: Any) -> None:
    entries, sessions = state.entries, state.sessions
    if _is_unacknowledged(state, entry):
        _unlink(state, entry)
    head = sessions[subscriber, _HEAD]
    for word in range(4):
        entries[entry, word] = message[word]
    state.numbers[_CLOCK] += 1
    entries[entry, _STAGE] = _SENT
    entries[entry, _ORDER] = state.numbers[_CLOCK]
    entries[entry, _SENT_IN] = sessions[subscriber, _CONNECTION]
    entries[entry, _EVENT] = event_id
    entries[entry, _NEXT] = head
    entries[entry, _PREVIOUS] = -1
    entries[entry, _OWNER] = subscriber
    entries[entry, _ID] = packet_id
    entries[entry, _RESENT_IN] = sessions[subscriber, _CONNECTION] if dup > 0 else -1
    if head >= 0:
        entries[head, _PREVIOUS] = entry
    sessions[subscriber, _HEAD] = entry


@njit(cache=True)
def _sent_again(state: Any, entry: Any, event_id: Any, dup: Any) -> None:
    """A PUBLISH whose message and identifier are unacknowledged."""
    entries, session = state.entries, state.sessions[state.entries[entry, _OWNER]]
    state.numbers[_MET] += 1
    if entries[entry, _STAGE] != _SENT:
        _breaks(state, event_id, _AFTER_PUBREC, entry)
        return
    if dup <= 0:
        _breaks(state, event_id, _NO_DUP, entry)
    if session[_CONNECTION] > 0:
        if entries[entry, _SENT_IN] == session[_CONNECTION]:
            _breaks(state, event_id, _NO_RECONNECT, entry)
        elif entries[entry, _ORDER] < session[_LAST_PUBLISH]:
            _breaks(state, event_id, _ORDER_BROKEN, entry)
        session[_LAST_PUBLISH] = max(session[_LAST_PUBLISH], entries[entry, _ORDER])
        entries[entry, _SENT_IN] = entries[entry, _RESENT_IN] = session[_CONNECTION]


@njit(cache=True)
def _released(state: Any, entry: Any, event_id: Any) -> None:
    """A PUBREL: the first one of its message, or one that comes again."""
    entries, session = state.entries, state.sessions[state.entries[entry, _OWNER]]
    if entries[entry, _STAGE] == _SENT:  # its PUBREC was not recorded
        state.numbers[_CLOCK] += 1
        entries[entry, _ORDER] = state.numbers[_CLOCK]
        entries[entry, _SENT_IN] = session[_CONNECTION]
    elif entries[entry, _STAGE] == _PUBREL and entries[entry, _SENT_IN] == session[_CONNECTION]:
        if session[_CONNECTION] > 0:
            state.numbers[_MET] += 1
            _breaks(state, event_id, _NO_RECONNECT, entry)
    elif session[_CONNECTION] > 0 and entries[entry, _SENT_IN] < session[_CONNECTION]:
        state.numbers[_MET] += 1
        if entries[entry, _ORDER] < session[_LAST_PUBREL]:
            _breaks(state, event_id, _PUBREL_ORDER, entry)
        session[_LAST_PUBREL] = max(session[_LAST_PUBREL], entries[entry, _ORDER])
        entries[entry, _SENT_IN] = session[_CONNECTION]
    entries[entry, _STAGE] = _PUBREL


@njit(cache=True)
def _delivered(state: Any, subscriber: Any, packet_id: Any, event_id: Any, dup: Any, message: Any) -> None:
    entry = _entry_of(state, subscriber, packet_id)
    publisher, topic, qos, sequence = message
    order = np.int64(-1)
    if _same_message(state, entry, publisher, topic, qos, sequence):
        stage = state.entries[entry, _STAGE]
        if _is_unacknowledged(state, entry):
            _sent_again(state, entry, event_id, dup)
            return
        state.entries[entry, _STAGE] = _FREE
        if stage == _DONE:
            if dup > 0 or not _has_copies(state, subscriber, message):
                _again_after_the_end(state, entry, event_id, _AFTER_PUBACK)
        elif stage == _GONE:
            if state.entries[entry, _SENT_IN] == state.sessions[subscriber, _CONNECTION]:
                return
        elif dup > 0 and state.sessions[subscriber, _CLEARED_IN] < state.entries[entry, _SENT_IN]:
            order = state.entries[entry, _ORDER]
    if dup > 0 and qos < _RETAINED and order < 0:
        other = _find_message(state, subscriber, publisher, topic, qos, sequence)
        while other >= 0 and _is_other_copy(state, other, qos):
            other = _next_of_message(state, other, publisher, topic, qos, sequence)
        if other >= 0:
            state.numbers[_MET] += 1
            _breaks(state, event_id, _OTHER_ID, other)
            _unlink(state, other)
            state.entries[other, _ORDER] = -1
    _start(state, entry, subscriber, packet_id, event_id, dup, message)
    if order >= 0:
        state.entries[entry, _ORDER] = order


_COLUMNS = [
    "event_id",
    "kind",
    "publisher",
    "topic",
    "qos",
    "subscriber",
    "sequence",
    "packet_id",
    "dup",
    "retained",
    "delivered_qos",
    "reason_code",
]
"""Of the history, as ``_observe`` takes them."""


@njit(cache=True)
def _observe(state: Any, rows: Any) -> None:  # noqa: C901
    event_id, kind, publisher, topic, qos, subscriber, sequence, packet_id, dup = rows[:9]
    retained, delivered_qos, reason_code = rows[9:]
    sessions, numbers, entries = state.sessions, state.numbers, state.entries
    for row in range(len(kind)):
        what, who = kind[row], subscriber[row]
        if what == DELIVER:
            if qos[row] == 0 or delivered_qos[row] == 0:
                continue
            if packet_id[row] < 0:
                numbers[_UNNAMED] += 1
                continue
            level = np.int64(qos[row]) | (_RETAINED if retained[row] > 0 else 0)
            message = (np.int64(publisher[row]), np.int64(topic[row]), level, sequence[row])
            _delivered(state, who, packet_id[row], event_id[row], dup[row], message)
        elif what >= RECEIVE and what <= ACKNOWLEDGE and packet_id[row] >= 0:
            entry = _entry_of(state, who, packet_id[row])
            if not _is_unacknowledged(state, entry):
                if what == RELEASE and entries[entry, _STAGE] == _DONE:
                    _again_after_the_end(state, entry, event_id[row], _AFTER_PUBCOMP)
                continue
            if what == ACKNOWLEDGE or (what == RECEIVE and reason_code[row] >= REFUSED):
                _acknowledge(state, entry, who)
            elif what == RELEASE:
                _released(state, entry, event_id[row])
            elif entries[entry, _STAGE] == _SENT:
                numbers[_CLOCK] += 1
                entries[entry, _STAGE] = _PUBREC
                entries[entry, _ORDER] = numbers[_CLOCK]
                entries[entry, _SENT_IN] = sessions[who, _CONNECTION] if sessions[who, _CONNECTED] else -1
        elif what >= ACKNOWLEDGE and what <= EXPIRE and sequence[row] >= 0:
            level = np.int64(qos[row]) | (_RETAINED if retained[row] > 0 else 0)
            entry = _find_message(state, who, publisher[row], topic[row], level, sequence[row])
            if entry >= 0 and what == ACKNOWLEDGE:
                _acknowledge(state, entry, who)
            elif entry >= 0:
                _unlink(state, entry)
                if packet_id[row] >= 0:
                    entries[entry, _ORDER] = -1
            elif what != ACKNOWLEDGE and packet_id[row] >= 0:
                message = (np.int64(publisher[row]), np.int64(topic[row]), level, sequence[row])
                _note_gone(state, who, packet_id[row], message)
        elif what == CLEAR:
            while sessions[who, _HEAD] >= 0:
                _unlink(state, sessions[who, _HEAD])
            sessions[who, _CLEARED_IN] = sessions[who, _CONNECTION]
            sessions[who, _FILTER] = -1
        elif what in (CONNECT, DISCONNECT):
            if sessions[who, _CONNECTION] > 0 and sessions[who, _CONNECTED]:
                _close_connection(state, who, event_id[row], 0)
            sessions[who, _CONNECTED] = 0
            if what == CONNECT:
                sessions[who, _CONNECTION] += 1
                sessions[who, _CONNECTED] = 1
                sessions[who, _LAST_PUBLISH] = -1
                sessions[who, _LAST_PUBREL] = -1
                sessions[who, _CUT_OFF] = 0
        elif what == SUBSCRIBE:
            filter_code = np.int64(topic[row])
            sessions[who, _FILTER] = (
                filter_code if sessions[who, _FILTER] == -1 or sessions[who, _FILTER] == filter_code else _SEVERAL
            )
        elif what == PUBLISH:
            if dup[row] > 0:
                _published_again(state, publisher[row], topic[row], qos[row], sequence[row])
        elif what == CUT and who >= 0:
            sessions[who, _CUT_OFF] = 1
        elif what == CUT:
            numbers[_CUTS] += 1


class RetransmissionChecker:
    """Folds batches in time order. Parts are merged by subscriber."""

    laws = LAWS

    def __init__(self, names: Names) -> None:
        self._names = names
        self._state = ResendArrays(
            new_table(),
            new_table(),
            np.full((256, _ENTRY), -1, np.int64),
            np.tile(_NEW_SESSION, (256, 1)),
            np.zeros(7, np.int64),
            np.full(2 + _ENTRY, -1, np.int64),
        )

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        clients = int(batch.subscriber.max(initial=-1)) + 1
        for start in range(0, len(batch), _ROWS_PER_CHUNK):
            rows = slice(start, min(start + _ROWS_PER_CHUNK, len(batch)))
            state, more = self._state, rows.stop - start
            sessions = rows_with_room(state.sessions, clients)
            sessions[state.sessions.shape[0] :] = _NEW_SESSION
            self._state = state._replace(
                table=with_room(state.table, int(state.numbers[_USED]), more),
                again=with_room(
                    state.again,
                    int(state.numbers[_AGAIN]),
                    int(((batch.kind[rows] == PUBLISH) & (batch.dup[rows] > 0)).sum()),
                ),
                entries=rows_with_room(state.entries, int(state.numbers[_USED]) + more),
                sessions=sessions,
            )
            _observe(
                self._state,
                batch.columns(_COLUMNS, rows),
            )

    def partial(self) -> Partial:
        """The result of the rows seen, as if the history ended here."""
        state, tally = self._state, LawTally()
        tally.counts["without_packet_id"] = int(state.numbers[_UNNAMED])
        tally.meets("retransmission", int(state.numbers[_MET]))
        if state.numbers[_FOUND]:
            tally.breaks("retransmission", self._finding(state.broken), int(state.numbers[_FOUND]))
        if state.numbers[_CUTS] == 0:
            self._missing_at_the_end(tally)
        return tally.partial()

    def _missing_at_the_end(self, tally: LawTally) -> None:
        sessions = self._state.sessions
        waiting = (
            (sessions[:, _CONNECTION] > 0)
            & (sessions[:, _CONNECTED] == 1)
            & (sessions[:, _HEAD] >= 0)
            & (sessions[:, _CUT_OFF] == 0)
        )
        for subscriber in np.flatnonzero(waiting).tolist():
            end = self._state._replace(numbers=np.zeros(7, np.int64), broken=np.full(2 + _ENTRY, -1, np.int64))
            _close_connection(end, subscriber, 0, 1)
            if end.numbers[_FOUND]:
                tally.meets("retransmission", int(end.numbers[_MET]))
                tally.breaks("retransmission", self._finding(end.broken, at_the_end=True), int(end.numbers[_FOUND]))

    def _finding(self, broken: Any, at_the_end: bool = False) -> Finding:
        event_id, why, *entry = (int(word) for word in broken)
        sequence = entry[_SEQUENCE]
        return Finding(
            _WHY[why].format(sequence=sequence, identifier=entry[_ID]),
            None if at_the_end else event_id,
            self._names.clients.label(entry[_PUBLISHER]),
            self._names.topics.label(entry[_TOPIC]),
            entry[_QOS] & ~_RETAINED,
            sequence,
            self._names.clients.label(entry[_OWNER]),
            entry[_EVENT],
        )


def retransmission_verdict(partial: Partial, work: dict[str, float]) -> Verdict:
    """The verdict on `retransmission`, from a part that covers the history."""
    notes = []
    if partial.counts["without_packet_id"]:
        notes.append(
            f"{partial.counts['without_packet_id']} deliveries carry no packet identifier and are not followed"
        )
    return verdict_of(partial, "retransmission", 0, work, notes)
