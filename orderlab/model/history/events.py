"""The History: what happened, one row per event, in the order in which it was recorded.

A simulation, a real server and a real broker record the same rows; every checker reads them. Times are whole
microseconds on one clock, units stand in the column names, and an absent value is null on disk and -1 in memory.

A message is named by its *logical FIFO* (publisher, topic, QoS of the publish) and its `sequence`: its place in
publish order there, counted up by its publisher. MQTT itself carries no such number; a recorder puts it in the
payload or in a user property.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orderlab.model.protocol.packet_id import MODULUS

IntArray = npt.NDArray[Any]


class EventKind(IntEnum):
    """What an event is. The lower-case name is what the `kind` column holds."""

    PUBLISH = 0  # the publisher sent the message (again with dup)
    PUBLISH_ACKNOWLEDGED = 1  # the publisher has its PUBACK (QoS 1) or PUBREC (QoS 2)
    DELIVER = 2  # a PUBLISH packet reached the subscriber
    RECEIVE = 3  # the subscriber sent PUBREC
    RELEASE = 4  # a PUBREL packet reached the subscriber
    ACKNOWLEDGE = 5  # the broker has the subscriber's PUBACK (QoS 1) or PUBCOMP (QoS 2)
    TRIM = 6  # the message left the subscriber's queue because the queue was over its limit
    EXPIRE = 7  # the message left the subscriber's queue because its deadline had passed
    CLEAR = 8  # the subscriber's session ended: Clean Start 1 or session expiry
    SUBSCRIBE = 9  # the subscription (`topic` holds the filter) is in force
    UNSUBSCRIBE = 10
    CONNECT = 11  # the subscriber is connected; with Clean Start 1 a clear row comes first
    DISCONNECT = 12
    HEAL = 13  # the last fault has healed
    # the recording stops with work in flight: what is undelivered here (to the subscriber, if the row names one) is not
    # lost
    CUT = 14
    INVOKE = 15  # a store operation was called by `process`
    OK = 16  # ... and returned `value`
    FAIL = 17  # ... and did not happen
    INFO = 18  # ... and may or may not have happened
    FAULT = 19  # a fault began (`operation` names it, `node` says where); witnesses show it
    END = 20  # the last row: nothing else was recorded until then, though the recorder was there

    @property
    def label(self) -> str:
        """The name as the `kind` column spells it."""
        return self.name.lower()


KIND_LABELS = tuple(kind.label for kind in EventKind)
KIND_OF_LABEL = {kind.label: kind for kind in EventKind}

_MESSAGE = ("publisher", "topic", "qos", "sequence")
REQUIRED_BY_KIND: dict[EventKind, tuple[str, ...]] = {
    EventKind.PUBLISH: _MESSAGE,
    EventKind.PUBLISH_ACKNOWLEDGED: _MESSAGE,
    EventKind.DELIVER: (*_MESSAGE, "subscriber"),
    EventKind.RECEIVE: ("subscriber", "packet_id"),
    EventKind.RELEASE: ("subscriber", "packet_id"),
    EventKind.ACKNOWLEDGE: ("subscriber",),
    EventKind.TRIM: (*_MESSAGE, "subscriber"),
    EventKind.EXPIRE: (*_MESSAGE, "subscriber"),
    EventKind.CLEAR: ("subscriber",),
    EventKind.SUBSCRIBE: ("subscriber", "topic"),
    EventKind.UNSUBSCRIBE: ("subscriber", "topic"),
    EventKind.CONNECT: ("subscriber",),
    EventKind.DISCONNECT: ("subscriber",),
    EventKind.HEAL: (),
    EventKind.CUT: (),
    EventKind.INVOKE: ("process", "operation"),
    EventKind.OK: ("process", "operation"),
    EventKind.FAIL: ("process", "operation"),
    EventKind.INFO: ("process", "operation"),
    EventKind.FAULT: ("operation",),
    EventKind.END: (),
}
STORE_KINDS = (EventKind.INVOKE, EventKind.OK, EventKind.FAIL, EventKind.INFO)


@dataclass(frozen=True)
class ColumnSpec:
    """One column: its type in memory, its type on disk, and for names the table that the codes index."""

    dtype: type[Any]
    arrow: pa.DataType
    names: str | None = None
    lowest: int = 0
    highest: int = 2**63 - 1


_NAME = pa.dictionary(pa.int32(), pa.string())
COLUMNS: dict[str, ColumnSpec] = {
    "event_id": ColumnSpec(np.int64, pa.int64()),
    "time_us": ColumnSpec(np.int64, pa.int64()),
    "kind": ColumnSpec(np.int8, pa.dictionary(pa.int8(), pa.string()), "kinds"),
    "publisher": ColumnSpec(np.int32, _NAME, "clients", highest=2**31 - 1),
    "topic": ColumnSpec(np.int32, _NAME, "topics", highest=2**31 - 1),
    "qos": ColumnSpec(np.int8, pa.int8(), highest=2),
    "subscriber": ColumnSpec(np.int32, _NAME, "clients", highest=2**31 - 1),
    "sequence": ColumnSpec(np.int64, pa.int64(), highest=2**62),
    "packet_id": ColumnSpec(np.int32, pa.int32(), lowest=1, highest=MODULUS),
    "dup": ColumnSpec(np.int8, pa.bool_(), highest=1),
    "retained": ColumnSpec(np.int8, pa.bool_(), highest=1),
    "expiry_interval_us": ColumnSpec(np.int64, pa.int64()),
    "delivered_qos": ColumnSpec(np.int8, pa.int8(), highest=2),
    "session": ColumnSpec(np.int64, pa.int64()),
    "receive_maximum": ColumnSpec(np.int32, pa.int32(), lowest=1, highest=MODULUS),
    "will_delay_us": ColumnSpec(np.int64, pa.int64()),
    "connection": ColumnSpec(np.int32, pa.int32(), lowest=1, highest=2**31 - 1),
    "reason_code": ColumnSpec(np.int16, pa.int16(), highest=255),
    "node": ColumnSpec(np.int32, _NAME, "nodes", highest=2**31 - 1),
    "process": ColumnSpec(np.int64, pa.int64()),
    "operation": ColumnSpec(np.int32, _NAME, "operations"),
    "key": ColumnSpec(np.int32, _NAME, "keys"),
    "value": ColumnSpec(np.int32, _NAME, "values"),
}
ALWAYS_REQUIRED = ("event_id", "time_us", "kind")
NUMERIC_NAMES = ("publisher", "topic", "subscriber", "node")  # may be plain integers on disk, where size matters

SCHEMA = pa.schema([pa.field(name, spec.arrow, nullable=name not in ALWAYS_REQUIRED) for name, spec in COLUMNS.items()])
"""The Arrow schema with every column. A file may leave out columns that none of its rows needs."""


class NameTable:
    """Names and their codes, in order of first appearance. A file that holds integers has no names: `numeric`. Who
    writes one batch after the other says so beforehand, for a first batch without any value does not show it."""

    def __init__(self, names: Iterable[str] = (), numeric: bool = False) -> None:
        self.names: list[str] = list(names)
        self.code_of: dict[str, int] = {name: code for code, name in enumerate(self.names)}
        self.numeric = numeric

    def code(self, name: str) -> int:
        """The code of a name, given out at its first appearance."""
        code = self.code_of.setdefault(name, len(self.names))
        if code == len(self.names):
            self.names.append(name)
        return code

    def label(self, code: int) -> str | int:
        """The name behind a code; the integer itself where the file holds integers."""
        return self.names[code] if 0 <= code < len(self.names) else int(code)


@dataclass(frozen=True)
class Names:
    """The name tables of one history. Publishers and subscribers are clients alike, so they share one."""

    clients: NameTable = field(default_factory=NameTable)
    topics: NameTable = field(default_factory=NameTable)
    nodes: NameTable = field(default_factory=NameTable)
    operations: NameTable = field(default_factory=NameTable)
    keys: NameTable = field(default_factory=NameTable)
    values: NameTable = field(default_factory=NameTable)

    def table(self, column: str) -> NameTable | None:
        """The table that a column's codes index; None for a column of plain numbers."""
        names = COLUMNS[column].names
        return None if names is None or names == "kinds" else getattr(self, names)


@dataclass(frozen=True)
class EventBatch:
    """A run of consecutive rows as NumPy columns of equal length; -1 where a value is absent."""

    event_id: IntArray
    time_us: IntArray
    kind: IntArray
    publisher: IntArray
    topic: IntArray
    qos: IntArray
    subscriber: IntArray
    sequence: IntArray
    packet_id: IntArray
    dup: IntArray
    retained: IntArray
    expiry_interval_us: IntArray
    delivered_qos: IntArray
    session: IntArray
    receive_maximum: IntArray
    will_delay_us: IntArray
    connection: IntArray
    reason_code: IntArray
    node: IntArray
    process: IntArray
    operation: IntArray
    key: IntArray
    value: IntArray

    def __len__(self) -> int:
        return len(self.event_id)

    @classmethod
    def of(cls, **columns: npt.ArrayLike) -> EventBatch:
        """A batch from the columns that there are; the others are absent in every row."""
        rows = len(np.asarray(columns["event_id"]))
        arrays = {}
        for name, spec in COLUMNS.items():
            given = columns.pop(name, None)
            array = np.full(rows, -1, spec.dtype) if given is None else np.ascontiguousarray(given, spec.dtype)
            if array.shape != (rows,):
                raise ValueError(f"column {name} has shape {array.shape}, event_id has ({rows},)")
            arrays[name] = array
        if columns:
            raise ValueError(f"no such columns: {sorted(columns)}")
        return cls(**arrays)

    def columns(self, names: Sequence[str], rows: slice = slice(None)) -> tuple[IntArray, ...]:
        """Some columns of some rows, as compiled code takes them."""
        return tuple(getattr(self, name)[rows] for name in names)

    def select(self, rows: IntArray | slice) -> EventBatch:
        """The rows of a mask, an index array or a slice, in their order."""
        return EventBatch(**{f.name: np.ascontiguousarray(getattr(self, f.name)[rows]) for f in fields(self)})


@dataclass(frozen=True)
class History:
    """A whole history in memory: batches in order, and the names behind their codes."""

    batches: tuple[EventBatch, ...]
    names: Names = field(default_factory=Names)

    def __iter__(self) -> Iterator[EventBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def joined(self) -> EventBatch:
        """All rows as one batch."""
        if len(self.batches) == 1:
            return self.batches[0]
        return EventBatch(
            **{name: np.concatenate([getattr(batch, name) for batch in self.batches]) for name in COLUMNS}
        )

    def split(self, sizes: Iterable[int]) -> History:
        """The same rows in batches of the given sizes; the rest forms the last batch."""
        whole, parts, start = self.joined(), [], 0
        for size in sizes:
            parts.append(whole.select(slice(start, start + size)))
            start += size
        parts.append(whole.select(slice(start, len(whole))))
        return History(tuple(part for part in parts if len(part)), self.names)


def describe_event(batch: EventBatch, row: int, names: Names) -> dict[str, Any]:
    """One row as a dictionary of its present columns, names spelt out: what a witness shows."""
    described: dict[str, Any] = {}
    for column in COLUMNS:
        code = int(getattr(batch, column)[row])
        if code < 0:
            continue
        table = names.table(column)
        if column == "kind":
            described[column] = KIND_LABELS[code]
        elif column in ("dup", "retained"):
            if code:
                described[column] = True
        else:
            described[column] = code if table is None else table.label(code)
    return described


# Plain integers: what compiled loops compare a `kind` column with.
PUBLISH = int(EventKind.PUBLISH)
PUBLISH_ACKNOWLEDGED = int(EventKind.PUBLISH_ACKNOWLEDGED)
DELIVER = int(EventKind.DELIVER)
RECEIVE = int(EventKind.RECEIVE)
RELEASE = int(EventKind.RELEASE)
ACKNOWLEDGE = int(EventKind.ACKNOWLEDGE)
TRIM = int(EventKind.TRIM)
EXPIRE = int(EventKind.EXPIRE)
CLEAR = int(EventKind.CLEAR)
SUBSCRIBE = int(EventKind.SUBSCRIBE)
UNSUBSCRIBE = int(EventKind.UNSUBSCRIBE)
CONNECT = int(EventKind.CONNECT)
DISCONNECT = int(EventKind.DISCONNECT)
HEAL = int(EventKind.HEAL)
CUT = int(EventKind.CUT)
FAULT = int(EventKind.FAULT)
END = int(EventKind.END)
REFUSED = 128  # Reason Codes from here on are errors; a PUBREC with one ends its exchange (MQTT 5.0, 4.3.3)
