"""Faults of a served node as a client sees them, by the fixture ``orderlab_redis``, by command and by file."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orderlab.model.errors import InputError
from orderlab.properties.plugin.served import ServedRedis
from orderlab.sim.redis.wire.served_faults import read_schedule


def client_of(served: ServedRedis) -> redis.Redis:
    """One that repeats nothing by itself."""
    client: redis.Redis = served.client(retry=Retry(NoBackoff(), 0), socket_timeout=60)
    return client


def test_a_stall_delays_every_reply(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    client.ping()
    begun = time.monotonic()
    orderlab_redis.fault("stall 200")
    client.ping()
    assert time.monotonic() - begun >= 0.2


def test_a_killed_node_resets_refuses_and_comes_back(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    client.set("k", 1)
    sha = client.script_load("return 1")
    with socket.create_connection((orderlab_redis.host, orderlab_redis.port), timeout=5) as waiting:
        orderlab_redis.fault("kill 1000")
        with suppress(ConnectionResetError):
            assert waiting.recv(1) == b""
    is_refused = False
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            client.ping()
            if is_refused:
                break
        except redis.ConnectionError as error:  # or reset, if redis-py has not looked before
            is_refused |= "111" in str(error) or "refused" in str(error)
        time.sleep(0.01)
    assert is_refused
    assert client.get("k") == b"1"
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha(sha, 0)
    client.execute_command("ORDERLAB", "KILL", "0", "empty")
    until_it_answers(orderlab_redis)
    assert served_get(orderlab_redis, "k") is None


def until_it_answers(served: ServedRedis) -> None:
    """Wait until a node that has gone is there again."""
    time.sleep(0.05)
    deadline = time.monotonic() + 120
    while True:
        with served.client(retry=Retry(NoBackoff(), 0)) as client, suppress(redis.ConnectionError):
            client.ping()
            return
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.01)


def served_get(served: ServedRedis, key: str) -> bytes | None:
    with served.client() as client:
        value: bytes | None = client.get(key)
        return value


def test_scripts_are_forgotten(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    sha = client.script_load("return 1")
    assert client.evalsha(sha, 0) == 1
    orderlab_redis.fault("noscript")
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha(sha, 0)


def test_a_reply_is_lost_and_its_effect_stays(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    orderlab_redis.fault("lose-reply 1 incr")
    assert client.set("n", 1)
    with pytest.raises(redis.ConnectionError):
        client.execute_command("INCR", "n")
    assert client.get("n") == b"2"
    assert client.execute_command("INCR", "n") == 3


def test_memory_is_full_until_it_is_not(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    orderlab_redis.fault("oom on")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("k", 1)
    assert client.get("k") is None
    orderlab_redis.fault("oom off")
    assert client.set("k", 1)


def test_a_partition_lets_no_byte_pass(orderlab_redis: ServedRedis) -> None:
    client, other = client_of(orderlab_redis), client_of(orderlab_redis)
    client.set("k", 1)
    client.pexpire("k", 50)
    waited: list[object] = []
    thread = threading.Thread(target=lambda: waited.append(other.blpop(["q"], 0.1)))
    thread.start()
    time.sleep(0.03)
    begun = time.monotonic()
    orderlab_redis.fault("partition 300")
    assert client.get("k") is None  # the node went on meanwhile
    assert time.monotonic() - begun >= 0.3
    thread.join()
    assert waited == [None]


def test_a_failover_loses_what_the_replica_had_not(orderlab_redis: ServedRedis) -> None:
    client = client_of(orderlab_redis)
    client.set("kept", 1)
    orderlab_redis.fault("lag")
    client.set("lost", 1)
    client.delete("kept")
    orderlab_redis.fault("failover 0")
    until_it_answers(orderlab_redis)
    assert client.mget("kept", "lost") == [b"1", None]


@pytest.mark.orderlab_redis(cluster=2, password="secret")
def test_the_marker_says_what_is_served(orderlab_redis: ServedRedis) -> None:
    assert len(orderlab_redis.nodes) == 2
    assert orderlab_redis.client().set("k", 1)
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis(port=orderlab_redis.port).ping()


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("stal 3", 'did you mean "stall"'),
        ("stall", "write stall MILLISECONDS"),
        ("oom", "write oom on"),
        ("noscript now", "leave it out"),
        ("kill 1 all", "kill MS empty"),
        ("migrate 1 2", "where --cluster serves several"),
    ],
)
def test_what_is_no_fault_is_refused_with_its_cure(orderlab_redis: ServedRedis, line: str, cure: str) -> None:
    with pytest.raises(InputError, match=cure):
        orderlab_redis.fault(line)
    with pytest.raises(redis.ResponseError, match=cure):
        client_of(orderlab_redis).execute_command("ORDERLAB", *line.split())


def test_a_schedule_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults"
    file.write_text("# at noon\n0.5 stall 300\n\n1 kill 100 empty # twice\n")
    assert read_schedule(file) == [(0.5, ["stall", "300"]), (1.0, ["kill", "100", "empty"])]
    file.write_text("soon stall 300\n")
    with pytest.raises(InputError, match=r"faults:1: soon stall 300: write SECONDS FAULT"):
        read_schedule(file)
