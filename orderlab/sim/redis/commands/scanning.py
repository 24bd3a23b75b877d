"""What the commands of the SCAN family share: the cursor, the options, and the choice of a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.glob import glob
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply
from orderlab.sim.redis.values.hash_order import scan_page

_CURSOR = re.compile(rb"(?:[+-]?[0-9]+)?(?=\0|\Z)")
_CURSOR_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """MATCH, COUNT and TYPE. ``matches`` is None when every member does."""

    count: int = 10
    matches: Callable[[bytes], bool] | None = None
    type_name: bytes | None = None


def parse_cursor(argument: bytes) -> int:
    """An unsigned 64-bit cursor; like the server's strtoul it takes a sign, wraps a negative one and allows nothing."""
    digits = _CURSOR.match(argument)
    if digits is None or len(significant := digits[0].lstrip(b"+-").lstrip(b"0")) > 20:
        raise ErrorReply(b"ERR invalid cursor")
    value = int(significant or b"0")
    if value > _CURSOR_MAX:
        raise ErrorReply(b"ERR invalid cursor")
    return -value & _CURSOR_MAX if digits[0][:1] == b"-" else value


def parse_options(argv: Sequence[bytes], start: int, with_type: bool = False) -> ScanOptions:
    """The options from ``argv[start]`` on; TYPE belongs to SCAN alone."""
    count, matches, type_name = 10, None, None
    at = start
    while at < len(argv):
        if at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        word, argument = option(argv[at]), argv[at + 1]
        if word == b"COUNT":
            count = integer(argument)
            if count < 1:
                raise ErrorReply(SYNTAX_ERROR)
        elif word == b"MATCH":
            matches = glob(argument) if argument != b"*" else None
        elif word == b"TYPE" and with_type:
            type_name = argument
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 2
    return ScanOptions(count, matches, type_name)


def page_of(order: list[bytes], small: bool, cursor: int, options: ScanOptions) -> tuple[bytes, list[bytes]]:
    """The next cursor and the chosen members of one page. A small encoding comes whole, whatever the cursor."""
    if small:
        following, members = 0, order
    else:
        following, members = scan_page(order, cursor, options.count)
    if options.matches is not None:
        members = list(filter(options.matches, members))
    return b"%d" % following, members
