"""Replay and ingest of durable streams beside RocksDB's own iteration and batches, over 10^6 keys; seeks beside a full
scan."""

from __future__ import annotations

import time
from collections.abc import Iterator as Pairs
from contextlib import ExitStack
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import Contender, report, take_turns
from orderlab.sim.mqtt.topics import matches
from orderlab.sim.streams.keys import KEY, HashedLevels, LearnedPatterns, next_selected
from orderlab.sim.streams.ordered_store import OrderedStore, Pair, RocksStore
from orderlab.sim.streams.shard import FACTS, STREAM, Message, Shard

TO_REACH = {
    "seeks_per_needed": ("<=", 2.0),
    "replay_vs_iteration": (">=", 0.5),
    "ingest_vs_batch_put": (">=", 0.5),
}
KEYS = 1_000_000
DEVICES = 5_000
KINDS = ("temperature", "pressure")
BATCH = 1_000
INGESTED = 100_000
PAYLOAD = bytes(60)
FILTERS = (
    "#",
    "site/#",
    "site/+/temperature",
    "site/77/+",
    "+/77/temperature",
    "+/+/temperature",
    "+/77/#",
    "site/+/none",
    "none/#",
    "+/none/+",
)


def messages(count: int, devices: int = DEVICES) -> list[Message]:
    """Devices in turn, each with its topics."""
    return [
        Message(f"site/{number // 2 % devices}/{KINDS[number % 2]}", f"device-{number // 2 % devices}", PAYLOAD)
        for number in range(count)
    ]


def filled(store: OrderedStore) -> Shard:
    """A shard with hashed levels that holds the messages, a tick for each batch."""
    ticks = iter(range(KEYS))
    shard = Shard(store, lambda: next(ticks) << 12, HashedLevels(3))
    published = messages(KEYS)
    for start in range(0, KEYS, BATCH):
        shard.append(published[start : start + BATCH])
    return shard


def data_keys(store: OrderedStore) -> Pairs[Pair]:
    """All pairs that are messages, by the store's own iteration."""
    return (pair for pair in store.seek(b"") if pair[0] < FACTS)


def replayed(shard: Shard, topic_filter: str) -> int:
    """How many messages a replay reads, in batches."""
    iterator, count = shard.replay(topic_filter), 0
    while True:
        pairs, iterator = shard.next_pairs(iterator, BATCH)
        if not pairs:
            return count
        count += len(pairs)


def seeks(shard: Shard) -> dict[str, dict[str, float]]:
    """For each filter what the skip-scan asks of the store, and what a full scan says is needed. Raises AssertionError
    where they disagree."""
    pairs = list(data_keys(shard.store))
    indices = [KEY.unpack(key)[2] for key, _ in pairs]
    topics = [shard.unpacked(pair).topic for pair in pairs]
    firsts = [next(keys) for _, keys in groupby((key for key, _ in pairs), lambda key: key[: STREAM.size])]
    found = {}
    for topic_filter in FILTERS:
        (query,) = HashedLevels(3).queries(topic_filter)
        wanted = {topic for topic in set(topics) if matches(topic_filter, topic)}
        selects = {index: next_selected(index, query) == index for index in set(indices)}
        matching = sum(topic in wanted for topic in topics)
        runs = sum(next_selected(KEY.unpack(key)[2], query) != KEY.unpack(key)[2] for key in firsts)
        stretches = sum(not is_selected for is_selected, _ in groupby([selects[index] for index in indices]))
        shard.cost.seeks = shard.cost.steps = 0
        some, _ = shard.next_pairs(shard.replay(topic_filter), KEYS + 1)
        assert len(some) == matching, f"{topic_filter}: {len(some)} replayed, {matching} match"
        found[topic_filter] = {
            "matches": matching,
            "runs": runs,
            "stretches": stretches,
            "seeks": shard.cost.seeks,
            "steps": shard.cost.steps,
            "seeks_per_needed": shard.cost.seeks / max(matching + runs, 1),
        }
    return found


def run() -> dict[str, Any]:
    """Measure everything; the benchmark's report. Takes a minute or two."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        store = RocksStore(place / "replay")
        stack.callback(store.close)
        shard = filled(store)
        begun = time.perf_counter()
        by_filter = seeks(shard)
        scanned_s = time.perf_counter() - begun

        def iterate() -> int:
            count = 0
            for _ in store.seek(b""):
                count += 1
            return count

        replay = take_turns(
            [
                Contender("iteration", lambda: None, iterate),
                Contender("replay", lambda: None, lambda: replayed(shard, "site/#")),
            ]
        )
        opened: list[RocksStore] = []
        stack.callback(lambda: opened[-1].close())
        published = messages(INGESTED)
        learned = LearnedPatterns()
        raw = [
            (
                KEY.pack(0, 0, learned.index(one.topic), 0, number),
                b"%b%b%b" % (one.topic.encode(), one.publisher.encode(), one.payload),
            )
            for number, one in enumerate(published)
        ]

        def fresh() -> None:
            if opened:
                opened[-1].close()
            opened.append(RocksStore(place / f"ingest-{len(opened)}"))

        def put_raw() -> int:
            for start in range(0, INGESTED, BATCH):
                opened[-1].put(raw[start : start + BATCH])
            return INGESTED

        def ingest() -> int:
            learning = Shard(opened[-1], lambda: 0, LearnedPatterns())
            for start in range(0, INGESTED, BATCH):
                learning.append(published[start : start + BATCH])
            return INGESTED

        ingest_timings = take_turns([Contender("batch_put", fresh, put_raw), Contender("ingest", fresh, ingest)])
    figures = {
        "seeks_per_needed": max(one["seeks_per_needed"] for one in by_filter.values()),
        "replay_vs_iteration": replay.core_ratio("replay", "iteration"),
        "ingest_vs_batch_put": ingest_timings.core_ratio("ingest", "batch_put"),
    }
    detail = {
        "keys": KEYS,
        "messages_per_core_s": {
            **{name: round(replay.core_median(name)) for name in replay.rates},
            **{name: round(ingest_timings.core_median(name)) for name in ingest_timings.rates},
        },
        "by_filter": by_filter,
        "full_scan_and_replays_s": round(scanned_s, 1),
        "peers": {"rocksdict": version("rocksdict")},
    }
    return report("streams", figures, detail)
