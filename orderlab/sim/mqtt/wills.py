"""Will Messages: which broker publishes each, when it is due, and how brokers can be wrong with that.

A Will Message is published when the broker that had the connection knows of its end and the Will Delay Interval has
passed, or the session has ended, unless that broker knows of a new connection by then (MQTT-3.1.3-9). With a delay of 0
a takeover does not keep it back (3.1.4, non-normative). It goes to `msg.all` and from there to the client that watches
it, as what publishers send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.network import Network
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import ScheduleWithWills, WillMessages
from orderlab.sim.mqtt.parts import KafkaTopics, Traffic
from orderlab.sim.mqtt.presence import Presence
from orderlab.sim.mqtt.sessions import StoredSessions
from orderlab.sim.mqtt.world import World
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.servers.requests import Request

WillRule = Literal["owner", "replicated", "claimed"]
Of = tuple[int, int]
"""Subscriber and number of the connection: whose Will."""


class Wills:
    """The Will Messages of a run, and which broker publishes each.

    - ``owner``: the broker that had the connection, from its memory. If it dies first, or Kafka refuses it, the Will is
      lost.
    - ``replicated``: all brokers know all Wills. When one has been silent for the session timeout, the next one takes
      its clients for gone, and publishes their Wills and those that waited there. What Kafka refuses is sent again.
    - ``claimed``: the same, and a broker that has not reached the others for the session timeout closes its
      connections. Whoever publishes a Will, or has the client anew, first writes so to a key of that connection, if it
      is not there yet (``SET key value NX GET``): then the Will is published, or it is not, whoever comes later. A
      CONNECT is answered when that is written.
    """

    def __init__(
        self,
        messages: WillMessages,
        rule: WillRule,
        traffic: Traffic,
        kafka: KafkaTopics,
        presence: Presence,
        network: Network,
    ) -> None:
        self.messages, self.rule = messages, rule
        self.traffic = traffic
        self.kafka = kafka
        self.presence = presence
        self.network = network
        self.clock = presence.clock
        self.measured = presence.measured
        self.recorder = presence.recorder
        self.brokers = presence.brokers
        self.table = presence.table
        self.wait_us = messages.delay_us
        self.waiting: dict[tuple[int, Of], bool] = {}
        """Per broker, the Wills that wait there for their delay; whether it has passed at a broker that is dead."""
        self.unfinished: dict[tuple[int, Of], tuple[int, dict[str, int]] | None] = {}
        """Per broker, the Wills that it publishes and Kafka has not got yet: the message, where there is one already,
        and whose the history says it is."""
        self.over: set[Of] = set()
        """Connections with which, or before the next, a session has ended."""
        self._claims = 0
        self.asking: dict[int, tuple[int, bool]] = {}
        """Per subscriber that has asked to be let in, where, and whether with Clean Start 1."""
        self.decided: set[Of] = set()
        """Those that are claimed, as brokers that let a client in have found."""
        self.told_us: dict[Of, int] = {}
        """When connections ended whose brokers could tell the others."""
        self.presence.on_notice.append(self._ended)
        self.presence.on_session_end.append(self._session_ended)
        if rule != "owner":
            self.brokers.on_silence.append(self._silent)
        if rule == "claimed" and messages.delay_us:
            self.presence.admit = self._admit

    # -- when one is due -----------------------------------------------------------------------------------

    def _ended(self, subscriber: int, broker: int, connection: int) -> None:
        """A broker knows that a connection has ended."""
        of = subscriber, connection
        if of in self.presence.goodbyes:
            self.measured.count("wills_discarded")
        elif not self._is_watcher(subscriber):
            if self.rule == "claimed" and not self._is_alone(broker):
                self.told_us[of] = int(self.clock.now)
            self._await(broker, of, 0 if of in self.over else self.wait_us)

    def _is_alone(self, broker: int) -> bool:
        """Whether what a broker knows stays with it."""
        return self.brokers[broker].is_dead or self.network.is_cut(
            f"broker-{broker}", f"kafka-{self.kafka.groups[0].coordinator}"
        )

    def _is_watcher(self, subscriber: int) -> bool:
        messages = self.messages
        return messages.count > 0 and subscriber >= messages.first

    def _await(self, broker: int, of: Of, wait_us: int) -> None:
        self.waiting[broker, of] = False
        if wait_us:
            due_us = int(self.clock.now) + wait_us
            self.messages.last_us = max(self.messages.last_us, due_us)
            call_at(self.clock, float(due_us), lambda: self._due(broker, of))
        else:
            self._due(broker, of)

    def _session_ended(self, subscriber: int) -> None:
        of = subscriber, int(self.table.connection_number[subscriber]) - 1
        self.over.add(of)
        for broker in range(len(self.brokers)):
            self._due(broker, of)

    def _due(self, broker: int, of: Of) -> None:
        """The delay has passed, or the session is over."""
        key = broker, of
        if key not in self.waiting:
            return
        is_dead = self.brokers[broker].is_dead
        if is_dead and self.rule == "owner":
            del self.waiting[key]
            self.measured.count("wills_lost")
            return
        may_be_back = self.messages.delay_us and of not in self.over
        if may_be_back and self.brokers.knows_newer(self.brokers.next_after(broker).number if is_dead else broker, *of):
            del self.waiting[key]
            self.measured.count("wills_not_sent")
        elif is_dead:
            self.waiting[key] = True
        else:
            del self.waiting[key]
            self._go(broker, of)

    def _go(self, broker: int, of: Of, heir_of: int | None = None) -> None:
        """Publish a Will that is due, if nobody else has claimed it but the dead broker ``heir_of``."""
        if self.rule == "claimed":
            self.unfinished[broker, of] = None
            self._claim(
                broker, of, b"published", lambda: self._publish(broker, of), lambda: self._forget(broker, of), heir_of
            )
        else:
            self._publish(broker, of)

    def _forget(self, broker: int, of: Of) -> None:
        self.unfinished.pop((broker, of), None)

    # -- who publishes it ----------------------------------------------------------------------------------

    def _silent(self, broker: int, until_us: float) -> None:
        """The others have not heard of a broker for the session timeout: the next one does what was left to it. Alive,
        it can do nothing itself until then."""
        table = self.table
        other = self.brokers.next_after(broker).number
        if other == broker:
            return
        for (holder, of), is_due in list(self.waiting.items()):
            if holder == broker:
                if self.brokers[broker].is_dead:
                    del self.waiting[holder, of]
                self.measured.count("wills_taken_over")
                if is_due:
                    self._go(other, of)
                else:
                    self._await(other, of, self.wait_us)
        for holder, of in [key for key in self.unfinished if key[0] == broker and self.brokers[broker].is_dead]:
            begun = self.unfinished.pop((holder, of))
            self.measured.count("wills_taken_over")
            if begun is None:
                self._go(other, of, heir_of=broker)
            else:
                self._repeat(other, of, *begun)
        for subscriber in [subscriber for subscriber, (at, _) in self.asking.items() if at == broker]:
            self.brokers[other].connect(subscriber, self.asking[subscriber][1])
        if self.brokers[broker].is_dead:
            return
        for subscriber in np.flatnonzero(table.connected & (self.traffic.subscribers.broker == broker)).tolist():
            connection = int(table.connection_number[subscriber])
            if self.rule == "claimed":
                call_at(self.clock, until_us, partial(self._hang_up, subscriber, connection))
            if not self._is_watcher(subscriber):
                self.measured.count("wills_taken_over")
                self._await(other, (subscriber, connection), self.wait_us)

    def _hang_up(self, subscriber: int, connection: int) -> None:
        """Close a connection of a broker that is not sure any more to be alone with it."""
        table = self.table
        if table.connected[subscriber] and table.connection_number[subscriber] == connection:
            self.measured.count("connections_closed_in_doubt")
            self.presence.connect_anew(subscriber, int(self.clock.now) + self.traffic.reconnect_us)
            self.presence.disconnect(subscriber)

    def _admit(self, subscriber: int, broker: int, clean_start: bool) -> bool:
        """Whether a client may connect now: if it has a Will that may not be sent any more once it is back, its broker
        claims that before it lets it in; if it knows that the Will is due, it publishes it. A client that asks at
        another broker meanwhile is let in there."""
        table = self.table
        connection = int(table.connection_number[subscriber]) - 1
        of = subscriber, connection
        if clean_start or connection < 0 or self._is_watcher(subscriber) or of in self.decided or of in self.over:
            self.asking.pop(subscriber, None)
            return True
        asked = self.asking[subscriber] = broker, clean_start
        asked_us = int(self.clock.now)

        def let_in() -> None:
            self.decided.add(of)
            if (
                self.asking.get(subscriber) is asked
                and table.connection_number[subscriber] == connection + 1
                and not table.connected[subscriber]
            ):
                self.brokers[broker].connect(subscriber, clean_start)

        def publish() -> None:
            self._publish(broker, of)
            let_in()

        def forget() -> None:
            self._forget(broker, of)
            let_in()

        def claimed() -> None:
            if is_due() or of in self.over:  # while the store was asked
                publish()
            else:
                let_in()

        def is_due() -> bool:
            # The last connection is over by then.
            return int(self.clock.now) >= self.told_us.get(of, asked_us) + self.wait_us

        if is_due():
            self.unfinished[broker, of] = None
            self._claim(broker, of, b"published", publish, forget)
        else:
            self._claim(broker, of, b"connected", claimed, let_in)
        return False

    def _claim(
        self,
        broker: int,
        of: Of,
        as_what: bytes,
        then: Callable[[], None],
        otherwise: Callable[[], None],
        heir_of: int | None = None,
    ) -> None:
        """Call ``then`` if nobody has claimed this Will before but the dead broker ``heir_of``, else ``otherwise``."""
        node = self._node(broker)
        self._claims += 1
        key = b"will:{%s}:%d" % (self.traffic.subscribers.name(of[0]), of[1])
        mine, inherited = (
            b"%s by %d, claim %d" % (as_what, broker, self._claims),
            b"%s by %d," % (as_what, -1 if heir_of is None else heir_of),
        )
        self._more_wait(broker, 1)

        def read(reply: Reply) -> bool | None:
            if isinstance(reply, ErrorReply):
                return None
            # It may have got through before, and the reply not.
            return reply is None or reply == mine or reply.startswith(inherited)

        def claimed(is_first: bool) -> None:
            self._more_wait(broker, -1)
            if is_first:
                then()
            else:
                self.measured.count("wills_claimed_before")
                otherwise()

        def given_up() -> None:
            self._more_wait(broker, -1)

        request = Request([b"SET", key, mine, b"NX", b"GET"], "claim")
        node.retrying.make(of[0], request, read, claimed, lambda: True, "claims_failed", given_up)

    def _more_wait(self, broker: int, more: int) -> None:
        self.messages.waiting[broker] = self.messages.waiting.get(broker, 0) + more

    def _node(self, broker: int) -> BrokerNode:
        node = self.brokers[broker]
        assert isinstance(node, BrokerNode), "brokers of one system are of one kind"
        return node

    # -- and how -------------------------------------------------------------------------------------------

    def _publish(self, broker: int, of: Of) -> None:
        """Publish it when the processor has time: a message like any other, whose publisher is the broker."""
        node, table, (subscriber, connection) = self._node(broker), self.table, of
        self.measured.count("wills_sent")
        if table.connected[subscriber] and table.connection_number[subscriber] > connection:
            self.measured.count("wills_of_connected_clients")
        if subscriber >= self.messages.count:
            return
        self._more_wait(broker, 1)
        self.unfinished[broker, of] = None

        def send() -> None:
            if node.is_dead:
                self._more_wait(broker, -1)
                if self.rule == "owner":
                    self.measured.count("wills_lost")
            else:
                begun = self.unfinished[broker, of] = self._recorded(broker, of)
                self._send(node, of, *begun)

        call_at(self.clock, node.burst(1, node.costs.ingest_us), send)

    def _recorded(self, broker: int, of: Of) -> tuple[int, dict[str, int]]:
        """The message, and what the history says of whose Will it is. It hears of it now."""
        messages, (subscriber, connection) = self.messages, of
        now = np.array([int(self.clock.now)])
        traffic = self.traffic
        assert isinstance(traffic.schedule, ScheduleWithWills), "as somebody watches Wills"
        publisher = np.array([messages.first + subscriber])
        traffic.publishers.broker[publisher] = broker  # by whose clock the message expires
        message = traffic.schedule.will(subscriber, int(now[0]))
        self.presence.introduce(publisher, np.maximum(now - 1, 0))
        self.measured.count("published")
        whose = {"subscriber": subscriber + traffic.schedule.count, "connection": connection + 1}
        self._record(message, whose, is_again=False)
        return message, whose

    def _record(self, message: int, whose: dict[str, int], is_again: bool) -> None:
        traffic = self.traffic
        publisher = np.array([message % traffic.schedule.count])
        self.recorder.add(
            EventKind.PUBLISH, np.array([int(self.clock.now)]), message=message, dup=int(is_again), **whose,
            **({} if traffic.expiry_us is None else {"expiry_interval_us": traffic.expiry_us}),
            **({} if traffic.retaining is None else {"retained": traffic.retaining.by_publisher[publisher]}),
        )  # fmt: skip

    def _repeat(self, broker: int, of: Of, message: int, whose: dict[str, int]) -> None:
        """Publish again what a broker had begun to publish and died: the same message, which may come twice."""
        self._more_wait(broker, 1)
        self.unfinished[broker, of] = message, whose
        self.measured.count("published_again")
        self._record(message, whose, is_again=True)
        self._send(self._node(broker), of, message, whose)

    def _send(self, node: BrokerNode, of: Of, message: int, whose: dict[str, int]) -> None:
        """Bring a message to `msg.all`."""
        traffic = self.traffic
        publisher = np.array([message % traffic.schedule.count])
        partition = self.kafka.all_partitions[int(self.kafka.all_partition_of[int(traffic.topic_of[publisher[0]])])]
        is_acknowledged = bool((np.asarray(traffic.qos.of_publishers(publisher)) > 0).all())

        def answered(records: Sequence[int], error: AppendError | None) -> None:
            if error is not None and self.rule != "owner" and not node.is_dead:
                self.measured.count("wills_sent_again")
                call_at(
                    self.clock,
                    float(self.clock.now + node.settings.pack_pause_us),
                    lambda: node.producer.send(partition, records, answered),
                )
                return
            self._more_wait(node.number, -1)
            if not node.is_dead:
                self._forget(node.number, of)
            if error is not None:
                if self.rule == "owner":
                    self.measured.count("wills_lost")
            elif is_acknowledged:
                self.recorder.add(
                    EventKind.PUBLISH_ACKNOWLEDGED, np.array([int(self.clock.now)]), message=message, **whose
                )

        node.producer.send(partition, [message], answered)


def publish_wills(world: World, rule: WillRule) -> None:
    """Publish, from now on, the Will Message of whoever loses its connection. Raises InputError where the store keeps
    no claims."""
    if world.traffic.wills is None:
        return
    if rule == "claimed" and not isinstance(world.storage.store, StoredSessions):
        raise InputError("wills=claimed: the store of this system keeps no claims; leave it out")
    Wills(world.traffic.wills, rule, world.traffic, world.kafka, world.presence, world.network)
