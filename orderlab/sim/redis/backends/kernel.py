"""The embedded kernel as a backend: the default, and the only one with snapshots and abort points behind it."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.errors import InputError
from orderlab.sim.redis.backends.protocol import Argv, Backend
from orderlab.sim.redis.commands.connection import VERSION
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace, Shard

FIRST_MS = 1_700_000_000_000
"""Where virtual time begins unless the caller says otherwise: a round Unix time, the same in every run."""


class KernelBackend(Backend):
    """One kernel shard. ``shard`` is open to callers that need what only the kernel has."""

    sees_virtual_time = True
    contains_scripts = True

    def __init__(self, now_ms: int = FIRST_MS) -> None:
        self.shard = Shard()
        self.shard.now_ms = now_ms

    @property
    def now_ms(self) -> int:
        return self.shard.now_ms

    def execute(self, *argv: bytes) -> Reply:
        return self.shard.execute(argv)

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        execute = self.shard.execute
        return [execute(argv) for argv in commands]

    def keyspace(self) -> FrozenKeyspace:
        database = self.shard.client.database
        if database:  # what comes next would depend on more than the keys
            raise InputError(f"a store's command leaves its connection in database {database}; end the operation with SELECT 0")
        return self.shard.freeze()

    def load(self, keyspace: FrozenKeyspace) -> None:
        self.shard.load(keyspace)

    def flush(self) -> None:
        self.shard.load({})

    def advance(self, ms: int) -> None:
        self.shard.now_ms += ms

    def describe(self) -> str:
        return f"kernel {VERSION.decode()}"  # of the Redis that it follows

    def close(self) -> None:
        pass
