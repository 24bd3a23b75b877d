"""Histories on disk: Parquet, JSON Lines and CSV.

A reader makes of a file a stream of batches, in memory of one batch, whatever the file's length. A written history
appears under its name whole, or not at all.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.model.files import WholeFile, checked_place, json_of, refuse_compressed
from orderlab.model.history.decoding import ArrowDecoder, Extent, RowDecoder, check_columns
from orderlab.model.history.events import (
    ALWAYS_REQUIRED,
    COLUMNS,
    KIND_LABELS,
    NUMERIC_NAMES,
    SCHEMA,
    EventBatch,
    History,
    IntArray,
    Names,
    NameTable,
)
from orderlab.model.history.footer import row_groups_of

ROWS_PER_BATCH = 1 << 20
TEXT_ROWS_PER_BATCH = 1 << 16


class HistoryReader(Protocol):
    """Batches of one file in order, read once; `names` is complete when the iteration has ended."""

    names: Names

    def __iter__(self) -> Iterator[EventBatch]: ...


class ParquetReader:
    """Rows of a Parquet file. Raises InputError for a file that is truncated, not Parquet, or without rows."""

    def __init__(self, path: Path, rows_per_batch: int = ROWS_PER_BATCH, is_inspected: bool = False) -> None:
        self._place = str(path)
        self._rows_per_batch = rows_per_batch
        try:
            opened = pq.ParquetFile(path)
            self._groups = row_groups_of(path, opened.schema)
            coded = self._coded(opened.schema_arrow)
            self._file = pq.ParquetFile(path, read_dictionary=coded, memory_map=True, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{path}: truncated or not Parquet ({_one_line(error)}); record it again") from error
        self._decoder = ArrowDecoder(self._place, self._file.schema_arrow, is_inspected)
        self.names = self._decoder.names

    def _coded(self, schema: pa.Schema) -> list[str]:
        """The columns of text to be read as entries of a dictionary."""
        texts = [column for column in schema if column.name in COLUMNS and COLUMNS[column.name].names is not None]
        return [
            column.name
            for column in texts
            if not pa.types.is_nested(column.type)
            and all(group.chunks[column.name].reads_as_dictionary for group in self._groups)
        ]

    def __iter__(self) -> Iterator[EventBatch]:
        for record_batch in self._record_batches(self._rows_per_batch):
            yield self._decoder.decode(record_batch)
        if self._decoder.rows == 0:
            raise InputError(f"{self._place}: no events; a history has at least one row")

    def _record_batches(self, rows: int, **which: Any) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._file.iter_batches(rows, columns=self._filled, use_threads=False, **which)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self._place}: unreadable after row {self._decoder.rows} ({_one_line(error)}); record it again"
            ) from error

    @property
    def extents(self) -> Sequence[Extent]:
        """Of the batches that it has given."""
        return self._decoder.extents

    @cached_property
    def _starts(self) -> list[int]:
        """The row at which each row group begins; of one without rows, which comes to nothing, that of the next."""
        return [0, *accumulate(group.rows for group in self._groups)][:-1]

    @cached_property
    def _filled(self) -> list[str]:
        """The columns that say something in some row: to read and decode absent ones costs as much as others."""
        columns = self._groups[0].chunks if self._groups else ()
        return [
            column
            for column in columns
            if column in ALWAYS_REQUIRED or not all(group.chunks[column].is_absent for group in self._groups)
        ]

    def part(self, number: int) -> EventBatch:
        """A batch that it has given before, with the same codes."""
        extent = self.extents[number]
        stop = extent.start + extent.rows
        first, last = bisect_right(self._starts, extent.start) - 1, bisect_left(self._starts, stop)
        groups, at = range(first, last), self._starts[first]
        batches = []
        for rows in self._record_batches(extent.rows, row_groups=list(groups)):
            mine = rows.slice(max(0, extent.start - at), max(0, stop - max(at, extent.start)))
            at += len(rows)
            if len(mine):
                batches.append(self._decoder.decode_again(mine))
        return History(tuple(batches), self.names).joined()


class TextReader:
    """Rows of a JSON Lines or CSV file; `form` names which."""

    def __init__(self, path: Path, form: str) -> None:
        self._path, self._form = path, form
        self._decoder = RowDecoder(str(path))
        self.names = self._decoder.names

    def __iter__(self) -> Iterator[EventBatch]:
        try:
            with self._path.open(encoding="utf-8-sig", newline="" if self._form == "csv" else None) as lines:
                if self._form == "csv":
                    given, rows = _csv_rows(str(self._path), lines)
                else:
                    given, rows = frozenset(COLUMNS), _json_rows(str(self._path), lines)
                while batch := list(islice(rows, TEXT_ROWS_PER_BATCH)):
                    yield self._decoder.decode(batch, given)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self._path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from error
        if self._decoder.rows == 0:
            raise InputError(f"{self._path}: no events; a history has at least one row")


def open_history(path: Path | str, is_inspected: bool = False) -> HistoryReader:
    """A reader for a .parquet, .jsonl, .ndjson or .csv file (Parquet is also known by its content).

    Raises InputError, then or while reading: no such file, an empty file, a missing column, a wrong type,
    a time that goes back, a duplicate event id, a truncated file; with the row number where there is one.
    ``is_inspected``: it was read to its end before, so that its rows need not be looked at again.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(6)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    magic = head[:4]
    if not magic:
        raise InputError(f"{path}: the file is empty; a history has at least one row")
    refuse_compressed(head, str(path))
    if magic == b"PAR1" or path.suffix == ".parquet":
        return ParquetReader(path, is_inspected=is_inspected)
    if path.suffix in (".jsonl", ".ndjson", ".json") or magic.lstrip()[:1] == b"{":
        return TextReader(path, "jsonl")
    if path.suffix == ".csv" or b"," in magic or magic == b"even":
        return TextReader(path, "csv")
    raise InputError(f"{path}: not a history; expected .parquet, .jsonl or .csv")


class HistoryFile:
    """A history file that can be gone through again and again, with the same codes each time."""

    def __init__(self, path: Path | str) -> None:
        self.place = str(path)
        self._first: HistoryReader | None = open_history(path)
        self.parts: ParquetReader | None = None
        """Whose batches can be read one by one: once all have been gone through."""
        self.names = self._first.names
        self._is_inspected = False

    def __iter__(self) -> Iterator[EventBatch]:
        reader, self._first = self._first, None
        yield from reader if reader is not None else open_history(self.place, self._is_inspected)
        self._is_inspected = True
        if isinstance(reader, ParquetReader):
            self.parts = reader


def read_history(path: Path | str) -> History:
    """A whole history in memory. Raises InputError as open_history does."""
    reader = open_history(path)
    batches = tuple(reader)
    return History(batches, reader.names)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]


def _json_rows(place: str, lines: IO[str]) -> Iterator[dict[str, Any]]:
    row = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row += 1
        event = json_of(line, f"{place}: row {row} (line {number})", "give one JSON object a line")
        if not isinstance(event, dict):
            raise InputError(f"{place}: row {row} (line {number}): one JSON object per line, not {line.strip()[:40]}")
        if not event.keys() <= COLUMNS.keys() or not {"event_id", "time_us", "kind"} <= event.keys():
            check_columns(f"{place}: row {row} (line {number})", event)
        if event.get("value") is not None:
            try:
                event["value"] = json.dumps(event["value"], separators=(",", ":"))
            except RecursionError as error:
                raise InputError(f"{place}: row {row} (line {number}): value is nested too deeply") from error
        yield event


def _csv_rows(place: str, lines: IO[str]) -> tuple[frozenset[str], Iterator[dict[str, Any]]]:
    reader = csv.reader(lines, strict=True)
    try:
        header = [cell.strip() for cell in next(reader)]
    except (StopIteration, csv.Error) as error:
        raise InputError(f"{place}: no header line; the first line names the columns") from error
    given = check_columns(place, header)

    def rows() -> Iterator[dict[str, Any]]:
        row = 0
        try:
            for cells in reader:
                if not cells:
                    continue
                row += 1
                if len(cells) != len(header):
                    raise InputError(
                        f"{place}: row {row} (line {reader.line_num}): {len(cells)} cells under {len(header)} columns"
                    )
                yield {column: _csv_cell(column, cell) for column, cell in zip(header, cells, strict=True)}
        except csv.Error as error:
            raise InputError(f"{place}: row {row + 1} (line {reader.line_num}): {error}") from error

    return given, rows()


def _csv_cell(column: str, cell: str) -> Any:
    """A cell as its column reads it; text that does not fit stays text and is reported by the decoder."""
    if cell == "":
        return None
    if COLUMNS[column].names is not None:
        return cell
    if column in ("dup", "retained") and cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    try:
        return int(cell)
    except ValueError:
        return cell


_STRING_BYTES_MAX = 2**31 - 1
_WHOLE_DICTIONARY = 4096  # larger name tables are cut down to the names that a batch uses
_KINDS = NameTable(KIND_LABELS)
_SORTED = ["event_id", "time_us"]


class HistoryWriter:
    """Writes batches to PATH as its suffix says (.parquet, .jsonl, .csv). Use as a context manager.

    Rows go to a temporary file beside PATH; leaving the block without an error gives it its name, leaving it
    with one removes it. The names may grow from batch to batch. Raises InputError for an unknown suffix, a folder
    that is not there, and a disk that is full.
    """

    def __init__(self, path: Path | str, names: Names) -> None:
        self.path = Path(path)
        self.names = names
        self.rows = 0
        if self.path.suffix not in (".parquet", ".jsonl", ".ndjson", ".csv"):
            raise InputError(f"{path}: unknown history format; name it .parquet, .jsonl or .csv")
        self._whole = WholeFile(checked_place(str(path), self.path, is_read_again=True))
        binary = self._whole.file
        self._file: Any = (
            binary if self.path.suffix == ".parquet" else io.TextIOWrapper(cast(IO[bytes], binary), "utf-8", newline="")
        )
        self._parquet: pq.ParquetWriter | None = None

    def write(self, batch: EventBatch) -> None:
        """Append the rows of a batch."""
        try:
            self._append(batch)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path}: cannot be written ({error.strerror or error}); free some space, or name another place"
        )

    def _append(self, batch: EventBatch) -> None:
        if self.path.suffix == ".parquet":
            record_batch = to_arrow(batch, self.names)
            if self._parquet is None:
                # A dictionary of numbers that are nearly all different would be made in vain, and so would least and
                # greatest values of what rows are not sorted by. What they are sorted by grows by little.
                named = [column.name for column in record_batch.schema if pa.types.is_dictionary(column.type)]
                self._parquet = pq.ParquetWriter(
                    self._file, record_batch.schema, compression="zstd", use_dictionary=named or False,
                    write_statistics=_SORTED, column_encoding=dict.fromkeys(_SORTED, "DELTA_BINARY_PACKED"),
                    write_page_checksum=True,
                )  # fmt: skip
            self._parquet.write_batch(record_batch)
        elif self.path.suffix == ".csv":
            self._write_csv(batch)
        else:
            for row in to_rows(batch, self.names):
                self._file.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
        self.rows += len(batch)

    def _write_csv(self, batch: EventBatch) -> None:
        out = csv.writer(self._file, lineterminator="\n")
        if self.rows == 0:
            out.writerow(COLUMNS)
        for row in to_rows(batch, self.names, value_as_text=True):
            out.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in map(row.get, COLUMNS)])

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._parquet is None and self.path.suffix == ".parquet":
                self._parquet = pq.ParquetWriter(self._file, SCHEMA)
            if self._parquet is not None:
                self._parquet.close()
            self._file.close()
            if kind is None:
                self._whole.keep()
        except OSError as failure:
            with contextlib.suppress(OSError):  # it would be written once more
                self._file.close()
            if kind is None:  # else the first error says why
                raise self._unwritable(failure) from None
        finally:
            self._whole.drop()


def write_history(history: History, path: Path | str) -> None:
    """Write a whole history; PATH holds all of it or what it held before."""
    with HistoryWriter(path, history.names) as writer:
        for batch in history:
            writer.write(batch)


def to_arrow(batch: EventBatch, names: Names) -> pa.RecordBatch:
    """A batch under SCHEMA, except that columns whose names are integers are plain int32."""
    arrays, schema_fields = [], []
    for column, spec in COLUMNS.items():
        codes = getattr(batch, column)
        absent = codes < 0
        mask = absent if absent.any() else None
        table = _KINDS if column == "kind" else names.table(column)
        if table is None:
            values = codes.astype(np.bool_) & ~absent if pa.types.is_boolean(spec.arrow) else codes
            array = _array(values, spec.arrow, mask)
        elif column in NUMERIC_NAMES and (table.numeric or (not table.names and not absent.all())):
            array = _array(codes, pa.int32(), mask)
        else:
            array = _dictionary_array(codes, table, mask, spec.arrow)
        arrays.append(array)
        schema_fields.append(SCHEMA.field(column).with_type(array.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(schema_fields))


def _array(values: npt.NDArray[Any], kind: pa.DataType, absent: npt.NDArray[np.bool_] | None) -> pa.Array:
    """As ``pa.array(values, kind, mask=absent)``, which imports pandas, where it is installed, to see whether it is
    given something of it: that takes as long as a small run. Raises ``pa.ArrowInvalid`` for a value that ``kind``
    cannot hold."""
    is_flag = values.dtype == np.bool_
    data = np.packbits(values, bitorder="little") if is_flag else np.ascontiguousarray(values)
    valid = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    made = pa.bool_() if is_flag else pa.from_numpy_dtype(data.dtype)
    array = pa.Array.from_buffers(made, len(values), [valid, pa.py_buffer(data)])
    return array if made == kind else array.cast(kind)  # which imports all of pyarrow.compute


def _dictionary_array(codes: IntArray, table: NameTable, mask: IntArray | None, kind: pa.DataType) -> pa.Array:
    labels = table.names
    if len(labels) > _WHOLE_DICTIONARY:
        used, codes = np.unique(codes, return_inverse=True)
        labels = [labels[code] if code >= 0 else "" for code in used]
    indices = _array(codes, kind.index_type, mask)
    return pa.DictionaryArray.from_arrays(indices, _strings(labels))


def _strings(texts: Sequence[str]) -> pa.Array:
    """As ``pa.array(texts, pa.string())``, without pandas (``_array``)."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    if ends[-1] > _STRING_BYTES_MAX:
        raise pa.ArrowCapacityError(f"{ends[-1]} bytes of names: an array of strings holds {_STRING_BYTES_MAX}")
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded)))


def to_rows(batch: EventBatch, names: Names, value_as_text: bool = False) -> Iterator[dict[str, Any]]:
    """The rows as dictionaries of their present columns, as JSON Lines holds them."""
    cells: dict[str, list[Any]] = {}
    for column, spec in COLUMNS.items():
        codes = getattr(batch, column).tolist()
        table = _KINDS if column == "kind" else names.table(column)
        if table is not None and table.names:
            cells[column] = [None if code < 0 else table.names[code] for code in codes]
        elif pa.types.is_boolean(spec.arrow):
            cells[column] = [None if code < 0 else bool(code) for code in codes]
        else:
            cells[column] = [None if code < 0 else code for code in codes]
    if not value_as_text:
        cells["value"] = [None if cell is None else json.loads(cell) for cell in cells["value"]]
    for row in zip(*cells.values(), strict=True):
        yield {column: cell for column, cell in zip(cells, row, strict=True) if cell is not None}
