"""SUBSCRIBE of applications, after a CONNECT: retained messages go through the queue like any other message.

A shared subscription gets none (4.8.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.mqtt.application.application import Applications
from orderlab.sim.mqtt.application.routing import ApplicationRouting
from orderlab.sim.mqtt.broker.subscribing import Subscribing
from orderlab.sim.mqtt.clients.population import Ints

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class ApplicationSubscribing(Subscribing):
    """The SUBSCRIBEs of one broker's applications, each for what its queue is for."""

    def __init__(self, broker: MqttBroker, applications: Applications, routing: ApplicationRouting) -> None:
        super().__init__(broker)
        self.applications = applications
        self.routing = routing

    def _wanted(self, subscriber: int) -> tuple[int, str]:
        return len(self.fabric.topics), self.applications.sessions[subscriber].queue.topic_filter

    def _record(self, subscriber: int, topic: int) -> None:
        """A group has its subscription whoever of its members sends it again."""
        if not self.applications.sessions[subscriber].queue.is_shared:
            super()._record(subscriber, topic)

    def _save(self, subscriber: int, copies: Ints, qos: tuple[int, ...]) -> None:
        broker, queue = self.broker, self.applications.sessions[subscriber].queue
        sessions = np.full(len(copies), self.sessions.number[subscriber])

        def answered(records: Sequence[int], error: AppendError | None) -> None:
            if error is not None:
                self.fabric.count("retained_given_up", len(records))  # nobody is owed them

        done = broker.burst(len(copies), broker.costs.downlink_us)
        call_at(broker.env, done, lambda: self.routing.enqueue(queue, copies, sessions, answered))
