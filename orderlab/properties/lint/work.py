"""Rules about work: what grows with the data and has no bound, and what is written before it is checked."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from orderlab.properties.lint.rule import ERROR, NOTE, WARNING, LintSettings, Mention, rule, words
from orderlab.properties.lint.scopes import enclosing
from orderlab.properties.lint.values import ARGV, LITERAL, ParsedScript, WrittenCall
from orderlab.properties.syntax import arguments

WHOLE = words("SMEMBERS HGETALL HKEYS HVALS SINTER SUNION SDIFF")
WHOLE_KEYSPACE = words("KEYS SCAN RANDOMKEY FLUSHALL FLUSHDB")
RANDOM = words("TIME RANDOMKEY SRANDMEMBER SPOP HRANDFIELD ZRANDMEMBER")
UNPACKED_MAX = 7999
"""Values that `unpack` gives at most (Lua 5.1 with Redis's C stack)."""
FLAT_UNDER_RESP2 = words("HGETALL ZRANGE ZREVRANGE ZRANGEBYSCORE ZPOPMIN ZPOPMAX HRANDFIELD ZSCORE ZINCRBY")
"""Commands whose reply has another shape under RESP3."""


def has_no_bound(script: ParsedScript, call: WrittenCall) -> bool:
    """Whether a call replies all that a key holds."""
    given = call.command.arguments
    options = [(script.string(part) or b"").upper() for part in given]
    if call.name in WHOLE:
        return True
    if call.name in ("LRANGE", "ZRANGE", "ZREVRANGE") and len(given) >= 3 and b"LIMIT" not in options:
        if call.name == "ZRANGE" and {b"BYSCORE", b"BYLEX"} & set(options):
            return True
        return [script.number(end) for end in given[1:3]] == [0, -1] or options[1:3] == [b"0", b"-1"]
    if call.name in ("ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZRANGEBYLEX"):
        return b"LIMIT" not in options
    return call.name in ("XRANGE", "XREVRANGE") and b"COUNT" not in options


@rule(
    "unbounded-range",
    NOTE,
    "All that a key holds is read at once.",
    why="The node answers nobody else meanwhile; the time grows with the key. Read a page, or bound the key.",
    bad="return redis.call('LRANGE', KEYS[1], 0, -1)",
    good="return redis.call('LRANGE', KEYS[1], 0, 99)",
)
def unbounded_range(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for call in script.calls:
        if has_no_bound(script, call):
            yield Mention(call.node, f"{call.name} reads all that the key holds, however much that is")


@rule(
    "unbounded-unpack",
    WARNING,
    "unpack of a table without a bound.",
    why=f"More than {UNPACKED_MAX:,} values end the script with `too many results to unpack`.",
    bad="local names = redis.call('SMEMBERS', KEYS[1])\nreturn redis.call('DEL', unpack(names))",
    good="local names = redis.call('SRANDMEMBER', KEYS[1], 100)\nreturn redis.call('DEL', KEYS[1], unpack(names))",
)
def unbounded_unpack(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("function_call"):
        given = arguments(node)
        if script.text(node.named_children[0]) not in ("unpack", "table.unpack") or len(given) != 1:
            continue
        call = script.call_of(given[0])
        if call is not None and has_no_bound(script, call):
            yield Mention(node, f"{call.name} may reply more than the {UNPACKED_MAX:,} values that unpack can give")


@rule(
    "unbounded-loop",
    WARNING,
    "A loop runs as long as there is data.",
    why="A node answers nobody while a script runs. Stop after so many, and let the caller ask again.",
    bad="local n = 0\nwhile redis.call('RPOP', KEYS[1]) do\n  n = n + 1\nend\nreturn n",
    good="local n = 0\nwhile n < 100 and redis.call('RPOP', KEYS[1]) do\n  n = n + 1\nend\nreturn n",
)
def unbounded_loop(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("while_statement", "repeat_statement"):
        condition = node.child_by_field_name("condition")
        inside = [call for call in script.calls if node.start_byte <= call.node.start_byte < node.end_byte]
        counts = condition is not None and any(part.type in ("<", ">", "<=", ">=") for part in _below(condition))
        leaves = any(
            part.type in ("<", ">", "<=", ">=") and next(enclosing(part, "if_statement"), None) is not None
            for part in _below(node)
        ) and any(part.type in ("break_statement", "return_statement") for part in _below(node))
        if inside and not counts and not leaves:
            yield Mention(node, "goes on while there is data: bound the number of turns")


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(part.children)


@rule(
    "whole-keyspace",
    WARNING,
    "The whole keyspace is looked through, or emptied.",
    why="The work grows with all that the server holds, and on a cluster it is one node's keys only.",
    bad="return redis.call('KEYS', 'a:*')",
    good="return redis.call('SMEMBERS', KEYS[1])",
)
def whole_keyspace(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for call in script.calls:
        if call.name in WHOLE_KEYSPACE:
            yield Mention(call.command.name_node, f"{call.name} goes through every key of the node")


@rule(
    "write-before-check",
    WARNING,
    "Arguments are checked after something was written.",
    why="A script is not rolled back: what it wrote before it refuses its arguments stays.",
    bad="redis.call('INCR', KEYS[1])\nif ARGV[1] == '' then return redis.error_reply('ERR no name') end\n"
    "return redis.call('SET', KEYS[2], ARGV[1])",
    good="if ARGV[1] == '' then return redis.error_reply('ERR no name') end\nredis.call('INCR', KEYS[1])\n"
    "return redis.call('SET', KEYS[2], ARGV[1])",
)
def write_before_check(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    writes = [call for call in script.calls if call.entry is not None and call.entry.is_write]
    for node, what in _checks(script):
        around = {block.start_byte for block in enclosing(node, "block", "chunk")}
        before = [
            call
            for call in writes
            if call.node.end_byte <= node.start_byte
            and (block := next(enclosing(call.node, "block", "chunk"), None)) is not None
            and block.start_byte in around
        ]
        if before:
            line = script.chunk.line(before[-1].node.start_byte)
            yield Mention(node, f"{what} after {before[-1].name} in line {line} has written, which stays")


def _checks(script: ParsedScript) -> Iterator[tuple[Node, str]]:
    """Where a script ends for its arguments' sake."""
    for node in script.chunk.nodes("if_statement"):
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        if condition is None or body is None or not script.origins(condition) <= {ARGV, LITERAL}:
            continue
        if ARGV in script.origins(condition) and any(
            part.type == "function_call" and script.text(part.named_children[0]) in ("redis.error_reply", "error")
            for part in _below(body)
        ):
            yield condition, "arguments are refused"
    for node in script.chunk.nodes("function_call"):
        name, given = script.text(node.named_children[0]), arguments(node)
        if name in ("cjson.decode", "cmsgpack.unpack") and given and script.origins(given[0]) == {ARGV}:
            yield node, f"{name} may refuse an argument"


@rule(
    "random-before-write",
    ERROR,
    "Something that differs from run to run is read before a write, under replication of scripts.",
    why="Servers before 5.0 send scripts to their replicas, not what they wrote: the write is refused, unless "
    "redis.replicate_commands() was called first.",
    bad="local now = redis.call('TIME')\nreturn redis.call('SET', KEYS[1], now[1])",
    good="redis.replicate_commands()\nlocal now = redis.call('TIME')\nreturn redis.call('SET', KEYS[1], now[1])",
    settings=LintSettings(server=(4, 0)),
)
def random_before_write(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    if settings.server >= (5, 0) or any(
        script.text(part.named_children[0]) == "redis.replicate_commands"
        for part in script.chunk.nodes("function_call")
    ):
        return
    first = next((call for call in script.calls if call.name in RANDOM), None)
    for call in script.calls:
        if first is not None and call.node.start_byte > first.node.start_byte and call.entry and call.entry.is_write:
            yield Mention(call.node, f"{call.name} after {first.name}: refused before Redis 5.0")
            return


@rule(
    "reply-of-resp3",
    WARNING,
    "A reply has another shape after redis.setresp(3).",
    why="Maps, sets, doubles and pairs come as tables of their own (`reply.map`, `reply.double`), not as flat lists.",
    bad="redis.setresp(3)\nlocal all = redis.call('HGETALL', KEYS[1])\nreturn all[1]",
    good="local all = redis.call('HMGET', KEYS[1], 'a')\nreturn all[1]",
)
def reply_of_resp3(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    if not any(
        script.text(part.named_children[0]) == "redis.setresp"
        and [script.number(arg) for arg in arguments(part)] == [3]
        for part in script.chunk.nodes("function_call")
    ):
        return
    for node in script.chunk.nodes("bracket_index_expression"):
        call = script.call_of(node.named_children[0])
        if call is not None and call.name in FLAT_UNDER_RESP2:
            yield Mention(node, f"{call.name} does not reply a flat list under RESP3")
