"""The folder of a sweep's results: a manifest, and rows in Parquet files that workers commit on their own.

A file appears whole (temporary name, fsync, rename) and its name says what it holds (`committed`). The driver merges
files as they come: the merged file first, then its sources go; where it was killed between the two, the next start
removes them. A run that was committed twice, by a worker that outlived its driver or in that moment, counts once:
readers keep the first of equal attempts. Renaming needs a POSIX file system (a local disk, NFS); an object store does
not rename atomically.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.model.files import json_of, remove_abandoned, write_whole
from orderlab.spark_sweeps.results.committed import (
    FOREIGN,
    SOURCES,
    CommittedName,
    Counts,
    Listing,
    content_digest,
    read_rows,
    sources_of,
)
from orderlab.spark_sweeps.sweep_file.specification import MANIFEST, digest_of

SWEEP_DIGEST = "sweep_digest"
"""The column in which each row says to which sweep it belongs (`identity_of`)."""


def identity_of(manifest: Mapping[str, Any]) -> str:
    """The digest of all that decides what the rows of a sweep are: file, code, scripts, and what the user brings."""
    told = {name: value for name, value in manifest.items() if name != "description"}
    return digest_of(json.dumps(told, sort_keys=True).encode())


class OwnedFolder:
    """A folder that belongs to one sweep, or to one question. Its manifest says to which, and its lock that somebody
    writes there."""

    manifest_name = MANIFEST
    owner = "sweep"
    parts: tuple[str, ...] = ()
    """The folders in it that are made with it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: Any = None
        self._identity: str | None = None

    def check(self, manifest: dict[str, Any]) -> None:
        """Raise InputError where `open` would, and make nothing."""
        self._left(manifest)
        place = next(each for each in (self.path, *self.path.absolute().parents) if each.exists())
        if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
            why = os.strerror(errno.EACCES if place.is_dir() else errno.ENOTDIR)
            raise InputError(f"{self.path}: cannot be made ({why}); name a folder that can be written")

    def _left(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """The manifest that an earlier start of the same sweep left; None where nothing is there. Raises InputError."""
        found, place = None, self.path / self.manifest_name
        try:
            found = dict(json_of(place.read_bytes(), str(place), "name another folder"))
        except FileNotFoundError:
            if not self._is_fresh():
                raise InputError(
                    f"{self.path}: not empty, and without the {place.name} of a {self.owner}; name another folder"
                ) from None
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{place}: unreadable ({error}); name another folder") from None
        if found is not None:
            found.pop("description", None)
        if found is not None and found != manifest:
            raise InputError(
                f"{self.path}: made by a different {self.owner} ({_difference(found, manifest)}); name another folder"
            )
        return found

    def open(self, manifest: dict[str, Any], description: str = "") -> None:
        """Make the folder, or find in it what an earlier start of the same sweep left. Raises InputError."""
        found, place = self._left(manifest), self.path / self.manifest_name
        self._identity = identity_of(manifest)
        try:
            for part in ("", *self.parts):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be made ({error.strerror}); name a folder that can be written"
            ) from None
        self._take_lock()
        if found is None and place.is_file():  # another start was first, and is done
            self.close()
            self.open(manifest, description)
            return
        if found is None:
            told = json.dumps({**manifest, "description": description}, indent=1, sort_keys=True)
            write_whole(place, told.encode())
        self._remove_left_overs()

    def _remove_left_overs(self) -> None:
        """Nothing but in folders of rows."""

    def _is_fresh(self) -> bool:
        """Not there, empty, or left by a start that was killed before its manifest was whole."""
        if not self.path.is_dir():
            return not self.path.exists()
        own = {self.path / part for part in self.parts}
        return all(
            (item in own and item.is_dir() and not any(item.iterdir()))
            or item.name == ".lock"
            or (item.is_file() and item.name.removeprefix(".").startswith(self.manifest_name))
            for item in self.path.iterdir()
        )

    def _take_lock(self) -> None:
        self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError(
                f"{self.path}: another sweep writes here now; wait for it, or name another folder"
            ) from None

    def close(self) -> None:
        """Let others write here."""
        if self._lock is not None:
            self._remove_left_overs()
            self._lock.close()
            self._lock = None


class QuestionFolder(OwnedFolder):
    """Where the rounds of one question are, each a sweep of its own, and its answer."""

    manifest_name = "question.json"
    owner = "question"

    @contextlib.contextmanager
    def held(self, manifest: dict[str, Any]) -> Iterator[None]:
        """Within it no other start of a question or a sweep writes here. Raises InputError."""
        self.open(manifest)
        try:
            yield
        finally:
            self.close()


class ResultFolder(OwnedFolder):
    """Where the results of one sweep are. Rows that say that they belong to another one are refused."""

    parts = ("rows", "histories")

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.rows_path = self.path / "rows"
        self.histories = self.path / "histories"
        self._listing = Listing(self.rows_path)

    @property
    def identity(self) -> str:
        """What each of its rows has to say. Raises InputError where there is no manifest."""
        if self._identity is None:
            self._identity = identity_of(self.manifest())
        return self._identity

    def _remove_left_overs(self) -> None:
        """What workers that were killed were at, and what was merged before a driver was."""
        for left_over in self.rows_path.glob(".[0-9]*"):
            left_over.unlink(missing_ok=True)
        for merged in list(self.rows_path.glob("*.merged.parquet")):
            if not merged.exists():  # it was merged itself
                continue
            sources = [self.rows_path / name for name in sources_of(merged)]
            if any(source.exists() for source in sources):
                read_rows(merged, ["run"])  # whole, so that nothing is lost with them
            for source in sources:
                source.unlink(missing_ok=True)

    # -- the workers' side ---------------------------------------------------------------------------------

    def remove_abandoned(self) -> None:
        """Remove what workers that were ended have left half-written."""
        for part in self.parts:
            remove_abandoned(self.path / part)

    def commit(self, table: pa.Table) -> None:
        """Add rows of one attempt, all or none. Raises InputError where the disk is full or gone."""
        self._commit(table, is_merged=False)

    def _commit(self, table: pa.Table, is_merged: bool) -> Path:
        runs = table.column("run").to_numpy()
        attempt = table.column("attempt")[0].as_py()
        status, outcome = table.column("status").to_pylist(), table.column("outcome").to_pylist()
        failed = sum(one != "ok" for one in status)
        violated = sum(one == "violated" for one in outcome)
        digest = digest_of(np.ascontiguousarray(runs, "<i8").tobytes())
        packed = io.BytesIO()
        pq.write_table(table, packed, compression="zstd")
        content = packed.getvalue()
        counts = Counts(len(runs), failed, violated)
        place = self.rows_path / str(CommittedName(attempt, digest, counts, content_digest(content), is_merged))
        try:
            write_whole(place, content)
        except InputError as error:
            raise InputError(f"{error}; what is committed is kept: run the same command again") from None
        return place

    # -- the driver's side ---------------------------------------------------------------------------------

    def merge_files(self) -> bool:
        """Merge some files into one; whether there were so many. For the driver alone, which holds the lock. Raises
        InputError."""
        names = self._listing.mergeable()
        if not names:
            return False
        places = [self.rows_path / name for name in names]
        tables = [self._own_rows(place, None) for place in places]
        merged = pa.concat_tables(tables).replace_schema_metadata({SOURCES: json.dumps(names)})
        newest = max(place.stat().st_mtime_ns for place in places)
        place = self._commit(_once_each(merged), is_merged=True)
        os.utime(place, ns=(newest, newest))  # when its rows came, for who watches
        for source in places:
            source.unlink()
        self._listing.look()
        return True

    # -- reading -------------------------------------------------------------------------------------------

    def files(self, attempt: int | None = None) -> list[Path]:
        """The committed files, in the order of their names."""
        if not self.rows_path.is_dir():
            raise InputError(f"{self.path}: no results of a sweep here; run orderlab sweep first")
        found = sorted(path for path in self.rows_path.iterdir() if CommittedName.of(path.name))
        return [path for path in found if attempt is None or int(path.name.partition("-")[0]) == attempt]

    def manifest(self) -> dict[str, Any]:
        """What the sweep was. Raises InputError."""
        try:
            found: dict[str, Any] = json_of((self.path / MANIFEST).read_bytes(), f"{self.path}/{MANIFEST}")
        except (OSError, InputError):
            raise InputError(f"{self.path}: no results of a sweep here; name the output folder of one") from None
        return found

    def counts(self, attempt: int | None = None) -> Counts:
        """Counts, by the names of the files alone."""
        if not self.rows_path.is_dir():
            raise InputError(f"{self.path}: no results of a sweep here; run orderlab sweep first")
        self._listing.look()
        return self._listing.counts(attempt)

    def counts_lately(self, attempt: int | None = None) -> Counts:
        """Counts for who asks all the time: as of a moment ago, so that listing takes no more than a small share of
        it."""
        self._listing.look_if_cheap()
        return self._listing.counts(attempt)

    def standing(self, runs: int) -> Standing:
        """Which runs have a row, and how that row ended."""
        attempt = np.zeros(runs, np.int32)
        failed, violated = np.zeros(runs, np.bool_), np.zeros(runs, np.bool_)
        for path, table in self.committed(["run", "attempt", "status", "outcome"]):
            if table.num_rows and not 0 <= pc.min(table["run"]).as_py() <= pc.max(table["run"]).as_py() < runs:
                raise InputError(f"{path}: {FOREIGN}")
            number, tried = table.column("run").to_numpy(), table.column("attempt").to_numpy()
            newer = tried > attempt[number]
            number = number[newer]
            attempt[number] = tried[newer]
            failed[number] = (np.asarray(table.column("status").to_pylist(), object) != "ok")[newer]
            violated[number] = (np.asarray(table.column("outcome").to_pylist(), object) == "violated")[newer]
        return Standing(attempt, failed, violated)

    def tables(self, runs: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows that count, file by file: of each run its last attempt, once."""
        attempt = self.standing(runs).attempt
        seen = np.zeros(runs, np.bool_)
        wanted = None if columns is None else [*dict.fromkeys(["run", "attempt", *columns])]
        for _, table in self.committed(wanted):
            number, tried = table.column("run").to_numpy(), table.column("attempt").to_numpy()
            keep = (tried == attempt[number]) & ~seen[number]
            seen[number[keep]] = True
            if keep.any():
                yield table.filter(pa.array(keep))

    def committed(self, columns: Sequence[str] | None = None) -> Iterator[tuple[Path, pa.Table]]:
        """Each committed file with its rows; where some were merged meanwhile, what they became. Raises InputError."""
        read: set[Path] = set()
        while left := [path for path in self.files() if path not in read]:
            with contextlib.suppress(FileNotFoundError):
                for path in left:
                    yield path, self._own_rows(path, columns)
                    read.add(path)

    def _own_rows(self, path: Path, columns: Sequence[str] | None) -> pa.Table:
        """One committed file, if every row of it belongs here. Raises InputError."""
        wanted = None if columns is None else [*columns, SWEEP_DIGEST]
        table = read_rows(path, wanted)
        told = table.column(SWEEP_DIGEST) if SWEEP_DIGEST in table.column_names else None
        if told is None or told.null_count or not pc.all(pc.equal(told, self.identity)).as_py():
            raise InputError(f"{path}: rows of another sweep; remove it: its runs are then done again")
        return table if columns is None else table.drop_columns([SWEEP_DIGEST])


@dataclass(frozen=True)
class Standing:
    """Per run: its last attempt (0: none), and whether that failed or violated a law."""

    attempt: np.ndarray
    failed: np.ndarray
    violated: np.ndarray

    @property
    def counts(self) -> Counts:
        """Counts of runs that have a row."""
        return Counts(int((self.attempt > 0).sum()), int(self.failed.sum()), int(self.violated.sum()))


def _once_each(table: pa.Table) -> pa.Table:
    """The first row of each run: two workers may have committed the same one."""
    _, first = np.unique(table.column("run").to_numpy(), return_index=True)
    return table if len(first) == table.num_rows else table.take(np.sort(first))


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first place where two manifests differ, as a key path."""
    for key in sorted({*found, *wanted}):
        one, other = found.get(key), wanted.get(key)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                return f"{key}.{_difference(one, other)}"
            changed = {
                "code": "the code has changed since", "scripts": "the Lua scripts have changed since",
                "subject": "the module of its system, what that imports, or a cost model has changed since",
            }  # fmt: skip
            return changed.get(key, f"{key}: there {json.dumps(one)}, here {json.dumps(other)}")
    return "no key"
