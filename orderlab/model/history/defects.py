"""What makes a row unusable: ids or times that go back, an unknown kind, a field that its kind needs and lacks."""

from __future__ import annotations

import numpy as np

from orderlab.model.checkers.arrays.key_table import new_table, slot_of, with_room
from orderlab.model.checkers.kinds import PUBLISH
from orderlab.model.errors import InputError
from orderlab.model.history.events import ALWAYS_REQUIRED, COLUMNS, KIND_LABELS, REQUIRED_BY_KIND, EventBatch, EventKind
from orderlab.model.machine_code import njit

CHECKED = ("publisher", "topic", "qos", "sequence", "subscriber", "packet_id", "process", "operation")
_NEEDS = np.array(
    [sum(1 << CHECKED.index(column) for column in REQUIRED_BY_KIND[kind]) for kind in EventKind], dtype=np.int64
)
_NONE, _EVENT_ID, _TIME, _MISSING = -1, -2, -3, 0
_ROWS_PER_CHUNK = 1 << 16


@njit(cache=True)
def _first_fall(  # type: ignore[no-untyped-def]
    table, used, kind, publisher, topic, qos, sequence, dup
):
    """(row, highest number before it) of the first publish, not sent again, below what its logical FIFO had published."""
    for row in range(len(kind)):
        if kind[row] != PUBLISH:
            continue
        first = (np.int64(publisher[row]) << 2) | np.int64(qos[row])
        slot = slot_of(table, first, np.int64(topic[row]))
        if table[slot, 2] == -1:
            table[slot, 0] = first
            table[slot, 1] = topic[row]
            table[slot, 2] = 0
            table[slot, 3] = sequence[row]
            used[0] += 1
        elif sequence[row] > table[slot, 3]:
            table[slot, 3] = sequence[row]
        elif sequence[row] < table[slot, 3] and dup[row] <= 0:
            return row, table[slot, 3]
    return -1, -1


@njit(cache=True)
def _first_defect(  # type: ignore[no-untyped-def]
    needs, last_id, last_time, event_id, time_us, kind, c0, c1, c2, c3, c4, c5, c6, c7
):
    """(row, defect): defect is _EVENT_ID, _TIME, or the index in CHECKED of the column that is missing."""
    for row in range(len(event_id)):
        if event_id[row] <= last_id:
            return row, -2
        if time_us[row] < last_time:
            return row, -3
        last_id = event_id[row]
        last_time = time_us[row]
        need = needs[kind[row]]
        if (need & 1) and c0[row] < 0:
            return row, 0
        if (need & 2) and c1[row] < 0:
            return row, 1
        if (need & 4) and c2[row] < 0:
            return row, 2
        if (need & 8) and c3[row] < 0:
            return row, 3
        if (need & 16) and c4[row] < 0:
            return row, 4
        if (need & 32) and c5[row] < 0:
            return row, 5
        if (need & 64) and c6[row] < 0:
            return row, 6
        if (need & 128) and c7[row] < 0:
            return row, 7
    return -1, -1


class RowInspector:
    """Inspects batches in file order and remembers the last id and time. Raises InputError at the first bad row."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.rows = 0
        self._last_id = -1
        self._last_time_us = -1
        self._columns_given: frozenset[str] | None = None
        self._highest, self._fifos = new_table(), np.zeros(1, np.int64)

    def inspect(self, batch: EventBatch, columns_given: frozenset[str]) -> None:
        """Raise InputError with the number of the first row that breaks a rule of the format."""
        self._check_ranges(batch, columns_given)
        row, defect = _first_defect(
            _NEEDS,
            self._last_id,
            self._last_time_us,
            batch.event_id,
            batch.time_us,
            batch.kind,
            *(getattr(batch, column) for column in CHECKED),
        )
        if row >= 0:
            raise InputError(f"{self.place}: {self._describe(batch, row, defect, columns_given)}")
        self._check_publish_order(batch)
        self.rows += len(batch)
        if len(batch):
            self._last_id = int(batch.event_id[-1])
            self._last_time_us = int(batch.time_us[-1])

    def _check_publish_order(self, batch: EventBatch) -> None:
        """A sequence is a message's place in publish order, so it counts up. Only what is sent again (DUP) goes back."""
        for start in range(0, len(batch), _ROWS_PER_CHUNK):
            rows = slice(start, min(start + _ROWS_PER_CHUNK, len(batch)))
            self._highest = with_room(self._highest, int(self._fifos[0]), rows.stop - start)
            columns = ("kind", "publisher", "topic", "qos", "sequence", "dup")
            row, highest = _first_fall(
                self._highest, self._fifos, *(np.ascontiguousarray(getattr(batch, column)[rows]) for column in columns)
            )
            if row >= 0:
                raise InputError(
                    f"{self.place}: row {self.rows + start + row + 1}: a publish event has sequence"
                    f" {int(batch.sequence[start + row])} after {highest} of the same publisher, topic and qos;"
                    " number messages upwards in publish order, or set dup where one is sent again"
                )

    def _describe(self, batch: EventBatch, row: int, defect: int, columns_given: frozenset[str]) -> str:
        number = self.rows + row + 1
        if defect == _EVENT_ID:
            event_id = int(batch.event_id[row])
            before = int(batch.event_id[row - 1]) if row else self._last_id
            earlier = np.flatnonzero(batch.event_id[:row] == event_id)
            if event_id == before or len(earlier):
                first = self.rows + int(earlier[0]) + 1 if len(earlier) else self.rows
                return f"row {number}: duplicate event_id {event_id}, already the id of row {first}; ids must be unique"
            return f"row {number}: event_id {event_id} after {before}; number the events upwards in recorded order"
        if defect == _TIME:
            before = int(batch.time_us[row - 1]) if row else self._last_time_us
            return (
                f"row {number}: time_us goes back from {before} to {int(batch.time_us[row])};"
                " sort the events by the one clock that recorded them"
            )
        column, label = CHECKED[defect], KIND_LABELS[int(batch.kind[row])]
        if column not in columns_given:
            return f'missing column "{column}", which row {number} ({label}) needs'
        return f'row {number}: a {label} event needs "{column}" and has none'

    def _check_ranges(self, batch: EventBatch, columns_given: frozenset[str]) -> None:
        if len(batch) == 0:
            return
        for column in columns_given:
            spec, values = COLUMNS[column], getattr(batch, column)
            if spec.names is not None:
                continue
            lowest = int(values.min())
            absent_allowed = column not in ALWAYS_REQUIRED
            fits = lowest >= spec.lowest or (lowest == -1 and spec.lowest == 0 and absent_allowed)
            if fits and int(values.max()) <= spec.highest:
                continue
            outside = (values > spec.highest) | ((values < spec.lowest) & ~((values == -1) & absent_allowed))
            if outside.any():
                row = int(np.argmax(outside))
                raise InputError(
                    f"{self.place}: row {self.rows + row + 1}: {column} is {int(values[row])},"
                    f" must be in {spec.lowest}..{spec.highest}"
                )
