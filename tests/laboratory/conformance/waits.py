"""Clients that wait, on the kernel and on a real server side by side: who is served, with what, in which order, and
what is left.

A story is a list of commands of several connections. After each one the server has as many blocked clients as the
kernel before the next is sent, so that both see one order. ``python -m tests.laboratory.conformance --waits 20000``
compares generated stories.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace, Shard
from orderlab.sim.redis.values.stream import visible
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.comparison import same
from tests.laboratory.conformance.grammar import KINDS, Argv, Draw, Template, choice, mostly
from tests.laboratory.conformance.judge import DUMP, read_dump
from tests.laboratory.conformance.sequences import SeededDraw

CLIENTS = 5
BLOCKED_WITHIN_S = 10.0
Step = tuple[int, Argv]
"""Which connection, and its command."""

_WAIT_KINDS = KINDS | {
    "k": choice((b"k1", b"k2", b"k3")),
    "any": choice((b"k1", b"k2", b"k3", b"other")),
    "v": choice((b"a", b"b", b"c")),
    "g1": choice((b"g1",)),
    "n": mostly((b"1", b"2", b"3"), (b"0",), 0.1),
    "id": choice((b"0", b"$", b"1-1", b"3-1")),
    "new": choice((b"1-*", b"1-*", b"2-*", b"3-*", b"4-*")),
}
WAITS = """
BLPOP k... 0
BRPOP k k 0
BLMOVE k any {LEFT|RIGHT} {LEFT|RIGHT} 0
BRPOPLPUSH k any 0
BLMPOP 0 #k... {LEFT|RIGHT} [COUNT n]
BZPOPMIN k... 0
BZPOPMAX k k 0
BZMPOP 0 #k... {MIN|MAX} [COUNT n]
XREAD BLOCK 0 STREAMS k id
XREAD [COUNT n] BLOCK 0 STREAMS k k $ $
XREADGROUP GROUP g1 v BLOCK 0 STREAMS k >
XREADGROUP GROUP g1 v [COUNT n] BLOCK 0 [NOACK] STREAMS k >
"""
DEEDS = """
RPUSH k v
LPUSH k v v
ZADD k n v
XADD k new v v
XADD k new v v
RPUSH k v...
LPUSH k v...
RPUSH k v v v
LPOP k
ZADD k n v n v
ZADD k n v
XADD k new v v
XADD k MAXLEN 0 new v v
XGROUP CREATE k g1 {$|0} MKSTREAM
XGROUP DESTROY k g1
XGROUP SETID k g1 0
XDEL k 1-1
DEL k
SET k v
UNLINK any
RENAME any k
RENAME k any
COPY any k REPLACE
SORT k ALPHA STORE k
ZUNIONSTORE k 2 k any
ZRANGESTORE k any 0 -1
SINTERSTORE k any
LMOVE k any LEFT RIGHT
MOVE k 1
SWAPDB 0 1
FLUSHDB
FLUSHALL
PEXPIREAT k 1
SADD k v
LREM k 0 v
GETDEL k
"""
_WAITS = [Template(line, _WAIT_KINDS) for line in WAITS.strip().splitlines()]
_DEEDS = [Template(line, _WAIT_KINDS) for line in DEEDS.strip().splitlines()]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where kernel and server part."""

    story: tuple[Step, ...]
    what: str


def _deed(draw: Draw) -> Argv:
    return _DEEDS[draw.randrange(len(_DEEDS))].generate(draw)[0]


def _script(draw: Draw) -> Argv:
    calls = [b"redis.pcall('%b')" % b"', '".join(_deed(draw)) for _ in range(1 + draw.randrange(4))]
    return b"EVAL", b"\n".join(calls), b"0"


def generate(draw: Draw, length: int) -> tuple[Step, ...]:
    """A story of about ``length`` commands, in which the first connection seldom waits; what a waiting client is to
    send is left out when the story is told."""
    steps: list[Step] = []
    while len(steps) < length:
        client, chance = 1 + draw.randrange(CLIENTS - 1), draw.random()
        if chance < 0.45:
            steps.append((client, _WAITS[draw.randrange(len(_WAITS))].generate(draw)[0]))
        elif chance < 0.75:
            steps.append((0, _deed(draw)))
        elif chance < 0.85:
            steps.append((0, _script(draw)))
        else:
            inside = [
                _deed(draw) if draw.random() < 0.85 else _WAITS[draw.randrange(len(_WAITS))].generate(draw)[0]
                for _ in range(1 + draw.randrange(4))
            ]
            steps += [(client if chance > 0.97 else 0, argv) for argv in ((b"MULTI",), *inside, (b"EXEC",))]
    return tuple(steps)


class SideBySide:
    """One kernel shard and one server, with the same connections to both."""

    def __init__(self, host: str, port: int) -> None:
        self.control = Connection(host, port)
        self.control.demand(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")
        self.connections = [Connection(host, port) for _ in range(CLIENTS)]
        self.ids = [int(one.demand(b"CLIENT", b"ID")) for one in self.connections]
        self.compared = 0
        self.served = 0

    def compare(self, story: Sequence[Step]) -> Parting | None:
        """Tell a story to both; the first difference, or None."""
        shard = Shard()
        seconds, microseconds = self.control.demand(b"TIME")
        shard.now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        clients = [Client(may_wait=True) for _ in self.connections]
        over: list[Waiting] = []
        shard.waits.on_over = over.append
        waiting: dict[int, Waiting] = {}
        try:
            for at, (index, argv) in enumerate(story):
                if index in waiting:
                    continue
                reply = shard.execute(argv, clients[index])
                self.connections[index].send([argv])
                self.compared += 1
                expected: dict[int, Reply] = {}
                if isinstance(reply, Waiting):
                    waiting[index] = reply
                else:
                    expected[index] = reply
                for one in over:
                    served = clients.index(one.client)
                    expected[served] = one.reply
                    waiting.pop(served, None)
                    self.served += 1
                over.clear()
                found = self._await(expected, waiting)
                if found is not None:
                    return Parting(tuple(story[: at + 1]), found)
            return self._compare_keys(shard, story)
        finally:
            for index in range(CLIENTS):
                self.control.demand(b"CLIENT", b"UNBLOCK", b"%d" % self.ids[index])
                if self._has_input(index) or index in waiting:
                    self.connections[index].receive(1)
                self.connections[index].execute(b"DISCARD")
            self.control.demand(b"FLUSHALL")

    def _await(self, expected: dict[int, Reply], waiting: dict[int, Waiting]) -> str | None:
        until = time.monotonic() + BLOCKED_WITHIN_S
        for index, reply in expected.items():
            while not self._has_input(index):
                if time.monotonic() > until:
                    return f"client {index}: kernel {reply!r}, server says nothing"
                time.sleep(0.0002)
            server = self.connections[index].receive(1)[0]
            if not same(reply, server):
                return f"client {index}: kernel {reply!r}, server {server!r}"
        while True:
            told = self.control.demand(b"INFO", b"clients").decode()
            if f"blocked_clients:{len(waiting)}\r\n" in told:
                break
            early = [index for index in waiting if self._has_input(index)]
            if early:
                server = self.connections[early[0]].receive(1)[0]
                waiting.pop(early[0])
                return f"client {early[0]}: waits in the kernel, server {server!r}"
            if time.monotonic() > until:
                return f"kernel has {len(waiting)} clients that wait, server says {told!r}"
        return None

    def _has_input(self, index: int) -> bool:
        return self.connections[index].has_input()

    def _compare_keys(self, shard: Shard, story: Sequence[Step]) -> Parting | None:
        dump = self.control.execute(b"EVAL", DUMP, b"0")
        ours, theirs = _seen(shard.freeze()), _seen(read_dump(dump, 0))
        if ours == theirs:
            return None
        return Parting(tuple(story), f"keys: kernel {ours!r}, server {theirs!r}")


def _seen(keyspace: FrozenKeyspace) -> dict[bytes, object]:
    return {key: visible(value) if kind == "stream" else (kind, value) for key, (kind, value, _) in keyspace.items()}


def run(host: str, port: int, count: int, seed: int, length: int = 25) -> tuple[int, int, list[Parting]]:
    """Compare at least ``count`` commands: (how many were, how many waits were served, shortened differences)."""
    both, draw = SideBySide(host, port), SeededDraw(seed)
    partings: list[Parting] = []
    while both.compared < count and len(partings) < 10:
        draw.serial = 0
        found = both.compare(generate(draw, length))
        if found is not None:
            partings.append(shorten(both, found))
    return both.compared, both.served, partings


def shorten(both: SideBySide, found: Parting) -> Parting:
    """The same with as few commands as still part."""
    at = 0
    while at < len(found.story):
        tried = both.compare(found.story[:at] + found.story[at + 1 :])
        if tried is not None:
            found = tried
        else:
            at += 1
    return found


def shown(found: Parting) -> str:
    """A difference, a line for each command."""
    lines = [f"client {index}: {b' '.join(argv).decode(errors='replace')}" for index, argv in found.story]
    return "\n".join([*lines, f"-> {found.what}"])
