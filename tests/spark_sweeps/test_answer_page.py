"""The page and the printed table of each question: whole, offline, nothing cut off."""

import html
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from orderlab.report.answer_page import write_answer_page
from orderlab.report.sweep import print_answer
from orderlab.spark_sweeps.questions.answer import answer
from orderlab.spark_sweeps.runs.job import load

STATION = (
    'system = "tests.spark_sweeps.subjects:station"\n[axes]\nservers = [1, 2]\nspeed = [1, '
    "2]\n[replications]\ncount = 3\n"
)
STRUCK = 'system = "tests.spark_sweeps.subjects:struck"\n[base]\nmost = 0\n'
FAULTS = 'faults = ["redis-stall"]\nfrom = 0\nto = 1\n'


@pytest.mark.parametrize(
    ("text", "shown", "is_drawn"),
    [
        (
            STATION + '[question]\nkind = "cheapest"\nprice = "servers * speed"\ntargets = { ms = 18 }',
            ("on_front", "13.4"),
            True,
        ),
        (
            STATION + '[question]\nkind = "cheapest"\nprice = "servers"\ntargets = { ms = 1 }',
            ("the target is missed",),
            True,
        ),
        (
            STATION + '[question]\nkind = "comparison"\nparameter = "servers"\na = 1\nb = 2\nmetrics = ["ms"]',
            ("difference", "unpaired"),
            True,
        ),
        (STATION + '[question]\nkind = "sensitivity"\nmetric = "ms"\nsamples = 8', ("total_half_width", "Sobol"), True),
        (
            STATION + '[question]\nkind = "sensitivity"\nmetric = "ms"\nsamples = 8\nmethod = "morris"',
            ("mean_absolute_effect",),
            True,
        ),
        (
            STATION
            + '[question]\nkind = "capacity"\nparameter = "rate"\nfrom = 1\nto = 100\nmetric = "ms"\nbelow = 50',
            ("rate_kept", "raise question.to"),
            True,
        ),
        (
            STRUCK + f'[question]\nkind = "risk"\n{FAULTS}acceptable = 0.1\nunacceptable = 0.5\nbatch = 8',
            ("unacceptable", "first violation", "--replay"),
            True,
        ),
        (
            STRUCK + f'[question]\nkind = "rare-event"\n{FAULTS}score = "faults"\nsamples = 20',
            ("first event", "as_many_plain"),
            True,
        ),
    ],
)
def test_the_answer_is_shown_whole(text, shown, is_drawn, sweep_file, pool):
    sweep, plan = load(path := sweep_file(text))
    found = answer(path, sweep, plan, pool, None)
    page = write_answer_page(found, sweep).read_text()
    assert ("<svg" in page) == is_drawn
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in page.replace("http://www.w3.org/", ""), outside
    plain = page.replace("<wbr>", "").replace("&#39;", "'")
    for part in shown:
        assert part in plain
    assert len(found.replays) in (0, len(found.rows))
    for number, command in enumerate(found.replays):  # every row leads to a run, and the drawing to the row
        assert "--replay" in command
        assert html.escape(command, quote=False) in page
        assert len(found.rows) == 1 or f'href="#row-{number}"' in page
    printed = io.StringIO()
    print_answer(Console(file=printed), found, sweep.question)
    assert "…" not in printed.getvalue()
    for part in shown:
        assert part in printed.getvalue()


@pytest.mark.parametrize(
    "question",
    [
        'kind = "comparison"\nparameter = "a"\na = 1\nb = 2\nmetrics = ["nan", "inf", "huge"]',
        'kind = "cheapest"\nprice = "a"\ntargets = { nan = 1, inf = 2 }',
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_no_finite_number_is_null_in_an_answer(question, count, sweep_file, pool):
    def refused(name):
        raise AssertionError(f"{name} is no JSON")

    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:mixed"\n[base]\nhow = ""\n[axes]\na = [1, 2]\n'
        f"[replications]\ncount = {count}\n[question]\n{question}\n"
    )
    sweep, plan = load(path)
    found = answer(path, sweep, plan, pool, None)
    assert json.loads((found.folder / "answer.json").read_text(), parse_constant=refused)["rows"] == found.rows
    assert None in found.rows[0].values()
    assert "no finite number" in write_answer_page(found, sweep).read_text() or found.kind == "cheapest"
    assert not any(row.get("differs") or row.get("meets") for row in found.rows if row.get("metric") != "huge")


def test_a_long_table_is_cut_and_leads_to_its_file(sweep_file, pool):
    question = '[question]\nkind = "comparison"\nparameter = "servers"\na = 1\nb = 2\nmetrics = ["ms"]'
    path = sweep_file(STATION + question)
    sweep, plan = load(path)
    found = answer(path, sweep, plan, pool, None)

    def page_of(rows):
        return write_answer_page(replace(found, rows=found.rows[:1] * rows, replays=found.replays[:1] * rows), sweep)

    page = page_of(60).read_text()
    assert 'and 10 more in <a href="../answer.csv">' in page
    assert page.count('id="row-') == 50
    assert "#row-50" not in page
    assert "more in" not in page_of(50).read_text()
