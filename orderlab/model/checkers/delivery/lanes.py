"""Which logical FIFO and which lane a row belongs to. A lane is a logical FIFO as one subscriber sees it."""

from __future__ import annotations

from typing import Any

import numpy as np

from orderlab.model.checkers.arrays.key_table import slot_of
from orderlab.model.checkers.kinds import DELIVER, EXPIRE, PUBLISH_ACKNOWLEDGED, TRIM
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
