"""A sweep whose driver is killed, or interrupted, goes on where it was: no run lost, none twice, the same digest."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from orderlab.model.files import PART
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.runs.job import SweepOptions, run_sweep

TEXT = """
system = "tests.spark_sweeps.subjects:waiting"
[base]
seconds = 0.1
[axes]
a = { from = 1, to = 60, step = 1 }
"""
RUNS = 60
SPARK = pytest.param("spark", marks=[pytest.mark.exhaustive, pytest.mark.xdist_group("spark")])


def sweep(path, engine, **options):
    given = ["--master", "local[2]"] if engine == "spark" else ["--engine", "pool"]
    command = [sys.executable, "-m", "orderlab.cli", "sweep", str(path), *given, "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


@pytest.mark.parametrize("engine", ["pool", SPARK])
def test_a_sweep_goes_on_where_its_driver_was_ended(engine, pool, sweep_file, tmp_path):
    """By kill -9 first, then by Ctrl-C."""
    path = sweep_file(TEXT)
    folder = ResultFolder(tmp_path / "out")
    kept = 0
    for end in (signal.SIGKILL, signal.SIGINT):
        driver = sweep(path, engine)
        deadline = time.monotonic() + 900
        while not folder.rows_path.is_dir() or not folder.counts().rows >= kept + 3:
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(driver.pid, end)
        _, told = driver.communicate(timeout=900)
        kept = folder.counts().rows
        assert kept < RUNS, "it was done before it could be ended"
    assert driver.returncode == 130
    assert re.search(r"stopped at \d+ of 60 runs, 0 failed, 0 violating, .*; what is committed is kept", told)
    assert "the same command goes on" in told
    out, told = sweep(path, engine).communicate(timeout=900)
    summary = json.loads(out)
    assert (summary["counts"], summary["stopped"]) == ({"rows": RUNS, "failed": 0, "violated": 0}, None)
    assert summary["before"] >= kept >= 6
    numbers = [run for table in folder.tables(RUNS, ["run"]) for run in table.column("run").to_pylist()]
    assert sorted(numbers) == list(range(RUNS))
    run_sweep(path, pool, SweepOptions(output=str(tmp_path / "whole")))
    same = [
        [
            {**row, "replay": None, "row_digest": None}
            for table in ResultFolder(place).tables(RUNS)
            for row in stripped(table)
        ]
        for place in (tmp_path / "out", tmp_path / "whole")
    ]
    assert sorted(same[0], key=lambda row: row["run"]) == sorted(same[1], key=lambda row: row["run"])


def stripped(table):
    return table.drop_columns(["wall_s", "cpu_s", "peak_memory_mib", "attempt"]).to_pylist()


class Interrupted:
    """An engine whose worker is killed while it commits, as Ctrl-C comes."""

    cores = 1

    def __init__(self, folder):
        self.folder = folder

    def run(self, order, chunks, should_stop):
        self.folder.rows_path.mkdir(exist_ok=True)
        (self.folder.rows_path / f".1-0.parquet.x{PART}").write_bytes(b"PAR1")
        raise KeyboardInterrupt

    def close(self):
        pass


def test_an_interrupted_sweep_leaves_nothing_half_written(sweep_file, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep_file(TEXT), Interrupted)
    assert not list((tmp_path / "out").rglob(f"*{PART}"))
