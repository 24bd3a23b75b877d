"""One pass over the events: who published, was acknowledged, delivered, trimmed, cleared, in which order.

A *lane* is a logical FIFO as one subscriber sees it at one QoS: MQTT orders the packets that carry the same QoS
(MQTT-4.6.0-6). The state of the pass is arrays: per logical FIFO the published and the acknowledged sequence numbers,
and per lane the delivered and the excused (trimmed or expired) ones. Rows that change sessions, subscriptions or
connections open a new *epoch*; a logical FIFO notes its highest numbers when it first publishes, or is acknowledged, in
an epoch, so that "published before the session was cleared", and acknowledged by then, are comparisons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orderlab.model.arrays import (
    LATE,
    REPEATED,
    Arrays,
    add,
    contains,
    push_node,
    slot_of,
)
from orderlab.model.history.events import (
    ACKNOWLEDGE,
    CLEAR,
    CONNECT,
    CUT,
    DELIVER,
    DISCONNECT,
    EXPIRE,
    FAULT,
    HEAL,
    PUBLISH,
    PUBLISH_ACKNOWLEDGED,
    RELEASE,
    SUBSCRIBE,
    TRIM,
    UNSUBSCRIBE,
)
from orderlab.model.machine_code import njit

ROWS_PER_CHUNK = 1 << 16  # room is made for a chunk at a time, so that compiled code never needs to grow anything
N_FIFOS, N_LANES = 0, 1  # words of `counts`


@njit(cache=True)
def _fifo_of(fifo_table: Any, counts: Any, publisher: Any, topic: Any, qos: Any) -> Any:
    first = (np.int64(publisher) << 32) | np.int64(topic)
    slot = slot_of(fifo_table, first, np.int64(qos))
    if fifo_table[slot, 2] < 0:
        fifo_table[slot, 0] = first
        fifo_table[slot, 1] = qos
        fifo_table[slot, 2] = counts[N_FIFOS]
        counts[N_FIFOS] += 1
    return fifo_table[slot, 2]


@njit(cache=True)
def _new_lane(table: Any, slot: Any, fifo_table: Any, counts: Any, publisher: Any, topic: Any, qos: Any) -> None:
    table[slot, 2] = counts[N_LANES]
    table[slot, 3] = _fifo_of(fifo_table, counts, publisher, topic, qos)
    counts[N_LANES] += 1


@njit(cache=True)
def locate_rows(
    fifo_table: Any,
    lane_table: Any,
    counts: Any,
    kind: Any,
    publisher: Any,
    topic: Any,
    qos: Any,
    subscriber: Any,
    delivered_qos: Any,
    fifo_of_row: Any,
    lane_of_row: Any,
) -> None:
    """Name the logical FIFO and the lane of every row that has one.

    A loop of its own because nothing in it waits for the row before: the processor overlaps the cache misses.
    """
    for row in range(len(kind)):
        what = kind[row]
        if what in (DELIVER, TRIM, EXPIRE):
            first = (np.int64(publisher[row]) << 32) | np.int64(topic[row])
            level = delivered_qos[row] if delivered_qos[row] >= 0 else qos[row]
            second = (np.int64(subscriber[row]) << 4) | (np.int64(level) << 2) | np.int64(qos[row])
            slot = slot_of(lane_table, first, second)
            if lane_table[slot, 2] < 0:
                lane_table[slot, 0] = first
                lane_table[slot, 1] = second
                _new_lane(lane_table, slot, fifo_table, counts, publisher[row], topic[row], qos[row])
            lane_of_row[row] = lane_table[slot, 2]
            fifo_of_row[row] = lane_table[slot, 3]
        elif what <= PUBLISH_ACKNOWLEDGED:
            fifo_of_row[row] = _fifo_of(fifo_table, counts, publisher[row], topic[row], qos[row])


# What is counted, and for the violations also the first one, as (event_id, lane, sequence, other event, other number).
COUNTERS = (
    "fifos",
    "lanes",
    "published",
    "acknowledged",
    "deliveries",
    "first_deliveries",
    "repeats_qos0",
    "repeats_qos1",
    "repeats_qos2",
    "qos2_deliveries",
    "retained",
    "excused",
    "clears",
    "subscribes",
    "connects",
    "cuts",
    "heals",
    "backlog_deliveries",
    "deliveries_after_clear",
)
BROKEN = ("fifo", "no-phantom", "no-phantom-cleared", "exactly-once", "drain", "no-phantom-untold")
OUT_OF_ORDER, NOT_PUBLISHED, CLEARED, TWICE, UNDRAINED, UNTOLD = range(len(BROKEN))
"""Places of these. UNTOLD is no break: whether it is one cannot be known."""
AGAIN_ROWS, LATE_ROWS, DOUBT_ROWS, HIGH_ROWS = range(4)
"""Places in ``rows_used``: tables that grow while the pass runs."""
COUNTER = {name: index for index, name in enumerate(COUNTERS)}
assert (COUNTER["fifos"], COUNTER["lanes"]) == (N_FIFOS, N_LANES)
# Numbers at the top of a module are constants of compiled code; the dictionary it could not read.
N_PUBLISHED = COUNTER["published"]
N_ACKNOWLEDGED = COUNTER["acknowledged"]
N_DELIVERIES = COUNTER["deliveries"]
N_FIRST_DELIVERIES = COUNTER["first_deliveries"]
N_REPEATS_QOS0 = COUNTER["repeats_qos0"]
N_QOS2_DELIVERIES = COUNTER["qos2_deliveries"]
N_RETAINED = COUNTER["retained"]
N_EXCUSED = COUNTER["excused"]
N_CLEARS = COUNTER["clears"]
N_SUBSCRIBES = COUNTER["subscribes"]
N_CONNECTS = COUNTER["connects"]
N_CUTS = COUNTER["cuts"]
N_HEALS = COUNTER["heals"]
N_BACKLOG_DELIVERIES = COUNTER["backlog_deliveries"]
N_DELIVERIES_AFTER_CLEAR = COUNTER["deliveries_after_clear"]

# Words of a row of `sessions`, one per client.
CLEAR_EPOCH, CLEARED_SESSION, CONNECTED, STABLE_SINCE, STABLE_EPOCH, CUT_OFF, ENDS, FILTER = range(8)
CLEARED_LAST, SHARES = 8, 9
NEW_SESSION = np.array([0, -1, -1, 0, 0, 0, 0, -1, -1, 0], dtype=np.int64)  # connected -1: no row has said so
SEVERAL = -2
"""In place of the one filter that a client has subscribed to."""

NO_EPOCHS = (0, -1, -1)

# Words of `clock`.
EPOCH, END_US, HEAL_US, HEAL_EPOCH = 0, 1, 2, 3


class PassArrays(NamedTuple):
    """Everything that the pass reads and writes, as arrays."""

    fifo_table: Any  # (publisher << 32 | topic, qos) -> fifo
    lane_table: Any  # (publisher << 32 | topic, subscriber << 2 | qos) -> lane, fifo
    inflight: Any  # (subscriber, packet id) -> QoS 2 message that the receiver holds: lane, sequence in `held`
    held: Any
    published: Arrays
    acknowledged: Arrays
    delivered: Arrays
    excused: Arrays
    epochs: Any  # per fifo: epoch of its last note, node of its notes, whether something was published again
    # nodes (epoch, highest number published before it, previous, jump, depth, fifo, highest acknowledged before it)
    notes: Any
    notes_used: Any
    mortal: Any  # per fifo: run of numbers with an expiry interval: start, end, first deadline, last deadline
    mortal_runs: Any  # closed ones, with the fifo in front
    mortal_used: Any
    again: Any  # what was published again: fifo, number, event, highest number published by then, epoch
    # first deliveries below the highest where that may be why: event, lane, number, event of the highest, highest
    late: Any
    # what a copy may explain, for another filter or published again: law, event, lane, number, epoch of the last clear
    doubts: Any
    lane_ends: Any  # per lane: how many of its client's subscriptions had ended when it was delivered to last
    highs: Any  # lane, how many had ended by then, highest number before the first delivery after that
    rows_used: Any  # of `again`, `late`, `doubts`, `highs`
    sessions: Any
    clock: Any
    counts: Any
    broken_counts: Any
    broken: Any


@njit(cache=True)
def _note_since(state: Any, fifo: Any, epoch: Any) -> Any:
    """The first note of the logical FIFO since the epoch began; below 0 if none."""
    notes, note, node = state.notes, np.int64(-1), state.epochs[fifo, 1]
    while node >= 0 and notes[node, 0] >= epoch:
        note = node
        if notes[node, 2] < 0:
            break
        jump = notes[node, 3]
        node = jump if notes[jump, 0] >= epoch else notes[node, 2]
    return note


@njit(cache=True)
def high_at(state: Any, fifo: Any, epoch: Any) -> Any:
    """The highest number that the logical FIFO had published when the epoch began; below 0 if none."""
    if epoch <= 0:
        return np.int64(-1)
    note = _note_since(state, fifo, epoch)
    return state.published.last[fifo, 1] if note < 0 else state.notes[note, 1]


@njit(cache=True)
def _is_acknowledged_by(state: Any, fifo: Any, number: Any, epoch: Any) -> Any:
    """Whether the message's publisher had its acknowledgement when the epoch began. Acknowledgements come in the order
    of the messages (4.6): one that has come below another had come before it."""
    note = _note_since(state, fifo, epoch)
    high = state.acknowledged.last[fifo, 1] if note < 0 else state.notes[note, 6]
    return number <= high and contains(state.acknowledged, fifo, number)


_CLOCK_ENDS = 2**63 - 1  # a deadline beyond is none: an interval of 2^63 - 1 says "never"


@njit(cache=True)
def _breaks(state: Any, law: Any, event_id: Any, lane: Any, number: Any, other_event: Any, other_number: Any) -> None:
    state.broken_counts[law] += 1
    broken = state.broken
    if broken[law, 0] < 0:
        broken[law, 0] = event_id
        broken[law, 1] = lane
        broken[law, 2] = number
        broken[law, 3] = other_event
        broken[law, 4] = other_number


@njit(cache=True)
def _add_slowly(arrays: Any, owner: Any, number: Any, tag: Any) -> Any:
    """`add`, called and not inlined: numbers that come in order, nearly all of them, are taken in the loop itself."""
    return add(arrays, owner, number, tag)


@njit(cache=True)
def _contains_slowly(arrays: Any, owner: Any, number: Any) -> Any:
    return contains(arrays, owner, number)


@njit(cache=True)
def _publish_again(state: Any, fifo: Any, number: Any, event_id: Any) -> None:
    used = state.rows_used[AGAIN_ROWS]
    again = state.again
    again[used, 0] = fifo
    again[used, 1] = number
    again[used, 2] = event_id
    again[used, 3] = state.published.last[fifo, 1]
    again[used, 4] = state.clock[EPOCH]
    state.rows_used[AGAIN_ROWS] = used + 1
    state.epochs[fifo, 2] = 1


@njit(cache=True)
def _deliver_late(
    state: Any, event_id: Any, fifo: Any, lane: Any, number: Any, high_event: Any, high: Any, shares: Any
) -> None:
    """A break of `fifo`, unless it may be a copy that was published again, or come from another member of a shared
    subscription: that is decided at the end (`doubtful_deliveries.py`)."""
    if state.epochs[fifo, 2] < 0 and shares == 0:
        _breaks(state, OUT_OF_ORDER, event_id, lane, number, high_event, high)
        return
    used = state.rows_used[LATE_ROWS]
    late = state.late
    late[used, 0] = event_id
    late[used, 1] = lane
    late[used, 2] = number
    late[used, 3] = high_event
    late[used, 4] = high
    state.rows_used[LATE_ROWS] = used + 1


@njit(cache=True)
def _note_epoch(state: Any, fifo: Any) -> None:
    high = state.published.last[fifo, 1]
    epoch = state.clock[EPOCH]
    node = push_node(state.notes, state.notes_used, fifo, state.epochs[fifo, 1], epoch, high)
    state.notes[node, 6] = state.acknowledged.last[fifo, 1]
    state.epochs[fifo, 1] = node
    state.epochs[fifo, 0] = epoch


@njit(cache=True)
def _note_deadline(
    mortal: Any, mortal_runs: Any, mortal_used: Any, fifo: Any, number: Any, deadline: Any, spread_us: Any
) -> None:
    """Numbers with an expiry interval are kept as runs whose deadlines lie close together beside the interval."""
    if number == mortal[fifo, 1] + 1 and mortal[fifo, 2] <= deadline and deadline - mortal[fifo, 2] <= spread_us:
        mortal[fifo, 1] = number
        mortal[fifo, 3] = max(mortal[fifo, 3], deadline)
        return
    if mortal[fifo, 0] <= mortal[fifo, 1]:
        closed = mortal_used[0]
        mortal_runs[closed, 0] = fifo
        for word in range(4):
            mortal_runs[closed, word + 1] = mortal[fifo, word]
        mortal_used[0] = closed + 1
    mortal[fifo, 0] = number
    mortal[fifo, 1] = number
    mortal[fifo, 2] = deadline
    mortal[fifo, 3] = deadline


@njit(cache=True)
def _handed_over(
    table: Any,
    held: Any,
    used: Any,
    epoch: Any,
    subscriber: Any,
    packet_id: Any,
    dup: Any,
    lane: Any,
    number: Any,
    repeated: Any,
) -> Any:
    """Whether a receiver by the rules of MQTT 4.3.3 hands this QoS 2 packet to its application."""
    if packet_id < 0:
        return not (repeated and dup > 0)
    slot = slot_of(table, np.int64(subscriber), np.int64(packet_id))
    if table[slot, 2] < 0:
        table[slot, 0] = subscriber
        table[slot, 1] = packet_id
        table[slot, 2] = used[1]
        used[1] += 1
    entry = table[slot, 2]
    if held[entry, 0] == lane and held[entry, 1] == number and held[entry, 2] >= epoch:
        return False
    held[entry, 0] = lane
    held[entry, 1] = number
    held[entry, 2] = epoch
    return True


@njit(cache=True)
def _free(table: Any, held: Any, subscriber: Any, packet_id: Any) -> None:
    slot = slot_of(table, np.int64(subscriber), np.int64(packet_id))
    if table[slot, 2] >= 0:
        held[table[slot, 2], 0] = -1


@njit(cache=True)
def _late_drain(state: Any, bound_us: Any, fifo: Any, subscriber: Any, number: Any, time_us: Any) -> Any:
    """0: not in a backlog; 1: in one, in time; 2: in one that should have gone by now."""
    clock, session = state.clock, state.sessions[subscriber]
    if clock[HEAL_EPOCH] < 0 or session[CONNECTED] == 0:
        return 0
    if number > high_at(state, fifo, max(clock[HEAL_EPOCH], session[STABLE_EPOCH])):
        return 0
    return 2 if time_us > max(clock[HEAL_US], session[STABLE_SINCE]) + bound_us else 1


@njit(cache=True)
def _doubt(state: Any, law: Any, event_id: Any, lane: Any, number: Any, may_be_a_copy: Any, cleared: Any) -> None:
    """A break, unless a copy explains it: that is decided at the end
    (`doubtful_deliveries.py`)."""
    if not may_be_a_copy:
        _breaks(state, law, event_id, lane, number, -1, -1)
        return
    used = state.rows_used[DOUBT_ROWS]
    doubts = state.doubts
    doubts[used, 0] = law
    doubts[used, 1] = event_id
    doubts[used, 2] = lane
    doubts[used, 3] = number
    doubts[used, 4] = cleared
    state.rows_used[DOUBT_ROWS] = used + 1


@njit(cache=True)
def _note_high(state: Any, lane: Any, ends: Any, high: Any) -> None:
    """How far a lane had come when a subscription ended."""
    used = state.rows_used[HIGH_ROWS]
    state.highs[used, 0] = lane
    state.highs[used, 1] = ends
    state.highs[used, 2] = high
    state.rows_used[HIGH_ROWS] = used + 1
    state.lane_ends[lane] = ends


@njit(cache=True)
def _control(state: Any, kind: Any, subscriber: Any, topic: Any, qos: Any, session: Any, time_us: Any) -> None:
    clock = state.clock
    clock[EPOCH] += 1
    if kind in (CLEAR, UNSUBSCRIBE) or (kind == SUBSCRIBE and qos == 0):
        state.sessions[subscriber, ENDS] += 1
    if kind == CLEAR:
        state.counts[N_CLEARS] += 1
        state.sessions[subscriber, CLEAR_EPOCH] = clock[EPOCH]
        state.sessions[subscriber, CLEARED_SESSION] = max(state.sessions[subscriber, CLEARED_SESSION], session)
        state.sessions[subscriber, CLEARED_LAST] = session
    elif kind == SUBSCRIBE:
        state.counts[N_SUBSCRIBES] += 1
        known = state.sessions[subscriber, FILTER]
        state.sessions[subscriber, FILTER] = (
            np.int64(topic) if known in (np.int64(-1), np.int64(topic)) else np.int64(SEVERAL)
        )
    elif kind == CONNECT:
        state.counts[N_CONNECTS] += 1
        state.sessions[subscriber, CONNECTED] = 1
        state.sessions[subscriber, STABLE_SINCE] = time_us
        state.sessions[subscriber, STABLE_EPOCH] = clock[EPOCH]
        state.sessions[subscriber, CUT_OFF] = 0
    elif kind == DISCONNECT:
        state.sessions[subscriber, CONNECTED] = 0
    elif kind == HEAL:
        state.counts[N_HEALS] += 1
        clock[HEAL_US] = time_us
        clock[HEAL_EPOCH] = clock[EPOCH]
    elif kind == CUT and subscriber >= 0:
        state.sessions[subscriber, CUT_OFF] = 1
    elif kind == CUT:
        state.counts[N_CUTS] += 1
    elif kind == FAULT:  # fault: nothing drains until it has healed
        clock[HEAL_EPOCH] = -1


COLUMNS_OBSERVED = [
    "event_id",
    "time_us",
    "kind",
    "topic",
    "qos",
    "subscriber",
    "sequence",
    "packet_id",
    "dup",
    "retained",
    "expiry_interval_us",
    "delivered_qos",
    "session",
]
"""Of the history, as ``observe_rows`` takes them."""


@njit(cache=True)
def observe_rows(state: Any, bound_us: Any, fifo_of_row: Any, lane_of_row: Any, rows: Any) -> None:  # noqa: C901
    """Let the state pass over the rows. Kinds, counters and laws are numbered as in their tables.

    The straight path (the next number of a known lane) touches local arrays only; whatever is rare is a call: handing
    the state to a function costs more than the straight path as a whole.
    """
    event_id, time_us, kind, topic, qos, subscriber, sequence, packet_id, dup = rows[:9]
    retained, expiry_interval_us, delivered_qos, session = rows[9:]
    counts, sessions = state.counts, state.sessions
    published, acknowledged, delivered = state.published.last, state.acknowledged.last, state.delivered.last
    inflight, held, used, clock, epochs = state.inflight, state.held, state.notes_used, state.clock, state.epochs
    mortal, mortal_runs, mortal_used = state.mortal, state.mortal_runs, state.mortal_used
    lane_ends = state.lane_ends
    for row in range(len(kind)):
        what = kind[row]
        number = sequence[row]
        if what == DELIVER:
            counts[N_DELIVERIES] += 1
            lane, fifo = lane_of_row[row], fifo_of_row[row]
            in_run = published[fifo, 0] <= number and number <= published[fifo, 1]
            if not in_run and not _contains_slowly(state.published, fifo, number):
                _breaks(state, NOT_PUBLISHED, event_id[row], lane, number, -1, -1)
            cleared = sessions[subscriber[row], CLEAR_EPOCH]
            if cleared > 0:
                counts[N_DELIVERIES_AFTER_CLEAR] += 1
                if 0 <= session[row] <= sessions[subscriber[row], CLEARED_SESSION]:
                    _breaks(state, CLEARED, event_id[row], lane, number, -1, -1)
                elif (
                    (session[row] < 0 or sessions[subscriber[row], CLEARED_LAST] < 0)
                    and retained[row] <= 0
                    and number <= high_at(state, fifo, cleared)
                ):
                    if session[row] < 0 and _is_acknowledged_by(state, fifo, number, cleared):
                        _doubt(state, CLEARED, event_id[row], lane, number, epochs[fifo, 2] >= 0, cleared)
                    else:  # it may have been under way, or is of a session of which no row says whether it ended
                        _doubt(state, UNTOLD, event_id[row], lane, number, True, cleared)
            if retained[row] > 0:
                counts[N_RETAINED] += 1
                _add_slowly(state.excused, lane, number, 0)  # with Retain As Published this is how it arrives
                continue
            ends = sessions[subscriber[row], ENDS]
            if ends > 0 and lane_ends[lane] < ends:
                _note_high(state, lane, ends, delivered[lane, 1])
            repeated = False
            if number == delivered[lane, 1] + 1:
                delivered[lane, 1] = number
                delivered[lane, 3] = event_id[row]
                counts[N_FIRST_DELIVERIES] += 1
            else:
                high, high_event = delivered[lane, 1], delivered[lane, 3]
                news = _add_slowly(state.delivered, lane, number, event_id[row])
                repeated = news == REPEATED
                counts[N_REPEATS_QOS0 + qos[row] if repeated else N_FIRST_DELIVERIES] += 1
                if news == LATE:
                    shares = sessions[subscriber[row], SHARES]
                    _deliver_late(state, event_id[row], fifo, lane, number, high_event, high, shares)
            if bound_us >= 0 and qos[row] > 0 and not repeated:
                drained = _late_drain(state, bound_us, fifo, subscriber[row], number, time_us[row])
                if drained > 0:
                    counts[N_BACKLOG_DELIVERIES] += 1
                    if drained == 2:
                        _breaks(state, UNDRAINED, event_id[row], lane, number, -1, -1)
            if qos[row] == 2 and (delivered_qos[row] < 0 or delivered_qos[row] == 2):
                counts[N_QOS2_DELIVERIES] += 1
                handed = _handed_over(
                    inflight, held, used, cleared, subscriber[row], packet_id[row], dup[row], lane, number, repeated
                )
                if handed and repeated:
                    _doubt(
                        state, TWICE, event_id[row], lane, number, sessions[subscriber[row], FILTER] == SEVERAL, cleared
                    )
        elif what == PUBLISH:
            fifo = fifo_of_row[row]
            if epochs[fifo, 0] < clock[EPOCH]:
                _note_epoch(state, fifo)
            if number == published[fifo, 1] + 1:
                published[fifo, 1] = number
            elif _add_slowly(state.published, fifo, number, 0) == REPEATED:
                _publish_again(state, fifo, number, event_id[row])
                continue
            counts[N_PUBLISHED] += 1
            interval = expiry_interval_us[row]
            if interval >= 0 and time_us[row] <= _CLOCK_ENDS - interval:
                _note_deadline(mortal, mortal_runs, mortal_used, fifo, number, time_us[row] + interval, interval // 8)
        elif what == PUBLISH_ACKNOWLEDGED:
            fifo = fifo_of_row[row]
            if epochs[fifo, 0] < clock[EPOCH]:
                _note_epoch(state, fifo)
            if number == acknowledged[fifo, 1] + 1:
                acknowledged[fifo, 1] = number
                counts[N_ACKNOWLEDGED] += 1
            elif _add_slowly(state.acknowledged, fifo, number, 0) != REPEATED:
                counts[N_ACKNOWLEDGED] += 1
        elif what in (RELEASE, ACKNOWLEDGE):
            if packet_id[row] >= 0:
                _free(inflight, held, subscriber[row], packet_id[row])
        elif what in (TRIM, EXPIRE):
            counts[N_EXCUSED] += 1
            _add_slowly(state.excused, lane_of_row[row], number, 0)
        elif (what >= CLEAR and what <= CUT) or what == FAULT:
            _control(state, what, subscriber[row], topic[row], qos[row], session[row], time_us[row])
    if len(time_us):
        clock[END_US] = max(clock[END_US], time_us[-1])
