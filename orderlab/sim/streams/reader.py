"""Readers of the cluster, who follow every shard by an iterator, and groups of them that share a replay."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from orderlab.sim.engine.clock import call_at
from orderlab.sim.streams.cluster import StreamsCluster
from orderlab.sim.streams.replicated_shard import ReplicatedShard
from orderlab.sim.streams.shard import Dropped, Iterator, Message

PAGE = 100


class Reader:
    """Follows every shard by an iterator. One page of a shard is under way at a time."""

    def __init__(
        self, cluster: StreamsCluster, code: int, topic_filter: str, shards: Sequence[ReplicatedShard]
    ) -> None:
        self.cluster, self.code = cluster, code
        self.shards = shards
        self.iterators: list[Iterator] = [one.shard.replay(topic_filter) for one in shards]
        self.committed = list(self.iterators)
        self.is_busy = [False] * len(self.iterators)
        self.connections = [0] * len(self.iterators)
        """By shard: what was sent over an earlier one does not arrive."""
        self.under_way: dict[int, list[Message]] = {}
        """By shard, the page that has left for the reader."""
        self.delivered: set[tuple[int, int]] = set()
        self.down_until_us = 0.0

    def who(self, number: int) -> str:
        """Who is sent the shard."""
        settings = self.cluster.settings
        return "auditor" if self is self.cluster.auditor else f"reader-{self.code - settings.publishers}"

    def hears(self, number: int) -> bool:
        """Whether pages of the shard can be sent."""
        return self.cluster.env.now >= self.down_until_us

    def wake(self, number: int) -> None:
        """There may be something in the shard."""
        if not self.is_busy[number] and self.hears(number):
            self.is_busy[number] = True
            self.read(number, self.connections[number])

    def page(self, number: int) -> tuple[list[Message], Iterator]:
        """The next page; behind what retention has dropped, if it has."""
        shard = self.shards[number].shard
        try:
            return shard.next(self.iterators[number], PAGE)
        except Dropped as told:
            self.cluster.counts["told_dropped"] += 1
            return shard.next(told.iterator, PAGE)

    def comes_to(self, number: int, sequence: int | None) -> bool:
        """Whether what is behind the committed iterator has the message of that number in the shard, or any at all."""
        shard, iterator = self.shards[number].shard, self.committed[number]
        while True:
            try:
                page, iterator = shard.next(iterator, PAGE)
            except Dropped as told:
                iterator = told.iterator
                continue
            if not page or sequence is None or any(message.sequence == sequence for message in page):
                return bool(page)

    def is_behind(self) -> bool:
        """Whether something that is still to be read, or has been and is under way, would come were the run longer."""
        return any(
            (is_busy or not self.hears(number)) and self.comes_to(number, None)
            for number, is_busy in enumerate(self.is_busy)
        )

    def read(self, number: int, connection: int) -> None:
        """The next page leaves."""
        cluster = self.cluster
        if connection != self.connections[number]:
            return
        leader = self.shards[number].leader
        if cluster.is_down(leader):
            call_at(
                cluster.env,
                cluster.env.now + cluster.settings.reconnect_ms * 1000,
                partial(self.read, number, connection),
            )
            return
        page, iterator = self.page(number)
        if not page:
            self.iterators[number] = self.committed[number] = iterator
            self.is_busy[number] = False
            return
        if cluster.settings.commit == "read":
            self.committed[number] = iterator
        self.under_way[number] = page
        done = cluster.serve(
            leader, (cluster.settings.read_us + cluster.broker.deliver_us) * len(page), "replay", len(page)
        )
        if cluster.watch is not None:
            cluster.tell(
                "page", f"page of shard {number}, read on node-{leader} for {self.who(number)}", leader, page, self.code
            )
            cluster.tell(
                "socket", f"socket of node-{leader} to {self.who(number)}", leader, page, self.code, at_us=done
            )
        call_at(cluster.env, done + cluster.hop(), partial(self.receive, number, connection, page, iterator))

    def receive(self, number: int, connection: int, page: list[Message], iterator: Iterator) -> None:
        """The page arrives, unless the connection is lost; its answer commits the iterator."""
        if connection != self.connections[number]:
            return
        self.under_way.pop(number, None)
        self.hand(number, page)
        call_at(
            self.cluster.env,
            self.cluster.env.now + self.cluster.hop(),
            partial(self.answered, number, connection, iterator),
        )

    def answered(self, number: int, connection: int, iterator: Iterator) -> None:
        """The broker hears that the page has arrived. If the connection is lost before, the next brings the page
        again."""
        if connection != self.connections[number]:
            return
        self.iterators[number] = self.committed[number] = iterator
        self.read(number, connection)

    def hand(self, number: int, page: list[Message]) -> None:
        cluster = self.cluster
        if cluster.watch is not None:
            cluster.tell("reader", f"{self.who(number)} is handed it", 0, page, self.code)
        for message in page:
            again = (number, message.sequence) in self.delivered
            self.delivered.add((number, message.sequence))
            cluster.deliver(
                int(message.publisher), cluster.topic_codes[message.topic], int(message.payload), self.code, again
            )

    def lose(self, number: int) -> None:
        """The connection over which the shard is read is gone; the next goes on at the committed iterator."""
        page = self.under_way.pop(number, [])
        if self.cluster.watch is not None:
            self.cluster.tell(
                "loss",
                f"lost with the connection of {self.who(number)}",
                self.who(number),
                page,
                self.code,
                by="client-link-cut",
            )
        self.connections[number] += 1
        self.iterators[number] = self.committed[number]
        self.is_busy[number] = False

    def cut(self, _: int, until_us: float) -> None:
        """The connection is lost for a while."""
        self.down_until_us = until_us
        for number in range(len(self.iterators)):
            self.lose(number)
            call_at(self.cluster.env, until_us, partial(self.wake, number))


class Group(Reader):
    """Members that share a replay. Each shard is one member's; the checkpoints are the group's, and so is what the
    history says of it."""

    def __init__(
        self, cluster: StreamsCluster, code: int, topic_filter: str, shards: Sequence[ReplicatedShard]
    ) -> None:
        super().__init__(cluster, code, topic_filter, shards)
        members = cluster.settings.readers
        self.owners: list[int | None] = [number % members for number in range(len(self.iterators))]
        self.asked: dict[int, int] = {}
        """Shards that another member has asked for: their owners give them up with the page under way."""
        self.member_down_until_us = [0.0] * members
        self.by_member = [0] * members
        self.redispatched = self.stolen = 0

    def is_up(self, member: int) -> bool:
        return self.cluster.env.now >= self.member_down_until_us[member]

    def load(self, member: int) -> int:
        return sum(self.asked.get(number, owner) == member for number, owner in enumerate(self.owners))

    def who(self, number: int) -> str:
        owner = self.owners[number]
        return "the group" if owner is None else f"reader-{owner}"

    def hears(self, number: int) -> bool:
        owner = self.owners[number]
        return owner is not None and self.is_up(owner)

    def hand(self, number: int, page: list[Message]) -> None:
        owner = self.owners[number]
        assert owner is not None
        self.by_member[owner] += len(page)
        super().hand(number, page)

    def read(self, number: int, connection: int) -> None:
        """Between two pages what another has asked for changes hands."""
        if connection == self.connections[number]:
            self.give(number)
        super().read(number, connection)

    def give(self, number: int) -> None:
        if number in self.asked:
            self.owners[number] = self.asked.pop(number)
            self.stolen += 1

    def cut(self, member: int, until_us: float) -> None:
        """A member is gone for a while: after the lease others have its shards, and when it is back it asks for
        some."""
        self.member_down_until_us[member] = max(self.member_down_until_us[member], until_us)
        self.asked = {number: to for number, to in self.asked.items() if to != member}
        now, lease_us = self.cluster.env.now, self.cluster.settings.lease_ms * 1000
        for number, owner in enumerate(self.owners):
            if owner == member:
                self.lose(number)
                self.owners[number] = None
                call_at(self.cluster.env, now + lease_us, partial(self.redispatch, number))
        call_at(self.cluster.env, until_us, partial(self.steal, member))

    def redispatch(self, number: int) -> None:
        """To who has least; if nobody is there, to the first that comes back."""
        up = [member for member in range(len(self.by_member)) if self.is_up(member)]
        if up and self.owners[number] is None:
            self.owners[number] = self.asked.pop(number, min(up, key=self.load))
            self.redispatched += 1
            self.wake(number)

    def steal(self, member: int) -> None:
        """A member without work asks the one that has most, until no other has two more."""
        if not self.is_up(member):
            return
        for number, owner in enumerate(self.owners):
            if owner is None:
                call_at(
                    self.cluster.env,
                    self.cluster.env.now + self.cluster.settings.lease_ms * 1000,
                    partial(self.redispatch, number),
                )
        while True:
            busiest = max(range(len(self.by_member)), key=self.load)
            if self.load(busiest) < self.load(member) + 2:
                return
            number = next(at for at, owner in enumerate(self.owners) if self.asked.get(at, owner) == busiest)
            self.asked[number] = member
            if not self.is_busy[number]:
                self.give(number)
                self.wake(number)

    def report(self) -> dict[str, Any]:
        """What each member was sent, and how often shards changed hands."""
        return {"by_member": self.by_member, "redispatched": self.redispatched, "stolen": self.stolen}
