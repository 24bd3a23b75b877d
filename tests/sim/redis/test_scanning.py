"""Scans of large collections: whatever stays from start to end is returned, once, whatever comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.values.hash_order import in_hash_order, scan_page

if TYPE_CHECKING:
    from conftest import Judge

LARGE = 600
ADD: dict[bytes, Callable[[bytes], tuple[bytes, ...]]] = {
    b"SSCAN": lambda member: (b"SADD", b"k", member),
    b"HSCAN": lambda member: (b"HSET", b"k", member, b"v"),
    b"ZSCAN": lambda member: (b"ZADD", b"k", b"1", member),
}
REMOVE = {b"SSCAN": b"SREM", b"HSCAN": b"HDEL", b"ZSCAN": b"ZREM"}


@pytest.mark.parametrize("command", sorted(ADD))
@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 300), changes=st.lists(st.tuples(st.booleans(), st.integers(0, LARGE * 2)), max_size=60))
def test_members_that_stay_are_returned_once(command: bytes, count: int, changes: list[tuple[bool, int]]) -> None:
    shard = Shard()
    for number in range(LARGE):
        shard.execute(ADD[command](b"m%d" % number))
    touched = {b"m%d" % number for _, number in changes}
    pending = list(changes)
    cursor, seen = b"0", []
    while True:
        cursor, flat = shard.execute((command, b"k", cursor, b"COUNT", b"%d" % count))
        seen += flat if command == b"SSCAN" else flat[::2]
        if cursor == b"0":
            break
        for added, number in pending[:3]:
            member = b"m%d" % number
            shard.execute(ADD[command](member) if added else (REMOVE[command], b"k", member))
        del pending[:3]
    stayed = {b"m%d" % number for number in range(LARGE)} - touched
    assert stayed <= set(seen)
    assert len(seen) == len(set(seen))


def test_the_order_does_not_tell_how_members_came_in() -> None:
    one, other = Shard(), Shard()
    names = [b"m%d" % number for number in range(50)]
    one.execute((b"SADD", b"k", *names))
    other.execute((b"SADD", b"k", b"gone", *reversed(names)))
    other.execute((b"SMEMBERS", b"k"))
    other.execute((b"SREM", b"k", b"gone"))
    assert one.execute((b"SMEMBERS", b"k")) == other.execute((b"SMEMBERS", b"k")) != names
    assert one.freeze() == other.freeze()


def test_members_at_one_position_come_together() -> None:
    twins = [b"plumless", b"buckeroo"]  # equal checksums
    order = in_hash_order([*twins, b"a", b"b"])
    at = min(order.index(twin) for twin in twins)
    cursor, page = scan_page(order, 0, at + 1)
    assert set(twins) <= set(page)
    assert cursor == 0 or not set(twins) & set(scan_page(order, cursor, 10)[1])


def test_an_order_that_was_asked_for_follows_later_changes() -> None:
    shard = Shard()
    shard.execute((b"ZADD", b"k", *(part for number in range(200) for part in (b"1", b"m%d" % number))))
    shard.execute((b"ZSCAN", b"k", b"0", b"COUNT", b"1000"))
    shard.execute((b"ZADD", b"k", b"1", b"new"))
    shard.execute((b"ZREM", b"k", b"m7"))
    _, flat = shard.execute((b"ZSCAN", b"k", b"0", b"COUNT", b"1000"))
    assert flat[::2] == in_hash_order([b"new", *(b"m%d" % number for number in range(200) if number != 7)])


@pytest.mark.server
@pytest.mark.parametrize("wanted", [b"string", b"list", b"none", b"NONE", b"a", b""])
def test_a_filter_by_type_removes_what_has_expired_of_any_type(judge: Judge, wanted: bytes) -> None:
    commands = [
        (b"SET", b"a", b"x", b"PXAT", b"1"),
        (b"SET", b"b", b"x"),
        (b"SCAN", b"0", b"COUNT", b"100", b"TYPE", wanted),
        (b"DBSIZE",),
    ]
    assert judge.differences(commands) == []
