"""Settings that every system for DEVICE clients has, and those of the ones that keep their sessions in Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from orderlab.sim.mqtt.broker.retaining import RETAINED_FROM
from orderlab.sim.mqtt.sessions import NUMBER_BYTES
from orderlab.sim.systems.client_settings import ClientSettings

SCRIPTS = Path(__file__).parents[2] / "lua"
STORES = {"published": SCRIPTS / "specimens" / "published", "session": SCRIPTS / "session"}


class DeviceSettings(ClientSettings):
    """Each publisher with a subscriber of its own, whatever keeps the sessions. The defaults are the row 200k."""

    publishers: int = Field(default=100_000, ge=1, le=2_000_000)
    brokers: int = Field(default=1, ge=1, le=100)
    broker_cores: int = Field(default=16, ge=1, le=1024)
    kafka_brokers: int = Field(default=3, ge=1, le=100)
    partitions: int = Field(default=12, ge=1, le=1000)
    linger_ms: float = Field(default=10.0, ge=0, le=10_000)
    batch_bytes: int = Field(default=16_384, ge=1)
    """The producers' ``batch.size``."""
    acks: Literal["0", "1", "all"] = "1"
    idempotent: bool = False
    max_poll_records: int = Field(default=1000, ge=1)
    payload_bytes: int = Field(default=62, ge=NUMBER_BYTES, le=1_000_000)
    limit: int = Field(default=10_000, ge=1, le=65_535)
    """Messages kept per session."""
    faults: str = ""
    """``name@seconds:target:duration``, separated by blanks; target and duration may be left out."""
    fault_rates: str = ""
    """``name=rate/s``, separated by blanks: faults that strike at random."""
    handover: Literal["after-commit", "before-commit"] = "after-commit"
    """When what was saved goes on to whoever holds the connection; published: after the commit. Before it, a broker that
    dies in between leaves repetitions instead of gaps, and a store that knows a batch again has its session read anew."""
    session_timeout_s: float = Field(default=10.0, ge=0.001, le=86_400)
    request_timeout_s: float = Field(default=30.0, ge=0.001, le=86_400)
    retries: int = Field(default=1, ge=0, le=2**31 - 1)
    pack_pause_s: float = Field(default=1.0, ge=0.001, le=86_400)
    """Before what failed of a pack is tried again."""
    pack_retries: int = Field(default=3, ge=0, le=2**31 - 1)
    """How often; what still fails is given up, and committed with the rest."""
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)
    """After the measured interval nobody publishes; the run goes on until all has arrived, at most for this long."""
    costs: str = "cluster"
    tick_us: int = Field(default=500, ge=10, le=100_000)
    warm_up_s: float = Field(default=0.15, ge=0, le=3600)
    duration_s: float = Field(default=0.3, ge=0.001, le=86_400)

    @property
    def may_fill(self) -> bool:
        """Whether a session may reach its limit in a run, were every message of its publisher saved twice."""
        return self.limit < 2 * (self.rate * (self.warm_up_s + self.duration_s) + 2)

    @model_validator(mode="after")
    def _kafka_would_start(self) -> DeviceSettings:
        """The Java client refuses the same, as the sequence could not be kept."""
        if self.idempotent and (self.acks != "all" or not self.retries):
            raise ValueError("idempotent: such a producer needs acks=all and retries above 0; set these too")
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> DeviceSettings:
        messages = self.publishers * (1 + self.rate * (self.warm_up_s + self.duration_s + 2))
        most = RETAINED_FROM if self.retained_share else 10**NUMBER_BYTES
        if messages >= most:
            raise ValueError(f"about {messages:.3g} messages; at most {most:.3g}: shorten the run")
        return self


class RedisSettings(DeviceSettings):
    """Sessions in Redis."""

    expiry_s: int | None = Field(default=None, ge=1, le=2**32 - 1)
    """Message Expiry Interval of every message; none by default."""
    redis_nodes: int = Field(default=3, ge=1, le=1000)
    redis_replica_lag_ms: float | None = Field(default=None, ge=0, le=60_000)
    """Lag of a replica of each node; none by default, as published."""
    appendfsync: Literal["off", "no", "everysec", "always"] = "off"
    """Off, as published: no append-only file. Otherwise what is written to it is on disk when the system flushes it by itself,
    within a second, or before the reply. That matters when the machine dies; a process that dies leaves the whole file."""
    scripts: Literal["published", "session"] = "published"
    inbound: Literal["memory", "store"] = "memory"
    """Where brokers keep which publishes with QoS 2 they have received and not released; in the store, a broker that dies takes
    nothing along, and sessions know messages again by publisher and number, however they came."""

    @model_validator(mode="after")
    def _numbers_come_in_order(self) -> RedisSettings:
        if self.inbound == "store" and not (self.scripts == "session" and self.idempotent):
            raise ValueError(
                "inbound=store numbers what publishers send, and sessions refuse a lower number; set scripts=session, which has "
                "numbers, and idempotent=true, which keeps order"
            )
        return self
