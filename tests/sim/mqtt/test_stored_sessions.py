"""Prepared calls are byte for byte those of the binding."""

import random

import pytest

from orderlab.sim.mqtt.sessions import StoredSessions
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.servers.redis import run_all, shard_with
from orderlab.sim.stores.binding import Message, load_binding

STORES = {"published": "lua/specimens/published", "session": "lua/session"}


def calls_on(store: str) -> StoredSessions:
    return StoredSessions(load_binding(STORES[store]), nodes=3, limit=100, qos=1, payload_bytes=62, lengths=(8, 10))


@pytest.mark.parametrize("store", STORES)
def test_prepared_calls_are_those_of_the_binding(store):
    calls, draw = calls_on(store), random.Random(1)
    for count in (1, 2, 5, 1):
        client = b"s%07d" % draw.randrange(10**7)
        numbers = [draw.randrange(10**9) for _ in range(count)]
        topics = [b"p/%08d" % draw.randrange(10**8) for _ in range(count)]
        times = [1_700_000_000_000 + draw.randrange(10**9) for _ in range(count)]
        messages = [
            Message(calls.payload(number), topic, 1, None, time_ms=time)
            for number, topic, time in zip(numbers, topics, times, strict=True)
        ]
        of_session = {"epoch": 1, "producer": b"7", "batch": 12} if store == "session" else {}
        by_binding = calls.binding.call("save", client=client, limit=100, messages=messages, **of_session).argv
        prepared = calls.save(client, list(zip(numbers, topics, times, strict=True)), producer=7, batch=12).argv
        assert tuple(prepared) == by_binding


@pytest.mark.parametrize("store", STORES)
def test_a_saved_message_is_fetched_acknowledged_and_gone(store):
    calls = calls_on(store)
    shard = shard_with([script.source for script in calls.binding.scripts])
    client, now_us = b"s0000001", 1_700_000_000_000_000
    if calls.opens_sessions:
        run_all(shard, now_us, [calls.open(client, True, 1)])
    messages = [(41, b"p/00000001", 1_700_000_000_000), (42, b"p/00000001", 1_700_000_000_000)]
    (reply,) = run_all(shard, now_us, [calls.save(client, messages, 3, 1)])
    assigned = calls.assigned(reply, 2)
    assert [packet_id for packet_id, _ in assigned] == [1, 2]
    (reply,) = run_all(shard, now_us, [calls.fetch(client)])
    assert [(number, packet_id) for number, packet_id, _, _ in calls.fetched(reply)] == [(41, 1), (42, 2)]
    assert run_all(shard, now_us, [calls.acknowledge(client, *assigned[0])]) == [1]
    (reply,) = run_all(shard, now_us, [calls.fetch(client)])
    assert [number for number, _, _, _ in calls.fetched(reply)] == [42]
    (reply,) = run_all(shard, now_us, [calls.release(client, *assigned[1])])
    assert reply == 1
    (reply,) = run_all(shard, now_us, [calls.fetch(client)])
    assert [(packet_id, released) for _, packet_id, _, released in calls.fetched(reply)] == [(2, True)]


def test_a_refused_save_assigns_nothing():
    calls = calls_on("session")
    shard = shard_with([script.source for script in calls.binding.scripts])
    (reply,) = run_all(shard, 1_700_000_000_000_000, [calls.save(b"s0000001", [(1, b"p/00000001", 0)], 3, 1)])
    assert calls.assigned(reply, 1) is None


@pytest.mark.parametrize("store", STORES)
def test_calls_as_columns_are_those_that_are_made_alone(store):
    calls, draw, time_ms = calls_on(store), random.Random(4), 1_700_000_123_456
    clients = [b"s%07d" % draw.randrange(10**7) for _ in range(20)]
    topics = [b"p/%08d" % draw.randrange(10**8) for _ in range(20)]
    numbers, producers, batches, epochs, tokens = ([draw.randrange(10**6) for _ in range(20)] for _ in range(5))
    alone = [
        calls.save(client, [(number, topic, time_ms)], *numbered)
        for client, number, topic, *numbered in zip(clients, numbers, topics, producers, batches, epochs, strict=True)
    ]
    together = calls.save_each(clients, numbers, topics, time_ms, producers, batches, epochs)
    assert list(together) == alone
    places = draw.sample(range(20), 7)
    assert together.argvs(places) == [alone[place].argv for place in places]
    removals = list(map(calls.acknowledge, clients, numbers, tokens, epochs))
    assert list(calls.acknowledge_each(clients, numbers, tokens, epochs)) == removals


@pytest.mark.parametrize("store", STORES)
def test_replies_that_are_read_together_say_what_each_says(store):
    calls = calls_on(store)
    saved = [0, 65_535, 7] if store == "published" else [[1, 4], [65_535, 9], [1, 5]]
    assert list(zip(*calls.assigned_each(saved), strict=True)) == [calls.assigned(reply, 1)[0] for reply in saved]
    for refused in (b"STALE", b"CLOSED", None, ErrorReply(b"OOM"), [], [1, 2, 3]):
        assert calls.assigned(refused, 1) is None
        assert calls.assigned_each([*saved, refused]) is None
