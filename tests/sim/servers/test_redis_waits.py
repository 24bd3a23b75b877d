"""Connections that wait at a node in time: who is answered when, timeouts, followers, crashes."""

from __future__ import annotations

from typing import Any

from orderlab.sim.costs import load_costs
from orderlab.sim.engine.clock import Clock
from orderlab.sim.redis.client import Client
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Request


def request(line: str) -> Request:
    return Request(tuple(line.encode().split()), line.split()[0].lower())


class Scene:
    """A node, and what each connection was told when."""

    def __init__(self, **node: Any) -> None:
        self.env = Clock()
        self.node = RedisNode(
            self.env, "redis", load_costs("cluster").redis, [], epoch_us=1_700_000_000_000_000, **node
        )
        self.told: list[tuple[str, object, int]] = []
        self.clients: dict[str, Client] = {}

    def ask(self, name: str, line: str, at_us: int) -> None:
        client = self.clients.setdefault(name, Client(name=name.encode(), may_wait=True))

        def process() -> Any:
            yield self.env.timeout(at_us)
            reply = yield self.node.receive_from(client, request(line))
            self.told.append((name, reply, int(self.env.now)))

        self.env.process(process())

    def push(self, line: str, at_us: int) -> None:
        def process() -> Any:
            yield self.env.timeout(at_us)
            self.node.receive(
                [request(line)], lambda replies: self.told.append(("pusher", replies[0], int(self.env.now)))
            )

        self.env.process(process())


def test_a_worker_that_waits_is_answered_when_the_push_has_been_served() -> None:
    scene = Scene()
    scene.ask("one", "BLPOP jobs 0", 0)
    scene.ask("two", "BLPOP jobs 0", 10)
    scene.push("RPUSH jobs a b", 5_000)
    scene.env.run(20_000)
    assert [(name, reply) for name, reply, _ in scene.told] == [
        ("pusher", 2),
        ("one", [b"jobs", b"a"]),
        ("two", [b"jobs", b"b"]),
    ]
    assert all(5_000 < at < 6_000 for *_, at in scene.told)


def test_a_timeout_is_answered_in_virtual_time_and_only_once() -> None:
    scene = Scene()
    scene.ask("one", "BLPOP jobs 0.5", 0)
    scene.push("RPUSH jobs a", 700_000)
    scene.env.run(1_000_000)
    assert [(name, reply) for name, reply, _ in scene.told] == [("one", None), ("pusher", 1)]
    assert 500_000 < scene.told[0][2] <= 502_000
    assert scene.node.shard.freeze() == {b"jobs": ("list", (b"a",), None)}


def test_followers_are_told_what_was_served() -> None:
    scene = Scene(replica_lag_us=100)
    scene.ask("one", "BLMOVE jobs active LEFT RIGHT 0", 0)
    scene.push("RPUSH jobs a", 1_000)
    scene.ask("one", "BLPOP jobs 1", 2_000)
    scene.push("RPUSH jobs b c", 3_000)
    scene.env.run(50_000)
    assert scene.node.replica is not None
    scene.node.replica.catch_up(50_000)
    assert scene.node.replica.shard.freeze() == scene.node.shard.freeze()
    assert scene.node.shard.freeze() == {b"active": ("list", (b"a",), None), b"jobs": ("list", (b"c",), None)}


def test_a_connection_that_is_closed_and_a_node_that_crashes_answer_nobody() -> None:
    scene = Scene()
    scene.ask("one", "BLPOP jobs 0", 0)
    scene.ask("two", "BLPOP jobs 1", 0)
    scene.env.run(1_000)
    scene.node.disconnect(scene.clients["one"])
    scene.node.crash()
    scene.node.restart()
    scene.push("RPUSH jobs a", 10_000)
    scene.env.run(3_000_000)
    assert [name for name, *_ in scene.told] == ["pusher"]
    assert len(scene.node.shard.data) == 1
