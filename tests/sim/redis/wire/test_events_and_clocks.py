"""Over the socket: keyspace notifications, channels of shards, and a clock that moves by command alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings


@pytest.fixture
def background() -> Iterator[InBackground]:
    with InBackground() as background:
        yield background


def messages(subscriber: redis.client.PubSub, count: int) -> list[tuple[bytes, bytes]]:
    """The next ones: channel and data."""
    taken = []
    while len(taken) < count:
        message = subscriber.get_message(timeout=5)
        assert message is not None, taken
        if message["type"] not in ("psubscribe", "subscribe", "ssubscribe"):
            taken.append((message["channel"], message["data"]))
    return taken


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("virtual", [False, True], ids=["real clock", "virtual clock"])
def test_events_reach_a_subscriber_while_a_monitor_comes_and_goes(
    background: InBackground, protocol: int, virtual: bool
) -> None:
    port = background.serve(lambda: ServedNode(ServeSettings(virtual_clock=virtual))).port
    client, subscriber = redis.Redis(port=port, protocol=protocol), redis.Redis(port=port, protocol=protocol).pubsub()
    client.config_set("notify-keyspace-events", "KEA")
    subscriber.psubscribe("__keyevent@*__:*")
    with redis.Redis(port=port).monitor() as monitor:
        client.set("seen", 1)
        assert b"SET" in monitor.next_command()["command"].encode()
    client.eval("redis.call('HSET', KEYS[1], 'f', 'v')", 1, "h")
    client.set("short", 1, px=30)
    if virtual:
        client.execute_command("DEBUG", "SLEEP", "0.1")
    told = messages(subscriber, 5)
    assert told == [
        (b"__keyevent@0__:set", b"seen"),
        (b"__keyevent@0__:hset", b"h"),
        (b"__keyevent@0__:set", b"short"),
        (b"__keyevent@0__:expire", b"short"),
        (b"__keyevent@0__:expired", b"short"),
    ]
    subscriber.close()
    client.close()


def test_a_channel_of_a_shard_is_not_one_of_the_node(background: InBackground) -> None:
    port = background.serve(ServedNode).port
    client, subscriber = redis.Redis(port=port), redis.Redis(port=port).pubsub()
    subscriber.ssubscribe("news")
    subscriber.subscribe("news")
    assert [subscriber.get_message(timeout=5)["type"] for _ in range(2)] == ["ssubscribe", "subscribe"]  # type: ignore[index]
    assert client.execute_command("SPUBLISH", "news", "of the shard") == 1
    assert client.publish("news", "of the node") == 1
    told = [subscriber.get_message(timeout=5) for _ in range(2)]
    assert [(one["type"], one["data"]) for one in told if one] == [
        ("smessage", b"of the shard"),
        ("message", b"of the node"),
    ]
    assert client.execute_command("PUBSUB", "SHARDNUMSUB", "news") == [b"news", 1]
    subscriber.close()
    client.close()


def test_a_virtual_clock_moves_by_command_alone_and_ends_waits_on_its_way(background: InBackground) -> None:
    port = background.serve(lambda: ServedNode(ServeSettings(virtual_clock=True))).port
    client, waiting = redis.Redis(port=port), redis.Redis(port=port).connection_pool.get_connection()
    first = client.time()
    client.set("k", 1, px=50)
    time.sleep(0.12)
    assert client.time() == first
    assert client.get("k") == b"1"
    waiting.send_command("BLPOP", "nothing", "3600")
    begun_s = time.monotonic()
    until(lambda: client.info("clients")["blocked_clients"] == 1)
    client.execute_command("DEBUG", "SLEEP", "3601")
    assert waiting.read_response() is None
    assert time.monotonic() - begun_s < 60
    assert client.get("k") is None
    assert client.time()[0] == first[0] + 3601
    client.close()


def test_the_end_of_a_connection_is_seen_while_a_script_keeps_the_node_busy(background: InBackground) -> None:
    node = background.serve(ServedNode)
    client, gone, watcher = (redis.Redis(port=node.port, single_connection_client=True) for _ in range(3))
    client.config_set("busy-reply-threshold", 10)
    gone.ping()
    watcher.ping()
    assert client.connection is not None
    client.connection.send_command("EVAL", "while true do end", "0")
    until(lambda: "BUSY" in said(watcher))
    assert len(node.connections) == 3
    gone.close()
    until(lambda: len(node.connections) == 2)
    assert "BUSY" in said(watcher)
    watcher.script_kill()
    until(lambda: said(watcher) == "True")
    client.close()
    watcher.close()


def said(client: redis.Redis) -> str:
    """What a client hears to PING."""
    try:
        return str(client.ping())
    except redis.exceptions.ResponseError as error:
        return str(error)


def until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)
