"""Sweeps: how much of two cores goes into the runs, beside multiprocessing and joblib; histories judged on Spark
beside DuckDB; and the driver's memory.

Efficiency is the processor time of the runs themselves divided by (2 x wall time), after start-up: a first small sweep
starts the workers. The peers get the same lengths in the same order, one task a run. When other work shares the
machine, compare with the peers of the same round: nobody reaches 1.
"""

from __future__ import annotations

import json
import resource
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

from benchmarks.sweep_histories import spark_check_vs_duckdb
from benchmarks.sweep_loads import burned
from benchmarks.timing import report
from spark_sweeps.engines.spark import SparkEngine
from spark_sweeps.job import Options, run_sweep
from spark_sweeps.spark_session import start_session

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
        self.session = start_session(f"local[{CORES}]", folder / "spark.log")

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


def efficiencies(scale: float, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
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
        found: dict[str, dict[str, list[float]]] = {name: {who: [] for who in contenders} for name in WORKLOADS}
        for name, (runs, mean_s, sigma) in WORKLOADS.items():
            seconds = sorted(lengths(max(8, round(runs * scale)), mean_s, sigma), reverse=True)
            for _ in range(rounds):
                for who, work in contenders.items():
                    begun = time.perf_counter()
                    work(seconds)
                    found[name][who].append(sum(seconds) / (CORES * (time.perf_counter() - begun)))
        on_spark.session.stop()
    medians = {name: {who: round(median(each), 4) for who, each in by.items()} for name, by in found.items()}
    return {name: by["orderlab"] for name, by in medians.items()}, medians


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
        summary = run_sweep(path, lambda results: SparkEngine(f"local[{CORES}]", results.path / "spark.log"), Options())
        assert summary.counts.rows == runs, summary
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(
    scale: float = 1.0, rounds: int = 3, events: int = 100_000_000, sizes: Sequence[int] = (1000, 100_000)
) -> dict[str, Any]:
    """Measure; everything can be made small for a look."""
    figures, detail = efficiencies(scale, rounds)
    ratio, check = spark_check_vs_duckdb(events, rounds)
    memory = driver_memory(sizes)
    figures = {**figures, "spark_check_vs_duckdb": ratio, "driver_memory_ratio": memory[sizes[-1]] / memory[sizes[0]]}
    peers = {name: version(name) for name in ("pyspark", "joblib", "duckdb")}
    return report(
        "sweep",
        figures,
        {"peers": peers, "efficiency": detail, "check": check, "driver_memory_mib": memory, "scale": scale},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        print(_peak_of_a_driver(int(sys.argv[2])))
    else:
        print(json.dumps(run(*(float(sys.argv[1]), 1, int(sys.argv[2])) if sys.argv[2:] else ())))
