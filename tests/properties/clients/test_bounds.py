"""Bounds on preemptions and drawn orders: what is looked at where there are too many orders."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from orderlab.clients import race, scenario
from orderlab.properties.clients.orders import OrderSearch, by_priorities
from orderlab.properties.clients.runs import carried_out, controlled


def three_steps(redis: Any) -> None:
    for _ in range(3):
        redis.incr("n")


def preemptions(choices: list[tuple[str, str]]) -> int:
    """Of two clients of three steps: a change is none where the client that is left has come to its end."""
    lanes = [lane for lane, _ in choices]
    return sum(lanes[at] != lanes[at + 1] and lanes[: at + 1].count(lanes[at]) < 3 for at in range(len(lanes) - 1))


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_bound_visits_the_orders_with_so_few_preemptions_and_no_others(bound: int) -> None:
    judged = scenario(clients=2)(three_steps)

    def visited(**how: Any) -> set[tuple[tuple[str, str], ...]]:
        search = OrderSearch(judged, 10_000, reduction=False, **how)
        orders = {tuple(run.execution.choices) for run in search.runs()}
        assert search.work.is_exhausted
        return orders

    with controlled():
        every, few = visited(), visited(preemptions=bound)
    assert len(every) == 20
    assert few == {order for order in every if preemptions(list(order)) <= bound}
    assert len(few) == {0: 2, 1: 6, 2: 14}[bound]


def long(redis: Any) -> None:
    value = int(redis.get("n") or 0)
    redis.set("n", value + 1)
    for _ in range(30):
        redis.incr("rest")


def right(redis: Any) -> None:
    for _ in range(30):
        redis.incr("n")


def test_a_race_at_the_beginning_of_long_programs_is_met_by_few_preemptions() -> None:
    verdict = race(scenario(clients=3)(long), "quick")
    assert verdict.law == "serializable"
    held = race(scenario(clients=2)(right), "quick")
    assert str(held.outcome) == "unknown"
    assert "and all with at most 1 preemptions" in held.how_far


def test_priorities_are_drawn_and_the_same_for_the_same_seed() -> None:
    judged = scenario(clients=2)(three_steps)
    with controlled():
        orders = [
            tuple(carried_out(judged, by_priorities(seed, 6)).execution.choices) for seed in (*range(40), *range(40))
        ]
    assert orders[:40] == orders[40:]
    assert len(set(orders)) > 6


def tries(times: int) -> Any:
    """A client that asks for a lock so often, and then does without."""

    def client(redis: Any, at: Any) -> None:
        for _ in range(times):
            if redis.set("lock", at.client, nx=True):
                break
        with at("critical", most=1):
            redis.incr("n")
        redis.delete("lock")

    return client


@pytest.mark.parametrize("times", [3, 10, 30])
def test_who_gives_up_after_many_tries_is_let_try_as_often(times: int) -> None:
    assert race(scenario(clients=2)(tries(times))).law == "at-most-1"


def test_of_who_asks_for_ever_it_is_told_how_often_it_was_let() -> None:
    verdict = race(scenario(clients=2)(tries(10**9)))
    assert str(verdict.outcome) == "holds"
    assert "not visited: orders in which a client asks the same more than 96 times before" in verdict.how_far


def test_what_is_asked_again_is_noticed_in_threads_and_of_several_commands_in_turn() -> None:
    """As a lock that is tried without a pause, with a PING between (cashews 7): nothing ended these executions."""

    @scenario(clients=2)
    def spinning(redis: Any) -> None:
        def work() -> None:
            while not redis.set("lock", 1, nx=True):
                redis.ping()
            redis.incr("n")
            redis.delete("lock")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    verdict = race(spinning)
    assert verdict.outcome == "holds", verdict
    assert "asks the same more than 24 times" in verdict.how_far or "96 times" in verdict.how_far


def test_long_executions_count_as_several() -> None:
    def long(redis: Any) -> None:
        for number in range(150):
            redis.incr(f"n{number % 2}")

    with controlled():
        search = OrderSearch(scenario(clients=2)(long), 10, reduction=False)
        assert len(list(search.runs())) == 4
