"""MessagePack in arguments and replies: what ``cmsgpack`` of a script reads and writes, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orderlab.sim.redis.lua.msgpack import MsgpackError, MsgpackReader, pack_double, pack_integer

_ARRAY, _MAP, _NIL = object(), object(), object()


def dump_msgpack(value: Any) -> bytes:
    """``value`` as MessagePack, in the shortest form; text and bytes are strings, as scripts know one kind alone.

    >>> dump_msgpack({"a": [b"x", 1, 2.5, None, True]})
    b'\\x81\\xa1a\\x95\\xa1x\\x01\\xca@ \\x00\\x00\\xc0\\xc3'
    """
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) <= 2**53):
        return _integer(int(value))
    if isinstance(value, float):
        return pack_double(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return _head(len(value), (0xA0, 31), ((1, 0xD9), (2, 0xDA), (4, 0xDB))) + value
    if isinstance(value, dict):
        members = (dump_msgpack(str(name)) + dump_msgpack(member) for name, member in value.items())
        return _head(len(value), (0x80, 15), ((2, 0xDE), (4, 0xDF))) + b"".join(members)
    if isinstance(value, (list, tuple)):
        return _head(len(value), (0x90, 15), ((2, 0xDC), (4, 0xDD))) + b"".join(map(dump_msgpack, value))
    raise TypeError(f"{type(value).__name__} has no MessagePack form")


def load_msgpack(data: bytes) -> Any:
    """The first value of ``data``; strings are bytes. Raises ValueError when ``data`` is no MessagePack."""
    try:
        count, _, flat = MsgpackReader(_ARRAY, _MAP, _NIL).read(data, 1, 0)
    except MsgpackError as error:
        raise ValueError(error.args[0]) from None
    if not count:
        raise ValueError("no value")
    items = iter(flat[2:])
    return _folded(next(items), items)


def _folded(item: Any, items: Iterator[Any]) -> Any:
    """The value that begins with ``item`` in the reader's flat list."""
    if item is _NIL:
        return None
    if item is _ARRAY:
        return [_folded(next(items), items) for _ in range(next(items))]
    if item is _MAP:
        pairs = [(_folded(next(items), items), _folded(next(items), items)) for _ in range(next(items))]
        return {_name(name): member for name, member in pairs}
    return item


def _name(key: Any) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)


def _head(length: int, short: tuple[int, int], longer: tuple[tuple[int, int], ...]) -> bytes:
    """The first bytes of what has a length: in one byte, or a tag and as few bytes as hold it."""
    first, most = short
    if length <= most:
        return bytes([first | length])
    size, tag = next(one for one in longer if length < 1 << (8 * one[0]))
    return bytes([tag]) + length.to_bytes(size, "big")


def _integer(value: int) -> bytes:
    if -32 <= value < 128:
        return (value & 255).to_bytes(1, "big")
    tags = ((1, 0xCC), (2, 0xCD), (4, 0xCE)) if value > 0 else ((1, 0xD0), (2, 0xD1), (4, 0xD2))
    for size, tag in tags:
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size):  # above 0 in the unsigned forms
            return bytes([tag]) + (value & (1 << 8 * size) - 1).to_bytes(size, "big")
    return (b"\xcf" if value > 0 else b"\xd3") + pack_integer(value)
