"""Where programs call their scripts: which keys and arguments they pass, in which order, and how they spell them.

Verified: calls in which the script is named by itself (a constant, an object that was made of one, a command that was
registered with its number of keys), with keys and arguments written there or in a list that one name stands for, spread
or not. Not read: what is put together while the program runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tree_sitter import Node

from orderlab.sim.stores.sources.constants import Constants
from orderlab.sim.stores.sources.functions import own_calls
from orderlab.sim.stores.sources.parsed_program import CALLS, LISTS, PATHS, Program, plain, walk
from orderlab.sim.stores.sources.spelling import HOLE, TOLD_IN, ClockReading, Spelling, moment_of

_LISTING = frozenset(
    ("singletonList", "asList", "of", "listOf", "arrayOf", "List", "Arrays", "mutableListOf", "singleton", "concat")
)
"""Functions that make a list of their arguments."""
_LISTED = (*LISTS, "composite_literal", "array_initializer", "literal_value", "array_creation_expression")
_INITIALIZERS = ("array_initializer", "literal_value", "initializer_expression")
_ELEMENTS = ("array_element_initializer", "literal_element")
_GROWING = ("push", "append", "add", "Add")
"""Functions of a list that put more behind what it holds."""
_KEYS = ("keys", "KEYS")
_ARGUMENTS = ("args", "argv", "arguments", "ARGV")
NAMED = ("identifier", "name", "constant", "property_identifier", "field_identifier", "simple_identifier")
SPREADS = ("spread_element", "list_splat", "splat_argument", "variadic_unpacking", "variadic_argument")
"""Lists that are passed as so many arguments."""
_COUNTED = re.compile(r"^(?:len\((?P<inner>[\w.]+)\)|(?P<path>[\w.$>-]+?)(?:\.|->)(?:length|size)(?:\(\))?)$")
"""How many a list has: ``keys.length``, ``len(keys)``."""
_NUMBER_OF_KEYS = ("numberOfKeys", "number_of_keys", "NUMBER_OF_KEYS")
_COMMANDS = frozenset(("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro", "script"))
"""Commands that a client sends by their names, with any script."""
_FILE = re.compile(r"([\w.-]+)\.lua\b")
"""A file that a program loads a script from."""
_MADE = ("object_creation_expression", "new_expression", "expression_list", "arguments", "argument_list")
"""What an object that stands for a script is made by, beside calls; the last two of commands that are registered."""
_PAIRS = ("keyword_argument", "pair", "named_argument", "argument")


_NO_NAMES = frozenset(("this", "self", "String", "valueOf", "toString", "str", "int", "string", "Long", "if", "else"))


_PATH = re.compile(r"[\w.$@>:()?!&\[\]-]*")
_IN_MS = re.compile(r"^(?:\(\w+\) ?)?(?:[\w.]+\()?\(?(?P<path>[\w.$@>-]+) ?\* ?1_?000(?:\.0)?\)*$")
"""Seconds that a program makes milliseconds of: what they are called stays."""


@dataclass(frozen=True)
class Passed:
    """One key or argument as a program passes it."""

    text: str
    """What is constant of it, with the program's words for the rest in braces."""
    name: str
    """A name that the program has for it; empty where it has none."""
    is_constant: bool
    moment: ClockReading | None = None
    """Of a time that is read from a clock."""

    shape: str = ""
    """The same wherever the program spells this key, whatever its variables are called: ``*`` for a variable."""


@dataclass(frozen=True)
class CallSite:
    """One place at which a program calls a script."""

    script: str
    """The name by which the program's strings are found, or the stem of a Lua file."""
    path: str
    line: int
    keys: tuple[Passed, ...]
    arguments: tuple[Passed, ...]
    is_read_only: bool
    around: str = ""
    """The program's function that calls it."""


def calls_of(
    constants: Constants, scripts: Collection[str], numbers: Mapping[str, int] = MappingProxyType({})
) -> list[CallSite]:
    """The calls of scripts in a program. ``scripts``: names that lead to one, or stems of Lua files; ``numbers``: of
    keys, where the file's name says it. A function that hands on what it is given stands for each of its own calls."""
    program = constants.program
    spelling = Spelling(program, constants.holes)
    by_last = {re.split(r"\.|::", re.sub(r"\[\d+\]$|(?<=\w)\.lua$", "", name))[-1]: name for name in scripts}
    aliases = _aliases(program, by_last)
    counts = {**numbers, **_registered_counts(program)}
    results = []
    for node in walk(program.tree.root_node):
        if node.type not in CALLS:
            continue
        near = {name: [one for at, one in given if at < node.start_byte][-1:] for name, given in aliases.items()}
        names = {**by_last, **{name: nearest[0] for name, nearest in near.items() if nearest}}
        for inside in _spellings(spelling, node):
            if (site := _site(inside, node, names, counts)) is not None and site not in results:
                results.append(site)
    return results


_HANDED_ON_MAX = 3
"""Functions that hand a key on to one another."""
_CALLERS_MAX = 8


def _spellings(spelling: Spelling, node: Node, depth: int = 0) -> list[Spelling]:
    """How the parameters of the function around a call are spelled, for each call of that function in the program."""
    function = spelling.function_around(node)
    if function is None or not function.parameters or depth == _HANDED_ON_MAX:
        return [spelling]
    results = []
    for call, name, given in own_calls(spelling.program):
        if name == function.name and given and spelling.function_around(call) is not function:
            results += [outer.within(function, given) for outer in _spellings(spelling, call, depth + 1)]
    return results if 0 < len(results) <= _CALLERS_MAX else [spelling]


def _last(text: str) -> str:
    """The last of the names in a path, ``self.release`` as ``release``."""
    return re.split(r"::|->|\?\.|\.", text.removesuffix("()").strip())[-1].lstrip("$@&*").strip("\"'`:")


def _aliases(program: Program, names: dict[str, str]) -> dict[str, list[tuple[int, str]]]:
    """Names of objects that were made of one script (``release = client.register_script(RELEASE)``): where each was
    given, and to which."""
    results: dict[str, list[tuple[int, str]]] = {}
    for path, value in program.definitions:
        if value.type in ("arguments", "argument_list") and path[-1].lower() in _COMMANDS:
            continue
        if value.type in CALLS or value.type in _MADE:
            words = {_last(program.text(part)) for part in walk(value) if part.type in NAMED}
            files = {match for part in walk(value) if not part.children for match in _FILE.findall(program.text(part))}
            led = {names[word] for word in (files or words) if word in names}
            if not led:  # a file's stem, given to a function that reads it
                texts = {program.text(part) for part in walk(value) if not part.children}
                led = {names[text] for text in texts if text in names}
            if len(led) == 1:
                results.setdefault(path[-1], []).append((value.start_byte, led.pop()))
    return results


def _registered_counts(program: Program) -> dict[str, int]:
    """Commands that are registered with a script (``defineCommand("take", { numberOfKeys: 2, lua })``): how many keys
    each takes."""
    counts = {}
    for path, value in program.definitions:
        if value.type not in ("arguments", "argument_list"):
            continue
        named = {name: program.text(part) for name, part in _named_parts(program, plain(value))}
        number = next((named[name] for name in _NUMBER_OF_KEYS if name in named), "")
        if number.isdigit():
            counts[path[-1]] = int(number)
    return counts


def _site(spelling: Spelling, node: Node, names: dict[str, str], counts: dict[str, int]) -> CallSite | None:
    program = spelling.program
    name, receiver, given = program.call(node)
    if re.search(r"register|define|NewScript|load|prepare|digest|sha1|^new", name, re.IGNORECASE):
        return None
    script, rest = "", list(given)
    for place, part in enumerate(given):
        word = _last(program.text(part).split("(")[0])
        if word in names and part.type not in _LISTED and part.type not in _PAIRS:
            script, rest = names[word], list(given[place + 1 :])
            break
    if not script:
        called = _last(program.text(receiver)) if receiver is not None else ""
        script = names.get(called, "") or names.get(_last(name), "")
        if not script or program.is_text(node):
            return None
    keys_and_arguments = _split(spelling, rest, counts.get(_last(name), counts.get(script)))
    if keys_and_arguments is None:
        return None
    keys, arguments = (tuple(_passed(spelling, part) for part in parts) for parts in keys_and_arguments)
    around = spelling.function_around(node)
    return CallSite(
        script, program.path, program.line(node), keys, arguments, name.lower().endswith("ro"),
        around.name if around is not None else "",
    )  # fmt: skip


def _split(spelling: Spelling, given: Sequence[Node], count: int | None) -> tuple[list[Node], list[Node]] | None:
    """Keys and arguments, in each client's way of passing them. ``count``: of keys, where the command was registered
    with it."""
    program = spelling.program
    named = dict(_named_parts(program, given))
    if any(word in named for word in _KEYS):
        keys = _items(spelling, next(named[word] for word in _KEYS if word in named))
        listed = next((named[word] for word in _ARGUMENTS if word in named), None)
        arguments = [] if listed is None else _items(spelling, listed)
        return None if keys is None or arguments is None else (keys, arguments)
    parts = _written_out(spelling, given)
    if count is not None:
        if parts is not None and len(parts) == 1:
            parts = _items(spelling, parts[0]) or parts
        return None if parts is None else (parts[:count], parts[count:])
    for place, part in enumerate(given):
        if (number := _counted(spelling, part)) is not None:  # so many keys, then all one after the other
            rest = _written_out(spelling, given[place + 1 :])
            if rest is None:
                return None
            if len(rest) == 1 and (items := _items(spelling, rest[0])) is not None:
                rest = items
            return rest[:number], rest[number:]
        if part.type not in SPREADS and (keys := _items(spelling, part)) is not None:
            rest = _written_out(spelling, given[place + 1 :])
            if rest is None:
                return None
            # Phpredis: keys come first of all.
            if len(rest) == 1 and (number := _counted(spelling, rest[0])) is not None:
                return keys[:number], keys[number:]
            if len(rest) == 1 and (items := _items(spelling, rest[0])) is not None:
                return keys, items
            return keys, [each for each in rest if each.type not in _PAIRS]
    return None


def _counted(spelling: Spelling, node: Node) -> int | None:
    """A number that is written out, or the length of a list that is."""
    text = spelling.program.text(node)
    if text.isdigit():
        return int(text)
    if (listed := _COUNTED.match(text)) is None:
        return None
    items = _named_list(spelling, _last(listed["inner"] or listed["path"]), node, 0)
    return None if items is None else len(items)


def _written_out(spelling: Spelling, given: Sequence[Node], depth: int = 0) -> list[Node] | None:
    """Arguments, with the items of lists that are spread in their places; None where a list is not written out."""
    parts: list[Node] = []
    for part in given:
        if part.type not in SPREADS:
            parts.append(part)
        elif (items := _items(spelling, plain(part)[-1], depth + 1)) is None:
            return None
        else:
            parts += items
    return parts


def _named_parts(program: Program, given: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    for part in given:
        pairs = [part] if part.type in _PAIRS else plain(part) if part.type in ("object", "hash", "dictionary") else []
        for pair in pairs:
            name = pair.child_by_field_name("name") or pair.child_by_field_name("key")
            value = pair.child_by_field_name("value")
            if name is not None and value is not None:
                yield program.text(name).strip("\"'`:"), value


def _items(spelling: Spelling, node: Node, depth: int = 0) -> list[Node] | None:
    """The items of a list: written here, made by a function of its items, or the one value of a name."""
    if depth > 3:
        return None
    if node.type in ("expression_list", "parenthesized_expression") and len(plain(node)) == 1:
        return _items(spelling, plain(node)[0], depth)
    if node.type in ("array_creation_expression", "composite_literal", "object_creation_expression"):
        inner = next((part for part in reversed(plain(node)) if part.type in _INITIALIZERS), None)
        if inner is not None:
            return [plain(part)[-1] if part.type == "literal_element" else part for part in plain(inner)]
        if node.type != "array_creation_expression":
            return None
    if node.type in _LISTED:
        return _written_out(
            spelling, [plain(part)[-1] if part.type in _ELEMENTS else part for part in plain(node)], depth
        )
    if node.type in CALLS:
        name, receiver, given = spelling.program.call(node)
        if name == "concat" and receiver is not None:
            parts = [(_items(spelling, part, depth + 1), part) for part in (receiver, *given)]
            listed = [[part] if items is None else items for items, part in parts]
            return None if parts[0][0] is None else [item for items in listed for item in items]
        if name == "append" and receiver is None and given:  # Go's
            begun, rest = _items(spelling, given[0], depth + 1), _written_out(spelling, given[1:], depth + 1)
            return None if begun is None or rest is None or not _is_certain(spelling, node) else [*begun, *rest]
        if name.split("<")[0] in _LISTING:
            return list(given)
        returned = spelling.returned_by(node)
        return None if returned is None else _items(spelling, returned, depth + 1)
    if node.type in ("identifier", "variable_name", *PATHS):
        return _named_list(spelling, _last(spelling.program.text(node)), node, depth)
    return None


def _named_list(spelling: Spelling, name: str, node: Node, depth: int) -> list[Node] | None:
    """The items of the list that a name stands for: that which it was given last before ``node`` in the same function,
    or the one value that it has."""
    values = [value for path, value in spelling.program.definitions if path[-1] == name]
    near = spelling.near(values, node)
    if not near and len(values) != 1:
        return None
    items = _items(spelling, (near or values)[-1], depth + 1)
    for call in _growing(spelling, name, near[-1] if near else node, node):
        _, _, given = spelling.program.call(call)
        if (
            items is None
            or not _is_certain(spelling, call)
            or (more := _written_out(spelling, given, depth + 1)) is None
        ):
            return None
        items = [*items, *more]
    return items


def _growing(spelling: Spelling, name: str, first: Node, last: Node) -> list[Node]:
    """The calls in a function that add to the list of that name, behind one node and before another."""
    around = spelling.function_around(last)
    calls = [] if around is None else [part for part in walk(around.node) if part.type in CALLS]
    growing: list[Node] = []
    for call in calls:
        function, receiver, _ = spelling.program.call(call)
        if function in _GROWING and receiver is not None and _last(spelling.program.text(receiver)) == name:
            growing += [call] if first.end_byte <= call.start_byte and call.end_byte <= last.start_byte else []
    return growing


def _is_certain(spelling: Spelling, node: Node) -> bool:
    """Whether a statement is carried out once, whenever its function is."""
    around = spelling.function_around(node)
    while (above := node.parent) is not None and (around is None or above.id != around.node.id):
        if re.match(r"(?:if|for|while|do_|switch|match|case|conditional|unless|foreach|when|loop)", above.type):
            return False
        node = above
    return True


def _passed(spelling: Spelling, node: Node) -> Passed:
    text = spelling.spelled(node)
    holes = HOLE.findall(text)
    last = _IN_MS.sub(r"\g<path>", holes[-1]) if holes else ""
    words = re.findall(r"[A-Za-z_]\w*", last)
    words = [word for word in words if word not in _NO_NAMES and not TOLD_IN.fullmatch(word)]
    moment = moment_of(holes[0]) if len(holes) == 1 and text == f"\x01{holes[0]}\x02" else None
    if moment is not None and not moment.added:
        words = ["now"]
    elif not holes or not _PATH.fullmatch(last):
        words = []  # what an expression makes of a value is not what its name says
    name = words[-1] if words else ""
    shape = HOLE.sub(lambda match: _shape(match[1]), text)
    return Passed(HOLE.sub(lambda match: "{" + match[1] + "}", text), name.lstrip("_"), not holes, moment, shape)


def _shape(hole: str) -> str:
    """A call by its function and the texts that it is given; ``*`` for anything else."""
    match = _CALL_OF.match(hole)
    return "*" if match is None else f"{match[1]}({','.join(re.findall(_QUOTED, hole))})"


_CALL_OF = re.compile(r"(?:[\w$]+(?:\.|->|::))*(\w+)\(")
_QUOTED = r"(?<=[\"'`])[\w:.-]+(?=[\"'`])"
