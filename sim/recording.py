"""The recorder: what a simulation did, as rows of the History, in time order, streamed, with a digest of its bytes.

Parts of a system hand over whole batches whose instants may lie a little ahead or behind. Rows wait until the clock has
passed them by ``slack_us``, then leave sorted by time; rows of equal time keep the order in which they came. Rows leave
once per ``slack_us`` at most, so that each is sorted about twice, however many come; what waits is what two such
intervals hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from model.history import COLUMNS, EventBatch, EventKind

Sink = Callable[[EventBatch], None]

RECORDED = ("time_us", "kind", "publisher", "topic", "qos", "subscriber", "sequence", "packet_id", "dup",
            "delivered_qos", "session", "node", "operation")  # fmt: skip
FLUSH_ROWS = 1 << 16


class HistoryRecorder:
    """Rows in, batches out to every sink. ``slack_us``: how far behind the clock a row may still come. ``more``: columns
    of the history beside the usual ones."""

    def __init__(self, sinks: list[Sink], slack_us: int, more: Sequence[str] = ()) -> None:
        self.columns = (*RECORDED, *more)
        self._row = np.dtype([(name, COLUMNS[name].dtype) for name in self.columns])
        """A row in one piece: to sort rows is then to move whole ones."""
        self._absent = np.array([(-1,) * len(self.columns)], self._row)[0]
        self.sinks = sinks
        self.slack_us = slack_us
        self.rows = 0
        self._pending: list[npt.NDArray[Any]] = []
        self._pending_rows = 0
        self._emitted_us = -(2**62)
        self._next_us = 0
        """When the clock is there, rows may leave again."""
        self._hash = blake2b(digest_size=16)

    def add(self, kind: EventKind, time_us: npt.ArrayLike, **columns: npt.ArrayLike) -> None:
        """Rows of one kind: ``time_us`` is an array, every other column an array of its length or one value for all."""
        times = np.asarray(time_us)
        block = np.full(len(times), self._absent, self._row)
        block["time_us"] = times
        block["kind"] = kind
        for name, values in columns.items():
            block[name] = values
        self._pending.append(block)
        self._pending_rows += len(times)

    def advance(self, now_us: int) -> None:
        """The clock stands at ``now_us``; rows leave once there are enough of them."""
        if self._pending_rows >= FLUSH_ROWS and now_us >= self._next_us:
            self._next_us = now_us + self.slack_us
            self._emit(now_us - self.slack_us)

    def close(self) -> None:
        """All rows leave."""
        self._emit(2**62)

    @property
    def digest(self) -> str:
        """Of all rows that have left, in hexadecimal: equal digests, equal histories."""
        return self._hash.hexdigest()

    def _emit(self, before_us: int) -> None:
        if not self._pending:
            return
        whole = np.concatenate(self._pending)
        times = np.ascontiguousarray(whole["time_us"])
        order = np.argsort(times, kind="stable")
        ready = int(np.searchsorted(times, before_us, sorter=order))
        if ready and times[order[0]] < self._emitted_us:
            raise AssertionError(f"a row of {times[order[0]]} us came after those before {self._emitted_us} us had left")
        self._emitted_us = max(self._emitted_us, before_us)
        self._pending = [whole[np.sort(order[ready:])]]  # in the order in which they came: equal times must keep it
        self._pending_rows = len(whole) - ready
        for start in range(0, ready, FLUSH_ROWS):
            self._write(whole[order[start : min(start + FLUSH_ROWS, ready)]])

    def _write(self, rows: npt.NDArray[Any]) -> None:
        columns = {name: np.ascontiguousarray(rows[name]) for name in self.columns}
        for column in columns.values():
            self._hash.update(column.data)
        batch = EventBatch.of(event_id=np.arange(self.rows, self.rows + len(rows)), **columns)
        self.rows += len(rows)
        for sink in self.sinks:
            sink(batch)
