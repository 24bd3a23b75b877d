"""Eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.redis.shard import Shard


def make_room(shard: Shard) -> bool:
    return shard.config.maxmemory > 10_000_000
