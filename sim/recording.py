"""The recorder: what a simulation did, as rows of the History, in time order, streamed, with a digest of its bytes.

Parts of a system hand over whole batches whose instants may lie a little ahead or behind. Rows wait until the clock has
passed them by ``slack_us``, then leave sorted by time; rows of equal time keep the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from model.history import COLUMNS, EventBatch, EventKind

Ints = npt.NDArray[np.int64]
Sink = Callable[[EventBatch], None]

RECORDED = ("time_us", "kind", "publisher", "topic", "qos", "subscriber", "sequence", "packet_id", "dup",
            "delivered_qos", "session", "node", "operation")  # fmt: skip
_PLACE = {name: place for place, name in enumerate(RECORDED)}
FLUSH_ROWS = 1 << 16


class HistoryRecorder:
    """Rows in, batches out to every sink. ``slack_us``: how far behind the clock a row may still come."""

    def __init__(self, sinks: list[Sink], slack_us: int) -> None:
        self.sinks = sinks
        self.slack_us = slack_us
        self.rows = 0
        self._pending: list[Ints] = []
        self._pending_rows = 0
        self._emitted_us = -(2**62)
        self._hash = blake2b(digest_size=16)

    def add(self, kind: EventKind, time_us: npt.ArrayLike, **columns: npt.ArrayLike) -> None:
        """Rows of one kind: ``time_us`` is an array, every other column an array of its length or one value for all."""
        times = np.asarray(time_us, np.int64)
        block = np.full((len(RECORDED), len(times)), -1, np.int64)
        block[0] = times
        block[1] = kind
        for name, values in columns.items():
            block[_PLACE[name]] = values
        self._pending.append(block)
        self._pending_rows += len(times)

    def advance(self, now_us: int) -> None:
        """The clock stands at ``now_us``; rows leave once there are enough of them."""
        if self._pending_rows >= FLUSH_ROWS:
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
        whole = np.concatenate(self._pending, axis=1)
        whole = whole[:, np.argsort(whole[0], kind="stable")]
        ready = int(np.searchsorted(whole[0], before_us))
        if ready and whole[0, 0] < self._emitted_us:
            raise AssertionError(f"a row of {whole[0, 0]} us came after those before {self._emitted_us} us had left")
        self._emitted_us = max(self._emitted_us, before_us)
        self._pending = [np.ascontiguousarray(whole[:, ready:])]
        self._pending_rows = whole.shape[1] - ready
        if not ready:
            return
        columns = {name: whole[place, :ready].astype(COLUMNS[name].dtype) for name, place in _PLACE.items()}
        for name in RECORDED:
            self._hash.update(columns[name].tobytes())
        batch = EventBatch.of(event_id=np.arange(self.rows, self.rows + ready), **columns)
        self.rows += ready
        for sink in self.sinks:
            sink(batch)
