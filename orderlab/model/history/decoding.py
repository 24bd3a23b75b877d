"""From what a file holds (Arrow columns, or rows of a text format) to batches of codes, each row inspected.

Unusable is a row whose id or time goes back, whose kind is unknown, or that lacks a field which its kind needs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orderlab.model.arrays import new_table, slot_of, with_room
from orderlab.model.errors import InputError
from orderlab.model.history.events import (
    ALWAYS_REQUIRED,
    COLUMNS,
    END,
    KIND_LABELS,
    KIND_OF_LABEL,
    NUMERIC_NAMES,
    PUBLISH,
    REQUIRED_BY_KIND,
    SUBSCRIBE,
    UNSUBSCRIBE,
    EventBatch,
    EventKind,
    IntArray,
    Names,
    NameTable,
)
from orderlab.model.history.topics import check_client, check_topic_filter, check_topic_name
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
    """(row, highest number before it) of the first publish, not sent again, below what its logical FIFO had
    published."""
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
    """(row, defect, kinds): defect is _EVENT_ID, _TIME, or the index in CHECKED of the column that is missing; kinds
    has a bit for each that occurs."""
    kinds = np.int64(0)
    for row in range(len(event_id)):
        if event_id[row] <= last_id:
            return row, -2, kinds
        if time_us[row] < last_time:
            return row, -3, kinds
        last_id = event_id[row]
        last_time = time_us[row]
        need = needs[kind[row]]
        kinds |= np.int64(1) << kind[row]
        if (need & 1) and c0[row] < 0:
            return row, 0, kinds
        if (need & 2) and c1[row] < 0:
            return row, 1, kinds
        if (need & 4) and c2[row] < 0:
            return row, 2, kinds
        if (need & 8) and c3[row] < 0:
            return row, 3, kinds
        if (need & 16) and c4[row] < 0:
            return row, 4, kinds
        if (need & 32) and c5[row] < 0:
            return row, 5, kinds
        if (need & 64) and c6[row] < 0:
            return row, 6, kinds
        if (need & 128) and c7[row] < 0:
            return row, 7, kinds
    return -1, -1, kinds


class Extent(NamedTuple):
    """Of the rows of one batch: where they begin, how many they are, and what ids, kinds and sequences are there."""

    start: int
    rows: int
    first_id: int
    last_id: int
    kinds: int
    """A bit for each."""
    lowest: int
    highest: int
    """Of the sequences, -1 where rows have none."""

    def has(self, kinds: Iterable[EventKind]) -> bool:
        """Whether a row is of one of these."""
        return any(self.kinds >> kind & 1 for kind in kinds)


class RowInspector:
    """Inspects batches in file order and remembers the last id and time. Raises InputError at the first bad row."""

    def __init__(self, place: str, names: Names) -> None:
        self.place = place
        self._topics = _Forms(names.topics, check_topic_name)
        self._filters = _Forms(names.topics, check_topic_filter)
        self._clients = _Forms(names.clients, check_client)
        self.rows = 0
        self.extents: list[Extent] = []
        self._sequences = -1, -1
        self._last_id = -1
        self._last_time_us = -1
        self._end_row: int | None = None
        self._columns_given: frozenset[str] | None = None
        self._highest, self._fifos = new_table(), np.zeros(1, np.int64)

    def inspect(self, batch: EventBatch, columns_given: frozenset[str]) -> None:
        """Raise InputError with the number of the first row that breaks a rule of the format."""
        self._check_ranges(batch, columns_given)
        row, defect, kinds = _first_defect(
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
        self._check_nothing_after_the_end(batch)
        self._check_topics(batch)
        self._check_clients(batch)
        if len(batch):
            first_id, last_id = int(batch.event_id[0]), int(batch.event_id[-1])
            self.extents.append(Extent(self.rows, len(batch), first_id, last_id, int(kinds), *self._sequences))
        self.rows += len(batch)
        if len(batch):
            self._last_id = int(batch.event_id[-1])
            self._last_time_us = int(batch.time_us[-1])

    def _check_nothing_after_the_end(self, batch: EventBatch) -> None:
        """An `end` row says that nothing else was recorded: a row after it contradicts it (histories joined, or
        altered)."""
        ends = np.flatnonzero(batch.kind == END)
        if len(ends) and self._end_row is None:
            self._end_row = self.rows + int(ends[0]) + 1
        if self._end_row is not None and self.rows + len(batch) > self._end_row:
            raise InputError(
                f"{self.place}: row {self._end_row + 1}: it comes after the end event of row {self._end_row}, "
                "which is the"
                " last of a history; leave out the end event, or what comes after it"
            )

    def _check_topics(self, batch: EventBatch) -> None:
        """A topic is a name that may be published to; in rows about subscriptions a filter."""
        of_subscriptions = (batch.kind == SUBSCRIBE) | (batch.kind == UNSUBSCRIBE)
        self._check_names(batch.topic, self._topics, ~of_subscriptions)
        self._check_names(batch.topic, self._filters, of_subscriptions)

    def _check_clients(self, batch: EventBatch) -> None:
        for column in (batch.publisher, batch.subscriber):
            self._check_names(column, self._clients, True)

    def _check_names(self, codes: IntArray, forms: _Forms, where: Any) -> None:
        """Raise InputError for the first name that is none, of the rows ``where`` it counts."""
        is_none = forms.defects()
        if not is_none.any():
            return
        wrong = (codes >= 0) & where & is_none[codes]
        if wrong.any():
            row = int(np.argmax(wrong))
            try:
                forms.check(str(forms.table.label(int(codes[row]))))
            except InputError as error:
                raise InputError(f"{self.place}: row {self.rows + row + 1}: {error}") from error

    def _check_publish_order(self, batch: EventBatch) -> None:
        """A sequence is a message's place in publish order, so it counts up. Only what is sent again (DUP) goes
        back."""
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
            lowest, highest = int(values.min()), int(values.max())
            if column == "sequence":
                self._sequences = lowest, highest
            absent_allowed = column not in ALWAYS_REQUIRED
            fits = lowest >= spec.lowest or (lowest == -1 and spec.lowest == 0 and absent_allowed)
            if fits and highest <= spec.highest:
                continue
            outside = (values > spec.highest) | ((values < spec.lowest) & ~((values == -1) & absent_allowed))
            if outside.any():
                row = int(np.argmax(outside))
                raise InputError(
                    f"{self.place}: row {self.rows + row + 1}: {column} is {int(values[row])},"
                    f" must be in {spec.lowest}..{spec.highest}"
                )


class _Forms:
    """Which codes of a table are no names of their kind; each name is looked at once."""

    def __init__(self, table: NameTable, check: Callable[[str], None]) -> None:
        self.table, self.check = table, check
        self._is_none: list[bool] = []
        self._mask: IntArray = np.zeros(1, np.bool_)

    def defects(self) -> IntArray:
        """They as a mask by code."""
        names = self.table.names
        if len(self._is_none) < len(names):
            self._is_none += [_is_refused(self.check, name) for name in names[len(self._is_none) :]]
            self._mask = np.array(self._is_none)
        return self._mask


def _is_refused(check: Callable[[str], None], name: str) -> bool:
    try:
        check(name)
    except InputError:
        return True
    return False


def check_columns(place: str, given: Iterable[str]) -> frozenset[str]:
    """The columns of a file, or InputError: one that is always required is missing, or one is not known."""
    given = list(given)
    for column in given:
        if column not in COLUMNS:
            close = difflib.get_close_matches(column, COLUMNS, n=1)
            cure = f'did you mean "{close[0]}"?' if close else f"known columns: {', '.join(COLUMNS)}"
            raise InputError(f'{place}: unknown column "{column}"; {cure}')
        if given.count(column) > 1:
            raise InputError(f'{place}: column "{column}" appears twice')
    for column in ALWAYS_REQUIRED:
        if column not in given:
            raise InputError(f'{place}: missing column "{column}"; every history has {", ".join(ALWAYS_REQUIRED)}')
    return frozenset(given)


def kind_code(place: str, row: int, label: str) -> int:
    """The code of a kind, or InputError with the nearest kind that exists."""
    kind = KIND_OF_LABEL.get(label)
    if kind is None:
        close = difflib.get_close_matches(label, KIND_LABELS, n=1)
        cure = f'did you mean "{close[0]}"?' if close else f"known kinds: {', '.join(KIND_LABELS)}"
        raise InputError(f'{place}: row {row}: unknown kind "{label}"; {cure}')
    return int(kind)


def _span(column: str) -> str:
    """The numbers that a column may hold, as messages have it."""
    spec = COLUMNS[column]
    return f"{spec.lowest}..{min(spec.highest, int(np.iinfo(spec.dtype).max))}"


def claim_form(place: str, column: str, table: NameTable, numeric: bool, row: int) -> None:
    """Hold a name table to one form: names or integers. InputError where a file mixes them."""
    if table.names if numeric else table.numeric:
        raise InputError(f"{place}: row {row}: {column} mixes names and integers; use one of them throughout")
    table.numeric = table.numeric or numeric


def _integers(array: pa.Array) -> IntArray:
    """The values of an array of integers or truths, -1 where it has none. ``fill_null`` and ``to_numpy`` give the same
    for signed ones, but import pandas where it is installed: that takes as long as a small run."""
    is_bits = pa.types.is_boolean(array.type)
    kind = np.dtype(np.int8 if is_bits else str(array.type))
    if not len(array):
        return np.empty(0, kind)
    validity, data = array.buffers()
    if is_bits:
        values = _bits(array, data).view(kind)
    else:
        values = np.frombuffer(data, kind, array.offset + len(array))[array.offset :]
    if not array.null_count:
        return values
    if kind.kind == "u":  # has no -1
        values = np.minimum(values.astype(np.uint64), np.uint64(2**63 - 1)).astype(np.int64)
    return np.where(_bits(array, validity).view(np.bool_), values, values.dtype.type(-1))


def _bits(array: pa.Array, packed: pa.Buffer) -> IntArray:
    """The bits of an array's rows: a batch is a slice of its table, whose bits must not be unpacked for each."""
    first, skipped = divmod(array.offset, 8)
    held = np.frombuffer(packed, np.uint8)[first : (array.offset + len(array) + 7) // 8]
    return np.unpackbits(held, bitorder="little", count=skipped + len(array))[skipped:]


class Decoder:
    """Decodes one file of a form, and inspects what it decodes."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.names = Names()
        self._inspector = RowInspector(place, self.names)

    @property
    def rows(self) -> int:
        """Rows decoded so far."""
        return self._inspector.rows

    @property
    def extents(self) -> Sequence[Extent]:
        """Of the batches that were inspected."""
        return self._inspector.extents


class ArrowDecoder(Decoder):
    """Decodes the record batches of one file in order. Dictionaries are translated once while they stay the same."""

    def __init__(self, place: str, schema: pa.Schema, is_inspected: bool = False) -> None:
        """``is_inspected``: the rows have been gone through before, and are what they should be."""
        super().__init__(place)
        self._is_inspected = is_inspected
        self._given = check_columns(place, schema.names)
        self._translations: dict[str, tuple[pa.Array, IntArray]] = {}
        for name in schema.names:
            self._check_type(name, schema.field(name).type)

    def _check_type(self, column: str, found: pa.DataType) -> None:
        spec = COLUMNS[column]
        if pa.types.is_dictionary(found):
            found = found.value_type
        text = pa.types.is_string(found) or pa.types.is_large_string(found)
        integer = pa.types.is_integer(found)
        if spec.names is None:
            fits = integer or (pa.types.is_boolean(spec.arrow) and pa.types.is_boolean(found))
            wanted = str(spec.arrow)
        else:
            fits = text or (integer and column in NUMERIC_NAMES)
            wanted = "string or integer" if column in NUMERIC_NAMES else "string"
        if not (fits or pa.types.is_null(found)):
            raise InputError(f'{self.place}: column "{column}" has type {found}; it must be {wanted}')

    def decode_again(self, record_batch: pa.RecordBatch) -> EventBatch:
        """Rows that were decoded before, as the same codes."""
        return EventBatch.of(
            **{name: self._codes(name, record_batch.column(name)) for name in record_batch.schema.names}
        )

    def decode(self, record_batch: pa.RecordBatch) -> EventBatch:
        """One batch of rows as codes. InputError at the first row that breaks a rule."""
        for name in ALWAYS_REQUIRED:
            array = record_batch.column(name)
            if array.null_count:
                row = int(np.argmax(np.asarray(array.is_null())))
                raise InputError(f'{self.place}: row {self.rows + row + 1}: "{name}" is null')
        batch = self.decode_again(record_batch)
        if self._is_inspected:
            self._inspector.rows += len(batch)
        else:
            self._inspector.inspect(batch, self._given)
        return batch

    def _codes(self, column: str, array: pa.Array) -> IntArray:
        spec = COLUMNS[column]
        if pa.types.is_null(array.type):
            return np.full(len(array), -1, spec.dtype)
        if spec.names is None or pa.types.is_integer(array.type):
            if spec.names is not None:
                table = self.names.table(column)
                assert table is not None
                claim_form(self.place, column, table, numeric=True, row=self.rows + 1)
            return self._numbers(column, array)
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        indices = _integers(array.indices)
        count = len(array.dictionary)
        if len(indices) and (indices.max() >= count or indices.min() < -1):
            row = int(np.argmax((indices >= count) | (indices < -1)))
            raise InputError(
                f"{self.place}: row {self.rows + row + 1}: {column} is entry {indices[row]} of a dictionary of {count};"
                " the file is damaged, record it again"
            )
        translation = self._translation(column, array.dictionary, indices)
        codes_of_rows: IntArray = translation[indices]  # index -1 meets the appended -1
        return codes_of_rows

    def _numbers(self, column: str, array: pa.Array) -> IntArray:
        spec = COLUMNS[column]
        numbers = _integers(array)
        # -1 in memory is what is absent.
        if array.null_count < len(array) and np.count_nonzero(numbers == -1) > array.null_count:
            row = int(np.argmax((numbers == -1) & np.asarray(array.is_valid())))
            raise InputError(
                f"{self.place}: row {self.rows + row + 1}: {column} is -1, must be in {_span(column)}; null is what "
                "is absent"
            )
        if numbers.dtype == spec.dtype:
            return numbers
        limits = np.iinfo(spec.dtype)
        outside = (numbers > limits.max) | (numbers < limits.min)
        if outside.any():
            row = int(np.argmax(outside))
            raise InputError(
                f"{self.place}: row {self.rows + row + 1}: {column} is {int(numbers[row])},"
                f" must be in {spec.lowest}..{min(spec.highest, int(limits.max))}"
            )
        return numbers.astype(spec.dtype)

    def _translation(self, column: str, dictionary: pa.Array, indices: IntArray) -> IntArray:
        known = self._translations.get(column)
        if known is not None and known[0].equals(dictionary):
            return known[1]
        try:
            labels: Sequence[str] = dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise InputError(
                f'{self.place}: column "{column}" holds text that is not UTF-8 ({error.reason}) in the rows from'
                f" {self.rows + 1} on; record it again"
            ) from error
        table = self.names.table(column)
        if table is None:
            rows = (self.rows + 1 + int(np.argmax(indices == index)) for index in range(len(labels)))
            codes = [kind_code(self.place, row, label) for row, label in zip(rows, labels, strict=True)]
        else:
            if labels:
                claim_form(self.place, column, table, numeric=False, row=self.rows + 1)
            codes = [table.code(label) for label in labels]
        translation = np.array([*codes, -1], dtype=COLUMNS[column].dtype)
        self._translations[column] = (dictionary, translation)
        return translation


class RowDecoder(Decoder):
    """Decodes rows of a text format: mappings from column to a Python value, None where absent."""

    def decode(self, rows: Sequence[Mapping[str, Any]], given: frozenset[str]) -> EventBatch:
        """One batch of rows as codes. InputError at the first cell or row that breaks a rule."""
        columns = {
            name: np.array(
                [self._code(name, row.get(name), self.rows + number) for number, row in enumerate(rows, 1)], spec.dtype
            )
            for name, spec in COLUMNS.items()
            if name in given
        }
        batch = EventBatch.of(**columns)
        self._inspector.inspect(batch, given)
        return batch

    def _code(self, column: str, cell: Any, row: int) -> int:
        if cell is None:
            if column in ALWAYS_REQUIRED:
                raise InputError(f'{self.place}: row {row}: "{column}" is missing')
            return -1
        spec, table = COLUMNS[column], self.names.table(column)
        integer = isinstance(cell, int) and (not isinstance(cell, bool) or column in ("dup", "retained"))
        if column == "kind" and isinstance(cell, str):
            return kind_code(self.place, row, cell)
        if table is not None and isinstance(cell, str):
            claim_form(self.place, column, table, numeric=False, row=row)
            if cell not in table.code_of and not _is_text(cell):
                raise InputError(f"{self.place}: row {row}: {column} is {cell!a}: half of a surrogate pair is no text")
            return table.code(cell)
        if not integer or (table is None and spec.names) or (table is not None and column not in NUMERIC_NAMES):
            wanted = "an integer" if spec.names is None else "a string"
            raise InputError(f"{self.place}: row {row}: {column} must be {wanted}, not {cell!r}")
        if table is not None and cell >= 0:
            claim_form(self.place, column, table, numeric=True, row=row)
        limits = np.iinfo(spec.dtype)
        if not max(int(limits.min), spec.lowest) <= cell <= min(int(limits.max), spec.highest):
            raise InputError(
                f"{self.place}: row {row}: {column} is {cell},"
                f" must be in {spec.lowest}..{min(spec.highest, int(limits.max))}"
            )
        return int(cell)


def _is_text(name: str) -> bool:
    """Whether a name is Unicode text: JSON can escape half of a surrogate pair, MQTT (1.5.4-1) and files cannot hold
    it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
