"""A shard against a plain list with the standard's matching: every schema and shape of topics, generations that inherit
patterns, batches that fail, stores that are opened again after every kind of write, and writers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.sim.mqtt.topics import matches
from orderlab.sim.streams.keys import HashedLevels, LearnedPatterns
from orderlab.sim.streams.ordered_store import MemoryStore, OrderedStore, Pair, RocksStore
from orderlab.sim.streams.shard import Dropped, Iterator, Message, Schema, Shard, TimeBuckets

NAMES = ("", "a", "b", "ü", "日本", "$x", "$SYS", " ", "A", "1", "2", "3", "4")


class Failing(MemoryStore):
    """A store that refuses a batch when it is asked to."""

    fails = False

    def put(self, batch: Iterable[Pair]) -> None:
        found = list(batch)
        if self.fails:
            raise OSError("no space left")
        super().put(found)


def topics_of(draws: random.Random, count: int) -> list[str]:
    names = draws.sample(NAMES, draws.randrange(2, 9))
    found = ["/".join(draws.choice(names) for _ in range(draws.choice((1, 2, 3, 4, 4, 5, 6, 9)))) for _ in range(count)]
    return [topic or "a" for topic in found]


def filters_of(draws: random.Random, topics: Sequence[str]) -> list[str]:
    """Of some topics, every set of their levels as "+", and "#" at every place."""
    found = {"#", "+", "+/#", "/#", "+/+", "$SYS/#", "none/#"}
    for topic in draws.sample(topics, min(len(topics), 3)):
        levels = topic.split("/")[:6]
        for is_plus in product((False, True), repeat=len(levels)):
            one = ["+" if plus else level for level, plus in zip(levels, is_plus, strict=True)]
            found |= {"/".join(one), "/".join([*one, "#"]), "/".join([*one[:-1], "#"])}
    return draws.sample(sorted(found - {""}), min(len(found - {""}), 12))


def schema_of(draws: random.Random, known: Schema | None) -> Schema:
    """Fresh, or with what an older generation has learned, in its order or another, with another threshold; or the same
    object again."""
    if isinstance(known, LearnedPatterns) and draws.random() < 0.7:
        patterns = list(known.patterns)
        if draws.random() < 0.3:
            draws.shuffle(patterns)
        return known if draws.random() < 0.2 else LearnedPatterns(draws.randrange(1, 6), patterns)
    if draws.random() < 0.6:
        return LearnedPatterns(draws.randrange(1, 6))
    return HashedLevels(
        draws.choice((1, 2, 3, 4, 5, 64)), draws.choice(("shift", "z-order")), draws.choice(("slash", "empty"))
    )


def read_all(shard: Shard, topic_filter: str, most: int) -> list[Message]:
    iterator, found = shard.replay(topic_filter), list[Message]()
    while True:
        some, iterator = shard.next(iterator, most)
        found += some
        if not some:
            return found


class Run:
    """A shard, a list beside it, and readers that go on with an iterator that was written down."""

    def __init__(self, seed: str, again: Callable[[], OrderedStore]) -> None:
        self.draws, self.again = random.Random(seed), again
        self.store = again()
        self.now, self.buckets = 0, TimeBuckets(self.draws.choice((0, 2, 20)))
        self.shard = Shard(self.store, lambda: self.now, schema_of(self.draws, None), self.buckets)
        self.topics = topics_of(self.draws, 20)
        self.stored: list[Message] = []
        self.dropped = 0
        self.readers: list[tuple[str, str, list[int]]] = []

    def reopen(self) -> None:
        if not isinstance(self.store, MemoryStore):
            self.store.close()
            self.store = self.again()
        self.shard = Shard(self.store, lambda: self.now, buckets=self.buckets)

    def append(self) -> None:
        self.now = max(self.now + self.draws.randrange(-2, 5), 0)
        some = [
            Message(self.draws.choice(self.topics), f"p{self.draws.randrange(2)}", b"%d" % number)
            for number in range(self.draws.randrange(6))
        ]
        if isinstance(self.store, Failing) and self.draws.random() < 0.2:
            self.store.fails = True
            with pytest.raises(OSError, match="no space"):
                self.shard.append([Message("/".join(self.draws.choices("abcde", k=3)), "p", b"lost"), *some])
            self.store.fails = False
            return
        last = self.shard.append(some)
        self.stored += [
            one._replace(sequence=last - len(some) + 1 + at, time=self.shard.time) for at, one in enumerate(some)
        ]

    def change(self) -> None:
        """A new generation, or the oldest is dropped."""
        if len(self.shard.generations) > 1 and self.draws.random() < 0.25:
            self.shard.drop_generation(min(self.shard.generations))
            self.dropped = self.shard.generations[min(self.shard.generations)].since
        else:
            older = self.shard.generations[self.draws.choice(sorted(self.shard.generations))].schema
            self.shard.new_generation(schema_of(self.draws, older))

    def read_on(self) -> None:
        if len(self.readers) < 4:
            one = self.draws.choice(filters_of(self.draws, self.topics))
            self.readers.append((one, self.shard.replay(one).to_json(), []))
        for place, (topic_filter, line, seen) in enumerate(self.readers):
            iterator = Iterator.from_json(line)
            try:
                messages, iterator = self.shard.next(iterator, self.draws.randrange(1, 6))
            except Dropped as told:
                messages, iterator = [], told.iterator
            seen += [one.sequence for one in messages]
            self.readers[place] = topic_filter, iterator.to_json(), seen

    def check(self) -> None:
        kept = [one for one in self.stored if one.sequence > self.dropped]
        for topic_filter in filters_of(self.draws, self.topics):
            wanted = [one for one in kept if matches(topic_filter, one.topic)]
            found = read_all(self.shard, topic_filter, self.draws.choice((1, 3, 100)))
            assert sorted(found, key=lambda one: one.sequence) == wanted, topic_filter
            for topic in {one.topic for one in wanted}:
                assert [one for one in found if one.topic == topic] == [one for one in wanted if one.topic == topic], (
                    "order within a topic"
                )

    def end(self) -> None:
        """Readers come to the end: each has seen once what was not dropped under it."""
        for topic_filter, line, seen in self.readers:
            iterator = Iterator.from_json(line)
            while True:
                try:
                    some, iterator = self.shard.next(iterator, 7)
                except Dropped as told:
                    iterator = told.iterator
                    continue
                seen += [one.sequence for one in some]
                if not some:
                    break
            assert len(seen) == len(set(seen)), topic_filter
            wanted = {
                one.sequence for one in self.stored if one.sequence > self.dropped and matches(topic_filter, one.topic)
            }
            assert wanted <= set(seen), topic_filter
            assert set(seen) <= {one.sequence for one in self.stored if matches(topic_filter, one.topic)}, topic_filter

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.draws.choices((self.append, self.change, self.read_on), (4, 2, 2))[0]()
            if self.draws.random() < 0.5:
                self.reopen()
            self.check()
        self.end()


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**9))
def test_a_shard_in_memory_is_a_list(seed: int) -> None:
    store = Failing()
    Run(f"{seed}:memory", lambda: store).go(8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(20))
def test_a_shard_in_memory_is_a_list_whatever_the_seed(part: int) -> None:
    for seed in range(200):
        store = Failing()
        Run(f"{part}:{seed}", lambda store=store: store).go(20)  # type: ignore[misc]


@pytest.mark.parametrize("seeds", [3, pytest.param(150, marks=pytest.mark.exhaustive)])
def test_a_shard_on_disk_is_a_list(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        Run(f"{seed}:disk", lambda seed=seed: RocksStore(tmp_path / f"{seed}")).go(6)  # type: ignore[misc]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_generation_keeps_what_it_inherited(order: int) -> None:
    """Opened again, a shard whose second generation began with the patterns of the first finds the messages of both, in
    any order of topics."""
    store = MemoryStore()
    topics = [f"devices/{number}/{what}" for number in range(4) for what in ("on", "off")]
    random.Random(order).shuffle(topics)
    first = LearnedPatterns(2)
    shard = Shard(store, lambda: 0, first)
    shard.append([Message(topic, "p", b"1") for topic in topics])
    shard.new_generation(LearnedPatterns(3, first.patterns))
    shard.append([Message(topic, "p", b"2") for topic in reversed(topics)])
    again = Shard(store, lambda: 0)
    assert again.generations[1].patterns[: len(first.patterns)] == first.patterns
    found = read_all(again, "devices/+/+", 99)
    assert sorted((one.topic, one.payload) for one in found) == sorted(
        (topic, payload) for topic in topics for payload in (b"1", b"2")
    )


def test_patterns_of_a_dropped_generation_are_removed() -> None:
    store = MemoryStore()
    shard = Shard(store, lambda: 0, LearnedPatterns(2))
    shard.append([Message("a/b", "p", b"")])
    shard.new_generation(LearnedPatterns(2))
    shard.drop_generation(0)
    assert not [key for key, _ in store.seek(b"") if b"pattern" in key]


def test_a_filter_over_many_patterns_is_one_walk() -> None:
    """Below the threshold each topic is a pattern: as many seeks as pages, not as patterns."""
    shard = Shard(MemoryStore(), lambda: 0, LearnedPatterns(16))
    shard.append([Message("/".join(map(str, levels)), "p", b"") for levels in product(range(6), repeat=4)])
    assert len(read_all(shard, "#", 100)) == 6**4
    assert shard.cost.seeks <= 6**4 // 100 + 2


WRITER = """
import sys
from pathlib import Path
from orderlab.sim.streams.keys import HashedLevels, LearnedPatterns
from orderlab.sim.streams.ordered_store import RocksStore
from orderlab.sim.streams.shard import Message, Shard
ticks = iter(range(10**9))
shard = Shard(RocksStore(Path(sys.argv[1])), lambda: next(ticks), LearnedPatterns(2))
while True:
    first = shard.sequence
    print(shard.append([Message(f"{(first + more) % 3}/{(first + more) % 7}/b", "p", b"%d" % (first + more)) for more in range(5)]), flush=True)
    newest = shard.generations[max(shard.generations)].schema
    if first % 3 == 0:
        learned = isinstance(newest, LearnedPatterns)
        shard.new_generation(LearnedPatterns(1 + first % 4, newest.patterns[::-1]) if learned and first % 2 else LearnedPatterns(3) if not learned else HashedLevels(2))
    if len(shard.generations) > 40:
        shard.drop_generation(min(shard.generations))
"""  # noqa: E501


@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_a_writer_of_generations_that_is_killed_loses_nothing(tmp_path: Path, kills: int) -> None:
    for number in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "db")], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = list(islice(process.stdout, number * 7 % 11 + 3))
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()
        reported = int([line for line in lines if line.endswith("\n")][-1])
        store = RocksStore(tmp_path / "db")
        shard = Shard(store, lambda: 0)
        dropped = shard.generations[min(shard.generations)].since
        assert shard.sequence >= reported
        for topic_filter in ("#", "+/3/b", "1/+/b", "+/+/+", "2/#"):
            topics = {number: f"{number % 3}/{number % 7}/b" for number in range(dropped, shard.sequence)}
            found = read_all(shard, topic_filter, 1000)
            assert sorted(int(one.payload) for one in found) == [
                number for number, topic in topics.items() if matches(topic_filter, topic)
            ]
        store.close()
