"""Replies of the kernel as a server writes them, in RESP2 and RESP3.

RESP2 has two kinds of nothing, of a string and of an array, and the kernel one, None: which of them a command sends is
said here, by its name (`null_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from orderlab.sim.redis.numbers import double_text, parse_integer
from orderlab.sim.redis.replies import (
    BigNumber,
    ErrorReply,
    RepeatedKeys,
    RepeatedMembers,
    Reply,
    Status,
    Verbatim,
    decimals,
)

NULL_BULK: Final = b"$-1\r\n"
NULL_ARRAY: Final = b"*-1\r\n"
NULL: Final = b"_\r\n"
_ARRAYS: Final = frozenset(
    b"exec blpop brpop blmpop bzpopmin bzpopmax bzmpop lmpop zmpop xread xreadgroup xrange xrevrange".split()
)
"""Commands that reply with the nothing of an array."""
_WITH_COUNT: Final = frozenset((b"lpop", b"rpop"))
"""The same if they were given a count."""
_BLOCKING_MOVES: Final = frozenset((b"blmove", b"brpoplpush"))
"""The same if they have waited in vain; where nothing may wait, it is that of a string."""
_WITHIN: Final = frozenset((b"geopos", b"xreadgroup"))
"""Commands whose replies hold no nothing but that of arrays: places that are not there, entries that were deleted."""


def null_of(argv: Sequence[bytes], has_waited: bool = False) -> bytes:
    """What None means under RESP2 as the reply to ``argv``."""
    name = argv[0].lower()
    if name in _ARRAYS or (name in _WITH_COUNT and len(argv) == 3) or (has_waited and name in _BLOCKING_MOVES):
        return NULL_ARRAY
    return NULL_BULK


def _of_bytes(value: bytes, resp: int) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def _of_status(value: bytes, resp: int) -> bytes:
    return b"+%b\r\n" % value


def _of_int(value: int, resp: int) -> bytes:
    return b":%d\r\n" % value


def _of_none(value: None, resp: int) -> bytes:
    return NULL if resp == 3 else NULL_BULK


def _of_error(value: ErrorReply, resp: int) -> bytes:
    return b"-%b\r\n" % value.message.replace(b"\r", b" ").replace(b"\n", b" ")


def _of_bool(value: bool, resp: int) -> bytes:
    if resp == 3:
        return b"#t\r\n" if value else b"#f\r\n"
    return b":1\r\n" if value else b":0\r\n"


def _of_float(value: float, resp: int) -> bytes:
    text = double_text(value) if value == value else (b"-nan" if math.copysign(1.0, value) < 0 else b"nan")
    return b",%b\r\n" % text if resp == 3 else _of_bytes(text, resp)


def _of_verbatim(value: Verbatim, resp: int) -> bytes:
    return b"=%d\r\n%b:%b\r\n" % (len(value) + 4, value.format, value) if resp == 3 else _of_bytes(value, resp)


def _of_big_number(value: bytes, resp: int) -> bytes:
    return b"(%b\r\n" % value if resp == 3 else _of_bytes(value, resp)


def _shape_of_list(value: Sequence[Reply], resp: int) -> tuple[bytes, Sequence[Reply]]:
    return b"*%d\r\n" % len(value), value


def _shape_of_dict(value: dict[Reply, Reply], resp: int) -> tuple[bytes, Sequence[Reply]]:
    flat = [part for pair in value.items() for part in pair]
    return b"%%%d\r\n" % len(value) if resp == 3 else b"*%d\r\n" % len(flat), flat


def _shape_of_pairs(value: RepeatedKeys, resp: int) -> tuple[bytes, Sequence[Reply]]:
    return b"%%%d\r\n" % (len(value) // 2) if resp == 3 else b"*%d\r\n" % len(value), value


def _shape_of_set(value: set[Reply], resp: int) -> tuple[bytes, Sequence[Reply]]:
    """In order, lest it depend on the seed of a process's hashes: of numbers that of a small set of integers."""
    if all(type(member) is bytes and parse_integer(member) is not None for member in value):
        members = sorted(value, key=int)
    else:
        members = sorted(value, key=lambda member: (str(type(member)), repr(member)))
    return b"~%d\r\n" % len(value) if resp == 3 else b"*%d\r\n" % len(value), members


def _shape_of_members(value: RepeatedMembers, resp: int) -> tuple[bytes, Sequence[Reply]]:
    return b"~%d\r\n" % len(value) if resp == 3 else b"*%d\r\n" % len(value), value


_SHAPES: dict[type, Callable[..., tuple[bytes, Sequence[Reply]]]] = {
    list: _shape_of_list,
    tuple: _shape_of_list,
    dict: _shape_of_dict,
    set: _shape_of_set,
    frozenset: _shape_of_set,
    RepeatedKeys: _shape_of_pairs,
    RepeatedMembers: _shape_of_members,
}
"""What a reply of several is sent as: its head, and what follows it."""


def _of_items(head: bytes, items: Sequence[Reply], resp: int) -> bytes:
    parts = [head]
    for item in items:
        write = _WRITERS.get(type(item))
        parts.append(write(item, resp) if write is not None else encode(item, resp))
    return b"".join(parts)


def _of_several(value: Reply, resp: int) -> bytes:
    return _of_items(*_SHAPES[type(value)](value, resp), resp)


def _of_nested(reply: Reply, resp: int) -> bytes:
    """A reply nested deeper than Python's stack goes: a script that returns a table within itself makes one of some
    thousand levels."""
    parts: list[bytes] = []
    levels = [iter((reply,))]
    while levels:
        item = next(levels[-1], _NO_MORE)
        shape = _SHAPES.get(type(item))
        if item is _NO_MORE:
            levels.pop()
        elif shape is None:
            parts.append(encode(item, resp))
        else:
            head, items = shape(item, resp)
            parts.append(head)
            levels.append(iter(items))
    return b"".join(parts)


_NO_MORE: Final = object()
_WRITERS: dict[type, Callable[..., bytes]] = {
    bytes: _of_bytes,
    int: _of_int,
    type(None): _of_none,
    Status: _of_status,
    ErrorReply: _of_error,
    bool: _of_bool,
    float: _of_float,
    Verbatim: _of_verbatim,
    BigNumber: _of_big_number,
    **dict.fromkeys(_SHAPES, _of_several),
}


def encode(reply: Reply, resp: int, null: bytes = NULL_BULK) -> bytes:
    """A reply as it is sent. ``null``: what None means under RESP2."""
    if reply is None:
        return NULL if resp == 3 else null
    write = _WRITERS.get(type(reply))
    if write is None:
        raise TypeError(f"a reply of a type that no protocol has: {type(reply).__name__}")
    try:
        return write(reply, resp)
    except RecursionError:
        return _of_nested(reply, resp)


def encode_push(items: Sequence[Reply], resp: int) -> bytes:
    """What a server sends of its own accord."""
    return _of_items((b">%d\r\n" if resp == 3 else b"*%d\r\n") % len(items), items, resp)


def encode_transaction(
    replies: Sequence[Reply], queue: Sequence[Sequence[bytes]], resp: int, last: int | None = None
) -> bytes:
    """The reply of EXEC to the commands that were queued; it breaks off after that of place ``last``. ``resp`` is what
    the client spoke before: HELLO changes it on the way."""
    items = []
    for reply, argv in zip(replies, queue, strict=True):
        if len(argv) > 1 and argv[0].lower() == b"hello" and not isinstance(reply, ErrorReply):
            resp = int(argv[1])
        items.append(encode_reply(reply, argv, resp))
    if last is not None:
        del items[last + 1 :]
    return b"".join((b"*%d\r\n" % len(replies), *items))


def encode_reply(reply: Reply, argv: Sequence[bytes], resp: int, has_waited: bool = False) -> bytes:
    """The reply of one command."""
    if resp == 3:
        if type(reply) is list and argv[0][:3].lower() == b"geo":
            return _with_decimals(reply)
        return encode(reply, 3)
    if reply is None:
        return null_of(argv, has_waited)
    if type(reply) is list:
        name = argv[0].lower()
        if name in _WITHIN:
            return _with_null_arrays(reply)
        if name == b"xpending" and len(argv) == 3 and reply[-1] is None:
            return b"*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n"
    return encode(reply, 2)


def _with_decimals(reply: Reply) -> bytes:
    """Doubles as commands about places send them."""
    if type(reply) is list:
        return b"".join((b"*%d\r\n" % len(reply), *map(_with_decimals, reply)))
    return b",%b\r\n" % decimals(reply) if type(reply) is float else encode(reply, 3)


def _with_null_arrays(reply: Reply) -> bytes:
    if type(reply) is list:
        return b"".join((b"*%d\r\n" % len(reply), *map(_with_null_arrays, reply)))
    return NULL_ARRAY if reply is None else encode(reply, 2)
