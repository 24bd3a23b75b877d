"""The state of the pipeline: immutable, hashable, equal when the system cannot tell the difference."""

from __future__ import annotations

from typing import NamedTuple


class Saved(NamedTuple):
    """A message in the store. ``sequence`` grows for ever; the packet identifier follows from it."""

    sequence: int
    message: int


class Store(NamedTuple):
    """The session's queue in Redis. ``mark`` is the first offset not yet saved (idempotent save only)."""

    last_sequence: int = 0
    queue: tuple[Saved, ...] = ()
    mark: int = 0
    version: int = 0
    """Writes so far: what a replica has is told by it."""


class Command(NamedTuple):
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


class Answer(NamedTuple):
    """A reply on its way to the driver."""

    command: Command
    status: str
    """``ok``, ``noscript`` or ``error``."""
    saved: tuple[Saved, ...] = ()
    version: int = 0
    """The store's version when it answered: what the replica must have before the answer counts."""


class Session(NamedTuple):
    """The actor of a connected subscriber on one node."""

    connection: int
    cursor: int = 0
    """The last sequence put on the socket."""
    fetching: bool = True
    awake: bool = False
    held: tuple[Saved, ...] = ()
    inflight: tuple[int, ...] = ()
    """Sequences sent and not yet acknowledged."""
    socket: tuple[Saved, ...] = ()


class Node(NamedTuple):
    """A broker node: its consumer, its connection to Redis, its session actor."""

    position: int = 0
    packs: tuple[Command, ...] = ()
    """Saves submitted and not yet answered, oldest first."""
    buffer: tuple[Command, ...] = ()
    """Written to the driver, not yet flushed."""
    buffered_count: int = 0
    timer_midway: bool = False
    sent: tuple[Command, ...] = ()
    answers: tuple[Answer, ...] = ()
    session: Session | None = None
    generation: int = 0


class Delivered(NamedTuple):
    """A PUBLISH that reached the subscriber."""

    message: int
    sequence: int
    connection: int


class State(NamedTuple):
    """Everything. Messages are numbered 1, 2, ... in publish order; offsets count from 0."""

    nodes: tuple[Node, ...]
    published: int = 0
    producing: tuple[int, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    log: tuple[int, ...] = ()
    replicated: int = 0
    owner: int = 0
    """The node that the partition is assigned to."""
    generation: int = 0
    committed: int = 0
    store: Store = Store()
    replica: Store = Store()
    script_loaded: bool = True
    migrating: bool = False
    orphans: tuple[Command, ...] = ()
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
