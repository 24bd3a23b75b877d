"""Rules about replies: what Lua is given for nil, integers and strings, and what a server makes of what a script
returns."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from orderlab.properties.lint.rule import ERROR, WARNING, LintSettings, Mention, rule, words
from orderlab.properties.lint.scopes import enclosing
from orderlab.properties.lint.values import ARGV, DATA, ParsedScript
from orderlab.properties.syntax import arguments

NIL_OR_TEXT = words(
    "GET HGET LINDEX LPOP RPOP GETSET GETDEL GETEX ZSCORE SPOP SRANDMEMBER RPOPLPUSH LMOVE ZRANK ZREVRANK"
)
"""Commands whose reply may be nil, which Lua is given as false (RESP2)."""
TEXT = NIL_OR_TEXT - words("ZRANK ZREVRANK") | words("GETRANGE ZINCRBY HINCRBYFLOAT INCRBYFLOAT TYPE")
"""Commands that reply a text, even if it is one of digits."""
INTEGER = words(
    """EXISTS DEL UNLINK SISMEMBER HEXISTS SADD SREM HSETNX SETNX EXPIRE PEXPIRE EXPIREAT PEXPIREAT ZREM LREM LLEN ZCARD
    SCARD HLEN STRLEN INCR DECR INCRBY DECRBY TTL PTTL HSET HDEL LPUSH RPUSH PERSIST GETBIT SETBIT ZCOUNT XLEN XDEL XACK
    TOUCH RENAMENX SMOVE COPY BITCOUNT ZREMRANGEBYSCORE ZREMRANGEBYRANK PFADD PFCOUNT"""
)
"""Commands that always reply an integer, which Lua takes as true, 0 included."""
ORDERINGS = ("<", ">", "<=", ">=")


def command_replied(script: ParsedScript, node: Node) -> str:
    """The command whose reply an expression is; nothing where it is none, or not known."""
    call = script.call_of(node)
    return "" if call is None or call.is_protected else call.name


@rule(
    "nil-reply",
    ERROR,
    "A reply is compared with nil, which it never is.",
    why="A script is given false for a nil reply. `== nil` is never true and `~= nil` always.",
    bad="if redis.call('GET', KEYS[1]) == nil then return 0 end\nreturn 1",
    good="if not redis.call('GET', KEYS[1]) then return 0 end\nreturn 1",
)
def nil_reply(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for left, operator, right in script.chunk.binary():
        if operator.type not in ("==", "~="):
            continue
        for part, other in ((left, right), (right, left)):
            name = command_replied(script, part)
            if other.type == "nil" and name in NIL_OR_TEXT:
                always = "never" if operator.type == "==" else "always"
                fix = script.chunk.replaced(other, b"false", "false in place of nil")
                yield Mention(
                    part.parent or part, f"{name} replies false, not nil, where there is nothing: {always} true", fix
                )


@rule(
    "zero-is-true",
    ERROR,
    "An integer reply is used as a condition; 0 is true in Lua.",
    why="Only false and nil are false in Lua. `if redis.call('EXISTS', key) then` is taken whether it is there or not.",
    bad="if redis.call('EXISTS', KEYS[1]) then return 1 end\nreturn 0",
    good="if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end\nreturn 0",
)
def zero_is_true(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("if_statement", "elseif_statement", "while_statement", "repeat_statement"):
        condition = node.child_by_field_name("condition")
        for part in _truths(condition) if condition is not None else ():
            if (name := command_replied(script, part)) in INTEGER:
                yield Mention(part, f"{name} replies an integer, and 0 is true: compare it with 0 or 1")


def _truths(node: Node) -> Iterator[Node]:
    """The parts of a condition that are asked whether they are true."""
    if node.type == "parenthesized_expression" and node.named_children:
        yield from _truths(node.named_children[0])
    elif node.type == "binary_expression" and node.children[1].type in ("and", "or"):
        for side in (node.children[0], node.children[2]):
            yield from _truths(side)
    elif node.type == "unary_expression" and node.children[0].type == "not":
        yield from _truths(node.named_children[0])
    else:
        yield node


@rule(
    "text-is-no-number",
    ERROR,
    "A text is compared with a number.",
    why="Arguments and most replies are texts. `ARGV[1] == 1` is never true, `ARGV[1] > 1` ends the script.",
    bad="if ARGV[1] == 1 then return redis.call('DEL', KEYS[1]) end\nreturn 0",
    good="if ARGV[1] == '1' then return redis.call('DEL', KEYS[1]) end\nreturn 0",
)
def text_is_no_number(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for left, operator, right in script.chunk.binary():
        if operator.type not in ("==", "~=", *ORDERINGS):
            continue
        for part, other in ((left, right), (right, left)):
            if script.number(other) is None or script.only_value(other).type == "string" or not _is_text(script, part):
                continue
            end = "ends the script" if operator.type in ORDERINGS else "is never equal"
            yield Mention(
                part.parent or part, f"{script.text(part)} is a text: compared with a number it {end}; tonumber it"
            )


def _is_text(script: ParsedScript, node: Node) -> bool:
    node = script.only_value(node)
    if node.type == "bracket_index_expression":
        return script.text(node.named_children[0]) == "ARGV"
    return command_replied(script, node) in TEXT


@rule(
    "tonumber-of-nothing",
    WARNING,
    "A reply that may be nil is calculated with.",
    why="tonumber(false) is nil, and nil ends the script in the middle: what was written before stays.",
    bad="local held = tonumber(redis.call('GET', KEYS[1]))\nreturn held + 1",
    good="local held = tonumber(redis.call('GET', KEYS[1]) or 0)\nreturn held + 1",
)
def tonumber_of_nothing(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for left, operator, right in script.chunk.binary():
        if operator.type not in ("+", "-", "*", "/", "%", "^", *ORDERINGS):
            continue
        for part in (left, right):
            value = script.only_value(part)
            if value.type != "function_call" or script.text(value.named_children[0]) != "tonumber":
                continue
            given = arguments(value)
            name = command_replied(script, given[0]) if given else ""
            if name in NIL_OR_TEXT and not _is_asked_for(script, part) and not _is_asked_for(script, given[0]):
                yield Mention(part, f"{name} may find nothing, tonumber then is nil: say what holds then, or 0")


def _is_asked_for(script: ParsedScript, node: Node) -> bool:
    """Whether the script asks anywhere if this variable has a value."""
    variable = script.scopes.variable(node)
    if variable is None:
        return False
    for part in script.chunk.nodes("identifier"):
        if script.scopes.variable(part) is not variable or part.start_byte == node.start_byte:
            continue
        above = part.parent
        if above is None:
            continue
        if above.type in ("if_statement", "elseif_statement", "while_statement", "parenthesized_expression"):
            return True
        if above.type == "unary_expression" and above.children[0].type == "not":
            return True
        if above.type == "binary_expression" and above.children[1].type in ("and", "or", "==", "~="):
            return True
    return False


@rule(
    "protected-call-unread",
    WARNING,
    "The error that redis.pcall may return is never looked at.",
    why="pcall returns a table with `err` in place of ending the script: what follows goes on as if all were well.",
    bad="redis.pcall('INCR', KEYS[1])\nreturn 1",
    good="local reply = redis.pcall('INCR', KEYS[1])\nif type(reply) == 'table' and reply.err then\n  return 0\nend\n"
    "return 1",
)
def protected_call_unread(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for call in script.calls:
        above = call.node.parent
        if not call.is_protected or above is None:
            continue
        if above.type in ("block", "chunk"):
            yield Mention(call.node, f"what {call.name} replies is not looked at, an error neither; use redis.call")
        elif (
            above.type == "expression_list" and above.parent is not None and above.parent.type == "assignment_statement"
        ):
            names = next((part for part in above.parent.named_children if part.type == "variable_list"), None)
            variable = script.scopes.variable(names.named_children[0]) if names is not None else None
            if variable is not None and not _is_read(script, variable.name):
                yield Mention(call.node, f"the error that {call.name} may reply is not looked at; use redis.call")


def _is_read(script: ParsedScript, name: bytes) -> bool:
    """Whether the variable is handed on, or asked for its error."""
    return any(
        script.chunk.text(node) == name
        and node.parent is not None
        and node.parent.type
        in ("dot_index_expression", "arguments", "bracket_index_expression", "return_statement", "expression_list")
        for node in script.chunk.nodes("identifier")
    )


@rule(
    "truncated-reply",
    WARNING,
    "A number with a fraction is returned; the server cuts it to an integer.",
    why="A Lua number becomes an integer reply. Return text where the fraction matters, math.floor where it does not.",
    bad="return tonumber(ARGV[1]) / 2",
    good="return tostring(tonumber(ARGV[1]) / 2)",
)
def truncated_reply(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("return_statement"):
        if next(enclosing(node, "function_declaration", "function_definition"), None) is not None:
            continue  # what a function returns may be rounded where it is called
        for part in (child for listed in node.named_children for child in listed.named_children):
            value = script.only_value(part)
            number = script.number(value) if value.type == "number" else None
            within = _within_tonumber(script, value)  # without it, the reply is text
            name = "" if within is None else command_replied(script, within)
            if (value.type == "binary_expression" and value.children[1].type == "/" and not _is_length(value)) or (
                number is not None and number != int(number)
            ):
                yield Mention(part, "the server cuts the fraction off: return text, or round it yourself")
            elif name in ("ZSCORE", "ZINCRBY", "HINCRBYFLOAT", "INCRBYFLOAT"):
                yield Mention(part, f"{name} may have a fraction, which the server cuts off: return its text")


def _is_length(quotient: Node) -> bool:
    """Whether what is divided is the length of a table, of which rows are taken."""
    return quotient.children[0].type == "unary_expression" and quotient.children[0].children[0].type == "#"


def _within_tonumber(script: ParsedScript, node: Node) -> Node | None:
    if node.type == "function_call" and script.text(node.named_children[0]) == "tonumber" and arguments(node):
        return arguments(node)[0]
    return None


@rule(
    "reply-ends-at-nil",
    WARNING,
    "A table that is returned may hold nil in the middle; the reply ends there.",
    why="A server reads a table to its first nil. What stands behind it is lost to the client.",
    bad="return { tonumber(redis.call('HGET', KEYS[1], 'a')), 'b' }",
    good="return { tonumber(redis.call('HGET', KEYS[1], 'a')) or 0, 'b' }",
)
def reply_ends_at_nil(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("return_statement"):
        tables = (
            part for listed in node.named_children for part in listed.named_children if part.type == "table_constructor"
        )
        for table in tables:
            values = [
                value
                for part in table.named_children
                if part.type == "field" and part.child_by_field_name("name") is None
                if (value := part.child_by_field_name("value")) is not None
            ]
            for value in values[:-1] if any(value.type != "nil" for value in values) else ():
                within = _within_tonumber(script, value)
                if value.type == "nil":
                    yield Mention(value, "the reply ends before this nil: put false, or a text")
                elif within is not None and command_replied(script, within) in NIL_OR_TEXT:
                    yield Mention(value, "may be nil, where the reply ends: say what stands there then")


@rule(
    "digits-lost",
    WARNING,
    "A number of more than 14 digits is made a text, which keeps 14.",
    why="`..` and tostring write 14 significant digits (`%.14g`): microseconds since 1970 have 16. "
    "string.format('%.0f', n) keeps all; a number that is handed to redis.call does, too.",
    bad="local now = redis.call('TIME')\nreturn 'at:' .. (now[1] * 1000000 + now[2])",
    good="local now = redis.call('TIME')\nreturn 'at:' .. string.format('%.0f', now[1] * 1000000 + now[2])",
)
def digits_lost(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    texts = [
        (part, left.parent)
        for left, sign, right in script.chunk.binary()
        if sign.type == ".."
        for part in (left, right)
    ]
    for call in script.chunk.nodes("function_call"):
        if script.text(call.named_children[0]) == "tostring":
            texts += [(part, call) for part in arguments(call)]
    for part, _ in texts:
        if _is_large(script, script.only_value(part)):
            yield Mention(part, "has 16 digits, and 14 stay in the text: string.format('%.0f', ...)")


def _is_large(script: ParsedScript, node: Node) -> bool:
    """Whether a number is one of microseconds: a product of data or arguments with a million or more."""
    if node.type == "parenthesized_expression" and node.named_children:
        return _is_large(script, script.only_value(node.named_children[0]))
    if node.type != "binary_expression":
        return False
    left, operator, right = node.children[0], node.children[1].type, node.children[2]
    if operator in ("+", "-"):
        return _is_large(script, script.only_value(left)) or _is_large(script, script.only_value(right))
    if operator != "*":
        return False
    for part, other in ((left, right), (right, left)):
        number = script.number(other)
        if number is not None and number >= 1e6 and script.origins(part) & {DATA, ARGV}:
            return True
    return False
