"""Rules about keys: whether a cluster knows them before the script runs, where they lie, how long they live."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from tree_sitter import Node

from orderlab.properties.lint.rule import NOTE, WARNING, LintSettings, Mention, rule
from orderlab.properties.lint.scopes import enclosing
from orderlab.properties.lint.values import ARGV, DATA, KEYS, LITERAL, OPEN, ParsedScript, WrittenCall
from orderlab.sim.redis.hash_slots import hash_slot

LIVES = frozenset(["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "SETEX", "PSETEX"])
"""Commands that give a key a deadline."""
APART = "deadline-apart"
DEADLINES = frozenset((b"EX", b"PX", b"EXAT", b"PXAT", b"KEEPTTL"))
"""Options of SET after which a key has one, or keeps it."""


@rule(
    "undeclared-key",
    WARNING,
    "A key is written in the script or made of what keys hold, or of arguments where there are no KEYS.",
    why="A cluster sends a script to the node of its KEYS; any other key may lie elsewhere, and the script is refused. "
    "Dragonfly refuses keys that are not declared whatever the node.",
    bad="return redis.call('INCR', 'requests:' .. ARGV[1])",
    good="return redis.call('INCR', KEYS[1])",
)
def undeclared_key(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for key, origins in _beside_keys(script):
        if ARGV not in origins or not _is_given_keys(script):
            yield Mention(key, f"{script.text(key)} is made of {_made_of(origins)}, and of none of KEYS")


@rule(
    "key-beside-keys",
    NOTE,
    "A key is made of arguments, beside those that are declared.",
    why="A cluster knows nothing of it. That is sound where callers put the hash tag of KEYS into what they pass; "
    "Dragonfly refuses it all the same.",
    bad="local job = redis.call('LPOP', KEYS[1])\nreturn job and redis.call('HGETALL', ARGV[1] .. job)",
    good="local job = redis.call('LPOP', KEYS[1])\nreturn job and redis.call('HGETALL', KEYS[1] .. job)",
)
def key_beside_keys(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    if _is_given_keys(script):
        for key, origins in _beside_keys(script):
            if ARGV in origins:
                yield Mention(key, f"{script.text(key)} is made of {_made_of(origins)}: it needs the hash tag of KEYS")


def _beside_keys(script: ParsedScript) -> Iterator[tuple[Node, Set[str]]]:
    """Keys that are made of none of KEYS, each once, with what they are made of."""
    seen = set()
    for call in script.calls:
        for key in script.keys_of(call):
            origins = script.origins(key)
            is_beside = origins and not origins & {KEYS, OPEN} and not script.is_nil(key)
            if is_beside and script.text(key) not in seen:
                seen.add(script.text(key))
                yield key, origins


def _is_given_keys(script: ParsedScript) -> bool:
    """Whether a script uses KEYS, or says in a comment what they are: a key may be there for the cluster alone."""
    return re.search(rb"\bKEYS\b", script.chunk.source) is not None


def _made_of(origins: Set[str]) -> str:
    made = {ARGV: "arguments", DATA: "what keys hold", LITERAL: "text"}
    return " and ".join(words for origin, words in made.items() if origin in origins)


@rule(
    "slots-apart",
    WARNING,
    "Two keys lie in slots of their own.",
    why="A script runs on one node. Keys that are written in the script lie together only if one hash tag says so.",
    bad="redis.call('INCR', 'a')\nreturn redis.call('INCR', 'b')",
    good="redis.call('INCR', KEYS[1])\nreturn redis.call('INCR', KEYS[2])",
)
def slots_apart(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    first: tuple[bytes, int] | None = None
    for call in script.calls:
        for key in script.keys_of(call):
            text = script.string(key)
            if text is None:
                continue
            slot = hash_slot(text)
            if first is not None and slot != first[1]:
                other = first[0].decode("utf-8", "replace")
                yield Mention(key, f"{script.text(key)} lies in slot {slot}, {other} in {first[1]}")
                return
            first = first or (text, slot)


@rule(
    "deadline-dropped",
    WARNING,
    "SET takes the deadline off a key that has one.",
    why="SET without EX, PX or KEEPTTL leaves a key that never expires. Before it, or where the key was not there yet, "
    "this script gives it a deadline.",
    bad="local held = redis.call('GET', KEYS[1])\nif held then\n  redis.call('SET', KEYS[1], held + 1)\nelse\n"
    "  redis.call('SET', KEYS[1], 1, 'EX', 60)\nend",
    good="local held = redis.call('GET', KEYS[1])\nif held then\n"
    "  redis.call('SET', KEYS[1], held + 1, 'KEEPTTL')\nelse\n  redis.call('SET', KEYS[1], 1, 'EX', 60)\nend",
)
def deadline_dropped(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    given = [call for call in script.calls if _gives_deadline(script, call)]
    for call in script.calls:
        if call.name not in ("SET", "GETSET") or _gives_deadline(script, call) or not call.command.arguments:
            continue
        key = script.text(call.command.arguments[0])
        same = [part for part in given if script.text(part.command.arguments[0]) == key]
        # What is given later in the same block, or around it, is given after this SET.
        after = [
            part for part in same if part.node.start_byte > call.node.start_byte and _follows(call.node, part.node)
        ]
        before = [
            part for part in same if part.node.start_byte < call.node.start_byte and _precedes(part.node, call.node)
        ]
        if same and not after and (before or _is_there(script, call, key)):
            message = f"{call.name} leaves {key} without the deadline that it has elsewhere: KEEPTTL, or EX"
            yield Mention(call.node, message)


@rule(
    APART,
    WARNING,
    "A key is made in one call and given its deadline in another.",
    why="The client may die between the two, and the key stays for ever: a counter that refuses everybody, a lock that "
    "nobody gets again. Both belong into one script, or one command such as SET with PX.",
    bad='[[operations.hit.steps]]\ncommand = ["INCR", "<key.hits>"]\ncapture = "count"\n\n'
    '[[operations.hit.steps]]\ncommand = ["PEXPIRE", "<key.hits>", "<window_ms>"]',
    good='[operations.hit]\nscript = "hit.lua"  # INCR and PEXPIRE\nkeys = ["hits"]\nargs = ["<window_ms>"]',
    language="toml",
)
def deadline_apart(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    """Nothing in a script alone: it is the binding that takes the calls apart."""
    yield from ()


def _is_there(script: ParsedScript, call: WrittenCall, key: str) -> bool:
    """Whether a call stands in a branch that asks if the key is there; one that asks for an option is meant so."""
    for branch in [*enclosing(call.node, "if_statement")][:1]:
        condition = branch.child_by_field_name("condition")
        waiting = [condition] if condition is not None else []
        while waiting:
            part = waiting.pop()
            asked = script.call_of(part)
            if asked is not None and asked.command.arguments and script.text(asked.command.arguments[0]) == key:
                return True
            waiting += part.named_children
    return False


def _gives_deadline(script: ParsedScript, call: WrittenCall) -> bool:
    if not call.command.arguments:
        return False
    return gives_deadline(call.name, {(script.string(part) or b"").upper() for part in call.command.arguments[2:]})


def gives_deadline(command: str, options: Set[bytes]) -> bool:
    """Whether a command leaves its key with a deadline. ``options``: its words in capitals."""
    return command in LIVES or (command in ("SET", "GETEX") and bool(options & DEADLINES))


def _follows(first: Node, second: Node) -> bool:
    """Whether a run that comes to the second has been at the first, or one that was at the first may come to it: they
    are in no two branches of one condition, and one of them stands in a block around the other, or just below."""
    if next(_common(first, second)).type in ("if_statement", "elseif_statement"):
        return False
    around = {block.start_byte for block in enclosing(first, "block", "chunk")}
    return any(block.start_byte in around for block in list(enclosing(second, "block", "chunk"))[:2])


def _precedes(first: Node, second: Node) -> bool:
    """Whether every run that comes to the second has been at the first."""
    block = next(enclosing(first, "block", "chunk"))
    return any(part == block for part in _ancestors(second))


def _common(part: Node, other: Node) -> Iterator[Node]:
    """The nodes around both, the nearest first."""
    above = {(node.start_byte, node.end_byte) for node in _ancestors(part)}
    return (node for node in _ancestors(other) if (node.start_byte, node.end_byte) in above)


def _ancestors(node: Node) -> Iterator[Node]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


@rule(
    "check-and-act-apart",
    WARNING,
    "One key is checked for its owner, and only another is deleted or prolonged.",
    why="The check says who owns the first key and nothing of the second.",
    bad="if redis.call('GET', KEYS[1]) == ARGV[1] then\n  return redis.call('DEL', KEYS[2])\nend\nreturn 0",
    good="if redis.call('GET', KEYS[1]) == ARGV[1] then\n  return redis.call('DEL', KEYS[1])\nend\nreturn 0",
)
def check_and_act_apart(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("if_statement"):
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        checked = _owner_checked(script, condition)
        if checked is None or body is None:
            continue
        inside = [call for call in script.calls if body.start_byte <= call.node.start_byte < body.end_byte]
        writes = [call for call in inside if call.entry is not None and call.entry.is_write]
        touched = {script.text(key) for call in inside for key in script.keys_of(call)}
        ends = [call for call in writes if call.name in ("DEL", "UNLINK", "PEXPIRE", "EXPIRE")]
        if len(writes) == len(ends) == 1 and checked not in touched and touched:
            yield Mention(ends[0].node, f"{checked} was checked, {' and '.join(sorted(touched))} is what this acts on")


def _owner_checked(script: ParsedScript, condition: Node | None) -> str | None:
    """The key whose value a condition holds against an argument."""
    if condition is None or condition.type != "binary_expression" or condition.children[1].type != "==":
        return None
    for part, other in ((condition.children[0], condition.children[2]), (condition.children[2], condition.children[0])):
        call = script.call_of(part)
        if call is not None and call.name == "GET" and call.command.arguments and script.origins(other) == {ARGV}:
            return script.text(call.command.arguments[0])
    return None
