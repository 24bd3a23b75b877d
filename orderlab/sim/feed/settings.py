"""Settings of a feed in Redis: which cure of the race, how many producers, queues, readers and processes."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from orderlab.sim.redis.versions import ServerName
from orderlab.sim.systems.settings import Settings

Cure = Literal["watch", "lua", "race"]


class ZaqarSettings(Settings):
    """The defaults are the published measurement."""

    cure: Cure = "watch"
    """What keeps two producers from taking one rank: a watched counter, a script, or nothing (race)."""
    producers: int = Field(default=18, ge=1, le=100_000)
    """Each posts again once it is answered: so many requests are under way."""
    server: ServerName = "7.0"
    """What the processes of Redis are, as ``--server`` names it."""
    queues: int = Field(default=4, ge=1, le=10_000)
    """A producer draws one for each request."""
    messages: int = Field(default=1, ge=1, le=1000)
    """In one request."""
    readers: int = Field(default=1, ge=0, le=100)
    """Of each queue; each lists after its own marker. One more lists all at the end."""
    poll_ms: float = Field(default=10.0, ge=0.1, le=60_000)
    """Between two lists of a reader."""
    window_us: float = Field(default=0.0, ge=0, le=1e9)
    """What passes at the web head between reading the counter and sending the transaction, or between hashes and
    script, beside its own work, on average; exponential. No core is busy with it."""
    retry_s: float = Field(default=10.0, ge=0.001, le=3600)
    """After a conflict a request begins again until it is so old; then its client gets an error."""
    reconnect_ms: float = Field(default=100.0, ge=1, le=60_000)
    """After a lost connection, before the request is made again, with new names for its messages."""
    web_cores: int = Field(default=8, ge=1, le=1024)
    redis_processes: int = Field(default=2, ge=1, le=100)
    ttl_s: int = Field(default=3600, ge=1, le=10**9)
    lasts_s: ClassVar = {"redis-restart": 0.5, "redis-stall": 0.05, "redis-connection-loss": 0.0}
    """Of a Redis process; what was stored is there after a restart."""
    faults: str = ""
    """``name@seconds:process:duration``: redis-restart, redis-stall, redis-connection-loss."""
    costs: str = "zaqar"
    warm_up_s: float = Field(default=0.5, ge=0, le=3600)
    duration_s: float = Field(default=5.0, ge=0.001, le=86_400)
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)


class LuaSettings(ZaqarSettings):
    """With the script."""

    cure: Cure = "lua"


class RaceSettings(ZaqarSettings):
    """Without a cure."""

    cure: Cure = "race"
