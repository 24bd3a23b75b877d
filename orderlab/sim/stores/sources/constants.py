"""What the expressions of a program are where they are constant: literals, joined and trimmed, and names that stand for
such.

What is not constant is a hole: a value that is known when the program runs. It is told by its own text, and filled from
a table that the user gives (``holes`` of store.toml).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from orderlab.model.errors import InputError
from orderlab.sim.stores.sources.languages import KOTLIN_NAME
from orderlab.sim.stores.sources.parsed_program import (
    BOXES,
    CALLS,
    DEDENTS,
    DEPTH_MAX,
    FORMATS,
    JOINS,
    LISTS,
    MEMBERS,
    PATHS,
    SEQUENCES,
    SUMS,
    TRIMS,
    UNCHANGED,
    WRAPPERS,
    Program,
    inner_nodes,
    is_function,
    plain,
)
from orderlab.sim.stores.sources.text import (
    ProgramString,
    joined,
    without_blank_ends,
    without_indent,
    without_margin,
)

BRACES = re.compile(r"\{\{|\}\}|\{(?P<place>\w*)(?P<form>[^\w{}][^{}]*)?\}")
PERCENTS = re.compile(r"%%|%(?:(?P<place>\d+)\$)?(?:[sdiv]|(?P<form>\(\w+\)[a-z]|[-+ #0-9.*]*[a-zA-Z]))")
"""Places for values in texts of two kinds; ``form``: with more to it than the value."""
NAMES = ("identifier", "constant", "name", "variable_name", "instance_variable", "class_variable", "global_variable")
NUMBERS = ("integer", "number", "decimal_integer_literal", "int_literal", "integer_literal", "number_literal")


@dataclass
class Constants:
    """The texts of a program's expressions, holes filled."""

    program: Program
    holes: Mapping[str, str] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)
    """Holes that were filled."""

    def value(self, node: Node, names: tuple[str, ...] = ()) -> ProgramString:
        """The text of an expression. ``names``: those that are being looked up. Raises InputError at a hole."""
        if len(names) > DEPTH_MAX:
            raise self.hole(node)
        if node.type in self.program.language.literals:
            return self._literal(node, names)
        if node.type in WRAPPERS and plain(node):
            return self.value(plain(node)[0], names)
        if node.type in SEQUENCES:
            return joined([self.value(child, names) for child in plain(node)])
        if node.type in SUMS and (terms := self.program.terms(node)) and terms[0] != node:
            return joined([self.value(term, names) for term in terms])
        if node.type in SUMS and self.program.operator(node) == "%":
            form, given = plain(node)
            return self._formatted(node, form, plain(given) if given.type in LISTS else [given], names)
        if node.type in CALLS and (found := self._called(node, names)) is not None:
            return found
        if node.type in NUMBERS:
            return ProgramString.on(self.program.text(node).replace("_", ""), self.program.line(node))
        if node.type in ("character_literal", "simple_symbol", "hash_key_symbol"):
            return ProgramString.on(self.program.text(node).strip("':"), self.program.line(node))
        if node.type in (*NAMES, *PATHS):
            return self._named(node, names)
        return self._filled(node)

    def _literal(self, node: Node, names: tuple[str, ...]) -> ProgramString:
        """A literal, with what is put into it."""
        whole = self.program.heredocs.get(node.start_byte) if node.type == "heredoc_beginning" else node
        if whole is None:
            raise InputError(
                f"{self.program.path}:{self.program.line(node)}: a heredoc without its end; correct the file"
            )
        into = list(inner_nodes(whole, self.program.language.interpolations))
        marks = self._marks(len(into))
        text, end, put = ProgramString(), whole.start_byte, {}
        for inner, mark in zip(into, marks, strict=True):
            begin, behind = self._around(inner)
            text += self._raw(end, begin) + ProgramString.on(mark, self.program.line(inner))
            put[mark], end = self._put(inner, names), behind
        text += self._raw(end, whole.end_byte)
        if self.program.language.newline:
            text = text.replaced(re.compile("\r\n?"), lambda match: "\n")
        if self.program.language.name == "Kotlin":
            text = text.replaced(KOTLIN_NAME, lambda match: self._by_name(match[1], node, names).characters)
        decoded = self.program.language.decode(node, text)
        parts, first = [], 0
        for at, character in enumerate(decoded.characters):
            if character in put:
                parts += [decoded[first:at], put[character]]
                first = at + 1
        return joined([*parts, decoded[first:]])

    def _marks(self, count: int) -> list[str]:
        """Characters that the file does not hold, each to stand for a value until the text around it is decoded."""
        found: list[str] = []
        code = 0xF0000
        while len(found) < count:
            if chr(code) not in self.program.source:
                found.append(chr(code))
            code += 1
        return found

    def _around(self, node: Node) -> tuple[int, int]:
        """First byte of what stands for a value, and the byte behind it: PHP's braces are its own."""
        begin, end = node.start_byte, node.end_byte
        if (
            self.program.language.name == "PHP"
            and self.program.data[begin - 1 : begin] == b"{"
            and self.program.data[end : end + 1] == b"}"
        ):
            return begin - 1, end + 1
        return begin, end

    def _put(self, node: Node, names: tuple[str, ...]) -> ProgramString:
        """What an interpolation is. Its expression is the child that is no brace and no conversion."""
        if node.type not in ("interpolation", "template_substitution"):
            return self.value(node, names)
        inner = [child for child in plain(node) if child.type != "interpolation_brace"]
        if len(inner) != 1:  # a conversion or a form behind it
            return self._filled(node)
        return self.value(inner[0], names)

    def _raw(self, begin: int, end: int) -> ProgramString:
        text = self.program.data[begin:end].decode("utf-8", "surrogateescape")
        return ProgramString.at(text, self.program.data.count(b"\n", 0, begin) + 1)

    def _called(self, node: Node, names: tuple[str, ...]) -> ProgramString | None:
        """What a call of a library's function on texts gives; None for any other."""
        name, receiver, given = self.program.call(node)
        if name == "dedent" and given:
            return without_indent(self.value(given[0], names), last_counts=False, empty_blank=True)
        if name in DEDENTS and receiver is not None:
            text = self.value(receiver, names)
            return without_indent(without_blank_ends(text) if name == "trimIndent" else text, last_counts=False)
        if name == "trimMargin" and receiver is not None:
            return without_margin(self.value(receiver, names))
        if name in TRIMS:
            on = receiver if receiver is not None and self.program.is_text(receiver) else next(iter(given), receiver)
            among = given if on is receiver else given[1:]
            blanks = self.value(among[0], names).characters if among else None
            return None if on is None else self.value(on, names).stripped(blanks, TRIMS[name])
        if name in UNCHANGED and (receiver is not None or given):
            is_own = (
                receiver is not None
                and self.program.text(receiver) not in BOXES
                and (name in MEMBERS or self.program.is_text(receiver) or not given)
            )
            return self.value(receiver if receiver is not None and is_own else given[0], names)
        if name in JOINS:
            return self._joined(receiver, given, names)
        if name in FORMATS and (given or receiver is not None):
            if receiver is not None and self.program.is_text(receiver):
                return self._formatted(node, receiver, given, names)
            return self._formatted(node, given[0], given[1:], names) if given else None
        return None

    def _joined(self, receiver: Node | None, given: list[Node], names: tuple[str, ...]) -> ProgramString | None:
        """Texts of a list with another between them, in each language's order of the two."""
        several = [part for part in ([receiver] if receiver is not None else []) + given if part.type in LISTS]
        if several:
            items = plain(several[0])
            others = [part for part in [*given, receiver] if part is not None and part is not several[0]]
            between = next(filter(self.program.is_text, others), None)
        elif given:
            between, items = given[0], given[1:]
        else:
            return None
        return joined(
            [self.value(item, names) for item in items],
            ProgramString() if between is None else self.value(between, names),
        )

    def _formatted(self, node: Node, form: Node, given: list[Node], names: tuple[str, ...]) -> ProgramString:
        """A text with its places filled one after the other: ``%s``, ``%d``, or Python's and C#'s braces."""
        text = self.value(form, names)
        braces = self.program.language.name in ("Python", "C#") and node.type in CALLS
        pattern = BRACES if braces else PERCENTS
        taken = iter(given)
        parts, first = [], 0
        for match in pattern.finditer(text.characters):
            parts.append(text[first : match.start()])
            first = match.end()
            if match[0] in ("{{", "}}", "%%"):
                parts.append(text[match.start() : match.start() + 1])
                continue
            if match["form"]:  # widths, hexadecimal digits, members: what it makes of a value is not known
                parts.append(self._hole_named(match[0], node))
                continue
            place = match["place"]
            if place and place.isdigit():
                number = int(place) - (not braces)
                argument = given[number] if 0 <= number < len(given) else None
            elif place:
                argument = next((part for part in given if self.program.text(part).startswith(f"{place}=")), None)
                argument = plain(argument)[-1] if argument is not None else None
            else:
                argument = next(taken, None)
            if argument is None:
                parts.append(self._hole_named(match[0], node))
            else:
                parts.append(self.value(argument, names))
        return joined([*parts, text[first:]])

    def _named(self, node: Node, names: tuple[str, ...]) -> ProgramString:
        """What a name stands for in this file, if it is one text; else a hole."""
        told = self.program.text(node)
        if told in self.holes:
            return self._filled(node)
        if node.type in PATHS and self.program.is_text(plain(node)[0]):
            return self._filled(node)  # a member of a text, and not the text
        return self._by_name(re.split(r"::|->|\?\.|\.", told)[-1].lstrip("$@"), node, names, told)

    def _by_name(self, name: str, node: Node, names: tuple[str, ...], told: str = "") -> ProgramString:
        values = [value for path, value in self.program.definitions if path[-1] == name and not is_function(value)]
        if name in names or len(values) != 1:
            return self._hole_named(told or name, node)
        return self.value(values[0], (*names, name))

    # -- holes ---------------------------------------------------------------------------------------------------------

    def _filled(self, node: Node) -> ProgramString:
        return self._hole_named(self.program.text(node), node)

    def _hole_named(self, name: str, node: Node) -> ProgramString:
        stripped = " ".join(re.sub(r"^(?:\$?\{|#\{)(.*)\}$", r"\1", name.strip(), flags=re.DOTALL).split())
        for each in (name, stripped):
            if each in self.holes:
                self.filled.add(each)
                return ProgramString.on(self.holes[each], self.program.line(node))
        raise self.hole(node, stripped)

    def hole(self, node: Node, name: str = "") -> Hole:
        """The error that names a hole, in one line, and how it is filled."""
        return Hole(self.program.path, self.program.line(node), " ".join((name or self.program.text(node)).split()))


class Hole(InputError):
    """A script that is known only when its program runs."""

    def __init__(self, path: str, line: int, name: str) -> None:
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        super().__init__(
            f'{path}:{line}: the script has a hole, {name}; say what stands there: holes = {{ "{quoted}" = "..." }} '
            "in store.toml"
        )
        self.line, self.name = line, name
