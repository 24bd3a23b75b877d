"""redis-py's cluster client within a scenario: three masters, slots that move, and what redis-py makes of that."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.clients.nodes import Nodes
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.lua.host import SharedLua

MIGRATIONS = ("slot-migrates", "moved")


def filled(redis: Any) -> None:
    redis.set("n", 5)


def counts(redis: Any) -> None:
    redis.incr("n")


def reads_then_writes(redis: Any) -> None:
    redis.set("n", int(redis.get("n") or 0) + 1)


async def counts_async(redis: Any) -> None:
    await redis.incr("n")


async def reads_then_writes_async(redis: Any) -> None:
    await redis.set("n", int(await redis.get("n") or 0) + 1)


def own_cluster(_: Any) -> Any:
    client = redis_py.RedisCluster.from_url("redis://127.0.0.1:7002")
    client.mset_nonatomic({"a": 1, "b": 2})
    return client.mget_nonatomic("a", "b")


def crosses(redis: Any) -> str:
    try:
        redis.eval("return redis.call('mget', KEYS[1], KEYS[2])", 2, "a", "b")
    except Exception as error:
        return str(error)
    return ""


def transaction(redis: Any) -> Any:
    with redis.pipeline(transaction=True) as pipeline:
        pipeline.incr("{x}a")
        pipeline.incr("{x}b")
        return pipeline.execute()


def test_a_right_client_holds_though_slots_move() -> None:
    verdict = race(scenario(clients=2, cluster=3, setup=filled)(counts), trouble=1, faults=MIGRATIONS)
    assert verdict.outcome is Outcome.HOLDS, verdict
    assert "1 trouble" in verdict.how_far


@pytest.mark.parametrize("client", [own_cluster, transaction, counts_async])
def test_clusters_that_it_opens_lead_there_too(client: Any) -> None:
    assert race(scenario(clients=2, cluster=3)(client)).outcome is Outcome.HOLDS


@pytest.mark.parametrize("client", [reads_then_writes, reads_then_writes_async])
def test_its_neighbour_falls(client: Any) -> None:
    assert race(scenario(clients=2, cluster=3)(client)).law == "serializable"


def test_keys_of_several_slots_are_refused_as_redis_py_does() -> None:
    def refused(redis: Any) -> None:
        assert "key" in crosses(redis)
        assert "slot" in crosses(redis)

    assert race(scenario(clients=1, cluster=3)(refused)).outcome is Outcome.HOLDS


def test_a_script_of_two_keys_ends_in_an_exception_while_its_slot_is_open_and_that_is_allowed() -> None:
    def both(redis: Any) -> None:
        redis.eval("redis.call('incr', KEYS[1]) return redis.call('incr', KEYS[2])", 2, "{t}a", "{t}b")

    assert race(scenario(clients=1, cluster=3)(both), trouble=1, faults=MIGRATIONS).outcome is Outcome.HOLDS


def test_a_write_that_a_failover_loses_is_found() -> None:
    assert race(scenario(clients=2, cluster=3)(counts), trouble=1, faults=("failover",)).law == "serializable"


def test_slots_go_whole_or_by_keys() -> None:
    for is_over in (False, True):
        nodes, client = Nodes(3, SharedLua()), Client()
        nodes.admit(client, 7000)
        assert nodes.execute((b"SET", b"n", b"1"), client) == b"OK"
        nodes.migrate(((b"GET", b"n"),), is_over)
        reply: Any = nodes.execute((b"GET", b"n"), client)
        assert reply.message.split()[0] == (b"MOVED" if is_over else b"ASK")
        assert set(nodes.freeze()) == {b"n"}
        nodes.load(nodes.freeze())
        assert [bool(shard.data) for shard in nodes.shards] == [not is_over, is_over, False]


def test_a_cluster_of_too_many_is_told() -> None:
    with pytest.raises(InputError, match="cluster: 17 masters"):
        scenario(clients=2, cluster=17)
