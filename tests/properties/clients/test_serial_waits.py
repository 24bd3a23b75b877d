"""Waits with a timeout in orders of whole clients: another client comes in between only where it ends the wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race, scenario
from orderlab.properties.clients.race import lines_of
from orderlab.properties.clients.race_file import gated_steps
from orderlab.properties.clients.schedule_outcome import judged
from orderlab.sim.live import ServerProcess


def nothing(redis: Any) -> None:
    """What a scenario is called with at the end, where nothing is asked."""


def pushes(redis: Any) -> None:
    redis.rpush("q", "a")


def pops(times: int) -> Callable[[Any], Any]:
    def client(redis: Any) -> Any:
        for _ in range(times):
            popped = redis.blpop("q", timeout=1)
            if popped:
                return popped[1]
        return None

    return client


def test_who_waits_in_vain_and_ends_before_the_other_begins_is_in_an_order_of_whole_clients() -> None:
    assert str(race(scenario(clients=[pops(1), pushes])(nothing)).outcome) == "holds"


@pytest.mark.parametrize("times", [1, 4])
def test_what_is_asked_at_the_end_is_asked_there_too(times: int) -> None:
    def is_empty(redis: Any) -> bool:
        return not redis.llen("q")

    verdict = race(scenario(clients=[pops(times), pushes])(is_empty))
    assert (verdict.law, verdict.how_far) == ("finally", "one client after the other")


def publishes(redis: Any, at: Any) -> None:
    at.produced("m")
    redis.publish("c", "m")


def hears(redis: Any, at: Any) -> None:
    channel = redis.pubsub(ignore_subscribe_messages=True)
    channel.subscribe("c")
    for _ in range(2):
        message = channel.get_message(timeout=4)
        if message:
            at.consumed(message["data"].decode())
            return


def test_a_message_that_comes_when_nobody_listens_any_more_is_told_with_all_its_steps() -> None:
    """And the schedule of an order of whole clients, in which time goes by while others could go on, is whole."""
    judged_one = scenario(clients=[hears, publishes])(nothing)
    verdict = race(judged_one)
    assert (verdict.law, verdict.how_far) == ("no-loss", "one client after the other")
    assert [step.what[0] for step in verdict.steps if step.kind == "command"] == [b"SUBSCRIBE", b"PUBLISH"]
    assert "    1. client 0: SUBSCRIBE c" in "\n".join(lines_of(verdict))
    process = ServerProcess()
    try:
        seen = judged(redis_py.Redis(process.host, process.port), judged_one, gated_steps(judged_one, verdict))
    finally:
        process.stop()
    assert (seen.law, seen.strayed) == ("no-loss", "")


def test_of_clients_that_return_what_no_order_does_each_is_named() -> None:
    def first(redis: Any) -> Any:
        redis.incr("n")
        return redis.get("n") if redis.get("n") == b"1" else None

    verdict = race(scenario(clients=2)(first))
    assert verdict.law == "serializable"
    assert "client 0: None; no order" in verdict.what


def waits_for_an_event(redis: Any) -> None:
    threading.Event().wait(1)


def waits_for_a_key(redis: Any) -> None:
    redis.blpop("never", timeout=1)


def waits_for_a_message(redis: Any) -> None:
    channel = redis.pubsub()
    channel.subscribe("x")
    channel.get_message(timeout=1)
    channel.get_message(timeout=1)


def waits_for_a_thread(redis: Any) -> None:
    thread = threading.Thread(target=time.sleep, args=(3,), daemon=True)
    thread.start()
    thread.join(1)


WAITS = [waits_for_an_event, waits_for_a_key, waits_for_a_message, waits_for_a_thread]


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_in_vain_is_as_a_sleep(wait: Callable[[Any], None]) -> None:
    """A lost update while both wait is no order of whole clients, and what WATCH sees to is one."""

    def loses(redis: Any) -> None:
        count = int(redis.get("n") or 0)
        wait(redis)
        redis.set("n", count + 1)

    def keeps(redis: Any) -> None:
        with redis.pipeline() as pipe:
            while True:
                try:
                    pipe.watch("n")
                    count = int(pipe.get("n") or 0)
                    wait(redis)
                    pipe.multi()
                    pipe.set("n", count + 1)
                    pipe.execute()
                    return
                except redis_py.WatchError:
                    continue

    found = race(scenario(clients=2)(loses))
    assert found.law == "serializable"
    assert "b'n' is ('string', b'1', False); no order" in found.what
    assert race(scenario(clients=2)(keeps), effort="quick").law == ""


def test_a_thread_that_beats_for_ever_keeps_no_other_client_from_its_turn() -> None:
    def beats(redis: Any) -> None:
        while True:
            redis.set("beat", 1, ex=5)
            time.sleep(1)

    def client(redis: Any) -> None:
        threading.Thread(target=beats, args=(redis,), daemon=True).start()
        count = int(redis.get("n") or 0)
        time.sleep(1.5)
        redis.set("n", count + 1)

    assert race(scenario(clients=2)(client), effort="quick").law == "serializable"


def test_a_lease_that_a_thread_renews_does_not_lapse_in_orders_of_whole_clients() -> None:
    def client(redis: Any) -> None:
        over = threading.Event()

        def renews() -> None:
            while not over.wait(0.4):
                redis.pexpire("lease", 1000)

        redis.set("lease", "1", px=1000)
        thread = threading.Thread(target=renews)
        thread.start()
        time.sleep(1.6)
        assert redis.get("lease")
        over.set()
        thread.join()

    assert str(race(scenario(clients=1)(client)).outcome) == "holds"
    found = race(scenario(clients=[client, lambda redis: None])(nothing), effort="quick")
    assert found.law == ""


def test_it_is_told_that_a_client_did_not_begin_later_still() -> None:
    def sleeps(redis: Any) -> None:
        for _ in range(4):
            redis.incr("n")
            time.sleep(1)

    told = "not visited: orders in which a client begins after 3 or more pauses of others"
    assert race(scenario(clients=[sleeps, pushes])(nothing)).how_far.endswith(told)
    assert told not in race(scenario(clients=[pops(1), pushes])(nothing)).how_far


def test_a_thread_that_dies_of_an_assertion_is_told_by_its_name() -> None:
    def looks(redis: Any) -> None:
        assert redis.get("n") != b"1", "one is a lonely number"

    def client(redis: Any) -> None:
        redis.incr("n")
        redis.incr("n")
        thread = threading.Thread(target=looks, args=(redis,))
        thread.start()
        thread.join()

    def lonely(redis: Any) -> None:
        redis.incr("n")
        thread = threading.Thread(target=looks, args=(redis,))
        thread.start()
        thread.join()

    assert race(scenario(clients=1)(client)).law == ""
    verdict = race(scenario(clients=1)(lonely))
    assert verdict.law == "assertion"
    assert verdict.what.startswith("client 0.1: one is a lonely number")
