"""Replies on their way into a script and results on their way out: the conversion rules of ``script_lua.c``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from orderlab.sim.redis.numbers import INTEGER_MIN, double_text
from orderlab.sim.redis.replies import (
    BigNumber,
    ErrorReply,
    RepeatedKeys,
    RepeatedMembers,
    Reply,
    Status,
    Verbatim,
    map_reply,
    set_reply,
)

PORTION: Final = 4000
"""Values that cross into Lua at once; the stack of a C function holds 8000."""
REPLY_BYTES_MAX: Final = 16 << 20
"""Bytes that cross into Lua at once; below the reserve of the sandbox."""
_SIMPLE = {bytes, int, type(None)}
_join = b"".join


class ReplyTooLarge(Exception):
    """A reply has more bytes than may cross into Lua at once."""


class ReplyWriter:
    """Turns replies into what ``redis.lua`` receives. ``portions`` hands out the rest of long lists."""

    def __init__(self) -> None:
        self.marks: dict[str, Any] = {}
        """The marks of containers in the flat lists of ``tree.lua``; known once Lua runs."""
        self._rest: list[Any] = []

    def tree(self, flat: list[Any]) -> tuple[Any, ...]:
        """The first portion of a flat list for ``tree.lua``; ``more`` gives the others."""
        if len(flat) <= PORTION:
            return tuple(flat)
        self._rest = flat[PORTION:]
        return tuple(flat[:PORTION])

    def more(self) -> tuple[Any, ...]:
        """The next portion."""
        portion, self._rest = self._rest[:PORTION], self._rest[PORTION:]
        return tuple(portion)

    def write(self, reply: Reply, resp: int) -> Any:
        """A reply that is neither a plain string nor an integer. Raises ReplyTooLarge."""
        kind = type(reply)
        if kind is list and not reply:
            return True
        if kind is list and resp == 2 and len(reply) <= PORTION:
            try:
                size = len(_join(reply))
            except TypeError:
                if set(map(type, reply)) <= _SIMPLE:
                    _check_size(reply)
                    return (True, *[False if item is None else item for item in reply])
            else:
                if size > REPLY_BYTES_MAX:
                    raise ReplyTooLarge
                if type(reply[0]) is bytes:  # else it is a list of statuses: lists of bytes do not mix
                    return (True, *reply)
        if reply is None:
            return False if resp == 2 else (None, b"null")
        if kind is Status:
            return None if reply == b"OK" else (None, b"status", bytes(reply))
        if kind is float:
            return None, b"double", reply
        if kind is bool:
            return None, b"boolean", reply
        if isinstance(reply, ErrorReply):
            return None, b"error", reply.message, True
        if kind is Verbatim and resp == 2:
            return bytes(reply)
        if kind is BigNumber or kind is Verbatim:
            mark = self.marks["object"]
            if kind is BigNumber:
                return None, b"tree", mark, 1, b"big_number", bytes(reply)
            return None, b"tree", mark, 1, b"verbatim_string", mark, 2, b"string", bytes(reply), b"format", b"txt"
        if isinstance(reply, bytes | int):
            return reply
        flat: list[Any] = []
        self._flatten(reply, flat, resp)
        _check_size(flat)
        return (None, b"tree", *self.tree(flat))

    def _flatten(self, reply: Reply, flat: list[Any], resp: int) -> None:
        marks = self.marks
        if reply is None:
            flat.append(False if resp == 2 else marks["null"])
        elif isinstance(reply, Status):
            flat += (marks["status"], bytes(reply))
        elif isinstance(reply, ErrorReply):
            flat += (marks["failure"], reply.message)
        elif isinstance(reply, float):
            flat += (marks["double"], reply)
        elif isinstance(reply, dict):
            flat += (marks["map"], len(reply))
            for key, value in reply.items():
                self._flatten(key, flat, resp)
                self._flatten(value, flat, resp)
        elif isinstance(reply, RepeatedKeys):
            flat += (marks["map"], len(reply) // 2)
            for item in reply:
                self._flatten(item, flat, resp)
        elif isinstance(reply, list | tuple | set | frozenset):
            is_set = isinstance(reply, set | frozenset | RepeatedMembers)
            flat += (marks["set" if is_set else "array"], len(reply))
            for item in reply:
                self._flatten(item, flat, resp)
        else:
            flat.append(reply)


def _check_size(items: list[Any]) -> None:
    if sum(len(item) for item in items if isinstance(item, bytes)) > REPLY_BYTES_MAX:
        raise ReplyTooLarge


def to_integer(number: float) -> int:
    """A C cast of a double to a 64-bit integer; what does not fit gives the smallest."""
    return int(number) if -(2.0**63) <= number < 2.0**63 else INTEGER_MIN


def without_breaks(text: bytes) -> bytes:
    """Text with blanks for its line breaks."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def one_line(text: bytes) -> bytes:
    """Text for a status or error reply: a C string without line breaks."""
    return without_breaks(text.split(b"\0")[0])


def error_line(text: bytes) -> bytes:
    """The same for errors, which lose line breaks at their end first."""
    return one_line(text.split(b"\0")[0].rstrip(b"\r\n"))


class ResultReader:
    """Builds a reply from the parts that ``run.lua`` takes a script's result apart into."""

    def __init__(self, resp: int, script_resp: int, text: Callable[[float], bytes] = double_text) -> None:
        """``text``: how doubles are spelt under RESP2."""
        self._resp = resp
        self._script_resp = script_resp
        self._double_text = text

    def scalar(self, code: bytes, value: Any) -> Reply:
        """The reply for one part that is not a container."""
        if code == b"$":
            return value
        if code == b":":
            return to_integer(value)
        if code == b"?":
            return self.boolean(value)
        if code == b"-":
            return None
        if code == b"+":
            return Status(one_line(value))
        if code == b"!":
            return ErrorReply(error_line(value))
        if code == b",":
            if self._resp == 3:
                return float(value)
            if type(value) is bytes:  # -0, or a NaN
                return value if self._double_text is double_text or b"nan" not in value else b"nan"
            return self._double_text(float(value))
        assert code == b"(", code
        text = without_breaks(value)
        return BigNumber(text) if self._resp == 3 else text

    def boolean(self, value: bool) -> Reply:
        """True is 1 and false is nil, unless the script spoke RESP3."""
        if self._script_resp < 3:
            return 1 if value else None
        if self._resp == 3:  # in one expression with the integer mypyc would make an integer of it
            return value
        return int(value)

    def tree(self, parts: Sequence[Any]) -> Reply:
        """The reply for all parts: codes and values in turn, ``]`` at the end of a container."""
        open_containers: list[tuple[bytes, list[Reply]]] = []
        at = 0
        while True:
            code, value = parts[at], parts[at + 1]
            at += 2
            if code in (b"*", b"%", b"~"):
                open_containers.append((code, []))
                continue
            if code == b"]":
                reply = self._container(*open_containers.pop())
            elif code == b"=":
                reply = Verbatim.of(parts[at + 1], value) if self._resp == 3 else parts[at + 1]
                at += 2
            else:
                reply = self.scalar(code, value)
            if not open_containers:
                return reply
            open_containers[-1][1].append(reply)

    def _container(self, code: bytes, items: list[Reply]) -> Reply:
        if self._resp == 2 or code == b"*":
            return items
        if code == b"~":
            return set_reply(items)
        return map_reply(items)
