"""MULTI, EXEC and WATCH between several connections; single ones are told in ``scenarios/transactions.txt``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

Execute = Callable[[int, bytes], Reply]

SCRIPT = b"return redis.call('INCR', KEYS[1])"
STORIES = {
    "another connection writes": [(0, b"WATCH k"), (1, b"SET k 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")],
    "another writes another key": [(0, b"WATCH k"), (1, b"SET j 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")],
    "another reads": [(0, b"WATCH k"), (1, b"GET k"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")],
    "another writes in a transaction of its own": [
        *((0, b"WATCH k"), (1, b"MULTI"), (1, b"SET k 1"), (0, b"MULTI"), (0, b"GET k")),
        *((1, b"EXEC"), (0, b"EXEC")),
    ],
    "another's transaction is thrown away": [
        *((0, b"WATCH k"), (1, b"MULTI"), (1, b"SET k 1"), (1, b"DISCARD"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "both watch, one wins": [
        *((0, b"WATCH k"), (1, b"WATCH k"), (0, b"MULTI"), (1, b"MULTI"), (0, b"INCR k"), (1, b"INCR k")),
        *((0, b"EXEC"), (1, b"EXEC"), (0, b"GET k")),
    ],
    "a script writes": [(0, b"WATCH k"), (1, b"EVAL script 1 k"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")],
    "a write that changes nothing": [(0, b"WATCH k"), (1, b"SREM k x"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")],
    "a key comes and goes": [
        *((0, b"WATCH k"), (1, b"SET k 1"), (1, b"DEL k"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "a rename away": [
        *((1, b"SET k 1"), (0, b"WATCH k"), (1, b"RENAME k j"), (0, b"MULTI"), (0, b"GET j"), (0, b"EXEC")),
    ],
    "a flush of a key that is there": [
        *((1, b"SET k 1"), (0, b"WATCH k"), (1, b"FLUSHALL"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "a flush of other keys": [
        *((1, b"SET j 1"), (0, b"WATCH k"), (1, b"FLUSHALL"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "the protocol is each connection's own": [
        *((0, b"HELLO 3"), (1, b"HSET h a 1"), (0, b"HGETALL h"), (1, b"HGETALL h"), (0, b"MULTI"), (0, b"HGETALL h")),
        *((1, b"HGETALL h"), (0, b"EXEC")),
    ],
    "the database is each connection's own": [
        *(
            (0, b"SELECT 1"),
            (1, b"SET k 0"),
            (0, b"SET k 1"),
            (1, b"GET k"),
            (0, b"GET k"),
            (1, b"MULTI"),
            (1, b"SELECT 1"),
        ),
        *((1, b"GET k"), (1, b"EXEC"), (1, b"GET k"), (0, b"FLUSHDB"), (1, b"GET k"), (1, b"RESET"), (1, b"GET k")),
    ],
    "another writes the key of another database": [
        *((0, b"WATCH k"), (1, b"SELECT 1"), (1, b"SET k 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "another moves a key into the place of a watched one": [
        *(
            (1, b"SELECT 1"),
            (1, b"SET k 1"),
            (0, b"WATCH k"),
            (1, b"MOVE k 0"),
            (0, b"MULTI"),
            (0, b"GET k"),
            (0, b"EXEC"),
        ),
    ],
    "a watched key of another database than the last": [
        *(
            (0, b"SELECT 1"),
            (0, b"WATCH k"),
            (0, b"SELECT 2"),
            (1, b"SELECT 1"),
            (1, b"SET k 1"),
            (0, b"MULTI"),
            (0, b"EXEC"),
        ),
    ],
    "a swap brings another value": [
        *((1, b"SET k 0"), (0, b"WATCH k"), (1, b"SWAPDB 0 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "a swap of databases that both lack the key": [
        *((1, b"SET j 0"), (0, b"WATCH k"), (1, b"SWAPDB 0 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "a swap of other databases": [
        *((1, b"SET k 0"), (0, b"WATCH k"), (1, b"SWAPDB 2 1"), (0, b"MULTI"), (0, b"GET k"), (0, b"EXEC")),
    ],
    "the name is each connection's own": [(0, b"CLIENT SETNAME a"), (1, b"CLIENT GETNAME"), (0, b"CLIENT GETNAME")],
}


def tell(story: list[tuple[int, bytes]], execute: Execute) -> list[Reply]:
    return [execute(who, line) for who, line in story if not line.startswith(b"HELLO") or not execute(who, line)]


def words(line: bytes) -> list[bytes]:
    return [SCRIPT if word == b"script" else word for word in line.split()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


def on_the_kernel(story: list[tuple[int, bytes]]) -> tuple[list[Reply], Shard]:
    shard, clients = Shard(), [Client(), Client()]
    return tell(story, lambda who, line: shard.execute(words(line), clients[who])), shard


@pytest.mark.server
@pytest.mark.parametrize("title", STORIES)
def test_two_connections_as_on_a_server(title: str, server: ServerProcess) -> None:
    connections = [Connection(server.host, server.port) for _ in range(2)]
    connections[0].demand(b"FLUSHALL")
    theirs = tell(STORIES[title], lambda who, line: connections[who].execute(*words(line)))
    for connection in connections:
        connection.close()
    mine, _ = on_the_kernel(STORIES[title])
    assert repr(mine) == repr(theirs)


def test_a_broken_watch_is_told_by_a_nil_and_a_whole_one_by_replies() -> None:
    assert on_the_kernel(STORIES["another connection writes"])[0][-1] is None
    assert on_the_kernel(STORIES["another writes another key"])[0][-1] == [None]


@pytest.mark.parametrize("title", STORIES)
def test_nobody_listens_once_all_transactions_are_over(title: str) -> None:
    _, shard = on_the_kernel(STORIES[title])
    assert not shard.watches
    assert shard.on_modified is None
