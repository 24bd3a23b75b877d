"""Digest of what scripts say of 4,000 JSON texts, ordinary and mutilated: ``python json_replies.py SEED``."""

from __future__ import annotations

import hashlib
import random
import sys

from orderlab.sim.native import install as compiled
from orderlab.sim.redis.shard import Shard

PIECES = (
    '"',
    "\\",
    "\\n",
    "\\u0041",
    "\\ud800",
    "\\/",
    "/",
    "a",
    "é",
    "\x7f",
    "\x01",
    "\t",
    "\n",
    "\r",
    "\0",
    " ",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "false",
    "nullx",
    "tru",
    "0",
    "-0",
    "-",
    "+",
    "1",
    "12345678901234567890",
    "123456789012345",
    "1.5",
    "1e3",
    "1e400",
    "01",
    "0x1F",
    "nan",
    "inf",
    "Infinity",
    ".5",
    "1.",
)
SCRIPTS = (
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "local t, s = cjson.decode(ARGV[1]), '' if type(t) == 'table' then "
    "for k, v in pairs(t) do s = s .. tostring(k) .. '=' .. type(v) .. ';' end end return s",
    "cjson.decode_max_depth(3) local ok, e = pcall(cjson.decode, ARGV[1]) cjson.decode_max_depth(1000) "
    "return tostring(ok) .. (ok and cjson.encode(e) or tostring(e))",
    "cjson.encode_max_depth(2) local ok, e = pcall(cjson.encode, cjson.decode(ARGV[1])) cjson.encode_max_depth(1000) "
    "return tostring(e)",
    "local t = {} for k in string.gmatch(ARGV[1], '%d+') do t[tonumber(k)] = k end return cjson.encode(t)",
    "local t = {} for k in string.gmatch(ARGV[1], '%-?[%d.]+') do local n = tonumber(k) if n then "
    "t[#t + 1] = n t[#t + 1] = n * 1e-7 t[#t + 1] = n * 1e9 end end return cjson.encode(t)",
    "return cjson.encode({ARGV[1], [ARGV[1]] = ARGV[1], x = {[1.5] = 1, [2] = cjson.null}})",
    "cjson.encode_sparse_array(true, 1, 2) local t = {} for k in string.gmatch(ARGV[1], '%d') do t[k + 1] = k end "
    "local r = cjson.encode(t) cjson.encode_sparse_array(false, 2, 10) return r",
    "cjson.encode_number_precision(3) local r = cjson.encode(cjson.decode(ARGV[1])) "
    "cjson.encode_number_precision(14) return r",
    "return cjson.encode({cjson, redis, string})",
    "return #cjson.encode({string.rep(ARGV[1], 2000)})",
)


class Texts:
    """Draws texts that are JSON, or were."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def value(self, depth: int = 4) -> str:
        """Well formed."""
        draw = self.draw
        kind = draw.randrange(8)
        if depth and kind < 2:
            return (
                "["
                + draw.choice((",", " , ", ",\n")).join(self.value(depth - 1) for _ in range(draw.randrange(4)))
                + "]"
            )
        if depth and kind < 5:
            fields = (
                f'"{draw.choice("abcdefgh")}{draw.randrange(20)}"{draw.choice((":", " : "))}{self.value(depth - 1)}'
                for _ in range(draw.randrange(6))
            )
            return "{" + ",".join(fields) + draw.choice(("}", " }"))
        quoted = '"' + "".join(draw.choice(PIECES[1:12]) for _ in range(draw.randrange(5))) + '"'
        number = draw.random() * 10 ** draw.randrange(-20, 20)
        return draw.choice(
            ("null", "true", "false", str(draw.randrange(-(10**6), 10**16)), str(number), "-0", quoted, '"x"')
        )

    def text(self) -> bytes:
        """Well formed or nearly."""
        draw, text = self.draw, self.value()
        for _ in range(draw.choice((0, 0, 0, 1, 1, 2))):
            at = draw.randrange(len(text) + 1)
            text = text[:at] + draw.choice(PIECES) + text[at + draw.randrange(3) :]
        return text.encode()


def main(seed: int) -> None:
    """Print whether this process runs machine code, the share of errors, and the digest."""
    texts, shard, said, errors = Texts(seed), Shard(), hashlib.sha256(), 0
    for _ in range(2000):
        text, script = texts.text(), texts.draw.choice(SCRIPTS)
        reply = shard.execute((b"EVAL", script.encode(), b"0", text))
        errors += not isinstance(reply, bytes | int)
        said.update(f"{script}{text!r}{type(reply)}{reply!r}".encode())
    print(compiled.is_installed(), errors, said.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]))
