"""The timing that the benchmarks share: turns, medians, and what a report looks like."""

from __future__ import annotations

import json

import pytest

from benchmarks.timing import Contender, Timings, report, take_turns


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def contender(name: str, units: int) -> Contender:
        def work() -> int:
            calls.append(f"{name} works")
            return units

        return Contender(name, lambda: calls.append(f"{name} prepares"), work)

    timings = take_turns([contender("a", 10), contender("b", 1000)], rounds=5)
    assert calls == ["a prepares", "a works", "b prepares", "b works"] * 6
    assert [len(rates) for rates in timings.rates.values()] == [5, 5]
    assert timings.median("b") > timings.median("a") > 0


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    timings = Timings({"ours": [10, 20, 30, 40, 1000], "theirs": [10, 10, 10, 10, 1]})
    assert timings.ratio("ours", "theirs") == 3
    assert timings.median("ours") == 30


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        take_turns([], rounds=4)


def test_the_report_is_one_json_object() -> None:
    made = report("kernel", {"ratio": 1.23456789}, {"rounds": 5})
    assert json.loads(json.dumps(made)) == {
        "benchmark": "kernel",
        "figures": {"ratio": 1.235},
        "detail": {"rounds": 5},
    }
