"""`orderlab simulate NAME --sustainable`: what it prints, and one line for what makes no sense."""

import json
import sys

import pytest

from orderlab.cli import main
from orderlab.sim.systems.sustainable import Ceiling, RateTrial

REPORT = {
    "counts": {"published": 1000, "delivered": 1000},
    "utilisation": {"broker": [0.5], "machine": [0.97]},
    "redis_commands_per_s": {"per_node": [60_000, 66_000], "all": 126_000},
    "history_digest": "ab",
}


def fake(asked):
    def sustainable_rate(name, settings, seed, limit_ms, tolerance, on_step, on_progress):
        asked.update(name=name, seed=seed, limit_ms=limit_ms, tolerance=tolerance, threads=settings.threads)
        steps = [
            RateTrial(rate, rate, mean, growth, 1.0, 0.8, mean < 100, REPORT)
            for rate, mean, growth in ((20_000.0, 300.0, 80.0), (19_000.0, 40.0, 1.0))
        ]
        return Ceiling(19_000.0, 20_000.0, tuple(steps))

    return sustainable_rate


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["orderlab", "simulate", *arguments])
    try:
        main()
        code = 0
    except SystemExit as left:
        code = left.code
    return code, capsys.readouterr()


def test_the_ceiling_is_printed_with_the_runs_behind_it(monkeypatch, capsys):
    asked = {}
    monkeypatch.setattr("orderlab.sim.systems.sustainable.sustainable_rate", fake(asked))
    code, printed = run(
        monkeypatch, capsys, "tbmq-jedis", "--sustainable", "--below-ms", "50", "--tolerance", "0.1", "--seed", "7",
        "--set", "threads=9", "--json",
    )  # fmt: skip
    assert not code
    found = json.loads(printed.out)
    assert asked == {"name": "tbmq-jedis", "seed": 7, "limit_ms": 50.0, "tolerance": 0.1, "threads": 9}
    assert found["sustainable_per_s"] == {"in": 19_000, "in_and_out": 38_000}
    assert found["overloaded_per_s"]["in"] == 20_000
    assert [run["sustained"] for run in found["runs"]] == [False, True]
    assert found["seed"] == 7


def test_in_words_it_names_the_limit(monkeypatch, capsys):
    monkeypatch.setattr("orderlab.sim.systems.sustainable.sustainable_rate", fake({}))
    code, printed = run(monkeypatch, capsys, "tbmq-jedis", "--sustainable")
    assert not code
    assert "38,000 msg/s in and out" in printed.out.replace("\n", " ")
    assert "the limit is machine" in printed.out.replace("\n", " ")
    assert "66,000 commands/s" in printed.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("tbmq-jedis", "--sustainable", "--history", "h.parquet"), "--history"),
        (("tbmq-jedis", "--sustainable", "--tolerance", "0"), "tolerance"),
        (("tbmq-jedis", "--sustainable", "--below-ms", "-1"), "limit"),
        (("tbmq-jedi", "--sustainable"), "did you mean"),
    ],
)
def test_nonsense_is_one_line(arguments, complaint, monkeypatch, capsys):
    code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert complaint in printed.err or "above 0" in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_a_search_in_a_pipe_tells_how_far_it_is(monkeypatch, capsys):
    """A line each ten seconds, as other commands print: nothing was said for minutes."""
    monkeypatch.setattr("orderlab.report.progress.TOLD_EACH_S", 0.0)
    monkeypatch.delenv("ORDERLAB_PROGRESS", raising=False)
    small = ("publishers=4", "rate=20", "duration_s=0.2")
    settings = [word for setting in small for word in ("--set", setting)]
    _, printed = run(monkeypatch, capsys, "tbmq-jedis", "--sustainable", "--below-ms", "5", *settings)
    lines = printed.err.splitlines()  # the last one says that there is no ceiling at so light a load
    assert lines[0].startswith("run 1, 80 msg/s, at ")
    assert any(line.startswith("run 2, ") and "the last: 80 msg/s published" in line for line in lines)
