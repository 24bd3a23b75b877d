"""Read what the footer of a Parquet file says of each column in each row group.

pyarrow shows the same (``FileMetaData.row_group(…).column(…)``), but ends the whole process where a damaged footer
contradicts itself; rows alone it reads with errors that can be caught.
Source: Thrift's compact protocol; ``parquet.thrift`` of Apache Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

MAGIC = b"PAR1"
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
"""Physical types by their numbers."""
_DELTA_LENGTH_BYTE_ARRAY, _DELTA_BYTE_ARRAY = 6, 7
_DEEPEST = 16
"""Structures within each other; a footer has six."""


@dataclass(frozen=True)
class ColumnChunk:
    """What a footer says of one column in one row group."""

    values: int
    nulls: int | None
    """None where the writer did not count."""
    greatest: bytes | None
    """The greatest value, as Parquet stores it."""
    encodings: frozenset[int]

    @property
    def reads_as_dictionary(self) -> bool:
        """Whether pyarrow can read its texts as entries of a dictionary, which it refuses of those told by what they
        share with the text before, or by their lengths."""
        return self.encodings.isdisjoint((_DELTA_LENGTH_BYTE_ARRAY, _DELTA_BYTE_ARRAY))

    @property
    def is_absent(self) -> bool:
        """Whether no row has a value."""
        return self.nulls == self.values


@dataclass(frozen=True)
class RowGroup:
    rows: int
    chunks: dict[str, ColumnChunk]
    """By the path of the column in the schema."""


def row_groups_of(path: Path, schema: pq.ParquetSchema) -> tuple[RowGroup, ...]:
    """The row groups of a file that has this schema. Raises ValueError where its footer is damaged, OSError where it
    cannot be read."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - 8))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or not 0 < length <= end - 8:
            raise ValueError("no footer at its end")
        file.seek(end - 8 - length)
        compact = _Compact(file.read(length))
    columns = [schema.column(place) for place in range(len(schema))]
    try:
        return tuple(_row_group(group, columns) for group in compact.structure()[4])
    except (AttributeError, IndexError, KeyError, TypeError, struct.error) as error:
        raise ValueError("its footer is damaged") from error


def _row_group(fields: dict[int, Any], columns: list[pq.ColumnSchema]) -> RowGroup:
    chunks = {}
    for column, described in zip(columns, (chunk[3] for chunk in fields[1]), strict=True):
        if _TYPES[described[1]] != column.physical_type:
            raise ValueError(f'column "{column.path}" has one type in the schema and another in a row group')
        chunks[column.path] = _chunk(described)
    return RowGroup(_number(fields[3]), chunks)


def _chunk(fields: dict[int, Any]) -> ColumnChunk:
    statistics = fields.get(12, {})
    nulls, greatest = statistics.get(3), statistics.get(5, statistics.get(1))
    if not isinstance(greatest, bytes | None):
        raise TypeError
    return ColumnChunk(
        _number(fields[5]), None if nulls is None else _number(nulls), greatest, frozenset(map(_number, fields[2]))
    )


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


class _Compact:
    """Values of Thrift's compact protocol; a structure is the dictionary of its fields by their numbers. Every method
    raises IndexError, KeyError or struct.error where the bytes are none."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._readers: dict[int, Callable[[int], Any]] = {
            1: lambda _: True,
            2: lambda _: False,
            3: lambda _: self._byte(),
            4: self._integer,
            5: self._integer,
            6: self._integer,
            7: lambda _: struct.unpack("<d", self._bytes(8))[0],
            8: lambda _: self._bytes(self._varint()),
            9: self._list,
            10: self._list,
            11: self._map,
            12: self.structure,
        }

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """The structure that begins here, within ``depth`` others."""
        if depth > _DEEPEST:
            raise IndexError
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._readers[head & 15](depth + 1)
        return fields

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        return [self._element(head & 15, depth) for _ in self._counted(count, depth)]

    def _map(self, depth: int) -> list[tuple[Any, Any]]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return [
            (self._element(kinds >> 4, depth), self._element(kinds & 15, depth)) for _ in self._counted(count, depth)
        ]

    def _counted(self, count: int, depth: int) -> range:
        """The numbers of so many elements, each of a byte or more."""
        if depth > _DEEPEST or count > len(self._data) - self._at:
            raise IndexError
        return range(count)

    def _element(self, kind: int, depth: int) -> Any:
        return self._byte() == 1 if kind in (1, 2) else self._readers[kind](depth + 1)

    def _integer(self, _: int = 0) -> int:
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise IndexError
        return value | byte << shift

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise IndexError
        return self._data[start : self._at]
