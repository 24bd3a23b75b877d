"""Sweeps: how much of two cores goes into the runs, beside multiprocessing and joblib; histories judged on Spark
beside DuckDB; and the driver's memory.

Efficiency is the processor time of the runs themselves divided by (2 x wall time), after start-up: a first small sweep
starts the workers. The peers get the same lengths in the same order, one task a run. When other work shares the
machine, compare with the peers of the same round: nobody reaches 1.

Each part can be measured alone: ``orderlab bench sweep --part efficiency_50ms``, or, made small for a look,
``python -m benchmarks.sweep --scale 0.1 --rounds 1 --events 1000000 spark_check_vs_duckdb``. On two quiet cores with
five rounds: efficiency_1s 26 minutes, efficiency_50ms and efficiency_lognormal 13 each, spark_check_vs_duckdb about 15
(and 3 GB of disk, given back), driver_memory_ratio 3.

DuckDB reads the history from Parquet with plain integer codes, so that it need not compare texts, and answers three
laws in one query with two threads; ours (`local[2]`, keyed files, no shuffle) also judges phantoms and agreement, which
come with the pass.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.checkers_history import DUCKDB, PLANTED, arrow, block
from benchmarks.sweep_loads import burned
from benchmarks.timing import report
from orderlab.model.checkers.judge import Question
from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.history.events import EventBatch, Names
from orderlab.spark_sweeps.histories import KeyedHistoryWriter, check_folder
from orderlab.spark_sweeps.runs.job import SweepOptions, run_sweep
from orderlab.spark_sweeps.spark.session import SparkEngine, start_session

TO_REACH = {
    "efficiency_1s": (">=", 0.95), "efficiency_50ms": (">=", 0.93), "efficiency_lognormal": (">=", 0.93),
    "spark_check_vs_duckdb": (">=", 1.0), "driver_memory_ratio": ("<=", 1.1),
}  # fmt: skip
CORES = 2
WORKLOADS: dict[str, tuple[int, float, float]] = {
    "efficiency_1s": (200, 1.0, 0.0), "efficiency_50ms": (2000, 0.05, 0.0), "efficiency_lognormal": (400, 0.25, 1.0),
}  # fmt: skip
"""Runs, mean seconds of processor time each, sigma of the logarithm."""


def lengths(runs: int, mean_s: float, sigma: float) -> list[float]:
    """Seconds of each run, the same every time."""
    drawn = np.random.default_rng(1).lognormal(-(sigma**2) / 2, sigma, runs) if sigma else np.ones(runs)
    return [float(f"{one * mean_s:.6g}") for one in drawn]


class OnSpark:
    """The sweep itself, on ``local[2]``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        self.session = start_session(f"local[{CORES}]", folder / "spark.log", only_hands_out=True)

    def __call__(self, seconds: Sequence[float]) -> None:
        self.number += 1
        rows = ", ".join(f"{{ seconds = {second!r} }}" for second in seconds)
        path = self.folder / f"{self.number}.toml"
        path.write_text(
            f'system = "benchmarks.sweep_loads:burn"\noutput = "{self.folder}/{self.number}"\ncost = "seconds"\n'
            f'[design]\nkind = "table"\nrows = [{rows}]\n'
        )
        summary = run_sweep(path, lambda folder: SparkEngine(None, self.folder / "spark.log", self.session))
        assert summary.counts.rows == len(seconds), summary
        assert summary.counts.failed == 0, summary.failures


def efficiencies(workloads: Sequence[str], scale: float, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Of each workload, the median over the rounds; ``scale`` makes the numbers of runs smaller for a look."""
    from joblib import Parallel, delayed

    with tempfile.TemporaryDirectory() as scratch, get_context("spawn").Pool(CORES) as pool:
        on_spark = OnSpark(Path(scratch))
        contenders: dict[str, Callable[[Sequence[float]], Any]] = {
            "orderlab": on_spark,
            "multiprocessing": lambda seconds: pool.map(burned, seconds, chunksize=1),
            "joblib": lambda seconds: Parallel(n_jobs=CORES)(delayed(burned)(second) for second in seconds),
        }
        for work in contenders.values():
            work([0.01] * 4)
        found: dict[str, dict[str, list[float]]] = {name: {who: [] for who in contenders} for name in workloads}
        for name in workloads:
            runs, mean_s, sigma = WORKLOADS[name]
            seconds = sorted(lengths(max(8, round(runs * scale)), mean_s, sigma), reverse=True)
            for _ in range(rounds):
                for who, work in contenders.items():
                    begun = time.perf_counter()
                    work(seconds)
                    found[name][who].append(sum(seconds) / (CORES * (time.perf_counter() - begun)))
        on_spark.session.stop()
    medians = {name: {who: round(median(each), 4) for who, each in by.items()} for name, by in found.items()}
    return {name: by["orderlab"] for name, by in medians.items()}, medians


LAWS = ("fifo", "at-least-once", "exactly-once")
ROWS_PER_PUBLISH = 12.05
"""Of the made history: a publish, its acknowledgement, ten deliveries and some that come again."""
PUBLISHES_PER_BLOCK = 500_000
SMALL = 20_000
"""Publishes of the history with which the workers are started."""
PARTS = 16


def spark_check_vs_duckdb(events: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Our rows/s ÷ DuckDB's (median of the rounds' ratios), and what was measured."""
    import duckdb

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows, blocks = _write(folder, events)
        session = start_session("local[2]", folder / "spark.log")
        connection = duckdb.connect(config={"threads": 2, "temp_directory": str(folder / "spill")})
        connection.execute(f"create view events as select * from read_parquet('{folder}/plain/*.parquet')")
        times: dict[str, list[float]] = {"orderlab": [], "duckdb": []}
        expected = [PLANTED[law] * blocks for law in LAWS]
        check_folder(folder / "keyed-small", Question(laws=LAWS), session, folder / "spark.log")  # starts the workers
        for _ in range(rounds):
            begun = time.perf_counter()
            verdicts, counted = check_folder(folder / "keyed", Question(laws=LAWS), session, folder / "spark.log")
            times["orderlab"].append(time.perf_counter() - begun)
            found = [int(verdict.work["violations"]) for verdict in verdicts]
            assert (found, counted) == (expected, rows), (found, counted, expected, rows)
            begun = time.perf_counter()
            theirs = [int(count) for count in connection.execute(DUCKDB).fetchall()[0]]
            times["duckdb"].append(time.perf_counter() - begun)
            assert theirs == expected, (theirs, expected)
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    ratio = median(other / mine for mine, other in zip(times["orderlab"], times["duckdb"], strict=True))
    return ratio, {"rows": rows, "rows_per_s": {who: round(rows / median(each)) for who, each in times.items()}}


def _write(folder: Path, events: int) -> tuple[int, int]:
    """The history twice: keyed parts for us, plain codes for DuckDB. The number of rows and of blocks."""
    per_block = min(PUBLISHES_PER_BLOCK, max(SMALL, int(events / ROWS_PER_PUBLISH) // 2000 * 2000))
    blocks = max(1, round(events / ROWS_PER_PUBLISH / per_block))
    names, rows = Names(), 0
    (folder / "plain").mkdir()
    for name, many in (("keyed-small", 1), ("keyed", blocks)):
        with KeyedHistoryWriter(folder / name, names, PARTS) as writer:
            for number in range(many):
                columns = block(number, SMALL if name == "keyed-small" else per_block)
                writer.write(EventBatch.of(**columns))
                if name == "keyed":
                    pq.write_table(_table(columns), folder / "plain" / f"{number:04d}.parquet", compression="zstd")
                    rows += len(columns["kind"])
    return rows, blocks


def _table(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([arrow(columns, labels=False)])


def driver_memory(sizes: Sequence[int]) -> dict[int, float]:
    """Peak MiB of the driver's process for sweeps of so many trivial runs, each in a process of its own."""
    return {size: float(_in_a_process("memory", str(size))) for size in sizes}


def _in_a_process(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.sweep", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout


def _peak_of_a_driver(runs: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = folder / "trivial.toml"
        path.write_text(
            f'system = "benchmarks.sweep_loads:trivial"\noutput = "{folder}/out"\n'
            f"[axes]\na = {{ from = 1, to = {runs // 10}, step = 1 }}\n[replications]\ncount = 10\n"
        )
        summary = run_sweep(
            path, lambda results: SparkEngine(f"local[{CORES}]", results.path / "spark.log"), SweepOptions()
        )
        assert summary.counts.rows == runs, summary
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(
    parts: Sequence[str] = (), scale: float = 1.0, rounds: int = 5, events: int = 100_000_000,
    sizes: Sequence[int] = (1000, 100_000),
) -> dict[str, Any]:  # fmt: skip
    """Measure ``parts`` (figures of TO_REACH), or all; everything can be made small for a look. Raises InputError."""
    for part in parts:
        if part not in TO_REACH:
            raise InputError(f"bench sweep: no part {part}; {did_you_mean(part, tuple(TO_REACH))}")
    chosen = [part for part in TO_REACH if part in parts or not parts]
    figures: dict[str, float] = {}
    detail: dict[str, Any] = {"peers": {name: version(name) for name in ("pyspark", "joblib", "duckdb")}}
    workloads = [part for part in chosen if part in WORKLOADS]
    if workloads:
        measured, detail["efficiency"] = efficiencies(workloads, scale, rounds)
        figures |= measured
    if "spark_check_vs_duckdb" in chosen:
        figures["spark_check_vs_duckdb"], detail["check"] = spark_check_vs_duckdb(events, rounds)
    if "driver_memory_ratio" in chosen:
        memory = driver_memory(sizes)
        figures["driver_memory_ratio"] = memory[sizes[-1]] / memory[sizes[0]]
        detail["driver_memory_mib"] = memory
    return report("sweep", figures, {**detail, "scale": scale, "rounds": rounds})


def _main() -> None:
    told = argparse.ArgumentParser(prog="python -m benchmarks.sweep")
    told.add_argument("parts", nargs="*", metavar="PART", help=", ".join(TO_REACH))
    told.add_argument("--scale", type=float, default=1.0)
    told.add_argument("--rounds", type=int, default=5)
    told.add_argument("--events", type=int, default=100_000_000)
    told.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000])
    given = told.parse_args()
    print(json.dumps(run(given.parts, given.scale, given.rounds, given.events, given.sizes)))


if __name__ == "__main__":
    from orderlab import exit_codes

    if sys.argv[1:2] == ["memory"]:
        print(_peak_of_a_driver(int(sys.argv[2])))
    else:
        exit_codes.run(_main, "sweep")
