"""What the nodes of the pipeline do (``Protocol``) and how large the explored system is (``Scope``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What may go wrong, by the name that operators use."""

    PRODUCER_RETRY = "producer retry"
    KAFKA_LEADER_CHANGE = "kafka leader change"
    BROKER_CRASH = "broker crash"
    PACK_TIMEOUT = "pack timeout"
    REBALANCE = "consumer rebalance"
    REDIS_CONNECTION_LOSS = "redis connection loss"
    SCRIPT_CACHE_FLUSH = "script-cache flush"
    REDIS_FAILOVER = "redis failover"
    SLOT_MIGRATION = "slot migration"
    DISCONNECT = "subscriber disconnect"
    TAKEOVER = "session takeover"


class Delivery(StrEnum):
    """How a saved message gets from the store to the socket."""

    PULL = "pull"
    """A save only wakes the session, which reads the store after its cursor: the store's order is the only order."""
    PUSH_HELD = "push, held during the replay"
    """The saver hands the message over; while the replay runs the session holds it back."""
    PUSH = "push"
    """The saver hands the message over at once, replay or no replay."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to run the pipeline. The defaults are the repaired protocol; each flaw is one field away from it."""

    idempotent_producer: bool = True
    """Kafka drops what it has and refuses what comes too early (``enable.idempotence``)."""
    acks_all: bool = True
    """A publish is acknowledged when the follower has it, not when the leader has it."""
    idempotent_save: bool = True
    """The store remembers the last offset it saved and skips a batch that it has."""
    packs_in_flight: int = 1
    """Packs that a consumer may have submitted before the first is answered."""
    fenced_commit: bool = True
    """An offset commit of an earlier generation is refused."""
    commit_on_revoke: bool = False
    """A consumer that loses the partition commits what it has polled, answered or not (Kafka's auto-commit)."""
    wait_for_replica: bool = True
    """A reply of the store counts only once the replica has what it tells of (``WAIT 1``)."""
    atomic_save: bool = True
    """A save that meets a missing key of a migrating slot fails before its first write."""
    atomic_flush: bool = True
    """The flush timer takes the buffer and its counter in one step."""
    delivery: Delivery = Delivery.PULL
    online_decided_at_save: bool = False
    """Push only: whether the session is online is asked when the save is sent, not when it is answered."""
    drop_over_window: bool = False
    """Push only: a message over the inflight window is dropped from memory; later ones may pass it."""
    takeover_waits: bool = True
    """A new connection begins only when the old one is closed."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How large the system is. ``faults`` may strike at any step, ``fault_budget`` times in all."""

    messages: int = 2
    nodes: int = 1
    producer_requests_in_flight: int = 2
    pack_size: int = 1
    flush_at: int = 1
    """Commands buffered before the driver flushes by itself; 1 sends each at once and needs no timer."""
    receive_maximum: int = 2
    faults: frozenset[Fault] = field(default_factory=frozenset)
    fault_budget: int = 1
    starts_connected: bool = True
