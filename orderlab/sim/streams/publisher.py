"""A publisher of the cluster: in order, with so many unanswered as the server allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.streams.cluster import StreamsCluster
from orderlab.sim.streams.replicated_shard import ReplicatedShard
from orderlab.sim.streams.shard import Message


class Publisher:
    """Sends when a message is due, and all that is not answered again when an answer does not come in time."""

    def __init__(
        self, cluster: StreamsCluster, number: int, phase: float, shard_of: Callable[[str, int], ReplicatedShard]
    ) -> None:
        """``phase``: from 0 to 1, of the interval, when it begins."""
        self.cluster, self.number = cluster, number
        self.shard_of = shard_of
        self.sequences = [0] * cluster.settings.topics
        self.attempt = 0
        """Counts connections."""
        self.interval_us = cluster.interval_us / (cluster.settings.publishers * cluster.publisher_shares[number])
        self.due_us = phase * self.interval_us
        self.credits = [0.0] * cluster.settings.topics
        self.under_way: dict[tuple[str, bytes], tuple[Message, float]] = {}
        """By topic and payload, what is not answered, and when it was due; in the order in which it was published."""
        self.links: dict[int, tuple[int, float]] = {}
        """By shard, over which connection to its leader messages go, and when the last will have arrived."""
        self.is_held_up = False

    def publish(self) -> None:
        """The next message, which is due."""
        cluster = self.cluster
        if self.due_us >= cluster.end_us:
            cluster.active -= 1
            return
        self.is_held_up = len(self.under_way) >= cluster.settings.server_receive_maximum
        if self.is_held_up:
            return
        # the topic that is furthest behind its share
        self.credits = [credit + weight for credit, weight in zip(self.credits, cluster.topic_shares, strict=True)]
        topic = max(range(len(self.credits)), key=lambda at: (round(self.credits[at], 9), -at))
        self.credits[topic] -= 1
        self.sequences[topic] += 1
        code = self.number * cluster.settings.topics + topic
        message = Message(cluster.topic_names[code], str(self.number), b"%d" % self.sequences[topic])
        self.under_way[message.topic, message.payload] = message, self.due_us
        cluster.series.published(code, self.sequences[topic], self.due_us)
        cluster.published += self.due_us >= cluster.begin_us
        self.send(message, 0)
        self.due_us += self.interval_us
        call_at(cluster.env, max(cluster.env.now, self.due_us), self.publish)

    def send(self, message: Message, dup: int) -> None:
        """To whoever leads the shard, behind what was sent there; again if no answer comes."""
        cluster = self.cluster
        self.note(EventKind.PUBLISH, message, dup)
        replicated = self.shard_of(message.topic, self.number)
        link, last_us = self.links.get(replicated.number, (replicated.link, 0.0))
        arrives_us = max(cluster.env.now + cluster.hop(), last_us)
        self.links[replicated.number] = link, arrives_us
        if cluster.watch is not None:
            cluster.tell(
                "publisher",
                f"{self.name}, sent to node-{replicated.leader}, which leads shard {replicated.number}",
                replicated.leader,
                [message],
            )
        call_at(cluster.env, arrives_us, partial(replicated.take, self, self.attempt, link, message))
        again_us = cluster.env.now + cluster.settings.resend_ms * 1000
        call_at(cluster.env, again_us, partial(self.send_again, self.attempt, message))

    def note(self, kind: EventKind, message: Message, dup: int = 0) -> None:
        """A row about a message."""
        self.cluster.note(kind, self.number, self.cluster.topic_codes[message.topic], int(message.payload), dup=dup)

    @property
    def name(self) -> str:
        return f"publisher-{self.number}"

    def send_again(self, attempt: int, message: Message) -> None:
        """No answer in time: over a new connection all that is not answered, in the order in which it was published
        (MQTT-4.4.0-1)."""
        if attempt != self.attempt or (message.topic, message.payload) not in self.under_way:
            return
        self.attempt += 1
        self.links.clear()
        self.cluster.counts["sent_again"] += len(self.under_way)
        for one, _ in list(self.under_way.values()):
            self.send(one, 1)

    def answered(self, attempt: int, message: Message) -> None:
        """Over the connection that there is; what was stored over an earlier one is stored twice."""
        cluster = self.cluster
        if attempt != self.attempt or (message.topic, message.payload) not in self.under_way:
            return
        _, due = self.under_way.pop((message.topic, message.payload))
        now, due_us = int(cluster.env.now), int(due)
        self.note(EventKind.PUBLISH_ACKNOWLEDGED, message)
        cluster.latency.add(np.array([due_us]), np.array([now - due_us]))
        if self.is_held_up:
            self.publish()
