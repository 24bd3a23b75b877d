"""A consumer group: assignment of partitions, fetching ahead, offsets, rebalance, fencing by generation.

As in Kafka: a member owns partitions for one *generation*; a commit of another generation, or of a member that was put
out, is refused. A rebalance begins the next generation when all members have come back from the packs in their hands,
which they may commit until then. A consumer sends its next fetch as soon as it has handed out what the last one
brought, so the answer to a fetch holds what was readable when the fetch was answered, not what is readable at the next
poll.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import simpy

from orderlab.sim.engine.clock import Clock, call_at
from orderlab.sim.engine.network import Link
from orderlab.sim.kafka.broker import AppendError, KafkaCluster, Partition, offsets_partition_for

Polled = list[tuple[Partition, int, list[int]]]
"""(partition, offset of the first record, records)."""


REQUEST_BYTES = 150
RECORD_BYTES = 300
"""On the wire."""
COMMIT_BACKOFF_US = 100_000
"""``retry.backoff.ms``: before a commit is sent again for which there was no coordinator."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of the Java client that matter here, by its names."""

    max_poll_records: int = 1000
    fetch_records: int = 5000
    """``max.partition.fetch.bytes`` divided by the size of a record."""
    session_timeout_us: int = 10_000_000
    rebalance_us: int = 300_000
    """From the first member that joins anew until all have their assignment, if nobody has a pack in its hands."""
    max_poll_interval_us: int = 300_000_000
    """For so long a rebalance waits for those."""

    @property
    def heartbeat_us(self) -> int:
        """``heartbeat.interval.ms``, by whose answers a member learns that it was put out: a third of the session
        timeout, as Kafka advises."""
        return self.session_timeout_us // 3


class ConsumerGroup:
    """The coordinator's view of one group that reads one topic."""

    def __init__(
        self,
        env: Clock,
        cluster: KafkaCluster,
        topic: str,
        settings: ConsumerSettings | None = None,
        group_id: str | None = None,
    ) -> None:
        """``group_id`` None: the topic's name, which is right where one group reads it."""
        self.env = env
        self.cluster = cluster
        self.partitions = cluster.topics[topic]
        self.offsets = cluster.offsets[offsets_partition_for(group_id or topic)]
        """Where commits are kept; its leader is the group's coordinator."""
        self.settings = settings or ConsumerSettings()
        self.generation = 0
        self.committed: dict[Partition, int] = dict.fromkeys(self.partitions, 0)
        self.members: list[Consumer] = []
        self.fenced_commits = 0
        self._history: dict[Partition, list[tuple[int, int]]] = {}
        """(instant, offset) of commits that a new coordinator may not have, and of the last that it has."""
        self._begun_us = 0
        """When the generation began."""
        self._rebalances = 0
        self._is_due = False
        """A rebalance waits for nothing but members that have not come back."""

    @property
    def coordinator(self) -> int:
        """The Kafka broker that coordinates the group."""
        return self.offsets.leader

    def join(self, *consumers: Consumer) -> None:
        """Let members come in; partitions are assigned at once (the start of a system takes no time)."""
        self.members.extend(consumers)
        self._assign()

    def leave(self, consumer: Consumer, after_us: int = 0) -> None:
        """A member goes: by itself (at once), or by being silent (``after_us`` = its session timeout)."""

        def expel() -> None:
            if consumer in self.members:
                self.members.remove(consumer)
                self.rebalance()

        call_at(self.env, self.env.now + after_us, expel)

    def rejoin(self, consumer: Consumer) -> None:
        """A member that was put out has been told so, and joins anew."""
        if consumer not in self.members and not consumer.is_dead:
            self.members.append(consumer)
            self.rebalance()

    def rebalance(self) -> None:
        """Give nobody records any more; a new generation begins after ``rebalance_us``, when all members have come
        back."""
        self._rebalances += 1
        self._is_due = False
        number = self._rebalances
        # The eager protocol: all give up all, so that no partition has two owners in between.
        for member in self.members:
            member.revoke()

        def fall_due() -> None:
            if self._rebalances == number:
                self._is_due = True
                self.came_back()

        def put_out_the_late() -> None:
            if self._is_due and self._rebalances == number:
                self.members = [member for member in self.members if not member.is_busy]
                self.came_back()

        call_at(self.env, self.env.now + self.settings.rebalance_us, fall_due)
        call_at(self.env, self.env.now + self.settings.max_poll_interval_us, put_out_the_late)

    def came_back(self) -> None:
        """A member polls: if a rebalance waits for nobody else, it is over."""
        if self._is_due and not any(member.is_busy and not member.is_dead for member in self.members):
            self._assign()

    def _assign(self) -> None:
        """Assign ranges over the members in the order in which they joined."""
        self._is_due = False
        self._begun_us = int(self.env.now)
        self.generation += 1
        share, extra = divmod(len(self.partitions), max(len(self.members), 1))
        start = 0
        for number, member in enumerate(self.members):
            count = share + (number < extra)
            member.assign(self.generation, self.partitions[start : start + count])
            start += count

    def commit(self, member: Consumer, generation: int, offsets: Mapping[Partition, int]) -> bool:
        """An offset commit reaches the coordinator. False: the generation is over (``ILLEGAL_GENERATION``), or the
        member was put out (``UNKNOWN_MEMBER_ID``)."""
        # A commit from before the rebalance would take back, or run ahead of, what the present owner has done.
        if generation != self.generation or member not in self.members:
            self.fenced_commits += 1
            return False
        lag_us, now = self.cluster.replicas.offsets_lag_us, int(self.env.now)
        for partition, offset in offsets.items():
            for at, end in partition.truncations:
                # What was read has been replaced: the position is taken back to where the logs part (KIP-320).
                if at > member.polled_us:
                    offset = min(offset, end)
            before, self.committed[partition] = self.committed[partition], offset
            if lag_us or self.offsets.behind is not None:
                history = self._history.setdefault(partition, [(0, before)])
                history.append((now, offset))
                while len(history) > 1 and history[1][0] <= now - lag_us and self.offsets.behind is None:
                    del history[0]
        return True

    def change_coordinator(self, had_until_us: int | None = None) -> int:
        """A new coordinator goes on with the offsets' topic as far as it has it, or had it at ``had_until_us``; the
        number of commits that are lost. Of a generation that began later it knows nothing, so that its members join
        anew."""
        horizon_us = int(self.env.now) - self.cluster.replicas.offsets_lag_us if had_until_us is None else had_until_us
        lost = 0
        for partition, history in self._history.items():
            kept = [entry for entry in history if entry[0] <= horizon_us] or history[:1]
            lost += len(history) - len(kept)
            self.committed[partition] = kept[-1][1]
            self._history[partition] = kept[-1:]
        if horizon_us < int(self.env.now) and self._begun_us >= max(horizon_us, 0):
            self.generation += 1  # UNKNOWN_MEMBER_ID: what they have in their hands they may not commit
            call_at(self.env, self.offsets.leaderless_until_us, self.rebalance)
        return lost

    def needed_from(self, partition: Partition) -> int:
        """The offset below which nobody will read the partition again."""
        history = self._history.get(partition)
        return min(self.committed[partition], history[0][1]) if history else self.committed[partition]

    def truncated(self, partition: Partition, end: int) -> None:
        """A leader that was elected uncleanly has records only below ``end``."""
        self.committed[partition] = min(self.committed[partition], end)
        for member in self.members:
            if partition in member.positions:
                member.positions[partition] = min(member.positions[partition], end)


@dataclass(slots=True)
class _Fetched:
    """The answer to one fetch request, as far as it has not been handed out."""

    leader: int
    parts: Polled = field(default_factory=list)


class Consumer:
    """A member: one thread that polls. ``one_way_us``: network delay to a Kafka broker; ``connect``: as
    ``Producer``'s."""

    def __init__(
        self,
        group: ConsumerGroup,
        name: str,
        one_way_us: Callable[[], int] = lambda: 100,
        connect: Callable[[int], Link] | None = None,
    ) -> None:
        self.group = group
        self.name = name
        self.env = group.env
        self.one_way_us = one_way_us
        self.generation = -1
        self.positions: dict[Partition, int] = {}
        self.taken_over: dict[Partition, int] = {}
        """Per partition that came with a rebalance, the offset below which another owner may have worked already."""
        self.is_dead = False
        self.is_busy = False
        """Whether it has records in its hands, or may have: it has not polled since it got some."""
        self.polled_us: float = 0
        """When it last had records in its hands."""
        self.pause_us = 0
        """After its next poll the thread stands still for so long (a pause of the collector, a slow callee)."""
        self._connect = connect or (lambda broker: Link.plain(group.env, one_way_us))
        self._links: dict[int, Link] = {}
        self._epoch = 0
        """Counts assignments, so that the answer to an old fetch is thrown away."""
        self._ready: list[_Fetched] = []
        self._asked: dict[Partition, int] = {}
        """Where fetches begin whose answers are under way."""
        self._waiting: simpy.Event | None = None

    def assign(self, generation: int, partitions: list[Partition]) -> None:
        """The member owns ``partitions`` from their committed offsets on."""
        self.revoke()
        self.generation = generation
        # From what is committed, not from where the former owner had read to: what it had in its hands is read again.
        self.positions = {partition: self.group.committed[partition] for partition in partitions}
        self.taken_over = {partition: partition.log.end_offset for partition in partitions} if generation > 1 else {}
        for leader in sorted({partition.leader for partition in partitions}):
            self._fetch(leader)

    def revoke(self) -> None:
        """The member owns nothing; what was fetched and not handed out is forgotten."""
        self._epoch += 1
        self._ready.clear()
        self._asked.clear()
        self.positions = {}

    def refresh(self) -> None:
        """Fetch anew, as leaders have changed: what was fetched and not handed out is fetched again, from the present
        leaders."""
        for fetched in self._ready:
            for partition, offset, _ in fetched.parts:
                self.positions[partition] = min(self.positions[partition], offset)
        for partition, position in self._asked.items():
            if partition in self.positions:
                self.positions[partition] = min(self.positions[partition], position)
        self._asked.clear()
        self._epoch += 1
        self._ready.clear()
        for leader in sorted({partition.leader for partition in self.positions}):
            self._fetch(leader)

    def poll(self) -> Generator[simpy.Event, Any, Polled]:
        """Wait for records, then hand out at most ``max_poll_records``."""
        self.is_busy = False  # a thread that polls again has done with what it had: that is what a rebalance waits for
        self.group.came_back()
        while not self._ready:
            self._waiting = self.env.event()
            yield self._waiting
            self._waiting = None
        left = self.group.settings.max_poll_records
        polled: Polled = []
        while self._ready and left:
            fetched = self._ready[0]
            partition, offset, records = fetched.parts.pop(0)
            if len(records) > left:
                fetched.parts.insert(0, (partition, offset + left, records[left:]))
                records = records[:left]
            polled.append((partition, offset, records))
            left -= len(records)
            if not fetched.parts:
                self._ready.pop(0)
                # Only now: one fetch a leader is under way or waits here, which bounds what is held.
                self._fetch(fetched.leader)
        self.polled_us = self.env.now
        self.is_busy = True
        return polled

    def commit(self, polled: Polled) -> Generator[simpy.Event, Any, bool]:
        """``commitSync`` of what was polled: a round trip to the coordinator. False if the member was fenced."""
        generation = self.generation
        offsets = {partition: offset + len(records) for partition, offset, records in polled}
        group = self.group
        accepted: bool | None = None
        while accepted is None:
            coordinator = group.coordinator
            link, done = self._link(coordinator), self.env.event()

            def arrive(coordinator: int = coordinator, link: Link = link, done: simpy.Event = done) -> None:
                nonlocal accepted
                error: AppendError | None = AppendError.NOT_COORDINATOR
                answered_us = int(self.env.now)
                if coordinator == group.coordinator:
                    error, answered_us = group.cluster.commit(group.offsets)
                if error is None:
                    accepted = group.commit(self, generation, offsets)
                link.back.send(REQUEST_BYTES, lambda: _succeed(done), answered_us)

            link.there.send(REQUEST_BYTES, arrive)
            yield done
            if accepted is None:  # it asks who coordinates the group, or whether there are replicas enough now
                yield self.env.timeout(COMMIT_BACKOFF_US)
        return accepted

    def _link(self, leader: int) -> Link:
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = self._connect(leader)
        return link

    def _fetch(self, leader: int) -> None:
        epoch = self._epoch
        self._link(leader).there.send(REQUEST_BYTES, lambda: self._at_leader(leader, epoch))

    def _at_leader(self, leader: int, epoch: int) -> None:
        """A fetch request is at the leader, and stays there until there is something to read."""
        if epoch != self._epoch or self.is_dead:
            return
        now = int(self.env.now)
        fetched = _Fetched(leader)
        count = 0
        mine = [partition for partition in self.positions if partition.leader == leader]
        for partition in mine:
            offset, records = partition.log.read(self.positions[partition], self.group.settings.fetch_records, now)
            if records:
                fetched.parts.append((partition, offset, records))
                self._asked[partition] = offset  # to go back to, should a new leader make this answer worthless
                self.positions[partition] = offset + len(records)
                count += len(records)
        if count:
            served = self.group.cluster.fetch_served_us(leader, count)
            self._link(leader).back.send(RECORD_BYTES * count, lambda: self._arrived(fetched, epoch), served)
            return
        self._wait_at_leader(leader, mine, epoch, now)

    def _wait_at_leader(self, leader: int, mine: list[Partition], epoch: int, now: int) -> None:
        visible = [partition.log.next_visible_us(self.positions[partition]) for partition in mine]
        soon = [at for at in visible if at is not None and at > now]
        again = [False]

        def look() -> None:
            if not again[0]:
                again[0] = True
                self._at_leader(leader, epoch)

        if soon:
            call_at(self.env, min(soon), look)
        for partition in mine:
            partition.wait_for_records(look)

    def _arrived(self, fetched: _Fetched, epoch: int) -> None:
        if epoch != self._epoch or self.is_dead:
            return
        for partition, _, _ in fetched.parts:
            self._asked.pop(partition, None)
        self._ready.append(fetched)
        if self._waiting is not None and not self._waiting.triggered:
            self._waiting.succeed()


def _succeed(event: simpy.Event) -> None:
    event.succeed()
