"""From `msg.persisted` to the store: one save script per client and poll, commit, and on to whoever holds the
connection.

A poll becomes columns of saves (`Saves`: it holds a thousand messages). A store that knows a batch again by its number
refuses one that comes after its successor: there the saves of a session wait for one another (`SerialQueue`), and where
one fails, those behind it have to come again with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import simpy

from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.packs import any_of
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.kafka.consumer_group import Consumer, Polled
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.broker.downlink import Downlink
from orderlab.sim.mqtt.broker.node import BrokerNode, InFlightBatch
from orderlab.sim.mqtt.broker.routing import SLICE, RoutedRecords
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import PACKET_ID, Deliveries
from orderlab.sim.mqtt.parts import Storage, Traffic


class SerialQueue:
    """The saves of a batch, by their places in it. ``session_of``: per place."""

    def __init__(self, session_of: Sequence[int]) -> None:
        self._session_of = session_of
        self._lines: dict[int, deque[int]] = {}
        """Per session that has a save in flight, the places that wait."""

    def enter(self, places: Iterable[int]) -> list[int]:
        """Those of these saves, which are to be made in order, that may go now."""
        lines, goes = self._lines, []
        for place in places:
            line = lines.get(self._session_of[place])
            if line is None:
                lines[self._session_of[place]] = deque()
                goes.append(place)
            else:
                line.append(place)
        return goes

    def over(self, place: int, has_failed: bool) -> tuple[list[int], list[int]]:
        """(who may go, who fails with it) when a save is over."""
        line = self._lines[self._session_of[place]]
        if line and not has_failed:
            return [line.popleft()], []
        del self._lines[self._session_of[place]]
        return [], list(line)


@dataclass(frozen=True, slots=True)
class Saves:
    """The calls, in the order of their first messages. Call ``i`` saves ``messages[bounds[i]:bounds[i + 1]]``."""

    messages: Ints
    recipients: Ints
    """Per message, its subscriber."""
    sessions: Ints
    """Per message, the session that it was routed for."""
    bounds: Ints
    """One more than there are calls."""
    producer: Ints
    """Per call, the partition of `msg.persisted`: whoever reads it, it numbers its saves."""
    batch: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def by_publisher(self, number_of: Mapping[int, int], publishers: int, first: int) -> Saves:
        """The same calls, numbered by publisher where messages have a number, whatever record they came in: publisher
        ``p`` is the producer ``first + p``. For calls of one message each."""
        numbers = np.array([number_of.get(message, 0) for message in self.messages.tolist()], np.int64)
        producer = np.where(numbers > 0, first + self.messages % publishers, self.producer)
        return replace(self, producer=producer, batch=np.where(numbers > 0, numbers, self.batch))

    @property
    def subscribers(self) -> Ints:
        """Per call, whose session takes the messages."""
        return self.recipients if len(self) == len(self.recipients) else self.recipients[self.bounds[:-1]]


def saves_of(polled: Polled, population: int, one_each: bool) -> Saves:
    """One save per client; or, for a store that knows a batch again by its number, one per message with its offset as
    the number, as packs are cut differently when they are read again."""
    sizes = [len(records) for _, _, records in polled]
    records = [record for _, _, records in polled for record in records]
    messages, recipients, sessions = RoutedRecords.unpack(records, population)
    producer = np.repeat([partition.number for partition, _, _ in polled], sizes)
    batch = np.concatenate(
        [np.arange(offset, offset + size) for (_, offset, _), size in zip(polled, sizes, strict=True)]
    )
    bounds = np.arange(len(messages) + 1)
    if not one_each and len(set(recipients.tolist())) < len(messages):
        _, first, client = np.unique(recipients, return_index=True, return_inverse=True)
        order = np.argsort(first[client], kind="stable")
        begins = np.flatnonzero(np.diff(first[client][order], prepend=-1))
        columns = (messages, recipients, sessions, producer, batch)
        messages, recipients, sessions, producer, batch = (column[order] for column in columns)
        bounds = np.append(begins, len(messages))
    return Saves(messages, recipients, sessions, bounds, producer[bounds[:-1]], batch[bounds[:-1]] + 1)


class _Assigned:
    """What the saves of a batch came to: per message its packet identifier and token; 0 where it has none."""

    def __init__(self, saves: Saves, one_each: bool) -> None:
        """``one_each``: a save is of one message, so that a session may have several in a batch."""
        self.saves = saves
        has_several = one_each and len(set(saves.recipients.tolist())) < len(saves)
        self.queue = SerialQueue(saves.recipients.tolist()) if has_several else None
        self.packet_id = [0] * len(saves.messages)
        self.token = [0] * len(saves.messages)
        self.doubtful: set[int] = set()
        """Saves that may have been made before: a reply does not tell a repetition from the first time, and what was
        saved then may have been delivered and acknowledged since."""
        self.known_before: set[int] = set()
        """Subscribers for whom the store had a batch already, or may have had it."""
        self.given_up = np.zeros(len(saves), np.bool_)

    def deliveries(self) -> Deliveries:
        """The messages that were saved, in order."""
        saves, packet_id = self.saves, np.array(self.packet_id, np.int64)
        rows: Deliveries = np.stack((saves.messages, saves.recipients, packet_id, np.array(self.token, np.int64)), 1)
        return rows[rows[:, PACKET_ID] > 0] if 0 in self.packet_id else rows

    def sessions(self) -> Ints:
        """For which each of them was routed."""
        return self.saves.sessions[np.array(self.packet_id, np.int64) > 0]


def _taken_over(saves: Saves, before: Mapping[Partition, int]) -> list[int]:
    """The saves of what another owner of the partition may have saved."""
    ends = {partition.number: offset for partition, offset in before.items()}
    numbered = zip(saves.producer.tolist(), saves.batch.tolist(), strict=True)
    return [place for place, (partition, batch) in enumerate(numbered) if batch <= ends.get(partition, 0)]


class SaveStage:
    """The consumers of `msg.persisted` of one broker."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, storage: Storage, downlink: Downlink, delivery: Delivery
    ) -> None:
        self.node = node
        self.env = node.env
        self.measured = node.measured
        self.brokers = node.peers
        self.traffic = traffic
        self.storage = storage
        self.downlink = downlink
        self.delivery = delivery
        self.table = delivery.table
        self.trims = delivery.trims

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, save, commit, send on."""
        node, costs = self.node, self.node.costs
        while not node.is_dead:
            polled = yield from consumer.poll()
            saves = saves_of(polled, len(self.traffic.subscribers), self.storage.store.numbers_batches)
            self.measured.note_stage("msg.persisted", saves.messages)
            if consumer.pause_us:
                pause_us, consumer.pause_us = consumer.pause_us, 0
                consumer.group.leave(consumer)  # it is silent, and its session timeout passes
                yield self.env.timeout(pause_us)
            yield node.work(costs.poll_us)
            assigned = _Assigned(saves, self.storage.store.numbers_batches)
            if self.node.settings.hands_over_first and consumer.taken_over:
                assigned.doubtful.update(_taken_over(saves, consumer.taken_over))
            if self.storage.inbound is not None:
                inbound = self.storage.inbound
                assigned.saves = saves = saves.by_publisher(
                    inbound.number_of, self.traffic.schedule.count, inbound.first_producer
                )

            def again(places: Sequence[int], batch: InFlightBatch, assigned: _Assigned = assigned) -> None:
                if self.node.settings.hands_over_first:
                    assigned.doubtful.update(places)
                self._save_in_turn(assigned, sorted(places), batch)

            batch = InFlightBatch(self.env, len(saves), again)

            def save(start: int, end: int, assigned: _Assigned = assigned, batch: InFlightBatch = batch) -> None:
                if not node.is_dead:
                    self._save_in_turn(assigned, range(start, end), batch)

            ready_us = 0.0
            for start in range(0, len(saves), SLICE):
                end = min(start + SLICE, len(saves))
                count = int(saves.bounds[end] - saves.bounds[start])
                # Half before it is written, half when its reply is here.
                written_us = yield from node.dispatch(count, costs.persist_us / 2)
                ready_us = max(ready_us, written_us)
                if node.is_dead:
                    return
                call_at(self.env, ready_us, partial(save, start, end))
            # Every save has its answer before the offset is committed: who takes over reads the pack again and loses
            # nothing of it.
            yield from node.complete(batch)
            assigned.given_up[batch.failed] = True
            if self.measured.on_way is not None:
                self.measured.on_way("store", node.number, assigned.deliveries())
            yield self.env.timeout(int(node.burst(len(saves.messages), costs.persist_us / 2) - self.env.now))
            # Sent on before the commit, a broker that dies in between leaves repetitions; after it, as published, gaps.
            if self.node.settings.hands_over_first and not node.is_dead:
                yield from self._hand_over(assigned)
            yield from node.commit(consumer, polled)
            if not self.node.settings.hands_over_first and not node.is_dead:
                self._send_on(assigned, None)

    def _save_in_turn(self, assigned: _Assigned, places: Sequence[int], batch: InFlightBatch) -> None:
        """Submit those whose turn it is: runs of neighbours together."""
        if assigned.queue is not None:
            places = assigned.queue.enter(places)
        elif isinstance(places, range):
            self._save(assigned, places.start, places.stop, batch)
            return
        start = 0
        for end in range(1, len(places) + 1):
            if end == len(places) or places[end] != places[end - 1] + 1:
                self._save(assigned, places[start], places[end - 1] + 1, batch)
                start = end

    def _saved(self, assigned: _Assigned, places: Sequence[int], failed: list[int], batch: InFlightBatch) -> None:
        """Count the replies to these, ``failed`` of them in vain, and submit what waited for them."""
        queue = assigned.queue
        if queue is None:
            batch.count(len(places), failed)
            return
        vain = set(failed)
        goes, fall = zip(*(queue.over(place, place in vain) for place in places), strict=True)
        dropped = [place for line in fall for place in line]
        if dropped:
            self.measured.count("saves_behind_a_failed_one", len(dropped))
        batch.count(len(goes) + len(dropped), [*failed, *dropped])
        if not self.node.is_dead:
            for place in sorted(place for line in goes for place in line):
                self._save(assigned, place, place + 1, batch)

    def _save(self, assigned: _Assigned, start: int, end: int, batch: InFlightBatch) -> None:
        """Submit the saves from ``start`` to ``end`` of the batch."""
        store, saves = self.storage.store, assigned.saves
        time_ms = self.node.now_ms()
        whose = saves.subscribers[start:end]
        subscribers = whose.tolist()
        if store.opens_sessions:
            for subscriber in subscribers:
                self.storage.ensure_open(subscriber)
        bounds: list[int] = saves.bounds[start : end + 1].tolist()
        part = slice(bounds[0], bounds[-1])
        messages, clients = saves.messages[part], self.traffic.subscribers.names_of(whose)
        topics, producers, batches = (
            self.traffic.topics_of(messages),
            saves.producer[start:end],
            saves.batch[start:end],
        )
        calls: Sequence[Any]
        if len(messages) == len(whose) and self.traffic.qos.sole is not None:
            calls = store.save_each(clients, messages, topics, time_ms, producers, batches, saves.sessions[part])
        else:
            sessions = saves.sessions[bounds[:-1]].tolist()
            each = list(zip(messages.tolist(), topics, repeat(time_ms)))
            packs = [each[first - bounds[0] : last - bounds[0]] for first, last in pairwise(bounds)]
            calls = list(
                map(
                    store.save,
                    clients,
                    packs,
                    producers.tolist(),
                    batches.tolist(),
                    sessions,
                    self._levels(saves, bounds),
                )
            )

        def replied(replies: Sequence[Any]) -> None:
            self._saved(assigned, range(start, end), self._note_replies(assigned, bounds, replies, start), batch)

        self.node.driver.submit(list(map(self.storage.node_of.__getitem__, subscribers)), calls, replied)

    def _levels(self, saves: Saves, bounds: Sequence[int]) -> Sequence[tuple[int, ...]]:
        """Per save, what it says of the QoS of its messages: nothing where all are alike."""
        levels = self.traffic.qos
        if levels.sole is not None:
            return [()] * (len(bounds) - 1)
        part = slice(bounds[0], bounds[-1])
        each = levels.of_deliveries(saves.messages[part] % self.traffic.schedule.count, saves.recipients[part]).tolist()
        base = bounds[0]
        return [tuple(each[first - base : last - base]) for first, last in pairwise(bounds)]

    def _note_replies(
        self, assigned: _Assigned, bounds: Sequence[int], replies: Sequence[Any], start: int
    ) -> list[int]:
        """Note what the store says of each save; those that failed."""
        store, sessions, saves, failed = (
            self.storage.store,
            self.table,
            assigned.saves,
            list[int](),
        )
        packet_id, token = assigned.packet_id, assigned.token
        # Nothing else is to be noted.
        if not (assigned.doubtful or sessions.may_end) and self.trims.limit is None:
            all_given = store.assigned_each(replies) if len(replies) == bounds[-1] - bounds[0] else None
            if all_given is not None:
                packet_id[bounds[0] : bounds[-1]], token[bounds[0] : bounds[-1]] = all_given
                return failed
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
                if self.trims.limit is not None:
                    copied = saves.messages[first : first + len(given)].tolist()
                    self.delivery.note_trims(
                        int(saves.recipients[first]), copied, [identifier for identifier, _ in given]
                    )
                if sessions.may_end:
                    queued = slice(first, last)
                    columns = (saves.messages[queued], saves.recipients[queued], saves.sessions[queued])
                    sessions.note_queued(*(column.tolist() for column in columns))
            # The same word for a session that has ended and for one that the store has lost: which, only the broker can
            # tell, so first.
            elif store.was_closed(reply) and sessions.is_over(int(saves.recipients[first]), int(saves.sessions[first])):
                self.measured.count("saves_for_sessions_that_ended")
            elif store.was_saved_before(reply):
                self.measured.count("saves_known_before")
                assigned.known_before.add(int(assigned.saves.subscribers[start + place]))
            elif store.was_closed(reply) or store.is_damaged(reply):  # the store has lost the session, or parts of it
                self.measured.count("saves_to_damaged_sessions")
                assigned.given_up[start + place] = True
            else:
                failed.append(start + place)
        if failed:
            self.measured.count("saves_failed", len(failed))
        return failed

    def _hand_over(self, assigned: _Assigned) -> Generator[simpy.Event, Any, None]:
        """Send on, and wait until Kafka has every downlink record, however often it takes. What the store knew already,
        or may have known, may never have been sent on by who saved it, or have been acknowledged: those sessions are
        read anew."""
        node = self.node
        batch = InFlightBatch(self.env, 0, self.downlink.send_again)
        # Sorted, for the order of a set must not become the order of events. It costs nothing here: a flag on a record
        # that goes anyway.
        for subscriber in sorted(assigned.known_before):
            self.brokers.wake(node.number, subscriber)
        self._send_on(assigned, batch)  # behind what is read anew
        while batch.left and not node.is_dead:
            yield batch.done
            if batch.failed:
                yield self.env.timeout(node.settings.pack_pause_us)
                batch.retry()

    def _send_on(self, assigned: _Assigned, batch: InFlightBatch | None) -> None:
        """Bring what was saved to the brokers that hold the connections. ``batch``: who wants to know when it is
        there."""
        saves = assigned.saves
        if any_of(assigned.given_up):
            self.measured.count("saves_given_up", int(np.diff(saves.bounds)[assigned.given_up].sum()))
        self.downlink.hand_on(assigned.deliveries(), batch, assigned.sessions() if self.table.may_end else None)
