"""Sessions in a Redis Cluster, as most systems have them, behind a pipelining or a blocking client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from orderlab.sim.costs.cost_model import Costs
from orderlab.sim.drivers.blocking import BlockingDriver, PoolSettings
from orderlab.sim.drivers.pipelined import PipelinedDriver, PipelineSettings
from orderlab.sim.engine.clock import Clock, Station
from orderlab.sim.mqtt.sessions import EPOCH_MS, StoredSessions
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.versions import VERSIONS
from orderlab.sim.servers.redis import ClusterRules, Follower, RedisNode
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.systems.settings import FENCED, STORES, PipelinedSettings, RedisSettings

FLUSHED_AFTER_US = 30_000_000
"""When Linux writes back a page that nobody asks it to: vm.dirty_expire_centisecs, 30 s by default."""


@dataclass(frozen=True)
class RedisSessions:
    """Store, nodes, and the scripts by the digest under which EVALSHA finds them."""

    env: Clock
    store: StoredSessions
    nodes: list[RedisNode]
    by_digest: dict[bytes, bytes]

    @classmethod
    def assemble(cls, env: Clock, settings: RedisSettings, costs: Costs, lengths: tuple[int, int]) -> RedisSessions:
        """``lengths``: of the names of clients and of topics."""
        store = StoredSessions(
            load_binding(STORES[settings.scripts]), settings.redis_nodes, settings.limit, settings.qos,
            settings.payload_bytes, lengths, None if settings.expiry_s is None else settings.expiry_s * 1000,
        )  # fmt: skip
        scripts = store.binding.scripts
        if settings.inbound == "fenced":
            scripts += tuple(script for script in load_binding(FENCED).scripts if script not in scripts)
        sources = [script.source for script in scripts]
        lag_ms, sync = settings.redis_replica_lag_ms, settings.appendfsync
        lua, version = SharedLua(), VERSIONS[settings.server]
        min_lag_s = settings.min_replicas_lag_s
        rules = ClusterRules(
            round(settings.cluster_node_timeout_s * 1e6), settings.full_coverage,
            None if min_lag_s is None else round(min_lag_s * 1e6), round(settings.resync_s * 1e6),
        )  # fmt: skip
        nodes = [
            RedisNode(
                env, f"redis-{number}", costs.redis, sources, EPOCH_MS * 1000,
                None if lag_ms is None else round(lag_ms * 1000), "no" if sync == "off" else sync, lua, rules, version,
            )
            for number in range(settings.redis_nodes)
        ]  # fmt: skip
        if sync == "no":
            for node in nodes:
                node.file = Follower(FLUSHED_AFTER_US, sources, lua, version)
        return cls(env, store, nodes, {hashlib.sha1(source).hexdigest().encode(): source for source in sources})


@dataclass(frozen=True)
class PipelinedRedis:
    """Redis behind one connection per broker and node, as Lettuce has it."""

    sessions: RedisSessions
    settings: PipelineSettings

    @classmethod
    def assemble(
        cls, env: Clock, settings: PipelinedSettings, costs: Costs, lengths: tuple[int, int]
    ) -> PipelinedRedis:
        """``lengths``: of the names of clients and of topics."""
        return cls(
            RedisSessions.assemble(env, settings, costs, lengths),
            PipelineSettings(
                settings.lettuce_batch,
                round(settings.flush_ms * 1000),
                command_timeout_us=round(settings.command_timeout_s * 1e6),
            ),
        )

    @property
    def store(self) -> StoredSessions:
        return self.sessions.store

    @property
    def nodes(self) -> list[RedisNode]:
        return self.sessions.nodes

    def driver(self, cpu: Station, one_way_us: Callable[[], int]) -> PipelinedDriver:
        """A client whose work is part of the broker's costs per message, so ``cpu`` is not charged for it."""
        sessions = self.sessions
        return PipelinedDriver(sessions.env, sessions.nodes, self.settings, sessions.by_digest, one_way_us)


@dataclass(frozen=True)
class BlockingRedis:
    """Redis behind pools of blocking connections, as Jedis has it."""

    sessions: RedisSessions
    settings: PoolSettings
    call_us: float
    """CPU per round trip, beside what the broker's stages cost anyway."""

    @property
    def store(self) -> StoredSessions:
        return self.sessions.store

    @property
    def nodes(self) -> list[RedisNode]:
        return self.sessions.nodes

    def driver(self, cpu: Station, one_way_us: Callable[[], int]) -> BlockingDriver:
        """``cpu`` works for every round trip."""
        sessions = self.sessions
        return BlockingDriver(
            sessions.env, sessions.nodes, self.settings, sessions.by_digest, one_way_us, cpu, self.call_us
        )
