"""The bundled store, written otherwise: variants that keep every law, and variants that each break one.

A variant is an edit of one script: (file, what stands there, what stands there instead).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

SESSION = Path(__file__).parents[2] / "lua" / "session"


class Variant(NamedTuple):
    """One edit, and a law that it breaks; none when it keeps them all."""

    name: str
    file: str
    old: str
    new: str
    breaks: tuple[str, ...] = ()
    """Any of these is a right answer."""

    def binding(self) -> Binding:
        """The store with the edit, wherever the old text stands."""
        binding = load_binding(SESSION)
        source = next(script.source for script in binding.scripts if script.name == self.file).decode()
        assert self.old in source, self.name
        return binding.with_sources({self.file: source.replace(self.old, self.new).encode()})


HEAD = "local call = redis.call\n"
READS = """local stored = call('HMGET', body, 'm', id)
local meta, record = stored[1], stored[2]
local score = call('ZSCORE', index, id)
"""
REMOVAL = """call('ZREM', index, id, '-' .. id)
call('HDEL', body, id)
"""

LAWFUL = (
    Variant(
        "says of a repeated save only what is live",
        "save.lua",
        "        reply[#reply + 1] = sequence\n",
        "        reply[#reply + 1] = call('ZSCORE', index, "
        "string.format('%d', "
        "reply[#reply])) == "
        "string.format('%d', sequence) and sequence or 0\n",
    ),
    Variant("other local names", "save.lua", "excess", "surplus"),
    Variant("the floor is not used", "save.lua", "last + alive - LAST_ID >= floor", "true"),
    Variant(
        "sweeps one at a time",
        "save.lua",
        "SWEEP = 65535, 9999999999999, 6000, 512",
        "SWEEP = 65535, 9999999999999, 6000, 1",
    ),
    Variant("sweeps everything", "save.lua", "6000, 512", "6000, 100000"),
    Variant("writes two values a call", "save.lua", "6000, 512", "2, 512"),
    Variant(
        "the messages are written before the counter",
        "save.lua",
        "send('HSET', body, fields)",
        "if #fields > 2 then send('HSET', body, {unpack(fields, 3)}) end call('HSET', body, 'm', fields[2])",
    ),
    Variant(
        "the index first",
        "save.lua",
        "send('HSET', body, fields)\nsend('ZREM', index, members)\nsend('ZADD', index, entries)\n",
        "send('ZREM', index, members)\nsend('ZADD', index, entries)\nsend('HSET', body, fields)\n",
    ),
    Variant("refuses in other words", "save.lua", "ERR limit must be", "ERR no such limit: it must be"),
    Variant(
        "a check that never fires",
        "save.lua",
        HEAD,
        HEAD + "if #KEYS ~= 2 then return redis.error_reply('ERR two keys') end\n",
    ),
    Variant(
        "the reads in another order",
        "acknowledge.lua",
        READS,
        "local score = call('ZSCORE', index, id)\n" + READS.replace("local score = call('ZSCORE', index, id)\n", ""),
    ),
    Variant(
        "two reads for one",
        "acknowledge.lua",
        "local stored = call('HMGET', body, 'm', id)",
        "local stored = {call('HGET', body, 'm'), call('HGET', body, id)}",
    ),
    Variant(
        "removes the record first",
        "acknowledge.lua",
        REMOVAL,
        "call('HDEL', body, id)\ncall('ZREM', index, id, '-' .. id)\n",
    ),
    Variant(
        "removes member by member",
        "acknowledge.lua",
        "call('ZREM', index, id, '-' .. id)",
        "call('ZREM', index, '-' .. id)\ncall('ZREM', index, id)",
    ),
    Variant("asks for the time early", "acknowledge.lua", "local stored =", "call('TIME')\nlocal stored ="),
    Variant("writes a release again", "release.lua", "if string.sub(record, 1, 1) == 'P' then", "if true then"),
    Variant(
        "ZMSCORE for ZSCORE",
        "release.lua",
        "local score = call('ZSCORE', index, id)",
        "local score = call('ZMSCORE', index, id)[1]",
    ),
    Variant("looks at seven at a time", "fetch.lua", "CHUNK = 9999999999999, 1000", "CHUNK = 9999999999999, 7"),
    Variant("looks at one at a time", "fetch.lua", "CHUNK = 9999999999999, 1000", "CHUNK = 9999999999999, 1"),
    Variant(
        "looks at more than it returns",
        "fetch.lua",
        "{}, 0, math.min(count, CHUNK)",
        "{}, 0, math.min(count + 3, CHUNK)",
    ),
    Variant("DEL for UNLINK", "clear.lua", "'UNLINK'", "'DEL'"),
    Variant("the body goes first", "clear.lua", "call('UNLINK', index, body)", "call('UNLINK', body, index)"),
    Variant(
        "does not look at the index",
        "clear.lua",
        "call('ZCARD', index)\n",
        "call('EXISTS', index)\ncall('ZCARD', index)\n",
    ),
    Variant("sequences begin a round later", "open.lua", "'%d 0 1 %d 0'", "'%d 65535 65536 %d 0'"),
    Variant("fields go one by one", "open.lua", "CHUNK = 9999999999999, 6000", "CHUNK = 9999999999999, 1"),
)

BROKEN = (
    Variant(
        "a token is not compared", "acknowledge.lua", " or tonumber(score) ~= sequence", "", ("packet-id", "no-loss")
    ),
    Variant("the record stays", "acknowledge.lua", "call('HDEL', body, id)\n", "", ("no-residue",)),
    Variant("the early deadline stays", "acknowledge.lua", "index, id, '-' .. id)", "index, id)", ("no-residue",)),
    Variant(
        "the reference stays",
        "acknowledge.lua",
        "call('ZREM', index, id, '-' .. id)\n",
        "",
        ("drain", "packet-id", "no-residue"),
    ),
    Variant(
        "an answer from another session",
        "acknowledge.lua",
        " or epoch < tonumber(string.match(meta, '^%d+'))",
        "",
        ("packet-id", "no-loss"),
    ),
    Variant(
        "removes before it reads",
        "acknowledge.lua",
        "local stored =",
        "call('HDEL', body, id)\nlocal stored =",
        ("all-or-nothing", "drain", "no-loss", "packet-id"),
    ),
    Variant(
        "an answer takes the early deadline before it is checked",
        "acknowledge.lua",
        "local stored =",
        "call('ZREM', index, '-' .. id)\nlocal stored =",
        ("legal-trim", "no-loss", "packet-id"),
    ),
    Variant(
        "a release takes the early deadline before it is checked",
        "release.lua",
        "local stored =",
        "call('ZREM', index, '-' .. id)\nlocal stored =",
        ("legal-trim", "no-loss", "packet-id"),
    ),
    Variant(
        "the counter begins anew when the queue is empty",
        "acknowledge.lua",
        "return live and 1 or 0",
        "if call('ZCARD', index) == 1 then call('HSET', body, 'm', epoch "
        ".. ' 0 1 "
        "9999999999999 0') "
        "end\nreturn live and 1 or 0",
        ("counter",),
    ),
    Variant("a release lives for ever", "release.lua", "'R' .. deadline)", "'R9999999999999')", ("expiry",)),
    Variant(
        "a release loses its deadline",
        "release.lua",
        "'R' .. deadline)",
        "'R0000000000000')",
        ("no-loss", "retransmission", "expiry"),
    ),
    Variant(
        "a release of whoever has the identifier",
        "release.lua",
        " or tonumber(score) ~= sequence",
        "",
        ("retransmission", "packet-id"),
    ),
    Variant(
        "a released message is gone",
        "release.lua",
        "call('HSET', body, id, 'R' .. deadline)",
        "call('ZREM', index, id, '-' .. id) call('HDEL', body, id)",
        ("retransmission", "no-loss"),
    ),
    Variant(
        "a release that changes nothing",
        "release.lua",
        "call('HSET', body, id, 'R' .. deadline)",
        "",
        ("retransmission",),
    ),
    Variant(
        "a page begins with the last of the page before",
        "fetch.lua",
        "index, '(' .. string",
        "index, '' .. string",
        ("store-order", "drain"),
    ),
    Variant("returned at its deadline", "fetch.lua", "if deadline > now then", "if deadline >= now then", ("expiry",)),
    Variant("tells the deadline, not what is left", "fetch.lua", "deadline - now or ''", "deadline or ''", ("expiry",)),
    Variant(
        "stops at an expired message",
        "fetch.lua",
        "        return page\n      end\n    end",
        "        return page\n      end\n    else\n      return page\n    end",
        ("no-loss", "drain", "expiry"),
    ),
    Variant("looks at one page only", "fetch.lua", "until not more", "until true", ("no-loss", "drain")),
    Variant(
        "takes what it returns",
        "fetch.lua",
        "until not more\n",
        "until not more\nfor i = 1, #page, 5 do call('ZREM', index, page[i]) end\n",
        ("no-loss",),
    ),
    Variant(
        "another identifier than was saved",
        "fetch.lua",
        "tonumber(ids[i]), tonumber",
        "tonumber(ids[i]) % 65535 + 1, tonumber",
        ("packet-id",),
    ),
    Variant("a PUBREL comes as PUBLISH", "fetch.lua", "string.sub(record, 1, 1)\n", "'P'\n", ("retransmission",)),
    Variant(
        "the body outlives the session",
        "clear.lua",
        "call('UNLINK', index, body)",
        "call('UNLINK', index)",
        ("no-residue", "no-loss", "drain"),
    ),
    Variant(
        "the index outlives the session",
        "clear.lua",
        "call('UNLINK', index, body)",
        "call('UNLINK', body)",
        ("no-residue", "drain", "no-phantom"),
    ),
    Variant(
        "the end of an earlier session ends this one",
        "clear.lua",
        "epoch < tonumber(string.match(meta, '^%d+'))",
        "false",
        ("no-loss",),
    ),
    Variant(
        "a clean start keeps the records", "open.lua", "if fields[i] ~= 'm' then", "if false then", ("no-residue",)
    ),
    Variant(
        "a clean start finds the old session",
        "open.lua",
        "(epoch == begun or clean == '0')",
        "true",
        ("no-phantom", "no-residue"),
    ),
    Variant("a reconnect begins anew", "open.lua", "(epoch == begun or clean == '0')", "epoch == begun", ("no-loss",)),
    Variant("a session is always present", "open.lua", "return {0, epoch}", "return {1, epoch}", ("no-residue",)),
    Variant("a reconnect finds nothing", "open.lua", "{epoch > begun and 1 or 0, begun}", "{0, begun}", ("no-loss",)),
    Variant(
        "deletes before it writes",
        "open.lua",
        "call('HSET', body, 'm', string.format",
        "call('UNLINK', index, body)\ncall('HSET', body, 'm', string.format",
        ("all-or-nothing",),
    ),
    Variant(
        "a closed session takes messages",
        "save.lua",
        "if epoch < tonumber(begun) then",
        "if false then",
        ("no-phantom", "no-residue"),
    ),
    Variant(
        "a repeated save numbers messages that were dead on arrival",
        "save.lua",
        "deadlines[i], 0, 0",
        "deadlines[i], -1, 0",
        ("all-or-nothing",),
    ),
    Variant(
        "a repeated save tells of a run as one longer",
        "save.lua",
        "runs[#runs] = sequence\n",
        "runs[#runs] = sequence + 1\n",
        ("all-or-nothing",),
    ),
    Variant(
        "a repeated save is not answered",
        "save.lua",
        "in string.gmatch(mark, ' (%d+) (%d+)') do",
        "in string.gmatch('', ' (%d+) (%d+)') do",
        ("all-or-nothing",),
    ),
    Variant("an older batch is saved again", "save.lua", "if batch < saved then", "if false then", ("all-or-nothing",)),
    Variant(
        "a closed session answers with an error",
        "save.lua",
        "return redis.status_reply('CLOSED')\nelseif",
        "return redis.error_reply('ERR closed')\nelseif",
        ("all-or-nothing",),
    ),
    Variant(
        "messages that are dead on arrival fail a save",
        "save.lua",
        "-- 2. State",
        "if alive == 0 then return redis.error_reply('ERR nothing lives') end\n-- 2. State",
        ("all-or-nothing",),
    ),
    Variant("an expired message is found", "acknowledge.lua", "return live and 1 or 0", "return 1", ("packet-id",)),
    Variant(
        "an expired message is released",
        "release.lua",
        "<= time[1] * 1000",
        "<= 0 * time[1]",
        ("retransmission", "expiry"),
    ),
    Variant(
        "the end of an earlier session ends this one",
        "clear.lua",
        "epoch < tonumber",
        "false and epoch < tonumber",
        ("no-loss",),
    ),
    Variant("a session that is not there is ended", "clear.lua", "return meta and 1 or 0", "return 1", ("no-residue",)),
    Variant(
        "a repeated batch is saved again",
        "save.lua",
        "elseif batch == saved then",
        "elseif batch == -1 then",
        ("all-or-nothing",),
    ),
)
