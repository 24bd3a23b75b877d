"""What a feed may promise of delays, of a reader's own messages, of identifiers and of claims, with slips."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.validation import validate_contract
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding

FEW = 0.05
STORE = """
specification = "feed"
[promises]
retention_ms = 3000
claim_ms = 1000
names = "store"
claims = "outlive"
clocks = "agree"
[keys]
all = "{f}:all"
order = "{f}:order"
next = "{f}:next"
free = "{f}:free"
claims = "{f}:claims"
[operations.post]
script = "post.lua"
keys = ["all", "order", "next", "free"]
args = ["<now_ms>", "<delay_ms>", "<client>", { each = "posts", items = ["<item|at:1>"] }]
[operations.list]
script = "list.lua"
keys = ["all", "order", "free"]
args = ["<now_ms>", "<marker>", "<client>", "<echo>"]
[operations.claim]
script = "claim.lua"
keys = ["all", "order", "next", "free", "claims"]
args = ["<now_ms>"]
[operations.renew]
script = "renew.lua"
keys = ["all", "order", "free", "claims"]
args = ["<now_ms>", "<token>"]
[operations.delete]
script = "delete.lua"
keys = ["all", "order", "free"]
args = ["<now_ms>", "<message>", "<token>"]
"""
# order: identifiers by when they go; free: when a claim or a delay ends; all: poster and payload; claims by their end
LOOK = """
local now = tonumber(ARGV[1])
redis.call('ZCARD', KEYS[2]) redis.call('HLEN', KEYS[1])
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', '(' .. now, 'BYSCORE')) do
  local till = tonumber(redis.call('HGET', KEYS[FREE], id .. ':till') or 0)
  if till < now then
    redis.call('ZREM', KEYS[2], id) redis.call('HDEL', KEYS[1], id)
    redis.call('HDEL', KEYS[FREE], id .. ':till', id .. ':token')
  end
end
local function after(id, end_)
  return tonumber(id) > (tonumber(end_) or 0)
end
local function ids()
  local found = redis.call('HKEYS', KEYS[1])
  table.sort(found, function(a, b) return tonumber(a) < tonumber(b) end)
  return found
end
"""
SCRIPTS = {
    "post.lua": LOOK.replace("FREE", "4")
    + """
redis.call('GET', KEYS[3])
local made = {}
for i = 4, #ARGV do
  local id = redis.call('INCR', KEYS[3])
  redis.call('HSET', KEYS[1], id, cjson.encode({ ARGV[3], ARGV[i] }))
  redis.call('ZADD', KEYS[2], now + 3000, id)
  if ARGV[2] ~= '0' then redis.call('HSET', KEYS[4], id .. ':till', now + ARGV[2]) end
  made[#made + 1] = tostring(id)
end
return made""",
    "list.lua": LOOK.replace("FREE", "3")
    + """
local page = { ARGV[2] }
for _, id in ipairs(ids()) do
  local one = cjson.decode(redis.call('HGET', KEYS[1], id))
  local delayed = not redis.call('HGET', KEYS[3], id .. ':token')
    and tonumber(redis.call('HGET', KEYS[3], id .. ':till') or 0) >= now
  if after(id, ARGV[2]) and not delayed and (ARGV[4] == '1' or one[1] ~= ARGV[3]) then
    page[#page + 1] = { id, one[2] }
    page[1] = id
  end
end
return page""",
    "claim.lua": LOOK.replace("FREE", "4")
    + """
redis.call('GET', KEYS[3]) redis.call('ZCARD', KEYS[5])
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', '(' .. now)
local held = {}
for _, id in ipairs(ids()) do
  if tonumber(redis.call('HGET', KEYS[4], id .. ':till') or 0) < now then
    local token = held[1] or tostring(redis.call('INCR', KEYS[3]))
    held[1] = token
    held[#held + 1] = { id, cjson.decode(redis.call('HGET', KEYS[1], id))[2] }
    redis.call('HSET', KEYS[4], id .. ':till', now + 1000, id .. ':token', token)
    redis.call('ZADD', KEYS[5], now + 1000, token)
    redis.call('ZADD', KEYS[2], 'GT', now + 1000, id)
  end
end
return held[1] and held or false""",
    "renew.lua": LOOK.replace("FREE", "3")
    + """
local till = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[2]) or 0)
if till < now then return 'lost' end
redis.call('ZADD', KEYS[4], now + 1000, ARGV[2])
for _, id in ipairs(ids()) do
  if redis.call('HGET', KEYS[3], id .. ':token') == ARGV[2] then
    redis.call('HSET', KEYS[3], id .. ':till', now + 1000)
    redis.call('ZADD', KEYS[2], 'GT', now + 1000, id)
  end
end
return 'ok'""",
    "delete.lua": LOOK.replace("FREE", "3")
    + """
local token = redis.call('HGET', KEYS[3], ARGV[2] .. ':token')
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 'lost' end
local held = token and tonumber(redis.call('HGET', KEYS[3], ARGV[2] .. ':till')) >= now
if held and token ~= ARGV[3] then return 'lost' end
redis.call('HDEL', KEYS[1], ARGV[2]) redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[2] .. ':till', ARGV[2] .. ':token')
return 'ok'""",
}
SLIPS: Mapping[str, tuple[Mapping[str, tuple[str, str]], str]] = {
    "delay": ({"claim.lua": (" < now then\n    local token", " < now + 500 then\n    local token")}, "exclusive-claim"),
    "echo": ({"list.lua": ("one[1] ~= ARGV[3]", "one[1] == ARGV[3]")}, "progress"),
    "names": ({"post.lua": ("made[#made + 1] = tostring(id)", "made[#made + 1] = tostring(id + 1)")}, "no-phantom"),
    "claims": ({"store.toml": ('claims = "outlive"', 'claims = "end"')}, "exclusive-claim"),
}


LAWS = ["cursor-safe", "progress", "no-repeat", "fifo", "exclusive-claim", "retention", "no-phantom", "specification"]
"""But `bounded`: this feed looks at all messages in every call, so that crowds are left out."""


def broken(folder: Path, edits: Mapping[str, tuple[str, str]]) -> set[str]:
    """Of the laws of feeds those that the feed with these edits breaks."""
    for name, text in {**SCRIPTS, "store.toml": STORE}.items():
        find, replace = edits.get(name, ("", ""))
        assert find in text
        (folder / name).write_text(text.replace(find, replace) if find else text)
    found = validate_contract(load_binding(folder), WorkOrder(FEW, laws=LAWS))
    return {one.law for one in found.results if one.outcome is Outcome.VIOLATED}


@pytest.fixture(autouse=True)
def _no_crowds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedStore, "crowds", lambda self: ())


@pytest.mark.exhaustive
def test_a_feed_that_keeps_its_promises_breaks_nothing(tmp_path: Path) -> None:
    assert broken(tmp_path, {}) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize("promise", SLIPS)
def test_a_feed_that_does_not_is_told(promise: str, tmp_path: Path) -> None:
    edits, law = SLIPS[promise]
    assert law in broken(tmp_path, edits)
