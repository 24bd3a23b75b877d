"""Replies of a Redis command as Python values.

RESP2 bulk string = ``bytes``, nil = ``None``, integer = ``int``, array = ``list``, simple string = ``Status``,
error = ``ErrorReply``. RESP3 adds ``float`` (double), ``dict`` (map), ``set`` (set), ``bool`` and ``BigNumber``; a
command returns those only when the connection, or the script through ``redis.setresp(3)``, speaks RESP3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.redis.numbers import double_text

Reply = Any
"""``bytes | int | None | list[Reply] | Status | ErrorReply`` and, under RESP3, ``float | dict | set | bool``."""


class Status(bytes):
    """A simple string such as ``+OK``. Compares equal to the same bytes; told apart by its type."""

    __slots__ = ()


class BigNumber(bytes):
    """A big number of RESP3: its text as it is sent, which need not be a number at all. Only scripts and DEBUG send
    one."""

    __slots__ = ()


class Verbatim(bytes):
    """A verbatim string of RESP3, without its format, which commands leave at "txt" and scripts choose."""

    format = b"txt"

    @classmethod
    def of(cls, text: bytes, kind: bytes) -> Verbatim:
        """With a format: as a server sends it, three bytes of a C string, filled up with blanks."""
        reply = cls(text)
        reply.format = kind.split(b"\0")[0][:3].ljust(3)
        return reply


class RepeatedKeys(list[Any]):
    """A map of RESP3 in which equal keys recur, which a dict would merge: keys and values in turn."""

    __slots__ = ()


class RepeatedMembers(list[Any]):
    """A set of RESP3 in which equal members recur, which a set would merge. Python holds 1 and true for equal."""

    __slots__ = ()


class ErrorReply(Exception):
    """An error reply: raised by a command's function, and carried as a value inside arrays and out of ``execute``.

    ``message`` is the whole text as the server sends it after ``-``, error code first.
    """

    __slots__ = ("message",)

    def __init__(self, message: bytes) -> None:
        super().__init__(message)
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ErrorReply) and other.message == self.message

    def __hash__(self) -> int:
        return hash(self.message)

    def __repr__(self) -> str:
        return f"ErrorReply({self.message!r})"


class RefusedCall(ErrorReply):
    """What a call of a script is told that is not carried out. Redis 6.2 puts the line of the script before it."""


class UnhashableReply(InputError):
    """A set or a map of RESP3 with a member or key that is nested too deep for Python."""

    def __init__(self) -> None:
        super().__init__(
            f"a member of a set or key of a map in a RESP3 reply is nested deeper than {KEY_LEVELS_MAX} levels; let "
            "the script reply "
            "with arrays there"
        )


OK = Status(b"OK")
QUEUED = Status(b"QUEUED")

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX_ERROR = b"ERR syntax error"
NOT_AN_INTEGER = b"ERR value is not an integer or out of range"
NOT_A_FLOAT = b"ERR value is not a valid float"


def double(resp: int, value: float, text: Callable[[float], bytes] = double_text) -> Reply:
    """A double: as a bulk string under RESP2, as ``text`` spells it (``NodeState.double_text``)."""
    return value if resp == 3 else text(value)


def mapping(resp: int, flat: Sequence[Reply]) -> Reply:
    """Keys and values in turn: a map under RESP3, else the array as it is."""
    return map_reply(flat) if resp == 3 else flat


def map_reply(flat: Sequence[Reply]) -> Reply:
    """A map of RESP3 whose keys and values stand in turn. Raises UnhashableReply."""
    pairs = dict(zip(map(as_key, flat[::2]), flat[1::2], strict=True))
    return pairs if 2 * len(pairs) == len(flat) else RepeatedKeys(flat)


def set_reply(members: Sequence[Reply]) -> Reply:
    """A set of RESP3. Raises UnhashableReply."""
    distinct = set(map(as_key, members))
    return distinct if len(distinct) == len(members) else RepeatedMembers(members)


def set_of(resp: int, members: Iterable[bytes]) -> Reply:
    """A set under RESP3, else an array in the order given."""
    return set(members) if resp == 3 else list(members)


def scored(
    resp: int, members: Sequence[bytes], scores: Sequence[float], text: Callable[[float], bytes] = double_text
) -> Reply:
    """Members with their scores: pairs under RESP3, else one flat array."""
    if resp == 3:
        return [[member, score] for member, score in zip(members, scores, strict=True)]
    flat: list[Reply] = [None] * (2 * len(members))
    flat[::2] = members
    flat[1::2] = map(text, scores)
    return flat


KEY_LEVELS_MAX = 200
"""Levels of arrays, maps and sets within a member of a set, or within a key of a map, that Python can hash and
compare."""


def as_key(reply: Reply, levels: int = KEY_LEVELS_MAX) -> Reply:
    """A reply as a member of a set or a key of a map, where RESP3 allows any: arrays are tuples there, and maps sets of
    pairs. Raises UnhashableReply for what is nested deeper than ``levels``."""
    if not isinstance(reply, list | tuple | set | frozenset | dict):
        return reply
    if not levels:
        raise UnhashableReply
    if isinstance(reply, list | tuple):
        return tuple([as_key(item, levels - 1) for item in reply])
    if isinstance(reply, set | frozenset):
        return frozenset([as_key(item, levels - 1) for item in reply])
    return frozenset([(as_key(key, levels - 1), as_key(value, levels - 1)) for key, value in reply.items()])


def decimals(value: float) -> bytes:
    """A double with up to 17 decimals and no exponent, as commands about places spell it."""
    return (b"%.17f" % value).rstrip(b"0").rstrip(b".")
