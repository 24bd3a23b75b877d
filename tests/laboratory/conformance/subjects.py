"""Who is compared with the server: the kernel, which must agree, and fakeredis, whose deviations are counted."""

from __future__ import annotations

from typing import Protocol

from orderlab.sim.redis.backends.dump import LARGE_ENCODINGS
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace, Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from tests.laboratory.conformance.comparison import differences
from tests.laboratory.conformance.grammar import Argv
from tests.laboratory.conformance.sequences import DEFAULT_ENCODINGS, SMALL_ENCODINGS, CommandSequence


class Subject(Protocol):
    """A Redis that is not the server."""

    name: str
    version: ServerVersion
    """Which server it is meant to be."""

    @property
    def now_ms(self) -> int:
        """Its clock."""
        ...

    def begin(self, sequence: CommandSequence, now_ms: int) -> None:
        """Start afresh: no keys, a new connection, the settings of ``sequence``."""
        ...

    def execute(self, argv: Argv) -> Reply:
        """Run one command."""
        ...

    def advance(self, ms: int) -> None:
        """Let time pass."""
        ...

    def queued(self) -> list[Argv] | None:
        """The commands that EXEC would run now."""
        ...

    def is_large(self, argv: Argv) -> bool:
        """Whether the value at the command's first key has, or may have had, a large encoding: its order is open."""
        ...

    def differences(self, server: FrozenKeyspace, tolerance_ms: int) -> list[str]:
        """Where its keyspace differs from the server's."""
        ...


class KernelSubject:
    """A kernel shard. It is emptied for every sequence, not made anew: a Lua runtime takes milliseconds to start."""

    name = "kernel"

    def __init__(self, version: ServerVersion = DEFAULT) -> None:
        self.version = version
        self.shard = Shard(version=version)
        self._client = Client()
        self._is_broken = False
        """An exception came out of the shard: nobody knows what state it left behind."""

    @property
    def now_ms(self) -> int:
        return self.shard.now_ms

    def begin(self, sequence: CommandSequence, now_ms: int) -> None:
        if self._is_broken:
            self.shard, self._is_broken = Shard(version=self.version), False
        else:
            self.shard.watches.drop(self._client)
        self._client = Client(resp=sequence.resp)
        self.shard.now_ms = now_ms
        self.shard.load({})
        if self.shard.lua_host is not None:
            self.shard.lua_host.scripts.clear()
            if self.version.has((7, 0)):
                self.shard.execute((b"FUNCTION", b"FLUSH"))
        limits = SMALL_ENCODINGS if sequence.has_small_encodings else DEFAULT_ENCODINGS
        for name, limit in limits.items():
            setattr(self.shard.config, name.decode().replace("-", "_"), limit)

    def execute(self, argv: Argv) -> Reply:
        try:
            return self.shard.execute(argv, self._client)
        except UnsupportedCommand:
            raise
        except Exception:
            self._is_broken = True
            raise

    def advance(self, ms: int) -> None:
        self.shard.now_ms += ms
        self.shard.expire_cycle.remove_all()

    def queued(self) -> list[Argv] | None:
        queue = self._client.queue
        return None if queue is None else [tuple(argv) for argv in queue]

    def is_large(self, argv: Argv) -> bool:
        if len(argv) < 2:
            return True
        databases = self.shard.databases()
        # EXEC may have read any of them.
        there = [one.data[argv[1]] for one in databases.values() if argv[1] in one.data]
        is_here = self._client.database in databases and argv[1] in databases[self._client.database].data
        # Gone by the end of EXEC.
        return not is_here or any(getattr(value, "encoding", b"") in LARGE_ENCODINGS for value in there)

    def differences(self, server: FrozenKeyspace, tolerance_ms: int) -> list[str]:
        return differences(self.shard.freeze(), server, tolerance_ms, self.name)


class FakeredisSubject:
    """A fresh fakeredis server for every sequence. Encodings and orders are not held against it."""

    name = "fakeredis"
    version = DEFAULT

    def __init__(self) -> None:
        from orderlab.sim.redis.backends.fakeredis import FakeredisBackend

        self._open = FakeredisBackend
        self._backend = FakeredisBackend()
        self._queue: list[Argv] | None = None

    @property
    def now_ms(self) -> int:
        return self._backend.now_ms

    def begin(self, sequence: CommandSequence, now_ms: int) -> None:
        self._backend.close()
        self._backend = self._open(now_ms)
        self._backend.execute(b"HELLO", b"%d" % sequence.resp)
        self._queue = None

    def execute(self, argv: Argv) -> Reply:
        reply = self._backend.execute(*argv)
        name = argv[0].lower()
        if name == b"multi":
            self._queue = self._queue or []
        elif name in (b"exec", b"discard"):
            self._queue = None
        elif self._queue is not None and reply == b"QUEUED":
            self._queue.append(argv)
        return reply

    def advance(self, ms: int) -> None:
        self._backend.advance(ms)

    def queued(self) -> list[Argv] | None:
        return self._queue

    def is_large(self, argv: Argv) -> bool:
        return True

    def differences(self, server: FrozenKeyspace, tolerance_ms: int) -> list[str]:
        return differences(plain(self._backend.keyspace()), plain(server), tolerance_ms, self.name)


def plain(keyspace: FrozenKeyspace) -> FrozenKeyspace:
    """The keyspace without encodings, and collections without the order that only an encoding gives."""
    without: FrozenKeyspace = {}
    for key, (kind, value, deadline_ms) in keyspace.items():
        if kind in ("hash", "set"):
            value = tuple(sorted(value[1]))
        elif kind == "zset":
            value = tuple((score + 0.0, member) for score, member in value[1])
        without[key] = (kind, value, deadline_ms)
    return without
