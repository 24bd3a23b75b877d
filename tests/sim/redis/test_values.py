"""The values of the four collections: their bookkeeping, and what a snapshot of them costs."""

from __future__ import annotations

import random

import pytest

from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.values import List, SortedSet


def test_a_list_behaves_like_a_plain_list_and_keeps_little_room() -> None:
    draw = random.Random(1)
    value, plain = List(), []
    for step in range(20_000):
        many = [b"%d" % draw.randrange(10) for _ in range(draw.randint(1, 5))]
        growing = (step // 2000) % 2 == 0
        action = draw.choice(["left", "right", "pop left", "pop right", "set", "insert", "remove"])
        if action == "left" and growing:
            value.push_left(many, None)
            plain[:0] = many[::-1]
        elif action == "right" and growing:
            value.push_right(many, None)
            plain += many
        elif not plain:
            continue
        elif action == "pop left":
            count = draw.randint(1, min(3, len(plain)))
            assert value.pop_left(count, None) == plain[:count]
            del plain[:count]
        elif action == "pop right":
            count = draw.randint(1, min(3, len(plain)))
            assert value.pop_right(count, None) == plain[: -count - 1 : -1]
            del plain[-count:]
        else:
            at = draw.randrange(len(plain))
            if action == "set":
                value.set(at, many[0], None)
                plain[at] = many[0]
            elif action == "insert":
                value.insert(at, many[0], None)
                plain.insert(at, many[0])
            elif action == "remove" and not growing:
                value.remove_at([at], None)
                del plain[at]
        assert len(value) == len(plain)
        assert len(value._cells) <= 2 * len(plain) + 100
    assert list(value) == plain
    assert value.slice(1, 4) == plain[1:4]


@pytest.mark.parametrize(
    ("command", "entries_max"),
    [
        ((b"ZADD", b"z", b"5", b"new"), 1),
        ((b"ZADD", b"z", b"7", b"m3"), 1),
        ((b"ZREM", b"z", b"m3", b"m4"), 2),
        ((b"ZREMRANGEBYRANK", b"z", b"0", b"9"), 1),
        ((b"ZPOPMAX", b"z"), 1),
        ((b"HSET", b"h", b"f", b"v"), 1),
        ((b"HDEL", b"h", b"m1", b"m2"), 1),
        ((b"SADD", b"s", b"new"), 1),
        ((b"SREM", b"s", b"m1"), 1),
        ((b"RPUSH", b"l", b"a", b"b"), 1),
        ((b"LPUSH", b"l", b"a", b"b"), 1),
        ((b"LPOP", b"l"), 1),
        ((b"LTRIM", b"l", b"1", b"-2"), 2),
        ((b"LINSERT", b"l", b"AFTER", b"m3", b"x"), 1),
        ((b"LREM", b"l", b"1", b"m3"), 1),
    ],
)
def test_a_snapshot_costs_what_changes(command: tuple[bytes, ...], entries_max: int) -> None:
    shard = Shard()
    names = [b"m%d" % number for number in range(5000)]
    shard.execute((b"ZADD", b"z", *(part for number, name in enumerate(names) for part in (b"%d" % number, name))))
    shard.execute((b"HSET", b"h", *(part for name in names for part in (name, b"v"))))
    shard.execute((b"SADD", b"s", *names))
    shard.execute((b"RPUSH", b"l", *names))
    before = shard.freeze()
    mark = shard.snapshot()
    shard.execute(command)
    assert shard.undo is not None
    assert len(shard.undo) - mark <= entries_max
    held = [len(argument) for entry in shard.undo for argument in entry[1:] if isinstance(argument, (list, dict))]
    assert sum(held) <= 30
    assert shard.freeze() != before
    shard.rollback(mark)
    assert shard.freeze() == before


def test_a_negative_zero_survives_freezing() -> None:
    shard = Shard()
    shard.execute((b"ZADD", b"z", b"0", b"long" * 20, b"-0", b"a", b"0", b"b"))
    twin = Shard()
    twin.load(shard.freeze())
    assert twin.execute((b"ZMSCORE", b"z", b"a", b"b")) == [b"-0", b"0"]
    shard.execute((b"ZADD", b"z", b"1", b"a"))
    shard.execute((b"ZADD", b"z", b"0", b"a"))
    assert shard.freeze() != twin.freeze()


def test_entries_of_a_sorted_set_share_their_objects() -> None:
    value = SortedSet()
    value.insert(b"member", 1.5, None)
    assert value.order_members[0] is next(iter(value.scores))
    assert value.order_scores[0] is value.scores[b"member"]


def test_a_rollback_brings_the_order_of_a_listpack_back() -> None:
    shard = Shard()
    shard.execute((b"HSET", b"h", b"c", b"1", b"a", b"2", b"b", b"3"))
    mark = shard.snapshot()
    shard.execute((b"HDEL", b"h", b"c"))
    shard.execute((b"HSET", b"h", b"c", b"long" * 20))
    shard.execute((b"HDEL", b"h", b"a"))
    assert shard.execute((b"OBJECT", b"ENCODING", b"h")) == b"hashtable"
    shard.rollback(mark)
    assert shard.execute((b"HGETALL", b"h")) == [b"c", b"1", b"a", b"2", b"b", b"3"]
