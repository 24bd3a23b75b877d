"""From the broker to subscribers: backlog and new messages go out in order, answers come back, remove scripts run.

A delivery passes filters in `deliver`, whose order matters; what is left is numbered in flight (`_transmit`), written
(`_write`), arrives and is answered (`_arrive`), and ends in the store (`completed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.packs import all_of, any_of
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.qos2 import Qos2Sender
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import (
    BEHIND_US,
    MESSAGE,
    NO_DELIVERIES,
    NO_SESSION,
    PACKET_ID,
    SUBSCRIBER,
    Deliveries,
    StoredMessage,
    as_deliveries,
    in_flight_key,
)
from orderlab.sim.mqtt.links import SocketBuffers
from orderlab.sim.mqtt.topics import are_retained

RECORDED_WITHIN_US = 100_000
"""After it has arrived: the recorder waits for no row for long."""
_NOTHING = (-2, 0)
NO_SESSIONS = np.empty(0, np.int64)
"""Where all brokers know at once who is connected where: nothing comes over an old connection."""
Bools = npt.NDArray[np.bool_]


class Acknowledged(NamedTuple):
    """What subscribers have acknowledged, by column."""

    messages: list[int]
    subscribers: list[int]
    packet_ids: list[int]
    tokens: list[int]
    sessions: list[int]


class Delivery:
    """The subscribers' side of one broker."""

    answers_one_by_one = False
    """Whether what arrives at a client at one instant is answered at instants of its own."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.world = node.world
        self.table = node.world.delivery.connections
        self.qos2_sender = self._qos2_sender()

    def _qos2_sender(self) -> Qos2Sender:
        """The second half of the handshake with QoS 2."""
        return Qos2Sender(self.node, self)

    # -- what waits in the store ---------------------------------------------------------------------------

    def send_backlog(self, subscriber: int, then: Callable[[], None]) -> None:
        """Fetch and send what waits for a subscriber that has just connected here, then what is new, and call
        ``then``."""
        world, table = self.world, self.table
        table.fetching.add(subscriber)
        connection = table.connection_number[subscriber]
        self.record_connect(subscriber)
        if world.storage.store.opens_sessions:
            world.ensure_open(subscriber)
        name, store, make = world.traffic.subscribers.name(subscriber), world.storage.store, self.node.retrying.make
        asks_newest, newest = store.newest(name), 0

        def is_here() -> bool:
            return bool(table.connection_number[subscriber] == connection)

        def fetch(last_token: int = 0) -> None:
            nonlocal newest
            newest = last_token
            make(subscriber, store.fetch(name), store.fetched, fetched, is_here, "fetches_failed")

        def fetched(found: Sequence[StoredMessage]) -> None:
            released = [(subscriber, packet_id, token) for _, packet_id, token, is_pubrel in found if is_pubrel]
            backlog = [(number, subscriber, packet_id, token) for number, packet_id, token, rel in found if not rel]
            self._resend_pubrels(released)  # before the PUBLISH packets: their exchanges are further on
            if backlog:
                self.deliver(as_deliveries(backlog), is_backlog=True)
            self._caught_up(subscriber, found, newest=newest)
            then()

        def ask() -> None:
            if self.node.is_dead or not is_here():
                return
            # asked before the fetch: what is saved in between has a higher token, and may be pushed
            if world.hands_over_first and asks_newest is not None:
                make(subscriber, asks_newest, store.told_newest, fetch, is_here, "fetches_failed")
            else:
                fetch()

        # A PUBLISH whose PUBREC has come is acknowledged and must not go again (MQTT-4.3.3-3, MQTT-4.4.0-1): whoever
        # got the PUBREC finishes before the session is read, as a broker does that is asked to give a client up.
        table.when_released(subscriber, ask)

    def _caught_up(
        self, subscriber: int, found: Sequence[StoredMessage], waiting: Deliveries = NO_DELIVERIES, newest: int = 0
    ) -> None:
        """What was ``found`` in the store has been sent, but for ``waiting``; what had to wait for it goes out behind.
        ``newest``: the last token that the store had given out before it was read."""
        table, replayed = self.table, self.world.delivery.replayed
        table.fetching.discard(subscriber)
        replayed.note(subscriber, found, newest)
        held_back = replayed.beyond(np.concatenate((NO_DELIVERIES, *table.held_back.pop(subscriber, ()))))
        if len(waiting) or len(held_back):
            self.deliver(np.concatenate((waiting, held_back)), is_pushed=False)
        if subscriber in table.to_wake:
            table.to_wake.discard(subscriber)
            self.wake(subscriber)

    def _resend_pubrels(self, released: Sequence[tuple[int, int, int]]) -> None:
        """Send the PUBRELs of a backlog; which message one belongs to, the store need not know any more."""
        rows = []
        for subscriber, packet_id, token in released:
            message, _ = self.table.in_flight.setdefault(in_flight_key(subscriber, packet_id), (-1, token))
            rows.append((message, subscriber, packet_id, token))
            self.world.delivery.windows.occupy(subscriber)
        if rows:
            self.world.count("pubrels_again", len(rows))
            self.qos2_sender.send(as_deliveries(rows))

    def wake(self, subscriber: int) -> None:
        """Read the session of a subscriber for whom something waits in the store that may never have been sent here;
        send what is not in flight, and until then nothing that is new."""
        world, table, node = self.world, self.table, self.node
        is_here = table.connected[subscriber] and world.traffic.subscribers.broker[subscriber] == node.number
        if node.is_dead or not is_here or not table.exists[subscriber]:
            return  # whoever is about to connect reads the session anyway
        if subscriber in table.fetching:  # what is being read may be older than the save
            table.to_wake.add(subscriber)
            return
        connection = table.connection_number[subscriber]
        world.count("sessions_woken")
        table.fetching.add(subscriber)
        completed = table.completed_meanwhile.setdefault(subscriber, set())
        completed |= table.removing.get(subscriber, set())
        fetch = world.storage.store.fetch(world.traffic.subscribers.name(subscriber))

        def is_still_here() -> bool:
            return bool(table.connection_number[subscriber] == connection)

        def over() -> None:
            if table.completed_meanwhile.get(subscriber) is completed:
                del table.completed_meanwhile[subscriber]

        def fetched(found: Sequence[StoredMessage]) -> None:
            over()
            known = completed | world.delivery.windows.waiting(subscriber)
            waiting = [
                (message, subscriber, packet_id, token)
                for message, packet_id, token, is_pubrel in found
                if not is_pubrel
                and (message, packet_id) not in known
                and not self._is_sent(subscriber, packet_id, (message, token))  # or it waits for room, and goes again
            ]
            self._caught_up(subscriber, found, as_deliveries(waiting))

        node.retrying.make(
            subscriber, fetch, world.storage.store.fetched, fetched, is_still_here, "fetches_failed", over
        )

    def _is_sent(self, subscriber: int, packet_id: int, what: tuple[int, int]) -> bool:
        key, sockets = in_flight_key(subscriber, packet_id), self.world.traffic.sockets
        return self.table.in_flight.get(key) == what and not (sockets is not None and key in sockets.withheld)

    # -- on the way out ------------------------------------------------------------------------------------

    def deliver(
        self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True, sessions: Ints | None = None
    ) -> None:
        """Write PUBLISH packets to the sockets of those who are connected here. The others fetch them from the store.
        ``is_pushed``: these come from who saved them, and may have been read from the store meanwhile. ``sessions``:
        for which they were routed, if that came along; what was read and acknowledged meanwhile, and its session over,
        nobody else knows."""
        table, world = self.table, self.world
        if world.measured.on_way is not None:
            world.measured.on_way("broker", self.node.number, deliveries)
        if sessions is not None:
            if world.storage.store.refuses_closed:
                deliveries = deliveries[
                    (sessions == NO_SESSION) | (sessions == table.session_number[deliveries[:, SUBSCRIBER]])
                ]
            else:
                table.note_pushed(deliveries, sessions)
        # First whose they are: filters below keep books per connection, and must hear of no other's.
        subscribers = deliveries[:, SUBSCRIBER]
        here = table.connected[subscribers] & (world.traffic.subscribers.broker[subscribers] == self.node.number)
        if not all_of(here):
            deliveries = deliveries[here]
        if table.beginning:  # the store still has the old session: what comes now was saved for that one
            deliveries = deliveries[~np.isin(deliveries[:, SUBSCRIBER], list(table.beginning))]
        if (
            table.may_end and world.storage.store.refuses_closed and not is_backlog
        ):  # a backlog was read from the present session
            deliveries = deliveries[table.sessions_of(deliveries) == table.session_number[deliveries[:, SUBSCRIBER]]]
        # What was read from the store went out before; the same, pushed, would go twice, and what is older would
        # overtake.
        if is_pushed and not is_backlog:
            deliveries = world.delivery.replayed.beyond(deliveries)
        # After that filter, not before: what is held back passes it again, with what the fetch under way has found
        # (`_caught_up`).
        if table.fetching and not is_backlog:
            deliveries = self._hold_back(deliveries)
        # After the holding back, so that only what is really sent moves the sequence on.
        if world.hands_over_first and world.delivery.replayed.has_tokens and not is_backlog:
            in_sequence, late = world.delivery.replayed.in_sequence(deliveries)
            if is_pushed:
                deliveries = in_sequence
                self._find_out(late)
                if (
                    len(late) and table.fetching
                ):  # what came with them is newer than what is read now, and must not overtake it
                    deliveries = self._hold_back(deliveries)
        if not world.traffic.qos.sole:  # QoS 0, or some of it: no window, no identifier
            unstored = deliveries[:, PACKET_ID] < 0
            self._write_unstored(deliveries[unstored])
            deliveries = deliveries[~unstored]
        # The window comes last: what it admits is counted as sent until its answer comes, so nothing may drop it
        # silently (`_transmit` gives the room of repetitions and of what has expired back).
        if world.delivery.windows.is_limited:
            deliveries = world.delivery.windows.admit(deliveries, is_backlog)
        self._transmit(deliveries, is_backlog)

    def _write_unstored(self, deliveries: Deliveries) -> None:
        if self.world.traffic.expiry_us is not None:
            deliveries = deliveries[~self._expired(deliveries)]
        self._write(deliveries, np.zeros(len(deliveries), np.int64))

    def _find_out(self, late: Deliveries) -> None:
        """Ask the store about what was pushed behind newer messages: what is not in flight is completed, or was never
        sent."""
        in_flight = self.table.in_flight
        for message, subscriber, packet_id, token in late.tolist():
            if in_flight.get(in_flight_key(subscriber, packet_id)) != (message, token):
                self.world.count("pushes_behind_newer_ones")
                self.wake(subscriber)

    def _hold_back(self, deliveries: Deliveries) -> Deliveries:
        """Those that need not wait for a backlog."""
        table = self.table
        waits = np.isin(deliveries[:, SUBSCRIBER], list(table.fetching))
        for delivery in deliveries[waits]:
            table.held_back.setdefault(int(delivery[SUBSCRIBER]), []).append(delivery[np.newaxis])
        return deliveries[~waits]

    def _transmit(self, deliveries: Deliveries, is_backlog: bool) -> None:
        """Number and write what needs an acknowledgement."""
        table = self.table
        message, subscriber, packet_id, token = deliveries.T
        keys = in_flight_key(subscriber, packet_id).tolist()
        values = list(zip(message.tolist(), token.tolist(), strict=True))
        before = list(map(table.in_flight.get, keys))
        repeated = np.zeros(len(keys), np.bool_)
        if before.count(None) < len(keys):
            repeated[:] = [known == new for known, new in zip(before, values, strict=True)]
        if len(set(keys)) < len(keys):  # two copies came together: the second repeats the first
            first = {pair: place for place, pair in reversed(list(enumerate(zip(keys, values, strict=True))))}
            again = [first[pair] < place for place, pair in enumerate(zip(keys, values, strict=True))]
            repeated |= np.array(again, np.bool_)
        table.in_flight.update(zip(keys, values, strict=True))
        if any_of(repeated) and not is_backlog:  # those went out with the backlog
            dropped = repeated
            if self.world.traffic.sockets is not None and self.world.traffic.sockets.withheld:  # but for these
                dropped = repeated & ~np.isin(keys, list(self.world.traffic.sockets.withheld))
            self._make_room(deliveries[dropped, SUBSCRIBER])
            deliveries, repeated = deliveries[~dropped], repeated[~dropped]
        # Expiry after the look at what is in flight: what was sent once goes again though its time is over
        # (MQTT-3.3.2-5).
        if self.world.traffic.expiry_us is not None:
            deliveries, repeated = self._without_expired(deliveries, repeated)
        self._write(deliveries, repeated.astype(np.int64))

    def _without_expired(self, deliveries: Deliveries, repeated: Bools) -> tuple[Deliveries, Bools]:
        """Those that have not expired, or were sent before, and whether each was."""
        expired = np.zeros(len(deliveries), np.bool_)
        expired[~repeated] = self._expired(deliveries[~repeated])
        if expired.any():
            for _, subscriber, packet_id, _ in deliveries[expired].tolist():
                self.table.in_flight.pop(in_flight_key(subscriber, packet_id), None)
            self._make_room(deliveries[expired, SUBSCRIBER])
        return deliveries[~expired], repeated[~expired]

    def _expired(self, deliveries: Deliveries) -> Bools:
        """Which have expired by this broker's clock, as the clock of the broker that took them in stamped them. The
        history hears of it."""
        world, traffic = self.world, self.world.traffic
        assert traffic.expiry_us is not None
        message, _ = self._published(deliveries[:, MESSAGE])
        publisher = message % traffic.schedule.count
        ahead = np.array([broker.clock_skew_us for broker in world.brokers])
        stamped = traffic.schedule.published_us(message) + ahead[traffic.publishers.broker[publisher]]
        expired: Bools = int(self.node.env.now) + self.node.clock_skew_us >= stamped + traffic.expiry_us
        if expired.any():
            world.count("expired", int(expired.sum()))
            self.record(EventKind.EXPIRE, deliveries[expired], np.full(int(expired.sum()), int(self.node.env.now)), -1)
        return expired

    # -- over a connection ---------------------------------------------------------------------------------

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        """Put packets into sockets now; ``dup``: their DUP flags."""
        traffic = self.world.traffic
        if traffic.sockets is not None and traffic.slow_readers:
            sent, dup = self._writable(traffic.sockets, sent, dup)
        if not len(sent):
            return
        if self.world.measured.on_way is not None:
            self.world.measured.on_way("socket", self.node.number, sent)
        if self.table.links.dead_since:
            dead = self.table.links.are_dead(sent[:, SUBSCRIBER])
            self.world.count("packets_into_dead_links", int(dead.sum()))
            sent, dup = sent[~dead], dup[~dead]
            if not len(sent):
                return
        subscribers = sent[:, SUBSCRIBER]
        latency = traffic.subscribers.latency_us[subscribers]
        arrived = self.table.in_order(subscribers, self._written_us(len(sent)) + latency)
        slow = traffic.slow_readers.are_slow(subscribers) if traffic.slow_readers else None
        behind = arrived > arrived.min() + BEHIND_US  # what an earlier packet over a link that was slow has held up
        if self.table.is_any_held_up or behind.any():  # so that each is over at an instant of its own
            late = behind | self.table.may_be_held_up(subscribers)
            late &= ~slow if slow is not None else True
            for row in np.flatnonzero(late):
                self._arrive(sent[row : row + 1], dup[row : row + 1], arrived[row : row + 1])
            sent, dup, arrived, subscribers = sent[~late], dup[~late], arrived[~late], subscribers[~late]
            slow = None if slow is None else slow[~late]
        if slow is None or not any_of(slow):
            self._arrive(sent, dup, arrived)
            return
        self._arrive(sent[~slow], dup[~slow], arrived[~slow])
        read = traffic.slow_readers.read_us(subscribers[slow], arrived[slow])
        if traffic.sockets is not None:
            traffic.sockets.note(subscribers[slow], read)
        for place, row in enumerate(np.flatnonzero(slow)):  # each is over at an instant of its own
            self._arrive(sent[row : row + 1], dup[row : row + 1], read[place : place + 1])

    def _writable(self, sockets: SocketBuffers, sent: Deliveries, dup: Ints) -> tuple[Deliveries, Ints]:
        """Those whose sockets have room. The others stay in the store; QoS 0 is dropped."""
        now, goes, more = int(self.node.env.now), np.ones(len(sent), np.bool_), Counter[int]()
        slow = self.world.traffic.slow_readers.are_slow(sent[:, SUBSCRIBER])
        for place in np.flatnonzero(slow).tolist():
            subscriber, packet_id = int(sent[place, SUBSCRIBER]), int(sent[place, PACKET_ID])
            if subscriber not in sockets.blocked and not sockets.is_full(subscriber, now, more[subscriber]):
                more[subscriber] += 1
                sockets.withheld.discard(in_flight_key(subscriber, packet_id))
                continue
            goes[place] = False
            if packet_id < 0:
                self.world.count("dropped_at_full_sockets")
                continue
            self.world.count("withheld_from_full_sockets")
            if dup[place]:
                sockets.withheld.add(in_flight_key(subscriber, packet_id))
            else:
                self.table.in_flight.pop(in_flight_key(subscriber, packet_id), None)
            if sockets.reads_anew and subscriber not in sockets.blocked:
                sockets.blocked.add(subscriber)
                self._when_half_empty(sockets, subscriber)
        return sent[goes], dup[goes]

    def _when_half_empty(self, sockets: SocketBuffers, subscriber: int) -> None:
        """Read the session anew when the socket takes packets again."""
        connection = self.table.connection_number[subscriber]

        def has_room() -> None:
            if self.table.connection_number[subscriber] == connection:
                sockets.blocked.discard(subscriber)
                self.wake(subscriber)

        # Behind the write under way, whose packets are noted only then.
        call_at(
            self.node.env,
            self.node.env.now,
            lambda: call_at(
                self.node.env,
                max(sockets.half_empty_us(subscriber, int(self.node.env.now)), int(self.node.env.now)) + 1,
                has_room,
            ),
        )

    def _written_us(self, count: int) -> Ints | int:
        """When packets that a thread begins to write now are in their sockets: all of them, or each."""
        return int(self.node.burst(count, self.node.costs.deliver_us))

    def _answered_us(self, sent: Deliveries, arrived: Ints) -> Ints:
        """When the answers to packets that arrive then are here."""
        return arrived + self.world.traffic.think_us + self.world.traffic.subscribers.latency_us[sent[:, SUBSCRIBER]]

    def _arrive(self, sent: Deliveries, dup: Ints, arrived: Ints) -> None:
        """Let packets reach their subscribers at these instants, and the answers come back."""
        if not len(sent):
            return
        table, subscribers = self.table, sent[:, SUBSCRIBER]
        answered = table.answers_in_order(subscribers, self._answered_us(sent, arrived))
        losses, connections = table.losses, table.connection_number[subscribers]
        number = table.note_sent(subscribers, connections)
        sessions = table.session_number[subscribers] if self.world.ownership is not None else NO_SESSIONS

        def reached() -> None:
            there = slice(None) if table.losses == losses else table.got_through(subscribers, connections, arrived)
            self.record(EventKind.DELIVER, sent[there], arrived[there], dup[there])

        def over() -> None:
            del table.on_the_way[number]
            back = slice(None) if table.losses == losses else table.got_through(subscribers, connections, answered)
            self._answer(sent[back], answered[back], connections[back])
            if self.world.unnoticed:
                left_us = arrived + self.world.traffic.think_us
                for rows, whose in self.read_from_old(sent, connections, left_us, answered, sessions):
                    self._answer_from_old(rows, whose)

        def both() -> None:
            reached()
            over()

        last, end = int(arrived.max()), float(answered.max())
        if end - last > RECORDED_WITHIN_US or (
            self.answers_one_by_one and table.is_any_held_up
        ):  # in order, as packets of one instant come one by one
            call_at(self.node.env, last, reached)
            call_at(self.node.env, end, over)
        else:  # one event for both
            call_at(self.node.env, end, both)

    def _answer(self, sent: Deliveries, answered: Ints, connections: Ints) -> None:
        """Take in what subscribers say to PUBLISH packets: nothing, PUBACK, or PUBREC."""
        traffic = self.world.traffic
        qos = traffic.qos.sole
        if qos is None:
            message, _ = self._published(sent[:, MESSAGE])
            each = traffic.qos.of_deliveries(message % traffic.schedule.count, sent[:, SUBSCRIBER])
            one, two = each == 1, each == 2
            self.completed(sent[one], answered[one], connections[one])
            self.qos2_sender.received(sent[two], answered[two], connections[two])
        elif qos == 1:
            self.completed(sent, answered, connections)
        elif qos == 2:
            self.qos2_sender.received(sent, answered, connections)

    def read_from_old(
        self, sent: Deliveries, connections: Ints, left_us: Ints, answered_us: Ints, sessions: Ints
    ) -> Iterator[tuple[Deliveries, Ints]]:
        """What this broker reads over connections that have ended and it does not know it: (what is answered, for which
        sessions it was sent), if anything."""
        whose = sent[:, SUBSCRIBER]
        late = self.table.answered_and_left(whose, connections, left_us, answered_us)
        if not late.any() or self.node.is_dead:
            return
        late &= self.world.are_unnoticed(self.node.number, whose, connections)
        if late.any():
            self.world.count("acknowledgements_over_old_connections", int(late.sum()))
            yield sent[late], sessions[late]

    def _answer_from_old(self, sent: Deliveries, sessions: Ints) -> None:
        traffic = self.world.traffic
        message, _ = self._published(sent[:, MESSAGE])
        each = np.broadcast_to(
            traffic.qos.of_deliveries(message % traffic.schedule.count, sent[:, SUBSCRIBER]), len(sent)
        )
        self.completed_over_old(sent[each == 1], sessions[each == 1])
        self.qos2_sender.received_over_old(sent[each == 2], sessions[each == 2])

    def completed_over_old(self, acknowledged: Deliveries, sessions: Ints) -> None:
        """Run remove scripts for PUBACKs or PUBCOMPs that came over connections which have ended. Of the messages this
        broker knows what it sent: identifier, token, session. Nobody waits for these scripts, and they are not run
        again: who has the client now sends again what is there."""
        if not len(acknowledged):
            return
        node, world, table = self.node, self.world, self.table
        store, name, node_of = world.storage.store, world.traffic.subscribers.name, world.storage.node_of
        messages, whose, packet_ids, tokens = acknowledged.T.tolist()
        over = [
            table.is_over(subscriber, session) for subscriber, session in zip(whose, sessions.tolist(), strict=True)
        ]
        here = ~np.array(over, np.bool_)  # in the history an acknowledgement is of the present session
        self.record(EventKind.ACKNOWLEDGE, acknowledged[here], np.full(int(here.sum()), int(node.env.now)), -1)
        for message, subscriber, packet_id, token in acknowledged[here].tolist():
            key = in_flight_key(subscriber, packet_id)
            is_sent_anew = table.connected[subscriber] and subscriber not in table.fetching
            if not is_sent_anew and table.in_flight.get(key) == (message, token):
                del table.in_flight[key]
        calls = store.acknowledge_each(list(map(name, whose)), packet_ids, tokens, sessions.tolist())
        nodes = [node_of[subscriber] for subscriber in whose]
        is_others = [
            is_over and subscriber not in table.beginning for is_over, subscriber in zip(over, whose, strict=True)
        ]

        def removed(replies: Sequence[Any]) -> None:
            for message, subscriber, packet_id, is_other, reply in zip(
                messages, whose, packet_ids, is_others, replies, strict=True
            ):
                if reply == 1 and is_other:
                    world.count("removals_of_other_messages")
                elif reply == 1 and world.delivery.trims.limit is not None:
                    world.delivery.trims.removed(subscriber, (message, packet_id))

        done = node.burst(len(whose), node.costs.acknowledge_us)
        call_at(node.env, done, lambda: node.driver.submit(nodes, calls, removed))

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Run remove scripts: the subscribers' PUBACKs or PUBCOMPs are here, over ``connections``."""
        node, table = self.node, self.table
        if node.is_dead or not len(acknowledged):
            return
        self.record(EventKind.ACKNOWLEDGE, acknowledged, answered, -1)
        done = node.burst(len(acknowledged), node.costs.acknowledge_us)
        subscribers = acknowledged[:, SUBSCRIBER]
        here = self._leave(acknowledged, table.session_number[subscribers].tolist())
        table.complete(acknowledged)
        if node.settings.awaits_removals:
            table.note_releasing(here.subscribers, node.number)
        if here.messages:
            self._remove(here, done)
        if self.world.delivery.windows.is_limited:
            present = table.connection_number[subscribers] == connections
            self._make_room(acknowledged[present, SUBSCRIBER])

    def _leave(self, acknowledged: Deliveries, sessions: list[int]) -> Acknowledged:
        """Take what is acknowledged out of what is in flight: that of it which is there, and is no later session's."""
        in_flight = self.table.in_flight
        keys = in_flight_key(acknowledged[:, SUBSCRIBER], acknowledged[:, PACKET_ID]).tolist()
        found = list(map(in_flight.pop, keys, repeat(_NOTHING)))
        messages, subscribers, packet_ids, _ = acknowledged.T.tolist()
        there, tokens = map(list, zip(*found, strict=True)) if found else ([], [])
        if there == messages:  # as nearly always
            return Acknowledged(messages, subscribers, packet_ids, tokens, sessions)
        for key, what in zip(reversed(keys), reversed(found), strict=True):
            if what is not _NOTHING:
                in_flight[key] = what
        rows = [
            (message, subscriber, packet_id, known[1], session)
            for message, subscriber, packet_id, session, key in zip(
                messages, subscribers, packet_ids, sessions, keys, strict=True
            )
            if (known := in_flight.get(key, _NOTHING))[0] == message and in_flight.pop(key)
        ]
        return Acknowledged(*map(list, zip(*rows, strict=True))) if rows else Acknowledged([], [], [], [], [])

    def _remove(self, acknowledged: Acknowledged, at_us: float) -> None:
        """Run remove scripts, and again those that fail, where sessions are not read before they have run."""
        node, world, table = self.node, self.world, self.table
        store, names_of, node_of = world.storage.store, world.traffic.subscribers.names_of, world.storage.node_of
        _, whose, *numbered = acknowledged
        calls, nodes = store.acknowledge_each(names_of(whose), *numbered), list(map(node_of.__getitem__, whose))
        may_need_rows = store.has_tokens or node.settings.awaits_removals or world.delivery.trims.limit is not None
        rows = list(zip(*acknowledged, strict=True)) if may_need_rows else ()
        if store.has_tokens:
            table.note_removing(rows)

        def removed(replies: Sequence[Any]) -> None:
            again = (
                [
                    one
                    for one, reply in zip(rows, replies, strict=True)
                    if not isinstance(reply, int)
                    and not store.is_damaged(reply)
                    and not table.is_over(one[SUBSCRIBER], one[4])
                ]
                if node.settings.awaits_removals and not node.is_dead
                else []
            )
            over = [one for one in rows if one not in again] if again else rows
            if store.has_tokens:
                table.note_removed(over)
            if node.settings.awaits_removals:
                table.note_released([subscriber for _, subscriber, *_ in over], node.number)
            if world.delivery.trims.limit is not None:
                for (message, subscriber, packet_id, *_), reply in zip(rows, replies, strict=True):
                    if type(reply) is int:
                        world.delivery.trims.removed(subscriber, (message, packet_id))
            absent = len(replies) - replies.count(1)
            if absent:
                world.count("removes_of_nothing", absent)
            if again:
                world.count("removes_again", len(again))
                later_us = node.env.now + node.settings.pack_pause_us
                call_at(
                    node.env,
                    later_us,
                    lambda: self._remove(Acknowledged(*map(list, zip(*again, strict=True))), later_us),
                )

        call_at(node.env, at_us, lambda: node.driver.submit(nodes, calls, removed))

    def _make_room(self, subscribers: Ints) -> None:
        """Send what waited for one packet of each of these to be acknowledged on its present connection."""
        windows = self.world.delivery.windows
        if not windows.is_limited:
            return
        admitted = [found for subscriber in subscribers.tolist() if (found := windows.acknowledged(subscriber))]
        for is_backlog in (True, False):  # the backlog of a subscriber comes before what is new
            rows = [row for row, of_backlog in admitted if of_backlog is is_backlog]
            if rows:
                self._transmit(as_deliveries(rows), is_backlog)

    # -- rows of the history -------------------------------------------------------------------------------

    def record_connect(self, subscriber: int) -> None:
        """Tell the history of a connection to this broker."""
        now, code = np.array([int(self.node.env.now)]), np.array([subscriber + self.world.traffic.schedule.count])
        columns = self.world.connect_columns(np.array([subscriber]))
        self.world.recorder.add(EventKind.CONNECT, now, subscriber=code, node=self.node.number, **columns)

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Tell the history what happened to deliveries, at their instants."""
        world, traffic = self.world, self.world.traffic
        if not len(deliveries):
            return
        (message, flags), subscribers, level = (
            self._published(deliveries[:, MESSAGE]),
            deliveries[:, SUBSCRIBER],
            traffic.qos.sole,
        )
        if level is None:
            level = traffic.qos.of_deliveries(message % traffic.schedule.count, subscribers)
        world.recorder.add(
            kind,
            instants,
            message=message,
            subscriber=self._codes(subscribers),
            packet_id=deliveries[:, PACKET_ID],
            dup=dup,
            delivered_qos=level,
            node=self.node.number,
            session=self.table.sessions_of(deliveries) if self.table.may_end else -1,
            **flags,
        )
        if kind is EventKind.DELIVER:
            if traffic.retaining is not None:
                live = ~are_retained(deliveries[:, MESSAGE])
                world.count("delivered_retained", len(live) - int(live.sum()))
                message, instants = message[live], instants[live]
            world.count("delivered", len(message))
            world.measured.delivery_latency.add_messages(message, instants)

    def note_trims(self, subscriber: int, messages: Sequence[int], identifiers: Sequence[int]) -> None:
        """Tell the history what a save of these messages pushed out, or it would look lost."""
        world = self.world
        gone = world.delivery.trims.saved(subscriber, zip(messages, identifiers, strict=True))
        if gone:
            world.count("trimmed", len(gone))
            rows = as_deliveries([(message, subscriber, packet_id, 0) for message, packet_id in gone])
            self.record(EventKind.TRIM, rows, np.full(len(rows), int(self.node.env.now)), -1)

    def _codes(self, subscribers: Ints) -> Ints:
        """The codes of subscribers in the history."""
        return subscribers + self.world.traffic.schedule.count

    def _published(self, copied: Ints) -> tuple[Ints, dict[str, Ints]]:
        """The messages that copies are of, and what the history says of their RETAIN flags."""
        retaining = self.world.traffic.retaining
        return (copied, {}) if retaining is None else retaining.seen(copied)
