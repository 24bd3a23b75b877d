"""The timing that the benchmarks share: turns, medians, and what a report looks like."""

from __future__ import annotations

import json

import pytest

from benchmarks.timing import Contender, Timings, report, take_turns


@pytest.fixture(autouse=True)
def nothing_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting the garbage of a whole suite before each turn takes a second."""
    monkeypatch.setattr("benchmarks.timing.gc.collect", lambda: 0)


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
    assert timings.median("a") > 0
    assert timings.median("b") > 0


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    timings = Timings(
        rates={"ours": [10, 20, 30, 40, 1000], "theirs": [10, 10, 10, 10, 1]},
        core_rates={"ours": [1, 2, 3, 4, 5], "theirs": [2, 2, 2, 2, 2]},
    )
    assert timings.ratio("ours", "theirs") == 3
    assert timings.median("ours") == 30
    assert timings.core_ratio("ours", "theirs") == 1.5
    assert timings.core_median("ours") == 3


def test_processor_time_counts_for_all_processes_of_a_contender() -> None:
    clock = iter(range(0, 1000, 2))
    contender = Contender("a", lambda: None, lambda: 10, lambda: float(next(clock)))
    timings = take_turns([contender], rounds=5)
    assert timings.core_rates["a"] == [5.0] * 5


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
