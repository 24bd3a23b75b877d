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
        [{**row, "replay": None} for table in ResultFolder(place).tables(RUNS) for row in stripped(table)]
        for place in (tmp_path / "out", tmp_path / "whole")
    ]
    assert sorted(same[0], key=lambda row: row["run"]) == sorted(same[1], key=lambda row: row["run"])


BEST = """
system = "tests.spark_sweeps.subjects:tuned"
[base]
waits_s = 0.1
[question]
kind = "best"
minimise = "ms"
subject_to = ["violations == 0"]
runs = 32
batch = 8
[question.parameters]
producers = { from = 2, to = 12, integer = true }
linger = { from = 0.1, to = 50.0, scale = "log" }
cure = ["watch", "lua"]
"""


@pytest.mark.parametrize("engine", ["pool", SPARK])
def test_a_search_whose_driver_was_killed_comes_to_the_same_answer(engine, sweep_file, tmp_path):
    """With the same proposals, whatever folder it writes to."""
    path = sweep_file(BEST)
    for killed_in in ("batch-0000", "batch-0001", "final"):
        driver = sweep(path, engine)
        deadline = time.monotonic() + 900
        while not (tmp_path / "out" / killed_in / "rows").is_dir():
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=900)
        assert not (tmp_path / "out" / "answer.json").exists(), "it was done before it could be killed"
    answers = []
    for output in ("out", "whole"):
        path.write_text(f'output = "{tmp_path}/{output}"\n{BEST}')
        out, told = sweep(path, "pool" if output == "whole" else engine).communicate(timeout=900)
        answers.append({**json.loads(out), "folder": None})
        assert answers[-1]["digest"], told
    assert answers[0] == answers[1]
    rounds = sorted(place.parent.name for place in (tmp_path / "whole").glob("*/sweep.json"))
    assert len(rounds) >= 3
    for name in rounds:
        manifests = [(tmp_path / output / name / "sweep.json").read_bytes() for output in ("out", "whole")]
        assert manifests[0] == manifests[1]


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
