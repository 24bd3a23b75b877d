"""Whole sweeps, on a pool and on Spark: the same rows, whatever happens on the way."""

import json
import shlex

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from orderlab.cli import application
from orderlab.commands.sweep import outcome_of
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import MEASURED
from orderlab.spark_sweeps.runs.job import SweepOptions, load, run_sweep, single_run

SUBJECTS = "tests.spark_sweeps.subjects"
SPARK = pytest.param("on_spark", marks=pytest.mark.xdist_group("spark"))
ENGINES = pytest.mark.parametrize("engine", ["pool", SPARK])
FATES = {
    "raise": "error", "exit": "error", "_exit": "killed", "segfault": "killed", "loop": "timeout",
    "lua loop": "timeout", "memory": "memory", "close": "killed",
    "no UTF-8": "error",
}  # fmt: skip


def all_rows(path, runs):
    table = pa.concat_tables(ResultFolder(path).tables(runs)).sort_by("run")
    return table.drop_columns([*MEASURED, "attempt"])


def in_any_folder(path, runs):
    return all_rows(path, runs).drop_columns(["replay"])


@ENGINES
def test_hostile_runs_are_rows_with_their_error_and_a_command(engine, request, sweep_file):
    hows = [*FATES, "behave"]
    path = sweep_file(
        f'system = "{SUBJECTS}:hostile"\n[axes]\nhow = {json.dumps(hows)}\n[limits]\nwall_s = 4\nmemory_mib = 300\n'
    )
    summary = run_sweep(path, request.getfixturevalue(engine))
    rows = all_rows(summary.folder, summary.runs).to_pylist()
    assert len(rows) == len(hows)
    for row in rows:
        assert row["status"] == FATES.get(row["parameter.how"], "ok")
        assert (row["error"] is None) == (row["status"] == "ok")
        assert row["replay"] == f"orderlab runs {summary.folder} --replay {row['run']}"
    assert (summary.counts.failed, summary.stopped) == (len(FATES), None)
    assert len(summary.failures) == len(FATES)


def test_a_sweep_whose_files_are_merged_as_they_come_is_the_same_sweep(pool, sweep_file, tmp_path, monkeypatch):
    lawful = f'system = "{SUBJECTS}:lawful"\n[axes]\na = [1, 2, 3]\nword = ["x"]\n[replications]\ncount = 20\n'
    path = sweep_file(lawful)
    plain = run_sweep(path, pool, SweepOptions(output=str(tmp_path / "a")))
    monkeypatch.setattr("orderlab.spark_sweeps.results.committed.MERGED_FILES", 2)
    merged = run_sweep(path, pool, SweepOptions(output=str(tmp_path / "b")))
    assert len(ResultFolder(merged.folder).files()) < len(ResultFolder(plain.folder).files())
    assert (merged.digest, merged.counts) == (plain.digest, plain.counts)
    assert in_any_folder(merged.folder, 60) == in_any_folder(plain.folder, 60)


@pytest.mark.xdist_group("spark")
def test_both_engines_make_the_same_rows(pool, on_spark, sweep_file, tmp_path):
    path = sweep_file(
        'system = "tbmq-p2p"\nseed = 5\n[base]\npublishers = 60\nrate = 20\nduration_s = 0.1\nwarm_up_s = '
        "0.05\n[axes]\n"
        'scripts = ["published", "session"]\nbrokers = [1, 2]\n[derived]\npartitions = "12 * brokers"\n'
        '[record]\nmetrics = ["latency.*", "counts.*"]\nhistories = "all"\n'
    )
    one = run_sweep(path, pool, SweepOptions(output=str(tmp_path / "a")))
    other = run_sweep(path, on_spark, SweepOptions(output=str(tmp_path / "b")))
    assert one.digest == other.digest
    assert all_rows(one.folder, 4) == all_rows(other.folder, 4)
    row = all_rows(one.folder, 4).to_pylist()[3]
    assert (row["parameter.scripts"], row["parameter.brokers"], row["parameter.partitions"]) == ("session", 2, 24)
    assert dict(row["verdicts"])["fifo"] == "holds" == row["outcome"]
    metrics = dict(row["metrics"])
    assert metrics["counts.published"] > 50
    assert not [name for name in metrics if name.startswith("utilisation")]
    assert row["replay"].startswith("orderlab simulate tbmq-p2p --set publishers=60 ")
    for folder in (one.folder, other.folder):
        histories = sorted(file.name for file in (folder / "histories").iterdir())
        assert histories == [f"{number:08d}.parquet" for number in range(4)]
    for number in range(4):
        name = f"histories/{number:08d}.parquet"
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


@ENGINES
def test_a_killed_worker_is_replaced_and_a_killed_run_is_a_row(engine, request, sweep_file, tmp_path):
    flag = tmp_path / "flag"
    path = sweep_file(f'system = "{SUBJECTS}:patricide"\n[base]\nflag = "{flag}"\n[axes]\na = [1, 2, 3, 4, 5]\n')
    summary = run_sweep(path, request.getfixturevalue(engine))
    rows = all_rows(summary.folder, summary.runs).to_pylist()
    assert flag.exists()
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "killed", "ok"]
    assert rows[3]["error"] == "its process was ended by SIGKILL"


def test_what_is_missing_is_done_and_nothing_else(pool, sweep_file, tmp_path):
    text = f'system = "{SUBJECTS}:product"\n[base]\nb = 2\n[axes]\na = {{ from = 1, to = 60 , step = 1 }}\n'
    path = sweep_file(text)
    whole = run_sweep(path, pool, SweepOptions(output=str(tmp_path / "whole")))
    first = run_sweep(path, pool)
    lost = ResultFolder(first.folder).files()[::2]
    for file in lost:
        file.unlink()
    before = ResultFolder(first.folder).counts().rows
    second = run_sweep(path, pool)
    assert 0 < before < 60
    assert (second.before, second.counts.rows, second.digest) == (before, 60, whole.digest)
    assert in_any_folder(second.folder, 60) == in_any_folder(whole.folder, 60)
    third = run_sweep(path, _no_engine)
    assert (third.before, third.digest) == (60, whole.digest)


def test_failed_runs_are_done_again_when_asked(pool, sweep_file, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    path = sweep_file(f'system = "{SUBJECTS}:moody"\n[base]\nflag = "{flag}"\n[axes]\na = [1, 2, 3]\n')
    first = run_sweep(path, pool)
    assert (first.counts.rows, first.counts.failed) == (3, 1)
    assert "RuntimeError: moody" in first.failures[0]["error"]
    assert run_sweep(path, _no_engine).counts.failed == 1
    assert run_sweep(path, pool, SweepOptions(retry_failed=True)).counts.failed == 1
    flag.unlink()
    fixed = run_sweep(path, pool, SweepOptions(retry_failed=True, max_failures=1))
    assert (fixed.counts.rows, fixed.counts.failed, fixed.stopped) == (3, 0, None)
    assert ResultFolder(first.folder).standing(3).attempt.tolist() == [1, 3, 1]
    assert run_sweep(path, _no_engine, SweepOptions(retry_failed=True)).counts.failed == 0


@ENGINES
def test_stop_rules_end_a_sweep_early_and_it_goes_on_later(engine, request, sweep_file):
    text = f'system = "{SUBJECTS}:lawful"\n[axes]\na = [1, 2, 3, 4, 5, 6]\n'
    path = sweep_file(text + "[stop]\nmax_violations = 1\n")
    summary = run_sweep(path, request.getfixturevalue(engine))
    assert summary.counts.violated >= 1
    again = run_sweep(path, _no_engine)  # what it has seen is enough already
    assert again.counts.violated >= summary.counts.violated
    path.write_text(path.read_text().partition("[stop]")[0])
    done = run_sweep(path, request.getfixturevalue(engine))
    assert (done.counts.rows, done.counts.violated, done.stopped) == (6, 4, None)
    assert [row["run"] for row in done.violations] == [2, 3, 4, 5]


def test_a_point_whose_derived_parameter_has_no_value_is_a_row_with_its_error(pool, sweep_file):
    path = sweep_file(
        f'system = "{SUBJECTS}:product"\n[base]\nb = 2\n[axes]\na = [1, 2, 0, 4]\n[derived]\nc = "1 / a"\n'
    )
    summary = run_sweep(path, pool)
    rows = all_rows(summary.folder, 4).to_pylist()
    assert [row["status"] for row in rows] == ["ok", "ok", "error", "ok"]
    assert 'derived.c: "1 / a" has no value here' in rows[2]["error"]
    assert rows[3]["parameter.c"] == 0.25


def test_a_sweep_whose_runs_put_no_law_to_the_test_does_not_hold(pool, sweep_file):
    for told, outcome in (("unknown", Outcome.UNKNOWN), ("holds", Outcome.HOLDS)):
        path = sweep_file(
            f'system = "{SUBJECTS}:as_told"\n[base]\nbut = "{told}"\n[axes]\na = [1, 2, 3]\n', f"{told}.toml"
        )
        summary = run_sweep(path, pool, SweepOptions(output=str(path.parent / told)))
        assert (summary.counts.violated, summary.unknown) == (0, int(told == "unknown"))
        assert outcome_of(summary) is outcome


@pytest.mark.parametrize(("silent", "vacuous"), [("all", 3), (2, 1), (0, 0)])
def test_runs_without_verdicts_do_not_make_a_sweep_hold(silent, vacuous, pool, sweep_file):
    function = 'product"\n[base]\nb = 2' if silent == "all" else f'at_times_lawful"\n[base]\nsilent = {silent}'
    path = sweep_file(f'system = "{SUBJECTS}:{function}\n[axes]\na = [1, 2, 3]\n')
    summary = run_sweep(path, pool)
    assert (summary.unknown, summary.vacuous) == (vacuous, vacuous)
    assert outcome_of(summary) is (Outcome.UNKNOWN if vacuous else Outcome.HOLDS)
    assert outcome_of(summary, allow_vacuous=True) is Outcome.HOLDS


def test_an_undecided_law_is_not_forgiven_with_the_vacuous_ones(pool, sweep_file):
    path = sweep_file(f'system = "{SUBJECTS}:as_told"\n[base]\nbut = "unknown"\n[axes]\na = [1, 2, 3]\n')
    assert outcome_of(run_sweep(path, pool), allow_vacuous=True) is Outcome.UNKNOWN


@pytest.mark.parametrize(("function", "words", "code"), [
    ("product", [], 3), ("product", ["--allow-vacuous"], 0), ("lawful", [], 0),
])  # fmt: skip
def test_a_single_run_without_verdicts_does_not_hold_either(function, words, code, sweep_file):
    path = sweep_file(f'system = "{SUBJECTS}:{function}"\n[base]\nb = 2\n[axes]\na = [1, 2]\n')
    assert CliRunner().invoke(application(["sweep"]), ["sweep", str(path), "--only", "0", *words]).exit_code == code


def test_a_run_of_another_seed_or_a_question_is_replayed_by_its_command(pool, sweep_file):
    """The file alone knows neither."""
    path = sweep_file(f'system = "{SUBJECTS}:product"\n[base]\nb = 2\n[axes]\na = [1, 3]\n')
    summary = run_sweep(path, pool, SweepOptions(seed=77))
    for row in all_rows(summary.folder, 2).to_pylist():
        words = shlex.split(row["replay"])
        done = CliRunner().invoke(application([words[1]]), [*words[1:], "--json"])
        assert (done.exit_code, json.loads(done.stdout)["same"]) == (0, True)
        assert json.loads(done.stdout)["run"]["seed"] == row["seed"]


@pytest.mark.parametrize(("more", "told"), [
    ("[axes]\na = [1]\n", "product raised KeyError: 'b'"),
    ('[question]\nkind = "best"\nminimise = "ab"\nruns = 40\n[question.parameters]\na = { from = 0, to = 1 }\n',
     "/out --replay ROUND/NUMBER"),
])  # fmt: skip
def test_a_single_run_that_cannot_be_done_is_one_line(more, told, sweep_file):
    with pytest.raises(InputError, match=told):
        single_run(sweep_file(f'system = "{SUBJECTS}:product"\n{more}'), 0)


def test_a_sweep_of_another_file_does_not_write_into_the_folder(pool, sweep_file):
    path = sweep_file(f'system = "{SUBJECTS}:product"\n[base]\nb = 2\n[axes]\na = [1]\n')
    run_sweep(path, pool)
    path.write_text(path.read_text().replace("b = 2", "b = 3"))
    with pytest.raises(InputError, match=r"made by a different sweep \(sweep.base.b: there 2, here 3\)"):
        run_sweep(path, pool)


def _no_engine(folder):
    raise AssertionError("there is nothing left to do")


@pytest.mark.parametrize(
    "text",
    [
        "[axes]\na = [1, 99999999999999999999999999]\n[base]\nb = 0",
        '[base]\na = 1\n[derived]\nb = "10 ** 30"',
        "[axes]\na = [-9223372036854775809, 2]\nb = [1]",
    ],
)
def test_whole_numbers_of_more_than_64_bits_are_parameters_like_others(text, pool, sweep_file):
    path = sweep_file(f'system = "tests.spark_sweeps.subjects:product"\n{text}\n')
    summary = run_sweep(path, pool)
    assert (summary.counts.rows, summary.counts.failed) == (summary.runs, 0)
    _, plan = load(path)
    for table in ResultFolder(summary.folder).tables(len(plan)):
        for row in table.to_pylist():
            for name in plan.parameter_names:
                assert str(row[f"parameter.{name}"]) == str(plan.run(row["run"]).parameters[name])
