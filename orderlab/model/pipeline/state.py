"""What the nodes of the pipeline do (``Protocol``), how large the explored system is (``PipelineScope``), and its
state.

The state is immutable, hashable, and equal when the system cannot tell the difference. A step says who did what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class PipelineFault(StrEnum):
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


class DeliveryMode(StrEnum):
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
    delivery: DeliveryMode = DeliveryMode.PULL
    online_decided_at_save: bool = False
    """Push only: whether the session is online is asked when the save is sent, not when it is answered."""
    drop_over_window: bool = False
    """Push only: a message over the inflight window is dropped from memory; later ones may pass it."""
    takeover_waits: bool = True
    """A new connection begins only when the old one is closed."""


@dataclass(frozen=True, slots=True)
class PipelineScope:
    """How large the system is. ``faults`` may strike at any step, ``fault_budget`` times in all."""

    messages: int = 2
    nodes: int = 1
    producer_requests_in_flight: int = 2
    pack_size: int = 1
    flush_at: int = 1
    """Commands buffered before the driver flushes by itself; 1 sends each at once and needs no timer."""
    receive_maximum: int = 2
    faults: frozenset[PipelineFault] = field(default_factory=frozenset)
    fault_budget: int = 1
    starts_connected: bool = True


class SavedMessage(NamedTuple):
    """A message in the store. ``sequence`` grows for ever; the packet identifier follows from it."""

    sequence: int
    message: int


class StoreContent(NamedTuple):
    """The session's queue in Redis. ``mark`` is the first offset not yet saved (idempotent save only)."""

    last_sequence: int = 0
    queue: tuple[SavedMessage, ...] = ()
    mark: int = 0
    version: int = 0
    """Writes so far: what a replica has is told by it."""


class StoreCommand(NamedTuple):
    """A call on the store, as the driver sends it. Fields that a kind does not use stay 0 or empty."""

    kind: str
    """``save``, ``fetch`` or ``remove``."""
    offset: int = 0
    messages: tuple[int, ...] = ()
    sequence: int = 0
    """``fetch``: return what is saved after it; ``remove``: the message to remove."""
    at_most: int = 0
    online: bool = False
    generation: int = 0
    connection: int = 0
    """``fetch``: the subscriber's connection that asked; the answer is for no other."""


class StoreAnswer(NamedTuple):
    """A reply on its way to the driver."""

    command: StoreCommand
    status: str
    """``ok``, ``noscript`` or ``error``."""
    saved: tuple[SavedMessage, ...] = ()
    version: int = 0
    """The store's version when it answered: what the replica must have before the answer counts."""


class SessionState(NamedTuple):
    """The actor of a connected subscriber on one node."""

    connection: int
    cursor: int = 0
    """The last sequence put on the socket."""
    fetching: bool = True
    awake: bool = False
    held: tuple[SavedMessage, ...] = ()
    inflight: tuple[int, ...] = ()
    """Sequences sent and not yet acknowledged."""
    socket: tuple[SavedMessage, ...] = ()


class PipelineNode(NamedTuple):
    """A broker node: its consumer, its connection to Redis, its session actor."""

    position: int = 0
    packs: tuple[StoreCommand, ...] = ()
    """Saves submitted and not yet answered, oldest first."""
    buffer: tuple[StoreCommand, ...] = ()
    """Written to the driver, not yet flushed."""
    buffered_count: int = 0
    timer_midway: bool = False
    sent: tuple[StoreCommand, ...] = ()
    answers: tuple[StoreAnswer, ...] = ()
    session: SessionState | None = None
    generation: int = 0


class Delivered(NamedTuple):
    """A PUBLISH that reached the subscriber."""

    message: int
    sequence: int
    connection: int


class PipelineState(NamedTuple):
    """The state of the whole pipeline. Messages are numbered 1, 2, ... in publish order; offsets count from 0."""

    nodes: tuple[PipelineNode, ...]
    published: int = 0
    producing: tuple[int, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    log: tuple[int, ...] = ()
    replicated: int = 0
    owner: int = 0
    """The node that the partition is assigned to."""
    generation: int = 0
    committed: int = 0
    store: StoreContent = StoreContent()
    replica: StoreContent = StoreContent()
    script_loaded: bool = True
    migrating: bool = False
    orphans: tuple[StoreCommand, ...] = ()
    """Commands of connections that are gone: the server may still run them."""
    connection: int = 0
    """The number of the newest connection of the subscriber; 0 before the first."""
    connected: bool = False
    to_acknowledge: tuple[Delivered, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    removed: frozenset[int] = frozenset()
    """Messages whose acknowledgement the store has carried out."""
    exposed_sequence: int = 0
    """The highest sequence that ever left the store in an answer that counted."""
    torn: bool = False
    """A save has left a part of its batch."""
    faults_left: int = 0


class PipelineStep(NamedTuple):
    """``actor`` is a process (``publisher``, ``node A``, ``redis``, ``fault``...); ``detail`` is for the reader."""

    actor: str
    action: str
    detail: str = ""


Steps = Iterator[tuple[PipelineStep, PipelineState]]


def node_name(index: int) -> str:
    """``node A``, ``node B``."""
    return "node " + "ABCDEFGH"[index]


def with_node(state: PipelineState, index: int, node: PipelineNode) -> PipelineState:
    """``state`` with one node replaced."""
    nodes = state.nodes
    return state._replace(nodes=(*nodes[:index], node, *nodes[index + 1 :]))
