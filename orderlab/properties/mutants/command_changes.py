"""Mutation operators on what a script asks of Redis: commands, their options, their keys, the ends of their ranges and
of loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from orderlab.properties.syntax import Change, Chunk, Command

# -- a command swapped for another of the same shape -------------------------------------------------------------------

TWINS: tuple[tuple[bytes, bytes], ...] = (
    (b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"),
    (b"ZRANGE", b"ZREVRANGE"),
    (b"ZREMRANGEBYSCORE", b"ZREMRANGEBYRANK"),
    (b"ZREMRANGEBYSCORE", b"ZCOUNT"),
    (b"ZREM", b"ZMSCORE"),
    (b"ZSCORE", b"ZRANK"),
    (b"ZRANK", b"ZREVRANK"),
    (b"ZPOPMIN", b"ZPOPMAX"),
    (b"ZCARD", b"EXISTS"),
    (b"HDEL", b"HMGET"),
    (b"HSET", b"HSETNX"),
    (b"HGET", b"HSTRLEN"),
    (b"HKEYS", b"HVALS"),
    (b"HKEYS", b"HGETALL"),
    (b"HLEN", b"EXISTS"),
    (b"SET", b"SETNX"),
    (b"SET", b"APPEND"),
    (b"GET", b"GETDEL"),
    (b"MGET", b"EXISTS"),
    (b"DEL", b"EXISTS"),
    (b"UNLINK", b"EXISTS"),
    (b"INCR", b"DECR"),
    (b"INCRBY", b"DECRBY"),
    (b"LPUSH", b"RPUSH"),
    (b"LPOP", b"RPOP"),
    (b"LREM", b"LSET"),
    (b"LRANGE", b"LTRIM"),
    (b"SADD", b"SREM"),
    (b"EXPIRE", b"PEXPIRE"),
    (b"EXPIREAT", b"PEXPIREAT"),
    (b"SETEX", b"PSETEX"),
    (b"TTL", b"PTTL"),
)
"""Each for the other. DEL and UNLINK do the same and are no twins; HSETNX takes one field alone."""


def swap_commands(chunk: Chunk) -> Iterator[Change]:
    """Each command as each of its twins, in the quotes that it stands in."""
    for command in chunk.commands():
        text = chunk.text(command.name_node)
        quote = text[:1]
        if quote not in (b"'", b'"'):
            continue
        for one, other in TWINS:
            for name, twin in ((one, other), (other, one)):
                if command.name == name:
                    yield chunk.replaced(
                        command.name_node, quote + twin + quote, f"{name.decode()} becomes {twin.decode()}"
                    )


# -- options of commands dropped or changed ----------------------------------------------------------------------------


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
    b"ZRANGE ZRANGESTORE ZRANGEBYSCORE ZREVRANGEBYSCORE ZREVRANGE ZRANGEBYLEX ZREVRANGEBYLEX ZRANDMEMBER ZINTER "
    b"ZUNION ZDIFF",
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


def change_options(chunk: Chunk) -> Iterator[Change]:
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


# -- a key built from another variable ---------------------------------------------------------------------------------


def take_other_keys(chunk: Chunk) -> Iterator[Change]:
    """In each command's key, and in each member or field that is put together: every part with its alternatives."""
    keys = _key_expressions(chunk)
    for command in chunk.commands():
        for position, argument in enumerate(command.arguments):
            if position == 0:
                yield from _instead(chunk, argument, keys)
            if argument.type == "binary_expression":
                yield from _other_parts(chunk, argument)


def _key_expressions(chunk: Chunk) -> list[bytes]:
    """What the script names keys by: locals that hold KEYS[n], and KEYS[n] itself where no local does."""
    found: dict[bytes, None] = {}
    held: set[bytes] = set()
    for names, values in chunk.assignments():
        for name, value in zip(names, values, strict=False):
            if chunk.text(value).startswith(b"KEYS["):
                found[chunk.text(name)] = None
                held.add(chunk.text(value))
    for node in chunk.nodes("bracket_index_expression"):
        text = chunk.text(node)
        if text.startswith(b"KEYS[") and text not in held:
            found[text] = None
    return list(found)


def _instead(chunk: Chunk, argument: Node, keys: list[bytes]) -> Iterator[Change]:
    text = chunk.text(argument)
    if text in keys:
        for other in keys:
            if other != text:
                yield chunk.replaced(argument, other, f"key {text.decode()} becomes {other.decode()}")


def _other_parts(chunk: Chunk, argument: Node) -> Iterator[Change]:
    """``prefix .. id`` with another of the script's local values for ``id``."""
    names = _locals_before(chunk, argument.start_byte)
    for part in _leaves(argument):
        text = chunk.text(part)
        if part.type == "identifier" and text in names:
            near = names[names.index(text) - 1]  # the one declared before it
            if near != text:
                yield chunk.replaced(part, near, f"{text.decode()} becomes {near.decode()}")
        elif part.type == "bracket_index_expression" and text.startswith((b"ARGV[", b"KEYS[")):
            index = text[5:-1]
            if index.isdigit():
                other = text[:5] + b"%d]" % (int(index) + 1 if int(index) == 1 else int(index) - 1)
                yield chunk.replaced(part, other, f"{text.decode()} becomes {other.decode()}")


def _locals_before(chunk: Chunk, place: int) -> list[bytes]:
    found: dict[bytes, None] = {}
    for node in chunk.nodes("variable_declaration"):
        if node.start_byte < place:
            for names, _ in ((names, values) for names, values in chunk.assignments() if names):
                if node.start_byte <= names[0].start_byte < node.end_byte:
                    found.update(dict.fromkeys(map(chunk.text, names)))
    return list(found)


def _leaves(node: Node) -> Iterator[Node]:
    """The operands of a chain of ``..``."""
    if node.type != "binary_expression":
        yield node
        return
    for side in ("left", "right"):
        child = node.child_by_field_name(side)
        if child is not None:
            yield from _leaves(child)


# -- a range widened or narrowed by one --------------------------------------------------------------------------------

SCORE_RANGES = frozenset(
    (
        b"ZRANGEBYSCORE ZREVRANGEBYSCORE ZREMRANGEBYSCORE ZCOUNT ZRANGE ZRANGESTORE "
        b"ZRANGEBYLEX ZREVRANGEBYLEX ZREMRANGEBYLEX ZLEXCOUNT"
    ).split()
)


def widen_ranges(chunk: Chunk) -> Iterator[Change]:
    """Each numeric loop one longer or shorter at each end; each bound of a score range opened, closed or at zero."""
    for node in chunk.nodes("for_numeric_clause"):
        yield from _of_loop(chunk, node)
    for command in chunk.commands():
        if command.name in SCORE_RANGES:
            for argument in command.arguments[1:3]:
                yield from _of_bound(chunk, argument)


def _of_loop(chunk: Chunk, node: Node) -> Iterator[Change]:
    for end, steps in (("start", (b"+ 1",)), ("end", (b"+ 1", b"- 1"))):
        bound = node.child_by_field_name(end)
        if bound is None or bound.type == "number":
            continue  # a number is the operator of constants'
        for step in steps:
            text = b"(" + chunk.text(bound) + b") " + step
            yield chunk.replaced(
                bound, text, f"loop to {text.decode()}" if end == "end" else f"loop from {text.decode()}"
            )


def _of_bound(chunk: Chunk, argument: Node) -> Iterator[Change]:
    literal = argument
    if argument.type == "binary_expression":  # '(' .. score
        literal = argument.child_by_field_name("left") or argument
    if literal.type != "string":
        return
    text = chunk.string(literal)
    quote = chunk.text(literal)[:1]
    if quote not in (b"'", b'"'):
        return
    if text.startswith((b"(", b"[")):
        other = b"[" if text[:1] == b"(" and text[1:2].isalpha() else b""
        yield chunk.replaced(literal, quote + other + text[1:] + quote, f"{_said(text)} becomes closed")
    elif text.lower() in (b"-inf", b"+inf", b"inf"):
        yield chunk.replaced(literal, quote + b"0" + quote, f"{_said(text)} becomes 0")
    elif text and argument is literal:
        yield chunk.replaced(literal, quote + b"(" + text + quote, f"{_said(text)} becomes open")


def _said(text: bytes) -> str:
    return text.decode("utf-8", "replace")
