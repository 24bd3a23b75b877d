"""Options of commands dropped or changed: deadlines, conditions, direction, scores, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orderlab.properties.mutants.syntax import Change, Chunk, Command


class Option(NamedTuple):
    """How many arguments belong to an option, and which others could stand in its place."""

    values: int
    others: tuple[bytes, ...] = ()


OPTIONS: dict[bytes, dict[bytes, Option]] = {}
"""Command -> its options."""


def _declare(commands: bytes, **options: Option) -> None:
    for command in commands.split():
        OPTIONS.setdefault(command, {}).update({name.encode(): option for name, option in options.items()})


_declare(
    b"SET GETEX",
    EX=Option(1, (b"PX",)),
    PX=Option(1, (b"EX",)),
    EXAT=Option(1, (b"PXAT",)),
    PXAT=Option(1, (b"EXAT",)),
    KEEPTTL=Option(0),
    PERSIST=Option(0),
    NX=Option(0, (b"XX",)),
    XX=Option(0, (b"NX",)),
    GET=Option(0),
)
_declare(b"EXPIRE PEXPIRE EXPIREAT PEXPIREAT ZADD", NX=Option(0, (b"XX",)), XX=Option(0, (b"NX",)))
_declare(b"EXPIRE PEXPIRE EXPIREAT PEXPIREAT ZADD", GT=Option(0, (b"LT",)), LT=Option(0, (b"GT",)))
_declare(b"ZADD", CH=Option(0), INCR=Option(0))
_declare(
    b"ZRANGE ZRANGESTORE ZRANGEBYSCORE ZREVRANGEBYSCORE ZREVRANGE ZRANGEBYLEX ZREVRANGEBYLEX ZRANDMEMBER ZINTER ZUNION ZDIFF",
    WITHSCORES=Option(0),
    LIMIT=Option(2),
    REV=Option(0),
    BYSCORE=Option(0, (b"BYLEX",)),
    BYLEX=Option(0, (b"BYSCORE",)),
)
_declare(b"ZINTERSTORE ZUNIONSTORE ZINTER ZUNION", AGGREGATE=Option(1))
_declare(b"LPOS", RANK=Option(1), COUNT=Option(1), MAXLEN=Option(1))
_declare(b"SCAN HSCAN SSCAN ZSCAN", COUNT=Option(1), MATCH=Option(1))
_declare(
    b"XADD XTRIM", MAXLEN=Option(1, (b"MINID",)), MINID=Option(1, (b"MAXLEN",)), NOMKSTREAM=Option(0), LIMIT=Option(1)
)
_declare(b"XRANGE XREVRANGE XREAD XREADGROUP", COUNT=Option(1), NOACK=Option(0), BLOCK=Option(1))
_declare(b"COPY RESTORE", REPLACE=Option(0))
_declare(b"LMOVE BLMOVE", LEFT=Option(0, (b"RIGHT",)), RIGHT=Option(0, (b"LEFT",)))
_declare(b"LINSERT", BEFORE=Option(0, (b"AFTER",)), AFTER=Option(0, (b"BEFORE",)))
_declare(b"SORT SORT_RO", DESC=Option(0, (b"ASC",)), ASC=Option(0, (b"DESC",)), ALPHA=Option(0), LIMIT=Option(2))


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each option that is written out, dropped with its values, and changed to what could stand there."""
    for command in chunk.commands():
        known = OPTIONS.get(command.name, {})
        for position, argument in enumerate(command.arguments):
            if position == 0 or argument.type != "string":
                continue  # the first is the key
            name = chunk.string(argument).upper()
            if name in known:
                yield from _of_option(chunk, command, position, name, known[name])


def _of_option(chunk: Chunk, command: Command, position: int, name: bytes, option: Option) -> Iterator[Change]:
    argument = command.arguments[position]
    last = min(position + option.values, len(command.arguments) - 1)
    start = command.arguments[position - 1].end_byte
    said = f"{command.name.decode()} without {name.decode()}"
    yield Change(start, command.arguments[last].end_byte, b"", said)
    quote = chunk.text(argument)[:1]
    if quote in (b"'", b'"'):
        for other in option.others:
            yield chunk.replaced(
                argument, quote + other + quote, f"{command.name.decode()}: {name.decode()} becomes {other.decode()}"
            )
