"""Writers: a history appears under its name whole, or not at all."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.model.history.events import (
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

_WHOLE_DICTIONARY = 4096  # larger name tables are cut down to the names that a batch uses
_KINDS = NameTable(KIND_LABELS)


class HistoryWriter:
    """Writes batches to PATH as its suffix says (.parquet, .jsonl, .csv). Use as a context manager.

    Rows go to a temporary file beside PATH; leaving the block without an error gives it its name, leaving it
    with one removes it. The names may grow from batch to batch. Raises InputError for an unknown suffix or a folder
    that is not there.
    """

    def __init__(self, path: Path | str, names: Names) -> None:
        self.path = Path(path)
        self.names = names
        self.rows = 0
        if self.path.suffix not in (".parquet", ".jsonl", ".ndjson", ".csv"):
            raise InputError(f"{path}: unknown history format; name it .parquet, .jsonl or .csv")
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        except OSError as error:
            raise InputError(f"{path}: cannot write there ({error.strerror or error})") from error
        self._temporary = Path(name)
        self._file: Any = os.fdopen(descriptor, "wb" if self.path.suffix == ".parquet" else "w")
        self._parquet: pq.ParquetWriter | None = None

    def write(self, batch: EventBatch) -> None:
        """Append the rows of a batch."""
        if self.path.suffix == ".parquet":
            record_batch = to_arrow(batch, self.names)
            if self._parquet is None:
                self._parquet = pq.ParquetWriter(self._file, record_batch.schema, compression="zstd")
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
                os.chmod(self._temporary, 0o644)
                os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


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
            array = pa.array(values, type=spec.arrow, mask=mask)
        elif column in NUMERIC_NAMES and (table.numeric or (not table.names and not absent.all())):
            array = pa.array(codes, type=pa.int32(), mask=mask)
        else:
            array = _dictionary_array(codes, table, mask, spec.arrow)
        arrays.append(array)
        schema_fields.append(SCHEMA.field(column).with_type(array.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(schema_fields))


def _dictionary_array(codes: IntArray, table: NameTable, mask: IntArray | None, kind: pa.DataType) -> pa.Array:
    labels = table.names
    if len(labels) > _WHOLE_DICTIONARY:
        used, codes = np.unique(codes, return_inverse=True)
        labels = [labels[code] if code >= 0 else "" for code in used]
    indices = pa.array(codes.astype(np.int64), mask=mask).cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, pa.array(labels, pa.string()))


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
