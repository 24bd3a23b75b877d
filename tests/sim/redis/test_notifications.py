"""Keyspace notifications: event by event as a server publishes them, also of what lapses and is evicted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis import notifications
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance import notified


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.mark.server
def test_generated_commands_tell_what_a_server_tells(server: ServerProcess) -> None:
    compared, events, partings = notified.run(server.host, server.port, 12_000, 2026)
    assert not partings, "\n\n".join(each.shown() for each in partings[:3])
    assert events > compared >= 12_000


@pytest.mark.server
def test_an_event_that_is_missing_is_seen(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(notifications.EVENTS, b"append")
    assert notified.run(server.host, server.port, 2_000, 2026)[2]


@pytest.mark.server
@pytest.mark.parametrize("value", ["KEA", "A", "g$lshzxetdnKEm", "mEK", "xn", "KgE", "", "KQ", "KEA\0"])
def test_the_setting_is_read_and_shown_as_by_a_server(server: ServerProcess, value: str) -> None:
    connection, shard = Connection(server.host, server.port), Shard()
    for call in [(b"CONFIG", b"SET", b"notify-keyspace-events", value.encode()), (b"CONFIG", b"GET", b"notify-*")]:
        assert shard.execute(call) == connection.execute(*call)
    connection.close()


class Watched:
    """A shard whose events are read."""

    def __init__(self, flags: bytes) -> None:
        self.shard, self._watcher = Shard(), Client()
        self.do(b"CONFIG SET notify-keyspace-events " + flags)
        self.shard.execute((b"PSUBSCRIBE", b"__key*"), self._watcher)
        self._watcher.pushed.clear()

    def do(self, line: bytes) -> Reply:
        """Run one command."""
        reply = self.shard.execute(line.split())
        assert not isinstance(reply, ErrorReply), reply
        return reply

    def events(self) -> list[tuple[bytes, bytes]]:
        """Those since the last call."""
        pushed, self._watcher.pushed = self._watcher.pushed, []
        return [(channel, message) for _, _, channel, message in pushed]


def test_what_lapses_is_told_when_it_is_found_and_before_what_finds_it() -> None:
    watched = Watched(b"Ex$m")
    watched.do(b"SET k v PX 10")
    watched.do(b"SET other v PX 10")
    watched.events()
    watched.shard.now_ms += 11
    watched.do(b"GET k")
    assert watched.events() == [(b"__keyevent@0__:expired", b"k"), (b"__keyevent@0__:keymiss", b"k")]
    watched.shard.expire_cycle.run()
    assert watched.events() == [(b"__keyevent@0__:expired", b"other")]


def test_what_is_evicted_is_told_of_its_database() -> None:
    watched = Watched(b"Ke")
    watched.do(b"SELECT 3")
    watched.do(b"SET k " + b"v" * 5000)
    watched.do(b"CONFIG SET maxmemory-policy allkeys-lru maxmemory 1")
    watched.shard.execute((b"GET", b"k"))
    assert watched.events() == [(b"__keyspace@3__:k", b"evicted")]


def test_scripts_and_transactions_tell_what_each_of_their_calls_does() -> None:
    watched = Watched(b"Elg")
    watched.shard.execute((b"EVAL", b"redis.call('RPUSH', 'l', 'a'); redis.call('LPOP', 'l')", b"0"))
    told = [(b"__keyevent@0__:rpush", b"l"), (b"__keyevent@0__:lpop", b"l"), (b"__keyevent@0__:del", b"l")]
    assert watched.events() == told
    for line in (b"MULTI", b"RPUSH l a", b"LPOP l", b"EXEC"):
        watched.do(line)
    assert watched.events() == told


def test_a_client_that_waited_tells_what_it_took() -> None:
    watched, waiting = Watched(b"El"), Client(may_wait=True)
    watched.shard.execute((b"BLPOP", b"l", b"0"), waiting)
    watched.do(b"RPUSH l a")
    assert watched.events() == [(b"__keyevent@0__:rpush", b"l"), (b"__keyevent@0__:lpop", b"l")]


def test_nothing_is_noted_while_nobody_asks_and_no_effect_is_kept() -> None:
    watched = Watched(b"KEA")
    watched.do(b"SET k v")
    assert watched.shard.effects == []
    watched.do(b"CONFIG SET notify-keyspace-events Ag")  # neither K nor E: nothing is published
    assert watched.shard.effects is None
    assert watched.shard.on_modified is None
    watched.events()
    watched.do(b"SET k v")
    assert watched.events() == []
