"""Where the parts of a broker system meet without knowing each other: a store of sessions with its client, and a broker
as others see it.

Redis behind a pipeline, Redis behind blocking connections and PostgreSQL are interchangeable here. A *call* is made by
a store and understood by the driver that belongs to it; the broker only carries it from the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.clock import Station
from orderlab.sim.engine.network import Network
from orderlab.sim.engine.packs import Numbers
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import Producer
from orderlab.sim.servers.redis import RedisNode

Call = Any
"""Opaque to the broker."""


class SessionStore(Protocol):
    """The operations on sessions, as calls and as what their replies mean."""

    @property
    def opens_sessions(self) -> bool:
        """Whether a session must be opened before it takes messages."""

    @property
    def numbers_batches(self) -> bool:
        """Whether it knows a batch again by its producer's number, so that nothing is saved twice."""

    @property
    def has_tokens(self) -> bool:
        """Whether each message has a number that grows with every save, and is removed by it."""

    @property
    def refuses_closed(self) -> bool:
        """Whether what was routed to a session that has ended stays out of the next one."""

    def node_of(self, client: bytes) -> int:
        """The node that holds the client's session."""

    def open(self, client: bytes, clean_start: bool, epoch: int) -> Call:
        """Begin or find a session."""

    def clear(self, client: bytes, epoch: int = 1) -> Call:
        """End a session."""

    def save(
        self,
        client: bytes,
        messages: Sequence[tuple[int, bytes, int]],
        producer: int,
        batch: int,
        epoch: int = 1,
        qos: tuple[int, ...] = (),
        retained: bool = False,
    ) -> Call:
        """Save messages given as (number, topic, time in ms). ``qos``: of each delivery, where they differ;
        ``retained``: these answer a SUBSCRIBE."""

    def save_each(
        self,
        clients: Sequence[bytes],
        numbers: Numbers,
        topics: Sequence[bytes],
        time_ms: int,
        producers: Numbers,
        batches: Numbers,
        epochs: Numbers,
    ) -> Sequence[Call]:
        """Save one message for each of these clients, all of one QoS."""

    def acknowledge_each(
        self, clients: Sequence[bytes], packet_ids: Sequence[int], tokens: Sequence[int], epochs: Sequence[int]
    ) -> Sequence[Call]:
        """Remove one message of each of these clients."""

    def acknowledge(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Call:
        """Remove a message, for a PUBACK or PUBCOMP in the session ``epoch``."""

    def release(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Call:
        """Keep a PUBREL in place of a message, for a PUBREC."""

    def fetch(self, client: bytes) -> Call:
        """All that waits, in order."""

    def newest(self, client: bytes) -> Call | None:
        """The token of the last message that was saved; None: this store does not tell."""

    def told_newest(self, reply: Any) -> int | None:
        """What the answer says; 0 where it says nothing, None for an error."""

    def assigned(self, reply: Any, count: int) -> list[tuple[int, int]] | None:
        """(packet identifier, token) of each message saved; None if the save did not happen."""

    def assigned_each(self, replies: Sequence[Any]) -> tuple[Sequence[int], Sequence[int]] | None:
        """The packet identifiers and the tokens of messages that were each saved alone; None if one of them was not."""

    def was_saved_before(self, reply: Any) -> bool:
        """Whether the store says that it has this batch already."""

    def was_closed(self, reply: Any) -> bool:
        """Whether a save was refused because its session has ended."""

    def is_damaged(self, reply: Any) -> bool:
        """Whether a save was refused because parts of the session are gone: it is in vain to try again."""

    def was_answered(self, reply: Any) -> bool:
        """Whether an ``open`` or ``clear`` has run."""

    def fetched(self, reply: Any) -> list[tuple[int, int, int, bool]] | None:
        """(message number, packet identifier, token, is a PUBREL) in order; None for an error."""


class StoreDriver(Protocol):
    """The client of one broker."""

    flushes: int
    """Writes to sockets, or commits."""

    @property
    def is_busy(self) -> bool:
        """Whether a call waits to be written or answered."""

    def submit(self, nodes: Sequence[int], calls: Sequence[Call], on_done: Callable[[Sequence[Any]], None]) -> None:
        """Make calls on the nodes with these numbers; ``on_done`` gets the replies in the order of the calls."""

    def join(self, network: Network, name: str) -> None:
        """Connect through ``network``, as the node ``name``. Before the first call."""

    def lose(self, node: int) -> None:
        """Lose the connections to a node."""

    def close(self) -> None:
        """Close the connections: the broker's process is gone."""


class Persistence(Protocol):
    """A store with its servers, from which every broker gets a client of its own."""

    @property
    def store(self) -> SessionStore:
        """The operations."""

    @property
    def nodes(self) -> list[RedisNode]:
        """The Redis nodes; none where Redis is not the store."""

    def driver(self, cpu: Station, one_way_us: Callable[[], int]) -> StoreDriver:
        """A client for a broker that computes on ``cpu``; ``one_way_us``: delay to a server."""


class Ownership(Protocol):
    """Who is connected where, as brokers have heard it."""

    def connected(self, subscriber: int, broker: int) -> None:
        """A client has connected at a broker."""

    def owners(self, here: int, subscribers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The brokers to which broker ``here`` sends on what is for these; -1: to none."""

    @property
    def awaits_old(self) -> bool:
        """Whether a broker lets publishers in only when the old one has closed their connections."""

    def publishers_left(self, old: int, new: int, then: Callable[[], None]) -> None:
        """The publishers of a broker connect to another one; ``then`` when the old one hears of that."""

    def knows_newer(self, here: int, subscriber: int, connection: int) -> bool:
        """Whether broker ``here`` knows of a later connection of the client than that, were it over."""


class PublisherLinks(Protocol):
    """The links between a broker and its publishers."""

    def cut(self, until_us: int) -> None:
        """Let nothing through until then."""

    def slow_down(self, more_us: int) -> None:
        """Let everything take so much longer, each way; 0: as usual."""

    def kill(self) -> None:
        """Let nothing through any more, on these connections."""

    def come_back(self) -> None:
        """Connect all publishers anew, at the same broker."""


class Broker(Protocol):
    """A broker, for the other brokers, for its clients and for faults."""

    number: int
    cpu: Station
    producer: Producer
    driver: StoreDriver
    is_dead: bool
    downlink: Sequence[Partition]
    clock_skew_us: int
    crash_at_commit: Literal["before", "after"] | None
    on_pack: Callable[[str, float, float, int], None] | None
    all_consumers: Sequence[Consumer]
    persisted_consumers: Sequence[Consumer]
    downlink_consumers: Sequence[Consumer]

    @property
    def is_last(self) -> bool:
        """Whether no other broker is alive."""

    @property
    def is_busy(self) -> bool:
        """Whether something is with its clients of Kafka and of the store, on the way to them, or to be tried again."""

    @property
    def owes_answers(self) -> bool:
        """Whether a publisher of it has no PUBACK or PUBREC for something."""

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """Connect a subscriber here."""

    def wake(self, subscriber: int) -> None:
        """Read the session of a subscriber anew, for whom something may wait in the store that was never sent here."""

    def expire(self, subscriber: int) -> None:
        """End the session of a subscriber that has been away for too long."""

    def send_waiting(self, publishers: Sequence[int]) -> None:
        """Take in what waited for room at those of these publishers that are here."""

    def lose_pubacks(self, count: int) -> None:
        """Let the next answers to publishers not arrive."""

    def crash(self) -> None:
        """Let the process die."""

    def pause(self, duration_us: int) -> None:
        """Stand still for a while, as when the collector stops the world."""

    def publisher_links(self) -> PublisherLinks:
        """The links to its publishers, for faults."""

    def move_publishers(self, other: Broker) -> None:
        """Let the publishers of this broker, which is alive, connect to another one."""

    def take_over(self, dead: Broker) -> None:
        """Take in the publishers of a broker that has died."""
