"""The recorder: what a simulation did, as rows of the History, in time order, streamed, with a digest of its bytes.

Parts of a system hand over whole batches whose instants may lie a little ahead or behind. Rows wait until the clock has
passed them by ``slack_us``, then leave sorted by time; rows of equal time keep the order in which they came. Rows leave
once per ``slack_us`` at most, so that each is sorted about twice, however many come; what waits is what two such
intervals hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import COLUMNS, EventBatch, EventKind

Sink = Callable[[EventBatch], None]
Derive = Callable[[npt.NDArray[np.int64]], Mapping[str, npt.ArrayLike]]

RECORDED = ("time_us", "kind", "publisher", "topic", "qos", "subscriber", "sequence", "packet_id", "dup",
            "delivered_qos", "session", "node", "operation")  # fmt: skip
FLUSH_ROWS = 1 << 16
RESERVED_ROWS = 1 << 20
"""Room for so many rows is asked for at once: what was never written to takes no memory, and what waits is not copied
whenever there is more of it."""


class HistoryRecorder:
    """Rows in, batches out to every sink. ``slack_us``: how far behind the clock a row may still come. ``more``:
    columns of the history beside the usual ones."""

    def __init__(self, sinks: list[Sink], slack_us: int, more: Sequence[str] = ()) -> None:
        self.sinks = sinks
        self.slack_us = slack_us
        self.rows = 0
        self.derive: Derive | None = None
        """Columns that follow from a message's number. They are made when rows leave: one call for thousands of rows,
        not one for a pack."""
        self._names = (*RECORDED, *more)
        self._columns: dict[str, npt.NDArray[Any]] = {}
        """Of the rows that wait, from the first row on that has one; absent values behind them as far as ``_room``, so
        that a row sets only what it has."""
        self._waiting = 0
        self._room = 0
        self._absent: dict[npt.DTypeLike, npt.NDArray[Any]] = {}
        """Per type, a column for rows that have none."""
        for name in ("time_us", "kind", "message"):
            self._begin(name)
        self._emitted_us = -(2**62)
        self._last_us = 0
        self._next_us = 0
        """When the clock is there, rows may leave again."""
        self._hash = blake2b(digest_size=16)

    def add(self, kind: EventKind, time_us: npt.ArrayLike, **columns: npt.ArrayLike) -> None:
        """Add rows of one kind: ``time_us`` is an array, every other column an array of its length or one value for
        all. ``message``, which is no column of the history, stands for those that ``derive`` makes of it."""
        times = np.asarray(time_us)
        start, end = self._waiting, self._waiting + len(times)
        if end > self._room:
            self._make_room(end)
        held = self._columns
        held["time_us"][start:end] = times
        held["kind"][start:end] = kind
        for name, values in columns.items():
            if values.__class__ is int and values == -1:
                continue
            column = held.get(name)
            if column is None:
                column = self._begin(name)
            column[start:end] = values
        self._waiting = end

    def _begin(self, name: str) -> npt.NDArray[Any]:
        assert name in self._names or name == "message", f"{name} is no column of this recorder"
        column = self._columns[name] = np.empty(
            max(RESERVED_ROWS, self._room), np.int64 if name == "message" else COLUMNS[name].dtype
        )
        column[: self._room] = -1
        return column

    def _make_room(self, rows: int) -> None:
        begun, self._room = self._room, max(rows, self._room + FLUSH_ROWS)
        for name, column in self._columns.items():
            if self._room > len(column):
                held, column = column, np.empty(2 * self._room, column.dtype)
                column[:begun] = held[:begun]
                self._columns[name] = column
            column[begun : self._room] = -1

    def advance(self, now_us: int) -> None:
        """Let rows leave once there are enough of them; the clock stands at ``now_us``."""
        if self._waiting >= FLUSH_ROWS and now_us >= self._next_us:
            self._next_us = now_us + self.slack_us
            self._emit(now_us - self.slack_us)

    def close(self, over_us: int = 0) -> None:
        """Let all rows leave, and behind them one that says until when the recording would have taken in more."""
        last_us = int(self._columns["time_us"][: self._waiting].max(initial=self._last_us))
        self._emit(2**62)
        self._send(EventBatch.of(event_id=[self.rows], time_us=[max(over_us, last_us)], kind=[EventKind.END]))

    @property
    def digest(self) -> str:
        """Digest of all rows that have left but the last, which is of the recording, in hexadecimal: equal digests,
        equal histories."""
        return self._hash.hexdigest()

    def _emit(self, before_us: int) -> None:
        times = self._columns["time_us"][: self._waiting]
        order = np.argsort(times, kind="stable")
        ready = int(np.searchsorted(times, before_us, sorter=order))
        if ready and times[order[0]] < self._emitted_us:
            raise AssertionError(
                f"a row of {times[order[0]]} us came after those before {self._emitted_us} us had left"
            )
        self._emitted_us = max(self._emitted_us, before_us)
        for start in range(0, ready, FLUSH_ROWS):
            self._write(order[start : min(start + FLUSH_ROWS, ready)])
        stay = np.sort(order[ready:])  # in the order in which they came: equal times must keep it
        for column in self._columns.values():
            column[: len(stay)] = column[stay]
            column[len(stay) : self._waiting] = -1
        self._waiting = len(stay)

    def _write(self, rows: npt.NDArray[np.int64]) -> None:
        held, count = self._columns, len(rows)
        columns = {name: held[name][rows] for name in self._names if name in held}
        if self.derive is not None:
            messages = held["message"][rows]
            places = np.flatnonzero(messages >= 0)
            for name, values in self.derive(messages[places]).items():
                if name not in columns:
                    columns[name] = np.full(count, -1, COLUMNS[name].dtype)
                columns[name][places] = values
        columns = {
            name: columns[name] if name in columns else self._without(COLUMNS[name].dtype)[:count]
            for name in self._names
        }
        for column in columns.values():
            self._hash.update(column.data)
        self._last_us = int(columns["time_us"][-1])
        self._send(EventBatch.of(event_id=np.arange(self.rows, self.rows + len(rows)), **columns))

    def _without(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        column = self._absent.get(dtype)
        if column is None:
            column = self._absent[dtype] = np.full(FLUSH_ROWS, -1, dtype)
        return column

    def _send(self, batch: EventBatch) -> None:
        self.rows += len(batch)
        for sink in self.sinks:
            sink(batch)
