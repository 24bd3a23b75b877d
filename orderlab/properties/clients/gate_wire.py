"""Commands and replies as they are on the wire: what is one step, what blocks, how many replies have come.

See ``gate``: an exported test is the text of both.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any

BLOCKING = frozenset(
    (
        "BLPOP",
        "BRPOP",
        "BRPOPLPUSH",
        "BLMOVE",
        "BLMPOP",
        "BZPOPMIN",
        "BZPOPMAX",
        "BZMPOP",
        "XREAD",
        "XREADGROUP",
        "WAIT",
    )
)
"""Commands whose reply may not come before another client's step."""


def has_end(command: Sequence[bytes]) -> bool:
    """Whether a command that blocks does so for a time."""
    words = [word.upper() for word in command]
    at = 1 if words[0] in (b"BLMPOP", b"BZMPOP") else words.index(b"BLOCK") + 1 if b"BLOCK" in words else -1
    return float(words[at]) > 0


def encoded(connection: Any, arguments: Sequence[Any]) -> tuple[bytes, ...]:
    """The arguments of one command as they would be sent."""
    name = arguments[0]
    encode = connection.encoder.encode
    if isinstance(name, str):
        head = tuple(name.encode().split()) if " " in name else (name.encode(),)
    else:
        head = tuple(bytes(name).split()) if b" " in name else (bytes(name),)
    return head + tuple([encode(each) for each in arguments[1:]])


def parts(commands: Sequence[tuple[bytes, ...]]) -> Iterator[Sequence[tuple[bytes, ...]]]:
    """What is one step: a command, or a whole MULTI with its EXEC."""
    at = 0
    while at < len(commands):
        end = at + 1
        if commands[at][0].upper() == b"MULTI":
            while end < len(commands) and commands[end - 1][0].upper() not in (b"EXEC", b"DISCARD"):
                end += 1
        yield commands[at:end]
        at = end


def has_replies(sock: Any, wanted: int) -> bool:
    """Whether so many whole replies can be read from a socket; nothing is taken."""
    try:
        if not select.select([sock], [], [], 0)[0]:
            return False
        data = sock.recv(1 << 20, socket.MSG_PEEK)
    except (OSError, ValueError):  # it is closed
        return True
    return not data or len(data) == 1 << 20 or whole_replies(data) >= wanted


def whole_replies(data: bytes) -> int:
    """How many whole replies there are at the beginning of some bytes."""
    at = count = 0
    left = 1  # values that the reply which has begun lacks
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return count
        kind, size = data[at : at + 1], data[at + 1 : end]
        at = end + 2
        if kind in b"$=!" and int(size) >= 0:
            at += int(size) + 2
        elif kind in b"*~>%|" and int(size) > 0:
            left += int(size) * (2 if kind in b"%|" else 1) + (1 if kind == b"|" else 0)
        if at > len(data):
            return count
        left -= 1
        if not left:
            count, left = count + 1, 1
