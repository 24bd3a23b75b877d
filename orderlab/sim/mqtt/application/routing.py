"""From `msg.all` to the queues of applications. A match is the number of an application, or of a group's first member."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.application.application import Applications, Queue
from orderlab.sim.mqtt.broker.inflight_batch import Pack
from orderlab.sim.mqtt.broker.ingest import Ingest
from orderlab.sim.mqtt.broker.retaining import RETAINED_FROM
from orderlab.sim.mqtt.broker.routed_record import copies, read_copies
from orderlab.sim.mqtt.broker.routing import Routing
from orderlab.sim.mqtt.clients.population import Ints

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class ApplicationRouting(Routing):
    """Copies go to the partitions of queues."""

    def __init__(self, broker: MqttBroker, applications: Applications) -> None:
        super().__init__(broker)
        self.applications = applications

    def _send(self, records: Sequence[int], partitions: Sequence[int], pack: Pack) -> None:
        messages, numbers, sessions = read_copies(records, len(self.fabric.subscribers))
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            self.enqueue(self.applications.sessions[number].queue, messages[mine], sessions[mine], pack.answered)

    def _resend(self, records: Sequence[int], pack: Pack) -> None:
        self._send(records, (), pack)

    def enqueue(self, queue: Queue, copied: Ints, sessions: Ints, on_answered: OnAnswered) -> None:
        """To the partitions of the messages' topics, each message for a session of the queue's application."""
        fabric = self.fabric
        messages = copied if fabric.retaining is None else copied % RETAINED_FROM
        records = copies(copied, np.full(len(copied), queue.first), sessions, len(fabric.subscribers))
        of_copy = queue.partition_of[fabric.topic_of[messages % fabric.schedule.count]]
        for partition in np.unique(of_copy).tolist():
            mine = list(compress(records, of_copy == partition))
            self.broker.producer.send(queue.group.partitions[partition], mine, on_answered)

    def _pass_on(self, messages: Ints, subscribers: Ints, pack: Pack) -> None:
        """With QoS 0, of a group to the member that reads the topic's partition: so a topic's messages stay in order. While a
        group has no reader for it, nobody gets them."""
        topics = self.fabric.topic_of[messages % self.fabric.schedule.count]
        sessions = self.applications.sessions
        readers = [
            sessions[number].queue.reader_of(topic) for number, topic in zip(subscribers.tolist(), topics.tolist(), strict=True)
        ]
        here = np.array([reader is not None for reader in readers], np.bool_)
        found = np.array([reader for reader in readers if reader is not None], np.int64)
        pack.count(len(messages) - len(found))
        super()._pass_on(messages[here], found, pack)


class ApplicationIngest(Ingest):
    """Applications are in the history from its beginning."""

    def introduce(self, subscribers: Ints, at_us: Ints) -> None:
        pass
