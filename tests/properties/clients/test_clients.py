"""Client code in every order: the reduction against a plain search, right programs and their flawed neighbours."""

from __future__ import annotations

import json
import random
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients.orders import OrderSearch
from orderlab.properties.clients.race import replayed, schedule_of
from orderlab.properties.clients.runs import Ending, controlled
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.troubles import ALL_TROUBLES

# -- generated programs ------------------------------------------------------------------------------------------

COMMANDS = [
    *("SET a 1", "SET b 2", "GET a", "GET b", "INCR n", "DECR n", "GET n", "DEL a", "APPEND a x", "SETNX a 3"),
    *("HSET h f 1", "HGET h f", "HINCRBY h g 1", "HLEN h", "LPUSH l 1", "RPUSH l 2", "LPOP l", "LLEN l"),
    *("RPOPLPUSH l m", "LRANGE m 0 -1", "SADD s 1", "SREM s 1", "SCARD s", "SPOP s", "SADD t 2 3", "SPOP t"),
    *("PEXPIRE a 5", "PTTL a", "RENAME a b", "DBSIZE", "KEYS *", "FLUSHALL", "PUBLISH c x"),
    *("EXISTS a b", "MSET a 5 b 6", "SORT l STORE m", "ZADD z 1 a", "ZRANGE z 0 -1", "ZPOPMIN z", "XADD x * f 1"),
    *("XLEN x", "TYPE l", "COPY a b", "GETDEL a", "SMEMBERS t", "BLPOP l 1", "SET a 9 PX 10", "LINDEX m 0"),
    "EVAL return{redis.call('GET','a'),redis.call('INCR','n')} 2 a n",
    "EVAL return{math.random(100)} 0",
]


PAUSE = "sleeps"
ANY_FAULT = sorted(set(ALL_TROUBLES) - {"moved", "cluster-down"})
"""Those two are refusals like the others."""


def program(draws: random.Random, longest: int, among: Sequence[str] = COMMANDS) -> Callable[[Any], Any]:
    """A client that sends a few commands, waits now and then, and hands back what it was told."""
    length = draws.randint(1, longest)
    lines = [draws.choice(among) for _ in range(length)]
    watches = draws.random() < 0.25

    def client(redis: Any) -> Any:
        seen: list[Any] = []
        if watches:
            with redis.pipeline() as pipe:
                pipe.watch("a", "n")
                try:
                    value = pipe.get("n")
                    pipe.multi()
                    pipe.execute_command("SET", "a", repr(value))
                    pipe.incr("n")
                    seen.append(pipe.execute())
                except redis_py.WatchError:
                    seen.append("broken")
        for line in lines:
            if line == PAUSE:
                time.sleep(0.007)
                continue
            try:
                reply = redis.execute_command(*line.split())
                seen.append(sorted(map(repr, reply)) if isinstance(reply, set) else reply)
            except redis_py.ResponseError as error:
                seen.append(str(error))
        return seen

    return client


def outcomes(
    program: Scenario, reduction: bool, budget: int = 0, faults: Sequence[str] = ("reply-lost", "killed", "refused"),
    most: int = 800,
) -> tuple[set[tuple[Ending, bool]], OrderSearch]:  # fmt: skip
    search = OrderSearch(program, most, faults, budget, reduction)
    found = {(run.outcome, run.execution.is_stuck) for run in search.runs() if run.outcome is not None}
    return found, search


def check_reduction(seeds: range, budget: int = 0) -> tuple[int, int]:
    visited = plain = 0
    for seed in seeds:
        draws = random.Random(seed)
        count = 3 if seed % 3 == 0 else 2
        clients = [program(draws, 1 if count == 3 else 3) for _ in range(count)]
        declared = scenario(clients=clients)(lambda redis: None)
        with controlled():
            whole, unreduced = outcomes(declared, False, budget)
            if not unreduced.work.is_exhausted:
                continue
            reduced, search = outcomes(declared, True, budget)
        assert search.work.is_exhausted
        assert reduced == whole, f"seed {seed}"
        visited += search.work.executions
        plain += unreduced.work.executions
    return visited, plain


def test_the_reduction_loses_no_outcome() -> None:
    visited, plain = check_reduction(range(8))
    assert 0 < visited < plain


def check_reduction_of_faults(seeds: Iterable[int]) -> tuple[int, int]:
    """As ``check_reduction``, with every fault, times of day, sleeps and keys that end."""
    visited = plain = 0
    among = [*COMMANDS, *[PAUSE, "TIME", "SET a 1 PX 6", "INCR a", "INCR b", "SET b 2 PX 12"] * 3]
    for seed in seeds:
        draws = random.Random(seed)
        faults = draws.sample(ANY_FAULT, 3)
        declared = scenario(clients=[program(draws, 2, among) for _ in range(2)])(lambda redis: None)
        with controlled():
            whole, unreduced = outcomes(declared, False, 1, faults, 3_000)
            if not unreduced.work.is_exhausted:
                continue
            reduced, search = outcomes(declared, True, 1, faults, 3_000)
        assert search.work.is_exhausted
        assert reduced == whole, f"seed {seed}, {faults}"
        visited += search.work.executions
        plain += unreduced.work.executions
    return visited, plain


def test_the_reduction_loses_no_outcome_of_any_fault() -> None:
    visited, plain = check_reduction_of_faults([2002, 2016, 2044, *range(6)])
    assert 0 < visited < plain


@pytest.mark.exhaustive
def test_the_reduction_loses_no_outcome_of_any_fault_of_many_programs() -> None:
    visited, plain = check_reduction_of_faults(range(2000, 2400))
    assert visited < plain


def test_writes_of_different_keys_are_made_in_one_order() -> None:
    """Unless something is asked after every step; and what is asked from a step on, is asked from that one on."""

    def writes(redis: Any, at: Any) -> None:
        for number in range(2):
            redis.incr(f"{at.client}.{number}")

    assert race(scenario(clients=2, serial=True)(writes)).orders == 1

    def is_asked_before_the_other(redis: Any, at: Any) -> None:
        if at.client == 0:
            at.always(not_both)
        redis.incr(f"own.{at.client}")

    def not_both(store: Any) -> bool:
        return not (store.exists("own.0") and not store.exists("own.1"))

    assert race(scenario(clients=2)(is_asked_before_the_other)).law == "always"


@pytest.mark.exhaustive
@pytest.mark.parametrize("budget", [0, 1])
def test_the_reduction_loses_no_outcome_of_many_programs(budget: int) -> None:
    visited, plain = check_reduction(range(1000, 1400 if budget else 1600), budget)
    assert visited < plain / 2


# -- pairs: right, and its neighbour with one flaw ----------------------------------------------------------------


def counter_right(redis: Any) -> None:
    redis.incr("n")


def counter_flawed(redis: Any) -> None:
    redis.set("n", int(redis.get("n") or 0) + 1)


def watch_right(redis: Any) -> None:
    def change(pipe: Any) -> None:
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    redis.transaction(change, "n")


def watch_flawed(redis: Any) -> None:
    with redis.pipeline() as pipe:
        pipe.watch("n")
        value = int(pipe.get("n") or 0)
        pipe.set("n", value + 1)  # without MULTI the watch breaks nothing


def lock_right(redis: Any, at: Any) -> None:
    token = str(at.client)
    if redis.set("lock", token, nx=True, px=10_000):
        with at("critical"):
            at.sleep(1)
        redis.eval("if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('DEL',KEYS[1]) end", 1, "lock", token)


def lock_flawed(redis: Any, at: Any) -> None:
    if not redis.get("lock"):
        redis.set("lock", "1", px=10_000)
        with at("critical"):
            at.sleep(1)
        redis.delete("lock")


def lease_right(redis: Any, at: Any) -> None:
    with redis.lock("job", timeout=10), at("critical"):
        at.sleep(4)


def lease_flawed(redis: Any, at: Any) -> None:
    lock = redis.lock("job", timeout=3)
    lock.acquire()
    with at("critical"):
        at.sleep(4)


def script_right(redis: Any) -> Any:
    script = redis.register_script("local n=redis.call('GET',KEYS[1]) or 0 redis.call('SET',KEYS[1],n+1) return n")
    return script(keys=["n"]) is not None


def script_flawed(redis: Any) -> Any:
    value = redis.eval("return redis.call('GET',KEYS[1]) or '0'", 1, "n")
    redis.eval("redis.call('SET',KEYS[1],ARGV[1]+1)", 1, "n", value)
    return True


def job_right(redis: Any, at: Any) -> None:
    redis.rpush("jobs", at.client)
    job = redis.lmove("jobs", "busy", "LEFT", "RIGHT")
    at.once(job)


def job_flawed(redis: Any, at: Any) -> None:
    redis.rpush("jobs", at.client)
    job = redis.lindex("jobs", 0)
    if job is not None:
        at.once(job)
        redis.lrem("jobs", 1, job)


def init_right(redis: Any) -> Any:
    redis.setnx("config", "made")
    return redis.incr("made") > 0


def init_flawed(redis: Any) -> Any:
    if not redis.exists("config"):
        redis.rpush("config", "made")
    return redis.llen("config")


def pair_right(redis: Any, at: Any) -> None:
    with redis.pipeline(transaction=True) as pipe:
        pipe.set("x", at.client).set("y", at.client).execute()


def pair_flawed(redis: Any, at: Any) -> None:
    with redis.pipeline(transaction=False) as pipe:
        pipe.set("x", at.client).set("y", at.client).execute()


def thread_right(redis: Any) -> None:
    worker = threading.Thread(target=lambda: redis.incr("n"))
    worker.start()
    redis.incr("n")
    worker.join()


def thread_flawed(redis: Any) -> None:
    worker = threading.Thread(target=lambda: counter_flawed(redis))
    worker.start()
    counter_flawed(redis)
    worker.join()


def wait_right(redis: Any, at: Any) -> None:
    if at.client == 0:
        redis.rpush("go", 1)
    else:
        redis.blpop("go", timeout=0)


def wait_flawed(at: Any) -> None:
    redis = redis_py.Redis(socket_timeout=None)
    if at.client == 0:
        if redis.get("asked"):
            redis.rpush("go", 1)
    else:
        redis.set("asked", 1)
        redis.blpop("go", timeout=0)


PAIRS = [
    (counter_right, counter_flawed, "serializable"),
    (watch_right, watch_flawed, "serializable"),
    (lock_right, lock_flawed, "at-most-1"),
    (lease_right, lease_flawed, "at-most-1"),
    (script_right, script_flawed, "serializable"),
    (job_right, job_flawed, "at-most-once"),
    (init_right, init_flawed, "serializable"),
    (pair_right, pair_flawed, "serializable"),
    (thread_right, thread_flawed, "serializable"),
]


@pytest.mark.parametrize(("right", "flawed", "law"), PAIRS, ids=[right.__name__ for right, _, _ in PAIRS])
def test_what_is_right_holds_and_its_neighbour_is_violated(right: Any, flawed: Any, law: str) -> None:
    clients = 1 if law == "serializable" and "thread" in right.__name__ else 2
    verdict = race(scenario(clients=clients)(right))
    assert (str(verdict.outcome), verdict.law) == ("holds", "")
    assert "all " in verdict.how_far
    found = race(scenario(clients=clients)(flawed))
    assert (str(found.outcome), found.law) == ("violated", law)
    assert found.steps


def test_a_client_that_may_wait_for_ever_is_told() -> None:
    assert str(race(scenario(clients=2)(wait_right)).outcome) == "holds"
    assert race(scenario(clients=2)(wait_flawed)).law == "no-deadlock"


def test_an_assertion_of_a_client_is_judged_though_it_fails_in_a_serial_order_as_well() -> None:
    @scenario(clients=2)
    def first_only(redis: Any, at: Any) -> None:
        assert redis.incr("n") == 1, "somebody was here before"

    verdict = race(first_only)
    assert (verdict.outcome.name, verdict.law) == ("VIOLATED", "assertion"), verdict


def test_trouble_excuses_what_the_client_library_raises_and_no_error_of_the_program() -> None:
    @scenario(clients=1)
    def careless(redis: Any, at: Any) -> None:
        try:
            done = redis_py.Redis(retry=Retry(NoBackoff(), 0)).set("n", 1)
        except redis_py.RedisError:
            done = None
        return done.bit_length()

    @scenario(clients=1)
    def passed_on(redis: Any, at: Any) -> None:
        try:
            redis.set("n", 1)
        except redis_py.RedisError as error:
            raise LookupError("no number") from error

    assert race(careless).outcome.name == "HOLDS"
    verdict = race(careless, trouble=1)
    assert (verdict.outcome.name, verdict.law) == ("VIOLATED", "no-foreign-exception"), verdict
    assert race(passed_on, trouble=1).law != "no-foreign-exception"


def test_trouble_finds_what_calm_weather_does_not() -> None:
    def move(redis: Any, at: Any) -> None:
        job = redis.lpop("jobs")
        if job is not None:
            redis.rpush("done", job)

    def safe(redis: Any, at: Any) -> None:
        redis.lmove("jobs", "done", "LEFT", "RIGHT")

    def setup(redis: Any) -> None:
        redis.rpush("jobs", "j")

    assert str(race(scenario(clients=1, setup=setup)(move)).outcome) == "holds"
    assert race(scenario(clients=1, setup=setup)(move), trouble=1).law == "serializable"
    assert str(race(scenario(clients=1, setup=setup)(safe), trouble=1).outcome) != "unknown"


def test_only_the_faults_that_are_named_strike() -> None:
    def leased(redis: Any, at: Any) -> None:
        if redis.set("lock", at.client, nx=True, px=5000):
            with at("critical"):
                pass

    assert race(scenario(clients=2)(leased), trouble=1, faults=("reply-lost", "killed")).outcome.name == "HOLDS"
    assert race(scenario(clients=2)(leased), trouble=1, faults=("failover",)).law == "at-most-1"
    with pytest.raises(InputError, match='did you mean "reply-lost"'):
        race(scenario(clients=2)(leased), trouble=1, faults=("reply-losst",))


def test_a_client_that_asks_for_the_time_may_stand_still_though_no_key_ends() -> None:
    def window(redis: Any, at: Any) -> None:
        assert int(time.time()) == int(time.time()), "the second is over"
        redis.ping()

    def between(redis: Any, at: Any) -> None:
        began = int(time.time())
        redis.ping()
        assert int(time.time()) == began, "the second is over"

    assert race(scenario(clients=1)(window), trouble=1).outcome.name == "HOLDS"
    assert race(scenario(clients=1)(between)).outcome.name == "HOLDS"
    assert race(scenario(clients=1)(between), trouble=1, faults=("paused",)).law == "assertion"


def test_what_is_not_the_same_twice_is_told_as_uncontrolled() -> None:
    calls = [0]

    def drifting(redis: Any) -> None:
        calls[0] += 1
        redis.set(f"k{calls[0]}", 1)
        redis.get("a")

    assert str(race(scenario(clients=2, serial=False)(drifting)).outcome) == "unknown"


FILE = """
from orderlab.clients import scenario

@scenario(clients=2)
def count(redis):
    redis.set("n", int(redis.get("n") or 0) + 1)

@scenario(clients=2)
def right(redis):
    redis.incr("n")
"""


def orderlab(*words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the user's Python runs in a child of it."""
    return subprocess.run([sys.executable, "-m", "orderlab", *words], capture_output=True, text=True, timeout=600)


def test_reports_tell_the_schedule_and_it_can_be_made_again(tmp_path: Path) -> None:
    file = tmp_path / "seats.py"
    file.write_text(FILE)
    forms = {form: tmp_path / f"report.{form}" for form in ("json", "sarif", "html", "junit", "markdown")}
    asked = [word for form, place in forms.items() for word in ("--report", f"{form}={place}")]
    assert orderlab("race", str(file), *asked).returncode == 1
    report = json.loads(forms["json"].read_text())
    counted, right = report["subjects"]
    finding = counted["findings"][0]
    assert (counted["outcome"], right["outcome"]) == ("violated", "holds")
    assert finding["line"]["source"] == 'redis.set("n", int(redis.get("n") or 0) + 1)'
    assert finding["steps"][-1]["keys"]
    for form, place in forms.items():
        assert "serializable" in place.read_text(), form
    again = orderlab(*shlex.split(finding["replay"])[1:])
    assert again.returncode == 1
    assert "= " in again.stdout
    assert "serializable" in again.stdout
    fixed = orderlab("race", f"{file}:count", "--schedule", "0,0,1,1")
    assert fixed.returncode == 0, fixed.stdout
    unknown = orderlab("race", f"{file}:count", "--schedule", "0,9,x")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "'9' is no step of count; its clients are 0 to 1" in unknown.stderr
    strayed = orderlab("race", f"{file}:count", "--schedule", "0,0,0,1")
    assert strayed.returncode == 2
    assert len(strayed.stderr.splitlines()) == 1
    assert "step 3: client 0 could go on, and cannot" in strayed.stderr


@pytest.mark.exhaustive
def test_the_command_line_says_it_with_its_exit_codes(tmp_path: Path) -> None:
    file = tmp_path / "clients.py"
    file.write_text(FILE)
    found = orderlab("race", f"{file}:count")
    assert found.returncode == 1
    assert "client 1: SET n 1" in found.stdout
    assert orderlab("race", f"{file}:right").returncode == 0
    assert orderlab("race", f"{file}:none").returncode == 2
    file.write_text("import nothing_there")
    assert orderlab("race", str(file)).returncode == 2


def connects(redis: Any) -> None:
    socket.create_connection(("127.0.0.1", 1), 1)


def starts(redis: Any) -> None:
    subprocess.run([sys.executable, "-c", ""], check=False)


@pytest.mark.parametrize(("function", "does"), [(connects, "opens a socket"), (starts, "starts a process")])
def test_what_no_scheduler_can_put_in_order_is_refused_by_name(function: Any, does: str) -> None:
    """Also where the client's code swallows it; outside of a scenario it is as ever."""

    def swallows(redis: Any) -> None:
        redis.incr("n")
        with suppress(Exception):
            function(redis)

    with pytest.raises(InputError, match=rf"client [01] {does} \(.*leave that call out"):
        race(scenario(clients=2)(swallows))
    with controlled():
        assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0
    assert "connect" not in vars(socket.socket)


def test_a_signal_ends_the_run_whatever_a_client_catches(tmp_path: Path) -> None:
    file, began = tmp_path / "spins.py", tmp_path / "began"
    file.write_text(
        "from pathlib import Path\nfrom orderlab.clients import scenario\n\n@scenario(clients=2)\ndef spins(redis):\n"
        f"    redis.incr('a')\n    Path({str(began)!r}).touch()\n    while True:\n        try:\n"
        "            sum(range(10))\n        except BaseException:\n            pass\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        running = subprocess.Popen([sys.executable, "-m", "orderlab", "race", str(file)], stdout=subprocess.PIPE)
        while not began.exists():
            time.sleep(0.02)
        running.send_signal(number)
        assert running.wait(300) == 128 + number
        began.unlink()


def locks_both(first: str, second: str) -> Callable[[Any], None]:
    def client(redis: Any) -> None:
        for name in (first, second):
            while not redis.set(name, "1", nx=True):
                time.sleep(0.1)
        redis.delete(first, second)

    return client


def test_clients_of_a_list_are_compared_where_the_function_at_the_end_is_empty() -> None:
    def adds(redis: Any) -> None:
        redis.set("n", int(redis.get("n") or 0) + 1)

    def empty(redis: Any) -> None:
        """It says nothing."""

    def looks(redis: Any) -> None:
        assert redis.get("n") in (b"1", b"2")

    assert race(scenario(clients=[adds, adds])(empty)).law == "serializable"
    assert race(scenario(clients=[adds, adds])(lambda redis: None)).law == "serializable"
    assert race(scenario(clients=[adds, adds])(looks)).law == ""


def test_clients_that_wait_for_each_other_are_shown_asking_a_few_times() -> None:
    crossed = scenario(clients=[locks_both("a", "b"), locks_both("b", "a")])(lambda redis: None)
    verdict = race(crossed)
    assert (verdict.law, verdict.what) == ("no-deadlock", "client 0, client 1 wait for ever")
    assert len(verdict.steps) < 20
    assert replayed(crossed, schedule_of(verdict)).law == "no-deadlock"
