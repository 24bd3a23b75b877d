"""A shard of durable streams: takes messages, keeps them in order, replays what a topic filter selects.

Replay goes in *rounds*. A round has a window of sequence numbers, all of them stored before it began, and walks the
keys of what its filter selects, topic by topic; the next round begins where the window ended. So nothing can become
visible behind the place that an iterator has reached, though keys are not in the order of time, and a message is in one
window. Within a round a logical FIFO is read in order, for its messages share a topic, and sequence numbers and times
of a shard only grow.

An `Iterator` is a value: written down and read again, by another process too, it goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from collections.abc import Iterator as Pairs
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, repeat
from struct import Struct
from time import monotonic_ns
from typing import Any, NamedTuple, NoReturn

from orderlab.model.errors import InputError
from orderlab.model.history.topics import check_topic_filter, check_topic_name, split_shared
from orderlab.sim.mqtt.topics import matches
from orderlab.sim.streams.keys import KEY, HashedLevels, LearnedPatterns, Pattern, Selection, TimeBuckets
from orderlab.sim.streams.ordered_store import OrderedStore, Pair, View

STREAM = Struct(">HIQ")
"""Generation, epoch and index: what the keys of one topic in one bucket begin with."""
FACTS = b"\xff\xff"
"""Behind all generations: what the shard knows of itself."""
_LAST = Struct(">QQ")
_TAIL = Struct(">IQ")
_AT_END = b"\xff" * 13


class Message(NamedTuple):
    """As published; ``sequence`` and ``time`` are the shard's."""

    topic: str
    publisher: str
    payload: bytes
    sequence: int = 0
    time: int = 0


@dataclass(frozen=True)
class Iterator:
    """A place in a replay. ``since`` is read, ``until`` is to be read in this round; ``key`` is the least that may come
    next in the walk of the generation. Patterns that are learned during the round hold nothing of its window."""

    topic_filter: str
    since: int
    until: int
    since_time: int
    until_time: int
    generation: int = 0
    key: bytes = b""
    is_done: bool = False
    opening: int = 0
    """How often the shard had been opened again when the round began."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self), "key": self.key.hex()})

    @staticmethod
    def from_json(text: str) -> Iterator:
        """The iterator that `to_json` wrote. Raises InputError."""
        try:
            found = json.loads(text)
            iterator = Iterator(**{**found, "key": bytes.fromhex(found["key"])})
            numbers = [
                getattr(iterator, name)
                for name in ("since", "until", "since_time", "until_time", "generation", "opening")
            ]
            if (
                not all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)
                or type(iterator.is_done) is not bool
            ):
                raise ValueError("places and times are whole numbers from 0 on, is_done is true or false")
            check_topic_filter(iterator.topic_filter)
            return iterator
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"iterator: {error}; give a line as a replay wrote it") from None


class Dropped(Exception):
    """Messages that the iterator had not read have been removed by retention; ``iterator`` goes on behind them."""

    def __init__(self, generation: int, iterator: Iterator) -> None:
        super().__init__(f"generation {generation} was dropped before it was read to its end")
        self.generation, self.iterator = generation, iterator


class Rewound(Exception):
    """The shard was opened again and ended before the place that an iterator has reached: what a reader was given may
    be gone, with the power of a machine that had not synced it. What came since has the numbers of what is gone;
    ``iterator`` goes on behind what is left, with all of that."""

    def __init__(self, sequence: int, iterator: Iterator) -> None:
        super().__init__(
            f"the shard ended at {sequence}, before what the iterator has read; its store has lost what was not synced"
        )
        self.sequence, self.iterator = sequence, iterator


@dataclass
class Cost:
    """What walks have asked of the store."""

    seeks: int = 0
    steps: int = 0


Schema = HashedLevels | LearnedPatterns


class _Heads(dict[str, bytes]):
    """What the keys of a topic begin with in one bucket, made when it is first asked for."""

    def __init__(self, schema: Schema, generation: int, epoch: int) -> None:
        super().__init__()
        self._schema, self._generation, self._epoch = schema, generation, epoch

    def __missing__(self, topic: str) -> bytes:
        check_topic_name(topic)
        found = self[topic] = STREAM.pack(self._generation, self._epoch, self._schema.index(topic))
        return found


@dataclass
class _Generation:
    schema: Schema
    since: int
    """Its messages have greater sequence numbers."""
    told: dict[str, Any]
    stored: int = 0
    """How many patterns of the schema the store has for this generation; they count when the batch with them is
    written, which may fail."""
    closed_ms: int = 0
    """When the next one began, or the store was opened since: by then its messages were stored, in elapsed time of this
    process."""

    @property
    def patterns(self) -> list[Pattern]:
        """What its schema has learned."""
        return self.schema.patterns if isinstance(self.schema, LearnedPatterns) else []


class Shard:
    """Takes the last numbers and the schemas from what the store holds. ``clock`` gives ticks and may stand, jump or go
    back: a message's time is never less than that of the one before."""

    def __init__(
        self,
        store: OrderedStore,
        clock: Callable[[], int],
        schema: Schema | None = None,
        buckets: TimeBuckets | None = None,
        elapsed_ms: Callable[[], int] = lambda: monotonic_ns() // 1_000_000,
    ) -> None:
        self.store, self.clock, self.elapsed_ms = store, clock, elapsed_ms
        self.buckets = buckets or TimeBuckets()
        self.cost = Cost()
        self.sequence = self.time = 0
        self.generations: dict[int, _Generation] = {}
        self._heads_of = -1, -1
        self._heads: dict[str, bytes] = {}
        self._openings: list[tuple[int, int]] = []
        """The last number and time that the shard had each time that it was opened again."""
        facts = dict(store.seek(FACTS))
        if FACTS + b"last" in facts:
            self.sequence, self.time = _LAST.unpack(facts[FACTS + b"last"])
        for key, value in facts.items():
            if key.startswith(FACTS + b"generation"):
                told = json.loads(value)
                number = int.from_bytes(key[-2:], "big")
                self.generations[number] = found = _Generation(self._opened(told, facts, number), told["since"], told)
                found.stored, found.closed_ms = len(found.patterns), elapsed_ms()
        if facts and self.buckets.offset_bits != self._newest.told["offset_bits"]:
            raise InputError(
                f"offset_bits: the store was written with {self._newest.told['offset_bits']}; open it with the same"
            )
        if facts:
            self._remove_before(min(self.generations))  # what an interrupted drop has left
            self._open_again(facts)
        else:
            self.new_generation(schema or HashedLevels())

    def _open_again(self, facts: dict[bytes, bytes]) -> None:
        """Note where the shard ends now. On disk before anybody reads: else an opening that lost power with what it
        stored is taken for the next one."""
        start = FACTS + b"opening"
        self._openings = [_LAST.unpack(value) for key, value in sorted(facts.items()) if key.startswith(start)]
        self.store.put([(start + len(self._openings).to_bytes(8, "big"), _LAST.pack(self.sequence, self.time))])
        self.store.sync()
        self._openings.append((self.sequence, self.time))

    @staticmethod
    def _opened(told: dict[str, Any], facts: dict[bytes, bytes], number: int) -> Schema:
        if told["kind"] == "hashed":
            return HashedLevels(told["levels"], told["combine"], told["padding"])
        start = FACTS + b"pattern" + number.to_bytes(2, "big")
        patterns = [tuple(json.loads(value)) for key, value in sorted(facts.items()) if key.startswith(start)]
        return LearnedPatterns(told["threshold"], patterns)

    @property
    def _newest(self) -> _Generation:
        return self.generations[max(self.generations)]

    @property
    def has_fresh(self) -> bool:
        """Whether the newest generation has messages."""
        return self._newest.since < self.sequence

    def new_generation(self, schema: Schema) -> int:
        """Messages from now on are kept by another schema; its number. Older ones stay where they are and are replayed
        before."""
        number = max(self.generations, default=-1) + 1
        if number >= 0xFFFF:
            raise InputError("65535 generations: no number is left; replay into a new shard")
        kind: dict[str, Any] = (
            {"kind": "learned", "threshold": schema.threshold}
            if isinstance(schema, LearnedPatterns)
            else {"kind": "hashed", **asdict(schema)}
        )
        told = {**kind, "since": self.sequence, "since_time": self.time, "offset_bits": self.buckets.offset_bits}
        begun = _Generation(schema, self.sequence, told)
        known = len(begun.patterns)  # what it begins with, of an older one, is stored again under its own number
        self.store.put(
            [
                (FACTS + b"generation" + number.to_bytes(2, "big"), json.dumps(told).encode()),
                *self._fresh(begun, number),
            ]
        )
        begun.stored = known
        if self.generations:
            self._newest.closed_ms = self.elapsed_ms()
        self.generations[number] = begun
        return number

    def append(self, messages: Sequence[Message]) -> int:
        """Store all messages or none, with the patterns that they need; the last sequence number. Acknowledge after it
        has returned."""
        number = max(self.generations)
        generation = self.generations[number]
        schema = generation.schema
        time = max(self.time, self.clock())
        epoch, offset = self.buckets.split(time)
        if (number, epoch) != self._heads_of:
            self._heads_of = number, epoch
            self._heads = _Heads(schema, number, epoch)
        last = self.sequence + len(messages)
        tails = map(_TAIL.pack, repeat(offset), range(self.sequence + 1, last + 1))
        heads = self._heads
        # made one by one as the store takes them: no list of them all
        pairs = (
            (heads[topic] + tail, f"{topic}\0{publisher}\0".encode() + payload)
            for (topic, publisher, payload, _, _), tail in zip(messages, tails, strict=True)
            if "\0" not in publisher or _refuse(publisher, "U+0000 is not allowed (MQTT-1.5.4-2)")
        )
        try:
            self.store.put(chain(pairs, self._facts(generation, number, last, time)))
        except UnicodeEncodeError as error:
            _refuse(error.object, "not well-formed UTF-8 (MQTT-1.5.4-1)")
        generation.stored = len(generation.patterns)
        self.sequence, self.time = last, time
        return last

    @staticmethod
    def _fresh(generation: _Generation, number: int) -> Pairs[Pair]:
        """The patterns that the store does not have yet."""
        for place, pattern in enumerate(generation.patterns[generation.stored :], generation.stored):
            yield (
                FACTS + b"pattern" + number.to_bytes(2, "big") + place.to_bytes(4, "big"),
                json.dumps(pattern).encode(),
            )

    @classmethod
    def _facts(cls, generation: _Generation, number: int, sequence: int, time: int) -> Pairs[Pair]:
        """What a batch adds to what the shard knows of itself: patterns that its messages were the first to need, and
        the last numbers."""
        yield from cls._fresh(generation, number)
        yield FACTS + b"last", _LAST.pack(sequence, time)

    def drop_generation(self, number: int) -> None:
        """Retention: remove the oldest generation; its schema first, without which nobody reads it. Raises
        InputError."""
        if number == max(self.generations) or number != min(self.generations):
            raise InputError(f"generation {number}: only the oldest can be dropped, and not while it is written")
        self.store.delete_range(
            FACTS + b"generation" + number.to_bytes(2, "big"), FACTS + b"generation" + (number + 1).to_bytes(2, "big")
        )
        self._remove_before(number + 1)
        del self.generations[number]

    def _remove_before(self, number: int) -> None:
        """Remove what earlier generations held, and what they had learned."""
        for start in (b"", FACTS + b"pattern"):
            self.store.delete_range(start + b"\0\0", start + number.to_bytes(2, "big"))

    def expire(self, age_ms: int) -> None:
        """Retention by time: drop the generations that took their last message longer ago, by the elapsed time that
        this node has seen. Clocks of leaders, which jump, have no part in it; after a reopening a node counts anew, so
        that it drops late and never early. What is to be dropped in parts takes generations as often."""
        while (
            len(self.generations) > 1 and self.elapsed_ms() - self.generations[min(self.generations)].closed_ms > age_ms
        ):
            self.drop_generation(min(self.generations))

    def replay(self, topic_filter: str, since: int = 0, since_time: int = 0) -> Iterator:
        """An iterator over what the filter selects of the messages behind ``since``. Raises InputError for a bad
        filter."""
        check_topic_filter(topic_filter)
        plain = split_shared(topic_filter)[1]
        since = min(max(since, self.generations[min(self.generations)].since), self.sequence)
        return self._round(
            Iterator(plain, since, since, since_time, since_time, is_done=True, opening=len(self._openings))
        )

    def _checked(self, iterator: Iterator) -> Iterator:
        """The iterator as one of this opening. Raises Rewound if the shard has since been opened with less than the
        round has."""
        known = replace(iterator, opening=len(self._openings))
        sequence, time = min(self._openings[iterator.opening :], default=(self.sequence, self.time))
        if iterator.opening < len(self._openings) and iterator.until <= sequence:
            return known
        if iterator.since <= sequence:  # what is left of the round is still to be read; it may begin at a time to come
            raise Rewound(sequence, replace(known, until=sequence, until_time=max(time, iterator.since_time)))
        raise Rewound(sequence, replace(known, since=sequence, until=sequence, since_time=time, until_time=time))

    def _round(self, iterator: Iterator) -> Iterator:
        """The round behind one that is over."""
        before = [number for number, one in self.generations.items() if one.since <= iterator.until]
        if not before:
            oldest = min(self.generations)
            raise Dropped(oldest - 1, replace(iterator, until=self.generations[oldest].since))
        return Iterator(
            # a replay that begins at a time to come goes on waiting for it
            iterator.topic_filter,
            iterator.until,
            self.sequence,
            iterator.until_time,
            max(self.time, iterator.until_time),
            max(before),
            is_done=self.sequence == iterator.until,
            opening=iterator.opening,
        )

    def next(self, iterator: Iterator, most: int, view: View | None = None) -> tuple[list[Message], Iterator]:
        """Up to ``most`` messages, and the iterator behind them; none if all that is stored has been read. Raises
        Dropped and Rewound."""
        pairs, iterator = self.next_pairs(iterator, most, view)
        return [self.unpacked(pair) for pair in pairs], iterator

    def next_pairs(self, iterator: Iterator, most: int, view: View | None = None) -> tuple[list[Pair], Iterator]:
        """As `next`, as stored."""
        view = view or self.store
        if iterator.opening != len(self._openings):
            iterator = self._checked(iterator)
        while True:
            if iterator.is_done:
                iterator = self._round(iterator)
                if iterator.is_done:
                    return [], iterator
            generation = self.generations.get(iterator.generation)
            if generation is None:
                oldest = min(self.generations)
                until = max(iterator.until, self.generations[oldest].since)  # all of it told at once
                raise Dropped(iterator.generation, replace(iterator, generation=oldest, key=b"", until=until))
            found, key = self._walk(view, iterator, generation.schema.selection(iterator.topic_filter), most)
            if key:
                return found, replace(iterator, key=key)
            later = [
                number
                for number, one in self.generations.items()
                if number > iterator.generation and one.since < iterator.until
            ]
            if later:
                iterator = replace(iterator, generation=iterator.generation + 1, key=b"")
            else:
                iterator = replace(iterator, is_done=True)
            if found:
                return found, iterator

    def unpacked(self, pair: Pair) -> Message:
        """The message that a pair holds."""
        _, epoch, _, offset, sequence = KEY.unpack(pair[0])
        topic, publisher, payload = _unpacked(pair[1])
        return Message(topic, publisher, payload, sequence, self.buckets.joined(epoch, offset))

    def _window(self, iterator: Iterator) -> tuple[int, int, bytes, bytes, bytes]:
        """The first and the last bucket of time, the ends of keys where they begin and end, and the key behind all.

        Times grow with sequence numbers, so that in a stream the window ends at one key; and it begins at one, if the
        times are those of its ends.
        """
        number = iterator.generation
        first, first_offset = self.buckets.split(iterator.since_time)
        last, last_offset = self.buckets.split(iterator.until_time)
        stop = STREAM.pack(number, last + 1, 0) if last + 1 < 1 << 32 else (number + 1).to_bytes(2, "big")
        begins, ends = _TAIL.pack(first_offset, iterator.since + 1), _TAIL.pack(last_offset, iterator.until + 1)
        return first, last, begins, ends, stop

    def _walk(self, view: View, iterator: Iterator, selection: Selection, most: int) -> tuple[list[Pair], bytes]:
        """The next messages of one generation, and the key to go on with; an empty one at its end.

        Of a topic that is not selected one key is looked at, and then the least that can be is sought.
        """
        number = iterator.generation
        first_epoch, last_epoch, first_tail, last_tail, stop = self._window(iterator)
        low = iterator.since.to_bytes(8, "big")
        first = selection.next(0)
        if first is None:
            return [], b""
        key = iterator.key or STREAM.pack(number, first_epoch, first)
        found: list[Pair] = []
        add = found.append
        cost = self.cost
        while key and key < stop:
            cost.seeks += 1
            walk, key = view.seek(key), b""
            stream = end = topic = past = b""
            is_old, looked = False, -1
            while not key and looked != (looked := len(found) + cost.steps):
                for pair in islice(walk, most - len(found)):
                    here, value = pair
                    if here >= end:
                        if here >= stop:
                            break
                        # Stored since the round began; so is all that follows of the topics that share the index.
                        if here[:14] == stream:
                            key = stream + _AT_END
                            break
                        stream = here[:14]
                        _, epoch, index = STREAM.unpack(stream)
                        if (selected := selection.next(index)) != index:
                            cost.steps += 1
                            key = (
                                STREAM.pack(number, epoch, selected)
                                if selected is not None
                                else STREAM.pack(number, epoch + 1, first)
                            )
                            break
                        if epoch == first_epoch and here[14:] < first_tail:
                            cost.steps += 1
                            key = stream + first_tail
                            break
                        end = stream + (last_tail if epoch == last_epoch else _AT_END)
                        if here >= end:
                            key = stream + _AT_END
                            break
                        is_old = here[18:] <= low
                    if is_old and (is_old := here[18:] <= low):
                        cost.steps += 1
                        continue
                    if not topic <= value < past:
                        named = value[: value.index(0)]
                        if not matches(iterator.topic_filter, named.decode()):  # another topic with this index
                            cost.steps += 1
                            continue
                        topic, past = named + b"\0", named + b"\1"
                    add(pair)
                else:
                    if len(found) == most:
                        cost.steps += most
                        return found, here + b"\0"
                    continue
                break
        cost.steps += len(found)
        return found, b""


def _refuse(publisher: str, why: str) -> NoReturn:
    raise InputError(f"publisher {publisher!r}: {why}")


def _unpacked(value: bytes) -> tuple[str, str, bytes]:
    """Topic, publisher and payload: U+0000, which names cannot have, ends the names. So a topic is recognised by what a
    value begins with."""
    topic, publisher, payload = value.split(b"\0", 2)
    return topic.decode(), publisher.decode(), payload
