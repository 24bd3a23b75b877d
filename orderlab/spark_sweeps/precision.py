"""Replications until the mean is known well enough: which runs a sweep wants, as a function of the rows that are there.

A point begins with ``first`` replications. When all of them are done, the half-width of the mean's interval is compared
with the target, and if it is too wide the point gets half as many again, up to ``replications.count``. The decision
depends on nothing but the rows of the point itself, so that engine, chunks, order and interruptions do not change which runs
there are. Looking several times chooses among as many intervals as there can be looks, so the error is divided among them
(`confidence_of`): however a point came to its end, its interval holds the mean as often as it says.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow.compute as pc

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.engine.intervals import interval_of
from orderlab.spark_sweeps.plan import Plan
from orderlab.spark_sweeps.result_folder import ResultFolder
from orderlab.spark_sweeps.specification import SweepFile, Until


def wanted_runs(plan: Plan, folder: ResultFolder) -> np.ndarray:
    """Of each run of the plan, whether it is to be done, as far as is known now. Raises InputError for a metric that runs
    do not have.
    """
    until, count = plan.sweep.replications.until, plan.sweep.replications.count
    if until is None:
        return np.ones(len(plan), np.bool_)
    done, values = _values(plan, folder, until.metric)
    wanted = np.zeros((plan.points, count), np.bool_)
    sizes, confidence = _sizes(until.first, count), confidence_of(plan.sweep, until.confidence)
    for point in range(plan.points):
        for size in sizes:
            if not done[point, :size].all() or size == count or _is_precise(values[point, :size], until, confidence):
                wanted[point, :size] = True
                break
    return wanted.reshape(-1)


def _sizes(first: int, count: int) -> list[int]:
    sizes = [min(first, count)]
    while sizes[-1] < count:
        sizes.append(min(count, -(-3 * sizes[-1] // 2)))
    return sizes


def confidence_of(sweep: SweepFile, confidence: float = 0.95) -> float:
    """Of each interval of a sweep so that they hold with ``confidence`` at whatever look its points came to their end."""
    until = sweep.replications.until
    looks = 1 if until is None else len(_sizes(until.first, sweep.replications.count))
    return 1 - (1 - confidence) / looks


def _is_precise(values: np.ndarray, until: Until, confidence: float) -> bool:
    """Failed runs have no value; where fewer than two have one, nothing is known."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return False
    found = interval_of(known, confidence)
    if not math.isfinite(found.half_width):
        return False  # of an infinite mean any half-width is a small share
    return (found.high - found.low) / 2 <= until.half_width * abs(found.estimate)


def _values(plan: Plan, folder: ResultFolder, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(is done, value of the metric or nan) by point and replication."""
    done, values = np.zeros(len(plan), np.bool_), np.full(len(plan), np.nan)
    for table in folder.tables(len(plan), ["status", "metrics"]):
        runs = table.column("run").to_numpy()
        done[runs] = True
        ok = pc.equal(table.column("status"), "ok")
        ended = table.filter(ok)
        found = pc.map_lookup(ended.column("metrics"), metric, "first")
        if found.null_count:
            names = tuple(name for name, _ in ended.filter(pc.is_null(found)).column("metrics")[0].as_py())
            raise InputError(
                f'{plan.place}: replications.until.metric: no metric "{metric}"; {did_you_mean(metric, names)}'
            )
        told = found.to_numpy()
        values[runs[ok.to_numpy()]] = np.where(np.isnan(told), np.inf, told)  # no number: no mean is known with it
    shape = (plan.points, plan.sweep.replications.count)
    return done.reshape(shape), values.reshape(shape)
