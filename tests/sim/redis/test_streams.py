"""Streams: what generated commands on a server do not show: clocks, rollback, frozen forms, effects, memory, scripts,
other backends."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.backends.backend import KernelBackend
from orderlab.sim.redis.backends.server import ServerBackend
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.slot_map import SlotMap
from orderlab.sim.redis.values.stream import Stream, radix_nodes, visible
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.commands import STREAM_FORMS
from tests.laboratory.conformance.grammar import KINDS, Argv, Template
from tests.laboratory.conformance.sequences import SeededDraw

FORMS = [Template(line, KINDS) for line in STREAM_FORMS.strip().splitlines() if "MULTI" not in line]
NOW_MS = 1_700_000_000_000


def run(shard: Shard, *lines: str) -> list[object]:
    return [shard.execute(tuple(line.encode().split())) for line in lines]


def shard_at(now_ms: int = NOW_MS) -> Shard:
    shard = Shard()
    shard.now_ms = now_ms
    return shard


def commands(seed: int, steps: int) -> Iterator[Argv]:
    draw = SeededDraw(seed)
    for _ in range(steps):
        yield from FORMS[draw.randrange(len(FORMS))].generate(draw)


def filled(seed: int, steps: int = 60) -> Shard:
    shard = shard_at()
    shard.config.stream_node_max_entries, shard.config.stream_node_max_bytes = 3, 120
    for argv in commands(seed, steps):
        shard.execute(argv)
    return shard


# -- identifiers that the clock gives --------------------------------------------------------------------------


def test_the_clock_gives_identifiers_that_only_grow() -> None:
    shard = shard_at()
    assert run(shard, "XADD s * f v", "XADD s * f v") == [b"1700000000000-0", b"1700000000000-1"]
    shard.now_ms -= 5
    assert run(shard, "XADD s * f v") == [b"1700000000000-2"], "a clock that was set back"
    shard.now_ms += 6
    assert run(shard, "XADD s * f v") == [b"1700000000001-0"]


def test_idle_times_follow_the_clock() -> None:
    shard = shard_at()
    run(shard, "XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >")
    shard.now_ms += 250
    assert run(shard, "XPENDING s g - + 9", "XPENDING s g IDLE 251 - + 9") == [[[b"1-1", b"c", 250, 1]], []]
    assert run(shard, "XCLAIM s g d 251 1-1", "XAUTOCLAIM s g d 251 0") == [[], [b"0-0", [], []]]
    assert run(shard, "XINFO CONSUMERS s g") == [[[b"name", b"c", b"pending", 1, b"idle", 250]]], (
        "a claim of nothing makes no consumer"
    )
    assert run(shard, "XAUTOCLAIM s g d 250 0") == [[b"0-0", [[b"1-1", [b"f", b"v"]]], []]]
    assert run(shard, "XPENDING s g - + 9") == [[[b"1-1", b"d", 0, 2]]]


@pytest.mark.server
def test_ages_that_claims_set_agree_with_a_server() -> None:
    lines = (
        "XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >",
        "XCLAIM s g c 0 1-1 TIME 1000 RETRYCOUNT 7 JUSTID", "XCLAIM s g c 0 2-1 IDLE 5000000 JUSTID", "XCLAIM s g c "
            "0 3-1 TIME 99999999999999",
        "XPENDING s g IDLE 1000000000000 - + 9 c", "XCLAIM s g d 4000000 1-1 2-1 3-1 JUSTID", "XPENDING s g",
        "XAUTOCLAIM s g e 4000000 0 COUNT 1", "XCLAIM s g d 0 1-1 TIME 1000 JUSTID", "XAUTOCLAIM s g e 4000000 0 "
            "COUNT 1 JUSTID", "XPENDING s g",
    )  # fmt: skip
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        theirs = [connection.execute(*line.encode().split()) for line in lines]
    ours = run(shard_at(), *lines)
    for line, one, other in zip(lines, ours, theirs, strict=True):
        if "IDLE 1000000000000" in line:
            assert isinstance(one, list)
            assert [[row[0], row[1], row[3]] for row in one] == [[row[0], row[1], row[3]] for row in other]
        else:
            assert one == other, line


# -- states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_rollback_takes_every_command_back(seed: int) -> None:
    shard = filled(seed)
    draw = random.Random(seed)
    for argv in commands(seed + 1000, 60):
        before = shard.freeze()
        mark = shard.snapshot()
        shard.execute(argv)
        after = shard.freeze()
        shard.rollback(mark)
        assert shard.freeze() == before, argv
        for value in shard.data.values():
            if isinstance(value, Stream):
                assert Stream.thaw(value.freeze()).first_id == value.first_id
                assert [node.bytes_used() for node in Stream.thaw(value.freeze()).nodes] == [
                    node.bytes_used() for node in value.nodes
                ]
        if draw.random() < 0.8:
            shard.forget_snapshots()
            shard.execute(argv)
            assert shard.freeze() == after, argv


@pytest.mark.parametrize("seed", range(6))
def test_a_thawed_or_copied_stream_answers_as_the_first_did(seed: int) -> None:
    shard = filled(seed)
    thawed = shard_at()
    thawed.config.stream_node_max_entries, thawed.config.stream_node_max_bytes = 3, 120
    thawed.load(shard.freeze())
    copied = Shard()
    copied.load(shard.freeze())
    for key in list(copied.data):
        copied.execute((b"COPY", key, b"copy of " + key))
        copied.execute((b"RENAME", b"copy of " + key, key))
    assert thawed.freeze() == shard.freeze() == copied.freeze()
    for argv in commands(seed + 50, 80):
        assert thawed.execute(argv) == shard.execute(argv), argv


@pytest.mark.parametrize("seed", range(6))
def test_every_change_is_in_the_record_of_effects(seed: int) -> None:
    shard = filled(seed)
    shard.effects = []
    for argv in commands(seed + 2000, 80):
        before = shard.freeze()
        shard.effects.clear()
        shard.execute(argv)
        after = shard.freeze()
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed <= {key for effect in shard.effects for key in effect.changed}, argv


def test_replicas_are_told_the_identifier_that_was_chosen() -> None:
    shard = shard_at()
    shard.effects = []
    run(shard, "XADD s MAXLEN ~ 10 * f v", "XADD s 1700000000000-* f v", "XADD s 5-1 f v")
    assert [effect.argv for effect in shard.effects] == [
        (b"XADD", b"s", b"MAXLEN", b"~", b"10", b"1700000000000-0", b"f", b"v"),
        (b"XADD", b"s", b"1700000000000-1", b"f", b"v"),
        (b"XADD", b"s", b"5-1", b"f", b"v"),
    ]


def test_watch_is_broken_by_entries_and_not_by_acknowledgements() -> None:
    for line, is_broken in (
        ("XADD s 9-1 f v", True),
        ("XDEL s 1-1", True),
        ("XACK s g 1-1", False),
        ("XGROUP CREATE s h 0", False),
    ):
        shard = shard_at()
        run(
            shard, "XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", "WATCH s", line, "MULTI"
        )
        assert (run(shard, "EXEC") == [None]) is is_broken, line


def test_the_radix_tree_of_a_stream_is_counted_without_being_built() -> None:
    assert radix_nodes([]) == 1
    assert radix_nodes([b"abcd"]) == 2
    assert radix_nodes([b"abcd", b"abxy"]) == 6, "a chain, a fork, and behind each branch a chain and an end"
    assert radix_nodes([b"aa", b"ab"]) == 4


def test_trimming_about_removes_whole_nodes() -> None:
    shard = shard_at()
    run(shard, *[f"XADD s {number}-1 f v" for number in range(1, 351)])
    assert run(shard, "XTRIM s MAXLEN ~ 260", "XTRIM s MAXLEN ~ 250", "XTRIM s MAXLEN ~ 50 LIMIT 99") == [0, 100, 0]
    assert run(
        shard, "XTRIM s MAXLEN ~ 50 LIMIT 100", "XLEN s", "XTRIM s MINID ~ 301-1", "XTRIM s MAXLEN 7", "XLEN s"
    ) == [100, 150, 100, 43, 7]


# -- elsewhere -------------------------------------------------------------------------------------------------


def test_keys_of_streams_are_found_for_slots() -> None:
    shard = shard_at()
    shard.slots = SlotMap(b"0" * 40, {b"0" * 40: b"127.0.0.1:7000"}, [b"0" * 40] * 16384)
    assert run(shard, "XREAD STREAMS {a}1 {a}2 0 0") == [None]
    for line in ("XREAD COUNT 1 STREAMS a b 0 0", "XREADGROUP GROUP streams c STREAMS a b > >"):
        assert run(shard, line) == [ErrorReply(b"CROSSSLOT Keys in request don't hash to the same slot")]


def test_a_script_that_keeps_its_events_short() -> None:
    shard = shard_at()
    source = b"""
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'event', 'added', 'jobId', ARGV[2])
    redis.call('LPUSH', KEYS[2], ARGV[2])
    redis.call('PUBLISH', KEYS[1], ARGV[2])
    return {redis.call('XLEN', KEYS[1]), redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)}
    """
    for number in range(1, 4):
        reply = shard.execute((b"EVAL", source, b"2", b"events", b"wait", b"100", b"%d" % number))
        assert reply == [number, [[b"1700000000000-%d" % (number - 1), [b"event", b"added", b"jobId", b"%d" % number]]]]
    refused = shard.execute((b"EVAL", b"return redis.call('XREAD', 'BLOCK', 1, 'STREAMS', 's', '$')", b"0"))
    assert isinstance(refused, ErrorReply)
    assert b"XREAD command is not allowed with BLOCK option from scripts" in refused.message


@pytest.mark.server
@pytest.mark.parametrize("seed", range(4))
def test_a_server_can_be_loaded_with_a_stream_and_read_back(seed: int) -> None:
    kernel = KernelBackend()
    for argv in commands(seed, 120):
        kernel.execute(*argv)
    kernel.execute(b"XGROUP", b"CREATE", b"empty", b"g", b"0", b"MKSTREAM")
    kernel.execute(b"XGROUP", b"DESTROY", b"empty", b"g")
    server = ServerBackend.start()
    try:
        server.load(kernel.keyspace())
        theirs = server.keyspace()
    finally:
        server.close()
    ours = kernel.keyspace()
    assert {key: visible(value[1]) for key, value in theirs.items()} == {
        key: visible(value[1]) for key, value in ours.items()
    }
    for key, (_, value, _) in ours.items():
        assert [pending for *_, pending, _ in theirs[key][1][4]] == [pending for *_, pending, _ in value[4]], (
            "with the times of deliveries"
        )
    again = KernelBackend()
    again.load(theirs)
    assert {key: visible(value[1]) for key, value in again.keyspace().items()} == {
        key: visible(value[1]) for key, value in ours.items()
    }


@pytest.mark.server
def test_the_memory_of_a_stream_is_what_a_server_says() -> None:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        for entries, size, pending in (
            (1, 5, 0),
            (90, 5, 0),
            (250, 5, 40),
            (1000, 5, 300),
            (300, 40, 10),
            (50, 900, 0),
        ):
            lines = [
                f"XADD s {number}-{number % 3} field {'v' * size} other {number}" for number in range(1, entries + 1)
            ]
            lines += ["XGROUP CREATE s g 0", f"XREADGROUP GROUP g someone COUNT {max(pending, 1)} STREAMS s >"]
            connection.demand(b"FLUSHALL")
            connection.pipeline([tuple(line.encode().split()) for line in lines])
            shard = shard_at()
            run(shard, *lines)
            ours, theirs = run(shard, "MEMORY USAGE s")[0], connection.demand(b"MEMORY", b"USAGE", b"s")
            assert isinstance(ours, int)
            assert abs(ours - theirs) <= 0.02 * theirs, (entries, size, pending, ours, theirs)


def test_a_tombstone_before_the_first_entry_hides_no_lag() -> None:
    """What is gone from before the first entry is no gap: the group's own count holds, were it wrong (asked of a real
    server)."""
    shard = shard_at()
    run(shard, "XADD s 1-1 a a", "XDEL s 1-1", "XGROUP CREATE s g 1 ENTRIESREAD 7", "XADD s 1-2 a a")
    told = run(shard, "XINFO GROUPS s")[0]
    assert isinstance(told, list)
    assert told[0][-2:] == [b"lag", -5]
    run(shard, "XADD s 1-3 a a", "XADD s 1-4 a a", "XDEL s 1-3")
    behind = run(shard, "XINFO GROUPS s")[0]
    assert isinstance(behind, list)
    assert behind[0][-2:] == [b"lag", None]
