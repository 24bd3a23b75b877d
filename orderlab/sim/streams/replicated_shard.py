"""A shard of the cluster: its leader, the batch that waits there, and the one that a follower copies."""

from __future__ import annotations

from functools import partial

from orderlab.sim.engine.clock import call_at
from orderlab.sim.streams.cluster import Sender, StreamsCluster
from orderlab.sim.streams.keys import HashedLevels, LearnedPatterns
from orderlab.sim.streams.ordered_store import MemoryStore
from orderlab.sim.streams.shard import Message, Schema, Shard

REPLICAS = 3
"""Nodes that have a shard, if there are so many; what two of them have is committed."""

Sent = tuple[Sender, int, Message]
"""A message as the leader has it: whose, and over which of its connections."""


class ReplicatedShard:
    """A shard with its leader and what waits there for the next flush."""

    def __init__(self, cluster: StreamsCluster, number: int) -> None:
        settings = cluster.settings
        self.cluster, self.number = cluster, number
        self.replicas = [(number + more) % settings.nodes for more in range(min(REPLICAS, settings.nodes))]
        self.leader = number % settings.nodes
        self.term = 0
        self.link = 0
        """What publishers send over a connection that is older than this does not arrive: its leader is gone, or has
        dropped a batch, and what came behind that must not be stored before it comes again."""
        self.buffer: list[Sent] = []
        self.under_way: list[Sent] = []
        """The batch that a follower copies."""
        self.is_flushing = False
        self.shard = Shard(
            MemoryStore(),
            lambda: cluster.clock(self.leader),
            self.schema(),
            elapsed_ms=lambda: int(cluster.env.now) // 1000,
        )

    def schema(self) -> Schema:
        """A fresh one for a generation."""
        return LearnedPatterns() if self.cluster.settings.schema_kind == "learned" else HashedLevels()

    def expire(self, age_ms: int) -> None:
        """Begin a generation, and drop those whose messages were all stored longer ago."""
        if self.shard.has_fresh:
            self.shard.new_generation(self.schema())
        self.shard.expire(age_ms)
        if self.cluster.watch is not None:
            self.cluster.watch.expired(self.number, self.dropped, self.cluster.env.now)

    @property
    def dropped(self) -> int:
        """Up to which number retention has dropped messages."""
        return self.shard.generations[min(self.shard.generations)].since

    def take(self, publisher: Sender, attempt: int, link: int, message: Message) -> None:
        """A message arrives at the leader; one that is down does not hear it, nor another than it was sent to."""
        cluster = self.cluster
        if cluster.is_down(self.leader) or link != self.link:
            if cluster.watch is not None:
                cluster.tell(
                    "publisher",
                    f"{publisher.name}, not heard by node-{self.leader}, which is down or did not lead yet",
                    self.leader,
                    [message],
                )
            return
        if cluster.watch is not None:
            cluster.tell(
                "leader",
                f"buffer of shard {self.number} on node-{self.leader}",
                self.leader,
                [message],
                offset=len(self.buffer),
            )
        done = cluster.stations[self.leader].serve(cluster.env.now, cluster.broker.ingest_us)
        self.buffer.append((publisher, attempt, message))
        if cluster.settings.acknowledge == "buffered":
            call_at(cluster.env, done + cluster.hop(), partial(publisher.answered, attempt, message))
        if not self.is_flushing:
            self.is_flushing = True
            call_at(cluster.env, done + cluster.settings.flush_ms * 1000, partial(self.flush, self.term))

    def flush(self, term: int) -> None:
        """Send the batch to a follower."""
        if term != self.term:
            return
        cluster = self.cluster
        batch, self.buffer = self.buffer, []
        work = cluster.settings.store_us * len(batch)
        here = cluster.serve(self.leader, work, "store", len(batch))
        others = [node for node in sorted(self.replicas) if node != self.leader and not cluster.is_down(node)]
        if not others:  # no majority: what is in the batch is not answered, and sent again by its publishers
            self.is_flushing = False
            self.link += 1
            if cluster.watch is not None:
                cluster.tell(
                    "loss",
                    f"lost with a batch of shard {self.number} that no node was up to copy",
                    "",
                    [message for *_, message in batch],
                    by="broker-crash",
                )
            return
        self.under_way = batch
        if cluster.watch is not None:
            copied = f"batch of shard {self.number}, sent from node-{self.leader} to node-{others[0]} to be copied"
            cluster.tell("follower", copied, self.leader, [message for *_, message in batch])
        call_at(cluster.env, here + cluster.hop(), partial(self.copy, term, batch, others[0]))

    def copy(self, term: int, batch: list[Sent], node: int) -> None:
        """The batch arrives at a follower."""
        cluster = self.cluster
        there = cluster.serve(node, cluster.settings.store_us * len(batch), "copy", len(batch))
        call_at(cluster.env, there + cluster.hop(), partial(self.committed, term, batch))

    def committed(self, term: int, batch: list[Sent]) -> None:
        """Two nodes have it: answer publishers, wake readers."""
        if term != self.term:
            return
        cluster = self.cluster
        self.under_way = []
        self.shard.append([message for _, _, message in batch])
        if cluster.watch is not None:
            first = self.shard.sequence - len(batch) + 1
            for number, (_, _, message) in enumerate(batch, first):
                cluster.tell(
                    "store",
                    f"shard {self.number}, number {number}, on node-{self.leader} and a follower",
                    self.leader,
                    [message],
                    offset=number,
                )
        if cluster.settings.acknowledge == "committed":
            for publisher, attempt, message in batch:
                done = cluster.stations[self.leader].serve(cluster.env.now, cluster.broker.puback_us)
                call_at(cluster.env, done + cluster.hop(), partial(publisher.answered, attempt, message))
        for reader in cluster.readers:
            reader.wake(self.number)
        self.is_flushing = bool(self.buffer)
        if self.is_flushing:
            call_at(cluster.env, cluster.env.now + cluster.settings.flush_ms * 1000, partial(self.flush, term))

    def lose_leader(self) -> None:
        """What it had not committed is gone. The next node that is up takes over."""
        cluster = self.cluster
        self.term += 1
        self.link += 1
        if cluster.watch is not None:
            lost = f"lost with node-{self.leader}, which led shard {self.number} and had not committed it"
            cluster.tell(
                "loss",
                lost,
                self.leader,
                [message for *_, message in (*self.under_way, *self.buffer)],
                by="broker-crash",
            )
        self.buffer, self.under_way, self.is_flushing = [], [], False
        self.elect()

    def elect(self) -> None:
        """The next node of the shard's takes over, if most of them are up: one of any two has all that is committed.
        Of only two nodes each has."""
        nodes = self.cluster.settings.nodes
        up = [node for node in self.replicas if not self.cluster.is_down(node)]
        if self.leader not in up and len(up) >= min(REPLICAS, nodes) - 1:
            self.leader = min(up, key=lambda node: (node - self.leader) % nodes)
            self.link += 1
