"""What is to blame for a message: a run is watched for a few of them, stage by stage, and asked at its end what still
holds them, at which stage their order turned, and which fault struck there.

Watched are Kafka's logs (of `msg.all`, `msg.persisted`, downlinks, queues of applications), the store's answers, the
broker that is to send it, and sockets. Observers change nothing, so the run is the same as without: whoever has a
history takes the same settings and seed again and watches what it says is missing.

A message that did not arrive is *withheld* where something still has it at the end: a log beyond what its readers have
committed, the store, a window that is full, a socket. Otherwise it is *lost*. Withheld says nothing about when it
comes: a downlink that nobody reads any more keeps it for good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from orderlab.model.history.events import Names
from orderlab.sim.engine.packs import NUMBER_BYTES
from orderlab.sim.kafka.broker import Batch, Partition
from orderlab.sim.mqtt.broker.routing import RoutedRecords
from orderlab.sim.mqtt.connections import MESSAGE, SUBSCRIBER, Deliveries, in_flight_key
from orderlab.sim.mqtt.sessions import EPOCH_MS, StoredSessions
from orderlab.sim.mqtt.world import World

FEED_STAGES = ("publisher", "counter", "hash", "leader", "follower", "store", "page", "socket", "reader")
"""The same of feeds and durable streams."""
STAGES = ("msg.all", "msg.persisted", "msg.app", "store", "msg.downlink", "broker", "socket")
"""In the order in which a message passes them; not every system has all."""
NOT_YET = {
    **dict.fromkeys(("msg.all", "msg.persisted", "msg.app"), ("redis", "postgres")),
    **dict.fromkeys(("publisher", "counter", "hash", "leader", "follower", "store"), ("reader",)),
}
"""Kinds of nodes that a message comes to later only: what strikes them cannot well have turned the order there."""


FaultAt = tuple[str, int]
"""The name of a fault, and when it struck, in microseconds."""


@dataclass(frozen=True)
class Wanted:
    """A message by its logical FIFO and place there, on its way to a subscriber, or to a group that shares a
    subscription, by the names of the history."""

    publisher: str | int
    sequence: int
    subscriber: str | int
    topic: str | int | None = None
    """Of feeds, whose messages are numbered by topic."""


@dataclass(frozen=True)
class Reached:
    """A stage had the message at an instant."""

    at_us: int
    stage: str
    place: str
    node: str
    partition: Partition | None = None
    offset: int = 0
    is_behind: bool = False
    """Whoever was to be handed it had passed that place before."""
    by: str = ""
    """Of a loss, the fault that does that, if one alone does."""

    def __str__(self) -> str:
        return f"{self.at_us / 1e6:.6f} s: {self.place}"


@dataclass(frozen=True)
class Turned:
    """Where of two messages the later came before the earlier first, and the fault that may be to blame for it."""

    stage: str
    told: str
    fault: dict[str, Any] | None


@dataclass
class _Watched:
    message: int
    subscribers: range
    """One, or the members of a group: its topics in Kafka are in the name of the first."""
    way: list[Reached] = field(default_factory=list)
    lost_by: list[Reached] = field(default_factory=list)
    """Logs that had it and lost it."""


class Watch:
    """Watches one system. ``attach`` before the run; ``told`` after it."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = wanted
        self.suspects: Sequence[FaultAt] | None = None
        """The only faults that may be to blame, if that is known."""
        self._watched: list[_Watched | None] = []

    def attach(self, world: World, names: Names, groups: Mapping[int, range]) -> None:
        """Observe the parts of ``world``. ``groups``: the members of those that share a subscription, by their codes in
        the history."""
        self._world = world
        self._groups = groups
        self._watched = [self._found(one, names) for one in self.wanted]
        world.kafka.cluster.on_append = self._appended
        world.kafka.cluster.on_lost = self._lost
        world.measured.on_way = self._reached

    def _found(self, wanted: Wanted, names: Names) -> _Watched | None:
        """The message and its subscribers by number; None where the history names nobody of this system: all of them,
        or one that is not there."""
        count, population = self._world.traffic.schedule.count, len(self._world.traffic.subscribers)
        publisher, subscriber = (
            label if isinstance(label, int) else names.clients.code_of.get(label, -1)
            for label in (wanted.publisher, wanted.subscriber)
        )
        members = self._groups.get(subscriber, range(subscriber - count, subscriber - count + 1))
        if not (0 <= publisher < count and members[0] >= 0 and members[-1] < population):
            return None
        return _Watched(wanted.sequence * count + publisher, members)

    # -- observers ---------------------------------------------------------------------------------------------

    def _appended(self, partition: Partition, batch: Batch) -> None:
        for one in filter(None, self._watched):
            for place in self._places(partition, batch.records, one):
                offset = batch.base_offset + place
                reached = Reached(
                    batch.appended_us, _stage_of(partition), f"{partition.topic}/{partition.number} at offset "
                        f"{offset} (kafka-{partition.leader})",
                    f"kafka-{partition.leader}", partition, offset,
                )  # fmt: skip
                if reached not in one.way:  # an idempotent producer's retry is answered with the first copy
                    one.way.append(reached)

    def _lost(self, partition: Partition, leader: int, records: Sequence[int]) -> None:
        """The leader has died with these, which were the end of its log."""
        for one in filter(None, self._watched):
            if self._places(partition, records, one):
                known = [
                    at
                    for at in one.way
                    if at.partition is partition and at not in one.lost_by and at.offset >= partition.log.end_offset
                ]
                one.lost_by += known
                what = f"lost from {partition.topic}/{partition.number} with kafka-{leader}, which alone had it"
                one.way.append(Reached(int(self._world.env.now), "loss", what, f"kafka-{leader}"))

    def _reached(self, stage: str, broker: int, deliveries: Deliveries) -> None:
        for one in filter(None, self._watched):
            mine = deliveries[
                (deliveries[:, MESSAGE] == one.message) & np.isin(deliveries[:, SUBSCRIBER], one.subscribers)
            ]
            for _, subscriber, packet_id, _ in mine.tolist():
                node, place = f"broker-{broker}", f"socket of broker-{broker}"
                if stage == "store":
                    node = self._store_node(subscriber)
                    place = f"{self._key(subscriber, node)}, saved by broker-{broker}" + (
                        f" under packet identifier {packet_id}" if packet_id > 0 else ""
                    )
                elif stage == "broker":
                    place = f"broker-{broker}, to be sent" + (
                        "" if self._is_here(broker, subscriber) else " to who is not connected there"
                    )
                one.way.append(Reached(int(self._world.env.now), stage, place, node))

    def _is_here(self, broker: int, subscriber: int) -> bool:
        is_connected = self._world.delivery.connections.connected[subscriber]
        return bool(is_connected and self._world.traffic.subscribers.broker[subscriber] == broker)

    def _store_node(self, subscriber: int) -> str:
        storage = self._world.storage
        return storage.databases[0].name if storage.databases else storage.nodes[storage.node_of[subscriber]].name

    def _key(self, subscriber: int, node: str) -> str:
        """Where the store keeps the session."""
        return f"store of {node}, session {self._world.traffic.subscribers.name(subscriber).decode()}"

    def _places(self, partition: Partition, records: Sequence[int], one: _Watched) -> list[int]:
        """Where in ``records`` of that partition's topic the message stands."""
        stage = _stage_of(partition)
        if stage == "msg.all":
            return [place for place, record in enumerate(records) if record == one.message]
        if stage == "msg.downlink":
            held = self._world.delivery.in_transit.look
            return [place for place, record in enumerate(records) if held(record) == (one.message, one.subscribers[0])]
        messages, subscribers, _ = RoutedRecords.unpack(records, len(self._world.traffic.subscribers))
        found: list[int] = ((messages == one.message) & (subscribers == one.subscribers[0])).nonzero()[0].tolist()
        return found

    # -- at the end --------------------------------------------------------------------------------------------

    def told(self, number: int, arrived: bool, broken_us: float = math.inf) -> dict[str, Any] | None:
        """What became of the wanted message of that number, as JSON holds it; None where it could not be watched.
        ``arrived``: whether the history says so; ``broken_us``: when the law broke, for what strikes later is not to
        blame. Who had it last is who had to keep it: the store from a save on, wherever it was sent from there."""
        one = self._watched[number]
        if one is None:
            return None
        return _became(one.way, arrived, [] if arrived else self._held(one), self._struck(), broken_us)

    def turned(self, earlier: int, later: int, _published_us: float = 0.0) -> Turned | None:
        """Where the ``later`` of two wanted messages came before the ``earlier``; None if that is not known. A copy
        that its log has lost was read by nobody."""
        pair = self._watched[earlier], self._watched[later]
        if pair[0] is None or pair[1] is None:
            return None
        ways = [[reached for reached in one.way if reached not in one.lost_by] for one in pair if one is not None]
        numbers = self.wanted[earlier].sequence, self.wanted[later].sequence
        return _turned(ways[0], ways[1], numbers, self._struck(), STAGES)

    def _struck(self) -> Struck:
        names = self._world.names.all()
        return _suspected(
            [(name, names[node], at_us) for name, node, at_us in self._world.measured.faults], self.suspects
        )

    def _unread(self, reached: Reached) -> str:
        """Why a log still has what it has there; nothing if those who read it are done with that."""
        group = next((group for group in self._world.kafka.groups if reached.partition in group.committed), None)
        if group is None or reached.partition is None:
            return ""
        if group.committed[reached.partition] > reached.offset:
            return ""
        readers = [member for member in group.members if not member.is_dead]
        return "which its readers have not committed" if readers else "whose readers are dead"

    def _held(self, one: _Watched) -> list[str]:
        """What still has it."""
        world, table = self._world, self._world.delivery.connections
        held = [
            f"{reached.place}, {why}"
            for reached in one.way
            if reached not in one.lost_by and (why := self._unread(reached))
        ]
        held += self._in_store(one)
        for subscriber in one.subscribers:
            if any((rows[:, MESSAGE] == one.message).any() for rows in table.held_back.get(subscriber, ())):
                held.append(f"behind the backlog of broker-{int(world.traffic.subscribers.broker[subscriber])}")
            if any(message == one.message for message, _ in world.delivery.windows.waiting(subscriber)):
                held.append("the window of the connection, which is full")
        sockets = [reached.place for reached in one.way if reached.stage == "socket"]
        is_on_the_way = any(
            (np.isin(whose, one.subscribers) & (table.connection_number[whose] == over)).any()
            for whose, over, _ in table.on_the_way.values()
        )
        return held + (sockets[-1:] if is_on_the_way and self._is_in_flight(one) else [])

    def _is_in_flight(self, one: _Watched) -> bool:
        keys = self._world.delivery.connections.in_flight
        low, high = in_flight_key(one.subscribers[0], 0), in_flight_key(one.subscribers[-1] + 1, 0)
        return any(low <= key < high and message == one.message for key, (message, _) in keys.items())

    def _in_store(self, one: _Watched) -> list[str]:
        """The store, if it would hand the message out."""
        world, storage = self._world, self._world.storage
        name = world.traffic.subscribers.name(one.subscribers[0])
        if storage.databases:
            rows = storage.databases[0].tables.of_client(name)
            return (
                [self._key(one.subscribers[0], storage.databases[0].name)]
                if any(int(row.payload[:NUMBER_BYTES] or -1) == one.message for row in rows)
                else []
            )
        if not storage.nodes:  # sessions are Kafka's
            return []
        call = storage.store.fetch(name)
        sources = (
            [script.source for script in storage.store.binding.scripts]
            if isinstance(storage.store, StoredSessions)
            else []
        )
        for node in storage.nodes:
            node.shard.now_ms = EPOCH_MS + int(world.env.now) // 1000
            for source in sources:  # it may have been flushed
                node.shard.execute((b"SCRIPT", b"LOAD", source))
            found = storage.store.fetched(node.shard.execute(call.argv))
            if any(message == one.message for message, *_ in found or ()):
                return [self._key(one.subscribers[0], node.name)]
        return []


def _stage_of(partition: Partition) -> str:
    topic = partition.topic
    return next((stage for stage in ("msg.all", "msg.persisted", "msg.downlink") if topic.startswith(stage)), "msg.app")


Struck = Sequence[tuple[str, str, float]]
"""(fault, where, microseconds), in time."""


def _suspected(struck: Struck, suspects: Sequence[FaultAt] | None) -> Struck:
    """What struck, of the suspects alone where they are known."""
    return struck if suspects is None else [fault for fault in struck if (fault[0], round(fault[2])) in suspects]


def _became(way: Sequence[Reached], arrived: bool, held: list[str], struck: Struck, broken_us: float) -> dict[str, Any]:
    """What became of a message that went that way, as JSON holds it."""
    had = [reached for reached in way if reached.stage != "loss"]
    last = (had if arrived else [reached for reached in had if reached.stage == "store"] or had)[-1:]
    gone = [reached for reached in way if reached.stage == "loss"]
    return {
        "state": "delivered" if arrived else "withheld" if held else "lost",
        "last_stage": last[0].stage if last else "publisher",
        "last_had_by": last[0].place if last else "the broker that took it in",
        "at_us": last[0].at_us if last else None,
        "held_by": held,
        "fault": _fault((gone[-1:] or last)[0], [fault for fault in struck if fault[2] <= broken_us]) if last else None,
        "way": [str(reached) for reached in way],
    }


def _fault(last: Reached, struck: Struck) -> dict[str, Any] | None:
    """The fault that struck what had it last, since it had it; else the next one; else the last one before. Of what was
    lost at an instant, the last until then."""
    if not struck:
        return None
    earlier = [fault for fault in struck if fault[2] <= last.at_us]
    later = [fault for fault in struck if fault[2] >= last.at_us]
    if last.stage == "loss" and earlier:
        alike = [fault for fault in earlier if last.by in ("", fault[0])] or earlier
        name, node, at_us = ([fault for fault in alike if fault[1] == last.node] or alike)[-1]
    else:
        name, node, at_us = (([fault for fault in later if fault[1] == last.node] or later)[:1] or earlier[-1:])[0]
    return {"name": name, "node": node, "at_us": at_us}


def _turned(
    first: Sequence[Reached],
    second: Sequence[Reached],
    numbers: tuple[int, int],
    struck: Struck,
    stages: Sequence[str],
) -> Turned | None:
    """Where the second message came before the first; ``numbers``: theirs."""
    since_us = 0
    for stage in stages:
        at = [next((reached for reached in way if reached.stage == stage), None) for way in (first, second)]
        if at[0] is None or at[1] is None:
            continue
        a, b = at[0], at[1]
        if (b.at_us, b.offset) < (a.at_us, a.offset):
            told = f"{b.place} had {numbers[1]}, then {a.place} {numbers[0]}"
            return Turned(stage, told, _turned_by(a, b, since_us, struck))
        since_us = a.at_us
    return None


def _turned_by(a: Reached, b: Reached, since_us: int, struck: Struck) -> dict[str, Any] | None:
    """The fault that may have held ``a`` up until ``b`` was there: at a node that messages pass until then, while it
    was on its way there, at the very node; where none is so, what comes nearest."""
    candidates = [fault for fault in struck if fault[2] <= a.at_us]
    if not candidates:
        return None
    later = NOT_YET.get(a.stage, ())
    name, node, at_us = max(
        candidates,
        key=lambda fault: (
            fault[1].rpartition("-")[0] not in later,
            fault[2] >= since_us,
            fault[1] in (a.node, b.node),
            fault[2],
        ),
    )
    return {"name": name, "node": node, "at_us": at_us}


# -- feeds and durable streams
# -------------------------------------------------------------------------------------------------

Key = tuple[int, int, int]
"""A message of a feed: its publisher, topic and sequence, by the codes of the history."""


class FeedSystem(Protocol):
    """A system without brokers that can be watched: it tells ``watch``, if there is one, where messages are."""

    watch: FeedWatch | None

    def names(self) -> Names:
        """The names behind the codes of the history."""

    def held(self, message: Key, reader: int, way: Sequence[Reached]) -> list[str]:
        """What still has it at the end, of what it had reached."""

    def blamable(self, message: Key, reader: int, published_us: float) -> Struck:
        """The faults that can be to blame for what became of it."""


class FeedWatch:
    """Watches a feed, or durable streams. ``attach`` before the run; ``told`` after it."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = wanted
        self.suspects: Sequence[FaultAt] | None = None
        """As `Watch.suspects`."""
        self._ways: list[list[Reached]] = [[] for _ in wanted]
        self._followed: dict[Key, list[tuple[int, list[Reached]]]] = {}
        self._known: list[tuple[Key, int] | None] = []

    def attach(self, system: FeedSystem) -> None:
        """Have the system tell."""
        names = system.names()
        self._system, system.watch = system, self
        for one, way in zip(self.wanted, self._ways, strict=True):
            publisher, topic, reader = (
                names_of.code_of.get(label, -1) if isinstance(label, str) else -1 if label is None else label
                for names_of, label in (
                    (names.clients, one.publisher),
                    (names.topics, one.topic),
                    (names.clients, one.subscriber),
                )
            )
            is_known = min(publisher, topic, reader) >= 0
            self._known.append(((publisher, topic, one.sequence), reader) if is_known else None)
            if is_known:
                self._followed.setdefault((publisher, topic, one.sequence), []).append((reader, way))

    def wants(self, message: Key) -> bool:
        """Whether it is followed."""
        return message in self._followed

    def reached(
        self,
        message: Key,
        stage: str,
        place: str,
        node: str,
        at_us: float,
        reader: int | None = None,
        offset: int = 0,
        is_behind: bool = False,
        by: str = "",
    ) -> None:
        """A stage has the message, or ("loss") no longer; on its way to that reader, to all if None."""
        for to, way in self._followed.get(message, ()):
            if reader is None or reader == to:
                way.append(Reached(int(at_us), stage, place, node, offset=offset, is_behind=is_behind, by=by))

    def expired(self, number: int, upto: int, at_us: float) -> None:
        """Retention has dropped what a shard had up to a number of its own."""
        what = f"dropped by retention from shard {number}"
        for way in self._ways:
            old = [
                reached
                for reached in way
                if reached.stage == "store" and reached.place.startswith(f"shard {number},") and reached.offset <= upto
            ]
            if old and not any(reached.place == what for reached in way):
                way.append(Reached(int(at_us), "loss", what, ""))

    def told(
        self, number: int, arrived: bool, published_us: float, broken_us: float = math.inf
    ) -> dict[str, Any] | None:
        """As ``Watch.told``."""
        known = self._known[number]
        if known is None:
            return None
        message, reader = known
        way = sorted(self._ways[number], key=lambda reached: reached.at_us)
        held = [] if arrived else self._system.held(message, reader, way)
        broken_us = min([broken_us, *(reached.at_us for reached in way if reached.is_behind)])
        struck = _suspected(self._system.blamable(message, reader, published_us), self.suspects)
        return _became(way, arrived, held, struck, broken_us)

    def turned(self, earlier: int, later: int, published_us: float = 0.0) -> Turned | None:
        """As ``Watch.turned``."""
        known = self._known[earlier]
        struck = [] if known is None else _suspected(self._system.blamable(*known, published_us), self.suspects)
        numbers = self.wanted[earlier].sequence, self.wanted[later].sequence
        return _turned(self._ways[earlier], self._ways[later], numbers, struck, FEED_STAGES)
