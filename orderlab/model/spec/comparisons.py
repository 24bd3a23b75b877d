"""Comparisons in the text of a specification that are the same in every state, found in its syntax tree.

Values of the state are integers, whatever a story prints for them: `s.owner is None` and `s.flag is True` are false
always. Nothing is found where it is not sure that a value of the state is compared, and functions outside the class are
not looked at.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator


def compared_by_identity(tree: ast.AST, variables: tuple[str, ...]) -> ast.AST | None:
    """The first comparison of one of the variables by `is`, or by `case` with None, True or False."""
    of_state = _values_of(tree, variables)
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                for one, operator, other in _pairs(node):
                    if isinstance(operator, ast.Is | ast.IsNot) and (of_state(one) or of_state(other)):
                        return node
            case ast.Match(subject=subject, cases=cases) if of_state(subject):
                for case in cases:
                    if any(isinstance(pattern, ast.MatchSingleton) for pattern in ast.walk(case.pattern)):
                        return case.pattern
    return None


def compared_with_none(tree: ast.AST, variables: tuple[str, ...]) -> ast.AST | None:
    """The first comparison of one of the variables with None by `==` or `in`."""
    of_state = _values_of(tree, variables)
    for node in ast.walk(tree):
        for one, operator, other in _pairs(node) if isinstance(node, ast.Compare) else ():
            equals_none = (of_state(one) and _is_none(other)) or (of_state(other) and _is_none(one))
            if isinstance(operator, ast.Eq | ast.NotEq) and equals_none:
                return node
            members = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else []
            if isinstance(operator, ast.In | ast.NotIn) and of_state(one) and any(map(_is_none, members)):
                return node
    return None


def _pairs(node: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    return zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _values_of(tree: ast.AST, variables: tuple[str, ...]) -> Callable[[ast.AST], bool]:
    """Tells the expressions of a method that are surely a variable, or an element of one: `s.owner`, `s.wants[c]`, and
    a local name that is bound to nothing else."""
    nodes = list(ast.walk(tree))
    taken = {given.arg for node in nodes if isinstance(node, ast.arguments) for given in node.args} - {"self"}
    bound: frozenset[str] = frozenset()

    def of_state(node: ast.AST) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            return isinstance(node.value, ast.Name) and node.value.id in taken and node.attr in variables
        return isinstance(node, ast.Name) and node.id in bound

    while True:
        stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        for node in nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                    | ast.For(target=ast.Name(id=name), iter=value)
                    | ast.comprehension(target=ast.Name(id=name), iter=value)
                ) if of_state(value):
                    stored[name] -= 1
        more = frozenset(name for name, others in stored.items() if others == 0) - taken
        if more == bound:
            return of_state
        bound = more
