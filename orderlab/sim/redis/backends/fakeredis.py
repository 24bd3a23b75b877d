"""fakeredis as a backend: somebody else's reading of Redis, a third voice beside the kernel and the server.

**For trusted scripts only.** fakeredis hands scripts a Lua runtime from which Python, and so the machine, can be
reached.
"""

from __future__ import annotations

import time as wall_clock
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import fakeredis
from fakeredis import FakeServer

from orderlab.model.errors import InputError
from orderlab.sim.redis.backends.backend import EXCEPTION, FIRST_MS, Argv, Backend
from orderlab.sim.redis.backends.dump import check_all, dump_all, rebuild
from orderlab.sim.redis.replies import ErrorReply, Reply, Status
from orderlab.sim.redis.shard import FrozenKeyspace

try:
    from fakeredis import _helpers
    from fakeredis._helpers import SimpleError, SimpleString
    from fakeredis._socket import FakeSocket, _base
    from fakeredis.commands_mixins import server_mixin

    TIMED_MODULES = (_helpers, _base, server_mixin)
except ImportError as error:
    raise InputError(f"fakeredis {fakeredis.__version__}: {error}; pip install 'fakeredis>=2.40,<3'") from None


class VirtualTime:
    """Stands in for the ``time`` module inside fakeredis: the clock of the backend that is executing, if one is."""

    now_ms: ClassVar[int | None] = None

    @classmethod
    def time(cls) -> float:
        """Seconds."""
        return wall_clock.time() if cls.now_ms is None else cls.now_ms / 1000


class LosslessSocket(FakeSocket):
    """A fakeredis connection that keeps status, error and bulk replies apart."""

    def _decode_result(self, result: Any) -> Reply:
        if isinstance(result, list):
            return [self._decode_result(item) for item in result]
        if isinstance(result, SimpleString):
            return Status(result.value)
        if isinstance(result, SimpleError):
            return ErrorReply(result.value.encode())
        return result


class FakeredisBackend(Backend):
    """One fakeredis server that claims to be Redis 7, on virtual time.

    fakeredis reads the wall clock in three of its modules; there ``time`` is replaced, once, by ``VirtualTime``,
    which is the wall clock again whenever no backend of ours executes.
    """

    sees_virtual_time = True
    contains_scripts = False
    has_connections = False

    def __init__(self, now_ms: int = FIRST_MS) -> None:
        for module in TIMED_MODULES:
            setattr(module, "time", VirtualTime)  # noqa: B010 - the module declares it as a module
        self._server = FakeServer(version=(7, 0))
        self._socket = LosslessSocket(self._server, 0, client_class=SimpleNamespace)
        self._observer = LosslessSocket(self._server, 0, client_class=SimpleNamespace)
        """A second connection, which no transaction or protocol of the first can disturb."""
        self._now_ms = now_ms

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def execute(self, *argv: bytes) -> Reply:
        return self.pipeline([argv])[0]

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        return self._run(self._socket, commands)

    def _run(self, connection: LosslessSocket, commands: Sequence[Argv]) -> list[Reply]:
        responses = connection.responses
        assert responses is not None, "the backend is closed"
        replies: list[Reply] = []
        VirtualTime.now_ms = self._now_ms
        try:
            for argv in commands:
                try:
                    connection._process_command(list(argv))
                except Exception as error:  # a bug in fakeredis is its answer: a deviation, not our crash
                    replies.append(ErrorReply(EXCEPTION + type(error).__name__.encode()))
                else:
                    replies.append(responses.get_nowait())
        finally:
            VirtualTime.now_ms = None
        return replies

    def keyspace(self) -> FrozenKeyspace:
        return dump_all(partial(self._run, self._observer), "fakeredis", self._databases(), shows_encodings=False)

    def _databases(self) -> list[int]:
        """Those that were ever selected: fakeredis makes them then."""
        return sorted({0, *self._server.dbs})

    def load(self, keyspace: FrozenKeyspace) -> None:
        self.flush()
        self.execute(b"SELECT", b"0")  # a script's SELECT outlives the script here, as it does on no server
        check_all(self.pipeline(rebuild(keyspace)), "fakeredis")

    def flush(self) -> None:
        self.execute(b"FLUSHALL")

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def describe(self) -> str:
        return f"fakeredis {fakeredis.__version__}"

    def close(self) -> None:
        self._socket.close()
        self._observer.close()
