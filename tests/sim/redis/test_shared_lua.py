"""Shards that share a Lua state answer as if each had one of its own."""

from __future__ import annotations

import pytest

from orderlab.sim.redis.lua.host import SharedLua, host_of
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard

SPARSE = b"return cjson.encode({[1]=1,[20]=1})"
ALLOW_SPARSE = b"cjson.encode_sparse_array(true) return 1"


def eval_on(shard: Shard, script: bytes, *arguments: bytes) -> object:
    return shard.execute((b"EVAL", script, b"0", *arguments))


def sharing(count: int = 2) -> list[Shard]:
    lua = SharedLua()
    return [Shard(lua) for _ in range(count)]


def are_together(one: Shard, other: Shard) -> bool:
    return host_of(one)._engine is host_of(other)._engine


def test_shards_share_a_state_and_nothing_else() -> None:
    one, other = sharing()
    one.now_ms, other.now_ms = 1000, 2000
    for shard, value in ((one, b"1"), (other, b"2")):
        assert eval_on(shard, b"redis.call('SET','k',ARGV[1]) return redis.call('GET','k')", value) == value
    assert [shard.execute((b"GET", b"k")) for shard in (one, other)] == [b"1", b"2"]
    assert [eval_on(shard, b"return redis.call('TIME')[1]") for shard in (one, other)] == [b"1", b"2"]
    assert are_together(one, other)


def test_a_setting_of_cjson_is_that_of_the_shard_whose_script_made_it() -> None:
    one, other = sharing()
    for shard in (one, other):
        assert isinstance(eval_on(shard, SPARSE), ErrorReply)
    assert eval_on(one, ALLOW_SPARSE) == 1
    assert eval_on(one, SPARSE) == b'{"1":1,"20":1}'
    assert isinstance(eval_on(other, SPARSE), ErrorReply)
    assert not are_together(one, other)


def test_others_find_their_scripts_in_the_new_state() -> None:
    one, other = sharing()
    sha = other.execute((b"SCRIPT", b"LOAD", b"#!lua flags=no-writes\nreturn ARGV[1]"))
    assert isinstance(sha, bytes)
    eval_on(one, ALLOW_SPARSE)
    assert other.execute((b"EVALSHA", sha, b"0", b"x")) == b"x"
    assert isinstance(one.execute((b"EVALSHA", sha, b"0", b"x")), ErrorReply)  # never loaded there


def test_a_flush_brings_the_settings_back_and_the_shard_too() -> None:
    one, other = sharing()
    eval_on(one, ALLOW_SPARSE)
    eval_on(other, b"return 1")
    one.execute((b"SCRIPT", b"FLUSH"))
    assert isinstance(eval_on(one, SPARSE), ErrorReply)
    assert are_together(one, other)


@pytest.mark.parametrize(
    "setting",
    [
        b"cjson.encode_max_depth(5)",
        b"cjson.decode_max_depth(5)",
        b"cjson.encode_number_precision(3)",
        b"cjson.encode_keep_buffer(false)",
        b"cjson.encode_invalid_numbers(true)",
        b"cjson.decode_invalid_numbers(false)",
        b"collectgarbage('setpause', 300)",
        b"collectgarbage('setstepmul', 300)",
    ],
)
def test_every_setting_parts_them(setting: bytes) -> None:
    one, other = sharing()
    eval_on(other, b"return 1")
    assert are_together(one, other)
    eval_on(one, setting)
    eval_on(other, b"return 1")
    assert not are_together(one, other)


def test_looking_at_a_setting_does_not_part_them() -> None:
    one, other = sharing()
    eval_on(
        one,
        b"cjson.encode_sparse_array() cjson.encode_keep_buffer() cjson.decode_invalid_numbers() "
        b"cjson.encode_invalid_numbers()",
    )
    eval_on(one, b"return {cjson.encode_max_depth(), cjson.encode_number_precision(), collectgarbage('count')}")
    eval_on(other, b"return 1")
    assert are_together(one, other)


def test_random_numbers_are_those_of_the_shard() -> None:
    draws = b"return math.random(1000000)"
    one, other = sharing()
    alone = Shard()
    assert [eval_on(one, draws) for _ in range(3)] == [eval_on(alone, draws) for _ in range(3)]
    assert eval_on(other, draws) == eval_on(Shard(), draws)


def test_flushed_scripts_leave_the_state() -> None:
    one, other = sharing()
    for shard in (one, other):
        eval_on(shard, b"return 1")
    other.execute((b"SCRIPT", b"FLUSH"))
    assert host_of(other)._engine.compiled == {}
    assert eval_on(one, b"return 1") == eval_on(other, b"return 1") == 1
