"""The checkers' benchmark measures what it says: contenders agree on what was planted, in a history made small."""

import pytest

from benchmarks.checkers import TO_REACH, WHOLE, compared, linearizability, queue_history, whole
from benchmarks.checkers_history import PLANTED, arrow, block
from orderlab.model.checkers.linearizability.decide import decide
from orderlab.model.checkers.linearizability.operations import operations_of_history
from orderlab.model.verdict import Outcome


@pytest.fixture(autouse=True)
def nothing_to_collect(monkeypatch):
    """Collecting the garbage of a whole suite before each turn takes a second."""
    monkeypatch.setattr("benchmarks.timing.gc.collect", lambda: 0)


def test_all_contenders_find_what_was_planted(monkeypatch):
    monkeypatch.setattr("benchmarks.timing.ROUNDS_MIN", 1)
    ratio, detail = compared(deliveries=100_000, rounds=1)
    assert ratio > 0
    assert detail["violations"] == (1, 1, 1)
    assert set(detail["rows_per_s"]) == {"orderlab", "duckdb", "polars"}
    assert sum(PLANTED.values()) == 3


def test_a_block_has_any_number_of_publishes():
    """So many as its logical FIFOs have alike: the default of the whole benchmark is no multiple of them."""
    assert len(block(0, 9_999)["kind"]) == len(block(0, 8_000)["kind"])


def test_blocks_continue_each_other():
    first, second = (arrow(block(number, 10_000), labels=True) for number in range(2))
    assert first["event_id"][-1].as_py() < second["event_id"][0].as_py()
    assert first["time_us"][-1].as_py() <= second["time_us"][0].as_py()


def test_the_queue_history_is_a_history_of_a_queue():
    rate, detail = linearizability(operations=1000, clients=16, rounds=5)
    assert rate > 0
    assert list(detail["by_operations"]) == [100, 1000, 10_000]
    batch, names = queue_history(1000, 16, seed=3)
    verdict = decide("queue", operations_of_history("events", [batch], names))
    assert (verdict.outcome, verdict.work["operations"]) == (Outcome.HOLDS, 1000)


def test_the_figures_are_named():
    assert set(TO_REACH) == {"fifo_vs_best", *WHOLE, "queue_linearizability_ops_per_s"}


@pytest.mark.exhaustive
def test_whole_processes_find_what_was_planted(monkeypatch):
    monkeypatch.setattr("benchmarks.timing.ROUNDS_MIN", 1)
    figures, detail = whole(20_000, rounds=1)
    assert set(figures) == set(WHOLE)
    assert [told["violations"] for told in detail.values()] == [[0, 0, 0], [2, 2, 1]]
