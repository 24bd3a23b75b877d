"""The standard library as clients meet it: time, draws and the process are the scheduler's, and their own."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import secrets
import socket
import threading
import time
import weakref
from ast import literal_eval
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients import virtual
from orderlab.properties.clients.race import replayed
from orderlab.properties.clients.runs import carried_out, controlled
from orderlab.properties.clients.scenario import load
from tests.in_process import orderlab


def test_virtual_time_and_draws_are_the_same_in_every_run_and_real_outside() -> None:
    def look(redis: Any) -> Any:
        began = time.monotonic()
        time.sleep(3600)
        return round(time.monotonic() - began), random.random()

    began = time.monotonic()
    assert str(race(scenario(clients=2)(look)).outcome) == "holds"
    assert time.monotonic() - began < 60
    assert not isinstance(threading.Lock(), virtual.LaneLock)


def test_a_client_has_draws_a_calendar_and_a_process_of_its_own() -> None:
    def asks(redis: Any) -> Any:
        drawn = [
            random.SystemRandom().random(),
            random.Random().random(),
            random.triangular(),
            secrets.randbelow(1 << 60),
        ]
        began = [time.mktime(time.localtime()), time.strftime("%S"), time.gmtime().tm_min, time.perf_counter_ns()]
        time.sleep(61)
        ended = [time.mktime(time.localtime()), time.strftime("%S"), time.gmtime().tm_min, time.perf_counter_ns()]
        assert ended == [began[0] + 61, "21", began[2] + 1, began[3] + 61 * 10**9]
        return *drawn, os.getpid()

    judged = scenario(clients=2)(asks)
    with controlled():
        runs = [carried_out(judged, lambda _, enabled: enabled[0]) for _ in range(2)]
    ends = [run.outcome.ends for run in runs if run.outcome is not None]
    assert ends[0] == ends[1]
    first, second = (literal_eval(end) for end in ends[0])
    assert not set(first) & set(second)


def test_an_execution_that_is_over_is_freed_without_a_search_for_garbage() -> None:
    """Else every one is followed by such a search, which took a tenth of the time."""
    judged = scenario(clients=2)(lambda redis: redis.incr("n"))
    with controlled():
        gc.disable()
        try:
            execution = weakref.ref(carried_out(judged, lambda _, enabled: enabled[0]).execution)
            assert execution() is None
        finally:
            gc.enable()


class Handle:
    """Lets go of something when nobody refers to it, as locks of libraries do."""

    def __init__(self, port: int) -> None:
        self.redis = redis_py.Redis(port=port)

    def __del__(self) -> None:
        self.redis.delete("lock")


def test_what_a_client_leaves_behind_reaches_no_real_server(capfd: Any) -> None:
    kept: list[Handle] = []

    def client(redis: Any) -> None:
        kept.append(Handle(listening.getsockname()[1]))
        redis.incr("n")

    with socket.create_server(("127.0.0.1", 0)) as listening, controlled():
        carried_out(scenario(clients=1)(client), lambda _, enabled: enabled[0])
        kept.clear()
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert capfd.readouterr().err == ""


def test_what_clients_log_is_shown_with_the_schedule_alone(caplog: Any) -> None:
    def client(redis: Any) -> None:
        logging.getLogger("shop").warning("sold %s", redis.incr("n"))

    assert race(scenario(clients=2, serial=False)(client)).executions > 1
    assert caplog.messages == []
    replayed(scenario(clients=2, serial=False)(client), "1,0")
    assert caplog.messages == ["sold 1", "sold 2"]


def test_a_client_may_ask_who_it_is() -> None:
    def client(redis: Any) -> None:
        assert redis.client_info()["addr"].startswith("127.0.0.1:")

    assert str(race(scenario(clients=2)(client)).outcome) == "holds"


MODULE = """
from functools import cache
from orderlab.clients import scenario
_is_ready, _loaded, _large, _endless = False, {}, [0] * 10**6, []
_endless.append(_endless)
class Local:
    seen = []
def load(redis):
    redis.set("n", int(redis.get("n") or 0) + 1)
@scenario(clients=2)
def flag(redis):
    global _is_ready
    if not _is_ready:
        load(redis)
        _is_ready = True
@scenario(clients=2)
def table(redis):
    if "n" not in _loaded:
        load(redis)
        _loaded["n"] = 1
@scenario(clients=2)
def attribute(redis):
    if not Local.seen:
        load(redis)
        Local.seen.append(1)
once = cache(load)
@scenario(clients=2)
def cached(redis):
    once.__wrapped__(redis) if once.cache_info().currsize else once(redis)
@scenario(clients=2)
def right(redis):
    _loaded["n"] = redis.incr("n")
"""


@pytest.mark.parametrize("name", ["flag", "table", "attribute", "cached"])
def test_what_a_module_keeps_is_as_after_its_import_in_every_execution(name: str, tmp_path: Any) -> None:
    (tmp_path / f"{name}_lazily.py").write_text(MODULE)
    assert race(load(f"{tmp_path}/{name}_lazily.py:{name}")[0]).law == "serializable"


def test_what_clients_share_in_a_module_is_said(tmp_path: Any) -> None:
    (tmp_path / "right_lazily.py").write_text(MODULE)
    verdict = race(load(f"{tmp_path}/right_lazily.py:right")[0])
    assert (str(verdict.outcome), "clients share" in verdict.how_far) == ("holds", True), verdict


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(redis):\n    raise ValueError('no')\n@scenario(clients=2, setup=broken)", "setup: ValueError: no"),
        ("@scenario(clients=2, setup='x')", "setup: 'x' is no function"),
        ("@scenario", "with its brackets"),
        ("@scenario(clients=2)", "no client asks Redis anything"),
    ],
)
def test_a_scenario_that_can_show_nothing_is_refused(text: str, told: str, tmp_path: Any) -> None:
    (tmp_path / f"empty_{len(text)}.py").write_text(
        f"from orderlab.clients import scenario\n{text}\ndef one(redis): yield 1\n"
    )
    with pytest.raises(InputError, match=told):
        race(load(f"{tmp_path}/empty_{len(text)}.py:one")[0])


def test_what_clients_print_is_no_part_of_the_output(tmp_path: Any) -> None:
    file = tmp_path / "noisy.py"
    file.write_text("from orderlab.clients import scenario\n@scenario()\ndef one(redis):\n    print(redis.incr('n'))\n")
    assert json.loads(orderlab("race", str(file), "--json").stdout)["verdicts"][0]["outcome"] == "holds"
