"""Deadlines of keys: how commands read them, EXPIRE, TTL and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply

_UNITS = (b"EX", b"PX", b"EXAT", b"PXAT")


@dataclass(slots=True)
class ExpireOptions:
    """Options of SET, which stand behind the value, or of GETEX, behind the key."""

    unit: bytes | None = None
    """EX, PX, EXAT or PXAT."""
    amount: bytes = b""
    nx: bool = False
    xx: bool = False
    get: bool = False
    keepttl: bool = False
    persist: bool = False


def parse_string_options(argv: Sequence[bytes], start: int, of_set: bool) -> ExpireOptions:
    """The options from ``argv[start]`` on; those of SET or those of GETEX. Raises a syntax error."""
    options = ExpireOptions()
    at = start
    while at < len(argv):
        word = option(argv[at])
        if word in _UNITS and at + 1 < len(argv):
            if options.unit not in (None, word) or options.keepttl or options.persist:
                raise ErrorReply(SYNTAX_ERROR)
            options.unit, options.amount = word, argv[at + 1]
            at += 1
        elif word == b"NX" and of_set and not options.xx:
            options.nx = True
        elif word == b"XX" and of_set and not options.nx:
            options.xx = True
        elif word == b"GET" and of_set:
            options.get = True
        elif word == b"KEEPTTL" and of_set and options.unit is None:
            options.keepttl = True
        elif word == b"PERSIST" and not of_set and options.unit is None:
            options.persist = True
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    return options


def invalid_expire_time(name: bytes) -> ErrorReply:
    """The error for a deadline that is not positive or does not fit in 64 bits."""
    return ErrorReply(b"ERR invalid expire time in '%b' command" % name)


def deadline_of(node: NodeState, name: bytes, options: ExpireOptions) -> int:
    """The absolute deadline in ms that SET or GETEX asks for (``getExpireMillisecondsOrReply``)."""
    deadline_ms = integer(options.amount)
    if deadline_ms <= 0:
        raise invalid_expire_time(name)
    if options.unit in (b"EX", b"EXAT"):
        deadline_ms *= 1000
    if options.unit in (b"EX", b"PX"):
        deadline_ms += node.now_ms
    if deadline_ms > INTEGER_MAX:
        raise invalid_expire_time(name)
    return deadline_ms


def deadline_from(name: bytes, amount: bytes, base_ms: int, in_seconds: bool) -> int:
    """The absolute deadline in ms that a command of the EXPIRE family asks for; negative ones are allowed."""
    deadline_ms = integer(amount)
    if in_seconds:
        deadline_ms *= 1000
        if not INTEGER_MIN <= deadline_ms <= INTEGER_MAX:
            raise invalid_expire_time(name)
    deadline_ms += base_ms
    if deadline_ms > INTEGER_MAX:
        raise invalid_expire_time(name)
    return deadline_ms


def has_passed(node: NodeState, deadline_ms: int) -> bool:
    """Whether a new deadline deletes the key at once (``checkAlreadyExpired``): already when it is *now*, although a
    key that waits lives until the clock shows more. A replica leaves that to its master."""
    return deadline_ms <= node.now_ms and not node.is_replica


_CONDITIONS = (b"NX", b"XX", b"GT", b"LT")


def _conditions(argv: Sequence[bytes]) -> set[bytes]:
    given = set()
    for argument in argv[3:]:
        word = option(argument)
        if word not in _CONDITIONS:
            raise ErrorReply(b"ERR Unsupported option %b" % argument.split(b"\0")[0])
        given.add(word)
    if b"NX" in given and len(given) > 1:
        raise ErrorReply(b"ERR NX and XX, GT or LT options at the same time are not compatible")
    if b"GT" in given and b"LT" in given:
        raise ErrorReply(b"ERR GT and LT options at the same time are not compatible")
    return given


def _is_refused(conditions: set[bytes], present_ms: int | None, deadline_ms: int) -> bool:
    """Whether NX, XX, GT or LT forbid the new deadline. No deadline counts as one that is infinitely far."""
    if present_ms is None:
        return b"XX" in conditions or b"GT" in conditions
    if b"NX" in conditions:
        return True
    return (b"GT" in conditions and deadline_ms <= present_ms) or (b"LT" in conditions and deadline_ms >= present_ms)


def _expire(node: NodeState, argv: Sequence[bytes], name: bytes, base_ms: int, in_seconds: bool) -> int:
    key = argv[1]
    conditions = _conditions(argv) if len(argv) > 3 else None
    deadline_ms = deadline_from(name, argv[2], base_ms, in_seconds)
    if node.lookup(key) is None:
        return 0
    if conditions and _is_refused(conditions, node.deadlines_ms.get(key), deadline_ms):
        return 0
    if has_passed(node, deadline_ms):
        node.remove(key)
    else:
        node.set_deadline(key, deadline_ms)
    node.modified(key)
    return 1


@command("expire", -3, "write fast", (1, 1, 1))
def expire(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXPIRE key seconds [NX | XX | GT | LT]."""
    return _expire(node, argv, b"expire", node.now_ms, True)


@command("pexpire", -3, "write fast", (1, 1, 1))
def pexpire(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PEXPIRE key milliseconds [NX | XX | GT | LT]."""
    return _expire(node, argv, b"pexpire", node.now_ms, False)


@command("expireat", -3, "write fast", (1, 1, 1))
def expireat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXPIREAT key unix-seconds [NX | XX | GT | LT]."""
    return _expire(node, argv, b"expireat", 0, True)


@command("pexpireat", -3, "write fast", (1, 1, 1))
def pexpireat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]."""
    return _expire(node, argv, b"pexpireat", 0, False)


@command("persist", 2, "write fast", (1, 1, 1))
def persist(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PERSIST key."""
    key = argv[1]
    if node.lookup(key) is None or key not in node.deadlines_ms:
        return 0
    node.set_deadline(key, None)
    node.modified(key)
    return 1


def _remaining(node: NodeState, key: bytes, base_ms: int, in_seconds: bool) -> int:
    """Time left: -2 without a key, -1 without a deadline; seconds are rounded to the nearest."""
    if node.peek(key) is None:
        return -2
    deadline_ms = node.deadlines_ms.get(key)
    if deadline_ms is None:
        return -1
    left_ms = max(0, deadline_ms - base_ms)
    return (left_ms + 500) // 1000 if in_seconds else left_ms


@command("ttl", 2, "readonly fast", (1, 1, 1))
def ttl(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """TTL key."""
    return _remaining(node, argv[1], node.now_ms, True)


@command("pttl", 2, "readonly fast", (1, 1, 1))
def pttl(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PTTL key."""
    return _remaining(node, argv[1], node.now_ms, False)


@command("expiretime", 2, "readonly fast", (1, 1, 1))
def expiretime(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXPIRETIME key."""
    return _remaining(node, argv[1], 0, True)


@command("pexpiretime", 2, "readonly fast", (1, 1, 1))
def pexpiretime(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PEXPIRETIME key."""
    return _remaining(node, argv[1], 0, False)
