"""Where sessions of applications begin and end: Clean Start, and the Session Expiry Interval.

A session that ends takes its subscription along and forgets its position: the next one reads its Kafka topic from the end, with no
identifier in use. What was routed for the old one and gets into the topic later carries that session's number, and is passed by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orderlab.sim.mqtt.application.application import Applications
from orderlab.sim.mqtt.application.delivery import ApplicationDelivery
from orderlab.sim.mqtt.broker.lifetimes import Lifetimes

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class ApplicationLifetimes(Lifetimes):
    """The database of sessions takes no time here (``application``), so nothing has to be waited for."""

    def __init__(self, broker: MqttBroker, applications: Applications, delivery: ApplicationDelivery) -> None:
        super().__init__(broker)
        self.applications = applications
        self.delivery = delivery

    def begin(self, subscriber: int) -> None:
        """An application that has just connected here gets a new session, and subscribes anew."""
        self._renew(subscriber)
        self.applications.sessions[subscriber].forget()
        self.delivery.begin(subscriber).rebalance()
        self.broker.subscribing.subscribe(subscriber, is_new=True)

    def expire(self, subscriber: int) -> None:
        """It has been away for the Session Expiry Interval."""
        self._end(subscriber)
        self.applications.sessions[subscriber].forget()
        self.fabric.count("sessions_expired")
