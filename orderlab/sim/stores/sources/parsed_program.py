"""A parsed program: its expressions that are texts, its calls, and the names that lead to a value or a function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node, Tree

from orderlab.model.errors import InputError
from orderlab.sim.stores.sources.languages import Language

WRAPPERS = (
    *("parenthesized_expression", "parenthesized_statements", "as_expression", "satisfies_expression"),
    *("non_null_expression", "expression_list", "argument", "arrow_expression_clause", "literal_element"),
)
SUMS = ("binary_expression", "binary_operator", "binary")
SEQUENCES = ("concatenated_string", "chained_string")
CALLS = (
    *("call", "call_expression", "method_invocation", "invocation_expression"),
    *("function_call_expression", "member_call_expression", "scoped_call_expression"),
)
LISTS = (
    *("list", "tuple", "array", "array_creation_expression", "collection_literal", "collection_expression"),
    "argument_list",
)
PATHS = (
    *("field_access", "attribute", "member_expression", "selector_expression", "class_constant_access_expression"),
    *("scoped_property_access_expression", "scope_resolution", "member_access_expression", "navigation_expression"),
)
BODIES = ("block", "statement_block", "compound_statement", "body_statement", "function_body", "statement_list")
TRIMS = {
    **dict.fromkeys(("strip", "trim", "Trim", "TrimSpace"), "both"),
    **dict.fromkeys(("lstrip", "trimStart", "ltrim"), "left"),
    **dict.fromkeys(("rstrip", "trimEnd", "rtrim"), "right"),
}
"""Functions that take blanks off a text -> the ends at which they do."""
UNCHANGED = ("freeze", "toString", "ToString", "encode", "html_safe", "String", "valueOf", "str", "raw")
"""Functions that give back the text that they are given."""
MEMBERS = ("toString", "ToString", "encode", "freeze", "html_safe")
"""Those that a text has: what they are given is a form."""
BOXES = ("Long", "Integer", "Double", "Objects", "String")
"""Classes whose functions of those names are given a value."""
DEDENTS = ("dedent", "trimIndent", "stripIndent", "strip_heredoc")
FORMATS = ("format", "sprintf", "Sprintf", "formatted", "Format")
CHANGING = re.compile(r"(?:str_|preg_)?i?(?:replace|sub|gsub|strtr|substitute)(?:All|First)?!?", re.IGNORECASE)
"""Functions that replace parts of a text."""
BLANKS = re.compile(r"""[rgm/"'`(\[]*(?:\\+[sntr]|[ +*)\]{}0-9,gm/"'`^$])*\\+[sntr][ +*)\]{}0-9,gm/"'`]*""")
"""A pattern of blanks."""
JOINS = ("join", "implode", "Join", "joinToString")
DEPTH_MAX = 200
"""Expressions within one another."""
_SCOPES = (
    *("class", "module", "object_declaration", "interface", "enum", "struct", "namespace", "impl", "trait", "record"),
)
_SEVERAL = (
    "pattern_list", "tuple_pattern", "expression_list", "tuple", "left_assignment_list", "right_assignment_list",
    "array_pattern", "array", "list_literal",
)  # fmt: skip
"""Several names, or several values, side by side."""
_SIDES = (
    *(("name", "value"), ("name", "default_value"), ("property", "value"), ("left", "right"), ("key", "value")),
    ("name", "body"),
)


@dataclass
class Program:
    """A parsed file of another language."""

    path: str
    source: str
    """Bytes that are no UTF-8 as `surrogateescape` writes them."""
    language: Language
    tree: Tree
    data: bytes

    @classmethod
    def parse(cls, path: str, data: bytes, language: Language) -> Program:
        """The program that ``data`` holds. Raises InputError where the grammar of its language is not installed."""
        try:
            tree = language.parser.parse(data)
        except ImportError:
            package = language.module.replace("_", "-")
            raise InputError(f"{path}: reading {language.name} needs {package}; run: pip install {package}") from None
        return cls(path, data.decode("utf-8", "surrogateescape"), language, tree, data)

    def text(self, node: Node) -> str:
        """What stands in the file."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def line(self, node: Node) -> int:
        """The line that a node begins on, from 1."""
        return node.start_point[0] + 1

    @cached_property
    def heredocs(self) -> Mapping[int, Node]:
        """The bodies of Ruby's heredocs, by the byte at which their first line announces them."""
        begins = [node for node in walk(self.tree.root_node) if node.type == "heredoc_beginning"]
        bodies = [node for node in walk(self.tree.root_node) if node.type == "heredoc_body"]
        return {begin.start_byte: body for begin, body in zip(begins, bodies, strict=False)}

    @cached_property
    def definitions(self) -> list[tuple[tuple[str, ...], Node]]:
        """The names that lead to a value or a function (those of classes and objects first), and what it is."""
        return list(_definitions_of(self))

    @cached_property
    def changed(self) -> Mapping[str, tuple[int, str]]:
        """Names whose text the program replaces parts of: the line, and the function that does it. What makes a script
        shorter, blanks alone, changes nothing."""
        replaced: dict[str, tuple[int, str]] = {}
        for node in walk(self.tree.root_node):
            if node.type not in CALLS:
                continue
            name, receiver, given = self.call(node)
            if CHANGING.fullmatch(name):
                parts = {self.text(part): part for part in (*given, *([receiver] if receiver is not None else []))}
                if not any(BLANKS.fullmatch(text) for text in parts):
                    for text in parts:
                        replaced.setdefault(re.split(r"::|->|\.", text)[-1].lstrip("$@"), (self.line(node), name))
        return replaced

    def is_text(self, node: Node, depth: int = 0) -> bool:
        """Whether a literal is part of what this expression joins, trims or formats."""
        if depth > DEPTH_MAX:
            return False
        if node.type in self.language.literals or node.type in SEQUENCES:
            return True
        if node.type in WRAPPERS:
            return any(self.is_text(child, depth + 1) for child in plain(node)[:1])
        if node.type in SUMS:
            if self.operator(node) == "%" and self.language.name in ("Python", "Ruby"):
                return self.is_text(plain(node)[0], depth + 1)
            # Long sums lean to the left, deeper than calls may nest.
            return any(self.is_text(term, depth + 1) for term in self.terms(node))
        if node.type in CALLS:
            name, receiver, given = self.call(node)
            texts = [*([receiver] if receiver is not None else []), *given]
            if name in JOINS:
                return any(
                    self.is_text(item, depth + 1)
                    for part in texts
                    for item in (plain(part) if part.type in LISTS else [part])
                )
            if name in (*TRIMS, *UNCHANGED, *DEDENTS, *FORMATS, "trimMargin"):
                return any(self.is_text(part, depth + 1) for part in texts[:2])
        return False

    def operator(self, node: Node) -> str:
        """The operator of an expression with two sides."""
        return next((child.type for child in node.children if not child.is_named), "")

    def terms(self, node: Node) -> list[Node]:
        """The terms of a sum of strings; none where another operator stands."""
        found: list[Node] = []
        while node.type in SUMS:
            sides = plain(node)
            if self.operator(node) != self.language.plus or len(sides) != 2:
                break
            found.insert(0, sides[1])
            node = sides[0]
        return [node, *found] if found else []

    def call(self, node: Node) -> tuple[str, Node | None, list[Node]]:
        """Name of what is called, what it is called on, and its arguments."""
        callee = node.child_by_field_name("function")
        receiver = node.child_by_field_name("object") or node.child_by_field_name("receiver")
        name = node.child_by_field_name("name") or node.child_by_field_name("method")
        if callee is None and name is None and node.named_children:
            callee = node.named_children[0]
        if callee is not None:
            inner = callee.named_children
            if callee.type in PATHS and len(inner) >= 2:
                receiver, name = inner[0], inner[-1]
            else:
                name = callee
        listed = node.child_by_field_name("arguments")
        if listed is None:
            listed = next((part for part in node.named_children if part.type in ("value_arguments", "arguments")), None)
        given = [] if listed is None else [listed] if listed.type in self.language.literals else plain(listed)
        given = [
            plain(part)[-1] if part.type in ("value_argument", "argument") and plain(part) else part for part in given
        ]
        return "" if name is None else self.text(name).lstrip("\\"), receiver, given


def is_function(node: Node) -> bool:
    """Whether a definition's value is a body rather than an expression."""
    return node.type in BODIES


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, in the order of the file."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(reversed(part.children))


def plain(node: Node) -> list[Node]:
    """The children of a node that mean something: no punctuation, no comments."""
    return [child for child in node.named_children if "comment" not in child.type]


def inner_nodes(node: Node, kinds: tuple[str, ...]) -> Iterator[Node]:
    """The outermost nodes of these kinds below ``node``."""
    waiting = list(reversed(node.named_children))
    while waiting:
        part = waiting.pop()
        if part.type in kinds:
            yield part
        else:
            waiting.extend(reversed(part.named_children))


def _definitions_of(program: Program) -> Iterator[tuple[tuple[str, ...], Node]]:
    waiting: list[tuple[Node, tuple[str, ...]]] = [(program.tree.root_node, ())]
    while waiting:
        node, above = waiting.pop()
        inner = above
        if node.is_named and (several := _side_by_side(program, node)):
            yield from (((*above, name), value) for name, value in several)
        elif node.is_named and (named := _definition(program, node)) is not None:
            name, value = named
            inner = (*above, name)
            if value is not None:
                yield inner, value
        waiting.extend((child, inner) for child in reversed(node.children))


def _side_by_side(program: Program, node: Node) -> list[tuple[str, Node]]:
    """The names and values of an assignment of several (``a, b = x, y``); none where one side is not written out."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or len(plain(left)) < 2 or left.type not in _SEVERAL:
        return []
    names, values = plain(left), plain(right)
    if right.type not in _SEVERAL or len(names) != len(values):
        return []
    return [(_plain_name(program, name), value) for name, value in zip(names, values, strict=True)]


def _definition(program: Program, node: Node) -> tuple[str, Node | None] | None:
    """Name and value of what a node defines; a class has no value. None where it defines nothing."""
    if node.type.startswith(_SCOPES) and (name := node.child_by_field_name("name")) is not None:
        return program.text(name), None
    if node.type in CALLS:
        return _registered(program, node)
    for left, right in _SIDES if node.type not in SUMS else ():
        name, value = node.child_by_field_name(left), node.child_by_field_name(right)
        if name is not None and name.type in _SEVERAL and len(plain(name)) > 1:
            return None  # of several names none stands for the whole
        if name is not None and value is not None:
            return _plain_name(program, name), value
    if node.type in ("const_element", "property_element", "variable_declarator") and len(node.named_children) >= 2:
        return _plain_name(program, node.named_children[0]), node.named_children[-1]
    if node.type in ("property_declaration", "function_declaration"):  # Kotlin's, which names no fields
        names = [part for part in node.named_children if part.type in ("variable_declaration", "identifier")]
        values = node.named_children[-1:]
        if names and values and values[0] not in names:
            return program.text(names[0]).split(":")[0].strip(), values[0]
    return None


def _registered(program: Program, node: Node) -> tuple[str, Node | None] | None:
    """A call whose first argument is a name and that is handed a script: ``defineCommand("take", …)``."""
    _, _, given = program.call(node)
    if len(given) < 2 or not (given[0].type in program.language.literals or "symbol" in given[0].type):
        return None
    name = program.text(given[0]).strip("\"'`:")
    listed = node.child_by_field_name("arguments")
    return (name, listed) if listed is not None and re.fullmatch(r"[\w.:-]+", name) else None


def _plain_name(program: Program, node: Node) -> str:
    """A name without what a language puts around it."""
    told = program.text(node).strip("[]")
    return re.split(r"::|->|\.", told)[-1].strip("\"'`:$@ ")
