"""What a run said is shown on one line and gives a terminal no orders."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from orderlab.model.verdict import Outcome
from orderlab.report.sweep import SAID_MAX, print_answer, print_preview, print_run, print_summary, said
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.results.committed import Counts
from orderlab.spark_sweeps.runs.job import Preview, Summary
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import sweep_of

ODD = "[/a]"
"""As markup, the end of something that never began."""


def _preview(console):
    plan = Plan(sweep_of({"system": "m:f", "output": "x", "axes": {ODD: [ODD]}}, "x"), "x")
    print_preview(console, Preview(1, 1, [plan.run(0)], [], 1.0, 1), plan, ODD)


@pytest.mark.parametrize(
    "show",
    [
        _preview,
        lambda console: print_summary(
            console,
            Summary(
                Path(ODD),
                0,
                1,
                0,
                Counts(1, 0, 1),
                0,
                None,
                "0",
                0.0,
                0.0,
                [],
                [{"run": 0, "status": "ok", "error": None, "verdicts": [(ODD, "violated")], "replay": ODD}],
            ),
            Outcome.VIOLATED,
        ),
        lambda console: print_run(
            console,
            {
                "run": 0,
                "seed": 0,
                "parameters": {ODD: ODD},
                "verdicts": {ODD: "violated"},
                "metrics": {ODD: 1.0},
                "witnesses": {ODD: ODD},
            },
            0.0,
        ),
        lambda console: print_answer(
            console, Answer("other", 0, Path(ODD), [{ODD: ODD}, {ODD: ODD}], [ODD], Outcome.HOLDS), {}
        ),
        lambda console: print_answer(console, Answer("other", 0, Path(ODD), [{ODD: ODD}], [ODD], Outcome.HOLDS), {}),
    ],
)
def test_names_of_a_users_own_are_text_not_markup(show):
    out = io.StringIO()
    show(Console(file=out, width=200))
    assert out.getvalue().count(ODD) >= 2


def test_what_a_run_said_is_one_printable_line():
    assert said("ValueError: first\n  second \x1b[31mred\x07") == "ValueError: first second  [31mred "
    assert said("ünïcode ☃ [red]") == "ünïcode ☃ \\[red]"
    assert len(said("e" * 10_000)) == SAID_MAX + 3


@pytest.mark.parametrize(
    ("counts", "unknown", "vacuous", "told"),
    [
        ((4, 0, 0), 0, 0, "all 4 runs kept every law"),
        ((4, 0, 1), 0, 0, "1 of 4 runs violates a law, 3 kept every law"),
        ((3, 1, 0), 2, 2, "1 failed, 1 are not done, 2 tested no law"),
    ],
)
def test_a_sweep_begins_with_what_became_of_its_runs(counts, unknown, vacuous, told):
    out = io.StringIO()
    summary = Summary(Path("f"), 0, 4, 0, Counts(*counts), 0, None, "0", 0.0, 0.0, [], [], unknown, vacuous)
    print_summary(Console(file=out, width=100), summary, Outcome.UNKNOWN)
    assert out.getvalue().splitlines()[0] == f"{told} (exit code 3)"
