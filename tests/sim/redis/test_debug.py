"""DEBUG within scripts, as tests of others use it: every type of the protocol, in and out of a script, under RESP2 and
RESP3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orderlab.sim.redis.replies import BigNumber, ErrorReply, Verbatim
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand

if TYPE_CHECKING:
    from conftest import Judge

TYPES = [
    "string",
    "integer",
    "double",
    "bignum",
    "null",
    "array",
    "set",
    "map",
    "attrib",
    "verbatim",
    "true",
    "false",
    "nosuch",
    "STRING",
]
SHAPE = b"""
local function show(value)
  if type(value) ~= 'table' then return type(value) .. ':' .. tostring(value) end
  local fields = {}
  for key, item in pairs(value) do fields[#fields + 1] = tostring(key) .. '=' .. show(item) end
  table.sort(fields)
  return '{' .. table.concat(fields, ',') .. '}'
end
redis.setresp(tonumber(ARGV[1]))
return show(redis.pcall('debug', 'protocol', ARGV[2]))
"""
RETURNED = b"redis.setresp(tonumber(ARGV[1])) return redis.call('debug', 'protocol', ARGV[2])"


@pytest.mark.server
@pytest.mark.parametrize("resp", [2, 3])
def test_each_type_crosses_as_on_a_server(judge: Judge, resp: int) -> None:
    inside = [
        (b"EVAL", script, b"0", version, kind.encode())
        for kind in TYPES
        for version in (b"2", b"3")
        for script in (SHAPE, RETURNED)
    ]
    refused = (b"EVAL", b"return redis.pcall('debug', ARGV[1])", b"0", b"jmap")
    commands = [
        refused,
        (b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"1"),
        *[(b"DEBUG", b"PROTOCOL", kind.encode()) for kind in TYPES if kind != "attrib" or resp == 2],
        *[one for one in inside if one[4] != b"attrib" or one[3] == b"2"],
        refused,
        (b"EVAL", b"return redis.call('config', 'get', 'maxmemory')", b"0"),
        (b"DEBUG", b"JMAP"), (b"DEBUG", b"PROTOCOL"), (b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS"),
        (b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"0"),
        refused,
    ]  # fmt: skip
    found = judge.differences(commands, resp)
    assert not found, "\n".join(found)


def test_what_breaks_a_server_within_a_script_is_lacking() -> None:
    shard = Shard()
    shard.execute((b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"1"))
    with pytest.raises(UnsupportedCommand, match="EVAL within a script"):
        shard.execute((b"EVAL", b"return redis.pcall('eval', 'return 1', '0')", b"0"))
    shard.execute((b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"0"))
    reply = shard.execute((b"EVAL", b"return redis.pcall('eval', 'return 1', '0')", b"0"))
    assert reply == ErrorReply(b"ERR This Redis command is not allowed from script")


def test_big_numbers_and_verbatim_strings_have_types_of_their_own() -> None:
    shard = Shard()
    shard.execute((b"HELLO", b"3"))
    assert type(shard.execute((b"EVAL", b"return {big_number = '12'}", b"0"))) is BigNumber
    assert type(shard.execute((b"DEBUG", b"PROTOCOL", b"verbatim"))) is Verbatim


SLEEPING = b"""
redis.call('SET', 'k', 'v', 'PX', 5)
redis.call('DEBUG', 'SLEEP', '0.03')
redis.call('SET', 'j', 'v', 'PX', 60000)
return {redis.call('GET', 'k'), redis.call('PTTL', 'k'), redis.call('EXISTS', 'k', 'j'), redis.call('DBSIZE')}
"""


@pytest.mark.server
def test_no_key_expires_within_a_script_or_a_transaction_that_sleeps(judge: Judge) -> None:
    commands = [
        (b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"1"),
        (b"EVAL", SLEEPING, b"0"),
        (b"EXISTS", b"k", b"j"),
        (b"MULTI",),
        (b"SET", b"k", b"v", b"PX", b"5"),
        (b"DEBUG", b"SLEEP", b"0.03"),
        (b"GET", b"k"),
        (b"PTTL", b"k"),
        (b"EXEC",),
        (b"GET", b"k"),
        (b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"0"),
    ]
    found = judge.differences(commands, 2)
    assert not found, "\n".join(found)


def test_time_goes_on_within_a_script_that_sleeps() -> None:
    shard = Shard()
    shard.execute((b"DEBUG", b"SET-DISABLE-DENY-SCRIPTS", b"1"))
    script = b"local t = redis.call('TIME')[1] redis.call('DEBUG', 'SLEEP', '2') return redis.call('TIME')[1] - t"
    assert shard.execute((b"EVAL", script, b"0")) == 2


REPEATED = [
    (b"XADD", b"s", b"1-1", b"a", b"b"),
    (b"XREAD", b"STREAMS", b"s", b"t", b"s", b"0", b"0", b"0"),
    (b"XGROUP", b"CREATE", b"s", b"g", b"0"),
    (b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b"s", b">", b">"),
    (b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b"s", b"0", b"0"),
    (b"PUBSUB", b"NUMSUB", b"a", b"a"),
    (b"MULTI",),
    (b"XREAD", b"STREAMS", b"s", b"s", b"0", b"0"),
    (b"EXEC",),
]
"""Maps of RESP3 with a key twice."""
TABLES = (
    "{set={[1]=true,[true]=true}}",
    "{map={[1]='a',[true]='b',['1']='c'}}",
    "{{set={[1]=true,[true]=true}}, {1, {1, true}}}",
    "{{map={[1]='a',[1.5]='b'}}}",
    "redis.call('XREAD', 'STREAMS', 's', 's', '0', '0')",
)


@pytest.mark.server
def test_equal_keys_of_maps_and_members_of_sets_are_all_told(judge: Judge) -> None:
    scripts = [
        (b"EVAL", f"{version}return {table}".encode(), b"0")
        for table in TABLES
        for version in ("redis.setresp(3) ", "")
    ]
    found = judge.differences([*REPEATED, *scripts], 3)
    assert not found, "\n".join(found)
    shard = Shard()
    shard.execute((b"HELLO", b"3"))
    assert len(shard.execute((b"EVAL", b"redis.setresp(3) return {set={[1]=true,[true]=true}}", b"0"))) == 2
