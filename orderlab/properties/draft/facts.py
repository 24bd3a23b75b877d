"""What the text of a script tells of how it is called: its keys and their types, its arguments and how each is read,
what it may reply, whether it writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from orderlab.properties.draft.functions import Registered, reached, registered
from orderlab.properties.lint.replies import INTEGER, NIL_OR_TEXT
from orderlab.properties.lint.rule import words
from orderlab.properties.lint.scopes import enclosing
from orderlab.properties.lint.values import ParsedScript, WrittenCall
from orderlab.properties.syntax import arguments
from orderlab.sim.stores.binding.results import Script
from orderlab.sim.stores.sources.spelling import ClockReading

_TYPES = {"l": "list", "r": "list", "h": "hash", "s": "set", "z": "sorted set", "x": "stream", "pf": "string"}
_STRINGS = words(
    """SET GET GETSET SETNX SETEX PSETEX INCR INCRBY DECR DECRBY APPEND STRLEN GETDEL GETEX SETBIT GETBIT MGET MSET"""
)
_SEVERAL = words("EXISTS DEL UNLINK EXPIRE PEXPIRE TTL PTTL PERSIST TYPE RENAME SCAN SORT TOUCH OBJECT")
"""Commands that tell nothing of a key's type."""


DURATION_S, DURATION_MS, MOMENT_S, MOMENT_MS = "duration in s", "duration in ms", "moment in s", "moment in ms"
_UNITS = {"EX": DURATION_S, "PX": DURATION_MS, "EXAT": MOMENT_S, "PXAT": MOMENT_MS}
"""Words of SET and GETEX -> what the argument behind them is."""
_UNIT_OF_FIRST = {
    **dict.fromkeys(("EXPIRE", "SETEX"), DURATION_S), **dict.fromkeys(("PEXPIRE", "PSETEX"), DURATION_MS),
    "EXPIREAT": MOMENT_S, "PEXPIREAT": MOMENT_MS,
}  # fmt: skip
"""Commands -> what the argument behind the key is."""
_READERS = ("tonumber", "tostring", "cjson.decode", "cmsgpack.unpack", "math.floor", "string.lower")
"""Functions through which an argument is read."""
_ONE_NAMED = re.compile(
    r"\b(KEYS|ARGV)\s*\[\s*(\d+)\s*\][\s:=,-]*(?:the\s+|an?\s+)?[\"'`<(]*([A-Za-z][\w:{}<>*.-]*(?: prefix\b)?)"
)
"""In a comment, ``KEYS[1]: queue`` and its like, or a key as clients spell it, ``KEYS[1] shop:{name}:queue``."""
_COUNTS = words("INCR INCRBY HINCRBY ZCARD SCARD")
"""Commands whose reply is a number that grows, and says neither yes nor no."""
_TYPE_WORDS = ("sorted", "set", "zset", "hash", "list", "string", "stream")
"""What a comment says of a key's type is not its name."""
_ALL_NAMED = re.compile(r"\b(KEYS|ARGV)\s*:[ \t]*((?:(?!\b(?:KEYS|ARGV)\b)[^\n;])+)")
"""``KEYS: queue, counter``, up to the end of the line or the other array."""
_LISTED = re.compile(
    r"(?!\s*(?:how|which|what|when|where|who|whether)\b)\s*[\"'`<]*(?:(?:the|an?)\s+)?([A-Za-z][\w:{}<>*.-]*)"
    r"(?:[ ]+([A-Za-z][\w-]*)[\"'`>]*\s*$)?"
)
"""One name of such a list: a word, or two, as in ``owner token``."""


@dataclass
class Slot:
    """One of KEYS or ARGV."""

    name: str
    """Of the variable that it is read into; ``key1``, ``arg1`` where there is none."""
    is_named: bool
    types: set[str] = field(default_factory=set)
    """Of a key: what commands take it for. Of an argument: ``number``, ``json``, ``text``."""
    members: set[str] = field(default_factory=set)
    """Members that are read of JSON; ``written``: those that the script gives a value."""
    written: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    """Of a time, as commands take it: ``duration in s``, ``duration in ms``, ``moment in s``, ``moment in ms``."""
    words: set[str] = field(default_factory=set)
    """Texts that the script compares it with."""
    spelled: str = ""
    """As a program passes it, its own words in braces; ``place``: where it does."""
    place: str = ""
    is_constant: bool = False
    value: str = ""
    """Of an argument: what is tried for it, always the same."""
    shape: str = ""
    """Of a key: the same wherever programs spell it, whatever their variables are called."""
    commands: set[str] = field(default_factory=set)
    """Of a key: what is done with it, as far as the text tells."""
    is_beginning: bool = False
    """Of an argument: whether keys begin with it."""
    moment: ClockReading | None = None
    """Of an argument: what a program reads from its clock for it."""


@dataclass
class Facts:
    """What is known of a script."""

    script: Script
    keys: list[Slot]
    arguments: list[Slot]
    has_more_keys: bool
    """Whether keys are read at places that the text does not tell."""
    has_more_arguments: bool
    writes: bool
    commands: tuple[str, ...]
    replies: tuple[str, ...]
    """Kinds of replies: ``integer``, ``count``, ``text``, ``nil``, ``status``, ``list``, ``anything``."""
    is_called: bool = False
    """Whether a program's call of it was read."""
    called_on: str = ""
    """The keys of this call, where programs call the script with several sets of them."""
    called_in: str = ""
    """The program's function that makes this call, where the script does several things by a word that it is given."""
    function: str = ""
    """Of a library the function that this is about."""
    errors: tuple[str, ...] = ()
    """The texts of its own errors; ``statuses``: of what it replies as ``OK`` is."""
    statuses: tuple[str, ...] = ()
    promises_no_writes: bool = False
    """Whether its flags say that it writes nothing, so that a server refuses it a write."""

    @property
    def label(self) -> str:
        """The script or function, and the keys that it is called with where these are not always the same."""
        name = f"{self.script.name}:{self.function}" if self.function else self.script.name
        return f"{name} on {self.called_on}" if self.called_on else name

    @property
    def is_library(self) -> bool:
        """Whether it registers functions, of which none is known."""
        return is_library(self.script) and not self.function


def is_library(script: Script) -> bool:
    """Whether it registers functions instead of being called itself."""
    first = script.source.split(b"\n", 1)[0]
    return first.startswith(b"#!") and b"name=" in first


def _has_flag(script: Script) -> bool:
    first = script.source.split(b"\n", 1)[0]
    return first.startswith(b"#!") and b"no-writes" in first


class _Called(ParsedScript):
    """A script, or one function of a library."""

    function: Node | None = None

    def array(self, node: Node) -> str:
        """``KEYS`` or ``ARGV`` for a name that means it, of a function its first parameter or its second."""
        variable = self.scopes.variable(node)
        if variable is None:
            return ""
        if self.function is None:
            name = self.text(node)
            return name if name in ("KEYS", "ARGV") and variable.kind == "global" else ""
        is_own = variable.kind == "parameter" and variable.function == self.function and variable.place < 2
        return ("KEYS", "ARGV")[variable.place] if is_own else ""

    @cached_property
    def reached(self) -> list[Node]:
        """The function with those that it calls; of a script all of it."""
        return [self.chunk.root] if self.function is None else reached(self, self.function)

    @property
    def calls_made(self) -> list[WrittenCall]:
        """Calls of commands in what is reached."""
        return [call for call in self.calls if any(_is_in(call.node, part) for part in self.reached)]


def _is_in(node: Node, part: Node) -> bool:
    return part.start_byte <= node.start_byte < part.end_byte


def all_facts(scripts: Iterable[Script]) -> list[Facts]:
    """Those of each script, and of a library those of each of its functions. Raises InputError as ``facts_of``."""
    result = []
    for script in scripts:
        functions: list[Registered] = []
        if is_library(script):
            functions = list(registered(ParsedScript(script.source, str(script.path))))
        result += [facts_of(script, each) for each in functions if each.body is not None] or [facts_of(script)]
    return result


def facts_of(script: Script, function: Registered | None = None) -> Facts:
    """The facts of a script, or of a ``function`` of a library. Raises InputError where it cannot be parsed."""
    parsed = _Called(script.source, str(script.path))
    if function is not None:
        parsed.function = next(each.body for each in registered(parsed) if each.name == function.name)
    slots: dict[str, dict[int, Slot]] = {"KEYS": {}, "ARGV": {}}
    more = {"KEYS": False, "ARGV": False}
    for node in parsed.chunk.nodes("identifier"):
        array = parsed.array(node)
        if not array or _is_parameter(node):
            continue
        above = node.parent
        number = None
        if above is not None and above.type == "bracket_index_expression" and above.named_children[0] == node:
            number = parsed.number(above.named_children[-1])
        if above is None or number is None or number < 1:
            counted = 0 if above is None or above.named_children[0] != node else _counted_to(parsed, above)
            more[array] |= not counted
            for place in range(1, counted + 1):
                slots[array].setdefault(place, Slot("", False))
            continue
        slot = slots[array].setdefault(int(number), Slot("", False))
        if not slot.is_named and (name := _name_of(parsed, above)):
            slot.name, slot.is_named = name, True
        for use in _uses(parsed, above):
            _note(parsed, slot, use, array)
    for call in parsed.calls_made:
        kind = _type_of(call.name)
        for key in parsed.keys_of(call):
            for begun in _beginnings(parsed, key):
                slots["ARGV"].setdefault(begun, Slot("", False)).is_beginning = True
            if (at := _index_of(parsed, key)) is None:
                continue
            slots["KEYS"].setdefault(at, Slot("", False)).commands.add(call.name)
            if kind:
                slots["KEYS"][at].types.add(kind)
        for place, given in enumerate(call.command.arguments):
            unit = _unit_of(parsed, call, place)
            at = _index_of(parsed, given, "ARGV") if unit else None
            if at in slots["ARGV"]:
                slots["ARGV"][at].units.add(unit)
    _name_by_comments(parsed, slots)
    for slot in slots["ARGV"].values():
        slot.is_beginning |= "prefix" in slot.name.lower()
    filled = {array: _filled(found, "key" if array == "KEYS" else "arg") for array, found in slots.items()}
    return Facts(
        script,
        filled["KEYS"],
        filled["ARGV"],
        more["KEYS"],
        more["ARGV"],
        any(call.entry is not None and call.entry.is_write for call in parsed.calls_made),
        tuple(dict.fromkeys(call.name for call in parsed.calls_made)),
        tuple(dict.fromkeys(_replies(parsed))),
        errors=_texts_made(parsed, "redis.error_reply"),
        statuses=_texts_made(parsed, "redis.status_reply"),
        function=function.name if function is not None else "",
        promises_no_writes=_has_flag(script) if function is None else function.promises_no_writes,
    )


_COUNTED_MAX = 16


def _counted_to(parsed: _Called, element: Node) -> int:
    """The last of the elements that a loop from 1 to a number goes through; 0 where it is another one."""
    variable = parsed.scopes.variable(element.named_children[-1])
    loop = next(enclosing(element, "for_statement"), None)
    clause = None if loop is None else loop.child_by_field_name("clause")
    if variable is None or variable.kind != "loop" or clause is None or clause.type != "for_numeric_clause":
        return 0
    if parsed.text(clause.named_children[0]) != parsed.text(element.named_children[-1]):
        return 0
    bounds = [parsed.number(part) for part in clause.named_children[1:]]
    last = bounds[1] if len(bounds) == 2 and bounds[0] == 1 else None
    return int(last) if last is not None and last <= _COUNTED_MAX else 0


def _is_parameter(node: Node) -> bool:
    """Whether it is the name in the head of a function."""
    return node.parent is not None and node.parent.type == "parameters"


def _name_by_comments(parsed: _Called, slots: dict[str, dict[int, Slot]]) -> None:
    """What comments call the elements, where no variable does, up to the last that is read."""
    nodes = parsed.chunk.nodes("comment")
    for comment in [parsed.text(node) for node in nodes if any(_is_in(node, part) for part in parsed.reached)]:
        named = [(array, int(number), _last_part(name)) for array, number, name in _ONE_NAMED.findall(comment)]
        for array, listed in _ALL_NAMED.findall(comment):
            for number, part in enumerate(re.sub(r"\([^)]*\)", "", listed).split(","), 1):
                if (listed_name := _LISTED.match(part)) is not None:
                    first, second = listed_name.groups()
                    is_two = second is not None and second.lower() not in _TYPE_WORDS
                    first = _last_part(first)
                    named.append((array, number, f"{first}_{second}" if is_two else first))
        for array, number, name in named:
            slot = slots[array].setdefault(number, Slot("", False)) if number <= max(slots[array], default=0) else None
            if slot is not None and not slot.is_named and name.lower() not in _TYPE_WORDS:
                slot.name, slot.is_named = name, True


def _last_part(spelled: str) -> str:
    """The last part of a key that is no placeholder: ``writer`` of ``rw:{name}:writer``."""
    parts = [part for part in re.split("[:.]", spelled) if re.fullmatch(r"[A-Za-z][\w-]*", part)]
    return parts[-1] if parts else spelled


def _filled(found: dict[int, Slot], word: str) -> list[Slot]:
    slots = [found.get(number, Slot("", False)) for number in range(1, max(found, default=0) + 1)]
    for number, slot in enumerate(slots, 1):
        slot.name = slot.name or f"{word}{number}"
    return slots


def _name_of(parsed: ParsedScript, node: Node) -> str:
    """The local variable that an element is read into, be it through tonumber or as JSON."""
    value = node
    while (above := value.parent) is not None:
        if above.type == "arguments" and above.parent is not None:
            if parsed.text(above.parent.named_children[0]) not in _READERS:
                return ""
        elif above.type == "binary_expression":
            if above.children[1].type != "or" or above.children[0] != value:
                return ""
        elif above.type != "function_call":
            break
        value = above
    listed = value.parent
    if listed is None or listed.type != "expression_list" or listed.parent is None:
        return ""
    statement = listed.parent
    names = next((part for part in statement.named_children if part.type == "variable_list"), None)
    if names is None or statement.type != "assignment_statement":
        return ""
    place = listed.named_children.index(value)
    if place >= len(names.named_children) or names.named_children[place].type != "identifier":
        return ""
    return parsed.text(names.named_children[place])


def _uses(parsed: ParsedScript, node: Node) -> Iterator[Node]:
    """Where an element is used: at its own place, and wherever its variable is."""
    yield node
    name = node.parent
    if name is None or name.type != "expression_list":
        return
    told = _name_of(parsed, node)
    for part in parsed.chunk.nodes("identifier"):
        variable = parsed.scopes.variable(part)
        if variable is not None and variable.name.decode() == told and node in variable.values:
            yield part


def _note(parsed: ParsedScript, slot: Slot, use: Node, array: str) -> None:
    """What one use says of the type of an argument."""
    if array == "KEYS" or use.parent is None:
        return
    above = use.parent
    call = above.parent if above.type == "arguments" else None
    callee = parsed.text(call.named_children[0]) if call is not None and call.type == "function_call" else ""
    if above.type == "binary_expression" and above.children[1].type in ("==", "~="):
        slot.words |= {
            word.decode("utf-8", "replace") for part in above.named_children if (word := _word(parsed, part))
        }
    if callee == "tonumber" or (above.type == "binary_expression" and above.children[1].type in "+-*/%"):
        slot.types.add("number")
    elif callee == "cjson.decode":
        slot.types.add("json")
        decoded = _name_of(parsed, use)
        for node in parsed.chunk.nodes("dot_index_expression"):
            variable = parsed.scopes.variable(node.named_children[0])
            is_item = variable is not None and variable.kind == "loop"
            if (decoded and parsed.text(node.named_children[0]) == decoded) or is_item:
                is_written = node.parent is not None and node.parent.type == "variable_list"
                (slot.written if is_written else slot.members).add(parsed.text(node.named_children[1]))
    elif callee == "cmsgpack.unpack":
        slot.types.add("msgpack")


def _word(parsed: ParsedScript, node: Node) -> bytes | None:
    """The text that an expression is where it is no number, and not empty."""
    text = parsed.string(node) if node.type == "string" else None
    return text if text and len(text) <= 40 else None


def _unit_of(parsed: ParsedScript, call: WrittenCall, place: int) -> str:
    """What an argument of a command is, where it is a time."""
    if place == 1 and call.name in _UNIT_OF_FIRST:
        return _UNIT_OF_FIRST[call.name]
    if place == 0 or call.name not in ("SET", "GETEX"):
        return ""
    before = parsed.string(call.command.arguments[place - 1]) or b""
    return _UNITS.get(before.decode("utf-8", "replace").upper(), "")


def _index_of(parsed: _Called, node: Node, array: str = "KEYS") -> int | None:
    """The place in an array that an expression is, be it through tonumber."""
    node = parsed.only_value(node)
    while node.type == "function_call" and parsed.text(node.named_children[0]) in _READERS and arguments(node):
        node = parsed.only_value(arguments(node)[0])
    if node.type != "bracket_index_expression" or parsed.array(node.named_children[0]) != array:
        return None
    number = parsed.number(node.named_children[-1])
    return None if number is None or number < 1 else int(number)


def _beginnings(parsed: _Called, key: Node) -> Iterator[int]:
    """The places in ARGV of what a key begins with, where it is put together, or that a function is given to do so."""
    key = parsed.only_value(key)
    while key.type == "binary_expression" and key.children[1].type == "..":
        key = parsed.only_value(key.children[0])
        at = _index_of(parsed, key, "ARGV")
        if at is not None:
            yield at


def _type_of(command: str) -> str:
    if command in _SEVERAL:
        return ""
    if command in _STRINGS:
        return "string"
    match = re.match("PF|[LRHSZX]", command)
    return _TYPES[match[0].lower()] if match else ""


def _replies(parsed: _Called) -> Iterator[str]:
    """Kinds of what a script returns at its end, not of what its functions do."""
    found = False
    for node in parsed.chunk.nodes("return_statement"):
        if next(enclosing(node, "function_declaration", "function_definition"), None) != parsed.function:
            continue
        found = True
        values = [part for listed in node.named_children for part in listed.named_children]
        yield _reply(parsed, parsed.only_value(values[0])) if values else "nil"
    if not found:
        yield "nil"


def _texts_made(parsed: _Called, maker: str) -> tuple[str, ...]:
    """The texts that a script gives to a function such as ``redis.error_reply``."""
    calls = [node for node in parsed.chunk.nodes("function_call") if parsed.text(node.named_children[0]) == maker]
    texts = [parsed.string(arguments(node)[0]) for node in calls if arguments(node)]
    return tuple(dict.fromkeys(text.decode("utf-8", "replace") for text in texts if text))


def _reply(parsed: ParsedScript, node: Node) -> str:
    if node.type in ("number", "true") or (node.type == "unary_expression" and node.children[0].type == "#"):
        return "integer"
    if node.type in ("nil", "false"):
        return "nil"
    if node.type == "string":
        return "text"
    if node.type == "table_constructor":
        return "list"
    if node.type == "function_call":
        name = parsed.text(node.named_children[0])
        call = parsed.call_of(node)
        if call is not None:
            if call.name in _COUNTS:
                return "count"
            return "integer" if call.name in INTEGER else "text" if call.name in NIL_OR_TEXT else "anything"
        if name == "tonumber":
            return "integer"
        if name in ("tostring", "cjson.encode"):
            return "json" if name == "cjson.encode" else "text"
        if name in ("redis.status_reply", "redis.error_reply"):
            return "status" if name.endswith("status_reply") else "error"
        return "anything" if arguments(node) or name else "nil"
    return "integer" if node.type == "binary_expression" and node.children[1].type in "+-*/%" else "anything"
