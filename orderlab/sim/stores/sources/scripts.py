"""Which names of a program lead to a script: constants, fields, members of objects, functions that return one or hand
one on, and commands that are registered under a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from tree_sitter import Node

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.sources.constants import Constants
from orderlab.sim.stores.sources.languages import LANGUAGES
from orderlab.sim.stores.sources.parsed_program import CALLS, Program, is_function, walk
from orderlab.sim.stores.sources.text import ProgramString, as_bytes

LOOKS_LIKE_LUA = re.compile(
    r"\b(?:redis|server)\s*\.\s*(?:p?call|register_function|error_reply|status_reply|sha1hex)\b|\b(?:KEYS|ARGV)\s*\["
)
"""What a script has that hardly any other text has."""
_NTH = re.compile(r"(?P<name>.*?)(?:\[(?P<number>\d+)\])?")


@dataclass(frozen=True)
class EmbeddedScript:
    """A script that a program holds."""

    name: str
    """By which ``FILE#NAME`` finds it."""
    line: int
    """That it begins on, from 1."""
    text: ProgramString | None
    """None where it cannot be known."""
    why_not: str = ""


def parsed(path: str, data: bytes, holes: Mapping[str, str]) -> Constants:
    """The texts of the program at ``path``, whose content is ``data``. Raises InputError where its language is not
    known."""
    suffix = PurePath(path).suffix
    if suffix not in LANGUAGES:
        raise InputError(f'{path}: "#" names a string of a program; {did_you_mean(suffix, [*LANGUAGES])}')
    return Constants(Program.parse(path, data, LANGUAGES[suffix]), holes)


def sent(text: ProgramString) -> tuple[bytes, list[tuple[int, int]]]:
    """What goes to a server, and (line of the file, number of lines) of each run of its lines that stand one below the
    other in the file."""
    runs = [
        [line for _, line in run]
        for _, run in groupby(enumerate(text.line_numbers()), key=lambda numbered: numbered[1] - numbered[0])
    ]
    return as_bytes(text), [(run[0], len(run)) for run in runs]


def scripts_of(constants: Constants) -> list[EmbeddedScript]:
    """Every script of a program that looks like one, by the shortest name that leads to it alone."""
    program = constants.program
    found: dict[tuple[str, ...], dict[int, Node]] = {}
    seen: set[int] = set()
    for path, value in reversed(program.definitions):  # the innermost names first
        texts = [part for part in texts_below(program, value) if _looks_like_lua(program, part)]
        # A name that is given twice leads to the texts of both; what an inner name leads to counts here all the same.
        if {part.start_byte for part in texts} - seen or path in found:
            found.setdefault(path, {}).update({part.start_byte: part for part in texts})
        seen |= {part.start_byte for part in texts}
    named: dict[int, EmbeddedScript] = {}
    for path, nodes in found.items():
        for number, (begin, node) in enumerate(sorted(nodes.items()), 1):
            if begin in named:
                continue
            name = _shortest(program, path) + (f"[{number}]" if len(nodes) > 1 else "")
            if _is_piece(program, path[-1], node):
                continue
            try:
                named[begin] = EmbeddedScript(name, program.line(node), unchanged(constants, node))
            except InputError as error:
                named[begin] = EmbeddedScript(name, program.line(node), None, str(error))
    return [named[begin] for begin in sorted(named)]


_NAMES = ("identifier", "name", "constant", "property_identifier", "field_identifier", "simple_identifier")
_ABOVE_MAX = 12
"""How far above a name the text is looked for that it is a part of."""


def _is_piece(program: Program, name: str, value: Node) -> bool:
    """Whether a text is no script of its own: wherever the program names it, it stands within another text."""
    uses = [
        node
        for node in walk(program.tree.root_node)
        if node.type in _NAMES and program.text(node).lstrip("$") == name and not _names(node, value)
    ]
    return bool(uses) and all(_is_in_text(program, node) for node in uses)


def _names(node: Node, value: Node) -> bool:
    """Whether it is what a value is called where it is given, or a part of the value."""
    around = (node, node.parent, None if node.parent is None else node.parent.parent)
    holds = (each for each in around if each is not None and each.start_byte <= value.start_byte)
    is_before = node.end_byte <= value.start_byte and any(each.end_byte >= value.end_byte for each in holds)
    return is_before or value.start_byte <= node.start_byte < value.end_byte


def _is_in_text(program: Program, node: Node) -> bool:
    above = node.parent
    for _ in range(_ABOVE_MAX):
        if above is None or is_function(above):
            return False
        if program.is_text(above):
            return True
        above = above.parent
    return False


def _shortest(program: Program, path: tuple[str, ...]) -> str:
    for length in range(1, len(path) + 1):
        if {part for part, _ in program.definitions if part[-length:] == path[-length:]} == {path}:
            break
    return ".".join(path[-length:])


def script_named(constants: Constants, wanted: str) -> ProgramString:
    """The script that a name leads to: the value of a constant or what a function returns; else the one text within
    that looks like Lua; ``NAME[2]`` is the second of several. Raises InputError that names the place and the cure."""
    program = constants.program
    match = _NTH.fullmatch(wanted)
    assert match is not None
    path = tuple(re.split(r"\.|::", match["name"]))
    alike = [(part, value) for part, value in program.definitions if part[-len(path) :] == path]
    if any(part == path and is_script(program, value) for part, value in alike):
        alike = [(part, value) for part, value in alike if part == path]  # of the file itself, before those within
    if not alike:
        known = [part.name for part in scripts_of(constants)]
        cure = (
            did_you_mean(match["name"], known)
            if known
            else f"no string in it looks like a script ({program.language.name})"
        )
        raise InputError(f'{program.path}: nothing there is called "{match["name"]}"; {cure}')
    texts: list[Node] = []
    for _, value in alike:
        around = value.parent or value  # what is left over stands beside the value
        if (broken := next((part for part in walk(around) if part.is_error or part.is_missing), None)) is not None:
            language = program.language.name
            raise InputError(f"{program.path}:{program.line(broken)}: cannot be parsed as {language}; correct the file")
        within = texts_below(program, value)
        lua = [part for part in within if _looks_like_lua(program, part)]
        texts += direct_texts(program, value) or lua or (within if len(within) == 1 else [])
    texts = sorted({part.start_byte: part for part in texts}.values(), key=lambda part: part.start_byte)
    if match["number"] is not None:
        number = int(match["number"])
        if not 1 <= number <= len(texts):
            raise InputError(f'{program.path}: "{match["name"]}" has {len(texts)} scripts; number them from 1')
        texts = [texts[number - 1]]
    if not texts:
        raise InputError(f'{program.path}: no string in "{match["name"]}" looks like a script; name what holds one')
    if len(texts) > 1:
        lines = ", ".join(str(program.line(part)) for part in texts[:5])
        paths = sorted({".".join(part) for part, _ in alike})
        cure = f"say which: {paths[0]}" if len(paths) > 1 else f'say which: "{wanted}[1]"'
        raise InputError(f'{program.path}: "{wanted}" leads to {len(texts)} scripts (lines {lines}); {cure}')
    return unchanged(constants, texts[0])


def is_script(program: Program, value: Node) -> bool:
    """Whether a definition's value, or what a function returns, is a text that looks like Lua."""
    return any(_looks_like_lua(program, part) for part in direct_texts(program, value))


def unchanged(constants: Constants, node: Node) -> ProgramString:
    """The text of an expression. Raises InputError where it has a hole, or the program goes on to change it."""
    program = constants.program
    for call in (node.parent, None if node.parent is None else node.parent.parent):
        if call is None or call.type not in CALLS:
            continue
        name, receiver, _ = program.call(call)
        if receiver is not None and (receiver.start_byte, receiver.end_byte) == (node.start_byte, node.end_byte):
            raise InputError(
                f"{program.path}:{program.line(node)}: the program changes this string by {name}(), which is not read; "
                "put the script as it is sent into a file"
            )
    for name in {path[-1] for path, value in program.definitions if value == node} & program.changed.keys():
        line, function = program.changed[name]
        raise InputError(
            f"{program.path}:{line}: the program changes {name} by {function}() before it sends it, which is not read; "
            "put the script as it is sent into a file"
        )
    return constants.value(node)


def direct_texts(program: Program, value: Node) -> list[Node]:
    """A definition's value where it is a text, or the texts that a function returns."""
    if not is_function(value):
        return [value] if program.is_text(value) else []
    returned = [part for part in walk(value) if part.type in ("return_statement", "return_expression")]
    texts = [child for part in returned for child in part.named_children if program.is_text(child)]
    last = [part for part in value.named_children if "comment" not in part.type][-1:]
    if not returned and last and program.is_text(last[0]):
        return last
    if last and is_function(last[0]) and not returned:
        return direct_texts(program, last[0])
    return texts


def texts_below(program: Program, node: Node) -> list[Node]:
    """The outermost expressions at or below a node that are texts."""
    found, waiting = [], [node]
    while waiting:
        part = waiting.pop()
        if part.is_named and program.is_text(part):
            found.append(part)
        else:
            waiting.extend(reversed(part.children))
    return found


def _looks_like_lua(program: Program, node: Node) -> bool:
    told = program.text(node)
    if "heredoc_beginning" in told or program.language.name == "Ruby":
        told += "".join(
            program.text(program.heredocs[part.start_byte])
            for part in walk(node)
            if part.type == "heredoc_beginning" and part.start_byte in program.heredocs
        )
    return LOOKS_LIKE_LUA.search(told) is not None
