"""Schedules of races on a real server: forced by gates between threads, with the faults that a gate can bring about."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py
from redis.exceptions import LockError

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients.gate import ScheduledStep
from orderlab.properties.clients.gate_operations import operations_of
from orderlab.properties.clients.race import RaceVerdict
from orderlab.properties.clients.race_file import gated_steps, pytest_of_race
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.schedule_outcome import Judged, judged
from orderlab.sim.live import ServerProcess
from tests.in_process import orderlab

FILE = """
from orderlab.clients import scenario

@scenario(clients=2)
def count(redis):
    redis.set("n", int(redis.get("n") or 0) + 1)
"""


@pytest.fixture(scope="module")
def server() -> Any:
    process = ServerProcess()
    try:
        yield redis_py.Redis(process.host, process.port)
    finally:
        process.stop()


def on_both(server: Any, judged_one: Scenario, **how: Any) -> tuple[RaceVerdict, Judged]:
    """What a scenario comes to on the kernel, and its schedule on the server."""
    verdict = race(judged_one, **how)
    steps, operations = gated_steps(judged_one, verdict), operations_of(judged_one.contract)
    for _ in range(3):  # on a busy machine a lease may be over before the step that was to meet it
        seen = judged(server, judged_one, steps, operations)
        if not seen.strayed:
            break
    assert not seen.strayed, seen
    return verdict, seen


def transaction(redis: Any) -> None:
    value = int(redis.get("n") or 0)
    with redis.pipeline() as pipe:
        pipe.set("n", value + 1)
        pipe.incr("m")
        pipe.execute()


def mark(redis: Any, at: Any) -> None:
    if not redis.exists("taken"):
        redis.set("taken", 1)
        with at("critical", most=1):
            redis.incr("work")


def lease(redis: Any, at: Any) -> None:
    """Guards what is done outside of Redis by a lock that lapses."""
    lock = redis.lock("job", timeout=0.35, sleep=0.1)
    lock.acquire()
    with at("critical", most=1):
        redis.incr("work")
        redis.incr("work")
    with suppress(LockError):
        lock.release()


def move(redis: Any) -> None:
    redis.rpush("log", redis.lpop("q") or b"none")


def fill(redis: Any) -> None:
    redis.rpush("q", "a")


def hand_over(redis: Any) -> None:
    redis.lpush("jobs", "a", "b")


def take(redis: Any, at: Any) -> None:
    redis.blpop("jobs", timeout=0)
    at.once(redis.incr("taken") // 2)


def short_lease(redis: Any) -> None:
    redis.set("lease", 1, ex=5)


def extends(redis: Any) -> None:
    redis.pexpire("lease", redis.pttl("lease") + 10_000)


SHARED = redis_py.Redis()


def books(redis: Any) -> None:
    """By a pool that the module keeps, which has been on the kernel before."""
    seats = int(SHARED.get("seats") or 0)
    with SHARED.pipeline() as pipe:
        pipe.set("seats", seats + 1)
        pipe.execute()


CASES = {
    "a deadline": (scenario(clients=2, setup=short_lease)(extends), {}),
    "a transaction": (scenario(clients=2)(transaction), {}),
    "a pool of a module": (scenario(clients=2)(books), {}),
    "a mark": (scenario(clients=2)(mark), {}),
    "a lost reply": (scenario(clients=1, setup=fill)(move), {"trouble": 1, "faults": ("reply-lost",)}),
    "a client killed": (scenario(clients=1, setup=fill)(move), {"trouble": 1, "faults": ("killed",)}),
    "a wait": (scenario(clients=[take, hand_over, take], setup=None)(lambda redis: redis.get("taken") == b"3"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_kernel_shows_a_server_shows_too(server: Any, name: str) -> None:
    judged_one, how = CASES[name]
    verdict, seen = on_both(server, judged_one, **how)
    assert verdict.law
    assert seen.law == verdict.law


def test_a_pause_past_a_lease_takes_its_time_on_a_server(server: Any) -> None:
    verdict, seen = on_both(server, scenario(clients=2)(lease), trouble=1, faults=("paused-longer",))
    assert verdict.law == "at-most-1"
    assert seen.law == "at-most-1"
    assert any(step.gap_ms for step in gated_steps(scenario(clients=2)(lease), verdict))


def test_code_that_was_repaired_strays_and_is_right(server: Any) -> None:
    @scenario(clients=2)
    def repaired(redis: Any) -> None:
        redis.incr("n")

    steps = [
        ScheduledStep("0", "command", "GET"),
        ScheduledStep("1", "command", "GET"),
        ScheduledStep("0", "command", "SET"),
    ]
    seen = judged(server, repaired, steps)
    assert not seen.law
    assert "client 0 comes with INCRBY, not GET" in seen.strayed, seen


def test_what_no_gate_can_bring_about_is_refused() -> None:
    def keeps(redis: Any, at: Any) -> None:
        redis.set("a", 1)
        at.finally_(kept)
        redis.get("a")

    def kept(redis: Any) -> Any:
        return redis.get("a") == b"1"

    alone = scenario(clients=1)(keeps)
    with pytest.raises(InputError, match="show failover"):
        gated_steps(alone, race(alone, trouble=1, faults=("failover",)))


def test_the_exported_test_stands_alone_and_falls_until_it_is_fixed(server: Any, tmp_path: Path) -> None:
    """It runs where nothing of this suite can be imported."""
    file, report = tmp_path / "counts.py", tmp_path / "race.json"
    file.write_text(FILE)
    test = tmp_path / "test_counts.py"
    found = orderlab("race", f"{file}:count", "--report", f"json={report}", "--export", f"pytest={test}")
    assert found.returncode == 1, found.stderr
    assert json.loads(report.read_text())["subjects"][0]["findings"][0]["witness"]["scenario"] == "count"
    fixed = tmp_path / "test_fixed.py"
    again = orderlab("replay", str(report), "--trust-adapter", "--export", f"pytest={fixed}", "--expect", "fixed")
    assert again.returncode == 1
    assert "n = string 1" in orderlab("replay", str(report), "--trust-adapter", "--step").stdout
    refused = orderlab("replay", str(report), "--trust-adapter", "--backend", "auto", "--step")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--step, --from: not with --backend auto" in refused.stderr
    assert orderlab("replay", str(report)).returncode == 2, "a report names Python, which is not run unasked"
    forced = orderlab("replay", str(report), "--trust-adapter", "--backend", "auto", "--json")
    assert (forced.returncode, json.loads(forced.stdout)["law"]) == (1, "serializable")

    url = (
        f"redis://{server.connection_pool.connection_kwargs['host']}:{server.connection_pool.connection_kwargs['port']}"
    )

    def outcomes() -> tuple[int, int]:
        told = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.modules['orderlab'] = None; import pytest; sys.exit(pytest.main("
             f"['-q', '-p', 'no:cacheprovider', '-p', 'no:orderlab', {str(test)!r}, {str(fixed)!r}]))"],
            capture_output=True, text=True, cwd=tmp_path, env={"REDIS_URL": url, "PATH": "/usr/bin:/bin"}, timeout=600,
        ).stdout  # fmt: skip
        return told.count(" passed"), told.count(" failed")

    assert outcomes() == (1, 1)
    file.write_text(FILE.replace('redis.set("n", int(redis.get("n") or 0) + 1)', 'redis.incr("n")'))
    assert outcomes() == (1, 1), "now the other way round"
    file.write_text(FILE.replace('redis.set("n"', 'redis.append("n"').replace('redis.get("n")', 'redis.get("m")'))
    strayed = orderlab("replay", str(report), "--trust-adapter")
    assert strayed.returncode == 3, strayed.stdout
    assert "step 1: client 0: GET m, not GET n" in strayed.stderr


def test_a_test_for_a_file_elsewhere_finds_it(tmp_path: Path) -> None:
    counted = scenario(clients=2)(transaction)
    text = pytest_of_race(counted, race(counted), tmp_path / "a/b.py", tmp_path / "tests/test_b.py", "broken")
    assert "'../a/b.py'" in text
    compile(text, "test_b.py", "exec")
