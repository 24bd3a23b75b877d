"""Digest of what 3,000 calls of redis.call and redis.pcall give their scripts, ordinary and not: ``python
call_replies.py SEED``."""

from __future__ import annotations

import hashlib
import random
import sys

from orderlab.sim.native import install as compiled
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand

TEXTS = (
    "'k'",
    "'h'",
    "'z'",
    "'s'",
    "'l'",
    "'none'",
    "''",
    "'1'",
    "'-1'",
    "'a\\0b'",
    "'\\200\\255'",
    "'+inf'",
    "'WITHSCORES'",
    "'0'",
)
NUMBERS = (
    "0",
    "-0",
    "0/0",
    "-(0/0)",
    "1/0",
    "-1/0",
    "1",
    "-1",
    "255",
    "0.1",
    "-2.5",
    "1e15",
    "-1e15",
    "999999999999999",
    "1e16",
    "123456789012345678",
    "2^53",
    "2^63",
    "-2^63",
    "2^64",
    "1e100",
    "5e-324",
)
OTHERS = ("nil", "true", "false", "{}", "print", "cjson.null", "coroutine.create(tostring)", "redis.call")
COMMANDS = (
    "'GET', 'k'",
    "'GET', 'none'",
    "'SET', 'k'",
    "'set', 'n'",
    "'HGETALL', 'h'",
    "'HSET', 'h', 'f'",
    "'HMGET', 'h', 'f'",
    "'ZRANGE', 'z', 0, -1",
    "'ZSCORE', 'z', 'm'",
    "'ZADD', 'z', 1",
    "'SMEMBERS', 's'",
    "'SADD', 's'",
    "'LRANGE', 'l', 0, -1",
    "'RPUSH', 'l'",
    "'TYPE', 'k'",
    "'TIME'",
    "'HSCAN', 'h', 0",
    "'INCR', 'n'",
    "'INCRBYFLOAT', 'n'",
    "'MGET', 'k', 'none', 'n'",
    "'ECHO'",
    "'PING'",
    "'DEL', 'k', 's'",
    "'COMMAND', 'COUNT'",
    "'CONFIG', 'GET'",
    "'GETRANGE', 'k', 0",
    "'EVAL', 'return 1', 0",
    "'OBJECT', 'ENCODING'",
    "'ZMPOP', 1, 'z', 'MIN'",
    "'LPOS', 'l', 'x'",
    "'x'",
    "",
)
CALLERS = (
    "return pack(redis.pcall(ARGUMENTS))",
    "return pack(pcall(redis.call, ARGUMENTS))",
    "return pack(pcall(function(...) return redis.call(...) end, ARGUMENTS))",
    "return pack(redis.call(ARGUMENTS))",
    "return pack(coroutine.wrap(function(...) return redis.pcall(...) end)(ARGUMENTS))",
    "return pack(coroutine.resume(coroutine.create(redis.call), ARGUMENTS))",
    "local r string.gsub('x', 'x', function() r = pack(redis.pcall(ARGUMENTS)) end) return r",
    "local t = setmetatable({}, {__index = function() return pack(redis.pcall(ARGUMENTS)) end}) return t.x",
    "return pack(xpcall(function() error('e') end, function() return redis.pcall(ARGUMENTS) end))",
    "local function down(n) if n == 0 then return redis.pcall(ARGUMENTS) end return select(2, pcall(down, n - 1)) "
    "end return pack(down(DEPTH))",
    "redis.setresp(3) local r = pack(redis.pcall(ARGUMENTS)) redis.setresp(2) return r",
    "local t = {redis.pcall(ARGUMENTS)} t[#t + 1] = redis.pcall('MGET', 'k', 'n') return pack(unpack(t))",
    "redis.call('DEL', 'l') local t = {} for i = 1, COUNT do t[i] = i end return pack(redis.pcall('RPUSH', 'l', "
    "unpack(t)), redis.pcall('LRANGE', 'l', 0, 1100))",
    "local s = string.rep('x', SIZE) return pack(redis.pcall('SET', 'big', s), #redis.call('GET', 'big'), "
    "redis.pcall('GET', s))",
)
SHOW = """
local function show(v, depth)
  if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
  local s, keys = '{#' .. #v, {}
  for k in pairs(v) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do s = s .. ',' .. tostring(k) .. '=' .. show(v[k], depth + 1) end
  return s .. '}'
end
local function pack(...)
  local s = select('#', ...)
  for i = 1, select('#', ...) do s = s .. ';' .. show((select(i, ...)), 1) end
  return (string.gsub(s, '0x%x+', 'address'))
end
"""


def script(draw: random.Random) -> str:
    """One that calls a command, mostly with arguments that it takes."""
    arguments = [draw.choice(COMMANDS)] if draw.random() < 0.9 else []
    arguments += (
        draw.choice(draw.choice((TEXTS, TEXTS, NUMBERS, NUMBERS, OTHERS)))
        for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 3, 12)))
    )
    text = draw.choice(CALLERS).replace("ARGUMENTS", ", ".join(filter(None, arguments)) or "nil")
    text = text.replace("COUNT", str(draw.choice((0, 57, 58, 59, 997, 998, 999, 4000, 7900))))
    return text.replace("SIZE", str(draw.choice((0, 65536, (1 << 20) - 6, (1 << 20) - 5, 3 << 20)))).replace(
        "DEPTH", str(draw.randrange(100, 190))
    )


def main(seed: int) -> None:
    """Print whether this process runs machine code, the share of errors, and the digest."""
    draw, shard, said, errors = random.Random(seed), Shard(), hashlib.sha256(), 0
    for turn in range(1500):
        if turn % 50 == 0:
            shard = Shard()
            for command in ("SET k v", "HSET h f v g w", "ZADD z 1 m 2.5 n", "SADD s a b", "RPUSH l x y"):
                shard.execute(command.encode().split())
        text = script(draw)
        try:
            reply = shard.execute((b"EVAL", (SHOW + text).encode(), b"0"))
        except UnsupportedCommand as error:
            reply = str(error)
        errors += not isinstance(reply, bytes)
        said.update(f"{text}{type(reply)}{reply!r}".encode())
    print(compiled.is_installed(), errors, said.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]))
