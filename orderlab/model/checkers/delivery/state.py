"""What the delivery pass keeps, as arrays, and what it counts.

Per logical FIFO the published and the acknowledged sequence numbers, and per lane the delivered and the excused
(trimmed or expired) ones. Rows that change sessions, subscriptions or connections open a new *epoch*; a logical FIFO
notes its highest number when it first publishes in an epoch, so that "published before the session was cleared" is a
comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orderlab.model.checkers.arrays.sequence_set import Arrays
from orderlab.model.checkers.delivery.lanes import N_FIFOS, N_LANES
from orderlab.model.machine_code import njit

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
