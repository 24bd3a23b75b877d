"""The examples are sound sweep files, and a small version of one runs to its report."""

from pathlib import Path

import pytest

from orderlab.report.sweep_page import write_report
from orderlab.spark_sweeps.questions.answer import question_of
from orderlab.spark_sweeps.runs.job import load

EXAMPLES = sorted((Path(__file__).parents[2] / "spark_sweeps" / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_sound_sweep_file(path):
    sweep, plan = load(path)
    assert sweep.description
    assert sweep.output.startswith("out/")
    assert 1 <= len(plan) <= 200
    if sweep.question is not None:
        question_of(sweep, str(path))


@pytest.mark.parametrize(("how", "shown"), [
    ("constant", {"lost", "delivered"}), ("alone", {"m1", "m2", "m3"}), ("odd", {"nan", "inf", "huge", "some"}),
])  # fmt: skip
def test_a_report_has_columns_whatever_the_metrics_are(how, shown, sweep_file, pool):
    from orderlab.spark_sweeps.runs.job import run_sweep

    path = sweep_file(
        f'system = "tests.spark_sweeps.subjects:mixed"\n[base]\nhow = "{how}"\n[axes]\na = [1, 2, 3]\nb = ["x", "y"]\n'
        "[replications]\ncount = 2\n"
    )
    folder = run_sweep(path, pool).folder
    page = write_report(folder).read_text()
    columns = (folder / "report" / "points.csv").read_text().splitlines()[0]
    for name in shown:
        assert f'"{name}"' in columns
        assert f'data-name="{name}"' in page


def test_the_report_shows_what_is_there_and_needs_nothing_else(sweep_file, pool):
    from orderlab.spark_sweeps.runs.job import run_sweep

    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:reported"\ndescription = "a <b> c"\n[base]\nfixed = 3\n[axes]\nrate = '
        "[1, 2, 30, 50]\n"
        'mode = ["x", "y"]\n[replications]\ncount = 3\n'
    )
    summary = run_sweep(path, pool)
    page = write_report(summary.folder).read_text()
    again = write_report(summary.folder).read_text()
    assert page == again
    assert "a &lt;b&gt; c" in page
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in page.replace("http://www.w3.org/", ""), outside
    assert "<svg" in page
    assert "violates fifo" in page
    assert f"orderlab runs {summary.folder} --replay" in page
    assert "ValueError: too fast" in page
    table = (summary.folder / "report" / "points.csv").read_text().splitlines()
    assert len(table) == 9
    cliff = page[page.index('id="cliff"') : page.index('id="violations"')]
    assert cliff.count("<tr>") == 3
    for number in range(8):  # every point of a drawing leads to its row, and the row to what replays it
        assert f'href="#point-{number}"' in page
        assert f'<tr id="point-{number}">' in page
    assert page.count(f"<pre>orderlab runs {summary.folder} --replay") >= 8
    assert page.index("<h1>") < page.index("break fifo") < page.index("<svg")
    for cell in (">2<", ">30<"):
        assert cell in cliff.replace("\n", "").replace(" ", "")


def test_a_report_is_the_same_in_whatever_order_rows_came(sweep_file, pool, backwards, tmp_path, monkeypatch):
    """Sums of floating point depend on their order, so values have one."""
    from orderlab.spark_sweeps.runs.job import SweepOptions, run_sweep

    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:station"\nseed = 4\n[axes]\nservers = [1, 2]\nspeed = [1, 2, '
        "4]\n[replications]\ncount = 4\n"
    )
    told = []
    for name, engine in (("one", pool), ("other", backwards)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)  # commands name the folder as it was given
        summary = run_sweep(path, engine, SweepOptions(output="out"))
        report = write_report(summary.folder)
        told.append((summary.digest, report.read_bytes(), (report.parent / "points.csv").read_bytes()))
    assert told[0] == told[1]


def test_every_curve_is_drawn_or_counted_and_says_on_how_many_runs_it_rests(sweep_file, pool):
    from orderlab.spark_sweeps.runs.job import run_sweep

    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:product"\n[axes]\na = [1, 2]\nb = { from = 1, to = 40, step = 1 }\n'
        '[replications]\ncount = 3\n[record]\nmetrics = ["product"]\n'
    )
    page = write_report(run_sweep(path, pool).folder).read_text()
    assert "curves 1 to 8 of 40; each point is the mean of 3 runs" in page
    assert "curves 33 to 40 of 40" in page
    for number in range(1, 41):
        assert f">b {number}<" in page
    assert 'id="cliff"' not in page  # there is no latency
