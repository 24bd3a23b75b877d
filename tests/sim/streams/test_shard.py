"""Keys and replay: the skip-scan against a full scan with the standard's matching, and the published walk as a
specimen."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.topics import matches
from orderlab.sim.streams.keys import (
    INDEX_BITS,
    KEY,
    Combine,
    HashedLevels,
    LearnedPatterns,
    Padding,
    Query,
    TimeBuckets,
    next_selected,
)
from orderlab.sim.streams.ordered_store import MemoryStore, Pair, RocksStore
from orderlab.sim.streams.shard import FACTS, STREAM, Dropped, Iterator, Message, Schema, Shard


def published_walk(shard: Shard, topic_filter: str) -> list[Message]:
    """What the walk of the proposal finds: it ends at the first key whose index is not selected (a specimen; in one
    bucket)."""
    (query,) = shard.generations[0].schema.queries(topic_filter)
    found = []
    for pair in shard.store.seek(STREAM.pack(0, 0, query.wanted)):
        if pair[0] >= FACTS or KEY.unpack(pair[0])[2] & query.mask != query.wanted:
            break
        if matches(topic_filter, (message := shard.unpacked(pair)).topic):
            found.append(message)
    return found


LEVELS = st.sampled_from(["", "a", "b", "c", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=6).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from(["", "a", "b", "+", "+", "$x"]), max_size=6),
    st.sampled_from([[], [], ["#"]]),
).filter(bool)
SCHEMAS = st.one_of(
    st.builds(
        HashedLevels,
        st.sampled_from([1, 3, 4, 5, 64]),
        st.sampled_from(["shift", "z-order"]),
        st.sampled_from(["slash", "empty"]),
    ),
    st.builds(LearnedPatterns, st.integers(1, 3)),
)


class Clock:
    """Ticks that the test sets; they may go back."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def shard_of(schema: Schema, clock: Clock, offset_bits: int = 2) -> Shard:
    return Shard(MemoryStore(), clock, schema, TimeBuckets(offset_bits))


def read_all(shard: Shard, iterator: Iterator, most: int = 3) -> tuple[list[Message], Iterator]:
    """Each batch with an iterator that was written down and read again."""
    found: list[Message] = []
    while True:
        some, iterator = shard.next(Iterator.from_json(iterator.to_json()), most)
        found += some
        if not some:
            return found, iterator


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    SCHEMAS,
    st.lists(st.tuples(st.integers(-3, 9), st.lists(TOPICS, max_size=5)), max_size=12),
    FILTERS,
    st.integers(0, 12),
    st.integers(1, 4),
)
def test_replay_is_a_full_scan(
    schema: Schema, batches: Sequence[tuple[int, list[str]]], topic_filter: str, at: int, most: int
) -> None:
    """A reader that begins in the middle reads on while messages come; generations change too. Clocks go back."""
    clock = Clock()
    shard = shard_of(schema, clock)
    found: list[Message] = []
    iterator = shard.replay(topic_filter)
    published: list[Message] = []
    for place, (ticks, topics) in enumerate(batches):
        clock.now = max(clock.now + ticks, 0)
        some = [Message(topic, "p", b"%d" % number) for number, topic in enumerate(topics)]
        last = shard.append(some)
        published += (Message(*one[:3], last - len(some) + 1 + number, shard.time) for number, one in enumerate(some))
        if place == at:
            shard.new_generation(LearnedPatterns(2))
        if place % 2:
            more, iterator = shard.next(Iterator.from_json(iterator.to_json()), most)
            found += more
    rest, _ = read_all(shard, iterator, most)
    found += rest
    wanted = [one for one in published if matches(topic_filter, one.topic)]
    assert sorted(one.sequence for one in found) == [one.sequence for one in wanted]
    by_topic = lambda ones, topic: [one.sequence for one in ones if one.topic == topic]  # noqa: E731
    for topic in {one.topic for one in wanted}:
        assert by_topic(found, topic) == by_topic(wanted, topic), "order within a topic"
    for since, since_time in ((0, 0), (at, 0), (0, 2 * at), (at, at)):
        once, behind = read_all(shard, shard.replay(topic_filter, since, since_time), 100)
        assert sorted(one.sequence for one in once) == [
            one.sequence for one in wanted if one.sequence > since and one.time >= since_time
        ]
        assert read_all(shard, behind)[0] == []


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_the_next_selected_index_is_the_least(index: int, mask: int, wanted: int) -> None:
    high = ((1 << INDEX_BITS) - 1) ^ 255
    query = Query(wanted & mask, mask | high)
    expected = next((one for one in range(index, 256) if one & mask == wanted & mask), None)
    assert next_selected(index, query) == expected


def test_times_have_one_place_at_the_edges_of_buckets() -> None:
    buckets = TimeBuckets(3)
    assert [buckets.split(time) for time in (0, 7, 8, 15, 16)] == [(0, 0), (0, 7), (1, 0), (1, 7), (2, 0)]
    assert all(buckets.joined(*buckets.split(time)) == time for time in range(40))
    last = (1 << 35) - 1
    assert buckets.split(last) == ((1 << 32) - 1, 7)
    for outside in (-1, last + 1):
        with pytest.raises(InputError, match=f"time {outside}: outside"):
            buckets.split(outside)
    assert TimeBuckets(0).split(5) == (5, 0)


def test_replay_at_the_last_instant() -> None:
    clock = Clock()
    clock.now = (1 << 34) - 1
    shard = shard_of(HashedLevels(), clock)
    shard.append([Message("a/b", "p", b"1"), Message("a/c", "p", b"2")])
    assert [one.payload for one in read_all(shard, shard.replay("a/+"))[0]] in ([b"1", b"2"], [b"2", b"1"])


@pytest.mark.parametrize("combine", ["shift", "z-order"])
@pytest.mark.parametrize("padding", ["slash", "empty"])
def test_the_published_walk_stops_at_the_first_key_that_does_not_match(combine: Combine, padding: Padding) -> None:
    """D1, and its nearest correct neighbour: one trailing wildcard, which the published walk reads with the shift."""
    shard = shard_of(HashedLevels(3, combine, padding), Clock())
    shard.append(
        [Message(topic, "p", b"") for topic in ("foo/a/bar", "foo/a/qux", "foo/b/bar", "foo/c/bar", "foo/d/qux")]
    )
    wanted = {"foo/a/bar", "foo/b/bar", "foo/c/bar"}
    assert {one.topic for one in read_all(shard, shard.replay("foo/+/bar"))[0]} == wanted
    assert len(published_walk(shard, "foo/+/bar")) < 3
    if combine == "shift":
        assert len(published_walk(shard, "foo/a/+")) == 2


def test_seeks_are_bounded_by_what_is_needed() -> None:
    """Two for each match and each stretch of keys with an index that is not selected, and one to begin."""
    random_draws = random.Random(1)
    clock = Clock()
    shard = shard_of(HashedLevels(3), clock, 3)
    for _ in range(60):
        clock.now += random_draws.randrange(4)
        shard.append(
            [
                Message(
                    f"{random_draws.choice('ab')}/{random_draws.randrange(30)}/{random_draws.choice('xyz')}", "p", b""
                )
                for _ in range(20)
            ]
        )
    keys = [key for key, _ in shard.store.seek(b"") if key < FACTS]
    for topic_filter in ("#", "a/#", "a/+/x", "+/7/x", "+/+/x", "+/7/#", "none/+/x", "+/+/+"):
        query = HashedLevels(3).query(topic_filter)
        indices = [KEY.unpack(key)[2] for key in keys]
        selected = sum(next_selected(index, query) == index for index in indices)
        runs = sum(next_selected(index, query) != index for index, _ in groupby(indices))
        shard.cost.seeks = shard.cost.steps = 0
        found, _ = shard.next(shard.replay(topic_filter), 10**6)
        assert len(found) == selected
        assert shard.cost.seeks <= 2 * (selected + runs) + 1
        assert shard.cost.steps <= selected + runs


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(SCHEMAS, st.lists(st.tuples(st.integers(0, 9), st.lists(TOPICS, max_size=8)), min_size=1, max_size=12), FILTERS)
def test_seeks_are_bounded_for_any_filter(
    schema: Schema, batches: Sequence[tuple[int, list[str]]], topic_filter: str
) -> None:
    """Of any schema: two seeks for each match and each stretch of keys of a bucket that share an index without a match,
    and one to begin each query (a pattern's)."""
    clock = Clock()
    shard = shard_of(schema, clock)
    for ticks, topics in batches:
        clock.now += ticks
        shard.append([Message(topic, "p", b"") for topic in topics])
    streams = groupby((pair for pair in shard.store.seek(b"") if pair[0] < FACTS), lambda pair: pair[0][: STREAM.size])
    matching = [sum(matches(topic_filter, shard.unpacked(pair).topic) for pair in pairs) for _, pairs in streams]
    found, _ = read_all(shard, shard.replay(topic_filter), 10**6)
    assert len(found) == sum(matching)
    queries = len(shard.generations[0].schema.queries(topic_filter))
    assert shard.cost.seeks <= 2 * (sum(matching) + matching.count(0)) + queries


def test_strong_order_holds_by_topic_and_not_by_publisher() -> None:
    """Two publishers, one topic; the second sends when the first was answered. In one shard any reader gets them so; of
    a shard for each it may begin with the second's."""
    first, second = Message("t", "p1", b"1"), Message("t", "p2", b"2")
    by_topic = shard_of(HashedLevels(), Clock())
    by_topic.append([first])
    by_topic.append([second])
    assert [one.payload for one in read_all(by_topic, by_topic.replay("t"))[0]] == [b"1", b"2"]
    by_publisher = [shard_of(HashedLevels(), Clock()) for _ in range(2)]
    by_publisher[0].append([first])
    by_publisher[1].append([second])
    orders = {
        tuple(one.payload for shard in turn for one in read_all(shard, shard.replay("t"))[0])
        for turn in (by_publisher, by_publisher[::-1])
    }
    assert orders == {(b"1", b"2"), (b"2", b"1")}


def test_messages_of_one_tick_are_kept_apart_and_in_order() -> None:
    """D3 and D4."""
    shard = shard_of(HashedLevels(), Clock())
    shard.append([Message("t", "p", b"%d" % number) for number in range(9)])
    assert [int(one.payload) for one in read_all(shard, shard.replay("t"))[0]] == list(range(9))
    keys = [KEY.unpack(key) for key, _ in shard.store.seek(b"") if key < FACTS]
    assert len({key[:4] for key in keys}) == 1, "as published they are one key"


@pytest.mark.parametrize("plus_first", [False, True])
def test_a_learned_edge_does_not_move_a_topic(plus_first: bool) -> None:
    """D5: with the newer edge first, the topic's later message is in another stream."""
    patterns = LearnedPatterns(2, plus_first=plus_first)
    first = patterns.index("x/1")
    assert patterns.patterns == [("x", "1")]
    for other in ("x/2", "x/3", "x/4"):
        patterns.index(other)
    assert patterns.patterns[-1] == ("x", "+")
    assert (patterns.index("x/1") == first) is not plus_first


def test_patterns_and_generations_are_found_again(tmp_path: Path) -> None:
    """A second process finds every message and goes on with the same indices; a pattern is there with its first
    message."""
    clock = Clock()
    store = RocksStore(tmp_path / "db")
    shard = Shard(store, clock, LearnedPatterns(2))
    shard.append(
        [Message(f"devices/{number}/{what}", "p", b"%d" % number) for number in range(5) for what in ("on", "off")]
    )
    half, iterator = shard.next(shard.replay("devices/+/on"), 2)
    shard.new_generation(HashedLevels(5, "z-order", "empty"))
    shard.append([Message("devices/7/on", "p", b"7")])
    written = iterator.to_json()
    store.close()
    store = RocksStore(tmp_path / "db")
    again = Shard(store, clock)
    assert again.generations[1].schema == HashedLevels(5, "z-order", "empty")
    assert (again.sequence, again.time) == (11, 0)
    rest, _ = read_all(again, Iterator.from_json(written))
    assert sorted(int(one.payload) for one in half + rest) == [0, 1, 2, 3, 4, 7]
    store.close()
    store = RocksStore(tmp_path / "db")
    with pytest.raises(InputError, match="offset_bits: the store was written with 20"):
        Shard(store, clock, buckets=TimeBuckets(3))
    store.close()


def test_a_reader_of_a_dropped_generation_is_told() -> None:
    shard = shard_of(HashedLevels(), Clock())
    shard.append([Message("a", "p", b"1"), Message("a", "p", b"2")])
    _, middle = shard.next(shard.replay("a"), 1)
    _, end = read_all(shard, shard.replay("a"))
    shard.append([Message("a", "p", b"3")])
    shard.new_generation(HashedLevels())
    shard.append([Message("a", "p", b"4")])
    done, _ = read_all(shard, end)
    assert [one.payload for one in done] == [b"3", b"4"]
    _, caught_up = read_all(shard, end)
    with pytest.raises(InputError, match="only the oldest"):
        shard.drop_generation(1)
    shard.drop_generation(0)
    for reader in (middle, end):
        with pytest.raises(Dropped, match="generation 0 was dropped") as told:
            shard.next(reader, 9)
        assert [one.payload for one in read_all(shard, told.value.iterator)[0]] == [b"4"]
    assert read_all(shard, caught_up)[0] == []  # it has missed nothing, and is told nothing
    assert [one.payload for one in read_all(shard, shard.replay("a"))[0]] == [b"4"]


def test_bad_topics_filters_and_iterators_are_one_line() -> None:
    shard = shard_of(HashedLevels(), Clock())
    for bad in ("", "a/#/b", "a+", "$share/g", "$share//a", "\0"):
        with pytest.raises(InputError, match=r"^filter"):
            shard.replay(bad)
    for bad in ("", "a/+", "#", "a\0"):
        with pytest.raises(InputError, match=r"^topic"):
            shard.append([Message("fine", "p", b""), Message(bad, "p", b"")])
    good = shard.replay("a/+").to_json()
    for text in (
        "",
        "{}",
        "[1]",
        '{"key": "zz"}',
        good.replace("a/+", "a+"),
        good.replace('"until": 0', '"until": "0"'),
        good.replace('"until": 0', '"until": -1'),
        "null",
        "NaN",
    ):
        with pytest.raises(InputError, match=r"^(iterator|filter)"):
            Iterator.from_json(text)
    assert shard.sequence == 0
    assert read_all(shard, shard.replay("#"))[0] == []
    shard.append([Message("$SYS/up", "p", b""), Message("up", "p", b"")])
    assert [one.topic for one in read_all(shard, shard.replay("#"))[0]] == ["up"]
    assert [one.topic for one in read_all(shard, shard.replay("$share/g/$SYS/#"))[0]] == ["$SYS/up"]


def test_patterns_of_a_batch_that_failed_are_stored_with_the_next(tmp_path: Path) -> None:
    """A store that is full, once: what was learned for the batch must not be taken for stored."""

    class Full(MemoryStore):
        is_full = False

        def put(self, batch: Iterable[Pair]) -> None:
            found = list(batch)
            if self.is_full:
                raise OSError("no space left")
            super().put(found)

    store = Full()
    shard = Shard(store, Clock(), LearnedPatterns(2))
    store.is_full = True
    with pytest.raises(OSError, match="no space"):
        shard.append([Message("a/b", "p", b"lost")])
    store.is_full = False
    shard.append([Message("a/b", "p", b"kept")])
    again = Shard(store, Clock())
    assert [one.payload for one in read_all(again, again.replay("a/b"))[0]] == [b"kept"]


@pytest.mark.parametrize("publisher", ["a\0b", "\ud800"])
def test_a_publisher_that_mqtt_does_not_allow_is_one_line(publisher: str) -> None:
    shard = shard_of(HashedLevels(), Clock())
    with pytest.raises(InputError, match=r"^publisher"):
        shard.append([Message("a", "p", b"1"), Message("a", publisher, b"2")])
    assert shard.sequence == 0
    shard.append([Message("a", "", b"a\0\0b"), Message("ä/" + "x" * 65_532, "ü", b"")])
    assert [(one.publisher, one.payload) for one in read_all(shard, shard.replay("a"))[0]] == [("", b"a\0\0b")]
    assert len(read_all(shard, shard.replay("ä/+"))[0]) == 1


@pytest.mark.parametrize("offset_bits", [0, 2, 20])
def test_a_replay_that_begins_at_a_time_to_come_waits_for_it(offset_bits: int) -> None:
    clock = Clock()
    shard = shard_of(HashedLevels(), clock, offset_bits)
    iterator, found = shard.replay("a", since_time=6), list[Message]()
    for now in (3, 5, 6, 6, 9):
        clock.now = now
        shard.append([Message("a", "p", b"%d" % now)])
        more, iterator = read_all(shard, iterator)
        found += more
    assert [one.payload for one in found] == [b"6", b"6", b"9"]


def test_retention_goes_by_elapsed_time_and_not_by_clocks_of_leaders() -> None:
    """The clock stands, goes back and leaps; what was stored a retention ago goes, nothing sooner."""
    clock, elapsed, store = Clock(), Clock(), MemoryStore()
    shard = Shard(store, clock, HashedLevels(), elapsed_ms=lambda: elapsed.now)
    for at, now in ((3, 1000), (5, 2), (9, 10**6)):
        elapsed.now, clock.now = at, now
        shard.append([Message("a", "p", b"%d" % at)])
        shard.new_generation(HashedLevels())
    assert not shard.has_fresh

    def kept(shard: Shard, at: int) -> list[bytes]:
        elapsed.now = at
        shard.expire(10)
        return [one.payload for one in read_all(shard, shard.replay("a"))[0]]

    assert kept(shard, 13) == [b"3", b"5", b"9"]
    assert kept(shard, 14) == [b"5", b"9"]
    again = Shard(store, clock, elapsed_ms=lambda: elapsed.now)  # it has seen them for no time yet
    assert kept(again, 24) == [b"5", b"9"]
    assert kept(again, 25) == []


def test_generations_that_are_replayed_side_by_side_break_the_order() -> None:
    """D6: a walk of each generation of its own, the newer one's page first; one after the other, as `Shard.next` goes,
    keeps it."""
    clock = Clock()
    shard = shard_of(HashedLevels(), clock)
    shard.append([Message("a/b", "p", b"1")])
    shard.new_generation(LearnedPatterns())
    shard.append([Message("a/b", "p", b"2")])
    begun = shard.next(shard.replay("a/+"), 1)[1]
    side_by_side = [shard.next(Iterator("a/+", 0, 2, 0, 0, generation=number), 1)[0][0].payload for number in (1, 0)]
    assert side_by_side == [b"2", b"1"]
    assert [one.payload for one in read_all(shard, shard.replay("a/+"))[0]] == [b"1", b"2"]
    assert shard.next(begun, 1)[0][0].payload == b"2"


@pytest.mark.parametrize("bad", ["a/#/b", "a+/b", "a/b#", "", "$share/g", "$share//a", "$share/g+/a", "a\0b"])
def test_a_bad_filter_is_refused_in_one_line(bad: str) -> None:
    with pytest.raises(InputError) as error:
        shard_of(HashedLevels(), Clock()).replay(bad)
    assert "\n" not in str(error.value)
