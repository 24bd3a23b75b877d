"""A cluster of kernel nodes as one execution of client code sees it: in place of its one shard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.cluster import FIRST_PORT, Cluster
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.keyspace import FrozenKeyspace
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.versions import DEFAULT, ServerVersion

HOST: Final = "127.0.0.1"
MASTERS_MAX: Final = 16


@cache
def _owners(masters: int) -> tuple[int, ...]:
    return tuple(slot * masters // SLOT_COUNT for slot in range(SLOT_COUNT))


def keys_of(part: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The keys that commands name."""
    gathered: list[bytes] = []
    for argv in part:
        command = find(argv)
        if command is not None and command.has_keys and command.admits(len(argv)):
            gathered += command.find_keys(argv)
    return gathered


class _Waits:
    """Who waits, at all nodes."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = shards

    def __bool__(self) -> bool:
        return any(shard.waits for shard in self.shards)

    def next_timeout_ms(self) -> int | None:
        """When the first wait ends by itself; None: never."""
        return min((at for shard in self.shards if (at := shard.waits.next_timeout_ms()) is not None), default=None)

    def time_out(self) -> None:
        """End the waits that are over."""
        for shard in self.shards:
            shard.waits.time_out()


class Nodes:
    """Masters on ports from 7000 on. What an execution asks of its shard is asked of all, a command of one."""

    def __init__(self, masters: int, scripts: SharedLua, server: ServerVersion = DEFAULT) -> None:
        self.shards = [Shard(scripts, server) for _ in range(masters)]
        self.cluster = Cluster.of(self.shards, _owners(masters))
        self.waits = _Waits(self.shards)
        self._by_client: dict[Client, Shard] = {}

    def admit(self, client: Client, port: int) -> None:
        """A client has connected to ``port``; any other than a node's leads to the first."""
        at = port - FIRST_PORT
        self._by_client[client] = self.shards[at if 0 <= at < len(self.shards) else 0]

    def of(self, client: Client) -> Shard:
        """The node that a client is connected to."""
        return self._by_client.get(client, self.shards[0])

    def execute(self, argv: Sequence[bytes], client: Client) -> Reply:
        """Carry out a command at the node of its client."""
        return self.of(client).execute(argv, client)

    def disconnect(self, client: Client) -> None:
        """A client has gone."""
        self.of(client).disconnect(client)

    def _has(self, at: int, slot: int) -> bool:
        slots = self.cluster.slots(at)
        return slots.owners[slot] == slots.myself

    def migrate(self, part: Sequence[Sequence[bytes]], is_over: bool) -> None:
        """Let the slot of a command's first key go to the next node: its keys alone, or the whole slot."""
        keys = keys_of(part)
        slot = hash_slot(keys[0])
        source = next(at for at in range(len(self.shards)) if self._has(at, slot))
        target = (source + 1) % len(self.shards)
        self.cluster.begin_migration(slot, source, target)
        moved = [key for key in self.shards[source].freeze() if hash_slot(key) == slot and (is_over or key in keys)]
        self.cluster.migrate_keys(source, target, *moved)
        if is_over:
            self.cluster.end_migration(slot, source, target)

    # -- as one shard ------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenKeyspace:
        """The keys of all nodes."""
        return {key: value for shard in self.shards for key, value in shard.freeze().items()}

    def load(self, frozen: FrozenKeyspace) -> None:
        """Have these keys, each where its slot is."""
        for at, shard in enumerate(self.shards):
            shard.load({key: value for key, value in frozen.items() if self._has(at, hash_slot(key))})

    def all_deadlines_ms(self) -> list[int]:
        """When keys end, at all nodes."""
        return [at for shard in self.shards for at in shard.all_deadlines_ms()]

    def lapsed(self) -> list[bytes]:
        """Keys that are past their deadlines and still there, at all nodes."""
        return [name for shard in self.shards for name in shard.lapsed()]

    @property
    def dirty(self) -> int:
        """How many changes there were."""
        return sum(shard.dirty for shard in self.shards)

    @property
    def now_ms(self) -> int:
        """The clock of all nodes."""
        return self.shards[0].now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        for shard in self.shards:
            shard.now_ms = now_ms

    @property
    def effects(self) -> Any:
        """Where commands are noted."""
        return self.shards[0].effects

    @effects.setter
    def effects(self, effects: Any) -> None:
        for shard in self.shards:
            shard.effects = effects
