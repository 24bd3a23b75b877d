"""QoS 2 on both sides of a broker, where the store keeps what has been received and released: a crash ends neither
knowledge.

Towards a subscriber, after its PUBLISH: PUBREC → release script → PUBREL → PUBCOMP → remove script. Before the release
script has run the PUBLISH is sent again after a reconnect, afterwards the PUBREL is (MQTT-4.3.3).

From a publisher: MQTT counts what was received among the session (5.0, 4.1). A publisher has a queue of its own in the
store. A PUBLISH enters it before Kafka gets the message, and its PUBREL removes it; the token that the store gives it
is the message's *number*. It travels with the records of the message. A broker to which the publisher connects after a
crash reads the queue, so the same PUBLISH has the same number there; Kafka may hold the message twice then, and brokers
hand both over to the subscriber's session, which knows the second by (publisher, number).

A publisher's messages get their numbers and go to Kafka one by one, in order: a session that has the number 6 takes a 5
for a repetition.

A publisher that moves may leave bytes behind, in the sockets of its old broker or in calls of that broker, which come
to the store after its new broker has read the queue: the same PUBLISH gets a second number then. Where queues are
fenced the new broker opens the queue first, with the number of its connection, and from then on the store refuses what
comes with a lower one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import BEHIND_US, SUBSCRIBER, ConnectionTable, Deliveries
from orderlab.sim.mqtt.parts import Storage, Traffic
from orderlab.sim.mqtt.sessions import FIRST_EPOCH, Inbound
from orderlab.sim.servers.redis import RedisNode


class Qos2Receiver:
    """The publishers of one broker, as far as they use QoS 2."""

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        inbound: Inbound,
        nodes: Sequence[RedisNode],
        forward: Callable[[Ints], None],
    ) -> None:
        """``nodes``: those of the queues. ``forward`` gets messages that have a number."""
        self.node = node
        self.measured = node.measured
        self.traffic = traffic
        self.nodes = nodes
        self.inbound = inbound
        self.forward = forward
        self.held: dict[int, tuple[int, int]] = {}
        """By message that has no PUBREL: (its packet identifier in the queue, its number)."""
        self.releasing: dict[int, tuple[int, int]] = {}
        """The same, while their PUBRELs are not answered, as the queue may still have them."""
        self._lines: dict[int, deque[int]] = {}
        """Per publisher whose queue is being asked, the messages that wait for the answer."""
        self._saves = 0
        self._connections: dict[int, int] = {}
        """Where queues are fenced: by publisher that has come from another broker, the number of the connection over
        which it is here, or was."""

    def receive(self, messages: Iterable[int]) -> None:
        """Take in PUBLISH packets, which go on when they have a number."""
        goes = []
        for message in messages:
            line = self._lines.get(message % self.traffic.schedule.count)
            if line is None:
                self._lines[message % self.traffic.schedule.count] = deque()
                goes.append(message)
            else:
                line.append(message)
        self._number(goes)

    def resume(self, messages: Sequence[int], released: Sequence[int], publishers: Sequence[int] = ()) -> None:
        """Take over publishers who connect here, that may publish ``messages`` again, and send the PUBRELs of
        ``released`` again: first their queues are read. ``publishers``: all who connect, with nothing under way as
        well."""
        if self.inbound.is_fenced:
            self._resume_fenced(publishers, released)
            return
        known = dict.fromkeys(message % self.traffic.schedule.count for message in (*messages, *released))
        for publisher in known:
            self._lines.setdefault(publisher, deque())  # who was here before may have left something
        self._read({publisher: self._connection_of(publisher) for publisher in known}, released)

    def _resume_fenced(self, publishers: Sequence[int], released: Sequence[int]) -> None:
        """Open their queues before they are read. What an earlier connection to this broker left here is over with
        it."""
        count = self.traffic.schedule.count
        present = set(publishers)
        for kept in (self.held, self.releasing):
            for message in [message for message in kept if message % count in present]:
                del kept[message]
        for publisher in publishers:
            self._connections[publisher] = self.inbound.connect(publisher)
            self._lines[publisher] = deque()
        self._open({publisher: self._connections[publisher] for publisher in publishers}, released)

    def _open(self, connections: Mapping[int, int], released: Sequence[int]) -> None:
        """Raise the epochs of these publishers' queues to the numbers of their connections."""
        present = [
            publisher for publisher, connection in connections.items() if self._is_present(publisher, connection)
        ]
        store = self.inbound.store
        nodes = [self._node_of(publisher) for publisher in present]
        calls = [
            store.open(self._name(publisher), clean_start=False, epoch=connections[publisher]) for publisher in present
        ]

        def replied(replies: Sequence[Any]) -> None:
            if self.node.is_dead:
                return
            opened, failed = [], {}
            for publisher, reply in zip(present, replies, strict=True):
                if not self._is_present(publisher, connections[publisher]):
                    continue
                if store.was_opened(reply):
                    opened.append(publisher)
                elif store.was_answered(reply):
                    self._refused(publisher)
                else:
                    failed[publisher] = connections[publisher]
            if failed:
                self._later(lambda: self._open(failed, released))
            self._read({publisher: connections[publisher] for publisher in opened}, released)

        if present and not self.node.is_dead:
            self.node.driver.submit(nodes, calls, replied)

    def _is_present(self, publisher: int, connection: int) -> bool:
        """Whether that is the publisher's last connection here, as far as this broker knows."""
        return not self.inbound.is_fenced or self._connections.get(publisher, FIRST_EPOCH) == connection

    def _refused(self, publisher: int) -> None:
        """The publisher is at another broker: close its connection here, and what came over it is not received."""
        self.measured.count("receptions_refused", 1 + len(self._lines.pop(publisher, ())))

    @property
    def is_asking(self) -> bool:
        """Whether the store has not answered for something that has come."""
        return bool(self._lines)

    def forget(self) -> None:
        """Forget the publishers, who are at another broker."""
        self.held.clear()
        self.releasing.clear()

    def release(self, messages: Sequence[int]) -> None:
        """Take in PUBRELs: their packet identifiers are free again."""
        self.releasing.update((message, self.held.pop(message)) for message in messages if message in self.held)
        asked = [message for message in messages if message in self.releasing]
        nodes = [self._node_of(message) for message in asked]
        calls = [
            self.inbound.store.acknowledge(self._name(message), *self.releasing[message], self._connection_of(message))
            for message in asked
        ]

        def replied(replies: Sequence[Any]) -> None:
            if self.node.is_dead:
                return
            failed = [message for message, reply in zip(asked, replies, strict=True) if not isinstance(reply, int)]
            for message in set(asked) - set(failed):
                self.releasing.pop(message, None)  # its PUBREL may have come twice
            if failed:
                self._later(lambda: self.release(failed))

        if asked:
            self.node.driver.submit(nodes, calls, replied)

    # -- one question per publisher at a time --------------------------------------------------------------

    def _read(self, connections: Mapping[int, int], released: Sequence[int]) -> None:
        """Read the queues of these publishers, who came over these connections."""
        store = self.inbound.store
        publishers = [
            publisher for publisher, connection in connections.items() if self._is_present(publisher, connection)
        ]
        nodes = [self._node_of(publisher) for publisher in publishers]

        def replied(replies: Sequence[Any]) -> None:
            if self.node.is_dead:
                return
            back, failed = set(), {}
            for publisher, reply in zip(publishers, replies, strict=True):
                if not self._is_present(publisher, connections[publisher]):
                    continue
                found = store.fetched(reply)
                if found is None:
                    failed[publisher] = connections[publisher]
                    continue
                back.add(publisher)
                for message, packet_id, number, _ in found:
                    self.held[message] = packet_id, number
            if failed:
                self._later(lambda: self._read(failed, released))
            self.release([message for message in released if message % self.traffic.schedule.count in back])
            self._go_on(publisher for publisher in publishers if publisher in back)

        if publishers:
            self.node.driver.submit(nodes, [store.fetch(self._name(publisher)) for publisher in publishers], replied)

    def _number(self, messages: Sequence[int]) -> None:
        """Have the store number these messages, each of another publisher."""
        numbered = [message for message in messages if message in self.held]
        new = [message for message in messages if message not in self.held]
        if new:
            time_ms = self.node.now_ms()
            requests = []
            for message in new:
                self._saves += 1
                publisher = message % self.traffic.schedule.count
                topic = self.traffic.topics[int(self.traffic.topic_of[publisher])]
                connection = self._connection_of(message)
                call = self.inbound.store.save(
                    self._name(message), [(message, topic, time_ms)], self.node.number, self._saves, connection
                )
                requests.append((message, self._node_of(message), call, connection))
            # A call on the store, as a PUBACK makes one.
            done = self.node.burst(len(new), self.node.costs.acknowledge_us)
            call_at(self.node.env, done, lambda: self._save(requests))
        if numbered:
            self._forward(numbered)

    def _save(self, requests: Sequence[tuple[int, int, Any, int]]) -> None:
        """Make these calls (message, node, call, connection), and those again, as they are, that have no answer: the
        store knows them by their numbers."""
        store, count = self.inbound.store, self.traffic.schedule.count
        requests = [request for request in requests if self._is_present(request[0] % count, request[3])]

        def replied(replies: Sequence[Any]) -> None:
            if self.node.is_dead:
                return
            failed, numbered = [], []
            for request, reply in zip(requests, replies, strict=True):
                given = store.assigned(reply, 1)
                if not self._is_present(request[0] % count, request[3]):
                    # the publisher has been elsewhere since; if it was saved, the next who opens the queue finds it
                    continue
                if given is not None:
                    self.held[request[0]] = given[0]
                    numbered.append(request[0])
                elif self.inbound.is_fenced and store.was_closed(reply):
                    self._find_out(request)
                else:
                    failed.append(request)
            if failed:
                self.measured.count("receptions_failed", len(failed))
                self._later(lambda: self._save(failed))
            if numbered:
                self._forward(numbered)

        if not self.node.is_dead and requests:
            _, nodes, calls, _ = zip(*requests, strict=True)
            self.node.driver.submit(nodes, calls, replied)

    def _find_out(self, request: tuple[int, int, Any, int]) -> None:
        """Ask whether a queue that is closed has a later connection, or is lost, which ``save`` says with one word."""
        message, node, _, connection = request
        publisher, store = message % self.traffic.schedule.count, self.inbound.store
        question = store.newest(self._name(message))
        assert question is not None, "fenced queues tell their epochs"

        def replied(replies: Sequence[Any]) -> None:
            if self.node.is_dead or not self._is_present(publisher, connection):
                return
            epoch = store.told_epoch(replies[0])
            if epoch is not None and epoch > connection:
                self._refused(publisher)
            else:
                self.measured.count("receptions_failed")
                self._later(lambda: self._save([request]))

        self.node.driver.submit([node], [question], replied)

    def _forward(self, messages: Sequence[int]) -> None:
        number_of = self.inbound.number_of
        for message in messages:
            number = self.held[message][1]
            if number_of.setdefault(message, number) != number:
                self.measured.count("second_numbers")  # its records would not be known for the same
                number_of[message] = number
        self.forward(np.array(messages, np.int64))
        self._go_on(message % self.traffic.schedule.count for message in messages)

    def _go_on(self, publishers: Iterable[int]) -> None:
        """What waits at these publishers is next."""
        following = []
        for publisher in publishers:
            line = self._lines.get(publisher)
            if line:
                following.append(line.popleft())
            else:
                self._lines.pop(publisher, None)
        if following:
            self._number(following)

    def _later(self, again: Callable[[], None]) -> None:
        call_at(self.node.env, self.node.env.now + self.node.settings.pack_pause_us, again)

    def _connection_of(self, message: int) -> int:
        """The number of the connection over which the publisher is here."""
        return self._connections.get(message % self.traffic.schedule.count, FIRST_EPOCH)

    def _name(self, message: int) -> bytes:
        return self.traffic.publishers.name(message % self.traffic.schedule.count)

    def _node_of(self, message: int) -> int:
        return self.inbound.ensure_open(self.nodes, message % self.traffic.schedule.count, self._name(message))


class Completion(Protocol):
    """Where the handshake began and ends: the delivery."""

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Tell the history what happened to deliveries."""

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Take in the subscribers' PUBCOMPs."""

    def read_from_old(
        self, sent: Deliveries, connections: Ints, left_us: Ints, answered_us: Ints, sessions: Ints
    ) -> Iterator[tuple[Deliveries, Ints]]:
        """What is read over connections that have ended."""

    def completed_over_old(self, acknowledged: Deliveries, sessions: Ints) -> None:
        """Take in PUBCOMPs that came over those."""


class Qos2Sender:
    """The second half of the handshake at one broker."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, storage: Storage, table: ConnectionTable, completion: Completion
    ) -> None:
        self.node = node
        self.measured = node.measured
        self.traffic = traffic
        self.storage = storage
        self.table = table
        self.completion = completion

    def received(self, deliveries: Deliveries, received_us: Ints, connections: Ints) -> None:
        """Take in PUBRECs: the store keeps PUBRELs in place of the messages, and then they go out, unless the
        connections are lost by then: the next ones will fetch them."""
        node = self.node
        if node.is_dead or not len(deliveries):
            return
        self.completion.record(EventKind.RECEIVE, deliveries, received_us, -1)
        self.table.note_releasing(deliveries[:, SUBSCRIBER].tolist(), node.number)
        done = node.burst(len(deliveries), node.costs.acknowledge_us)
        call_at(node.env, done, lambda: self._release(deliveries, connections))

    def received_over_old(self, deliveries: Deliveries, sessions: Ints) -> None:
        """Run release scripts for PUBRECs that came over connections which have ended, and their sessions too. What is
        of the present session is taken for lost with its connection: the next one sends the PUBLISH again and gets
        another PUBREC."""
        over = self.are_over(deliveries, sessions)
        rows = list(zip(deliveries[over].tolist(), sessions[over].tolist(), strict=True))
        if not rows:
            return
        node = self.node
        name, release = self.traffic.subscribers.name, self.storage.store.release
        nodes = [self.storage.node_of[subscriber] for (_, subscriber, *_), _ in rows]
        calls = [
            release(name(subscriber), packet_id, token, session) for (_, subscriber, packet_id, token), session in rows
        ]

        is_other = [subscriber not in self.table.beginning for (_, subscriber, *_), _ in rows]

        def released(replies: Sequence[Any]) -> None:
            others = sum(reply == 1 and other for reply, other in zip(replies, is_other, strict=True))
            if others:
                self.measured.count("releases_of_other_messages", others)

        call_at(
            node.env,
            node.burst(len(rows), node.costs.acknowledge_us),
            lambda: node.driver.submit(nodes, calls, released),
        )

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
        """Run release scripts, and again those that fail: a PUBREL before the store knows of it may be followed by the
        PUBLISH."""
        node = self.node
        release, name, session = self.storage.store.release, self.traffic.subscribers.name, self.table.session_number
        requested = session[deliveries[:, SUBSCRIBER]]
        nodes = [self.storage.node_of[subscriber] for subscriber in deliveries[:, SUBSCRIBER].tolist()]
        calls = [
            release(name(subscriber), packet_id, token, int(session[subscriber]))
            for _, subscriber, packet_id, token in deliveries.tolist()
        ]

        def released(replies: Sequence[Any]) -> None:
            absent = replies.count(0)
            if absent:
                self.measured.count("releases_of_nothing", absent)
            failed = np.array([not isinstance(reply, int) for reply in replies], np.bool_)
            present = self.table.connection_number[deliveries[:, SUBSCRIBER]] == connections
            self.send(deliveries[present & ~failed])
            # As published, a release is given up with its connection. A PUBREC that is known must not be forgotten: the
            # PUBLISH would go again.
            again = failed & (present | (self.node.settings.hands_over_first & ~self.are_over(deliveries, requested)))
            self.table.note_released(deliveries[~again, SUBSCRIBER].tolist(), node.number)
            if again.any() and not node.is_dead:
                self.measured.count("releases_failed", int(again.sum()))
                pause_us = node.settings.pack_pause_us
                call_at(node.env, node.env.now + pause_us, lambda: self._release(deliveries[again], connections[again]))

        node.driver.submit(nodes, calls, released)

    def are_over(self, deliveries: Deliveries, sessions: Ints) -> npt.NDArray[np.bool_]:
        """Whose sessions have ended since: nothing of them is to be kept."""
        subscribers = deliveries[:, SUBSCRIBER]
        return ~self.table.exists[subscribers] | (self.table.session_number[subscribers] > sessions)

    def send(self, deliveries: Deliveries) -> None:
        """Send PUBRELs to subscribers that are connected here, and take in their PUBCOMPs."""
        node, table = self.node, self.table
        if node.is_dead or not len(deliveries):
            return
        if table.links.dead_since:
            deliveries = deliveries[~table.links.are_dead(deliveries[:, SUBSCRIBER])]
            if not len(deliveries):
                return
        subscribers = deliveries[:, SUBSCRIBER]
        latency, connections = self.traffic.subscribers.latency_us[subscribers], table.connection_number[subscribers]
        done = int(node.burst(len(deliveries), node.costs.deliver_us))
        arrived = table.in_order(subscribers, done + latency)
        answered = table.answers_in_order(subscribers, arrived + self.traffic.think_us + latency)
        behind = answered > answered.min() + BEHIND_US  # each is over at an instant of its own
        for row in np.flatnonzero(behind):
            self._arrive(
                deliveries[row : row + 1], connections[row : row + 1], arrived[row : row + 1], answered[row : row + 1]
            )
        self._arrive(deliveries[~behind], connections[~behind], arrived[~behind], answered[~behind])

    def _arrive(self, deliveries: Deliveries, connections: Ints, arrived: Ints, answered: Ints) -> None:
        """Let PUBRELs reach their subscribers, and the PUBCOMPs come back."""
        node, table, subscribers = self.node, self.table, deliveries[:, SUBSCRIBER]
        number = table.note_sent(subscribers, connections, answered)
        sessions = table.session_number[subscribers]

        def over() -> None:
            del table.on_the_way[number]
            there = table.got_through(subscribers, connections, arrived)
            back = table.got_through(subscribers, connections, answered)
            self.completion.record(EventKind.RELEASE, deliveries[there], arrived[there], -1)
            self.completion.completed(deliveries[back], answered[back], connections[back])
            for rows, whose in self.completion.read_from_old(
                deliveries, connections, arrived + self.traffic.think_us, answered, sessions
            ):
                over = self.are_over(rows, whose)  # else the PUBREL goes again
                self.completion.completed_over_old(rows[over], whose[over])

        call_at(node.env, float(np.max(answered)), over)
