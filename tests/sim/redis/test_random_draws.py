"""Random draws of a shard: uniform, distinct where they must be, repeatable, and undone with the rest."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.sim.redis.random_draws import DRAWS_MAX, draw, draw_positions
from orderlab.sim.redis.shard import Shard


def shard_with(seed: int) -> Shard:
    shard = Shard()
    shard.random_state = seed
    return shard


@given(st.integers(0, 2**64 - 1), st.integers(1, 50), st.integers(-60, 60))
def test_positions(seed: int, size: int, count: int) -> None:
    positions = draw_positions(shard_with(seed), size, count)
    assert all(0 <= position < size for position in positions)
    if count < 0:
        assert len(positions) == -count
    else:
        assert len(set(positions)) == len(positions) == min(count, size)


def test_distinct_positions_are_uniform() -> None:
    shard = shard_with(1)
    pairs = Counter(tuple(draw_positions(shard, 4, 2)) for _ in range(12_000))
    assert len(pairs) == 12
    assert max(abs(found - 1000) for found in pairs.values()) < 120  # four standard deviations


def test_the_same_state_draws_the_same() -> None:
    assert [draw(shard_with(7), 1000) for _ in range(3)] == [draw(shard_with(7), 1000)] * 3
    assert draw(shard_with(7), 10**9) != draw(shard_with(8), 10**9)


def test_a_rollback_draws_again() -> None:
    shard = shard_with(3)
    shard.execute((b"SADD", b"s", *(b"m%d" % number for number in range(1000))))
    mark = shard.snapshot()
    first = [shard.execute((b"SPOP", b"s")) for _ in range(5)]
    shard.rollback(mark)
    assert [shard.execute((b"SPOP", b"s")) for _ in range(5)] == first
    assert shard.execute((b"SCARD", b"s")) == 995


def test_a_count_that_would_hang_the_kernel() -> None:
    shard = shard_with(0)
    shard.execute((b"SADD", b"s", b"a", b"b"))
    assert len(shard.execute((b"SRANDMEMBER", b"s", b"-%d" % 1000))) == 1000
    for command in ((b"SRANDMEMBER", b"s"), (b"HRANDFIELD", b"h"), (b"ZRANDMEMBER", b"z")):
        shard.execute((b"HSET", b"h", b"f", b"v"))
        shard.execute((b"ZADD", b"z", b"1", b"m"))
        with pytest.raises(InputError, match="use a smaller count"):
            shard.execute((*command, b"-%d" % (DRAWS_MAX + 1)))
