"""Snapshots, whole states, expiry and effects of a shard."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.keyspace import Keyspace
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import GROWTH_MAX_BYTES, GrowthLimit, Shard

NOW_MS = 1_700_000_000_000

LINES = """
SET k v; SET k w EX 100; SET k x KEEPTTL; SET k y PXAT 1; SET k 5 NX GET; SETEX k 10 v; GETSET k v; GETDEL k
APPEND k abc; GETEX k EX 5; GETEX k PERSIST; MSET k 1 j 2 l 3; MSETNX k 1 j 2; SETRANGE k 5 xyz; SETBIT k 9 1
INCR k; INCRBYFLOAT k 1.5; BITOP NOT j k; BITFIELD k INCRBY u8 3 200; DEL k j; UNLINK l z; RENAME k j
RENAMENX j k; COPY k j REPLACE; COPY z j; EXPIRE k 100; PEXPIRE k 1; EXPIRE j -1; EXPIREAT k 1 LT; PERSIST k
FLUSHALL; SORT l STORE z; SORT z BY nosort; TOUCH k j; RPUSH l 3 1 2; LPUSH l a b; LPOP l; RPOP l 2; LSET l 0 x
LREM l 0 1; LTRIM l 0 1; LINSERT l BEFORE 1 x; LMOVE l j LEFT RIGHT; HSET h a 1 b 2; HDEL h a; HINCRBY h b 5
HSETNX h c 3; HDEL h a b c; SADD s 1 2 3; SADD s x; SREM s 1 2; SPOP s; SMOVE s k 3; ZADD z 1 a 2 b 3 c
ZADD z XX GT 5 a; ZINCRBY z 1 b; ZREM z a b; ZPOPMIN z; ZREMRANGEBYRANK z 0 0; ZUNIONSTORE j 2 z s; MULTI; EXEC
DISCARD; WATCH k; RANDOMKEY; SRANDMEMBER s 3; GET k; TYPE j; KEYS *; DBSIZE; SCAN 0
"""
COMMANDS = [tuple(line.strip().encode().split()) for line in LINES.replace("\n", ";").split(";") if line.strip()]
EVERYTHING = [tuple(line.split()) for line in (b"KEYS *", b"SCAN 0", b"OBJECT ENCODING k", b"OBJECT ENCODING j")]


def run(shard: Shard, chosen: list[int], rng: random.Random) -> None:
    for index in chosen:
        shard.now_ms += rng.choice((0, 0, 0, 1, 5_000))
        shard.execute(COMMANDS[index])
        if rng.random() < 0.05:
            shard.expire_cycle.run()


def look(shard: Shard) -> tuple[object, ...]:
    """All that can be seen of a keyspace, in byte-identical form."""
    seen = [shard.execute(argv) for argv in EVERYTHING]
    return repr(shard.freeze()), dict(shard.deadlines_ms), dict(shard.string_encodings), repr(seen)


COMMAND_LISTS = st.lists(st.integers(0, len(COMMANDS) - 1), max_size=60)


@settings(max_examples=150, deadline=None)
@given(COMMAND_LISTS, COMMAND_LISTS, COMMAND_LISTS, st.integers(0, 1 << 30), st.booleans())
def test_a_rollback_restores_the_state_of_its_snapshot(
    first: list[int], second: list[int], third: list[int], seed: int, accounts: bool
) -> None:
    rng = random.Random(seed)
    shard = Shard()
    shard.now_ms = NOW_MS
    if accounts:
        shard.config.maxmemory, shard.config.maxmemory_policy = 880_000, "allkeys-lru"
    run(shard, first, rng)
    shard.execute((b"RESET",))
    outer = shard.snapshot()
    before, then = look(shard), shard.now_ms
    run(shard, second, rng)
    shard.execute((b"RESET",))
    inner = shard.snapshot()
    middle, later = look(shard), shard.now_ms
    run(shard, third, rng)
    shard.execute((b"RESET",))
    shard.now_ms = later
    shard.rollback(inner)
    assert look(shard) == middle
    shard.now_ms = then
    shard.rollback(outer)
    assert look(shard) == before


@settings(max_examples=60, deadline=None)
@given(COMMAND_LISTS, COMMAND_LISTS, st.integers(0, 1 << 30))
def test_a_loaded_state_answers_as_the_frozen_one(first: list[int], second: list[int], seed: int) -> None:
    original, loaded = Shard(), Shard()
    original.now_ms = NOW_MS
    run(original, first, random.Random(seed))
    original.execute((b"RESET",))
    frozen = original.freeze()
    loaded.load(frozen)
    loaded.now_ms, loaded.random_state = original.now_ms, original.random_state
    assert repr(loaded.freeze()) == repr(frozen)
    assert hash(tuple(sorted(frozen.items()))) == hash(tuple(sorted(loaded.freeze().items())))
    original.expire_cycle.remove_all()  # what has lapsed and still lies about is not part of a frozen state
    for index in second:
        assert (index, original.execute(COMMANDS[index])) == (index, loaded.execute(COMMANDS[index]))


def test_rolling_back_what_is_gone_already_is_a_mistake() -> None:
    shard = Shard()
    with pytest.raises(AssertionError, match="without a snapshot"):
        shard.rollback(0)
    outer = shard.snapshot()
    shard.execute((b"SET", b"k", b"v"))
    inner = shard.snapshot()
    shard.rollback(outer)
    with pytest.raises(AssertionError, match="rolled back before"):
        shard.rollback(inner)


def test_a_rollback_costs_the_changes_and_not_the_keyspace() -> None:
    shard = Shard()
    for number in range(10_000):
        shard.execute((b"SET", b"%d" % number, b"v"))
    shard.snapshot()
    shard.execute((b"SET", b"5", b"w"))
    shard.execute((b"FLUSHALL",))
    assert shard.undo is not None
    assert len(shard.undo) == 2
    shard.rollback(0)
    assert len(shard.data) == 10_000
    assert shard.execute((b"GET", b"5")) == b"v"


def test_a_patch_changes_the_keys_it_names() -> None:
    shard = Shard()
    for argv in ((b"SET", b"a", b"1", b"EX", b"9"), (b"SET", b"b", b"2"), (b"RPUSH", b"c", b"3")):
        shard.execute(argv)
    mark = shard.snapshot()
    before = shard.freeze()
    shard.patch({b"a": ("string", b"new", None), b"d": ("list", (b"x",), 7_000)}, removed=[b"c"])
    assert shard.freeze() == {
        b"a": ("string", b"new", None),
        b"b": ("string", b"2", None),
        b"d": ("list", (b"x",), 7_000),
    }
    assert shard.freeze([b"d", b"nothing"]) == {b"d": ("list", (b"x",), 7_000)}
    shard.rollback(mark)
    assert shard.freeze() == before


# -- expiry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after_ms", "lives"), [(-1, True), (0, True), (1, False)])
def test_a_key_lives_through_the_millisecond_of_its_deadline(after_ms: int, lives: bool) -> None:
    shard = Shard()
    shard.now_ms = NOW_MS
    shard.execute((b"SET", b"k", b"v", b"PX", b"100"))
    shard.now_ms += 100 + after_ms
    assert (shard.execute((b"GET", b"k")) is not None) is lives
    assert (b"k" in shard.data) is lives


def test_a_new_deadline_that_is_now_deletes_at_once() -> None:
    """Unlike one that waits: ``checkAlreadyExpired`` says <=, ``keyIsExpired`` says <."""
    shard = Shard()
    shard.now_ms = NOW_MS
    now = b"%d" % NOW_MS
    shard.execute((b"SET", b"k", b"v", b"PXAT", now))
    assert shard.execute((b"EXISTS", b"k")) == 1
    assert shard.execute((b"PEXPIREAT", b"k", now)) == 1
    assert shard.execute((b"EXISTS", b"k")) == 0


def test_a_replica_hides_what_has_expired_and_waits_for_its_master() -> None:
    shard = Shard()
    shard.execute((b"SET", b"k", b"v", b"PX", b"100"))
    shard.is_replica = True
    shard.now_ms = 101
    assert shard.execute((b"GET", b"k")) is None
    assert shard.execute((b"DBSIZE",)) == 1
    assert shard.expire_cycle.run() == 0
    shard.is_replica = False
    assert shard.execute((b"GET", b"k")) is None
    assert shard.execute((b"DBSIZE",)) == 0


def test_what_has_expired_on_a_replica_is_still_there_for_the_stream_of_its_master() -> None:
    shard, master = Shard(), Client(is_master=True)
    for key in (b"i", b"j", b"k"):
        shard.execute((b"SET", key, b"1", b"PX", b"100"))
    shard.is_replica = True
    shard.now_ms = 101
    assert shard.execute((b"INCR", b"k"), master) == 2
    assert shard.execute((b"GET", b"k")) is None
    assert shard.execute((b"DEL", b"k"), master) == 1
    shard.config.replica_read_only = False
    assert shard.execute((b"DEL", b"j")) == 1, "what is only hidden counts"
    assert shard.execute((b"INCR", b"i")) == 1, "the write of a client starts anew"
    assert shard.execute((b"PTTL", b"i")) == -1


def test_the_active_cycle_goes_on_while_many_are_stale_and_comes_round_to_all() -> None:
    shard = Shard()
    for number in range(1000):
        shard.execute((b"SET", b"stale%d" % number, b"v", b"PX", b"1"))
    for number in range(100):
        shard.execute((b"SET", b"fresh%d" % number, b"v", b"PX", b"9999"))
    shard.now_ms = 2
    removed = shard.expire_cycle.run()
    assert removed == 1000, "each round of twenty was stale through and through"
    assert shard.expired_keys == 1000
    assert len(shard.data) == 100
    shard.execute((b"SET", b"late", b"v", b"PX", b"1"))
    shard.now_ms = 4
    assert sum(shard.expire_cycle.run() for _ in range(20)) == 1
    assert b"late" not in shard.data


def test_the_active_cycle_can_be_switched_off() -> None:
    shard = Shard()
    shard.execute((b"SET", b"k", b"v", b"PX", b"1"))
    shard.execute((b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"))
    shard.now_ms = 5
    assert shard.expire_cycle.run() == 0
    shard.execute((b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"))
    assert shard.expire_cycle.run() == 1


def test_a_watched_key_that_lapses_breaks_the_transaction() -> None:
    for wait_ms, expected in ((100, [b"PONG"]), (101, None)):
        shard = Shard()
        shard.execute((b"SET", b"k", b"v", b"PX", b"100"))
        shard.execute((b"WATCH", b"k"))
        shard.execute((b"MULTI",))
        shard.execute((b"PING",))
        shard.now_ms = wait_ms
        assert shard.execute((b"EXEC",)) == expected


# -- effects ---------------------------------------------------------------------------------------------------


def test_effects_tell_what_each_command_touched_and_changed() -> None:
    shard = Shard()
    shard.execute((b"SET", b"old", b"v", b"PX", b"1"))
    shard.now_ms = 2
    shard.effects = []
    for line in (
        b"MSET a 1 b 2",
        b"GET a",
        b"SET a 5 NX",
        b"RENAME b c",
        b"MGET a old",
        b"INCR c x",
        b"LPUSH a x",
        b"DEL a c",
    ):
        shard.execute(line.split())
    seen = [(b" ".join(one.argv), one.keys, one.changed, one.is_write, one.changes) for one in shard.effects]
    assert seen == [
        (b"MSET a 1 b 2", (b"a", b"b"), (b"a", b"b"), True, 2),
        (b"GET a", (b"a",), (), False, 0),
        (b"SET a 5 NX", (b"a",), (), True, 0),
        (b"RENAME b c", (b"b", b"c"), (b"b", b"c"), True, 1),
        (b"MGET a old", (b"a", b"old"), (), False, 0),
        (b"LPUSH a x", (b"a",), (), True, 0),
        (b"DEL a c", (b"a", b"c"), (b"a", b"c"), True, 2),
    ]
    assert shard.effects[2].reply is None
    assert isinstance(shard.effects[5].reply, ErrorReply)


def test_the_effects_of_a_transaction_add_up() -> None:
    shard = Shard()
    shard.effects = []
    for line in (b"MULTI", b"SET a 1", b"INCR b", b"EXEC"):
        shard.execute(line.split())
    names = [one.argv[0] for one in shard.effects]
    assert names == [b"MULTI", b"SET", b"INCR", b"EXEC"]
    assert shard.effects[-1].changed == (b"a", b"b")
    assert shard.effects[-1].changes == 2
    assert shard.on_modified is None, "nobody listens any more"


def test_a_keyspace_can_do_without_a_shard() -> None:
    keyspace = Keyspace()
    keyspace.install(b"k", b"v")
    keyspace.set_deadline(b"k", 5)
    keyspace.now_ms = 6
    assert keyspace.lookup(b"k") is None
    assert keyspace.freeze() == {}


def test_one_command_cannot_fill_the_memory_of_the_machine() -> None:
    shard = Shard()
    shard.growth_left = 1000
    shard.grow(1000)
    with pytest.raises(GrowthLimit, match="at once; check its offsets"):
        shard.grow(1)
    script = b"for i = 1, 9 do redis.pcall('SETRANGE', 'k' .. i, ARGV[1], 'x') end"
    with pytest.raises(GrowthLimit):
        shard.execute((b"EVAL", script, b"0", b"%d" % (GROWTH_MAX_BYTES // 4)))
    assert shard.execute((b"DBSIZE",)) == 3, "no pcall catches it, and what was written stays"
