"""Which variable a name of a script means, and which expressions are assigned to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from orderlab.properties.syntax import Chunk, arguments


@dataclass(eq=False)
class Variable:
    """A variable of a script."""

    name: bytes
    kind: str
    """``local``, ``parameter``, ``loop``, ``function``, or ``global``."""
    values: list[Node] = field(default_factory=list)
    """Expressions that are assigned to it alone; what is one of several values of a call is not among them."""
    elements: list[Node] = field(default_factory=list)
    """Of a table, what is put into it: `t[i] = x`, `t.a = x`, `table.insert(t, x)`."""
    is_open: bool = False
    """Whether it may have other values: of several replies, of a loop, of callers that are not known."""
    function: Node | None = None
    """Whose parameter it is."""
    place: int = 0
    """Of a parameter or a loop's variable, from 0."""
    source: Node | None = None
    """What a loop goes through."""


class Scopes:
    """The variables of a script by the nodes of their names."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._names: dict[int, Variable] = {}
        self.globals: dict[bytes, Variable] = {}
        self.assigned_globals: list[tuple[Node, Variable]] = []
        """Names of globals where something is assigned to them."""
        self.calls: dict[Variable, list[Node]] = {}
        """Calls of functions of the script."""
        self._block(chunk.root, [{}])

    def variable(self, node: Node) -> Variable | None:
        """The variable that a name means; None for what is no name of a variable."""
        return self._names.get(node.start_byte) if node.type == "identifier" else None

    def _declare(self, scopes: list[dict[bytes, Variable]], node: Node, kind: str) -> Variable:
        name = self.chunk.text(node)
        found = Variable(name, kind)
        scopes[-1][name] = found
        self._names[node.start_byte] = found
        return found

    def _use(self, scopes: list[dict[bytes, Variable]], node: Node) -> Variable:
        name = self.chunk.text(node)
        for scope in reversed(scopes):
            if name in scope:
                found = scope[name]
                break
        else:
            found = self.globals.setdefault(name, Variable(name, "global"))
        self._names[node.start_byte] = found
        return found

    def _block(self, block: Node, scopes: list[dict[bytes, Variable]]) -> None:
        for node in block.named_children:
            self._statement(node, scopes)

    def _statement(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        if node.type == "variable_declaration":
            self._local(node, scopes)
        elif node.type == "assignment_statement":
            self._assignment(node, scopes)
        elif node.type == "function_declaration":
            self._function_named(node, scopes)
        elif node.type == "for_statement":
            self._for(node, scopes)
        elif node.type == "repeat_statement":
            inner = [*scopes, {}]  # the condition sees the block's locals
            for child in node.named_children:
                if child.type == "block":
                    self._block(child, inner)
                else:
                    self._expression(child, inner)
        elif node.type in ("if_statement", "elseif_statement", "else_statement", "while_statement", "do_statement"):
            for child in node.named_children:
                if child.type == "block":
                    self._block(child, [*scopes, {}])
                else:
                    self._statement(child, scopes)
        else:
            self._expression(node, scopes)

    def _local(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        inner = node.named_children[0] if node.named_children else None
        if inner is None:
            return
        if inner.type != "assignment_statement":
            for name in inner.named_children:
                self._declare(scopes, name, "local")
            return
        names, values = _sides(inner)
        for value in values:
            self._expression(value, scopes)
        variables = [self._declare(scopes, name, "local") for name in names if name.type == "identifier"]
        self._assign(variables, values)

    def _assignment(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        names, values = _sides(node)
        for value in values:
            self._expression(value, scopes)
        variables: list[Variable | None] = []
        for place, name in enumerate(names):
            if name.type == "identifier":
                variable = self._use(scopes, name)
                variables.append(variable)
                if variable.kind == "global":
                    self.assigned_globals.append((name, variable))
            else:
                self._expression(name, scopes)
                variables.append(None)
                self._put_into(name.named_children[0], values[place : place + 1])
        self._assign(variables, values)

    def _put_into(self, table: Node, values: list[Node]) -> None:
        variable = self.variable(table)
        if variable is not None:
            variable.elements += values

    def _assign(self, variables: list[Variable] | list[Variable | None], values: list[Node]) -> None:
        for place, variable in enumerate(variables):
            if variable is None:
                continue
            is_spread = place >= len(values) - 1 and len(variables) > len(values) and bool(values)
            if place < len(values) and not (is_spread and values[place].type == "vararg_expression"):
                variable.values.append(values[place])
            elif is_spread:
                variable.is_open = True

    def _function_named(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        name = node.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            is_local = any(child.type == "local" for child in node.children)
            variable = self._declare(scopes, name, "function") if is_local else self._use(scopes, name)
            variable.values.append(node)
            if variable.kind == "global":
                self.assigned_globals.append((name, variable))
        elif name is not None:
            self._expression(name, scopes)
        self._body(node, scopes)

    def _body(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        inner: list[dict[bytes, Variable]] = [*scopes, {}]
        parameters = node.child_by_field_name("parameters")
        names = [] if parameters is None else [part for part in parameters.named_children if part.type == "identifier"]
        for place, name in enumerate(names):
            variable = self._declare(inner, name, "parameter")
            variable.function, variable.place, variable.is_open = node, place, True
        body = node.child_by_field_name("body")
        if body is not None:
            self._block(body, inner)

    def _for(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        clause, body = node.child_by_field_name("clause"), node.child_by_field_name("body")
        inner: list[dict[bytes, Variable]] = [*scopes, {}]
        if clause is not None:
            names = [part for part in clause.named_children if part.type == "variable_list"]
            if clause.type == "for_numeric_clause":
                for child in clause.named_children[1:]:
                    self._expression(child, scopes)
                declared = clause.named_children[:1]
            else:
                for child in clause.named_children:
                    if child.type != "variable_list":
                        self._expression(child, scopes)
                declared = names[0].named_children if names else []
            through = clause.named_children[-1] if clause.type != "for_numeric_clause" else None
            source = through.named_children[0] if through is not None and through.named_children else None
            for place, name in enumerate(declared):
                variable = self._declare(inner, name, "loop")
                variable.is_open, variable.place, variable.source = True, place, source
        if body is not None:
            self._block(body, inner)

    def _expression(self, node: Node, scopes: list[dict[bytes, Variable]]) -> None:
        waiting = [node]
        while waiting:
            part = waiting.pop()
            if part.type == "identifier":
                self._use(scopes, part)
            elif part.type == "function_definition":
                self._body(part, scopes)
            elif part.type in ("dot_index_expression", "method_index_expression"):
                waiting.append(part.named_children[0])
            elif part.type == "field":
                value, name = part.child_by_field_name("value"), part.child_by_field_name("name")
                waiting += [child for child in (value,) if child is not None]
                if name is not None and any(child.type == "[" for child in part.children):
                    waiting.append(name)
            elif part.type in ("block", "variable_declaration", "assignment_statement"):
                self._statement(part, scopes)
            else:
                if part.type == "function_call":
                    callee = part.child_by_field_name("name")
                    if callee is not None and callee.type == "identifier":
                        self.calls.setdefault(self._use(scopes, callee), []).append(part)
                    if callee is not None and self.chunk.text(callee) == b"table.insert":
                        self._insert(arguments(part), scopes)
                waiting += part.named_children

    def _insert(self, given: Sequence[Node], scopes: list[dict[bytes, Variable]]) -> None:
        if len(given) > 1 and given[0].type == "identifier":
            self._use(scopes, given[0]).elements.append(given[-1])


def _sides(node: Node) -> tuple[list[Node], list[Node]]:
    sides: list[list[Node]] = [[], []]
    for child in node.named_children:
        if child.type in ("variable_list", "expression_list"):
            sides[child.type == "expression_list"] = [part for part in child.named_children if part.type != "comment"]
    return sides[0], sides[1]


def enclosing(node: Node, *kinds: str) -> Iterator[Node]:
    """The nodes of these kinds around ``node``, the nearest first."""
    above = node.parent
    while above is not None:
        if above.type in kinds:
            yield above
        above = above.parent
