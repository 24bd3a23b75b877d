"""What runs will cost, in seconds, from those that were measured: a pilot's, an earlier sweep's, or this one's so far.

The logarithm of the seconds is fitted by ridge regression on the parameters (numbers, their logarithms, and which of
its values a text has). It only decides which runs are begun first; no result depends on it.

Chunks group runs so that handing them out costs little and all cores end together: guided self-scheduling
(Polychronopoulos, Kuck 1987), the longest first, a chunk holds what costs ``max(floor, remaining / (2 * cores))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import PREFIX
from orderlab.spark_sweeps.sweep_file.plan import LEAST_COST, Plan, Run

FloatArray = npt.NDArray[np.float64]
RIDGE = 0.3
ROWS_MAX = 5000
SECONDS_MIN = 1e-4
BLOCK_RUNS = 1 << 18
COST_MAX = 1e30
"""Costs are kept in four bytes."""


class CostModel:
    """Seconds by parameters. Without rows every run costs ``default_s``."""

    def __init__(self, rows: Sequence[tuple[Mapping[str, Any], float]], default_s: float = 1.0) -> None:
        self._columns: list[tuple[str, str]] = []
        seconds = np.log([max(second, SECONDS_MIN) for _, second in rows]) if rows else np.array([math.log(default_s)])
        self._mean = float(seconds.mean())
        self._highest = float(seconds.max()) + math.log(10)
        self._weights: FloatArray = np.zeros(0)
        self._centre: FloatArray = np.zeros(0)
        self._scale: FloatArray = np.zeros(0)
        if len(rows) < 3:
            return
        for name in sorted({name for parameters, _ in rows for name in parameters}):
            values = [parameters.get(name) for parameters, _ in rows]
            numbers = [value for value in values if _is_number(value)]
            if len(numbers) == len(values):
                self._columns.append((name, "number"))
                if all(number > 0 for number in numbers):
                    self._columns.append((name, "log"))
            else:
                self._columns += [(name, f"={value}") for value in sorted({str(value) for value in values})[:20]]
        features = np.array([self._features(parameters) for parameters, _ in rows]).reshape(len(rows), -1)
        self._centre = np.asarray(features.mean(axis=0), np.float64)
        self._scale = np.asarray(np.maximum(features.std(axis=0), 1e-12), np.float64)
        varied = (features - self._centre) / self._scale
        gram = varied.T @ varied + RIDGE * np.eye(varied.shape[1])
        self._weights = np.asarray(np.linalg.solve(gram, varied.T @ (seconds - self._mean)), np.float64)

    def seconds(self, parameters: Mapping[str, Any]) -> float:
        """The estimate for a run with these parameters."""
        if len(self._weights) == 0:
            return math.exp(self._mean)
        varied = (np.array(self._features(parameters)) - self._centre) / self._scale
        return math.exp(min(self._mean + float(varied @ self._weights), self._highest))

    def seconds_of(self, columns: Mapping[str, np.ndarray], length: int) -> np.ndarray:
        """Seconds of many runs, by columns of parameters; SECONDS_MIN where one has no value: such a run is an
        error."""
        if len(self._weights) == 0:
            return np.full(length, math.exp(self._mean))
        total = np.full(length, self._mean)
        for place, (name, kind) in enumerate(self._columns):
            feature = _feature(columns.get(name), kind, length)
            feature = np.where(np.isfinite(feature), feature, np.nan)
            total += (feature - self._centre[place]) / self._scale[place] * self._weights[place]
        seconds = np.exp(np.minimum(total, self._highest))
        return np.where(np.isfinite(seconds), seconds, SECONDS_MIN)

    def _features(self, parameters: Mapping[str, Any]) -> list[float]:
        found = []
        for name, kind in self._columns:
            value = parameters.get(name)
            number = value if _is_number(value) else 0.0
            if kind == "number":
                found.append(float(number))
            elif kind == "log":
                found.append(math.log(number) if number > 0 else 0.0)
            else:
                found.append(float(f"={value}" == kind))
        return found


def estimated(
    plan: Plan, runs: np.ndarray, measured: Sequence[tuple[int, float]], earlier: CostModel | None
) -> np.ndarray:
    """Seconds of each of ``runs``: by the file's own ``cost`` scaled to what was measured, else by the model of
    ``measured`` (run, seconds), else by that of an earlier sweep.
    """
    known_runs = [(run, second) for number, second in measured if (run := _whole(plan, number)) is not None]
    if plan.has_cost:
        unit = float(plan.stated_costs(runs[:1] // plan.sweep.replications.count).max(initial=LEAST_COST))
        stated = _by_point(plan, runs, lambda points: plan.stated_costs(points) / unit)
        known = [plan.stated_cost(run) / unit for run, _ in known_runs]
        mean = max(float(stated.mean(dtype=np.float64)), LEAST_COST)
        return stated * np.float32(sum(second for _, second in known_runs) / sum(known) if known else 1 / mean)
    rows = [(run.parameters, second) for run, second in known_runs]
    model = earlier if earlier is not None and len(rows) < 3 else CostModel(rows)
    return _by_point(plan, runs, lambda points: model.seconds_of(plan.columns(points), len(points)))


def _whole(plan: Plan, number: int) -> Run | None:
    """A run, None where a derived parameter has no value: it becomes a row with its error."""
    try:
        return plan.run(number)
    except InputError:
        return None


def _by_point(plan: Plan, runs: np.ndarray, costs_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of each run what its point costs, in blocks of runs that memory holds with ease."""
    costs = np.empty(len(runs), np.float32)
    for begin in range(0, len(runs), BLOCK_RUNS):
        points, places = np.unique(
            runs[begin : begin + BLOCK_RUNS] // plan.sweep.replications.count, return_inverse=True
        )
        costs[begin : begin + BLOCK_RUNS] = np.minimum(costs_of(points)[places], COST_MAX)
    return costs


def _feature(column: np.ndarray | None, kind: str, length: int) -> np.ndarray:
    if column is None:
        return np.zeros(length)
    if kind not in ("number", "log"):
        return np.array([f"={value}" == kind for value in column.tolist()], float)
    try:
        number = column.astype(float)
    except (TypeError, ValueError):
        number = np.array([float(value) if _is_number(value) else 0.0 for value in column])
    if kind == "number":
        return number
    return np.where(number > 0, np.log(np.where(number > 0, number, 1.0)), np.where(np.isnan(number), number, 0.0))


def measured_rows(folder: ResultFolder) -> list[tuple[int, float]]:
    """(run, seconds) of at most ROWS_MAX committed rows."""
    found: list[tuple[int, float]] = []
    for _, table in folder.committed(["run", "wall_s"]):
        found += zip(table.column("run").to_pylist(), table.column("wall_s").to_pylist(), strict=True)
        if len(found) >= ROWS_MAX:
            break
    return found[:ROWS_MAX]


def model_of_earlier(path: str) -> CostModel:
    """The costs in the results of another sweep, by the parameters that it varied. Raises InputError."""
    folder = ResultFolder(path)
    folder.manifest()
    rows: list[tuple[Mapping[str, Any], float]] = []
    for _, table in folder.committed():
        for row in table.to_pylist():
            given = {name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)}
            rows.append((given, row["wall_s"]))
        if len(rows) >= ROWS_MAX:
            break
    if not rows:
        raise InputError(f"--costs {path}: no rows there; name the folder of a sweep that has run")
    return CostModel(rows)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers_of(wanted: np.ndarray) -> np.ndarray:
    """The numbers of the runs that are ``wanted``, ascending, four bytes each: a plan may have 10^8."""
    numbers = np.empty(np.count_nonzero(wanted), np.int32)
    end = 0
    for begin in range(0, len(wanted), BLOCK_RUNS):
        block = np.flatnonzero(wanted[begin : begin + BLOCK_RUNS])
        numbers[end : end + len(block)] = block + begin
        end += len(block)
    return numbers


FLOOR_S = 0.5
CHUNKS_MAX = 10_000
FRAGMENTS_MAX = 1 << 20
"""Of more runs, neighbours go together: a chunk holds a hundred such fragments and more."""


def chunks_of(runs: np.ndarray, costs_s: np.ndarray, cores: int) -> list[np.ndarray]:
    """Run numbers in chunks, costliest first; equal costs in the order of their numbers."""
    if len(runs) == 0:
        return []
    width = -(-len(runs) // FRAGMENTS_MAX)
    begins = np.arange(0, len(runs), width)
    costs = np.add.reduceat(costs_s, begins, dtype=np.float64)
    order = np.argsort(-costs / np.diff(begins, append=len(runs)), kind="stable")
    ends = np.cumsum(costs[order])
    total = float(ends[-1])
    floor = max(FLOOR_S, total / CHUNKS_MAX)
    chunks, start, done = [], 0, 0.0
    while start < len(order):
        size = max(floor, (total - done) / (2 * cores))
        stop = max(start + 1, int(np.searchsorted(ends, done + size, side="right")))
        fragments = begins[order[start:stop]]
        chunks.append(np.concatenate([runs[begin : begin + width] for begin in fragments]) if width > 1 else
                      runs[fragments])  # fmt: skip
        start, done = stop, float(ends[stop - 1])
    return chunks
