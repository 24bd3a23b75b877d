"""The functions that a library registers, each with the parameters that it takes KEYS and ARGV by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from orderlab.properties.lint.values import ParsedScript
from orderlab.properties.syntax import arguments

REGISTERING = ("redis.register_function", "server.register_function")
DEFINITIONS = ("function_definition", "function_declaration")


class Registered(NamedTuple):
    """One function of a library."""

    name: str
    body: Node | None
    """None where it is not known which function is meant."""
    promises_no_writes: bool


def registered(parsed: ParsedScript) -> Iterator[Registered]:
    """Each function whose name the text tells."""
    for call in parsed.chunk.nodes("function_call"):
        given = arguments(call)
        if parsed.text(call.named_children[0]) not in REGISTERING or not given:
            continue
        fields = _fields(parsed, given[0])
        name, body = (fields.get("function_name"), fields.get("callback")) if fields else (given[0], given[-1])
        text = parsed.string(name) if name is not None else None
        if text is not None and body is not None:
            is_reading = "flags" in fields and "no-writes" in parsed.text(parsed.only_value(fields["flags"]))
            yield Registered(text.decode("utf-8", "replace"), definition_of(parsed, body), is_reading)


def _fields(parsed: ParsedScript, node: Node) -> dict[str, Node]:
    """The named fields of a table."""
    node = parsed.only_value(node)
    fields = [field for field in node.named_children if len(field.named_children) == 2]
    return {parsed.text(part.named_children[0]): part.named_children[1] for part in fields if part.type == "field"}


def definition_of(parsed: ParsedScript, node: Node) -> Node | None:
    """The function that an expression is, as far as it is known."""
    node = parsed.only_value(node)
    if node.type in DEFINITIONS:
        return node
    variable = parsed.scopes.variable(node)
    for declared in parsed.chunk.nodes("function_declaration"):
        name = declared.child_by_field_name("name")
        if variable is not None and name is not None and parsed.scopes.variable(name) is variable:
            return declared
    return None


def reached(parsed: ParsedScript, function: Node) -> list[Node]:
    """The function, and those of the library that it calls, and so on."""
    found = [function]
    for each in found:
        for call in parsed.chunk.nodes("function_call"):
            if each.start_byte <= call.start_byte < each.end_byte:
                called = definition_of(parsed, call.named_children[0])
                if called is not None and called not in found:
                    found.append(called)
    return found
