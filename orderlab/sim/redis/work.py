"""What a command does beyond a handful of look-ups, counted before it is done: the same on every machine, whatever its
speed.

One unit is about 50 ns of the kernel on a machine of 2025. A command that is not in ``COSTS`` takes time that grows
with its arguments and its reply alone, which ``LuaEngine`` counts. The figures were measured on values of 100,000
elements and err on the high side by a factor of two at most; none is a claim about a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import COMMANDS, SPELLINGS, Command, Handler
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.values import Hash, Set, SortedSet, Stream
from orderlab.sim.redis.values.stream import FIRST_ID

Cost = Callable[["NodeState", Sequence[bytes]], int]

_LONG: Final = 4000
_COUNT_MAX: Final = 1 << 62
_ELEMENT: Final = 10
_HOLES_PER_ENTRY: Final = 128
_ORDERED: Final = 120
"""Units an element of what is put into order."""
_COMPARED: Final = 32
"""Characters that a glob compares in one unit."""


def _size(node: NodeState, key: bytes) -> int:
    """Elements, or bytes, of the value at ``key``, lapsed or not."""
    value = node.data.get(key)
    return 0 if value is None else len(value)


def _walk(units: float) -> Cost:
    """A walk through the whole value of the first key."""

    def cost(node: NodeState, argv: Sequence[bytes]) -> int:
        return int(_size(node, argv[1]) * units)

    return cost


def _all_keys(units: float) -> Cost:
    """Every argument could be a key: what is none has no size."""

    def cost(node: NodeState, argv: Sequence[bytes]) -> int:
        data = node.data
        return int(units * sum(len(data[key]) for key in argv[1:] if key in data))

    return cost


def _database(node: NodeState, argv: Sequence[bytes]) -> int:
    return len(node.data) * _ORDERED


def _all_databases(node: NodeState, argv: Sequence[bytes]) -> int:
    return sum(len(database.data) for database in node.databases().values()) * _ORDERED


def _glob(pattern: bytes, names: Iterable[bytes]) -> int:
    """A pattern held against each name: with ``*`` in it, at every place of a name in the worst case."""
    return len(pattern) * sum(map(len, names)) // _COMPARED if b"*" in pattern else 0


def _matched(argv: Sequence[bytes]) -> bytes:
    """The pattern behind the word MATCH."""
    return next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word.upper() == b"MATCH"), b"")


def _matching(node: NodeState, argv: Sequence[bytes]) -> int:
    return len(node.data) * (_ORDERED + len(argv[1])) + _glob(argv[1], node.data)


def _scanned_keys(node: NodeState, argv: Sequence[bytes]) -> int:
    return _database(node, argv) + _glob(_matched(argv), node.data)


def _scanned_members(node: NodeState, argv: Sequence[bytes]) -> int:
    value = node.data.get(argv[1])
    names: Iterable[bytes] = ()
    if isinstance(value, Hash):
        names = value.fields
    elif isinstance(value, Set):
        names = value.members
    elif isinstance(value, SortedSet):
        names = value.scores
    return 20 * _size(node, argv[1]) + _glob(_matched(argv), names)


def _sort(node: NodeState, argv: Sequence[bytes]) -> int:
    patterns = sum(1 for word in argv[2:] if word.upper() in (b"BY", b"GET"))
    return _size(node, argv[1]) * _ORDERED * (1 + patterns)


def _lcs(node: NodeState, argv: Sequence[bytes]) -> int:
    first, second = (node.data.get(key) for key in argv[1:3])
    return 8 * len(first) * len(second) if isinstance(first, bytes) and isinstance(second, bytes) else 0


def _counted(each: int) -> Cost:
    """As many elements as the second argument says, and not more than there are, unless it is negative."""

    def cost(node: NodeState, argv: Sequence[bytes]) -> int:
        size = _size(node, argv[1])
        if len(argv) < 3:
            return size // 16
        try:
            count = int(argv[2])
        except ValueError:
            return 0
        if abs(count) >= _COUNT_MAX:  # an error
            return 0
        if not size:
            return 0
        return size // 16 + each * (min(count, size) if count >= 0 else -count)

    return cost


def _facts(node: NodeState, argv: Sequence[bytes]) -> int:
    """INFO: deadlines, and the memory of all keys."""
    return sum(2 * len(database.deadlines_ms) + 20 * len(database.data) for database in node.databases().values())


def _usage(node: NodeState, argv: Sequence[bytes]) -> int:
    return _size(node, argv[2]) * _ELEMENT


def _count(argv: Sequence[bytes], default: int) -> int:
    """The number behind the word COUNT."""
    for at, word in enumerate(argv[:-1]):
        if word.upper() == b"COUNT" and argv[at + 1].isdigit():
            return int(argv[at + 1][:9])
    return default


def _holes(node: NodeState, argv: Sequence[bytes]) -> int:
    """Deleted entries keep their places until their node goes: of every stream that an argument could name, those
    before and between what is read."""
    data, holes = node.data, 0
    for key in argv[1:]:
        value = data.get(key)
        if isinstance(value, Stream) and value.max_deleted_id != FIRST_ID:
            holes += len(value.nodes) // 8 + sum(len(block.gone) for block in value.nodes if block.gone)
    return min(holes, _HOLES_PER_ENTRY * (_count(argv, holes) + 1)) if holes else 0


def _pending(node: NodeState, argv: Sequence[bytes]) -> int:
    """XPENDING with IDLE and XAUTOCLAIM look at what is pending whether it is told or not; XINFO FULL, and a summary,
    at all consumers."""
    value = node.data.get(argv[1]) or node.data.get(argv[min(2, len(argv) - 1)])
    if not isinstance(value, Stream):
        return 0
    seen = sum(len(group.pending) for group in value.groups.values())
    if argv[0].lower() == b"xautoclaim":
        return min(seen, 10 * _count(argv, 100))
    if argv[0].lower() == b"xpending" and len(argv) > 3 and argv[3].upper() != b"IDLE":
        return 0
    return 2 * seen + _holes(node, argv)


def _long_double(node: NodeState, argv: Sequence[bytes]) -> int:
    """Exact arithmetic with as many digits as the exponent says, and with those of the value that is there."""
    digits = 0
    for text in (*argv[1:], node.data.get(argv[1])):
        if isinstance(text, bytes) and len(text) < 6000:
            mantissa, is_scaled, exponent = text.lower().partition(b"e")
            exponent = exponent.lstrip(b"+-")
            digits = max(
                digits, len(mantissa), min(int(exponent[:9]), 30_000) if is_scaled and exponent[:9].isdigit() else 0
            )
    return 0 if digits < 40 else 10 * digits + digits * digits // 1000


COSTS: dict[bytes, Cost] = {
    **dict.fromkeys((b"sort", b"sort_ro"), _sort),
    b"keys": _matching,
    b"scan": _scanned_keys,
    **dict.fromkeys((b"hscan", b"sscan", b"zscan"), _scanned_members),
    **dict.fromkeys((b"randomkey", b"flushdb"), _database),
    **dict.fromkeys((b"flushall", b"swapdb"), _all_databases),
    **dict.fromkeys(
        (b"sunion", b"sinter", b"sdiff", b"sintercard", b"sunionstore", b"sinterstore", b"sdiffstore"), _all_keys(80)
    ),
    **dict.fromkeys(
        (b"zunion", b"zinter", b"zdiff", b"zintercard", b"zunionstore", b"zinterstore", b"zdiffstore"), _all_keys(80)
    ),
    **dict.fromkeys((b"hgetall", b"hvals", b"hkeys", b"smembers"), _walk(20)),
    **dict.fromkeys((b"hrandfield", b"srandmember", b"zrandmember", b"spop"), _counted(80)),
    **dict.fromkeys((b"zrangestore",), lambda node, argv: 20 * _size(node, argv[2])),
    **dict.fromkeys((b"linsert", b"lrem", b"lpos", b"ltrim"), _walk(1 / 4)),
    **dict.fromkeys((b"bitpos", b"bitcount", b"bitop"), _all_keys(1 / 4)),
    **dict.fromkeys((b"copy",), _walk(4)),
    b"lcs": _lcs,
    b"info": _facts,
    b"memory|usage": _usage,
    **dict.fromkeys((b"xrange", b"xrevrange", b"xread", b"xreadgroup", b"xclaim"), _holes),
    **dict.fromkeys((b"xpending", b"xautoclaim", b"xinfo|stream", b"xinfo|groups", b"xinfo|consumers"), _pending),
    **dict.fromkeys((b"incrbyfloat", b"hincrbyfloat"), _long_double),
    **dict.fromkeys(
        (b"blpop", b"brpop", b"brpoplpush", b"blmove", b"blmpop", b"bzpopmin", b"bzpopmax", b"bzmpop"), _long_double
    ),
}
MOVING = {
    **dict.fromkeys(
        (b"zadd", b"zincrby", b"zrem", b"zpopmin", b"zpopmax", b"zremrangebyrank", b"zremrangebyscore"), 80
    ),
    **dict.fromkeys(
        (b"zremrangebylex", b"sadd", b"srem", b"smove", b"append", b"setrange", b"setbit", b"bitfield"), 80
    ),
}
"""Commands that move what lies behind the place of a change, and by how many bytes or elements a unit."""


def _charged(handler: Handler, cost: Cost) -> Handler:
    def carry_out(node: NodeState, argv: Sequence[bytes]) -> Reply:
        node.spend(cost(node, argv))
        return handler(node, argv)

    return carry_out


def _charged_when_long(handler: Handler, per_unit: int) -> Handler:
    def carry_out(node: NodeState, argv: Sequence[bytes]) -> Reply:
        value = node.data.get(argv[1])
        if value is not None and len(value) > _LONG:
            node.spend(len(value) // per_unit)
        return handler(node, argv)

    return carry_out


def charge_commands() -> None:
    """Let each command of ``COSTS`` and ``MOVING`` count its work. Once, after all have been registered."""
    handlers = {name: _charged(COMMANDS[name].handler, cost) for name, cost in COSTS.items() if b"|" not in name}
    for name, cost in COSTS.items():
        container, _, subcommand = name.partition(b"|")
        if subcommand:
            table = COMMANDS[container].subcommands
            table[subcommand] = replace(table[subcommand], handler=_charged(table[subcommand].handler, cost))
    handlers |= {name: _charged_when_long(COMMANDS[name].handler, per_unit) for name, per_unit in MOVING.items()}
    for name, handler in handlers.items():
        found: Command = replace(COMMANDS[name], handler=handler)
        COMMANDS[name] = SPELLINGS[name] = SPELLINGS[name.upper()] = found
