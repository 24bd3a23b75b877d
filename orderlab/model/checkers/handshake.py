"""`handshake`: the order of the packets by which a QoS 2 message is handed to a subscriber (MQTT 5.0, 4.3.3 and figure
4.3).

Followed per subscriber, by packet identifier, from DELIVER (PUBLISH with QoS 2), RECEIVE (PUBREC), RELEASE (PUBREL) and
ACKNOWLEDGE (PUBCOMP) rows. Broken by

1. a PUBREL to the subscriber before a PUBREC for the PUBLISH has come (MQTT-4.3.3-4), or again on the connection on
   which its PUBCOMP came;
2. a PUBCOMP before the PUBREL (MQTT-4.3.3-11);
3. a PUBREC for what was not published with QoS 2 (MQTT-4.3.3-8).

A PUBREL or PUBREC for what was published before the session was cleared is broken by 1 or 3 once the connection of that
time is gone. What comes again after a reconnect is the matter of `retransmission`, an identifier that is taken while it
is in use that of `packet-id`: from there on, until a PUBCOMP, nothing is said of that identifier. Nor is it of a
message that leaves the queue (TRIM, EXPIRE) while it is in flight, and of a PUBREC with a Reason Code of 128 or more
(`reason_code`), which ends the exchange.

Antecedents: PUBREC, PUBREL and PUBCOMP rows of a PUBLISH that the recording has.

Assumes that a PUBREC row is not older than the packet, and a PUBREL or PUBCOMP row not younger than the next packet of
its exchange, which those of the subscriber and those of the broker are. Rule 1 is judged in histories with RECEIVE
rows, rule 2 in those with RELEASE rows. One-sided: an identifier whose PUBLISH is not in the rows, of a session that
may be older than the recording, says nothing; nor do ACKNOWLEDGE rows without identifier.

Complexity: O(rows) time; memory per identifier that QoS 2 ever used, and per client. Parts are merged by subscriber.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orderlab.model.arrays import new_table, rows_with_room, slot_of, with_room
from orderlab.model.checkers.findings import Finding, LawTally, Partial, Shows, verdict_of
from orderlab.model.history.events import (
    ACKNOWLEDGE,
    CLEAR,
    CONNECT,
    DELIVER,
    DISCONNECT,
    EXPIRE,
    RECEIVE,
    REFUSED,
    RELEASE,
    TRIM,
    EventBatch,
    Names,
)
from orderlab.model.machine_code import njit
from orderlab.model.verdict import Verdict

LAW = "handshake"
LAWS = (LAW,)
_ROWS_PER_CHUNK = 1 << 16

# Words of an entry: one per (subscriber, packet identifier) that QoS 2 ever used. None is ever removed.
_PUBLISHER, _TOPIC, _LEVEL, _SEQUENCE, _STAGE, _EVENT, _SESSION, _LOST, _RELEASED_IN, _WHO, _ID = range(11)
_ENTRY = 11
# Stages; of a silent one nothing is known, of a mixed one too much.
_SILENT, _MIXED, _PUBLISHED, _RECEIVED, _RELEASED, _DONE = range(6)
# Words of a session: one per client. How often it was cleared, connected and disconnected; how often connected when it
# was last cleared; the last PUBREC and PUBREL rows.
_CLEARS, _CONNECTS, _DISCONNECTS, _CONNECTS_AT_CLEAR, _LAST_RECEIVE, _LAST_RELEASE = range(6)
_NEW_SESSION = np.array([0, 0, 0, 0, -1, -1], np.int64)
# Words of `numbers`: entries in use, rows by kind; then antecedents and violations of each rule.
_USED, _RECEIVES, _RELEASES, _MET, _FOUND = 0, 1, 2, 3, 6
_PUBREL, _PUBCOMP, _PUBREC = range(3)
_RULES = ("handshake-pubrel", "handshake-pubcomp", "handshake-pubrec")

_SAYS = (
    "PUBREL {identifier} of {sequence} was sent before its PUBREC had come",
    "PUBREL {identifier} of {sequence} was sent again on the connection on which its PUBCOMP had come",
    "PUBREL {identifier} was sent although nothing was published under it in this session",
    "PUBCOMP {identifier} of {sequence} came before its PUBREC",
    "PUBCOMP {identifier} of {sequence} came before its PUBREL was sent",
    "PUBREC {identifier} came although its message, {sequence}, was complete",
    "PUBREC {identifier} came although nothing was published under it in this session",
)
_BEFORE_PUBREC, _AFTER_PUBCOMP, _FROM_NOWHERE, _TWO_EARLY, _ONE_EARLY, _LATE_PUBREC, _TO_NOTHING = range(7)


class HandshakeArrays(NamedTuple):
    """What compiled code reads and writes."""

    table: Any
    entries: Any
    sessions: Any
    numbers: Any
    broken: Any  # per rule: event, why, event of the other row, then the entry's words


@njit(cache=True)
def _entry_of(state: Any, subscriber: Any, packet_id: Any) -> Any:
    """The entry of an identifier, made at its first use."""
    slot = slot_of(state.table, np.int64(subscriber), np.int64(packet_id))
    if state.table[slot, 2] < 0:
        entry = state.numbers[_USED]
        state.numbers[_USED] += 1
        state.table[slot, 0] = subscriber
        state.table[slot, 1] = packet_id
        state.table[slot, 2] = entry
        state.entries[entry, _STAGE] = _SILENT
        state.entries[entry, _SESSION] = -1
        state.entries[entry, _WHO] = subscriber
        state.entries[entry, _ID] = packet_id
    return state.table[slot, 2]


@njit(cache=True)
def _breaks(state: Any, rule: Any, event_id: Any, why: Any, other: Any, entry: Any) -> None:
    state.numbers[_FOUND + rule] += 1
    broken = state.broken[rule]
    if broken[0] < 0:
        broken[0], broken[1], broken[2] = event_id, why, other
        for word in range(_ENTRY):
            broken[3 + word] = state.entries[entry, word]


@njit(cache=True)
def _same(entry: Any, publisher: Any, topic: Any, level: Any, sequence: Any) -> Any:
    return (
        entry[_SEQUENCE] == sequence
        and entry[_PUBLISHER] == publisher
        and entry[_TOPIC] == topic
        and entry[_LEVEL] == level
    )


@njit(cache=True)
def _is_open(entry: Any) -> Any:
    return entry[_STAGE] >= _PUBLISHED and entry[_STAGE] <= _RELEASED


@njit(cache=True)
def _published(entry: Any, session: Any, event_id: Any, publisher: Any, topic: Any, level: Any, sequence: Any) -> None:
    """A PUBLISH with QoS 2."""
    if entry[_SESSION] == session[_CLEARS]:
        if entry[_STAGE] == _MIXED:
            return
        if _is_open(entry):
            if not _same(entry, publisher, topic, level, sequence):
                entry[_STAGE] = _MIXED
            return
    entry[_PUBLISHER], entry[_TOPIC], entry[_LEVEL], entry[_SEQUENCE] = publisher, topic, level, sequence
    entry[_STAGE] = _PUBLISHED
    entry[_EVENT] = event_id
    entry[_SESSION] = session[_CLEARS]
    entry[_RELEASED_IN] = -1


@njit(cache=True)
def _is_of_nothing(entry: Any, session: Any) -> Any:
    """Whether what belongs to this entry cannot be of the present session, of which the recording has everything."""
    if session[_CLEARS] == 0 or session[_CONNECTS] <= session[_CONNECTS_AT_CLEAR]:
        return False
    if entry[_SESSION] < 0:
        return True
    return entry[_SESSION] < session[_CLEARS] and entry[_LOST] < session[_DISCONNECTS]


@njit(cache=True)
def _received(state: Any, entry: Any, session: Any, event_id: Any, reason_code: Any) -> None:
    """A PUBREC."""
    words = state.entries[entry]
    if words[_SESSION] == session[_CLEARS]:
        if _is_open(words):
            state.numbers[_MET + _PUBREC] += 1
            words[_STAGE] = max(words[_STAGE], _RECEIVED)
            if reason_code >= REFUSED:
                words[_STAGE] = _SILENT
        elif words[_STAGE] == _DONE:
            state.numbers[_MET + _PUBREC] += 1
            _breaks(state, _PUBREC, event_id, _LATE_PUBREC, words[_EVENT], entry)
    elif _is_of_nothing(words, session):
        state.numbers[_MET + _PUBREC] += 1
        _breaks(state, _PUBREC, event_id, _TO_NOTHING, words[_EVENT], entry)


@njit(cache=True)
def _released(state: Any, entry: Any, session: Any, event_id: Any) -> None:
    """A PUBREL."""
    words, other = state.entries[entry], session[_LAST_RECEIVE]
    if words[_SESSION] == session[_CLEARS]:
        if _is_open(words):
            state.numbers[_MET + _PUBREL] += 1
            if words[_STAGE] == _PUBLISHED:
                _breaks(state, _PUBREL, event_id, _BEFORE_PUBREC, other, entry)
            words[_STAGE] = _RELEASED
            words[_RELEASED_IN] = session[_CONNECTS]
        elif words[_STAGE] == _DONE and session[_CONNECTS] > 0 and words[_RELEASED_IN] == session[_CONNECTS]:
            state.numbers[_MET + _PUBREL] += 1
            _breaks(state, _PUBREL, event_id, _AFTER_PUBCOMP, other, entry)
    elif _is_of_nothing(words, session):
        state.numbers[_MET + _PUBREL] += 1
        _breaks(state, _PUBREL, event_id, _FROM_NOWHERE, other, entry)


@njit(cache=True)
def _completed(state: Any, entry: Any, session: Any, event_id: Any) -> None:
    """A PUBCOMP."""
    words = state.entries[entry]
    if words[_SESSION] != session[_CLEARS]:
        return
    if _is_open(words):
        state.numbers[_MET + _PUBCOMP] += 1
        if words[_STAGE] != _RELEASED:
            _breaks(
                state,
                _PUBCOMP,
                event_id,
                _TWO_EARLY if words[_STAGE] == _PUBLISHED else _ONE_EARLY,
                session[_LAST_RELEASE],
                entry,
            )
    words[_STAGE] = _DONE if words[_STAGE] >= _PUBLISHED else _SILENT


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
    "reason_code",
]
"""Of the history, as ``_observe`` takes them."""


@njit(cache=True)
def _observe(state: Any, rows: Any) -> None:
    event_id, kind, publisher, topic, qos, subscriber, sequence, packet_id, retained, delivered_qos, reason_code = rows
    table, entries, sessions, numbers = state.table, state.entries, state.sessions, state.numbers
    for row in range(len(kind)):
        what, who = kind[row], subscriber[row]
        if what in (CONNECT, DISCONNECT):
            sessions[who, _CONNECTS if what == CONNECT else _DISCONNECTS] += 1
        elif what == CLEAR:
            sessions[who, _CLEARS] += 1
            sessions[who, _CONNECTS_AT_CLEAR] = sessions[who, _CONNECTS]
        elif packet_id[row] < 0:
            continue
        elif what in (RECEIVE, RELEASE):
            entry, session = _entry_of(state, who, packet_id[row]), sessions[who]
            if what == RECEIVE:
                numbers[_RECEIVES] += 1
                _received(state, entry, session, event_id[row], reason_code[row])
                session[_LAST_RECEIVE] = event_id[row]
            else:
                numbers[_RELEASES] += 1
                _released(state, entry, session, event_id[row])
                session[_LAST_RELEASE] = event_id[row]
            entries[entry, _LOST] = session[_DISCONNECTS]
        elif what == DELIVER and (delivered_qos[row] if delivered_qos[row] >= 0 else qos[row]) == 2:
            entry = _entry_of(state, who, packet_id[row])
            # Of the publish; with RETAIN it is another message.
            level = np.int64(qos[row]) * 2 + (1 if retained[row] > 0 else 0)
            _published(entries[entry], sessions[who], event_id[row], publisher[row], topic[row], level, sequence[row])
            entries[entry, _LOST] = sessions[who, _DISCONNECTS]
        elif numbers[_USED] > 0 and what in (DELIVER, ACKNOWLEDGE, TRIM, EXPIRE):
            entry = table[slot_of(table, np.int64(who), np.int64(packet_id[row])), 2]
            if entry < 0:
                continue
            if what == ACKNOWLEDGE:
                _completed(state, entry, sessions[who], event_id[row])
            elif what == DELIVER:  # with QoS 1: its PUBACK is no PUBCOMP
                if _is_open(entries[entry]) and (delivered_qos[row] if delivered_qos[row] >= 0 else qos[row]) == 1:
                    entries[entry, _STAGE] = _MIXED
            elif (
                _is_open(entries[entry])
                and entries[entry, _SEQUENCE] == sequence[row]
                and entries[entry, _PUBLISHER] == publisher[row]
            ):
                entries[entry, _STAGE] = _SILENT


class HandshakeChecker:
    """Folds batches in time order. Parts are merged by subscriber."""

    laws = LAWS

    def __init__(self, names: Names) -> None:
        self._names = names
        self._state = HandshakeArrays(
            new_table(),
            np.full((256, _ENTRY), -1, np.int64),
            np.tile(_NEW_SESSION, (256, 1)),
            np.zeros(9, np.int64),
            np.full((3, 3 + _ENTRY), -1, np.int64),
        )

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        clients = int(batch.subscriber.max(initial=-1)) + 1
        for start in range(0, len(batch), _ROWS_PER_CHUNK):
            rows = slice(start, min(start + _ROWS_PER_CHUNK, len(batch)))
            state, used = self._state, int(self._state.numbers[_USED])
            is_two = np.where(batch.delivered_qos[rows] >= 0, batch.delivered_qos[rows], batch.qos[rows]) == 2
            new = int(
                (
                    ((batch.kind[rows] == DELIVER) & is_two)
                    | (batch.kind[rows] == RECEIVE)
                    | (batch.kind[rows] == RELEASE)
                ).sum()
            )
            sessions = rows_with_room(state.sessions, clients)
            sessions[state.sessions.shape[0] :] = _NEW_SESSION
            self._state = state._replace(
                table=with_room(state.table, used, new),
                entries=rows_with_room(state.entries, used + new),
                sessions=sessions,
            )
            _observe(
                self._state,
                batch.columns(_COLUMNS, rows),
            )

    def partial(self) -> Partial:
        """The result of the rows seen, rule by rule: what other parts say of the rows that are recorded decides which
        count."""
        numbers, tally = self._state.numbers, LawTally()
        tally.counts.update({"receive_rows": int(numbers[_RECEIVES]), "release_rows": int(numbers[_RELEASES])})
        for place, rule in enumerate(_RULES):
            tally.meets(rule, int(numbers[_MET + place]))
            if numbers[_FOUND + place]:
                tally.breaks(rule, self._finding(self._state.broken[place]), int(numbers[_FOUND + place]))
        return tally.partial()

    def _finding(self, broken: Any) -> Finding:
        event_id, why, other, *entry = (int(word) for word in broken)
        names, is_known = self._names, entry[_SESSION] >= 0
        return Finding(
            _SAYS[why].format(identifier=entry[_ID], sequence=entry[_SEQUENCE]),
            event_id,
            names.clients.label(entry[_PUBLISHER]) if is_known else None,
            names.topics.label(entry[_TOPIC]) if is_known else None,
            entry[_LEVEL] >> 1 if is_known else None,
            entry[_SEQUENCE] if is_known else None,
            names.clients.label(entry[_WHO]),
            other if other >= 0 else None,
            packet_id=entry[_ID],
            shows=Shows.ANSWERS,
            since_event_id=entry[_EVENT] if is_known else None,
        )


def handshake_verdict(partial: Partial, work: dict[str, float]) -> Verdict:
    """The verdict on `handshake`, from a part that covers the history."""
    tally = LawTally({LAW: 0})
    is_recorded = (partial.counts["receive_rows"] > 0, partial.counts["release_rows"] > 0, True)
    for rule, counts in zip(_RULES, is_recorded, strict=True):
        if counts:
            tally.meets(LAW, partial.antecedents.get(rule, 0))
            if rule in partial.findings:
                tally.breaks(LAW, partial.findings[rule], partial.violations[rule])
    return verdict_of(tally.partial(), LAW, 0, work, ())
