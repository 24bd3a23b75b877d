"""From `msg.persisted` to the store: one save script per client and pack, commit, and on to whoever holds the connection."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.mqtt.broker.inflight_batch import Pack
from orderlab.sim.mqtt.broker.routing import SLICE
from orderlab.sim.mqtt.broker.saves import Saves, saves_of
from orderlab.sim.mqtt.broker.serial_queue import Turns
from orderlab.sim.mqtt.connections import Deliveries
from orderlab.sim.mqtt.sessions import EPOCH_MS

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class _Assigned:
    """What the saves of a pack came to: per message its packet identifier and token; 0 where it has none."""

    def __init__(self, saves: Saves, one_each: bool) -> None:
        """``one_each``: a save is of one message, so that a session may have several in a pack."""
        self.saves = saves
        has_several = one_each and len(set(saves.recipients.tolist())) < len(saves)
        self.turns = Turns(saves.recipients.tolist()) if has_several else None
        self.packet_id = [0] * len(saves.messages)
        self.token = [0] * len(saves.messages)
        self.doubtful: set[int] = set()
        """Saves that may have been made before: a reply does not tell a repetition from the first time, and what was saved then
        may have been delivered and acknowledged since."""
        self.known_before: set[int] = set()
        """Subscribers for whom the store had a batch already, or may have had it."""
        self.given_up = np.zeros(len(saves), np.bool_)

    def deliveries(self) -> Deliveries:
        """The messages that were saved, in order."""
        saves, packet_id = self.saves, np.array(self.packet_id, np.int64)
        columns: Deliveries = np.stack((saves.messages, saves.recipients, packet_id, np.array(self.token, np.int64)), 1)
        return columns if packet_id.all() else columns[packet_id > 0]


def _taken_over(saves: Saves, before: Mapping[Partition, int]) -> list[int]:
    """The saves of what another owner of the partition may have saved."""
    ends = {partition.number: offset for partition, offset in before.items()}
    numbered = zip(saves.producer.tolist(), saves.batch.tolist(), strict=True)
    return [place for place, (partition, batch) in enumerate(numbered) if batch <= ends.get(partition, 0)]


class Persisting:
    """The consumers of `msg.persisted` of one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.env = broker.env

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, save, commit, send on."""
        broker, fabric, costs = self.broker, self.fabric, self.broker.costs
        while not broker.is_dead:
            polled = yield from consumer.poll()
            saves = saves_of(polled, len(fabric.subscribers), fabric.store.needs_open)
            fabric.note_stage("msg.persisted", saves.messages)
            if consumer.pause_us:
                pause_us, consumer.pause_us = consumer.pause_us, 0
                consumer.group.leave(consumer)  # it is silent, and its session timeout passes
                yield self.env.timeout(pause_us)
            yield broker.work(costs.poll_us)
            assigned = _Assigned(saves, fabric.store.needs_open)
            if fabric.hands_over_first and consumer.taken_over:
                assigned.doubtful.update(_taken_over(saves, consumer.taken_over))
            if fabric.inbound is not None:
                first = len(fabric.persisted_partitions) + len(fabric.brokers)
                assigned.saves = saves = saves.by_publisher(fabric.inbound.number_of, fabric.schedule.count, first)

            def again(places: Sequence[int], pack: Pack, assigned: _Assigned = assigned) -> None:
                if fabric.hands_over_first:
                    assigned.doubtful.update(places)
                self._save_in_turn(assigned, sorted(places), pack)

            pack = Pack(self.env, len(saves), again)
            for start in range(0, len(saves), SLICE):
                end = min(start + SLICE, len(saves))
                count = int(saves.bounds[end] - saves.bounds[start])
                yield broker.work(count * costs.persist_us / 2)
                if broker.is_dead:
                    return
                self._save_in_turn(assigned, range(start, end), pack)
            yield from broker.complete(pack)
            assigned.given_up[pack.failed] = True
            yield self.env.timeout(int(broker.burst(len(saves.messages), costs.persist_us / 2) - self.env.now))
            if fabric.hands_over_first and not broker.is_dead:
                yield from self._hand_over(assigned)
            yield from broker.commit(consumer, polled)
            if not fabric.hands_over_first and not broker.is_dead:
                self._send_on(assigned, None)

    def _save_in_turn(self, assigned: _Assigned, places: Sequence[int], pack: Pack) -> None:
        """Submit those whose turn it is: runs of neighbours together."""
        if assigned.turns is not None:
            places = assigned.turns.enter(places)
        elif isinstance(places, range):
            self._save(assigned, places.start, places.stop, pack)
            return
        start = 0
        for end in range(1, len(places) + 1):
            if end == len(places) or places[end] != places[end - 1] + 1:
                self._save(assigned, places[start], places[end - 1] + 1, pack)
                start = end

    def _saved(self, assigned: _Assigned, places: Sequence[int], failed: list[int], pack: Pack) -> None:
        """Replies are here; ``failed`` of them in vain."""
        turns = assigned.turns
        if turns is None:
            pack.count(len(places), failed)
            return
        vain = set(failed)
        goes, fall = zip(*(turns.over(place, place in vain) for place in places), strict=True)
        dropped = [place for line in fall for place in line]
        if dropped:
            self.fabric.count("saves_behind_a_failed_one", len(dropped))
        pack.count(len(goes) + len(dropped), [*failed, *dropped])
        if not self.broker.is_dead:
            for place in sorted(place for line in goes for place in line):
                self._save(assigned, place, place + 1, pack)

    def _save(self, assigned: _Assigned, start: int, end: int, pack: Pack) -> None:
        """Submit the saves from ``start`` to ``end`` of the pack."""
        fabric, store, saves = self.fabric, self.fabric.store, assigned.saves
        time_ms = EPOCH_MS + (int(self.env.now) + self.broker.clock_skew_us) // 1000
        subscribers = saves.subscribers[start:end].tolist()
        if store.needs_open:
            for subscriber in subscribers:
                fabric.ensure_open(subscriber)
        bounds: list[int] = saves.bounds[start : end + 1].tolist()
        messages = saves.messages[bounds[0] : bounds[-1]]
        topics, base = fabric.topics, bounds[0]
        numbered = [
            (message, topics[topic], time_ms)
            for message, topic in zip(
                messages.tolist(), fabric.topic_of[messages % fabric.schedule.count].tolist(), strict=True
            )
        ]
        save, name, node_of = store.save, fabric.subscribers.name, fabric.node_of
        requests = [
            (node_of[subscriber], save(name(subscriber), numbered[first - base : last - base], producer, batch, session, *qos))
            for subscriber, first, last, producer, batch, session, qos in zip(
                subscribers, bounds[:-1], bounds[1:], saves.producer[start:end].tolist(), saves.batch[start:end].tolist(),
                saves.sessions[bounds[:-1]].tolist(), self._levels(saves, bounds), strict=True,
            )
        ]  # fmt: skip

        def replied(replies: Sequence[Any]) -> None:
            self._saved(assigned, range(start, end), self._note_replies(assigned, bounds, replies, start), pack)

        self.broker.driver.submit(requests, replied)

    def _levels(self, saves: Saves, bounds: Sequence[int]) -> Sequence[tuple[tuple[int, ...], ...]]:
        """Per save, what it says of the QoS of its messages: nothing where all are alike."""
        levels = self.fabric.qos
        if levels.sole is not None:
            return [()] * (len(bounds) - 1)
        part = slice(bounds[0], bounds[-1])
        each = levels.of_deliveries(saves.messages[part] % self.fabric.schedule.count, saves.recipients[part]).tolist()
        base = bounds[0]
        return [(tuple(each[first - base : last - base]),) for first, last in pairwise(bounds)]

    def _note_replies(
        self, assigned: _Assigned, bounds: Sequence[int], replies: Sequence[Any], start: int
    ) -> list[int]:
        """Which saves failed."""
        store, sessions, saves, failed = self.fabric.store, self.fabric.sessions, assigned.saves, []
        packet_id, token = assigned.packet_id, assigned.token
        for place, reply in enumerate(replies):
            first, last = bounds[place], bounds[place + 1]
            given = store.assigned(reply, last - first)
            if given is not None:
                if start + place in assigned.doubtful:
                    assigned.known_before.add(int(saves.subscribers[start + place]))
                else:
                    for at, (identifier, mark) in enumerate(given, first):
                        packet_id[at] = identifier
                        token[at] = mark
                if self.fabric.trims.limit is not None:
                    copied = saves.messages[first : first + len(given)].tolist()
                    self.note_trims(int(saves.recipients[first]), copied, [identifier for identifier, _ in given])
                if sessions.may_end:
                    queued = slice(first, last)
                    columns = (saves.messages[queued], saves.recipients[queued], saves.sessions[queued])
                    sessions.note_queued(*(column.tolist() for column in columns))
            elif store.was_closed(reply) and sessions.is_over(int(saves.recipients[first]), int(saves.sessions[first])):
                self.fabric.count("saves_for_sessions_that_ended")
            elif store.was_saved_before(reply):
                self.fabric.count("saves_known_before")
                assigned.known_before.add(int(assigned.saves.subscribers[start + place]))
            elif store.was_closed(reply) or store.is_damaged(reply):  # the store has lost the session, or parts of it
                self.fabric.count("saves_to_damaged_sessions")
                assigned.given_up[start + place] = True
            else:
                failed.append(start + place)
        if failed:
            self.fabric.count("saves_failed", len(failed))
        return failed

    def note_trims(self, subscriber: int, messages: Sequence[int], identifiers: Sequence[int]) -> None:
        """The history says what a save pushed out, or it would look lost."""
        fabric = self.fabric
        gone = fabric.trims.saved(subscriber, zip(messages, identifiers, strict=True))
        if gone:
            fabric.count("trimmed", len(gone))
            rows = np.array([(message, subscriber, packet_id, 0) for message, packet_id in gone], np.int64)
            self.broker.delivery.record(EventKind.TRIM, rows, np.full(len(rows), int(self.env.now)), -1)

    def _hand_over(self, assigned: _Assigned) -> Generator[simpy.Event, Any, None]:
        """Send on, and wait until Kafka has every downlink record, however often it takes. What the store knew already, or may
        have known, may never have been sent on by who saved it, or have been acknowledged: those sessions are read anew."""
        broker, fabric = self.broker, self.fabric

        def again(records: Sequence[int], pack: Pack) -> None:
            for record in records:
                to = fabric.brokers[int(fabric.subscribers.broker[fabric.in_transit.subscriber(record)])]
                if to.downlink is None or to.is_dead:
                    pack.count(1)  # who connects elsewhere fetches it there
                else:
                    broker.producer.send(to.downlink, [record], pack.answered)

        pack = Pack(self.env, 0, again)
        for subscriber in sorted(assigned.known_before):  # costs nothing here: a flag on a record that goes anyway
            fabric.brokers[int(fabric.subscribers.broker[subscriber])].delivery.wake(subscriber)
        self._send_on(assigned, pack)  # behind what is read anew
        while pack.left and not broker.is_dead:
            yield pack.done
            if pack.failed:
                yield self.env.timeout(broker.settings.pack_pause_us)
                pack.retry()

    def _send_on(self, assigned: _Assigned, pack: Pack | None) -> None:
        """What was saved goes to the brokers that hold the connections. ``pack``: who wants to know when it is there."""
        fabric, saves = self.fabric, assigned.saves
        if assigned.given_up.any():
            fabric.count("saves_given_up", int(np.diff(saves.bounds)[assigned.given_up].sum()))
        self.broker.downlinks.hand_on(assigned.deliveries(), pack)
