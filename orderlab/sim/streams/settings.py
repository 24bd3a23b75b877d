"""Settings of `emqx-streams`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from orderlab.sim.mqtt.connections import UNLIMITED
from orderlab.sim.systems.settings import RATE_MIN, Settings


class StreamsSettings(Settings):
    """The costs of the store are those that `orderlab bench streams` measured (notes/streams.md, Figures)."""

    publishers: int = Field(default=100, ge=1, le=100_000)
    rate: float = Field(default=20.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    """Messages of a publisher in a second, in the mean of all; each begins at an instant of its own."""
    server_receive_maximum: int = Field(default=32, ge=1, le=UNLIMITED)
    """Messages of a publisher that may be under way; more wait for answers."""
    zipf: float = Field(default=0.0, ge=0, le=3, allow_inf_nan=False)
    """Exponent of uneven load: the n-th publisher's rate is as 1 / n ** zipf, and so are its topics'."""
    topics: int = Field(default=2, ge=1, le=100)
    """Of each publisher: ``site/PUBLISHER/TOPIC``."""
    readers: int = Field(default=2, ge=0, le=1000)
    topic_filter: str = "site/+/0"
    """Of every reader; with $share/GROUP/ before it they are one group. A last reader reads everything."""
    lease_ms: float = Field(default=50.0, ge=0.1, le=60_000)
    """After which what a member of the group had goes to others, once its connection is lost."""
    retention_s: float = Field(default=0.0, ge=0, le=86_400, allow_inf_nan=False)
    """What was stored longer ago is dropped, by generations of half that time; 0 keeps all."""
    nodes: int = Field(default=3, ge=2, le=100)
    node_cores: int = Field(default=8, ge=1, le=1024)
    shards: int = Field(default=6, ge=1, le=1000)
    shard_by: Literal["topic", "publisher"] = "topic"
    schema_kind: Literal["learned", "hashed"] = "learned"
    flush_ms: float = Field(default=2.0, ge=0.01, le=10_000)
    """Between two batches of a shard."""
    acknowledge: Literal["committed", "buffered"] = "committed"
    """When a publisher is answered; ``buffered`` is a specimen."""
    commit: Literal["delivered", "read"] = "delivered"
    """When a reader's iterator is committed; ``read``, before what it read has arrived, is a specimen."""
    reconnect_ms: float = Field(default=20.0, ge=0.1, le=60_000)
    resend_ms: float = Field(default=300.0, ge=1, le=60_000)
    """After which a publisher without an answer sends again."""
    store_us: float = Field(default=2.09, ge=0, le=1e6)
    """Of a core, for a message that is stored, on the leader and on a follower: ``ingest`` of the bench."""
    read_us: float = Field(default=0.47, ge=0, le=1e6)
    """Of a core, for a message that is replayed: ``replay`` of the bench."""
    lasts_s: ClassVar = {"broker-crash": 0.2, "broker-clock-skew": 0.5, "client-link-cut": 0.05}
    """A node is gone (its shards are led by the next one after that time), its clock is behind, a reader's connection
    is cut."""
    faults: str = ""
    """``name@seconds:target:duration``: broker-crash and broker-clock-skew strike a node, client-link-cut a reader."""
    costs: str = "cluster"
    warm_up_s: float = Field(default=0.3, ge=0, le=3600)
    duration_s: float = Field(default=2.0, ge=0.001, le=86_400)
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)
