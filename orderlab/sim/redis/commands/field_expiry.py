"""Deadlines of single fields of a hash: HEXPIRE and its kin of Redis 7.4; HGETEX, HSETEX and HGETDEL of 8.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.expiry import invalid_expire_time
from orderlab.sim.redis.commands.hashes import put_fields
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.values import ExpiringHash, Hash

_DEADLINE_MAX_MS: Final = (1 << 46) - 1
_NO_FIELD, _NO_DEADLINE = -2, -1
_REFUSED, _SET, _DELETED = 0, 1, 2
_CONDITIONS: Final = (b"NX", b"XX", b"GT", b"LT")
_UNITS: Final = (b"EX", b"PX", b"EXAT", b"PXAT")
_NOT_THERE: Final = b"ERR Mandatory argument FIELDS is missing or not at the right position"
_MISCOUNTED: Final = b"ERR The `numfields` parameter must match the number of arguments"


def _fields(argv: Sequence[bytes], at: int, bad_count: bytes, width: int = 1) -> Sequence[bytes]:
    """The words of ``FIELDS count field ...``, which begins at ``at`` and ends the line."""
    if at + 1 >= len(argv) or option(argv[at]) != b"FIELDS":
        raise ErrorReply(_NOT_THERE)
    count = integer(argv[at + 1], bad_count)
    if not 0 < count <= INTEGER_MAX:
        raise ErrorReply(bad_count)
    words = argv[at + 2 :]
    if count * width != len(words):
        raise ErrorReply(_MISCOUNTED)
    return words


_BAD_NUMBER: Final = b"ERR Parameter `numFields` should be greater than 0"
_NO_POSITIVE: Final = b"ERR Number of fields must be a positive integer"


def _deadline_ms(node: NodeState, name: bytes, amount: bytes, unit: bytes) -> int:
    """The absolute deadline of EX, PX, EXAT or PXAT."""
    value = integer(amount)
    if value < 0:
        raise ErrorReply(b"ERR invalid expire time, must be >= 0")
    deadline_ms = value * 1000 if unit.startswith(b"EX") else value
    if not unit.endswith(b"AT"):
        deadline_ms += node.now_ms
    if deadline_ms > _DEADLINE_MAX_MS:
        raise invalid_expire_time(name)
    return deadline_ms


def _as_expiring(node: NodeState, key: bytes, value: Hash) -> ExpiringHash:
    """The hash at ``key`` as one whose fields may have deadlines."""
    if isinstance(value, ExpiringHash):
        return value
    expiring = ExpiringHash.of(value)
    node.install(key, expiring)
    node.has_field_deadlines = True
    return expiring


def _drop(node: NodeState, key: bytes, value: Hash, fields: Sequence[bytes]) -> int:
    removed: int = value.remove(fields, node.undo)
    if not value.fields:
        node.remove(key)
    return removed


def _expire(node: NodeState, argv: Sequence[bytes], unit: bytes) -> Reply:
    name, key = argv[0].lower(), argv[1]
    held = node.lookup_as(key, Hash)
    deadline_ms = _deadline_ms(node, name, argv[2], unit)
    condition = option(argv[3])
    at = 4 if condition in _CONDITIONS else 3
    fields = _fields(argv, at, _BAD_NUMBER)
    if held is None:
        return [_NO_FIELD] * len(fields)
    value = _as_expiring(node, key, held)
    replies: list[Reply] = []
    changes = 0
    for field in fields:
        if field not in value.fields:
            replies.append(_NO_FIELD)
            continue
        present_ms = value.deadlines_ms.get(field)
        if at == 4 and _is_refused(condition, present_ms, deadline_ms):
            replies.append(_REFUSED)
        elif deadline_ms <= node.now_ms:
            value.remove((field,), node.undo)
            changes += 1
            replies.append(_DELETED)
        else:
            value.set_deadline(field, deadline_ms, node.undo)
            changes += 1
            replies.append(_SET)
    if not value.fields:
        node.remove(key)
    if changes:
        node.modified(key, changes)
    return replies


def _is_refused(condition: bytes, present_ms: int | None, deadline_ms: int) -> bool:
    """No deadline counts as one that is infinitely far."""
    if condition == b"NX":
        return present_ms is not None
    if present_ms is None:
        return condition != b"LT"
    return (condition == b"GT" and deadline_ms <= present_ms) or (condition == b"LT" and deadline_ms >= present_ms)


@command("hexpire", -6, "write denyoom fast", (1, 1, 1))
def hexpire(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HEXPIRE key seconds [NX | XX | GT | LT] FIELDS count field [field ...]."""
    return _expire(node, argv, b"EX")


@command("hpexpire", -6, "write denyoom fast", (1, 1, 1))
def hpexpire(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS count field [field ...]."""
    return _expire(node, argv, b"PX")


@command("hexpireat", -6, "write denyoom fast", (1, 1, 1))
def hexpireat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS count field [field ...]."""
    return _expire(node, argv, b"EXAT")


@command("hpexpireat", -6, "write denyoom fast", (1, 1, 1))
def hpexpireat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS count field [field ...]."""
    return _expire(node, argv, b"PXAT")


def _tell(node: NodeState, argv: Sequence[bytes], per_unit: int, base_ms: int) -> Reply:
    value = node.lookup_as(argv[1], Hash)
    fields = _fields(argv, 2, _NO_POSITIVE)
    if value is None:
        return [_NO_FIELD] * len(fields)
    deadlines_ms = value.deadlines_ms if isinstance(value, ExpiringHash) else {}
    replies: list[Reply] = []
    for field in fields:
        deadline_ms = deadlines_ms.get(field)
        if field not in value.fields:
            replies.append(_NO_FIELD)
        elif deadline_ms is None:
            replies.append(_NO_DEADLINE)
        else:
            replies.append((deadline_ms - base_ms + per_unit - 1) // per_unit)
    return replies


@command("httl", -5, "readonly fast", (1, 1, 1))
def httl(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HTTL key FIELDS count field [field ...]: in seconds, rounded up."""
    return _tell(node, argv, 1000, node.now_ms)


@command("hpttl", -5, "readonly fast", (1, 1, 1))
def hpttl(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HPTTL key FIELDS count field [field ...]."""
    return _tell(node, argv, 1, node.now_ms)


@command("hexpiretime", -5, "readonly fast", (1, 1, 1))
def hexpiretime(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HEXPIRETIME key FIELDS count field [field ...]."""
    return _tell(node, argv, 1000, 0)


@command("hpexpiretime", -5, "readonly fast", (1, 1, 1))
def hpexpiretime(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HPEXPIRETIME key FIELDS count field [field ...]."""
    return _tell(node, argv, 1, 0)


@command("hpersist", -5, "write fast", (1, 1, 1))
def hpersist(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HPERSIST key FIELDS count field [field ...]."""
    key = argv[1]
    value = node.lookup_as(key, Hash)
    fields = _fields(argv, 2, _NO_POSITIVE)
    if value is None:
        return [_NO_FIELD] * len(fields)
    replies: list[Reply] = []
    for field in fields:
        if field not in value.fields:
            replies.append(_NO_FIELD)
        elif isinstance(value, ExpiringHash) and field in value.deadlines_ms:
            value.set_deadline(field, None, node.undo)
            replies.append(_SET)
        else:
            replies.append(_NO_DEADLINE)
    changes = replies.count(_SET)
    if changes:
        node.modified(key, changes)
    return replies


# -- Redis 8.0 --------------------------------------------------------------------------------------------------


@command("hgetdel", -5, "write fast", (1, 1, 1))
def hgetdel(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HGETDEL key FIELDS count field [field ...]."""
    key = argv[1]
    value = node.lookup_as(key, Hash)
    fields = _fields(argv, 2, _NO_POSITIVE)
    if value is None:
        return [None] * len(fields)
    replies: list[Reply] = []
    changes = 0
    for field in fields:
        replies.append(value.fields.get(field))
        changes += value.remove((field,), node.undo)
    if not value.fields:
        node.remove(key)
    if changes:
        node.modified(key, changes)
    return replies


@command("hgetex", -5, "write fast", (1, 1, 1))
def hgetex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HGETEX key [EX seconds | PX milliseconds | EXAT time | PXAT time | PERSIST] FIELDS count field [field ...]."""
    key, word = argv[1], option(argv[2])
    held = node.lookup_as(key, Hash)
    at = 4 if word in _UNITS else 3 if word == b"PERSIST" else 2
    fields = _fields(argv, at, _NO_POSITIVE)
    deadline_ms = _deadline_ms(node, b"hgetex", argv[3], word) if at == 4 else None
    if held is None:
        return [None] * len(fields)
    replies: list[Reply] = [held.fields.get(field) for field in fields]
    if at == 2:
        return replies
    value = _as_expiring(node, key, held)
    present = [field for field in dict.fromkeys(fields) if field in value.fields]
    if deadline_ms is not None and deadline_ms <= node.now_ms:
        changes = _drop(node, key, value, present)
    else:
        changed = [field for field in present if deadline_ms is not None or field in value.deadlines_ms]
        for field in changed:
            value.set_deadline(field, deadline_ms, node.undo)
        changes = len(changed)
    if changes:
        node.modified(key, changes)
    return replies


@command("hsetex", -6, "write denyoom fast", (1, 1, 1))
def hsetex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] FIELDS count field value
    [field value ...]."""
    key = argv[1]
    held = node.lookup_as(key, Hash)
    at, condition, unit, amount = 2, b"", b"", b""
    while at < len(argv) and (word := option(argv[at])) != b"FIELDS":
        if word in (b"FNX", b"FXX"):
            if condition:
                raise ErrorReply(b"ERR Only one of FXX or FNX arguments can be specified")
            condition = word
        elif word in (*_UNITS, b"KEEPTTL"):
            if unit:
                raise ErrorReply(b"ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified")
            unit = word
            if word != b"KEEPTTL":
                at += 1
                amount = argv[at] if at < len(argv) else b""
        else:
            raise ErrorReply(b"ERR unknown argument: %b" % argv[at].split(b"\0")[0])
        at += 1
    pairs = _fields(argv, at, b"ERR invalid number of fields", width=2)
    has_deadline = unit not in (b"", b"KEEPTTL")
    deadline_ms = _deadline_ms(node, b"hsetex", amount, unit) if has_deadline else None
    present = {} if held is None else held.fields
    if condition and any((field in present) is (condition == b"FNX") for field in pairs[::2]):
        return 0
    put_fields(node, (b"hset", key, *pairs), unit == b"KEEPTTL")
    if deadline_ms is not None:
        value = _as_expiring(node, key, node.lookup_as(key, Hash))
        if deadline_ms <= node.now_ms:
            _drop(node, key, value, pairs[::2])
        else:
            for field in pairs[::2]:
                value.set_deadline(field, deadline_ms, node.undo)
    return 1
