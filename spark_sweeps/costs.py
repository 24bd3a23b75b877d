"""What runs will cost, in seconds, from those that were measured: a pilot's, an earlier sweep's, or this one's so far.

The logarithm of the seconds is fitted by ridge regression on the parameters (numbers, their logarithms, and which of
its values a text has). It only decides which runs are begun first; no result depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.errors import InputError
from spark_sweeps.plan import Plan
from spark_sweeps.result_folder import ResultFolder, read_rows
from spark_sweeps.rows import PREFIX

RIDGE = 0.3
ROWS_MAX = 5000
SECONDS_MIN = 1e-4


class CostModel:
    """Seconds by parameters. Without rows every run costs ``default_s``."""

    def __init__(self, rows: Sequence[tuple[Mapping[str, Any], float]], default_s: float = 1.0) -> None:
        self._columns: list[tuple[str, str]] = []
        seconds = np.log([max(second, SECONDS_MIN) for _, second in rows]) if rows else np.array([math.log(default_s)])
        self._mean = float(seconds.mean())
        self._highest = float(seconds.max()) + math.log(10)
        self._weights = self._centre = self._scale = np.zeros(0)
        if len(rows) < 3:
            return
        for name in sorted({name for parameters, _ in rows for name in parameters}):
            values = [parameters.get(name) for parameters, _ in rows]
            if all(_is_number(value) for value in values):
                self._columns.append((name, "number"))
                if all(value > 0 for value in values):
                    self._columns.append((name, "log"))
            else:
                self._columns += [(name, str(value)) for value in sorted({str(value) for value in values})[:20]]
        features = np.array([self._features(parameters) for parameters, _ in rows]).reshape(len(rows), -1)
        self._centre, self._scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-12)
        varied = (features - self._centre) / self._scale
        gram = varied.T @ varied + RIDGE * np.eye(varied.shape[1])
        self._weights = np.linalg.solve(gram, varied.T @ (seconds - self._mean))

    def seconds(self, parameters: Mapping[str, Any]) -> float:
        """The estimate for a run with these parameters."""
        if len(self._weights) == 0:
            return math.exp(self._mean)
        varied = (np.array(self._features(parameters)) - self._centre) / self._scale
        return math.exp(min(self._mean + float(varied @ self._weights), self._highest))

    def _features(self, parameters: Mapping[str, Any]) -> list[float]:
        found = []
        for name, kind in self._columns:
            value = parameters.get(name)
            if kind == "number":
                found.append(float(value) if _is_number(value) else 0.0)
            elif kind == "log":
                found.append(math.log(value) if _is_number(value) and value > 0 else 0.0)
            else:
                found.append(float(str(value) == kind))
        return found


def estimated(
    plan: Plan, runs: np.ndarray, measured: Sequence[tuple[int, float]], earlier: CostModel | None
) -> np.ndarray:
    """Seconds of each of ``runs``: by the file's own ``cost`` scaled to what was measured, else by the model of
    ``measured`` (run, seconds), else by that of an earlier sweep.
    """
    rows = [(plan.run(number).parameters, second) for number, second in measured]
    if plan.has_cost:
        stated = np.array([plan.stated_cost(plan.run(int(number))) for number in runs])
        known = [plan.stated_cost(plan.run(number)) for number, _ in measured]
        return stated * (sum(second for _, second in measured) / sum(known) if known else 1 / max(stated.mean(), 1e-12))
    model = earlier if earlier is not None and len(rows) < 3 else CostModel(rows)
    costs = np.empty(len(runs))
    last = (-1, 0.0)
    for place, number in enumerate(runs.tolist()):
        point = number // plan.sweep.replications.count
        if point != last[0]:
            last = (point, _seconds(plan, model, number))
        costs[place] = last[1]
    return costs


def _seconds(plan: Plan, model: CostModel, number: int) -> float:
    try:
        return model.seconds(plan.run(number).parameters)
    except InputError:
        return SECONDS_MIN  # it becomes a row with its error


def measured_rows(folder: ResultFolder) -> list[tuple[int, float]]:
    """(run, seconds) of at most ROWS_MAX committed rows."""
    found: list[tuple[int, float]] = []
    for path in folder.files():
        table = read_rows(path, ["run", "wall_s"])
        found += zip(table.column("run").to_pylist(), table.column("wall_s").to_pylist(), strict=True)
        if len(found) >= ROWS_MAX:
            break
    return found[:ROWS_MAX]


def model_of_earlier(path: str) -> CostModel:
    """The costs in the results of another sweep, by the parameters that it varied. Raises InputError."""
    folder = ResultFolder(path)
    folder.manifest()
    rows: list[tuple[Mapping[str, Any], float]] = []
    for file in folder.files():
        for row in read_rows(file, None).to_pylist():
            given = {name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)}
            rows.append((given, row["wall_s"]))
        if len(rows) >= ROWS_MAX:
            break
    if not rows:
        raise InputError(f"--costs {path}: no rows there; name the folder of a sweep that has run")
    return CostModel(rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
