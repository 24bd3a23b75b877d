"""Tables of answers and points: users name parameters and metrics as they like, and no column hides another."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from orderlab.report.answer_page import drawn
from orderlab.report.report_page import template
from orderlab.report.sweep import unit_of
from orderlab.report.sweep_page import heat_map, panels, write_report
from orderlab.report.words import cell
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.questions.answer import answer
from orderlab.spark_sweeps.questions.capacity import Bracket, Capacity, of_capacity
from orderlab.spark_sweeps.questions.cheapest import Cheapest, Offer, of_cheapest
from orderlab.spark_sweeps.questions.comparison import Comparison, Difference, of_comparison
from orderlab.spark_sweeps.results.rows import PointRows, cliff, columns_beside, points_table
from orderlab.spark_sweeps.runs.job import load, run_sweep

OWN = (
    "metric",
    "a",
    "b",
    "difference",
    "low",
    "high",
    "pairs",
    "ratio",
    "differs",
    "unpaired",
    "price",
    "sound",
    "meets",
    "open",
    "on_front",
    "runs",
    "decided",
    "point",
    "failed",
    "violated",
    "last_below",
    "ms_there",
    "first_beyond",
    "rate_kept",
    "rate_broken",
    "ms_at_kept",
    "ms",
    "ms.high",
    "ms.low",
    "ms.runs",
    "parameter.a",
    "parameter.parameter.a",
    "metric.price",
    "",
)
SETTING = {name: f"value of {name}" for name in OWN}
ESTIMATE = Interval(5.0, 4.0, 6.0, 7)


def holds_all(row, settings):
    """Every value of the setting stands in the row, once."""
    assert sorted(map(str, (row[name] for name in settings))) == sorted(SETTING.values())
    assert [str(value).startswith("value of") for value in row.values()].count(True) == len(SETTING)


def test_a_name_that_is_free_stays():
    assert columns_beside(("a", "b"), ["rate", "c"], "parameter") == {"rate": "rate", "c": "c"}
    assert columns_beside(("a", "b"), ["a", "parameter.a"], "parameter") == {
        "a": "parameter.parameter.a", "parameter.a": "parameter.a",
    }  # fmt: skip


def test_parameters_called_as_columns_of_a_comparison():
    asked = Comparison(kind="comparison", parameter="rate", a=1, b=2, metrics=("ms",))
    (row,) = (told := of_comparison(asked, [Difference("ms", SETTING, 1.0, 6.0, ESTIMATE, 6.0, 0)], OWN)).rows
    holds_all(row, told.settings)
    assert (row["metric"], row["a"], row["b"], row["difference"], row["low"], row["high"]) == (
        "ms",
        1.0,
        6.0,
        5.0,
        4.0,
        6.0,
    )
    assert row["parameter.low"] == "value of low"


def test_parameters_called_as_columns_of_a_capacity():
    asked = Capacity(kind="capacity", parameter="rate", low=1, high=9, metric="ms", below=3)
    (row,) = (told := of_capacity(asked, [Bracket(SETTING, 0.05, 4.0, 5.0, runs=8, at_kept=2.5)])).rows
    holds_all(row, told.settings)
    assert (row["rate_kept"], row["rate_broken"], row["ms_at_kept"], row["runs"], row["decided"]) == (
        4.0,
        5.0,
        2.5,
        8,
        True,
    )
    tricky = Capacity(kind="capacity", parameter="ms_at", low=1, high=9, metric="ms", below=3)
    (row,) = of_capacity(tricky, [Bracket({}, 0.05, 4.0, 5.0, at_kept=2.5)]).rows
    assert (row["ms_at_kept"], row["metric.ms_at_kept"]) == (4.0, 2.5)


def test_parameters_and_targets_called_as_columns_of_offers():
    targets = {"price": 9.0, "ms": 9.0, "ms.high": 9.0}
    asked = Cheapest(kind="cheapest", price="a", targets=targets)
    told_of = {name: Interval(float(number), number - 0.5, number + 0.5, 3) for number, name in enumerate(targets, 1)}
    (row,) = (told := of_cheapest(asked, [Offer(0, SETTING, 77.0, told_of, True, True, False)], OWN)).rows
    holds_all(row, told.settings)
    assert (row["price"], row["sound"], row["meets"], row["on_front"]) == (77.0, True, True, False)
    numbers = [value for value in row.values() if isinstance(value, float) and value < 9]
    assert numbers == [1, 1.5, 2, 2.5, 3, 3.5]


def test_parameters_and_metrics_called_as_columns_of_points():
    metrics = ["runs", "ms", "ms.low", "point"]
    one = PointRows(
        3, SETTING, {name: [float(number)] * 2 for number, name in enumerate(metrics, 10)}, runs=2, violated=1
    )
    (row,) = points_table([one], metrics).to_pylist()
    holds_all(row, [name for name, value in row.items() if str(value).startswith("value of")])
    assert (row["point"], row["runs"], row["failed"], row["violated"]) == (3, 2, 0, 1)
    assert {value for value in row.values() if isinstance(value, float)} >= {10.0, 11.0, 12.0, 13.0}
    assert (row["metric.runs"], row["ms"], row["ms.low"], row["metric.point"]) == (10.0, 11.0, 12.0, 13.0)
    away = {**SETTING, "rate": 2}
    points = [PointRows(0, {**SETTING, "rate": 1}, {"ms": [1.0]}), PointRows(1, away, {"ms": [200.0]})]
    (row,) = cliff(points, "rate", "ms")
    assert (row["last_below"], row["ms_there"], row["first_beyond"]) == (1, 1.0, 2)
    assert sorted(value for value in row.values() if isinstance(value, str)) == sorted(SETTING.values())


@pytest.mark.parametrize(
    ("axis", "question"),
    [
        ("low", 'kind = "comparison"\nparameter = "servers"\na = 1\nb = 2\nmetrics = ["ms"]'),
        ("sound", 'kind = "cheapest"\nprice = "servers"\ntargets = { ms = 30 }'),
        (
            "runs",
            'kind = "capacity"\nparameter = "rate"\nfrom = 1\nto = 30\nmetric = "ms"\nbelow = 50\nreplications = 2',
        ),
    ],
)
def test_such_a_question_is_answered_and_drawn(axis, question, sweep_file, pool):
    text = f'system = "tests.spark_sweeps.subjects:station"\n[base]\nspeed = 2\n[axes]\n{axis} = ["one", "two"]\n'
    servers = "" if axis == "runs" else "servers = [1, 2]\n"
    text = text.replace("speed = 2", "speed = 2\nservers = 1") if axis == "runs" else text
    sweep, plan = load(path := sweep_file(f"{text}{servers}[replications]\ncount = 2\n[question]\n{question}"))
    found = answer(path, sweep, plan, pool, None)
    assert {row[f"parameter.{axis}"] for row in found.rows} == {"one", "two"}
    picture = drawn(found, sweep)
    assert picture is not None
    if axis != "sound":  # a cloud of points has no labels
        assert f"parameter.{axis} one" in picture["svg"]


def test_of_a_mean_of_nothing_no_share_is_drawn():
    """A difference from 0 is no percentage: it must not be drawn as none at all."""
    rows = [
        {
            "metric": "lost",
            "a": 0.0,
            "b": 5.0,
            "difference": 5.0,
            "low": 4.0,
            "high": 6.0,
            "differs": True,
            "ratio": None,
        }
    ]
    asked = SimpleNamespace(question={"a": 1, "b": 2})
    picture = drawn(SimpleNamespace(kind="comparison", rows=rows, settings=(), replays=()), asked)["svg"]
    assert "lost (0 there)" in picture
    assert 'class="reach"' not in picture
    assert (
        'class="reach"'
        in drawn(SimpleNamespace(kind="comparison", rows=[{**rows[0], "a": 1.0}], settings=(), replays=()), asked)[
            "svg"
        ]
    )


def test_a_row_without_a_column_leaves_its_cell_empty():
    """Points of a table design need not name the same parameters: no value may slip below another's heading."""
    page = template("answer.html.j2").render(
        warnings=[],
        title="t",
        description="",
        outcome="holds",
        answered="answered",
        sentence="s",
        seed=0,
        versions={},
        is_one=False,
        replays=(),
        notes=[],
        commands=[],
        drawing=None,
        curves=[],
        rows_hidden=0,
        asked=[{"": "x", "value": "y"}],
        axes=[],
        fixed=[{"parameter": "p", "value": "1"}],
        digests=[{"": "code", "digest": "0"}],
        rows=[{"metric": "ms", "b": 2.0}, {"metric": "ms", "speed": "fast", "b": 12345.6}],
    )
    body = page[page.index('id="rows"') : page.index('id="asked"')]
    heads = [re.sub("<[^>]*>", "", head) for head in re.findall(r"<button[^>]*>(.*?)</button>", body)]
    assert heads == ["metric", "b", "speed"]
    cells = re.findall(r'<td data-name="(.*?)"[^>]*>(.*?)</td>', body)
    assert cells == [("metric", "ms"), ("b", "2"), ("speed", ""), ("metric", "ms"), ("b", "12,346"), ("speed", "fast")]


def test_figures_are_shown_as_an_engineer_reads_them():
    assert [
        cell(value) for value in (None, True, 3, 0.000096, 23.914, 9999.4, 10170.0, -40230.4, 1e15, float("inf"), "x")
    ] == [
        "",
        "yes",
        "3",
        "9.6e-05",
        "23.91",
        "9999",
        "10,170",
        "-40,230",
        "1e+15",
        "inf",
        "x",
    ]


def test_a_curve_alone_in_its_panel_says_which_it_is_on_the_scale_of_all():
    points = [
        PointRows(n, {"a": a, "b": b}, {"m": [10.0 * b + a + 50]})
        for n, (a, b) in enumerate((a, b) for a in (1, 2) for b in range(9))
    ]
    first, last = panels(points, "a", "m")
    assert "curves 9 to 9 of 9" in last["under"]
    assert ">b 8<" in last["svg"]
    ticks = [re.findall(r'class="end">([^<]+)<', one["svg"]) for one in (first, last)]
    assert ticks[0] == ticks[1] == ["0", "50", "100"]
    (alone,) = panels(points[::9], "a", "m")
    assert ">b 0<" not in alone["svg"]  # there is no other


def test_many_curves_are_told_apart_by_what_one_chart_can_hold():
    settings = [(a, b, c) for a in (1, 2) for b in range(3) for c in "uvwx"]
    points = [PointRows(n, {"a": a, "b": b, "c": c}, {"m": [float(n)]}) for n, (a, b, c) in enumerate(settings)]
    found = panels(points, "a", "m")
    assert [one["under"].split(";")[0] for one in found] == ["b 0", "b 1", "b 2"]
    for one in found:
        assert re.findall(r">(c .)<", one["svg"])
        assert len(set(re.findall(r'stroke-dasharray="(.*?)"', one["svg"]))) == 4


def test_figures_that_no_axis_holds_are_left_out_and_break_nothing():
    odd = [1.0, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, 0.0]
    points = [PointRows(n, {"a": n, "b": "x"}, {"m_ms": [value, value]}) for n, value in enumerate(odd)]
    (one,) = panels(points, "a", "m_ms")
    assert "nan" not in one["svg"]
    assert "inf" not in one["svg"]
    ElementTree.fromstring(one["svg"])


def test_a_metric_says_its_unit():
    told = ["latency.a_to_b.mean_ms", "throughput_per_s.out", "utilisation.redis.max", "size_bytes", "lost"]
    assert [unit_of(one) for one in told] == ["ms", "per s", "share of 1", "bytes", ""]


def test_points_that_name_different_parameters_are_drawn_beside_each_other():
    settings = [{"a": True, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}, {"a": "z", "b": "x"}]
    picture = heat_map([PointRows(n, one, {"m": [float(n)]}) for n, one in enumerate(settings)], "a", "b", "m")
    assert picture["columns"] == ["True", "3", "z", ""]


def test_the_page_says_what_runs_failed_of(sweep_file, pool):
    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:doomed"\n[base]\nhow = "error"\n[axes]\na = [1, 2]\n'
        "[replications]\ncount = 4\n"
    )
    run_sweep(path, pool)
    page = write_report(path.parent / "out").read_text()
    assert "4 runs failed (4 KeyError): their figures are in no mean" in page
