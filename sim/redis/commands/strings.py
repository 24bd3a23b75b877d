"""String commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.redis.registry import command
from sim.redis.replies import OK, Reply

if TYPE_CHECKING:
    from sim.redis.shard import Shard


@command("get", 2, "readonly fast", (1, 1, 1))
def get(shard: Shard, argv: Sequence[bytes]) -> Reply:
    """GET key."""
    return shard.lookup_as(argv[1], bytes)


@command("set", -3, "write denyoom", (1, 1, 1))
def set_(shard: Shard, argv: Sequence[bytes]) -> Reply:
    """SET key value [options]."""
    key = argv[1]
    shard.install(key, argv[2])
    if key in shard.deadlines_ms:
        shard.set_deadline(key, None)
    shard.modified(key)
    return OK
