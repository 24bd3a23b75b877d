"""PUBLISH and subscriptions: what subscribers are sent, and what a server says in the same story."""

from __future__ import annotations

import time

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.wire import Connection

STORY = (
    (1, "SUBSCRIBE a b", 2),
    (2, "PSUBSCRIBE a* z?", 2),
    (1, "SSUBSCRIBE a", 1),
    (0, "PUBLISH a hello", 0),
    (0, "SPUBLISH a shard", 0),
    (0, "PUBLISH abc x", 0),
    (0, "PUBLISH nobody x", 0),
    (0, "PUBSUB NUMSUB a b c", 0),
    (0, "PUBSUB SHARDNUMSUB a", 0),
    (0, "PUBSUB NUMPAT", 0),
    (0, "PUBSUB CHANNELS b*", 0),
    (0, "PUBSUB SHARDCHANNELS", 0),
    (0, "PUBSUB NOSUCH", 0),
    (1, "GET k", 0),
    (1, "PING", 0),
    (1, "PING x", 0),
    (1, "PING x y", 0),
    (1, "UNSUBSCRIBE b nosuch", 2),
    (2, "PUNSUBSCRIBE z?", 1),
    (0, "PUBLISH a again", 0),
    (1, "SUNSUBSCRIBE", 1),
    (2, "PUNSUBSCRIBE a*", 1),
    (2, "PUNSUBSCRIBE", 1),
    (2, "UNSUBSCRIBE", 1),
    (2, "GET k", 0),
    (0, "PUBLISH a last", 0),
    (1, "UNSUBSCRIBE", 1),
    (1, "GET k", 0),
)
"""Who says what, and how many confirmations come in place of a reply."""


@pytest.mark.server
def test_subscribers_are_sent_what_a_server_sends_them() -> None:
    shard, clients = Shard(), [Client() for _ in range(3)]
    with ServerProcess() as server:
        connections = [Connection(server.host, server.port) for _ in clients]
        for index, line, confirmations in STORY:
            argv = tuple(line.encode().split())
            before = [len(client.pushed) for client in clients]
            reply = shard.execute(argv, clients[index])
            connections[index].send([argv])
            ours = clients[index].pushed[before[index] :] if confirmations else [reply]
            assert len(ours) == max(confirmations, 1), line
            assert ours == connections[index].receive(len(ours)), line
            for other, client in enumerate(clients):
                if other != index:
                    pushed = client.pushed[before[other] :]
                    assert pushed == connections[other].receive(len(pushed)), (line, other)
        assert not any(connection.has_input() for connection in connections)


def test_a_script_publishes_and_a_client_that_is_gone_hears_nothing() -> None:
    shard, listener = Shard(), Client()
    shard.execute((b"SUBSCRIBE", b"news"), listener)
    source = b"return {redis.call('PUBLISH', 'news', 'x'), redis.call('SPUBLISH', 'news', 'x')}"
    assert shard.execute((b"EVAL", source, b"0")) == [1, 0]
    assert listener.pushed == [[b"subscribe", b"news", 1], [b"message", b"news", b"x"]]
    refused = shard.execute((b"EVAL", b"return redis.call('SUBSCRIBE', 'x')", b"0"))
    assert isinstance(refused, ErrorReply)
    assert b"not allowed from script" in refused.message
    shard.disconnect(listener)
    assert shard.execute((b"PUBLISH", b"news", b"y")) == 0
    for argv in ((b"MULTI",), (b"SUBSCRIBE", b"a")):
        shard.execute(argv, listener)
    with pytest.raises(UnsupportedCommand, match="SUBSCRIBE within MULTI"):
        shard.execute((b"EXEC",), listener)


def test_reset_and_resp3() -> None:
    shard, listener = Shard(), Client(resp=3)
    shard.execute((b"PSUBSCRIBE", b"*"), listener)
    assert shard.execute((b"GET", b"k"), listener) is None, "RESP3 keeps replies and messages apart"
    shard.execute((b"RESET",), listener)
    assert shard.execute((b"PUBLISH", b"a", b"x")) == 0


def test_many_channels_cost_neither_publishers_nor_subscribers() -> None:
    shard, subscriber = Shard(), Client()
    begun_s = time.process_time()
    for number in range(20_000):
        shard.execute([b"SUBSCRIBE", b"c%d" % number], subscriber)
    for number in range(2_000):
        assert shard.execute([b"PUBLISH", b"c%d" % number, b"x"]) == 1
    assert time.process_time() - begun_s < 5  # a fraction of a second; with a look at every channel, minutes
    assert len(subscriber.pushed) == 22_000
