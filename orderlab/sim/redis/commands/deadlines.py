"""How SET, GETEX and the EXPIRE family read a deadline and the options around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply

_UNITS = (b"EX", b"PX", b"EXAT", b"PXAT")


@dataclass(slots=True)
class ExpireOptions:
    """What stands behind the value of SET or the key of GETEX."""

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


def deadline_of(shard: NodeState, name: bytes, options: ExpireOptions) -> int:
    """The absolute deadline in ms that SET or GETEX asks for (``getExpireMillisecondsOrReply``)."""
    deadline_ms = integer(options.amount)
    if deadline_ms <= 0:
        raise invalid_expire_time(name)
    if options.unit in (b"EX", b"EXAT"):
        deadline_ms *= 1000
    if options.unit in (b"EX", b"PX"):
        deadline_ms += shard.now_ms
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


def has_passed(shard: NodeState, deadline_ms: int) -> bool:
    """Whether a new deadline deletes the key at once (``checkAlreadyExpired``): already when it is *now*, although a
    key that waits lives until the clock shows more. A replica leaves that to its master."""
    return deadline_ms <= shard.now_ms and not shard.is_replica
