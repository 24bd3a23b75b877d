"""Changes to the Python text of a specification's actions: guards negated or dropped, effects dropped, constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from orderlab.properties.mutants.mutant import Mutant
from orderlab.properties.mutants.syntax import Change


class Text:
    """A module with the bytes of each node."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self._lines = [0]
        for line in source.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """First byte and the byte after the last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> bytes:
        """The bytes of a node."""
        start, end = self.span(node)
        return self.source[start:end]

    def instead(self, node: ast.expr | ast.stmt, text: bytes, said: str) -> Change:
        """Another text in the place of a node."""
        return Change(*self.span(node), text, said)


def guards_negated(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each condition turned round."""
    for guard in _guards(function):
        yield text.instead(guard, b"(not (" + text.of(guard) + b"))", f"not: {_said(text, guard)}")


def guards_dropped(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each condition taken to be met, and each conjunct of one; a branch that only returns the state is left out."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.If)
            and not node.orelse
            and all(isinstance(one, ast.Return | ast.Continue) for one in node.body)
        ):
            yield text.instead(node, b"pass", f"dropped: if {_said(text, node.test)}")
    for guard in _guards(function):
        yield text.instead(guard, b"True", f"dropped: {_said(text, guard)}")
        for node in ast.walk(guard):
            if isinstance(node, ast.BoolOp):
                neutral = b"True" if isinstance(node.op, ast.And) else b"False"
                for part in node.values:
                    yield text.instead(part, neutral, f"dropped: {_said(text, part)}")


def effects_dropped(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each assignment to a variable of the state, each field that is replaced, each new value of a local again given."""
    seen: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            of_state = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
            if of_state or names & seen or isinstance(node, ast.AugAssign):
                yield text.instead(node, b"pass", f"dropped: {_said(text, node)}")
            seen |= names
        if isinstance(node, ast.Call) and _called(node) == "_replace":
            for keyword in node.keywords:
                yield _without(text, node, keyword)


def constants(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each whole number one higher and one lower, each truth value turned round."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Constant) or node.value is None:
            continue
        if isinstance(node.value, bool):
            yield text.instead(node, b"%r" % (not node.value), f"{node.value} becomes {not node.value}")
        elif isinstance(node.value, int):
            for other in (node.value + 1, node.value - 1):
                yield text.instead(node, b"(%d)" % other, f"{node.value} becomes {other}")


OPERATORS: dict[str, Callable[[Text, ast.FunctionDef], Iterator[Change]]] = {
    "guard-negated": guards_negated,
    "guard-dropped": guards_dropped,
    "effect-dropped": effects_dropped,
    "constant": constants,
}
"""By name."""


def mutants_of_functions(source: bytes, place: str, roots: Sequence[str], operators: Sequence[str]) -> Iterator[Mutant]:
    """The mutants of the functions ``roots`` and of every function of the module that they call."""
    text = Text(source)
    known = {source}
    for function in reached(text.tree, roots):
        for name in operators:
            for change in OPERATORS[name](text, function):
                mutated = source[: change.start] + change.replacement + source[change.end :]
                if mutated in known or not _compiles(mutated):
                    continue
                known.add(mutated)
                line = source.count(b"\n", 0, change.start) + 1
                before = source[change.start : change.end]
                yield Mutant(
                    place, name, change.said, change.start, change.end, line, before, change.replacement, mutated
                )


def reached(tree: ast.Module, roots: Sequence[str]) -> list[ast.FunctionDef]:
    """The functions called from ``roots``, those included, in the order of the text. Names tell; classes do not."""
    known = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    waiting, found = [name for name in roots if name in known], set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        for node in ast.walk(known[name]):
            called = _called(node) if isinstance(node, ast.Call) else ""
            if called in known and called not in found and not _is_property(known[called]):
                waiting.append(called)
    return sorted((known[name] for name in found), key=lambda function: function.lineno)


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list)


def _guards(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Conditions of branches, choices, filters, loops, and what is required."""
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Call) and _called(node) == "require":
            yield from node.args[:1]


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _without(text: Text, call: ast.Call, keyword: ast.keyword) -> Change:
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    others = [text.of(one) for one in given if one is not keyword]
    start, end = text.span(call.func)[1], text.span(call)[1]
    return Change(
        start, end, b"(" + b", ".join(others) + b")", f"dropped: {keyword.arg} = {_said(text, keyword.value)}"
    )


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _said(text: Text, node: ast.expr | ast.stmt) -> str:
    return b" ".join(text.of(node).split()).decode("utf-8", "replace")[:70]
