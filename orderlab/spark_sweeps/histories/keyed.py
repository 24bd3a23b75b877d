"""A history as a folder of parts keyed by logical FIFO, so that many tasks can judge it without a shuffle.

``history.json`` says so: each logical FIFO lies whole in one part, rows without one (subscribe, connect, clear, heal,
...) lie in every part, and ``subscribers_whole`` tells whether each subscriber's rows lie in one part, too.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import EventBatch, EventKind, IntArray, Names

MANIFEST = "history.json"
ANSWERS = (EventKind.RECEIVE, EventKind.RELEASE, EventKind.ACKNOWLEDGE)
"""Rows that belong to a subscriber's packet identifier and name no logical FIFO."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class HistoryParts:
    """The Parquet files of one history, and how they are keyed. ``rows``: of the history, each counted once."""

    files: tuple[Path, ...]
    rows: int
    keyed: bool
    subscribers_whole: bool
    end_us: int | None
    """The time of the last row, if the files' statistics tell."""
    has_packet_ids: bool


def history_parts(folder: Path) -> HistoryParts:
    """What a folder holds, or one file. Raises InputError."""
    files = (folder,) if folder.is_file() else tuple(sorted(folder.glob("*.parquet")))
    if not files:
        raise InputError(f"{folder}: no Parquet files; name a folder with the parts of a history")
    manifest = {}
    if (folder / MANIFEST).is_file():
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest.get("keyed_by") != "logical-fifo" or len(files) != manifest.get("parts"):
            raise InputError(
                f"{folder}: {MANIFEST} names {manifest.get('parts')} parts, {len(files)} are here; write it again"
            )
    rows, ends, has_packet_ids, filled = 0, [], False, []
    for file in files:
        try:
            metadata = pq.ParquetFile(file).metadata
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: truncated or not Parquet ({' '.join(str(error).split())[:100]})") from None
        if metadata.num_rows == 0:
            continue
        filled.append(file)
        rows += metadata.num_rows
        columns = {metadata.schema.column(place).name: place for place in range(metadata.num_columns)}
        has_packet_ids |= "packet_id" in columns
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group).column(columns["time_us"]).statistics if "time_us" in columns else None
            ends.append(found.max if found is not None and found.has_min_max else None)
    known = [end for end in ends if end is not None]
    end_us = max(known) if known and len(known) == len(ends) else None
    if rows == 0:
        raise InputError(f"{folder}: no events; a history has at least one row")
    return HistoryParts(
        tuple(filled),
        manifest.get("rows", rows),
        bool(manifest),
        bool(manifest.get("subscribers_whole")),
        end_us,
        has_packet_ids,
    )


class KeyedHistoryWriter:
    """Writes batches to FOLDER in ``parts`` files. The folder appears whole, when the block is left without an error."""

    def __init__(self, folder: Path, names: Names, parts: int) -> None:
        if folder.exists():
            raise InputError(f"{folder}: exists; name a new folder")
        self.folder, self.parts = folder, parts
        self.rows = 0
        self._temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        self._temporary.mkdir(parents=True)
        self._stack = ExitStack()
        self._writers = [
            self._stack.enter_context(HistoryWriter(self._temporary / f"part-{part:05d}.parquet", names))
            for part in range(parts)
        ]
        self._part_of_subscriber = np.full(1, -1, np.int64)
        self._subscribers_whole = True

    def write(self, batch: EventBatch) -> None:
        """Append the rows of a batch, each to its part."""
        self.rows += len(batch)
        part = self._part_of_rows(batch)
        for number, writer in enumerate(self._writers):
            mine = (part == number) | (part == -1)
            if mine.any():
                writer.write(batch.select(mine))

    def _part_of_rows(self, batch: EventBatch) -> IntArray:
        """The part of each row; -1: every part."""
        has_fifo = batch.publisher >= 0
        part = np.where(has_fifo, fifo_part(batch.publisher, batch.topic, batch.qos, self.parts), -1)
        most = int(batch.subscriber.max(initial=-1)) + 1
        if most > len(self._part_of_subscriber):
            grown = np.full(2 * most, -1, np.int64)
            grown[: len(self._part_of_subscriber)] = self._part_of_subscriber
            self._part_of_subscriber = grown
        delivered = np.flatnonzero(has_fifo & (batch.subscriber >= 0))
        known = self._part_of_subscriber
        before = known[batch.subscriber[delivered]]
        self._subscribers_whole &= bool(((before == -1) | (before == part[delivered])).all())
        known[batch.subscriber[delivered]] = part[delivered]
        self._subscribers_whole &= bool((known[batch.subscriber[delivered]] == part[delivered]).all())
        answers = np.flatnonzero(np.isin(batch.kind, ANSWERS))
        part[answers] = np.maximum(known[batch.subscriber[answers]], 0)
        return part

    def __enter__(self) -> KeyedHistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
            if kind is None:
                told = {
                    "keyed_by": "logical-fifo", "parts": self.parts, "rows": self.rows,
                    "subscribers_whole": self._subscribers_whole,
                }  # fmt: skip
                (self._temporary / MANIFEST).write_text(json.dumps(told))
                os.rename(self._temporary, self.folder)
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)


def fifo_part(publisher: IntArray, topic: IntArray, qos: IntArray, parts: int) -> IntArray:
    """A part for each logical FIFO, by its codes."""
    with np.errstate(over="ignore"):
        mixed = (publisher.astype(np.uint64) << np.uint64(32)) ^ (topic.astype(np.uint64) << np.uint64(2))
        mixed = (mixed ^ (qos.astype(np.uint64) & np.uint64(3))) * _MIX
        part: IntArray = ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.int64)
        return part
