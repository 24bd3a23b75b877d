"""A sweep whose driver is killed, or interrupted, goes on where it was: no run lost, none twice, the same digest."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from orderlab.spark_sweeps.results.folder import ResultFolder

TEXT = """
system = "tests.spark_sweeps.subjects:slow"
[base]
seconds = 0.1
[axes]
a = { from = 1, to = 60, step = 1 }
"""
SPARK = pytest.param("spark", marks=[pytest.mark.exhaustive, pytest.mark.xdist_group("spark")])


def sweep(path, engine, **options):
    given = ["--master", "local[2]"] if engine == "spark" else ["--engine", "pool"]
    command = [sys.executable, "-m", "orderlab.cli", "sweep", str(path), *given, "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


@pytest.mark.parametrize("engine", ["pool", SPARK])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_sweep_goes_on_where_its_driver_was_ended(engine, end, sweep_file, tmp_path):
    path = sweep_file(TEXT)
    driver = sweep(path, engine)
    folder = ResultFolder(tmp_path / "out")
    deadline = time.monotonic() + 900
    while not folder.rows_path.is_dir() or not folder.counts().rows >= 3:
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(driver.pid, end)
    _, told = driver.communicate(timeout=900)
    kept = folder.counts().rows
    assert kept < 60, "it was done before it could be ended"
    if end == signal.SIGINT:
        assert driver.returncode == 130
        assert "the same command goes on" in told
    out, told = sweep(path, engine).communicate(timeout=900)
    summary = json.loads(out)
    assert (summary["counts"], summary["stopped"]) == ({"rows": 60, "failed": 0, "violated": 0}, None)
    assert summary["before"] >= kept >= 3
    numbers = [run for table in folder.tables(60, ["run"]) for run in table.column("run").to_pylist()]
    assert sorted(numbers) == list(range(60))
    if end == signal.SIGINT:
        return
    whole = sweep_file(TEXT.replace("[base]", f'output = "{tmp_path}/whole"\n[base]'), "whole.toml")
    whole.write_text(whole.read_text().split("\n", 1)[1])
    sweep(whole, "pool").communicate(timeout=900)
    same = [
        [
            {**row, "replay": None, "row_digest": None}
            for table in ResultFolder(place).tables(60)
            for row in stripped(table)
        ]
        for place in (tmp_path / "out", tmp_path / "whole")
    ]
    assert sorted(same[0], key=lambda row: row["run"]) == sorted(same[1], key=lambda row: row["run"])


def stripped(table):
    return table.drop_columns(["wall_s", "cpu_s", "peak_memory_mib", "attempt"]).to_pylist()
