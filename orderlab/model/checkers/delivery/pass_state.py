"""The state of the pass over a history, its growth, and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orderlab.model.arrays import (
    SequenceSets,
    new_table,
    rows_with_room,
    with_room,
)
from orderlab.model.checkers.delivery.event_pass import (
    AGAIN_ROWS,
    BROKEN,
    COLUMNS_OBSERVED,
    COUNTER,
    COUNTERS,
    DOUBT_ROWS,
    HIGH_ROWS,
    LATE_ROWS,
    NEW_SESSION,
    NO_EPOCHS,
    ROWS_PER_CHUNK,
    SHARES,
    PassArrays,
    locate_rows,
    observe_rows,
)
from orderlab.model.history.events import (
    EventBatch,
)


def _empty_rows(width: int, rows: int = 256) -> npt.NDArray[np.int64]:
    return np.full((rows, width), -1, dtype=np.int64)


@dataclass
class DeliveryPass:
    """The state of the pass and its growth. Memory: lanes, logical FIFOs and runs of numbers; not rows."""

    drain_bound_us: int = -1
    published: SequenceSets = field(default_factory=SequenceSets.empty)
    acknowledged: SequenceSets = field(default_factory=SequenceSets.empty)
    delivered: SequenceSets = field(default_factory=SequenceSets.empty)
    excused: SequenceSets = field(default_factory=SequenceSets.empty)

    def __post_init__(self) -> None:
        self._rows = np.zeros((2, ROWS_PER_CHUNK), np.int64)
        clock = np.array([0, 0, 0, 0], dtype=np.int64)  # without a heal row no fault is known: healed from the start
        self.state = PassArrays(
            new_table(),
            new_table(),
            new_table(),
            _empty_rows(3),
            self.published.arrays,
            self.acknowledged.arrays,
            self.delivered.arrays,
            self.excused.arrays,
            np.tile(np.array(NO_EPOCHS, np.int64), (256, 1)),
            _empty_rows(7),
            np.zeros(2, np.int64),
            np.tile(np.array([0, -2, 0, 0], np.int64), (256, 1)),
            _empty_rows(5),
            np.zeros(1, np.int64),
            _empty_rows(5),
            _empty_rows(5),
            _empty_rows(5),
            np.zeros(256, np.int64),
            _empty_rows(3),
            np.zeros(4, np.int64),
            np.tile(NEW_SESSION, (256, 1)),
            clock,
            np.zeros(len(COUNTERS), np.int64),
            np.zeros(len(BROKEN), np.int64),
            _empty_rows(5, len(BROKEN)),
        )

    def count(self, name: str) -> int:
        """A counter of COUNTERS."""
        return int(self.state.counts[COUNTER[name]])

    def observe(self, batch: EventBatch, sharing: Sequence[int] = ()) -> None:
        """Pass over the next rows. `sharing`: who may be sent, from now on, what other members of shared subscriptions
        had."""
        clients = int(batch.subscriber.max(initial=-1)) + 1
        for start in range(0, len(batch), ROWS_PER_CHUNK):
            rows = slice(start, start + ROWS_PER_CHUNK)
            self._make_room(min(ROWS_PER_CHUNK, len(batch) - start), clients)
            self.state.sessions[list(sharing), SHARES] = 1
            fifo_of_row, lane_of_row = self._rows[0, : len(batch.kind[rows])], self._rows[1, : len(batch.kind[rows])]
            locate_rows(
                self.state.fifo_table,
                self.state.lane_table,
                self.state.counts,
                batch.kind[rows],
                batch.publisher[rows],
                batch.topic[rows],
                batch.qos[rows],
                batch.subscriber[rows],
                batch.delivered_qos[rows],
                fifo_of_row,
                lane_of_row,
            )
            observe_rows(
                self.state,
                self.drain_bound_us,
                fifo_of_row,
                lane_of_row,
                batch.columns(COLUMNS_OBSERVED, rows),
            )

    def _make_room(self, more: int, clients: int) -> None:
        state = self.state
        fifos, lanes = self.count("fifos"), self.count("lanes")
        self.published.make_room(fifos + more, more)
        self.acknowledged.make_room(fifos + more, more)
        self.delivered.make_room(lanes + more, more)
        self.excused.make_room(lanes + more, more)
        self.state = state._replace(
            fifo_table=with_room(state.fifo_table, fifos, more),
            lane_table=with_room(state.lane_table, lanes, more),
            inflight=with_room(state.inflight, int(state.notes_used[1]), more),
            held=rows_with_room(state.held, int(state.notes_used[1]) + more),
            published=self.published.arrays,
            acknowledged=self.acknowledged.arrays,
            delivered=self.delivered.arrays,
            excused=self.excused.arrays,
            epochs=_owners_with_room(state.epochs, fifos + more, NO_EPOCHS),
            notes=rows_with_room(state.notes, int(state.notes_used[0]) + more),
            mortal=_owners_with_room(state.mortal, fifos + more, (0, -2, 0, 0)),
            mortal_runs=rows_with_room(state.mortal_runs, int(state.mortal_used[0]) + more),
            again=rows_with_room(state.again, int(state.rows_used[AGAIN_ROWS]) + more),
            late=rows_with_room(state.late, int(state.rows_used[LATE_ROWS]) + more),
            doubts=rows_with_room(state.doubts, int(state.rows_used[DOUBT_ROWS]) + more),
            lane_ends=rows_with_room(state.lane_ends, lanes + more, 0),
            highs=rows_with_room(state.highs, int(state.rows_used[HIGH_ROWS]) + more),
            sessions=_owners_with_room(state.sessions, clients, tuple(NEW_SESSION)),
        )


def _owners_with_room(array: npt.NDArray[np.int64], needed: int, fresh: tuple[int, ...]) -> npt.NDArray[np.int64]:
    had = array.shape[0]
    array = rows_with_room(array, needed)
    array[had:] = fresh
    return array
