"""A cluster of the kernel behind ports: one served node for each master, that redirect clients to each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from orderlab.model.errors import InputError
from orderlab.sim.redis.cluster import Cluster
from orderlab.sim.redis.hash_slots import SLOT_COUNT
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire.served_node import SCRIPT_LIMITS, ServedNode, ServeSettings

MASTERS_MAX: Final = 64
GOSSIP_S: Final = 0.05
"""After a change of slots until every node knows."""


class ServedCluster:
    """Masters behind ports one after the other, or behind any that are free."""

    def __init__(self, masters: int, settings: ServeSettings | None = None) -> None:
        if not 1 <= masters <= MASTERS_MAX:
            raise InputError(f"--cluster {masters}: a cluster has 1 to {MASTERS_MAX} masters; choose such a number")
        settings = settings or ServeSettings()
        shards = [Shard(SharedLua(SCRIPT_LIMITS), settings.version) for _ in range(masters)]
        self.cluster = Cluster.of(shards, [slot * masters // SLOT_COUNT for slot in range(SLOT_COUNT)])
        ports = [settings.port + index if settings.port else 0 for index in range(masters)]
        self.nodes = [
            ServedNode(replace(settings, port=port), shard) for port, shard in zip(ports, shards, strict=True)
        ]
        self._gossip: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen on all ports. Raises InputError where that cannot be."""
        try:
            for node in self.nodes:
                await node.start()
                node.faults.cluster = self.cluster
                node.on_slots_changed = self._soon
        except InputError:
            await self.stop()
            raise
        host = self.nodes[0].settings.host.encode()
        for index in range(len(self.nodes)):
            slots = self.cluster.slots(index)
            for identifier, node in zip(self.cluster.ids, self.nodes, strict=True):
                slots.addresses[identifier] = b"%b:%d" % (host, node.port)

    async def stop(self) -> None:
        """Close all ports and connections."""
        if self._gossip is not None:
            self._gossip.cancel()
        for node in self.nodes:
            await node.stop()

    def _soon(self) -> None:
        if self._gossip is None:
            self._gossip = asyncio.get_running_loop().call_later(GOSSIP_S, self._tell_each_other)

    def _tell_each_other(self) -> None:
        self._gossip = None
        self.cluster.gossip()
