"""`orderlab runs` and `orderlab sweep --watch`: what a folder of results holds, whoever made it."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from orderlab.cli import application
from orderlab.model.errors import InputError
from orderlab.report.sweep_watch import headline, page
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.run_table import RunTable, condition_of, rounds_of
from orderlab.spark_sweeps.results.watching import ANSWER, FolderWatch
from orderlab.spark_sweeps.runs.job import SweepOptions, folder_of, load, run_sweep

SUBJECTS = "tests.spark_sweeps.subjects"
LAWFUL = f'system = "{SUBJECTS}:lawful"\n[axes]\na = [1, 2, 3, 4]\nword = ["x", "y z"]\n[replications]\ncount = 2\n'


@pytest.fixture(scope="module")
def lawful(tmp_path_factory, pool):
    """Sixteen runs; `fifo` is violated in the half with a > 2."""
    folder = tmp_path_factory.mktemp("lawful")
    path = folder / "s.toml"
    path.write_text(f'output = "{folder}/out"\n{LAWFUL}')
    run_sweep(path, pool)
    return folder / "out"


def ran(*arguments):
    result = CliRunner().invoke(application(), ["runs", *map(str, arguments)])
    return result.exit_code, result.stdout, result.exception


def told(*arguments):
    code, out, _ = ran(*arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize(
    ("conditions", "runs"),
    [
        ([], range(16)),
        (["a > 2"], range(8, 16)),
        (["outcome == violated", "replication == 0"], [8, 10, 12, 14]),
        (["law.fifo == holds"], []),
        (["fifo == holds", "word == 'y z'"], [2, 3, 6, 7]),
        (["word ~ Y"], [2, 3, 6, 7, 10, 11, 14, 15]),
        (["settled == true"], []),
        (["error == nothing"], []),
    ],
)
def test_conditions_choose_rows(lawful, conditions, runs):
    conditions = [text for text in conditions if text != "law.fifo == holds"] or conditions
    if conditions == ["law.fifo == holds"]:
        assert ran(lawful, "--where", conditions[0])[2].args[0].startswith('--where: no column "law.fifo"')
        return
    found = told(lawful, *(word for text in conditions for word in ("--where", text)))
    assert [row["run"] for row in found["rows"]] == list(runs)
    assert found["met"] == len(runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--where", "runn == 1"], 'did you mean "run"'),
        (["--where", "run"], "no condition"),
        (["--where", "run == many"], "is a number"),
        (["--where", "word < x"], "has no order"),
        (["--where", "run ~ 1"], "no text"),
        (["--where", "settled == 2"], "true or false"),
        (["--columns", "run,nothing"], '--columns: no column "nothing"'),
        (["--sort", "nothing"], '--sort: no column "nothing"'),
        (["--export", "rows.json"], "ends in .parquet or .csv"),
        (["--sql", "select nothing from runs"], "--sql:"),
        (["--sql", "select * from read_csv('/etc/passwd')"], "--sql:"),
        (["--sql", "create table t (a int)"], "--sql: not one query"),
        (["--replay", "99"], "no row of that run"),
        (["--replay", "x"], "no run"),
        (["--replay", "batch/1"], "no such round"),
    ],
)
def test_what_cannot_be_read_is_told(lawful, arguments, message):
    _, _, error = ran(lawful, *arguments)
    assert isinstance(error, InputError)
    assert message in str(error)


def test_no_folder_of_results_is_told(tmp_path):
    assert "no results of a sweep here" in str(ran(tmp_path)[2])


def test_rows_are_sorted_cut_and_counted(lawful):
    found = told(lawful, "--sort", "a", "--descending", "--limit", "3", "--columns", "a,run")
    assert [row["a"] for row in found["rows"]] == [4, 4, 4]
    assert list(found["rows"][0]) == ["a", "run"]
    assert found["met"] == 16
    _, out, _ = ran(lawful, "--limit", "2")
    assert "14 more meet the conditions" in out


def test_exports_hold_the_rows_that_are_asked_for(lawful, tmp_path):
    for name, read in (("rows.parquet", pq.read_table), ("rows.csv", pa_csv.read_csv)):
        code, _, _ = ran(lawful, "--where", "fifo == violated", "--export", tmp_path / name)
        table = read(tmp_path / name)
        assert code == 0
        assert sorted(table.column("a").to_pylist()) == [3] * 4 + [4] * 4
        assert set(table.column("fifo").to_pylist()) == {"violated"}


def _many(lawful, folder):
    """A folder of 20,000 rows of 8 KiB, in files whose runs are mixed."""
    path = folder / "s.toml"
    path.write_text(
        f'system = "{SUBJECTS}:lawful"\noutput = "{folder}/out"\n[axes]\na = {{ from = 1, to = 20000, step = 1 }}\n'
    )
    sweep, _ = load(path)
    results, manifest = folder_of(sweep)
    results.open(manifest)
    row = next(ResultFolder(lawful).tables(16)).slice(0, 1).drop_columns(["parameter.word"])
    for number in range(20):
        runs = np.arange(number, 20_000, 20)
        table = pa.concat_tables([row] * len(runs))
        changed = {"run": runs, "point": runs, "parameter.a": runs + 1, "replay": [f"{run:x>8192}" for run in runs],
                   "sweep_digest": [results.identity] * len(runs)}  # fmt: skip
        for name, values in changed.items():
            field = table.schema.field(name)
            table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
        results.commit(table)
    results.close()
    return folder / "out"


def test_all_rows_are_given_in_the_memory_of_a_few(lawful, tmp_path):
    """Of 160 MiB, and more as JSON: a process that reads the files one by one has 315, one that held all rows 1,200."""
    command = [
        sys.executable,
        "-c",
        PEAK,
        "runs",
        _many(lawful, tmp_path),
        "--json",
        "--export",
        tmp_path / "o.parquet",
    ]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    said, peak = done.stdout.splitlines()
    assert int(peak) < 500
    runs = [[row["run"] for row in json.loads(said)["rows"]], pq.read_table(tmp_path / "o.parquet")["run"].to_pylist()]
    assert runs == [list(range(20_000))] * 2


PEAK = """
import re
from pathlib import Path
from orderlab.cli import application
application()(standalone_mode=False)
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)  # ru_maxrss outlives exec
"""


def test_a_query_answers(lawful):
    found = told(lawful, "--sql", 'select word, count(*) as many from runs where "a" = 3 group by 1 order by 1')
    assert found["rows"] == [{"word": "x", "many": 2}, {"word": "y z", "many": 2}]


def test_a_run_is_done_again_and_compared(lawful, tmp_path):
    assert ran(lawful, "--replay", "3")[0] == 0
    other = tmp_path / "other"
    shutil.copytree(lawful, other)
    manifest = json.loads((other / "sweep.json").read_text())
    changed = json.dumps({**manifest, "sweep": {**manifest["sweep"], "axes": {
        **manifest["sweep"]["axes"], "a": {"values": [1, 2, 5, 4]}}}})  # fmt: skip
    (other / "sweep.json").write_text(changed)
    assert "rows of another sweep" in str(ran(other, "--replay", "3")[2])  # and no comparison with what they are not


def test_rounds_of_a_question_are_one_table(lawful, tmp_path):
    for name in ("batch-0001", "batch-0000"):
        shutil.copytree(lawful, tmp_path / name)
    found = told(tmp_path, "--where", "round == batch-0000", "--where", "run < 2")
    assert [(row["round"], row["run"]) for row in found["rows"]] == [("batch-0000", 0), ("batch-0000", 1)]
    assert RunTable(tmp_path).rows([condition_of("run == 0")])[1] == 2
    assert ran(tmp_path, "--replay", "batch-0001/1")[0] == 0


# -- watching --------------------------------------------------------------------------------------------------


def test_a_sweep_is_seen_as_it_goes(lawful, tmp_path):
    folder = tmp_path / "out"
    watch = FolderWatch(folder)
    assert watch.look() is None
    folder.mkdir()
    shutil.copy(lawful / "sweep.json", folder)
    assert watch.look().counts.rows == 0
    files = ResultFolder(lawful).files()
    (folder / "rows").mkdir()
    shutil.copy(files[0], folder / "rows")
    look = watch.look()
    assert 0 < look.counts.rows < 16
    assert not look.is_done
    assert f"{look.counts.rows:,} of 16 runs" in headline(look)
    for path in files[1:]:
        shutil.copy(path, folder / "rows")
    look = watch.look()
    assert (look.is_done, look.counts.rows, look.counts.violated) == (True, 16, 8)
    assert headline(look).endswith("; done")
    least, greatest = look.metrics["a"]
    assert (least.mean, least.runs, greatest.mean) == (1, 2, 4)
    assert least.parameters["a"] == 1
    assert "location.reload" not in page(folder, look)
    assert "greatest" in page(folder, look)


def test_a_row_is_seen_once_though_its_file_was_merged(lawful, tmp_path, monkeypatch):
    monkeypatch.setattr("orderlab.spark_sweeps.results.committed.MERGED_FILES", 2)
    folder = ResultFolder(shutil.copytree(lawful, tmp_path / "out"))
    watch = FolderWatch(folder.path)
    before = watch.look()
    assert folder.counts().rows == 16
    assert folder.merge_files()
    for look in (watch.look(), FolderWatch(folder.path).look()):
        assert (look.counts, look.metrics, look.is_done) == (before.counts, before.metrics, True)
        assert sorted(slow.wall_s for slow in look.slowest) == sorted(slow.wall_s for slow in before.slowest)


def test_a_run_that_was_tried_again_counts_once(sweep_file, pool):
    """By its last attempt, whichever of them is seen first."""
    path = sweep_file(f'system = "{SUBJECTS}:hostile"\n[axes]\nhow = ["raise", "behave", "_exit"]\n')
    folder = run_sweep(path, pool).folder
    watch = FolderWatch(folder)
    before = watch.look()
    run_sweep(path, pool, options=SweepOptions(retry_failed=True))
    assert len(ResultFolder(folder).files()) > 1
    for look in (watch.look(), FolderWatch(folder).look()):
        assert look.counts == before.counts
        assert look.failures == before.failures
        assert sum(look.failures.values()) == look.counts.failed == 2
        assert look.is_done


def test_a_question_is_done_when_its_answer_is_newer_than_its_rows(lawful, tmp_path):
    shutil.copytree(lawful, tmp_path / "batch-0000")
    watch = FolderWatch(tmp_path, is_question=True)
    look = watch.look()
    assert (look.is_done, look.wanted, [name for name, _ in look.rounds]) == (False, None, ["batch-0000"])
    assert "location.reload" in page(tmp_path, look)
    (tmp_path / ANSWER).write_text("{}")
    os.utime(tmp_path / ANSWER, (time.time() + 1,) * 2)
    assert watch.look().is_done


def test_failures_are_counted_by_kind(sweep_file, pool):
    path = sweep_file(f'system = "{SUBJECTS}:hostile"\n[axes]\nhow = ["raise", "behave", "_exit"]\n')
    folder = run_sweep(path, pool).folder
    look = FolderWatch(folder).look()
    assert (look.counts.failed, sum(look.failures.values()), look.failures["ValueError"]) == (2, 2, 1)
    found = told(folder, "--where", "status != ok", "--columns", "how,status")
    assert sorted(row["how"] for row in found["rows"]) == ["_exit", "raise"]
    failed = next(row["run"] for row in told(folder, "--where", "status == error")["rows"])
    assert "hostile raised ValueError: out of range" in str(ran(folder, "--replay", failed)[2])


def test_the_command_shows_the_last_look(lawful, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(f'output = "{lawful}"\n{LAWFUL}')
    result = CliRunner().invoke(application(), ["sweep", str(path), "--watch", "--report"])
    assert result.exit_code == 0
    assert "16 of 16 runs, 0 failed, 8 violating; done" in result.stdout
    assert (lawful / "report" / "watch.html").is_file()


def test_rounds_have_the_order_in_which_they_were_begun(lawful, tmp_path):
    for name in ("final", "batch"):
        shutil.copytree(lawful, tmp_path / name, copy_function=shutil.copy)
    os.utime(tmp_path / "final" / "sweep.json", (1e9, 1e9))
    assert [each.name for each in rounds_of(tmp_path)] == ["final", "batch"]
