"""Committed files of rows: what their names say, what they add up to, and which of them are to be merged.

A name is ``<attempt>-<digest of the runs>.<rows>-<failed>-<violated>.<digest of the content>.parquet``, so that
progress and counts need no file to be opened; who opens one compares the last digest, so that a file that was edited or
damaged gives no figure. A file that others were merged into ends in ``.merged.parquet``, and its schema names them.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.sweep_file.specification import digest_of

FOREIGN = "not rows of this sweep; remove it: its runs are then done again"
LISTING_SHARE = 0.02
"""Of the driver's time that goes into looking at names while a sweep runs."""
MERGED_FILES = 64
"""So many files of about one size become one, so that a row is written once more for each factor of 64."""
MERGED_ROWS = 1 << 16
"""Files of so many rows together become one as well; a file of half as many is merged no more."""
SOURCES = b"orderlab-sources"
"""Under this key the schema of a merged file names the files that it stands for, as JSON."""
_NAME = re.compile(r"(\d+)-([0-9a-f]{32})\.(\d+)-(\d+)-(\d+)\.([0-9a-f]{16})(\.merged)?\.parquet")


@dataclass(frozen=True)
class Counts:
    """Counts of committed rows."""

    rows: int = 0
    failed: int = 0
    violated: int = 0

    def plus(self, other: Counts) -> Counts:
        """The counts of both."""
        return Counts(self.rows + other.rows, self.failed + other.failed, self.violated + other.violated)


class CommittedName(NamedTuple):
    """What the name of a committed file says. ``runs`` and ``content`` are digests."""

    attempt: int
    runs: str
    counts: Counts
    content: str
    is_merged: bool = False

    @classmethod
    def of(cls, name: str) -> CommittedName | None:
        """What a name says; None for one that no worker gives."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        counts = Counts(int(match[3]), int(match[4]), int(match[5]))
        return cls(int(match[1]), match[2], counts, match[6], match[7] is not None)

    def __str__(self) -> str:
        counts = f"{self.counts.rows}-{self.counts.failed}-{self.counts.violated}"
        merged = ".merged" if self.is_merged else ""
        return f"{self.attempt}-{self.runs}.{counts}.{self.content}{merged}.parquet"


class Listing:
    """What the names in a folder of rows add up to; a name that was seen is not parsed again. The same runs committed
    by two workers count once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._took_s = 0.0
        self._at = -math.inf
        self._forget()

    def _forget(self) -> None:
        self._seen: set[str] = set()
        self._counted: set[tuple[int, str]] = set()
        self._by_attempt: dict[int, Counts] = {}
        self._sizes: dict[tuple[int, int], list[tuple[str, int]]] = {}

    def look(self) -> None:
        """List the folder."""
        begun = time.perf_counter()
        with os.scandir(self._path) as entries:
            names = {entry.name for entry in entries}
        if not self._seen <= names:  # files were removed: count afresh
            self._forget()
        for name in names - self._seen:
            committed = CommittedName.of(name)
            if committed is not None:
                self._seen.add(name)
                self._count(name, committed)
        self._at = time.perf_counter()
        self._took_s = self._at - begun

    def _count(self, name: str, committed: CommittedName) -> None:
        rows = committed.counts.rows
        if rows < MERGED_ROWS // 2:
            size = int(math.log(max(1, rows), MERGED_FILES))
            self._sizes.setdefault((committed.attempt, size), []).append((name, rows))
        whose = (committed.attempt, committed.runs)
        if whose not in self._counted:
            self._counted.add(whose)
            so_far = self._by_attempt.get(committed.attempt, Counts())
            self._by_attempt[committed.attempt] = so_far.plus(committed.counts)

    def look_if_cheap(self) -> None:
        """List the folder, unless that would take more than LISTING_SHARE of the time."""
        if time.perf_counter() - self._at >= self._took_s / LISTING_SHARE:
            self.look()

    def counts(self, attempt: int | None) -> Counts:
        """Counts of one attempt, or of all."""
        total = Counts()
        for number, counts in self._by_attempt.items():
            if attempt in (None, number):
                total = total.plus(counts)
        return total

    def mergeable(self) -> list[str]:
        """Names of files of one attempt and of about one size that are to become one; none where there are too few."""
        for committed in self._sizes.values():
            names, total = [], 0
            for name, rows in committed:
                names.append(name)
                total += rows
                if len(names) == MERGED_FILES or total >= MERGED_ROWS:
                    return names
        return []


def read_rows(path: Path, columns: Sequence[str] | None) -> pa.Table:
    """One committed file. Raises InputError, and FileNotFoundError where it has been merged since it was listed."""
    try:
        content, named = path.read_bytes(), CommittedName.of(path.name)
        if named is not None and named.content != content_digest(content):
            raise OSError("not what a worker wrote: edited or damaged since")
        table = pq.ParquetFile(pa.BufferReader(content)).read(columns=columns, use_threads=False)
        if set(columns or ()) <= set(table.column_names):
            return table
        raise InputError(f"{path}: {FOREIGN}")
    except FileNotFoundError:
        if path.is_symlink():
            raise InputError(f"{path}: leads nowhere; remove it: its runs are then done again") from None
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def content_digest(content: bytes) -> str:
    """The digest that a file's name ends in."""
    return digest_of(content)[:16]


def sources_of(path: Path) -> list[str]:
    """The names of the files that a merged file stands for. Raises InputError."""
    try:
        names: list[str] = json.loads((pq.read_schema(path).metadata or {}).get(SOURCES, b"[]"))
    except (OSError, ValueError, RecursionError) as error:  # what Arrow raises is a ValueError
        raise _unreadable(path, error) from None
    return [name for name in names if CommittedName.of(name)]  # they are removed: no file but of rows, beside it


def _unreadable(path: Path, error: Exception) -> InputError:
    line = " ".join(str(error).split())[:120]
    return InputError(f"{path}: unreadable ({line}); remove it: its runs are then done again")
