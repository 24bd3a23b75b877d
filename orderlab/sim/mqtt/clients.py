"""Publishers and subscribers as arrays: names, brokers, connections, QoS, who publishes what at which instant, who
reads slowly.

A message is one integer: ``sequence * publishers + publisher``. Its publisher, its place in the logical FIFO and, as
publishers keep their schedule, its instant follow from it; so a run stores nothing per message.

A delivery has the lower of the QoS of its publisher and that of its subscription (MQTT 5.0, 3.8.4). Most systems have
one QoS for everything: then each answer of `QosLevels` is that number, and nothing is looked up per message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError
from orderlab.sim.engine.packs import NumberedNames, Numbers
from orderlab.sim.engine.random_streams import RandomStreams

Ints = npt.NDArray[np.int64]
NAME_BYTES = 8


@dataclass(frozen=True)
class Clients:
    """A group of clients with equal behaviour. ``latency_us``: one way, constant per connection, so that order is
    kept."""

    prefix: str
    broker: Ints
    latency_us: Ints

    @cached_property
    def _format(self) -> bytes:
        return self.prefix.encode() + b"%07d"

    @classmethod
    def draw(
        cls,
        prefix: str,
        count: int,
        brokers: int,
        streams: RandomStreams,
        floor_us: float,
        median_us: float,
        sigma: float,
    ) -> Clients:
        """Clients spread over the brokers at random, as a load balancer does it: equal numbers, no order."""
        stream = streams.vector_stream(f"clients/{prefix}")
        broker = stream.permutation(np.arange(count) % brokers).astype(np.int64)
        latency = floor_us + median_us * np.exp(sigma * stream.standard_normal(count))
        return cls(prefix, broker, latency.astype(np.int64))

    def __len__(self) -> int:
        return len(self.broker)

    def name(self, number: int) -> bytes:
        """The client identifier: ``s0000042``."""
        return self._format % number

    def names_of(self, numbers: Numbers) -> Sequence[bytes]:
        """The client identifiers of these."""
        return NumberedNames(self.prefix.encode(), NAME_BYTES - 1, numbers)

    def names(self) -> npt.NDArray[np.uint8]:
        """All client identifiers as rows of bytes."""
        return numbered_names(self.prefix.encode(), len(self))


def numbered_names(prefix: bytes, count: int, digits: int = NAME_BYTES - 1) -> npt.NDArray[np.uint8]:
    """``prefix0000000``, ``prefix0000001`` ... as rows of bytes."""
    rows = np.empty((count, len(prefix) + digits), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    left = np.arange(count)
    for column in range(rows.shape[1] - 1, len(prefix) - 1, -1):
        rows[:, column] = 48 + left % 10
        left = left // 10
    return rows


@dataclass(frozen=True)
class PublishersAndWills(Clients):
    """Publishers, and from ``first`` on one for each Will that somebody watches: who it is that publishes a Will is
    none of the publishers."""

    first: int = 0

    @classmethod
    def of(cls, publishers: Clients, wills: int) -> PublishersAndWills:
        """``publishers`` and so many more, who connect nowhere."""
        nowhere = np.full(wills, -1, np.int64)
        return cls(
            publishers.prefix,
            np.concatenate((publishers.broker, nowhere)),
            np.concatenate((publishers.latency_us, np.zeros_like(nowhere))),
            first=len(publishers),
        )

    def name(self, number: int) -> bytes:
        """``w0000042`` for the Will of the subscriber with that number."""
        return super().name(number) if number < self.first else b"w%07d" % (number - self.first)

    def names_of(self, numbers: Numbers) -> Sequence[bytes]:
        """The client identifiers of these."""
        return list(map(self.name, map(int, numbers)))


class Schedule:
    """Every publisher publishes once per interval, at a phase of its own, from instant 0 on."""

    def __init__(self, publishers: Clients, rate_per_s: float, streams: RandomStreams) -> None:
        self.publishers = publishers
        self.count = len(publishers)
        self.interval_us = max(round(1e6 / rate_per_s), 1)
        self.phase_us = streams.vector_stream("phases").integers(0, self.interval_us, self.count)

    def published_us(self, messages: Ints) -> Ints:
        """When each message was sent by its publisher."""
        instants: Ints = self.phase_us[messages % self.count] + messages // self.count * self.interval_us
        return instants

    @property
    def mean_per_s(self) -> float:
        """Messages per second, of all publishers."""
        return self.count * 1e6 / self.interval_us

    def arrivals(self, broker: int) -> Arrivals:
        """What reaches one broker, in order of arrival."""
        return Arrivals(self, broker)


class Arrivals:
    """The publishes that reach one broker: ``until`` yields those that arrive before an instant, each once."""

    def __init__(self, schedule: Schedule, broker: int) -> None:
        clients = schedule.publishers
        self.publishers = mine = np.flatnonzero(clients.broker == broker)
        at = schedule.phase_us[mine] + clients.latency_us[mine]
        rounds, at = at // schedule.interval_us, at % schedule.interval_us
        order = np.lexsort((mine, at))
        self._publisher = mine[order]
        self._at = at[order]
        self._sequence = -rounds[order]
        """In the first interval: an arrival that belongs to the interval before is the next round's."""
        self._interval_us = schedule.interval_us
        self._count = schedule.count
        self._round = 0
        self._next = 0

    def until(self, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of what arrives before ``before_us`` and was not handed out yet."""
        messages, instants = [], []
        while len(self._at):
            end = int(np.searchsorted(self._at, before_us - self._round * self._interval_us))
            part = slice(self._next, end)
            sequence = self._sequence[part] + self._round
            sent = sequence >= 0
            messages.append(sequence[sent] * self._count + self._publisher[part][sent])
            instants.append(self._at[part][sent] + self._round * self._interval_us)
            if end < len(self._at):
                self._next = max(end, self._next)
                break
            self._round += 1
            self._next = 0
        if len(messages) == 1:
            return messages[0], instants[0]
        return np.concatenate(messages or [np.empty(0, np.int64)]), np.concatenate(instants or [np.empty(0, np.int64)])


Pattern = Literal["regular", "exponential", "together"]
BURSTS_MAX = 20_000_000
_WINDOW_US = 100_000
"""Arrivals are put in order for so long at a time."""


class BurstSchedule(Schedule):
    """A schedule of on and off times: ``regular``, always as long as said, each publisher at a phase of its own;
    ``exponential`` around these means; ``together``, regular and everyone's at the same time. Ends ``until_us``.

    A publisher begins each burst with a message and sends one per interval until the burst is over; between the last
    message of a burst and the first of the next lies an interval at least. Instants follow from a list of bursts, not
    of messages.
    """

    def __init__(
        self,
        publishers: Clients,
        rate_per_s: float,
        streams: RandomStreams,
        on_us: float,
        off_us: float,
        pattern: Pattern,
        until_us: int,
    ) -> None:
        """Draw the bursts. Raises InputError for more bursts than are kept."""
        super().__init__(publishers, rate_per_s, streams)
        if self.count * (until_us / (on_us + off_us) + 1) > BURSTS_MAX:
            raise InputError(f"more than {BURSTS_MAX:,} bursts; set publish_on_s or publish_off_s higher")
        self.latency_us = publishers.latency_us
        self._until_us = until_us
        drawn = self._draw(streams.vector_stream("bursts"), on_us, off_us, pattern, until_us)
        begin, sizes, publisher = (np.concatenate(column) for column in zip(*drawn, strict=True))
        order = np.lexsort((begin, publisher))
        self._begin, self._size, self._publisher = begin[order], sizes[order], publisher[order]
        before = np.cumsum(self._size) - self._size
        firsts = np.flatnonzero(np.diff(self._publisher, prepend=-1))
        of_publisher = np.repeat(before[firsts], np.diff(firsts, append=len(before)))
        self._first = before - of_publisher
        """Per burst, the sequence number of its first message."""
        self._key = self._publisher << 32 | self._first

    def _draw(
        self, stream: np.random.Generator, on_us: float, off_us: float, pattern: Pattern, until_us: int
    ) -> list[tuple[Ints, Ints, Ints]]:
        """(begin, messages, publisher) of bursts, the first of every publisher, then the second, and so on."""
        who = np.arange(self.count)
        next_us = np.zeros(self.count)
        if pattern == "regular":  # at the beginning as many are on as at any time
            next_us = stream.uniform(0, on_us + off_us, self.count) - on_us
        elif pattern == "exponential":
            is_off = stream.random(self.count) * (on_us + off_us) < off_us
            next_us = np.where(is_off, stream.exponential(off_us, self.count), self.phase_us)
        drawn = []
        while len(who):
            begin = next_us.astype(np.int64)
            spread = pattern == "exponential"
            on = stream.exponential(on_us, len(who)) if spread else np.full(len(who), on_us)
            off = stream.exponential(off_us, len(who)) if spread else np.full(len(who), off_us)
            sizes = np.maximum(np.ceil(on / self.interval_us), 1).astype(np.int64)
            next_us = np.maximum(next_us + on + off, begin + sizes * self.interval_us)
            over = np.minimum(np.maximum(-(begin // self.interval_us), 0), sizes)  # messages before instant 0
            there = sizes > over
            drawn.append(((begin + over * self.interval_us)[there], (sizes - over)[there], who[there]))
            goes_on = next_us < until_us
            who, next_us = who[goes_on], next_us[goes_on]
        return drawn

    def published_us(self, messages: Ints) -> Ints:
        """When each message was sent by its publisher."""
        sequence, publisher = np.divmod(messages, self.count)
        burst = np.searchsorted(self._key, publisher << 32 | sequence, side="right") - 1
        instants: Ints = self._begin[burst] + (sequence - self._first[burst]) * self.interval_us
        return instants

    @property
    def mean_per_s(self) -> float:
        """Messages per second, of all publishers, on and off."""
        before = np.ceil((self._until_us - self._begin) / self.interval_us).clip(0, self._size)
        return float(before.sum()) * 1e6 / self._until_us

    def arrivals(self, broker: int) -> Arrivals:
        """What reaches one broker, in order of arrival."""
        return BurstArrivals(self, broker)

    def arriving(self, bursts: Ints, from_us: int, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of the messages of ``bursts`` that arrive in a window, in order."""
        publisher, size = self._publisher[bursts], self._size[bursts]
        at = self._begin[bursts] + self.latency_us[publisher]
        low = np.clip(-((at - from_us) // self.interval_us), 0, size)
        high = np.clip(-((at - before_us) // self.interval_us), 0, size)
        number = high - low
        row = np.repeat(np.arange(len(bursts)), number)
        place = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number) + low[row]
        instants = at[row] + place * self.interval_us
        order = np.lexsort((publisher[row], instants))
        messages = (self._first[bursts][row] + place) * self.count + publisher[row]
        return messages[order], instants[order]

    def bursts_of(self, publishers: Ints) -> Ints:
        """The numbers of their bursts."""
        mine = np.zeros(self.count, np.bool_)
        mine[publishers] = True
        return np.flatnonzero(mine[self._publisher])


class ScheduleWithWills(Schedule):
    """A schedule of PublishersAndWills: the instants of Wills are those at which they were published."""

    def __init__(self, schedule: Schedule, first: int) -> None:
        self.publishers, self.count, self.interval_us, self.phase_us = (
            schedule.publishers,
            schedule.count,
            schedule.interval_us,
            schedule.phase_us,
        )
        self.first = first
        self._schedule = schedule
        self._wills_us: dict[int, int] = {}
        self._sequence: dict[int, int] = {}

    def will(self, subscriber: int, now_us: int) -> int:
        """The message that is the subscriber's Will, published now."""
        sequence = self._sequence[subscriber] = self._sequence.get(subscriber, -1) + 1
        message = sequence * self.count + self.first + subscriber
        self._wills_us[message] = now_us
        return message

    def published_us(self, messages: Ints) -> Ints:
        """When each message was sent by its publisher."""
        instants = self._schedule.published_us(messages)
        places = np.flatnonzero(messages % self.count >= self.first)
        instants[places] = [self._wills_us[message] for message in messages[places].tolist()]
        return instants

    def arrivals(self, broker: int) -> Arrivals:
        """What reaches one broker, in order of arrival."""
        return self._schedule.arrivals(broker)


class BurstArrivals(Arrivals):
    """The publishes that reach one broker: ``until`` yields those that arrive before an instant, each once."""

    def __init__(self, schedule: BurstSchedule, broker: int) -> None:
        self._schedule = schedule
        self.publishers = np.flatnonzero(schedule.publishers.broker == broker)
        self._bursts = schedule.bursts_of(self.publishers)
        self._ordered_us = 0
        nothing = np.empty(0, np.int64)
        self._messages, self._instants = nothing, nothing

    def until(self, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of what arrives before ``before_us`` and was not handed out yet."""
        if before_us > self._ordered_us:
            end = max(before_us, self._ordered_us + _WINDOW_US)
            messages, instants = self._schedule.arriving(self._bursts, self._ordered_us, end)
            self._messages = np.concatenate((self._messages, messages))
            self._instants = np.concatenate((self._instants, instants))
            self._ordered_us = end
        ready = int(np.searchsorted(self._instants, before_us))
        found = self._messages[:ready], self._instants[:ready]
        self._messages, self._instants = self._messages[ready:], self._instants[ready:]
        return found


class SlowReaders:
    """Who reads slowly now, and when each takes its next packet: packets wait in socket buffers, in order, until they
    are read."""

    def __init__(self) -> None:
        self._interval_us: dict[int, int] = {}
        self._free_us: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether anybody has been slow yet."""
        return bool(self._free_us)

    def slow_down(self, subscribers: Iterable[int], interval_us: int) -> None:
        """Let each take, from now on, a packet every ``interval_us`` at most."""
        for subscriber in subscribers:
            self._interval_us[subscriber] = interval_us
            self._free_us.setdefault(subscriber, 0)

    def recover(self, subscribers: Iterable[int]) -> None:
        """Let them read at once again, behind what still waits."""
        for subscriber in subscribers:
            self._interval_us.pop(subscriber, None)

    def forget(self, subscriber: int) -> None:
        """Forget what waited in the buffers of a connection that is gone."""
        if subscriber in self._free_us:
            self._free_us[subscriber] = 0

    def are_slow(self, subscribers: Ints) -> npt.NDArray[np.bool_]:
        """Who is slow, or was and may have packets waiting."""
        return np.array([subscriber in self._free_us for subscriber in subscribers.tolist()], np.bool_)

    def read_us(self, subscribers: Ints, arrived_us: Ints) -> Ints:
        """When those who are slow read packets that arrive at ``arrived_us``, in the order in which they were sent."""
        read = []
        for subscriber, arrived in zip(subscribers.tolist(), arrived_us.tolist(), strict=True):
            at = max(arrived, self._free_us[subscriber])
            self._free_us[subscriber] = at + self._interval_us.get(subscriber, 1)
            read.append(at)
        return np.array(read, np.int64)


@dataclass
class WillMessages:
    """The Will Messages of subscribers: that of subscriber ``s`` below ``count`` is on topic ``first + s``, of a
    publisher of that number, and watched by the subscriber of that number. The Wills of the others nobody watches; the
    watchers have none."""

    delay_us: int
    """Will Delay Interval."""
    count: int
    first: int
    waiting: dict[int, int] = field(default_factory=dict)
    """Per broker, those that it is about to publish, and that are not in Kafka yet."""
    last_us: int = 0
    """When the last one is due."""

    def columns(self, subscribers: Ints, connections: Ints) -> dict[str, Ints]:
        """What the history says of their CONNECTs. ``connections``: their numbers, from 0."""
        has_one = subscribers < self.count
        return {"will_delay_us": np.where(has_one, self.delay_us, -1), "connection": connections + 1}


QOS_LEVELS = 3


@dataclass(frozen=True, slots=True)
class QosLevels:
    """``published``: per publisher, or of all. ``granted``: per subscriber, or to all. ``outgoing``: which of them a
    delivery has; right is the lower (MQTT-3.8.4-8)."""

    published: Ints | int
    granted: Ints | int
    outgoing: Literal["lower", "granted", "published"] = "lower"

    @classmethod
    def all_at(cls, qos: int) -> QosLevels:
        """The levels of a system with one QoS everywhere."""
        return cls(qos, qos)

    @property
    def sole(self) -> int | None:
        """The QoS of every message on all its way, if there is one."""
        published, granted = self.published, self.granted
        return published if isinstance(published, int) and isinstance(granted, int) and published == granted else None

    def of_publishers(self, publishers: Ints) -> Any:
        """QoS of what they publish: one number, or one for each."""
        return self.published if isinstance(self.published, int) else self.published[publishers]

    def granted_to(self, subscribers: Ints) -> Any:
        """QoS that their subscriptions are granted: one number, or one for each."""
        return self.granted if isinstance(self.granted, int) else self.granted[subscribers]

    def of_deliveries(self, publishers: Ints, subscribers: Ints) -> Any:
        """QoS of deliveries from publishers to subscribers: one number, or one for each."""
        sole = self.sole
        if sole is not None:
            return sole
        if self.outgoing == "lower":
            level = np.minimum(self.of_publishers(publishers), self.granted_to(subscribers))
        else:
            level = self.granted_to(subscribers) if self.outgoing == "granted" else self.of_publishers(publishers)
        return np.broadcast_to(level, len(publishers))


def where(is_so: bool | npt.NDArray[np.bool_], values: Ints) -> Ints:
    """Those of ``values`` for which it is so; ``is_so`` may be one answer for all."""
    if isinstance(is_so, np.ndarray) and is_so.ndim:
        return values[is_so]
    return values if is_so else values[:0]


def parse_shares(setting: str, text: str) -> tuple[float, ...]:
    """The shares of QoS 0, 1 and 2 that ``0=0.2 1=0.5 2=0.3`` stands for. Raises InputError."""
    shares = [0.0] * QOS_LEVELS
    for word in text.split():
        level, equals, share = word.partition("=")
        if not equals or level not in ("0", "1", "2"):
            raise InputError(f'{setting}: {word}: not the share of a QoS; write "0=0.2 1=0.5 2=0.3"')
        try:
            shares[int(level)] += float(share)
        except ValueError:
            raise InputError(f"{setting}: {word}: {share} is not a number; a share lies between 0 and 1") from None
    if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"{setting}: {text}: the shares of QoS 0, 1 and 2 lie between 0 and 1 and add up to 1")
    return tuple(shares)


def draw_levels(shares: tuple[float, ...], count: int, streams: RandomStreams, name: str) -> Ints | int:
    """A QoS for each of ``count`` clients, in these shares to within a client, who gets which at random."""
    bounds = np.rint(np.cumsum(shares) * count).astype(np.int64)
    numbers = np.diff(bounds, prepend=0)
    if (numbers == count).any():
        return int(np.argmax(numbers))
    levels: Ints = streams.vector_stream(f"qos/{name}").permutation(np.repeat(np.arange(QOS_LEVELS), numbers))
    return levels
