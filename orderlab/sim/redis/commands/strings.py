"""Strings: whole, in parts, as numbers, and what two of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.expiry import ExpireOptions, deadline_of, has_passed, parse_string_options
from orderlab.sim.redis.long_doubles import LongDouble, add_long_doubles, long_double_text, parse_long_double
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN, parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import (
    NOT_A_FLOAT,
    NOT_AN_INTEGER,
    OK,
    SYNTAX_ERROR,
    WRONG_TYPE,
    ErrorReply,
    Reply,
    mapping,
)

TOO_LONG = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
_SECONDS_DIGITS_MAX: Final = 15
_NO_OPTIONS = ExpireOptions()


@command("get", 2, "readonly fast", (1, 1, 1))
def get(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GET key."""
    value = node.lookup(argv[1])
    if value is None or type(value) is bytes:
        return value
    raise ErrorReply(WRONG_TYPE)


def put_string(node: NodeState, key: bytes, value: bytes, keeps_deadline: bool = False) -> None:
    """Let ``key`` hold the string ``value``, whatever it held before; by default its deadline goes (``setKey``)."""
    if node.undo is None and not node.string_encodings and node.access is None and node.on_presence is None:
        node.data[key] = value
    else:
        if node.access is not None:
            node.lookup(key)
        node.install(key, value)
    if key in node.deadlines_ms and (not keeps_deadline or node.is_expired(key)):
        node.set_deadline(key, None)
    node.modified(key)


@command("set", -3, "write denyoom", (1, 1, 1))
def set_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]."""
    if len(argv) == 3:
        put_string(node, argv[1], argv[2])
        return OK
    if len(argv) == 5 and argv[3] == b"EX" and _put_for_seconds(node, argv[1], argv[2], argv[4]):
        return OK
    if node.version.is_valkey and len(argv) > 4 and any(option(word) == b"IFEQ" for word in argv[3:]):
        return _set_if_equal(node, argv)
    options = parse_string_options(argv, 3, of_set=True)
    if options.nx and options.get and not node.version.has((7, 0)):
        raise ErrorReply(SYNTAX_ERROR)
    return _set(node, b"set", argv[1], argv[2], options)


def _set_if_equal(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SET with IFEQ, which Valkey 8.1 has: set the key if it holds the text that is given."""
    at = next(at for at, word in enumerate(argv) if at > 2 and option(word) == b"IFEQ")
    options = parse_string_options([*argv[:at], *argv[at + 2 :]], 3, of_set=True)
    if at + 1 == len(argv) or options.nx or options.xx:
        raise ErrorReply(SYNTAX_ERROR)
    old = node.lookup_as(argv[1], bytes)
    if old is None or old != argv[at + 1]:
        return old if options.get else None
    return _set(node, b"set", argv[1], argv[2], options)


def _put_for_seconds(node: NodeState, key: bytes, value: bytes, seconds: bytes) -> bool:
    """The short way of SET ... EX, which scripts take most: False if it does not apply."""
    plain = node.undo is None and node.access is None and not node.string_encodings and node.on_presence is None
    if not plain or not seconds.isdigit() or seconds[0] == 48 or len(seconds) > _SECONDS_DIGITS_MAX:
        return False
    node.data[key] = value
    node.deadlines_ms[key] = int(seconds) * 1000 + node.now_ms
    node.modified(key)
    return True


def _set(node: NodeState, name: bytes, key: bytes, value: bytes, options: ExpireOptions) -> Reply:
    deadline_ms = None if options.unit is None else deadline_of(node, name, options)
    old: Reply = None
    if options.get:
        old = node.lookup_as(key, bytes)
    if (options.nx or options.xx) and (node.lookup(key) is None) is options.xx:
        return old
    put_string(node, key, value, options.keepttl)
    if deadline_ms is not None:
        node.set_deadline(key, deadline_ms)
    return old if options.get else OK


@command("setex", 4, "write denyoom", (1, 1, 1))
def setex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SETEX key seconds value."""
    return _set(node, b"setex", argv[1], argv[3], ExpireOptions(b"EX", argv[2]))


@command("psetex", 4, "write denyoom", (1, 1, 1))
def psetex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PSETEX key milliseconds value."""
    return _set(node, b"psetex", argv[1], argv[3], ExpireOptions(b"PX", argv[2]))


@command("setnx", 3, "write denyoom fast", (1, 1, 1))
def setnx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SETNX key value."""
    if node.lookup(argv[1]) is not None:
        return 0
    put_string(node, argv[1], argv[2])
    return 1


@command("getset", 3, "write denyoom fast", (1, 1, 1))
def getset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETSET key value."""
    old = node.lookup_as(argv[1], bytes)
    put_string(node, argv[1], argv[2])
    return old


@command("getdel", 2, "write fast", (1, 1, 1))
def getdel(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETDEL key."""
    old = node.lookup_as(argv[1], bytes)
    if old is not None:
        node.remove(argv[1])
        node.modified(argv[1])
    return old


@command("getex", -2, "write fast", (1, 1, 1))
def getex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]."""
    key = argv[1]
    options = parse_string_options(argv, 2, of_set=False) if len(argv) > 2 else _NO_OPTIONS
    value = node.lookup_as(key, bytes)
    if value is None:
        return None
    if options.unit is not None:
        deadline_ms = deadline_of(node, b"getex", options)
        if options.unit in (b"EXAT", b"PXAT") and has_passed(node, deadline_ms):
            node.remove(key)
        else:
            node.set_deadline(key, deadline_ms)
        node.modified(key)
    elif options.persist and key in node.deadlines_ms:
        node.set_deadline(key, None)
        node.modified(key)
    return value


@command("mget", -2, "readonly fast", (1, -1, 1))
def mget(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MGET key [key ...]. A key of another type counts as missing."""
    values = map(node.lookup, argv[1:])
    return [value if type(value) is bytes else None for value in values]


def _check_pairs(argv: Sequence[bytes], name: bytes) -> None:
    if len(argv) % 2 == 0:
        raise ErrorReply(b"ERR wrong number of arguments for '%b' command" % name)


@command("mset", -3, "write denyoom", (1, -1, 2))
def mset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MSET key value [key value ...]."""
    _check_pairs(argv, b"mset")
    for at in range(1, len(argv), 2):
        put_string(node, argv[at], argv[at + 1])
    return OK


@command("msetnx", -3, "write denyoom", (1, -1, 2))
def msetnx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MSETNX key value [key value ...]: all or none."""
    _check_pairs(argv, b"msetnx")
    if any(node.lookup(key) is not None for key in argv[1::2]):
        return 0
    for at in range(1, len(argv), 2):
        put_string(node, argv[at], argv[at + 1])
    return 1


# -- parts of a string -------------------------------------------------------------------------------------


def check_length(node: NodeState, length: int) -> None:
    """Refuse a string longer than ``proto-max-bulk-len``; the stream of a master is obeyed."""
    if length > node.config.proto_max_bulk_len and not node.caller.is_master:
        raise ErrorReply(TOO_LONG)


@command("strlen", 2, "readonly fast", (1, 1, 1))
def strlen(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """STRLEN key."""
    return len(node.lookup_as(argv[1], bytes) or b"")


@command("append", 3, "write denyoom fast", (1, 1, 1))
def append(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """APPEND key value."""
    key = argv[1]
    old = node.lookup_as(key, bytes)
    if old is None:
        node.install(key, argv[2])
        node.modified(key)
        return len(argv[2])
    check_length(node, len(old) + len(argv[2]))
    new = old + argv[2]
    put_raw(node, key, new)
    return len(new)


def put_raw(node: NodeState, key: bytes, value: bytes) -> None:
    """Put an edited string in place; the server leaves it in the raw encoding."""
    if node.undo is not None:
        node.grow(len(value))  # the journal keeps the old one
    node.install(key, value)
    node.set_string_encoding(key, b"raw")
    node.modified(key)


@command("getrange", 4, "readonly", (1, 1, 1))
def getrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETRANGE key start end."""
    start, end = integer(argv[2]), integer(argv[3])
    value = node.lookup_as(argv[1], bytes)
    if value is None or (start < 0 and end < 0 and start > end):
        return b""
    length = len(value)
    start = max(0, start + length if start < 0 else start)
    end = max(0, end + length if end < 0 else end)
    return value[start : end + 1]


@command("substr", 4, "readonly", (1, 1, 1))
def substr(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUBSTR key start end: the old name of GETRANGE."""
    return getrange(node, argv)


@command("setrange", 4, "write denyoom", (1, 1, 1))
def setrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SETRANGE key offset value."""
    key, value = argv[1], argv[3]
    offset = integer(argv[2])
    if offset < 0:
        raise ErrorReply(b"ERR offset is out of range")
    old = node.lookup_as(key, bytes) or b""
    if not value:
        return len(old)
    check_length(node, offset + len(value))
    node.grow(offset + len(value) - len(old))
    new = b"%b%b%b" % (old[:offset].ljust(offset, b"\0"), value, old[offset + len(value) :])
    put_raw(node, key, new)
    return len(new)


def _add(node: NodeState, key: bytes, amount: int) -> int:
    old = node.lookup_as(key, bytes)
    value = 0 if old is None else parse_integer(old)
    if value is None:
        raise ErrorReply(NOT_AN_INTEGER)
    value += amount
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ErrorReply(b"ERR increment or decrement would overflow")
    node.install(key, b"%d" % value)
    node.modified(key)
    return value


@command("incr", 2, "write denyoom fast", (1, 1, 1))
def incr(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCR key."""
    return _add(node, argv[1], 1)


@command("decr", 2, "write denyoom fast", (1, 1, 1))
def decr(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DECR key."""
    return _add(node, argv[1], -1)


@command("incrby", 3, "write denyoom fast", (1, 1, 1))
def incrby(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCRBY key increment."""
    return _add(node, argv[1], integer(argv[2]))


@command("decrby", 3, "write denyoom fast", (1, 1, 1))
def decrby(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DECRBY key decrement."""
    amount = integer(argv[2])
    if amount == INTEGER_MIN and node.version.has((7, 0)):
        raise ErrorReply(b"ERR decrement would overflow")
    return _add(node, argv[1], -amount)


@command("incrbyfloat", 3, "write denyoom fast", (1, 1, 1))
def incrbyfloat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCRBYFLOAT key increment, in 80-bit long doubles as a server on x86-64 computes."""
    key = argv[1]
    old = node.lookup_as(key, bytes)
    value: LongDouble | None = parse_long_double(b"0" if old is None else old)
    amount = parse_long_double(argv[2])
    if value is None or amount is None:
        raise ErrorReply(NOT_A_FLOAT)
    total = add_long_doubles(value, amount)
    if total is None:
        raise ErrorReply(b"ERR increment would produce NaN or Infinity")
    assert not isinstance(total, float)
    text = long_double_text(total)
    node.install(key, text)
    if parse_integer(text) is not None:
        node.set_string_encoding(key, b"embstr")  # the server does not look for an integer here
    node.modified(key)
    return text


_CELL_BYTES: Final = 4
_CELLS_BEFORE_COUNTED: Final = 1 << 20


def _table(one: bytes, other: bytes) -> list[list[int]]:
    """Lengths of common subsequences: row i, column j is that of the first i bytes of ``one`` and the first j of
    ``other``."""
    rows = [[0] * (len(other) + 1)]
    for byte in one:
        above, row = rows[-1], [0]
        for at, facing in enumerate(other):
            row.append(above[at] + 1 if byte == facing else max(above[at + 1], row[at]))
        rows.append(row)
    return rows


Match = tuple[int, int, int]
"""A run of bytes that both have: where it begins in the one string, where in the other, and its length."""


def _walk_back(one: bytes, other: bytes, table: list[list[int]]) -> tuple[bytes, list[Match]]:
    """The subsequence, and its contiguous matches from the last to the first."""
    result = bytearray()
    matches: list[Match] = []
    i, j, length = len(one), len(other), 0
    while i > 0 and j > 0:
        if one[i - 1] == other[j - 1]:
            result.append(one[i - 1])
            i, j, length = i - 1, j - 1, length + 1
            continue
        if length:
            matches.append((i, j, length))
            length = 0
        if table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    if length:
        matches.append((i, j, length))
    return bytes(reversed(result)), matches


@command("lcs", -3, "readonly", (1, 2, 1))
def lcs(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]."""
    values = [node.lookup(key) for key in argv[1:3]]
    if any(value is not None and not isinstance(value, bytes) for value in values):
        raise ErrorReply(b"ERR The specified keys must contain string values")
    one, other = (value if isinstance(value, bytes) else b"" for value in values)
    given: set[bytes] = set()
    shortest, at = 0, 3
    while at < len(argv):
        word = option(argv[at])
        if word == b"MINMATCHLEN" and at + 1 < len(argv):
            at += 1
            shortest = max(0, integer(argv[at]))
        elif word in (b"LEN", b"IDX", b"WITHMATCHLEN"):
            given.add(word)
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    if {b"LEN", b"IDX"} <= given:
        raise ErrorReply(b"ERR If you want both the length and indexes, please just use IDX.")
    cells = (len(one) + 1) * (len(other) + 1)
    if cells * _CELL_BYTES > node.config.proto_max_bulk_len:
        raise ErrorReply(b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
    if cells > _CELLS_BEFORE_COUNTED:
        node.grow(64 * cells)  # a table is slow and large here: a script that asks for many is stopped
    table = _table(one, other)
    if b"LEN" in given:
        return table[-1][-1]
    result, matches = _walk_back(one, other, table)
    if b"IDX" not in given:
        return result
    ranges: list[Reply] = []
    for i, j, length in matches:
        if length >= shortest:
            ends: list[Reply] = [[i, i + length - 1], [j, j + length - 1]]
            ranges.append([*ends, length] if b"WITHMATCHLEN" in given else ends)
    return mapping(node.resp, [b"matches", ranges, b"len", table[-1][-1]])
