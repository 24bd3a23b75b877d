"""A sweep that runs, as its committed files show it: how far it is, how fast, what failed, what it shows so far.

Nothing is asked of the process that runs it, which may be the driver of a cluster: whoever reads the folder can look.
A file of rows is opened once, when it is new. A run counts once, by its last attempt, though two workers committed it,
its file was merged with others, or it failed and was tried again.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.results.committed import FOREIGN, Counts, read_rows
from orderlab.spark_sweeps.results.rows import PREFIX, kind_of_failure, rank_of, wanted_runs
from orderlab.spark_sweeps.results.run_table import Round, rounds_of

SLOWEST = 5
METRICS = 4
RATE_S = 60.0
"""The rate is that of the files of so many seconds before the newest one."""
ANSWER = "answer.json"


@dataclass(frozen=True)
class Extreme:
    """A metric's mean at the point where it is least, or greatest, so far."""

    mean: float
    runs: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Slow:
    """A run that took long."""

    wall_s: float
    run: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """What can be seen of a sweep now. ``wanted`` None: a question finds out on its way how many runs it needs;
    ``rate``: runs per second of late, None where too little is known; ``since_s``: since the last row."""

    counts: Counts
    wanted: int | None
    rounds: Sequence[tuple[str, Counts]]
    rate: float | None
    since_s: float | None
    failures: Mapping[str, int]
    slowest: Sequence[Slow]
    metrics: Mapping[str, tuple[Extreme, Extreme]]
    is_done: bool

    @property
    def left_s(self) -> float | None:
        """How long what is left takes at this rate."""
        if self.wanted is None or not self.rate:
            return None
        return max(0, self.wanted - self.counts.rows) / self.rate


@dataclass
class FolderWatch:
    """Looks at a folder again and again. ``is_question``: it is done when it has its answer, and not before."""

    path: Path
    is_question: bool = False
    _seen: set[Path] = field(default_factory=set)
    _times: list[tuple[float, int]] = field(default_factory=list)
    _slowest: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    _sums: dict[str, dict[tuple[str, int], list[float]]] = field(default_factory=dict)
    _attempts: dict[str, np.ndarray] = field(default_factory=dict)
    """Of each round, the last attempt of each run that was seen; 0 for none."""
    _failed: dict[tuple[str, int], str] = field(default_factory=dict)
    """How each run failed whose last attempt did, by round and run."""
    _violated: dict[tuple[str, int], None] = field(default_factory=dict)
    """The runs whose last attempt violated a law."""
    _points: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.time)

    def look(self) -> Look | None:
        """What is there now; None while nothing is. Raises InputError for files that are no rows of a sweep."""
        try:
            rounds = rounds_of(self.path)
        except InputError:
            return None
        counted = []
        for each in rounds:
            if not each.folder.rows_path.is_dir():
                continue
            for path in each.folder.files():
                if path not in self._seen:
                    with contextlib.suppress(FileNotFoundError):  # merged a moment ago
                        self._take(each, path)
                    self._seen.add(path)
            counted.append((each.name, self._counts(each.name)))
        counts = Counts(*(sum(getattr(one, name) for _, one in counted) for name in ("rows", "failed", "violated")))
        wanted = self._wanted(rounds)
        newest = max((at for at, _ in self._times), default=None)
        since_s = None if newest is None else max(0.0, time.time() - newest)
        is_done = self._is_answered() if self.is_question else counts.rows >= (wanted or 0)
        slowest = [Slow(wall_s, run, given) for wall_s, run, given in sorted(self._slowest, key=lambda one: -one[0])]
        return Look(counts, wanted, counted if self.is_question else [], self._rate(), since_s,
                    Counter(self._failed.values()),
                    slowest, self._extremes(), is_done)  # fmt: skip

    def _counts(self, of: str) -> Counts:
        """Of the runs of a round, each by its last attempt."""
        seen = self._attempts.get(of)
        failed, violated = (sum(name == of for name, _ in runs) for runs in (self._failed, self._violated))
        return Counts(0 if seen is None else int((seen > 0).sum()), failed, violated)

    def _wanted(self, rounds: Sequence[Round]) -> int | None:
        return None if self.is_question else int(wanted_runs(rounds[0].plan, rounds[0].folder).sum())

    def _is_answered(self) -> bool:
        """Whether the answer is newer than all rows."""
        try:
            made = (self.path / ANSWER).stat().st_mtime
            json.loads((self.path / ANSWER).read_text())
        except (OSError, ValueError, RecursionError):
            return False
        return all(at <= made for at, _ in self._times)

    def _take(self, of: Round, path: Path) -> None:
        changed_at = path.stat().st_mtime
        table = self._new_rows(of, read_rows(path, None))
        if not table.num_rows:
            return
        self._times.append((changed_at, table.num_rows))
        parameters = [name for name in table.column_names if name.startswith(PREFIX)]
        columns = ["run", "point", "status", "outcome", "error", "wall_s", "metrics", *parameters]
        for row in table.select(columns).to_pylist():
            given = {name.removeprefix(PREFIX): row[name] for name in parameters if row[name] is not None}
            name = f"{of.name}/{row['run']}" if of.name else str(row["run"])
            if row["wall_s"] is not None and math.isfinite(row["wall_s"]):
                keep = heapq.heappush if len(self._slowest) < SLOWEST else heapq.heappushpop
                keep(self._slowest, (row["wall_s"], name, given))
            here = (of.name, row["run"])
            self._failed.pop(here, None)
            if row["status"] != "ok":
                self._failed[here] = kind_of_failure(row["status"], row["error"])
                continue
            if row["outcome"] == "violated":
                self._violated[here] = None
            point = (of.name, row["point"])
            self._points[point] = given
            for metric, value in row["metrics"] or ():
                if math.isfinite(value):
                    so_far = self._sums.setdefault(metric, {}).setdefault(point, [0.0, 0])
                    so_far[0] += value
                    so_far[1] += 1

    def _new_rows(self, of: Round, table: pa.Table) -> pa.Table:
        """The rows of attempts that are later than those that were seen, in their order. Raises InputError."""
        runs, attempts = table.column("run").to_numpy(), table.column("attempt").to_numpy()
        if len(runs) and not 0 <= runs.min() <= runs.max() < len(of.plan):
            raise InputError(f"{of.folder.rows_path}: {FOREIGN}")
        seen = self._attempts.setdefault(of.name, np.zeros(len(of.plan), np.int32))
        places: list[int] = []
        for attempt in np.unique(attempts).tolist():
            here = np.flatnonzero((attempts == attempt) & (seen[runs] < attempt))
            here = here[np.sort(np.unique(runs[here], return_index=True)[1])]
            seen[runs[here]] = attempt
            places += here.tolist()
        return table.take(pa.array(places, pa.int64()))

    def _rate(self) -> float | None:
        """Of the files of late; the oldest of them begins the time, and its rows do not count."""
        if len(self._times) < 2:
            return None
        times = sorted(self._times)
        late = [(at, rows) for at, rows in times if at >= times[-1][0] - RATE_S]
        late = late if len(late) > 1 else times[-2:]
        took_s = late[-1][0] - late[0][0]
        return sum(rows for _, rows in late[1:]) / took_s if took_s > 0 else None

    def _extremes(self) -> dict[str, tuple[Extreme, Extreme]]:
        extremes = {}
        for metric in sorted(self._sums, key=lambda name: (rank_of(name), name)):
            means = {point: (total / runs, int(runs)) for point, (total, runs) in self._sums[metric].items()}
            ordered = sorted(means, key=lambda point: (means[point][0], point))  # whatever files came first
            least, greatest = ordered[0], ordered[-1]
            if means[least][0] < means[greatest][0]:
                extremes[metric] = (
                    Extreme(*means[least], self._points[least]),
                    Extreme(*means[greatest], self._points[greatest]),
                )
            if len(extremes) == METRICS:
                break
        return extremes
