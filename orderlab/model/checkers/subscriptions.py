"""What a subscription allows: `subscribed` and `granted-qos`.

Followed per subscriber from SUBSCRIBE (`qos`: the granted QoS), UNSUBSCRIBE and CLEAR rows, and per logical FIFO from
PUBLISH and DELIVER rows.

1. `subscribed`: a message is handed to a client only if its session had a subscription whose filter matches (4.7;
   ``$share/GROUP/FILTER`` by its filter) at some instant between the PUBLISH row and the DELIVER row (3.3.4,
   MQTT-3.10.4-2). What was published before the subscription ended may still come (3.10.4), and so may a retained
   message that was published long before it began.
2. `granted-qos`: its QoS is the lower of that of the publish and that which one of these subscriptions was granted
   (MQTT-3.8.4-8), neither higher nor lower. Where several match, the server may send a copy for each, with its own
   (3.3.4). A subscription that was granted another QoS in between allows either.

Antecedents: for 1 each delivery, in a history with SUBSCRIBE rows; for 2 each delivery of a message with QoS above 0
where a granted QoS is known.

A history is taken as complete from its beginning: a recording that finds sessions there writes their SUBSCRIBE rows
first. In one that has none for anybody, nothing is known of subscriptions. A SUBSCRIBE row may be that of the SUBACK,
and the server may begin before it (3.8.4): what such a row follows on the same connection within ``SUBSCRIBE_LASTS_US``
is excused, and counted, if its QoS is that which one of these rows grants. An UNSUBSCRIBE row is that of the UNSUBACK.
A packet of a session that CLEAR has ended, told by `session`, is the matter of `no-phantom`.

One-sided: what was published before a subscription began passes if it comes after that, as a server may take its time;
what nobody published counts as published before all that comes; of a message that is published twice without DUP the
later row may count; with a SUBSCRIBE row without `qos` any QoS up to that of the publish is right; of overlapping
subscriptions a copy at the lowest granted QoS is right, be it the only one; No Local is not in the rows.

Complexity: O(rows), plus O(topics that a client received × its filters with wildcards). Memory: per subscription, per
logical FIFO published to since the first subscription ended, and per instant of that; not per row, but for what waits
for its SUBSCRIBE row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.model.arrays import new_table, push_node, rows_with_room, slot_of, with_room
from orderlab.model.checkers.findings import Finding, LawTally, Partial, Shows, verdict_of
from orderlab.model.checkers.wildcards import AS_TOPIC, Wildcards
from orderlab.model.history.events import (
    CLEAR,
    CONNECT,
    CUT,
    DELIVER,
    DISCONNECT,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    EventBatch,
    IntArray,
    Names,
)
from orderlab.model.machine_code import njit
from orderlab.model.verdict import Verdict

LAWS = ("subscribed", "granted-qos")
SUBSCRIBE_LASTS_US = 100_000
"""How long after a delivery the row of its SUBSCRIBE may come: the SUBACK is next to it, but may wait for a disk."""
_ROWS_PER_CHUNK = 1 << 16

# An entry is a client with a code of the table of topics: of a filter (then a subscription) or of a topic (then what it
# received), or of both where a filter has no wildcards. The table leads from (client, code) to its number and to the
# QoS granted now, so that most deliveries cost one look.
_NONE, _UNKNOWN = -1, 3  # grants, beside 0, 1, 2: no subscription, and a SUBSCRIBE row without QoS
_SLOT = 4  # words of an entry: when each of the four grants was last over, by the number of the end (0: never); then:
# the next of the client's subscriptions; the first link to a filter with wildcards that matches; the code
_NEXT, _WILD, _CODE = 4, 5, 6
_ENTRY = 7
_NOT_LISTED = -2
# Words of a session: one per client.
_HEAD, _CONNECTION, _CLEARED_SESSION, _LAST_SUBSCRIBE, _LAST_END = range(5)
_NEW_SESSION = np.array([-1, 0, -1, -1, -1], np.int64)
# Words of a logical FIFO: the last end before which it published, the node of that, the highest number since the first.
_NOTED, _NODE, _HIGH = range(3)
# Words of `numbers`.
_USED, _LINKS, _ENDS, _FIFOS, _DOUBTS, _SUBSCRIBED, _DELIVERED, _MET_QOS = range(8)
# Words of a doubt, what is wrong by all rows so far, and what of: then the columns of its row.
_ROW, _WHY, _IN, _GRANTS, _OTHER = range(5)
_NEVER, _ENDED, _OTHER_QOS, _ABOVE, _BEFORE_GRANT = range(5)
_OF_DOUBTS = ("event_id", "time_us", "subscriber", "topic", "publisher", "qos", "sequence", "delivered_qos")
_EVENT, _TIME, _WHO, _TOPIC, _PUBLISHER, _QOS, _SEQUENCE, _LEVEL = range(5, 13)

_SAYS = (
    "{sequence} was handed to a client that has had no matching subscription",
    "{sequence} was handed to a client whose matching subscription was over when it was published",
    "{sequence} was published with QoS {qos} and came with QoS {level}, where {granted} was granted",
    "{sequence} was published with QoS {qos} and came with QoS {level}",
    "{sequence} was published with QoS {qos} and came with QoS {level}, just before another was granted",
)


class SubscriptionArrays(NamedTuple):
    """What compiled code reads and writes."""

    table: Any  # (client, code of topic or filter) -> entry, QoS granted now
    entries: Any
    links: Any  # entry of a filter with wildcards, next link
    sessions: Any
    fifo_table: Any  # (publisher << 32 | topic, qos) -> logical FIFO
    fifos: Any
    notes: Any  # nodes (end, first number published after it, previous, jump, depth, FIFO)
    notes_used: Any
    numbers: Any
    doubts: Any
    subscribed: Any  # row and connection of each SUBSCRIBE of the chunk


# Handing the whole state to a function costs more than what is done for most rows, so the frequent ones take the arrays
# that they need.
@njit(cache=True)
def _slot(table: Any, entries: Any, numbers: Any, client: Any, code: Any) -> Any:
    """The slot of an entry, made at its first use."""
    slot = slot_of(table, np.int64(client), np.int64(code))
    if table[slot, 2] < 0:
        entry = numbers[_USED]
        numbers[_USED] += 1
        table[slot, 0] = client
        table[slot, 1] = code
        table[slot, 2] = entry
        table[slot, 3] = _NONE
        for grant in range(_SLOT):
            entries[entry, grant] = 0
        entries[entry, _NEXT] = _NOT_LISTED
        entries[entry, _WILD] = -1
        entries[entry, _CODE] = code
    return slot


@njit(cache=True)
def _link(state: Any, client: Any, topic: Any, topic_filter: Any) -> None:
    """Let topics know of filters with wildcards that match them."""
    for place in range(len(client)):
        of_topic = state.table[_slot(state.table, state.entries, state.numbers, client[place], topic[place]), 2]
        _slot(state.table, state.entries, state.numbers, client[place], topic_filter[place])
        link = state.numbers[_LINKS]
        state.numbers[_LINKS] += 1
        state.links[link, 0] = client[place]
        state.links[link, 1] = topic_filter[place]
        state.links[link, 2] = state.entries[of_topic, _WILD]
        state.entries[of_topic, _WILD] = link


@njit(cache=True)
def _end(table: Any, entries: Any, numbers: Any, slot: Any) -> None:
    """A subscription is over, or its granted QoS is."""
    grant = table[slot, 3]
    if grant != _NONE:
        numbers[_ENDS] += 1
        entries[table[slot, 2], grant] = numbers[_ENDS]
        table[slot, 3] = _NONE


@njit(cache=True)
def _clear(table: Any, entries: Any, numbers: Any, session: Any, client: Any) -> None:
    entry = session[_HEAD]
    while entry >= 0:
        _end(table, entries, numbers, slot_of(table, np.int64(client), entries[entry, _CODE]))
        following = entries[entry, _NEXT]
        entries[entry, _NEXT] = _NOT_LISTED
        entry = following
    session[_HEAD] = -1


@njit(cache=True)
def _published(
    fifo_table: Any,
    fifos: Any,
    notes: Any,
    notes_used: Any,
    numbers: Any,
    publisher: Any,
    topic: Any,
    qos: Any,
    number: Any,
) -> None:
    """Note the first number that a logical FIFO publishes after an end."""
    first = (np.int64(publisher) << 32) | np.int64(topic)
    slot = slot_of(fifo_table, first, np.int64(qos))
    fifo = fifo_table[slot, 2]
    if fifo < 0:
        fifo = numbers[_FIFOS]
        numbers[_FIFOS] += 1
        fifo_table[slot, 0] = first
        fifo_table[slot, 1] = qos
        fifo_table[slot, 2] = fifo
        fifos[fifo, _NOTED], fifos[fifo, _NODE], fifos[fifo, _HIGH] = 0, -1, -1
    if number <= fifos[fifo, _HIGH]:
        return
    fifos[fifo, _HIGH] = number
    if fifos[fifo, _NOTED] < numbers[_ENDS]:
        fifos[fifo, _NOTED] = numbers[_ENDS]
        fifos[fifo, _NODE] = push_node(notes, notes_used, fifo, fifos[fifo, _NODE], numbers[_ENDS], number)


@njit(cache=True)
def _was_published_after(state: Any, end: Any, publisher: Any, topic: Any, qos: Any, number: Any) -> Any:
    """Whether the rows say that a message was published after an end. O(log ends)."""
    first = (np.int64(publisher) << 32) | np.int64(topic)
    fifo = state.fifo_table[slot_of(state.fifo_table, first, np.int64(qos)), 2]
    if fifo < 0 or number > state.fifos[fifo, _HIGH]:
        return False
    notes, node, lowest = state.notes, state.fifos[fifo, _NODE], np.int64(-1)
    while node >= 0 and notes[node, 0] >= end:
        lowest = notes[node, 1]
        if notes[node, 2] < 0:
            break
        jump = notes[node, 3]
        node = jump if notes[jump, 0] >= end else notes[node, 2]
    return lowest >= 0 and number >= lowest


@njit(cache=True)
def _grants(state: Any, slot: Any, publisher: Any, topic: Any, qos: Any, number: Any) -> Any:
    """A bit for each QoS that a subscription was granted since the message was published, and 16 if it was ever in
    force."""
    bits, grant, entry = 0, state.table[slot, 3], state.table[slot, 2]
    if grant != _NONE:
        bits = 16 | (1 << grant)
    for other in range(_SLOT):
        end = state.entries[entry, other]
        if end > 0:
            bits |= 16
            if not bits & (1 << other) and not _was_published_after(state, end, publisher, topic, qos, number):
                bits |= 1 << other
    return bits


@njit(cache=True)
def _all_grants(state: Any, client: Any, publisher: Any, topic: Any, qos: Any, number: Any) -> Any:
    """The same of all subscriptions of a client that match."""
    slot = slot_of(state.table, np.int64(client), np.int64(topic))
    if state.table[slot, 2] < 0:
        return 0
    bits = _grants(state, slot, publisher, topic, qos, number)
    link = state.entries[state.table[slot, 2], _WILD]
    while link >= 0:
        of_filter = slot_of(state.table, state.links[link, 0], state.links[link, 1])
        bits |= _grants(state, of_filter, publisher, topic, qos, number)
        link = state.links[link, 2]
    return bits


@njit(cache=True)
def _fits(grants: Any, qos: Any, level: Any) -> Any:
    """Whether some of the grants makes a message with `qos` come with `level`."""
    if grants & (1 << _UNKNOWN) and level <= qos:
        return True
    fits = False
    for grant in range(_UNKNOWN):
        fits = fits or (grants & (1 << grant) > 0 and level == min(qos, grant))
    return fits


@njit(cache=True)
def _doubt(doubts: Any, numbers: Any, session: Any, row: Any, why: Any, grants: Any) -> None:
    words = doubts[numbers[_DOUBTS]]
    numbers[_DOUBTS] += 1
    words[_ROW], words[_WHY], words[_GRANTS] = row, why, grants
    words[_IN], words[_OTHER] = session[_CONNECTION], session[_LAST_END if why == _ENDED else _LAST_SUBSCRIBE]


@njit(cache=True)
def _delivered_slowly(
    state: Any, row: Any, client: Any, publisher: Any, topic: Any, qos: Any, number: Any, level: Any
) -> None:
    """A delivery that the present subscription to its very topic does not explain."""
    grants = _all_grants(state, client, publisher, topic, qos, number)
    if not grants & 15:
        _doubt(state.doubts, state.numbers, state.sessions[client], row, _ENDED if grants else _NEVER, 0)
    elif qos > 0 and level <= qos:
        known = grants & 7
        fits = _fits(grants & 15, qos, level)
        if known or not fits:
            state.numbers[_MET_QOS] += 1
        if not fits:
            _doubt(state.doubts, state.numbers, state.sessions[client], row, _OTHER_QOS, grants & 15)


_COLUMNS = [
    "event_id",
    "kind",
    "publisher",
    "topic",
    "qos",
    "subscriber",
    "sequence",
    "dup",
    "delivered_qos",
    "session",
]
"""Of the history, as ``_observe`` takes them."""


@njit(cache=True)
def _observe(state: Any, start: Any, follows_publishes: Any, rows: Any) -> Any:
    """Take in the rows from ``start`` on; up to which, as there may be no room to follow publishes when the first
    subscription ends."""
    event_id, kind, publisher, topic, qos, subscriber, sequence, dup, delivered_qos, session = rows
    table, entries, sessions, numbers = state.table, state.entries, state.sessions, state.numbers
    fifo_table, fifos, notes, notes_used = state.fifo_table, state.fifos, state.notes, state.notes_used
    doubts, subscribed = state.doubts, state.subscribed
    for row in range(start, len(kind)):
        if numbers[_ENDS] > 0 and not follows_publishes:
            return row
        what, who = kind[row], subscriber[row]
        if what == DELIVER:
            if session[row] >= 0 and session[row] <= sessions[who, _CLEARED_SESSION]:
                continue
            numbers[_DELIVERED] += 1
            wanted = np.int64(qos[row])
            level = wanted if delivered_qos[row] < 0 else np.int64(delivered_qos[row])
            if level > wanted:
                numbers[_MET_QOS] += 1
                _doubt(doubts, numbers, sessions[who], row, _ABOVE, 0)
            slot = slot_of(table, np.int64(who), np.int64(topic[row]))
            grant = table[slot, 3] if table[slot, 2] >= 0 else _NONE
            if grant != _NONE and grant != _UNKNOWN and level == min(wanted, grant):
                if wanted > 0:
                    numbers[_MET_QOS] += 1
            elif table[slot, 2] < 0:
                _doubt(doubts, numbers, sessions[who], row, _NEVER, 0)
            else:
                _delivered_slowly(state, row, who, publisher[row], topic[row], qos[row], sequence[row], level)
        elif what == PUBLISH:
            if follows_publishes and dup[row] <= 0:
                _published(
                    fifo_table, fifos, notes, notes_used, numbers, publisher[row], topic[row], qos[row], sequence[row]
                )
        elif what == SUBSCRIBE:
            slot = _slot(table, entries, numbers, who, topic[row])
            grant = _UNKNOWN if qos[row] < 0 else np.int64(qos[row])
            if table[slot, 3] != grant:
                _end(table, entries, numbers, slot)
                table[slot, 3] = grant
            entry = table[slot, 2]
            if entries[entry, _NEXT] == _NOT_LISTED:
                entries[entry, _NEXT] = sessions[who, _HEAD]
                sessions[who, _HEAD] = entry
            subscribed[numbers[_SUBSCRIBED], 0] = row
            subscribed[numbers[_SUBSCRIBED], 1] = sessions[who, _CONNECTION]
            numbers[_SUBSCRIBED] += 1
            sessions[who, _LAST_SUBSCRIBE] = event_id[row]
        elif what == UNSUBSCRIBE:
            slot = slot_of(table, np.int64(who), np.int64(topic[row]))
            if table[slot, 2] >= 0:
                _end(table, entries, numbers, slot)
                sessions[who, _LAST_END] = event_id[row]
        elif what == CLEAR:
            if sessions[who, _HEAD] >= 0:
                sessions[who, _LAST_END] = event_id[row]
            _clear(table, entries, numbers, sessions[who], who)
            sessions[who, _CONNECTION] += 1  # what comes after belongs to the next session, so to another connection
            sessions[who, _CLEARED_SESSION] = max(sessions[who, _CLEARED_SESSION], session[row])
        elif what in (CONNECT, DISCONNECT):
            sessions[who, _CONNECTION] += 1
    return len(kind)


class SubscriptionChecker:
    """Folds batches in time order. Parts are merged by logical FIFO."""

    laws = LAWS

    def __init__(self, names: Names) -> None:
        self._names = names
        self._wildcards = Wildcards(names)
        self._state = SubscriptionArrays(
            new_table(),
            np.zeros((256, _ENTRY), np.int64),
            np.zeros((256, 3), np.int64),
            np.tile(_NEW_SESSION, (256, 1)),
            new_table(),
            np.zeros((256, 3), np.int64),
            np.zeros((256, 6), np.int64),
            np.zeros(1, np.int64),
            np.zeros(8, np.int64),
            np.zeros((2 * _ROWS_PER_CHUNK, 5), np.int64),
            np.zeros((_ROWS_PER_CHUNK, 2), np.int64),
        )
        self._tally = LawTally(dict.fromkeys(LAWS, 0))
        self._waiting = np.zeros((0, 13), np.int64)
        """Doubts that a SUBSCRIBE row may still excuse."""
        self._held: list[tuple[EventBatch, IntArray]] = []
        """The same without their columns: where nobody tells of subscriptions there are as many as deliveries."""
        self._now_us = -1
        self._first_subscribe = self._cut_us = -1
        """The first SUBSCRIBE row, and when the recording was cut; -1: not yet."""
        self._excused = dict.fromkeys(LAWS, 0)

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        clients = int(batch.subscriber.max(initial=-1)) + 1
        batch = self._wildcards.told_apart(batch)
        for start in range(0, len(batch), _ROWS_PER_CHUNK):
            part = batch if len(batch) <= _ROWS_PER_CHUNK else batch.select(slice(start, start + _ROWS_PER_CHUNK))
            self._make_room(part, clients)
            self._state.numbers[[_DOUBTS, _SUBSCRIBED]] = 0
            taken = 0
            while taken < len(part):
                follows_publishes = bool(self._state.numbers[_ENDS] > 0)
                if follows_publishes:
                    self._make_room_for_publishes(len(part))
                taken = _observe(
                    self._state,
                    taken,
                    follows_publishes,
                    part.columns(_COLUMNS),
                )
            self._settle(part)

    def _make_room(self, part: EventBatch, clients: int) -> None:
        state, numbers, more = self._state, self._state.numbers, len(part)
        sessions = rows_with_room(state.sessions, clients)
        sessions[state.sessions.shape[0] :] = _NEW_SESSION
        links = self._wildcards.new_links(part)
        self._state = state._replace(
            table=with_room(state.table, int(numbers[_USED]), more + 2 * len(links)),
            entries=rows_with_room(state.entries, int(numbers[_USED]) + more + 2 * len(links)),
            links=rows_with_room(state.links, int(numbers[_LINKS]) + len(links)),
            sessions=sessions,
        )
        if len(links):
            _link(self._state, *np.ascontiguousarray(links.T))

    def _make_room_for_publishes(self, more: int) -> None:
        """Nearly all histories keep their subscriptions: then this costs nothing."""
        state = self._state
        self._state = state._replace(
            fifo_table=with_room(state.fifo_table, int(state.numbers[_FIFOS]), more),
            fifos=rows_with_room(state.fifos, int(state.numbers[_FIFOS]) + more),
            notes=rows_with_room(state.notes, int(state.notes_used[0]) + more),
        )

    def _settle(self, part: EventBatch) -> None:
        """Excuse doubts by the SUBSCRIBE rows of a chunk, and count those that nothing can excuse any more."""
        numbers = self._state.numbers
        subscribed = self._state.subscribed[: int(numbers[_SUBSCRIBED])]
        if self._first_subscribe < 0 and len(subscribed):
            self._first_subscribe = int(part.event_id[subscribed[0, 0]])
        cut = np.flatnonzero((part.kind == CUT) & (part.subscriber < 0))
        if len(cut):
            self._cut_us = int(part.time_us[cut[0]])
        if numbers[_DOUBTS]:
            self._held.append((part, self._state.doubts[: int(numbers[_DOUBTS])].copy()))
        now_us = self._now_us = int(part.time_us[-1])
        if not len(subscribed):
            while self._held and int(self._held[0][0].time_us[-1]) + SUBSCRIBE_LASTS_US < now_us:
                self._count(self._tally, *self._held.pop(0))
            return
        self._waiting = self._all_waiting()
        self._held.clear()
        self._excuse(part, subscribed)
        can_wait = self._can_wait(self._waiting, now_us)
        self._count(self._tally, None, self._waiting[~can_wait])
        self._waiting = self._waiting[can_wait]

    def _all_waiting(self) -> IntArray:
        """What a SUBSCRIBE row may still excuse, with columns."""
        return np.concatenate([self._waiting, *(_with_columns(part, doubts) for part, doubts in self._held)])

    def _can_wait(self, doubts: IntArray, now_us: int) -> npt.NDArray[np.bool_]:
        """Which doubts a SUBSCRIBE row from now on may excuse."""
        can_wait = (doubts[:, _WHY] != _ABOVE) & (doubts[:, _TIME] + SUBSCRIBE_LASTS_US >= now_us)
        can_wait &= self._state.sessions[doubts[:, _WHO], _CONNECTION] == doubts[:, _IN]
        return np.asarray(can_wait, np.bool_)

    def _excuse(self, part: EventBatch, subscribed: IntArray) -> None:
        rows = subscribed[:, 0]
        waiting = self._waiting
        rows = rows[np.isin(part.subscriber[rows], waiting[:, _WHO])]
        if not len(rows):
            return
        in_connection = dict(subscribed.tolist())
        told: dict[int, list[tuple[int, int, int, int, int]]] = {}
        for row in rows.tolist():
            told.setdefault(int(part.subscriber[row]), []).append(
                (
                    int(part.event_id[row]),
                    int(part.time_us[row]),
                    in_connection[row],
                    int(part.topic[row]),
                    int(part.qos[row]),
                )
            )
        candidates = np.flatnonzero(np.isin(waiting[:, _WHO], part.subscriber[rows]) & (waiting[:, _WHY] != _ABOVE))
        done = []
        for place in candidates.tolist():
            doubt = waiting[place]
            rows_of = told[int(doubt[_WHO])]
            event = next((row[0] for row in rows_of if self._excuses(row, doubt)), -1)
            if event < 0:
                continue
            self._excused[LAWS[int(doubt[_WHY] > _ENDED)]] += 1
            if doubt[_WHY] <= _ENDED and 0 < doubt[_QOS] >= doubt[_LEVEL]:
                doubt[_WHY], doubt[_OTHER] = _BEFORE_GRANT, event
                self._state.numbers[_MET_QOS] += 1
                if not any(self._excuses(row, doubt) for row in rows_of):
                    continue
                self._excused["granted-qos"] += 1
            done.append(place)
        self._waiting = np.delete(waiting, done, axis=0)

    def _excuses(self, row: tuple[int, int, int, int, int], doubt: IntArray) -> bool:
        """Whether a SUBSCRIBE row explains a delivery that came before it."""
        event, time_us, connection, topic_filter, granted = row
        if connection != doubt[_IN] or event < doubt[_EVENT] or time_us > doubt[_TIME] + SUBSCRIBE_LASTS_US:
            return False
        if not self._wildcards.matches(topic_filter, int(doubt[_TOPIC])):
            return False
        level = doubt[_LEVEL] if doubt[_LEVEL] >= 0 else doubt[_QOS]
        return bool(doubt[_WHY] <= _ENDED or granted < 0 or level == min(doubt[_QOS], granted))

    def _count(self, tally: LawTally, part: EventBatch | None, doubts: IntArray) -> None:
        """Take doubts for violations. ``part``: whose rows they are of, None if they have their columns."""
        for law, broken in _by_law(doubts):
            if len(broken) and part is not None:  # in the order of their rows
                tally.breaks(law, self._finding(_with_columns(part, broken[:1])[0]), len(broken))
            elif len(broken):
                tally.breaks(law, self._finding(broken[np.argmin(broken[:, _EVENT])]), len(broken))

    def _finding(self, doubt: IntArray) -> Finding:
        words = [int(word) for word in doubt]
        level = words[_LEVEL] if words[_LEVEL] >= 0 else words[_QOS]
        granted = [str(qos) if qos < _UNKNOWN else "an unknown QoS" for qos in range(4) if words[_GRANTS] & (1 << qos)]
        names = self._names
        return Finding(
            _SAYS[words[_WHY]].format(
                sequence=words[_SEQUENCE], qos=words[_QOS], level=level, granted=" or ".join(granted)
            ),
            words[_EVENT],
            names.clients.label(words[_PUBLISHER]),
            names.topics.label(words[_TOPIC] & ~AS_TOPIC),
            words[_QOS],
            words[_SEQUENCE],
            names.clients.label(words[_WHO]),
            words[_OTHER] if words[_OTHER] >= 0 else None,
            shows=Shows.SUBSCRIPTIONS,
        )

    def partial(self) -> Partial:
        """The result of the rows seen, as if the history ended here."""
        numbers, waiting = self._state.numbers, self._all_waiting()
        tally = LawTally(dict(self._tally.antecedents), dict(self._tally.violations), dict(self._tally.findings))
        can_wait = self._can_wait(waiting, self._now_us)
        self._count(tally, None, waiting[~can_wait])
        waiting = waiting[can_wait]
        undecided = (
            waiting[:, _TIME] + SUBSCRIBE_LASTS_US >= self._cut_us
            if self._cut_us >= 0
            else np.zeros(len(waiting), np.bool_)
        )
        self._count(tally, None, waiting[~undecided])
        open_of = {law: len(of_law) for law, of_law in _by_law(waiting[undecided])}
        for law, met in zip(LAWS, (int(numbers[_DELIVERED]), int(numbers[_MET_QOS])), strict=True):
            tally.meets(law, met - self._excused[law] - open_of[law])
            tally.counts[f"{law}_excused"], tally.counts[f"{law}_undecided"] = self._excused[law], open_of[law]
        if self._first_subscribe < 0:  # nobody says who has subscribed to what
            for told in (tally.antecedents, tally.violations, tally.findings):
                told.pop("subscribed", None)
            tally.counts["subscribed_undecided"] = 0
        first = tally.findings.get("subscribed")
        # the client has no SUBSCRIBE row: that others have one says something
        if first is not None and first.other_event_id is None:
            tally.findings["subscribed"] = replace(first, other_event_id=self._first_subscribe)
        return tally.partial()


def _with_columns(part: EventBatch, doubts: IntArray) -> IntArray:
    """Doubts with the columns of their rows."""
    return np.column_stack([doubts, *(getattr(part, name)[doubts[:, _ROW]] for name in _OF_DOUBTS)])


def _by_law(doubts: IntArray) -> list[tuple[str, IntArray]]:
    is_unmatched = doubts[:, _WHY] <= _ENDED
    return list(zip(LAWS, (doubts[is_unmatched], doubts[~is_unmatched]), strict=True))


def subscription_verdicts(partial: Partial, laws: Sequence[str], work: dict[str, float]) -> list[Verdict]:
    """The verdicts on those of LAWS that are asked for, from a part that covers the history."""
    verdicts = []
    for law in (law for law in LAWS if law in laws):
        excused, undecided = partial.counts[f"{law}_excused"], partial.counts[f"{law}_undecided"]
        notes = []
        if excused:
            notes.append(
                f"{excused} deliveries came up to {SUBSCRIBE_LASTS_US // 1000} ms before the row of a SUBSCRIBE that "
                "explains them"
            )
        if undecided:
            notes.append(
                f"{undecided} deliveries came just before the recording was cut: the row of a SUBSCRIBE that "
                "explains them may have followed"
            )
        verdicts.append(verdict_of(partial, law, undecided, work, notes))
    return verdicts
