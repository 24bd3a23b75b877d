"""From the broker to subscribers: backlog and new messages go out in order, answers come back, remove scripts run.

A delivery passes the filters of `filters.py`; what is left is numbered in flight (`_transmit`), written (`_write`),
arrives and is answered (`_arrive`), and ends in the store (`removals.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.packs import any_of
from orderlab.sim.mqtt.broker.filters import FilterContext, Origin, passed
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.qos2 import Qos2Sender
from orderlab.sim.mqtt.broker.removals import Removals
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import (
    BEHIND_US,
    MESSAGE,
    NO_DELIVERIES,
    PACKET_ID,
    SUBSCRIBER,
    Deliveries,
    StoredMessage,
    as_deliveries,
    in_flight_key,
)
from orderlab.sim.mqtt.links import SocketBuffers
from orderlab.sim.mqtt.parts import DeliveryState, Storage, Traffic
from orderlab.sim.mqtt.presence import Presence
from orderlab.sim.mqtt.topics import are_retained

RECORDED_WITHIN_US = 100_000
"""After it has arrived: the recorder waits for no row for long."""
NO_SESSIONS = np.empty(0, np.int64)
"""Where all brokers know at once who is connected where: nothing comes over an old connection."""
Bools = npt.NDArray[np.bool_]


class Delivery:
    """The subscribers' side of one broker."""

    answers_one_by_one = False
    """Whether what arrives at a client at one instant is answered at instants of its own."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, storage: Storage, state: DeliveryState, presence: Presence
    ) -> None:
        self.node = node
        self.measured = node.measured
        self.recorder = node.recorder
        self.brokers = node.peers
        self.traffic = traffic
        self.storage = storage
        self.presence = presence
        self.table = state.connections
        self.windows = state.windows
        self.replayed = state.replayed
        self.trims = state.trims
        self.qos2_sender = self._qos2_sender()
        self.removals = Removals(node, traffic.subscribers, storage, state, self.record, self._make_room)
        self.filter_context = FilterContext(
            broker=node.number,
            broker_of=self.traffic.subscribers.broker,
            table=self.table,
            replayed=self.replayed,
            windows=self.windows,
            refuses_closed=self.storage.store.refuses_closed,
            pushes_early=self.node.settings.hands_over_first and self.replayed.has_tokens,
            has_unstored=not self.traffic.qos.sole,
            on_late=self._find_out,
            write_unstored=lambda deliveries: self._write_unstored(deliveries),
        )

    def _qos2_sender(self) -> Qos2Sender:
        """The second half of the handshake with QoS 2."""
        return Qos2Sender(self.node, self.traffic, self.storage, self.table, self)

    # -- what waits in the store ---------------------------------------------------------------------------

    def send_backlog(self, subscriber: int, then: Callable[[], None]) -> None:
        """Fetch and send what waits for a subscriber that has just connected here, then what is new, and call
        ``then``."""
        table = self.table
        table.fetching.add(subscriber)
        connection = table.connection_number[subscriber]
        self.record_connect(subscriber)
        if self.storage.store.opens_sessions:
            self.storage.ensure_open(subscriber)
        name, store, make = self.traffic.subscribers.name(subscriber), self.storage.store, self.node.retrying.make
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
            if self.node.settings.hands_over_first and asks_newest is not None:
                make(subscriber, asks_newest, store.told_newest, fetch, is_here, "fetches_failed")
            else:
                fetch()

        # A PUBLISH whose PUBREC has come is acknowledged and must not go again (MQTT-4.3.3-3, MQTT-4.4.0-1): whoever
        # got the PUBREC finishes before the session is read, as a broker does that is asked to give a client up.
        def read() -> None:
            table.when_released(subscriber, ask)

        def in_turn() -> None:
            asked_us = int(table.removed_from_us[subscriber])
            if asked_us > self.node.env.now:
                call_at(self.node.env, asked_us, read)
            else:
                read()

        # A broker takes in answers in groups, and works at them: what a client says here is worked off in its order all
        # the same, the CONNECT behind what came before.
        read_us = table.all_read_us(subscriber)
        if read_us > self.node.env.now:
            call_at(self.node.env, read_us, in_turn)
        elif table.removed_by[subscriber] == self.node.number:
            in_turn()
        else:
            read()

    def _caught_up(
        self, subscriber: int, found: Sequence[StoredMessage], waiting: Deliveries = NO_DELIVERIES, newest: int = 0
    ) -> None:
        """What was ``found`` in the store has been sent, but for ``waiting``; what had to wait for it goes out behind.
        ``newest``: the last token that the store had given out before it was read."""
        table, replayed = self.table, self.replayed
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
            self.windows.occupy(subscriber)
        if rows:
            self.measured.count("pubrels_again", len(rows))
            self.qos2_sender.send(as_deliveries(rows))

    def wake(self, subscriber: int) -> None:
        """Read the session of a subscriber for whom something waits in the store that may never have been sent here;
        send what is not in flight, and until then nothing that is new."""
        table, node = self.table, self.node
        is_here = table.connected[subscriber] and self.traffic.subscribers.broker[subscriber] == node.number
        if node.is_dead or not is_here or not table.exists[subscriber]:
            return  # whoever is about to connect reads the session anyway
        if subscriber in table.fetching:  # what is being read may be older than the save
            table.to_wake.add(subscriber)
            return
        connection = table.connection_number[subscriber]
        self.measured.count("sessions_woken")
        table.fetching.add(subscriber)
        completed = table.completed_meanwhile.setdefault(subscriber, set())
        completed |= table.removing.get(subscriber, set())
        fetch = self.storage.store.fetch(self.traffic.subscribers.name(subscriber))

        def is_still_here() -> bool:
            return bool(table.connection_number[subscriber] == connection)

        def over() -> None:
            if table.completed_meanwhile.get(subscriber) is completed:
                del table.completed_meanwhile[subscriber]

        def fetched(found: Sequence[StoredMessage]) -> None:
            over()
            known = completed | self.windows.waiting(subscriber)
            waiting = [
                (message, subscriber, packet_id, token)
                for message, packet_id, token, is_pubrel in found
                if not is_pubrel
                and (message, packet_id) not in known
                and not self._is_sent(subscriber, packet_id, (message, token))  # or it waits for room, and goes again
            ]
            self._caught_up(subscriber, found, as_deliveries(waiting))

        node.retrying.make(
            subscriber, fetch, self.storage.store.fetched, fetched, is_still_here, "fetches_failed", over
        )

    def _is_sent(self, subscriber: int, packet_id: int, what: tuple[int, int]) -> bool:
        key, sockets = in_flight_key(subscriber, packet_id), self.traffic.sockets
        return self.table.in_flight.get(key) == what and not (sockets is not None and key in sockets.withheld)

    # -- on the way out ------------------------------------------------------------------------------------

    def deliver(
        self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True, sessions: Ints | None = None
    ) -> None:
        """Write PUBLISH packets to the sockets of those who are connected here. The others fetch them from the store.
        ``filters.Origin`` says what ``is_backlog``, ``is_pushed`` and ``sessions`` mean."""
        if self.measured.on_way is not None:
            self.measured.on_way("broker", self.node.number, deliveries)
        passing = passed(self.filter_context, deliveries, Origin(is_backlog, is_pushed, sessions))
        self._transmit(passing, is_backlog)

    def _write_unstored(self, deliveries: Deliveries) -> None:
        if self.traffic.expiry_us is not None:
            deliveries = deliveries[~self._expired(deliveries)]
        self._write(deliveries, np.zeros(len(deliveries), np.int64))

    def _find_out(self, late: Deliveries) -> None:
        """Ask the store about what was pushed behind newer messages: what is not in flight is completed, or was never
        sent."""
        in_flight = self.table.in_flight
        for message, subscriber, packet_id, token in late.tolist():
            if in_flight.get(in_flight_key(subscriber, packet_id)) != (message, token):
                self.measured.count("pushes_behind_newer_ones")
                self.wake(subscriber)

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
            if self.traffic.sockets is not None and self.traffic.sockets.withheld:  # but for these
                dropped = repeated & ~np.isin(keys, list(self.traffic.sockets.withheld))
            self._make_room(deliveries[dropped, SUBSCRIBER])
            deliveries, repeated = deliveries[~dropped], repeated[~dropped]
        # Expiry after the look at what is in flight: what was sent once goes again though its time is over
        # (MQTT-3.3.2-5).
        if self.traffic.expiry_us is not None:
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
        traffic = self.traffic
        assert traffic.expiry_us is not None
        message, _ = self._published(deliveries[:, MESSAGE])
        publisher = message % traffic.schedule.count
        ahead = np.array([broker.clock_skew_us for broker in self.brokers])
        stamped = traffic.schedule.published_us(message) + ahead[traffic.publishers.broker[publisher]]
        expired: Bools = int(self.node.env.now) + self.node.clock_skew_us >= stamped + traffic.expiry_us
        if expired.any():
            self.measured.count("expired", int(expired.sum()))
            self.record(EventKind.EXPIRE, deliveries[expired], np.full(int(expired.sum()), int(self.node.env.now)), -1)
        return expired

    # -- over a connection ---------------------------------------------------------------------------------

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        """Put packets into sockets now; ``dup``: their DUP flags."""
        traffic = self.traffic
        if traffic.sockets is not None and traffic.slow_readers:
            sent, dup = self._writable(traffic.sockets, sent, dup)
        if not len(sent):
            return
        if self.measured.on_way is not None:
            self.measured.on_way("socket", self.node.number, sent)
        if self.table.links.dead_since:
            dead = self.table.links.are_dead(sent[:, SUBSCRIBER])
            self.measured.count("packets_into_dead_links", int(dead.sum()))
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
        slow = self.traffic.slow_readers.are_slow(sent[:, SUBSCRIBER])
        for place in np.flatnonzero(slow).tolist():
            subscriber, packet_id = int(sent[place, SUBSCRIBER]), int(sent[place, PACKET_ID])
            if subscriber not in sockets.blocked and not sockets.is_full(subscriber, now, more[subscriber]):
                more[subscriber] += 1
                sockets.withheld.discard(in_flight_key(subscriber, packet_id))
                continue
            goes[place] = False
            if packet_id < 0:
                self.measured.count("dropped_at_full_sockets")
                continue
            self.measured.count("withheld_from_full_sockets")
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
        return arrived + self.traffic.think_us + self.traffic.subscribers.latency_us[sent[:, SUBSCRIBER]]

    def _arrive(self, sent: Deliveries, dup: Ints, arrived: Ints) -> None:
        """Let packets reach their subscribers at these instants, and the answers come back."""
        if not len(sent):
            return
        table, subscribers = self.table, sent[:, SUBSCRIBER]
        answered = table.answers_in_order(subscribers, self._answered_us(sent, arrived))
        losses, connections = table.losses, table.connection_number[subscribers]
        number = table.note_sent(subscribers, connections, answered)
        sessions = table.session_number[subscribers] if self.brokers.ownership is not None else NO_SESSIONS

        def reached() -> None:
            there = slice(None) if table.losses == losses else table.got_through(subscribers, connections, arrived)
            self.record(EventKind.DELIVER, sent[there], arrived[there], dup[there])

        def over() -> None:
            del table.on_the_way[number]
            back = slice(None) if table.losses == losses else table.got_through(subscribers, connections, answered)
            self._answer(sent[back], answered[back], connections[back])
            if self.presence.unnoticed:
                left_us = arrived + self.traffic.think_us
                for rows, whose in self.read_from_old(sent, connections, left_us, answered, sessions):
                    self._answer_from_old(rows, whose)

        def both() -> None:
            reached()
            over()

        last, end = int(arrived.max()), float(answered.max())
        # In order, as packets of one instant come one by one.
        if end - last > RECORDED_WITHIN_US or (self.answers_one_by_one and table.is_any_held_up):
            call_at(self.node.env, last, reached)
            call_at(self.node.env, end, over)
        else:  # one event for both
            call_at(self.node.env, end, both)

    def _answer(self, sent: Deliveries, answered: Ints, connections: Ints) -> None:
        """Take in what subscribers say to PUBLISH packets: nothing, PUBACK, or PUBREC."""
        traffic = self.traffic
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
        if not self.presence.unnoticed:
            return
        whose = sent[:, SUBSCRIBER]
        late = self.table.answered_and_left(whose, connections, left_us, answered_us)
        if not late.any() or self.node.is_dead:
            return
        late &= self.presence.are_unnoticed(self.node.number, whose, connections)
        if late.any():
            self.measured.count("acknowledgements_over_old_connections", int(late.sum()))
            yield sent[late], sessions[late]

    def _answer_from_old(self, sent: Deliveries, sessions: Ints) -> None:
        traffic = self.traffic
        message, _ = self._published(sent[:, MESSAGE])
        each = np.broadcast_to(
            traffic.qos.of_deliveries(message % traffic.schedule.count, sent[:, SUBSCRIBER]), len(sent)
        )
        self.completed_over_old(sent[each == 1], sessions[each == 1])
        self.qos2_sender.received_over_old(sent[each == 2], sessions[each == 2])

    def completed_over_old(self, acknowledged: Deliveries, sessions: Ints) -> None:
        """Take in PUBACKs or PUBCOMPs that came over connections which have ended."""
        self.removals.completed_over_old(acknowledged, sessions)

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Take in the subscribers' PUBACKs or PUBCOMPs, over ``connections``."""
        self.removals.completed(acknowledged, answered, connections)

    def _make_room(self, subscribers: Ints) -> None:
        """Send what waited for one packet of each of these to be acknowledged on its present connection."""
        windows = self.windows
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
        now, code = np.array([int(self.node.env.now)]), np.array([subscriber + self.traffic.schedule.count])
        columns = self.presence.connect_columns(np.array([subscriber]))
        self.recorder.add(EventKind.CONNECT, now, subscriber=code, node=self.node.number, **columns)

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Tell the history what happened to deliveries, at their instants."""
        traffic = self.traffic
        if not len(deliveries):
            return
        (message, flags), subscribers, level = (
            self._published(deliveries[:, MESSAGE]),
            deliveries[:, SUBSCRIBER],
            traffic.qos.sole,
        )
        if level is None:
            level = traffic.qos.of_deliveries(message % traffic.schedule.count, subscribers)
        self.recorder.add(
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
                self.measured.count("delivered_retained", len(live) - int(live.sum()))
                message, instants = message[live], instants[live]
            self.measured.count("delivered", len(message))
            self.measured.delivery_latency.add_messages(message, instants)

    def note_trims(self, subscriber: int, messages: Sequence[int], identifiers: Sequence[int]) -> None:
        """Tell the history what a save of these messages pushed out, or it would look lost."""
        gone = self.trims.saved(subscriber, zip(messages, identifiers, strict=True))
        if gone:
            self.measured.count("trimmed", len(gone))
            rows = as_deliveries([(message, subscriber, packet_id, 0) for message, packet_id in gone])
            self.record(EventKind.TRIM, rows, np.full(len(rows), int(self.node.env.now)), -1)

    def _codes(self, subscribers: Ints) -> Ints:
        """The codes of subscribers in the history."""
        return subscribers + self.traffic.schedule.count

    def _published(self, copied: Ints) -> tuple[Ints, dict[str, Ints]]:
        """The messages that copies are of, and what the history says of their RETAIN flags."""
        retaining = self.traffic.retaining
        return (copied, {}) if retaining is None else retaining.seen(copied)
