"""The functions of a program as far as they make texts: what they are called, what they take, what they return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from orderlab.sim.stores.sources.parsed_program import CALLS, Program, is_function, plain, walk

_RETURNS = ("return_statement", "return_expression", "return")
_TAKES = ("function_value_parameters", "method_parameters")
"""Kinds of nodes that list parameters, in grammars that name no field for them."""
_RECEIVERS = ("self", "cls", "this")
_THIS = ("this", "self", "$this", "static", "cls")
_NAMED = ("identifier", "variable_name", "simple_identifier", "name")


@dataclass(frozen=True)
class NamedFunction:
    """One function or method."""

    name: str
    node: Node
    parameters: tuple[str, ...]
    returned: Node | None
    """The expression that it returns, where that is one alone."""


def functions_of(program: Program) -> list[NamedFunction]:
    """Every function of a program that has a name, the outer before the inner ones."""
    return [made for node in walk(program.tree.root_node) if (made := _function(program, node)) is not None]


def own_calls(program: Program) -> Iterator[tuple[Node, str, list[Node]]]:
    """Calls of a program's own functions as such: of none that another object has."""
    for node in walk(program.tree.root_node):
        if node.type in CALLS and (called := own_call(program, node)) is not None:
            yield node, *called


def own_call(program: Program, node: Node) -> tuple[str, list[Node]] | None:
    """Name and arguments of a call on nothing, on the object itself, or on a class."""
    name, receiver, given = program.call(node)
    on = "" if receiver is None else program.text(receiver)
    return (name, given) if not on or on in _THIS or on[:1].isupper() else None


def _function(program: Program, node: Node) -> NamedFunction | None:
    listed = node.child_by_field_name("parameters") or next(
        (child for child in node.named_children if child.type in _TAKES), None
    )
    body = node.child_by_field_name("body") or next(
        (child for child in node.named_children if child.type == "function_body"), None
    )
    named = node.child_by_field_name("name")
    if named is None and node.parent is not None and listed is not None:
        named = node.parent.child_by_field_name("name") or node.parent.child_by_field_name("left")
    if body is None or named is None or (listed is None and "method" not in node.type and "function" not in node.type):
        return None
    parameters = tuple(_parameters(program, listed)) if listed is not None else ()
    return NamedFunction(program.text(named).lstrip("$"), node, parameters, _returned(body))


def _parameters(program: Program, listed: Node) -> Iterator[str]:
    for part in plain(listed):
        names = part.children_by_field_name("name") or part.children_by_field_name("pattern")
        first = next((each for each in walk(part) if each.type in _NAMED), None)
        for named in names or ([first] if first is not None else []):
            if (name := program.text(named).lstrip("$&*.")) not in _RECEIVERS:
                yield name


def _returned(body: Node) -> Node | None:
    if body.type == "function_body" and plain(body):
        return _returned(plain(body)[-1])
    if body.type == "arrow_expression_clause" and plain(body):
        return plain(body)[0]
    if not is_function(body):
        return body
    returned = [part for part in walk(body) if part.type in _RETURNS and part.is_named]
    if len(returned) == 1 and plain(returned[0]):
        return plain(returned[0])[-1]
    statements = plain(body)
    return statements[-1] if not returned and len(statements) == 1 and body.type == "body_statement" else None
