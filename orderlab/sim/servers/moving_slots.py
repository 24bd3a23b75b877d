"""The slots of a Redis Cluster that move from node to node in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from orderlab.sim.engine.clock import Clock, call_at
from orderlab.sim.redis.cluster import Cluster
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Request

KEYS_AT_ONCE = 10
"""Keys per MIGRATE (``--cluster-pipeline``)."""


MIGRATE_US = 200


MIGRATE_KEY_US = 20
"""What a MIGRATE keeps its source busy, and each of its keys: assumed."""


LOOKS_AGAIN_US = 10_000
"""Between two looks at whether a node is back."""


class MovingSlots:
    """The slots of a cluster in time. ``owner_of``: slot → number of its node at the start; ``slot_of``: of a client.

    They move one after the other, as ``redis-cli`` moves them, while commands arrive. A cluster at rest needs no slot
    maps: its clients know where every slot lives. The first migration gives every node its map, and from then on nodes
    redirect.
    """

    def __init__(
        self,
        env: Clock,
        nodes: Sequence[RedisNode],
        owner_of: Callable[[int], int],
        slot_of: Callable[[bytes], int],
    ) -> None:
        self.env = env
        self.nodes = nodes
        self.slot_of = slot_of
        self._open = 0
        """Slots that are still to move."""
        self._owner_of = owner_of
        self._cluster: Cluster | None = None

    def owner(self, slot: int) -> int:
        """The number of the node that serves ``slot``."""
        return self._owner_of(slot) if self._cluster is None else self._now().owner(slot)

    def _now(self) -> Cluster:
        """The cluster of the processes that are there now: a failover or a restart puts another shard in a node."""
        shards = [node.shard for node in self.nodes]
        if self._cluster is None:
            self._cluster = Cluster.of(shards, [self._owner_of(slot) for slot in range(SLOT_COUNT)])
        self._cluster.replace(shards)
        return self._cluster

    def move(self, slots: Sequence[int], source: int, target: int, duration_us: int) -> None:
        """Move ``slots`` within ``duration_us``. If either node is down when a slot's turn comes, the slot stays; if
        one goes down in the middle of a slot, the move goes on when it is back, as ``redis-cli --cluster fix`` ends
        it."""
        self._open = len(slots)
        self._now()
        each_us = duration_us / max(len(slots), 1)
        for place, slot in enumerate(slots):
            self._move_slot(slot, source, target, self.env.now + place * each_us, each_us)

    @property
    def is_migrating(self) -> bool:
        """Whether a slot is still to move."""
        return self._open > 0

    def _move_slot(self, slot: int, source: int, target: int, at_us: float, each_us: float) -> None:
        """Open the slot, move its first keys, then the others, then close it: four steps in equal distances."""

        def begin() -> None:
            self._now().begin_migration(slot, source, target)

        def some() -> None:
            self._migrate(slot, source, target, KEYS_AT_ONCE)

        def rest() -> None:
            self._migrate(slot, source, target, len(self.nodes[source].shard.data))

        def end() -> None:
            rest()
            self._now().end_migration(slot, source, target)

        steps = (begin, some, rest, end)

        def go(place: int) -> None:
            now = self.env.now
            if self.nodes[source].is_down or self.nodes[target].is_down:
                if place:
                    call_at(self.env, now + LOOKS_AGAIN_US, partial(go, place))
                else:
                    self._open -= 1
                return
            steps[place]()
            if place + 1 < len(steps):
                call_at(self.env, max(now, at_us + (place + 1) * each_us / len(steps)), partial(go, place + 1))
            else:
                self._open -= 1

        call_at(self.env, at_us, partial(go, 0))

    def _migrate(self, slot: int, source: int, target: int, keys_max: int) -> None:
        node, other = self.nodes[source], self.nodes[target]
        keys = [key for key in node.shard.data if hash_slot(key) == slot][:keys_max]
        if not keys:
            return
        moved = node.shard.freeze(keys)
        self._now().migrate_keys(source, target, *keys)
        node.stall(max(node.busy_until_us, self.env.now) + MIGRATE_US + MIGRATE_KEY_US * len(keys))
        node.replicate([Request((b"DEL", *keys), "del")])
        other.replicate(moved)
