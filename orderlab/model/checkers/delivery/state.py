"""What the delivery pass keeps, as arrays, and what it counts.

A *lane* is a logical FIFO as one subscriber sees it. Kept are per logical FIFO the published and the acknowledged sequence
numbers, and per lane the delivered and the excused (trimmed or expired) ones. Rows that change sessions, subscriptions or
connections open a new *epoch*; a logical FIFO notes its highest number when it first publishes in an epoch, so that
"published before the session was cleared" is a comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orderlab.model.arrays import Arrays, slot_of
from orderlab.model.history.events import DELIVER, EXPIRE, PUBLISH_ACKNOWLEDGED, TRIM
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
            second = (np.int64(subscriber[row]) << 2) | np.int64(qos[row])
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
BROKEN = ("fifo", "no-phantom", "no-phantom-cleared", "exactly-once", "drain")
OUT_OF_ORDER, NOT_PUBLISHED, CLEARED, TWICE, UNDRAINED = range(len(BROKEN))
COUNTER = {name: index for index, name in enumerate(COUNTERS)}
assert (COUNTER["fifos"], COUNTER["lanes"]) == (N_FIFOS, N_LANES)
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
CLEAR_EPOCH, CLEARED_SESSION, CONNECTED, STABLE_SINCE, STABLE_EPOCH = 0, 1, 2, 3, 4
NEW_SESSION = np.array([0, -1, -1, 0, 0], dtype=np.int64)  # connected -1: no row has said so

# Words of `clock`.
EPOCH, END_US, HEAL_US, HEAL_EPOCH = 0, 1, 2, 3


class State(NamedTuple):
    """Everything that the pass reads and writes, as arrays."""

    fifo_table: Any  # (publisher << 32 | topic, qos) -> fifo
    lane_table: Any  # (publisher << 32 | topic, subscriber << 2 | qos) -> lane, fifo
    inflight: Any  # (subscriber, packet id) -> QoS 2 message that the receiver holds: lane, sequence in `held`
    held: Any
    published: Arrays
    acknowledged: Arrays
    delivered: Arrays
    excused: Arrays
    epochs: Any  # per fifo: epoch of its last note, node of its notes
    notes: Any  # nodes (epoch, highest number published before it, previous, jump, depth, fifo)
    notes_used: Any
    mortal: Any  # per fifo: run of numbers with an expiry interval: start, end, first deadline, last deadline
    mortal_runs: Any  # closed ones, with the fifo in front
    mortal_used: Any
    sessions: Any
    clock: Any
    counts: Any
    broken_counts: Any
    broken: Any


@njit(cache=True)
def high_at(state: Any, fifo: Any, epoch: Any) -> Any:
    """The highest number that the logical FIFO had published when the epoch began; below 0 if none."""
    if epoch <= 0:
        return np.int64(-1)
    result = state.published.last[fifo, 1]
    notes = state.notes
    node = state.epochs[fifo, 1]
    while node >= 0 and notes[node, 0] >= epoch:
        result = notes[node, 1]
        if notes[node, 2] < 0:
            break
        jump = notes[node, 3]
        node = jump if notes[jump, 0] >= epoch else notes[node, 2]
    return result
