"""A key built from another variable: the wrong key, or the right pattern with the wrong part."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from orderlab.properties.mutants.syntax import Change, Chunk


def changes(chunk: Chunk) -> Iterator[Change]:
    """In each command's key, and in each member or field that is put together: every part with its alternatives."""
    keys = _key_expressions(chunk)
    for command in chunk.commands():
        for position, argument in enumerate(command.arguments):
            if position == 0:
                yield from _instead(chunk, argument, keys)
            if argument.type == "binary_expression":
                yield from _other_parts(chunk, argument)


def _key_expressions(chunk: Chunk) -> list[bytes]:
    """What the script names keys by: locals that hold KEYS[n], and KEYS[n] itself where no local does."""
    found: dict[bytes, None] = {}
    held: set[bytes] = set()
    for names, values in chunk.assignments():
        for name, value in zip(names, values, strict=False):
            if chunk.text(value).startswith(b"KEYS["):
                found[chunk.text(name)] = None
                held.add(chunk.text(value))
    for node in chunk.nodes("bracket_index_expression"):
        text = chunk.text(node)
        if text.startswith(b"KEYS[") and text not in held:
            found[text] = None
    return list(found)


def _instead(chunk: Chunk, argument: Node, keys: list[bytes]) -> Iterator[Change]:
    text = chunk.text(argument)
    if text in keys:
        for other in keys:
            if other != text:
                yield chunk.replaced(argument, other, f"key {text.decode()} becomes {other.decode()}")


def _other_parts(chunk: Chunk, argument: Node) -> Iterator[Change]:
    """``prefix .. id`` with another of the script's local values for ``id``."""
    names = _locals_before(chunk, argument.start_byte)
    for part in _leaves(argument):
        text = chunk.text(part)
        if part.type == "identifier" and text in names:
            near = names[names.index(text) - 1]  # the one declared before it
            if near != text:
                yield chunk.replaced(part, near, f"{text.decode()} becomes {near.decode()}")
        elif part.type == "bracket_index_expression" and text.startswith((b"ARGV[", b"KEYS[")):
            index = text[5:-1]
            if index.isdigit():
                other = text[:5] + b"%d]" % (int(index) + 1 if int(index) == 1 else int(index) - 1)
                yield chunk.replaced(part, other, f"{text.decode()} becomes {other.decode()}")


def _locals_before(chunk: Chunk, place: int) -> list[bytes]:
    found: dict[bytes, None] = {}
    for node in chunk.nodes("variable_declaration"):
        if node.start_byte < place:
            for names, _ in ((names, values) for names, values in chunk.assignments() if names):
                if node.start_byte <= names[0].start_byte < node.end_byte:
                    found.update(dict.fromkeys(map(chunk.text, names)))
    return list(found)


def _leaves(node: Node) -> Iterator[Node]:
    """The operands of a chain of ``..``."""
    if node.type != "binary_expression":
        yield node
        return
    for side in ("left", "right"):
        child = node.child_by_field_name(side)
        if child is not None:
            yield from _leaves(child)
