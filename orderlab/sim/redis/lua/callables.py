"""What the Lua libraries in ``libraries`` call in Python: bytes, numbers and flat lists in, the same out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from orderlab.sim.redis.lua import bit as lua_bit
from orderlab.sim.redis.lua import msgpack as lua_msgpack
from orderlab.sim.redis.lua import struct as lua_struct
from orderlab.sim.redis.lua.json import JsonError, JsonReader, quote
from orderlab.sim.redis.lua.replies import ReplyWriter
from orderlab.sim.redis.lua.sandbox import Sandbox

TEXT_BYTES_MAX = 8 << 20
"""JSON and MessagePack that Python reads: its values take many times the memory of the text."""


def library_callables(sandbox: Sandbox, writer: ReplyWriter) -> dict[str, Callable[..., Any]]:
    """The functions by the name under which Lua knows them. ``sandbox`` is asked for its marks when they run."""

    def decode(text: bytes, depth_max: int, invalid_numbers: bool) -> tuple[Any, ...]:
        if len(text) > TEXT_BYTES_MAX:
            return False, b"not enough memory"
        marks = writer.marks
        reader = JsonReader(
            text, depth_max, invalid_numbers, marks["array"], marks["object"], sandbox.function("null")
        )
        try:
            return True, *writer.tree(reader.read())
        except JsonError as error:
            return False, str(error).encode()

    def unpack(data: bytes, limit: int, offset: int) -> tuple[Any, ...]:
        if len(data) > TEXT_BYTES_MAX:
            return False, b"not enough memory", True
        marks = writer.marks
        reader = lua_msgpack.MsgpackReader(marks["array"], marks["table"], marks["null"])
        try:
            count, at, flat = reader.read(data, limit, offset)
        except lua_msgpack.MsgpackError as error:
            return False, str(error).encode(), not error.is_placed
        return True, count, at, *writer.tree(flat)

    return {
        "more": writer.more, "sha1hex": lambda text: hashlib.sha1(text).hexdigest().encode(),
        "find": bytes.find, "bit": lua_bit.compute,
        "quote": quote, "decode": decode,
        "struct_pack": _struct(lambda text, *values: (lua_struct.pack(text, values),)),
        "struct_unpack": _struct(lua_struct.unpack),
        "struct_size": _struct(lambda text: (lua_struct.size_of(text),)),
        "pack_double": lua_msgpack.pack_double, "pack_integer": lua_msgpack.pack_integer, "msgpack_unpack": unpack,
    }  # fmt: skip


def _struct(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """True and the results, or what ``settle`` of struct.lua makes an error of."""

    def call(*arguments: Any) -> tuple[Any, ...]:
        try:
            return True, *function(*arguments)
        except lua_struct.StructError as error:
            return False, str(error).encode("latin-1")
        except lua_struct.ArgumentError as error:
            complaint = None if error.complaint is None else error.complaint.encode("latin-1")
            return False, error.number, error.expected.encode(), complaint

    return call
