"""Clients that wait: who is served and in which order, timeouts in virtual time, transactions, scripts, rollback; and
stories on a server."""

from __future__ import annotations

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard, execute_all
from tests.laboratory.conformance import waits


class Node:
    """A shard and some clients that may wait."""

    def __init__(self, clients: int = 4) -> None:
        self.shard = Shard()
        self.shard.now_ms = 1_700_000_000_000
        self.clients = [Client(may_wait=True) for _ in range(clients)]
        self.over: list[tuple[int, object]] = []
        self.shard.waits.on_over = lambda one: self.over.append((self.clients.index(one.client), one.reply))

    def send(self, index: int, line: str) -> object:
        return self.shard.execute(tuple(line.encode().split()), self.clients[index])

    def wait(self, index: int, line: str) -> Waiting:
        reply = self.send(index, line)
        assert isinstance(reply, Waiting), reply
        return reply

    def served(self) -> list[tuple[int, object]]:
        over, self.over = self.over, []
        return over


def test_the_client_that_has_waited_longest_is_served_first() -> None:
    node = Node()
    for index in (1, 2, 3):
        node.wait(index, "BLPOP l 0")
    assert node.send(0, "RPUSH l a b") == 2, "the pusher is told the length before anybody is served"
    assert node.served() == [(1, [b"l", b"a"]), (2, [b"l", b"b"])]
    assert [one.client for one in node.shard.waits.all()] == [node.clients[3]]
    assert node.shard.freeze() == {}


def test_a_push_within_a_transaction_or_a_script_serves_when_it_has_ended() -> None:
    node = Node()
    node.wait(1, "BRPOP k l 0")
    for line in ("MULTI", "RPUSH l a", "RPUSH k b", "LLEN l"):
        node.send(0, line)
    assert node.served() == []
    assert node.send(0, "EXEC") == [1, 1, 1]
    assert node.served() == [(1, [b"l", b"a"])], "the key that was ready first"
    assert node.shard.freeze() == {b"k": ("list", (b"b",), None)}
    node.wait(1, "BLPOP m 0")
    script = b"redis.call('RPUSH', 'm', 'a') redis.call('LPOP', 'm') return redis.call('EXISTS', 'm')"
    assert node.shard.execute((b"EVAL", script, b"0"), node.clients[0]) == 0
    assert node.served() == [], "popped again before anybody was served"
    failing = b"redis.call('RPUSH', 'm', 'b') error('no')"
    assert isinstance(node.shard.execute((b"EVAL", failing, b"0"), node.clients[0]), ErrorReply)
    assert node.served() == [(1, [b"m", b"b"])], "a script that fails has pushed all the same"


def test_nothing_waits_within_a_transaction_or_a_script_or_unless_it_may() -> None:
    node = Node()
    for line in ("MULTI", "BLPOP l 0", "BZPOPMIN z 0", "XREAD BLOCK 0 STREAMS s $"):
        node.send(1, line)
    assert node.send(1, "EXEC") == [None, None, None]
    assert node.shard.execute((b"BLPOP", b"l", b"0")) is None, "the shard's own client: as at a timeout"
    assert not node.shard.waits


def test_a_key_of_another_type_serves_nobody() -> None:
    node = Node()
    node.wait(1, "BLPOP k 0")
    node.wait(2, "BZPOPMAX k 0")
    node.send(0, "SADD k a")
    node.send(0, "DEL k")
    node.send(0, "ZADD k 1 a")
    assert node.served() == [(2, [b"k", b"a", b"1"])]
    node.send(0, "SET k v")
    assert isinstance(node.send(0, "RPUSH k a"), ErrorReply)
    assert node.served() == []
    node.send(0, "DEL k")
    node.send(0, "RPUSH other a")
    node.send(0, "RENAME other k")
    assert node.served() == [(1, [b"k", b"a"])]


def test_a_move_goes_on_to_the_next_client() -> None:
    node = Node()
    node.wait(1, "BLPOP b 0")
    node.wait(2, "BLMOVE a b LEFT RIGHT 0")
    node.send(0, "RPUSH a x")
    assert node.served() == [(2, b"x"), (1, [b"b", b"x"])]
    node.send(0, "SET b v")
    node.wait(1, "BLMOVE a b LEFT RIGHT 0")
    node.wait(2, "BLPOP a 0")
    node.send(0, "RPUSH a y")
    assert node.served()[0][0] == 1
    assert node.shard.freeze() == {b"b": ("string", b"v", None)}, (
        "the error of the move leaves the element to the other"
    )


def test_timeouts_are_in_virtual_time() -> None:
    node = Node()
    node.wait(1, "BLPOP l 0.25")
    node.wait(2, "XREAD BLOCK 100 STREAMS s $")
    node.wait(3, "BZMPOP 0 1 z MIN")
    start = node.shard.now_ms
    assert node.shard.waits.next_timeout_ms() == start + 101
    node.shard.now_ms = start + 100
    assert node.shard.waits.time_out() == [], "the last moment of the wait"
    node.shard.now_ms = start + 400
    assert [one.client for one in node.shard.waits.time_out()] == [node.clients[2], node.clients[1]]
    assert node.served() == [(2, None), (1, None)]
    assert node.shard.waits.next_timeout_ms() is None
    node.send(0, "RPUSH l a")
    assert node.served() == []


def test_a_client_that_is_gone_takes_nothing() -> None:
    node = Node()
    first = node.wait(1, "BLPOP l 0")
    node.wait(2, "BLPOP l 0")
    node.shard.disconnect(node.clients[1])
    node.send(0, "RPUSH l a")
    assert node.served() == [(2, [b"l", b"a"])]
    assert first.is_over
    assert node.send(0, "CLIENT UNBLOCK 999999999") == 0
    node.wait(2, "BLPOP l 0")
    assert node.send(0, f"CLIENT UNBLOCK {node.clients[2].id} ERROR") == 1
    assert node.served() == [(2, ErrorReply(b"UNBLOCKED client unblocked via CLIENT UNBLOCK"))]
    node.wait(2, "BLPOP l 0")
    with pytest.raises(AssertionError, match="before it has its reply"):
        node.send(2, "PING")


def test_a_rollback_restores_waits() -> None:
    node = Node()
    first = node.wait(1, "BLPOP l 0")
    mark = node.shard.snapshot()
    second = node.wait(2, "BLPOP l 0")
    node.send(0, "RPUSH l a b")
    assert node.shard.waits.all() == ()
    node.shard.rollback(mark)
    assert node.shard.waits.all() == (first,)
    assert (first.is_over, second.is_over) == (False, True)
    node.served()
    node.send(0, "RPUSH l c")
    assert node.served() == [(1, [b"l", b"c"])]


def test_the_record_of_effects_has_what_was_served() -> None:
    node = Node()
    node.shard.effects = []
    node.wait(1, "BLMPOP 0 2 k l LEFT COUNT 2")
    node.wait(2, "BLMOVE m n LEFT RIGHT 0")
    node.send(0, "RPUSH l a")
    node.send(0, "RPUSH m b")
    told = [(effect.argv, effect.changed) for effect in node.shard.effects if effect.changes]
    assert told == [
        ((b"RPUSH", b"l", b"a"), (b"l",)),
        ((b"LPOP", b"l", b"2"), (b"l",)),
        ((b"RPUSH", b"m", b"b"), (b"m",)),
        ((b"LMOVE", b"m", b"n", b"LEFT", b"RIGHT"), (b"n", b"m")),
    ]


def test_a_pipeline_of_scripts_serves_after_each() -> None:
    node = Node()
    sha = node.shard.execute((b"SCRIPT", b"LOAD", b"return redis.call('RPUSH', KEYS[1], ARGV[1])"))
    assert isinstance(sha, bytes)
    node.wait(1, "BLPOP l 0")
    node.wait(2, "BLPOP l 0")
    assert execute_all(node.shard, [(b"EVALSHA", sha, b"1", b"l", value) for value in (b"a", b"b", b"c")]) == [1, 1, 1]
    assert node.served() == [(1, [b"l", b"a"]), (2, [b"l", b"b"])]


def test_readers_of_a_group_share_what_comes() -> None:
    node = Node()
    node.send(0, "XGROUP CREATE s g $ MKSTREAM")
    node.wait(1, "XREADGROUP GROUP g one COUNT 1 BLOCK 0 STREAMS s >")
    node.wait(2, "XREADGROUP GROUP g two BLOCK 0 STREAMS s >")
    node.wait(3, "XREAD BLOCK 0 STREAMS s $")
    node.send(0, "XADD s 1-1 f v")
    entry = [[b"s", [[b"1-1", [b"f", b"v"]]]]]
    assert node.served() == [(1, entry), (3, entry)]
    node.send(0, "XADD s 2-1 f v")
    assert [index for index, _ in node.served()] == [2]
    assert node.send(0, "XPENDING s g") == [2, b"1-1", b"2-1", [[b"one", b"1"], [b"two", b"1"]]]
    node.wait(1, "XREADGROUP GROUP g one BLOCK 0 STREAMS s >")
    node.send(0, "XGROUP DESTROY s g")
    assert node.served() == [(1, ErrorReply(b"NOGROUP the consumer group this client was blocked on no longer exists"))]


@pytest.mark.server
@pytest.mark.parametrize("seed", [11, 12])
def test_stories_of_waiting_clients_agree_with_a_server(seed: int) -> None:
    with ServerProcess() as server:
        compared, served, partings = waits.run(server.host, server.port, 1500, seed)
    assert not partings, waits.shown(partings[0])
    assert compared >= 1500
    assert served > 30, "the stories are about something"


@pytest.mark.server
def test_a_comparison_that_would_find_a_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from orderlab.sim.redis.blocking import WaitTable

    plain = WaitTable._enter

    def last_first(self: WaitTable, waiting: Waiting) -> None:
        plain(self, waiting)
        for name, waits_here in list(self._by_name.items()):
            self._by_name[name] = dict(sorted(waits_here.items(), key=lambda pair: -pair[0].client.id))

    monkeypatch.setattr(WaitTable, "_enter", last_first)
    with ServerProcess() as server:
        both = waits.SideBySide(server.host, server.port)
        story = ((1, (b"BLPOP", b"k1", b"0")), (2, (b"BLPOP", b"k1", b"0")), (0, (b"RPUSH", b"k1", b"a", b"b")))
        assert both.compare(story) is not None
