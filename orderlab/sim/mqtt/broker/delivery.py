"""From the broker to subscribers: backlog and new messages go out in order, answers come back, remove scripts run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.replay_filter import Found
from orderlab.sim.mqtt.broker.retaining import are_retained
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import NO_DELIVERIES, Deliveries

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker

RECORDED_WITHIN_US = 100_000
"""After it has arrived: the recorder waits for no row for long."""
_NOTHING = (-2, 0)
Bools = npt.NDArray[np.bool_]


class Delivery:
    """The subscribers' side of one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.sessions = broker.fabric.sessions

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """A subscriber connects here. With Clean Start 1, or without a session, it begins one. Otherwise its backlog is
        fetched and sent, then what is new."""
        fabric, sessions, broker = self.fabric, self.sessions, self.broker
        fabric.subscribers.broker[subscriber] = broker.number
        sessions.connected[subscriber] = True
        if clean_start or not sessions.exists[subscriber]:
            broker.lifetimes.begin(subscriber)
            return
        sessions.fetching.add(subscriber)
        connection = sessions.connections[subscriber]
        self.record_connect(subscriber)
        if fabric.store.needs_open:
            fabric.ensure_open(subscriber)
        name, store, make = fabric.subscribers.name(subscriber), fabric.store, broker.repeated_calls.make
        asks_newest, newest = store.newest(name), 0

        def is_here() -> bool:
            return bool(sessions.connections[subscriber] == connection)

        def fetch(told: int = 0) -> None:
            nonlocal newest
            newest = told
            make(subscriber, store.fetch(name), store.fetched, fetched, is_here, "fetches_failed")

        def fetched(found: Sequence[Found]) -> None:
            released = [(subscriber, packet_id, token) for _, packet_id, token, is_pubrel in found if is_pubrel]
            backlog = [(number, subscriber, packet_id, token) for number, packet_id, token, rel in found if not rel]
            self._resend_pubrels(released)
            if backlog:
                self.deliver(np.array(backlog, np.int64), is_backlog=True)
            self._caught_up(subscriber, found, newest=newest)
            if fabric.resubscribes:
                broker.subscribing.subscribe(subscriber, is_new=False)

        if fabric.hands_over_first and asks_newest is not None:
            make(subscriber, asks_newest, store.told_newest, fetch, is_here, "fetches_failed")
        else:
            fetch()

    def _caught_up(
        self, subscriber: int, found: Sequence[Found], waiting: Deliveries = NO_DELIVERIES, newest: int = 0
    ) -> None:
        """What was ``found`` in the store has been sent, but for ``waiting``; what had to wait for it goes out behind. ``newest``:
        the last token that the store had given out before it was read."""
        sessions, read = self.sessions, self.fabric.read
        sessions.fetching.discard(subscriber)
        read.note(subscriber, found, newest)
        held_back = read.beyond(np.concatenate((NO_DELIVERIES, *sessions.held_back.pop(subscriber, ()))))
        if len(waiting) or len(held_back):
            self.deliver(np.concatenate((waiting, held_back)), is_pushed=False)
        if subscriber in sessions.to_wake:
            sessions.to_wake.discard(subscriber)
            self.wake(subscriber)

    def record_connect(self, subscriber: int) -> None:
        """The history hears of a connection to this broker."""
        now, code = np.array([int(self.broker.env.now)]), np.array([subscriber + self.fabric.schedule.count])
        self.fabric.recorder.add(
            EventKind.CONNECT, now, subscriber=code, node=self.broker.number, **self.fabric.windows.columns
        )

    def _resend_pubrels(self, released: Sequence[tuple[int, int, int]]) -> None:
        """Of a backlog; which message a PUBREL belongs to, the store need not know any more."""
        rows = []
        for subscriber, packet_id, token in released:
            known = self.sessions.in_flight.setdefault(subscriber << 16 | packet_id, (-1, token))
            rows.append((known[0], subscriber, packet_id, token))
            self.fabric.windows.occupy(subscriber)
        if rows:
            self.fabric.count("pubrels_again", len(rows))
            self.broker.releasing.send(np.array(rows, np.int64))

    def wake(self, subscriber: int) -> None:
        """Something waits in the store that may never have been sent here: read the session, send what is not in flight, and
        until then nothing that is new."""
        fabric, sessions, broker = self.fabric, self.sessions, self.broker
        if broker.is_dead or not sessions.connected[subscriber] or not sessions.exists[subscriber]:
            return  # whoever is about to connect reads the session anyway
        if subscriber in sessions.fetching:  # what is being read may be older than the save
            sessions.to_wake.add(subscriber)
            return
        connection = sessions.connections[subscriber]
        fabric.count("sessions_woken")
        sessions.fetching.add(subscriber)
        completed = sessions.completed_meanwhile.setdefault(subscriber, set())
        completed |= sessions.removing.get(subscriber, set())
        fetch = fabric.store.fetch(fabric.subscribers.name(subscriber))

        def is_here() -> bool:
            return bool(sessions.connections[subscriber] == connection)

        def over() -> None:
            if sessions.completed_meanwhile.get(subscriber) is completed:
                del sessions.completed_meanwhile[subscriber]

        def fetched(found: Sequence[Found]) -> None:
            over()
            known = completed | fabric.windows.waiting(subscriber)
            waiting = [
                (message, subscriber, packet_id, token)
                for message, packet_id, token, is_pubrel in found
                if not is_pubrel and (message, packet_id) not in known
                and sessions.in_flight.get(subscriber << 16 | packet_id) != (message, token)  # or it waits for room, and goes again
            ]
            self._caught_up(subscriber, found, np.array(waiting, np.int64).reshape(-1, 4))

        broker.repeated_calls.make(subscriber, fetch, fabric.store.fetched, fetched, is_here, "fetches_failed", over)

    def deliver(self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True) -> None:
        """Write PUBLISH packets to the sockets of those who are connected here. The others fetch them from the store.
        ``is_pushed``: these come from who saved them, and may have been read from the store meanwhile."""
        sessions = self.sessions
        subscribers = deliveries[:, 1]
        here = sessions.connected[subscribers] & (self.fabric.subscribers.broker[subscribers] == self.broker.number)
        if not here.all():
            deliveries = deliveries[here]
        if sessions.beginning:
            deliveries = deliveries[~np.isin(deliveries[:, 1], list(sessions.beginning))]
        if sessions.may_end and self.fabric.store.needs_open and not is_backlog:
            deliveries = deliveries[sessions.sessions_of(deliveries) == sessions.number[deliveries[:, 1]]]
        if is_pushed and not is_backlog:
            deliveries = self.fabric.read.beyond(deliveries)
        if sessions.fetching and not is_backlog:
            deliveries = self._hold_back(deliveries)
        if self.fabric.hands_over_first and self.fabric.read.has_tokens and not is_backlog:
            in_sequence, late = self.fabric.read.in_sequence(deliveries)
            if is_pushed:
                deliveries = in_sequence
                self._find_out(late)
        sole = self.fabric.qos.sole
        if not sole:  # QoS 0, or some of it
            unstored = deliveries[:, 2] < 0
            self._write_unstored(deliveries[unstored])
            deliveries = deliveries[~unstored]
        if self.fabric.windows.is_limited:
            deliveries = self.fabric.windows.admit(deliveries, is_backlog)
        self._transmit(deliveries, is_backlog)

    def _write_unstored(self, deliveries: Deliveries) -> None:
        if self.fabric.expiry_us is not None:
            deliveries = deliveries[~self._expired(deliveries)]
        self._write(deliveries, np.zeros(len(deliveries), np.int64))

    def _find_out(self, late: Deliveries) -> None:
        """These were pushed behind newer ones. Those that are not in flight are completed, or were never sent: the store knows."""
        in_flight = self.sessions.in_flight
        for message, subscriber, packet_id, token in late.tolist():
            if in_flight.get(subscriber << 16 | packet_id) != (message, token):
                self.fabric.count("pushes_behind_newer_ones")
                self.wake(subscriber)

    def _transmit(self, deliveries: Deliveries, is_backlog: bool) -> None:
        """Number and write what needs an acknowledgement."""
        sessions = self.sessions
        message, subscriber, packet_id, token = deliveries.T
        keys = (subscriber << 16 | packet_id).tolist()
        values = list(zip(message.tolist(), token.tolist(), strict=True))
        before = list(map(sessions.in_flight.get, keys))
        repeated = np.zeros(len(keys), np.bool_)
        if before.count(None) < len(keys):
            repeated[:] = [known == new for known, new in zip(before, values, strict=True)]
        if len(set(keys)) < len(keys):  # two copies came together: the second repeats the first
            first = {pair: place for place, pair in reversed(list(enumerate(zip(keys, values, strict=True))))}
            again = [first[pair] < place for place, pair in enumerate(zip(keys, values, strict=True))]
            repeated |= np.array(again, np.bool_)
        sessions.in_flight.update(zip(keys, values, strict=True))
        if repeated.any() and not is_backlog:  # those went out with the backlog
            self._make_room(deliveries[repeated, 1])
            deliveries, repeated = deliveries[~repeated], repeated[~repeated]
        if self.fabric.expiry_us is not None:
            deliveries, repeated = self._without_expired(deliveries, repeated)
        self._write(deliveries, repeated.astype(np.int64))

    def _hold_back(self, deliveries: Deliveries) -> Deliveries:
        """What need not wait for a backlog."""
        sessions = self.sessions
        waits = np.isin(deliveries[:, 1], list(sessions.fetching))
        for delivery in deliveries[waits]:
            sessions.held_back.setdefault(int(delivery[1]), []).append(delivery[np.newaxis])
        return deliveries[~waits]

    def _without_expired(self, deliveries: Deliveries, repeated: Bools) -> tuple[Deliveries, Bools]:
        """What has not expired. What was sent before goes again all the same (MQTT-3.3.2-5)."""
        expired = np.zeros(len(deliveries), np.bool_)
        expired[~repeated] = self._expired(deliveries[~repeated])
        if expired.any():
            for _, subscriber, packet_id, _ in deliveries[expired].tolist():
                self.sessions.in_flight.pop(subscriber << 16 | packet_id, None)
            self._make_room(deliveries[expired, 1])
        return deliveries[~expired], repeated[~expired]

    def _expired(self, deliveries: Deliveries) -> Bools:
        """What has expired by this broker's clock, as the clock of the broker that took it in stamped it. The history hears of it."""
        fabric = self.fabric
        assert fabric.expiry_us is not None
        message, _ = self._published(deliveries[:, 0])
        publisher = message % fabric.schedule.count
        ahead = np.array([broker.clock_skew_us for broker in fabric.brokers])
        stamped = fabric.schedule.published_us(message) + ahead[fabric.publishers.broker[publisher]]
        expired: Bools = int(self.broker.env.now) + self.broker.clock_skew_us >= stamped + fabric.expiry_us
        if expired.any():
            fabric.count("expired", int(expired.sum()))
            self.record(EventKind.EXPIRE, deliveries[expired], np.full(int(expired.sum()), int(self.broker.env.now)), -1)
        return expired

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        if not len(sent):
            return
        fabric = self.fabric
        subscribers = sent[:, 1]
        latency = fabric.subscribers.latency_us[subscribers]
        arrived = self.sessions.in_order(subscribers, self._written_us(len(sent)) + latency)
        slow = fabric.reading.are_slow(subscribers) if fabric.reading else None
        if slow is None or not slow.any():
            self._arrive(sent, dup, arrived)
            return
        self._arrive(sent[~slow], dup[~slow], arrived[~slow])
        read = fabric.reading.read_us(subscribers[slow], arrived[slow])
        for place, row in enumerate(np.flatnonzero(slow)):  # each is over at an instant of its own
            self._arrive(sent[row : row + 1], dup[row : row + 1], read[place : place + 1])

    def _written_us(self, count: int) -> Ints | int:
        """When packets that a thread begins to write now are in their sockets: all of them, or each."""
        return int(self.broker.burst(count, self.broker.costs.deliver_us))

    def _answered_us(self, sent: Deliveries, arrived: Ints) -> Ints:
        """When the answers to packets that arrive then are here."""
        return arrived + self.fabric.think_us + self.fabric.subscribers.latency_us[sent[:, 1]]

    def _arrive(self, sent: Deliveries, dup: Ints, arrived: Ints) -> None:
        """Packets reach their subscribers at these instants, and the PUBACKs come back."""
        if not len(sent):
            return
        sessions, subscribers = self.sessions, sent[:, 1]
        answered = self._answered_us(sent, arrived)
        losses, connections = sessions.losses, sessions.connections[subscribers]
        number = sessions.note_sent(subscribers, connections)

        def reached() -> None:
            there = slice(None) if sessions.losses == losses else sessions.got_through(subscribers, connections, arrived)
            self.record(EventKind.DELIVER, sent[there], arrived[there], dup[there])

        def over() -> None:
            del sessions.on_the_way[number]
            back = slice(None) if sessions.losses == losses else sessions.got_through(subscribers, connections, answered)
            self._answer(sent[back], answered[back], connections[back])

        def both() -> None:
            reached()
            over()

        last, end = int(arrived.max()), float(answered.max())
        if end - last > RECORDED_WITHIN_US:
            call_at(self.broker.env, last, reached)
            call_at(self.broker.env, end, over)
        else:  # one event for both
            call_at(self.broker.env, end, both)

    def _codes(self, subscribers: Ints) -> Ints:
        """As the history names them."""
        return subscribers + self.fabric.schedule.count

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        fabric = self.fabric
        if not len(deliveries):
            return
        (message, flags), count = self._published(deliveries[:, 0]), fabric.schedule.count
        publisher = message % count
        fabric.recorder.add(
            kind, instants, publisher=publisher, topic=fabric.topic_of[publisher], qos=fabric.qos.of_publishers(publisher),
            subscriber=self._codes(deliveries[:, 1]), sequence=message // count,
            packet_id=deliveries[:, 2], dup=dup, delivered_qos=fabric.qos.of_deliveries(publisher, deliveries[:, 1]),
            node=self.broker.number,
            session=self.sessions.sessions_of(deliveries) if self.sessions.may_end else -1, **flags,
        )  # fmt: skip
        if kind is EventKind.DELIVER:
            if fabric.retaining is not None:
                live = ~are_retained(deliveries[:, 0])
                fabric.count("delivered_retained", len(live) - int(live.sum()))
                message, instants = message[live], instants[live]
            fabric.count("delivered", len(message))
            published = fabric.schedule.published_us(message)
            fabric.delivery_latency.add(published, instants - published)

    def _published(self, copied: Ints) -> tuple[Ints, dict[str, Ints]]:
        """The messages that copies are of, and what the history says of their RETAIN flags."""
        retaining = self.fabric.retaining
        return (copied, {}) if retaining is None else retaining.seen(copied)

    def _answer(self, sent: Deliveries, answered: Ints, connections: Ints) -> None:
        """What subscribers say to PUBLISH packets: nothing, PUBACK, or PUBREC."""
        fabric = self.fabric
        qos = fabric.qos.sole
        if qos is None:
            message, _ = self._published(sent[:, 0])
            each = fabric.qos.of_deliveries(message % fabric.schedule.count, sent[:, 1])
            one, two = each == 1, each == 2
            self.completed(sent[one], answered[one], connections[one])
            self.broker.releasing.received(sent[two], answered[two], connections[two])
        elif qos == 1:
            self.completed(sent, answered, connections)
        elif qos == 2:
            self.broker.releasing.received(sent, answered, connections)

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """The subscribers' PUBACKs or PUBCOMPs are here, over ``connections``: remove scripts."""
        broker, fabric = self.broker, self.fabric
        if broker.is_dead or not len(acknowledged):
            return
        self.record(EventKind.ACKNOWLEDGE, acknowledged, answered, -1)
        done = broker.burst(len(acknowledged), broker.costs.acknowledge_us)
        in_flight, acknowledge, name = self.sessions.in_flight, fabric.store.acknowledge, fabric.subscribers.name
        node_of = fabric.node_of
        found_here = [
            (message, subscriber, packet_id, found[1], session)
            for (message, subscriber, packet_id, _), session in zip(
                acknowledged.tolist(), self.sessions.number[acknowledged[:, 1]].tolist(), strict=True
            )
            if (found := in_flight.get(subscriber << 16 | packet_id, _NOTHING))[0] == message  # no later session's
            and in_flight.pop(subscriber << 16 | packet_id)
        ]
        self.sessions.complete(acknowledged)
        requests = [
            (node_of[subscriber], acknowledge(name(subscriber), packet_id, token, session))
            for _, subscriber, packet_id, token, session in found_here
        ]

        if fabric.store.needs_open:
            self.sessions.note_removing(found_here)

        def removed(replies: Sequence[Any]) -> None:
            if fabric.store.needs_open:
                self.sessions.note_removed(found_here)
            if fabric.trims.limit is not None:
                for (message, subscriber, packet_id, *_), reply in zip(found_here, replies, strict=True):
                    if type(reply) is int:
                        fabric.trims.removed(subscriber, (message, packet_id))
            self._removed(replies)

        if requests:
            call_at(broker.env, done, lambda: broker.driver.submit(requests, removed))
        self._make_room(acknowledged[self.sessions.connections[acknowledged[:, 1]] == connections, 1])

    def _make_room(self, subscribers: Ints) -> None:
        """One packet of each of these is acknowledged on its present connection: what waited for that goes out."""
        windows = self.fabric.windows
        if not windows.is_limited:
            return
        admitted = [found for subscriber in subscribers.tolist() if (found := windows.acknowledged(subscriber))]
        for is_backlog in (True, False):  # the backlog of a subscriber comes before what is new
            rows = [row for row, of_backlog in admitted if of_backlog is is_backlog]
            if rows:
                self._transmit(np.array(rows, np.int64), is_backlog)

    def _removed(self, replies: Sequence[Any]) -> None:
        absent = len(replies) - replies.count(1)
        if absent:
            self.fabric.count("removes_of_nothing", absent)
