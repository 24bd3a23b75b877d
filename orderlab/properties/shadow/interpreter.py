"""A small interpreter of Lua 5.1 for marked values: statements and expressions of a script's tree.

It is the shadow of the kernel's own run, never a judge: what a script does here is compared with what it does there
(``orderlab.properties.shadow.running``), and where they differ nothing is said of the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tree_sitter import Node

from orderlab.properties.shadow.arithmetic import NotFollowed, calculated, number_of, text_of, unescaped
from orderlab.properties.shadow.marked import (
    BRANCH,
    BUILT,
    CALCULATED,
    EQUALITY,
    FALSE,
    LENGTH,
    MEASURED,
    NIL,
    ORDERED,
    TRUE,
    LuaTable,
    MarkedValue,
    Path,
    Unknown,
    joined,
)
from orderlab.properties.syntax import Chunk

_ORDERS = (b"<", b"<=", b">", b">=")
STEPS_MAX = 100_000
"""Nodes that one run may evaluate."""


class LuaError(Exception):
    """An error that a script may catch."""

    def __init__(self, value: MarkedValue) -> None:
        super().__init__(value.value)
        self.value = value


class Break(Exception):
    """Leaves a loop."""


class Return(Exception):
    """Leaves a function."""

    def __init__(self, values: list[MarkedValue]) -> None:
        super().__init__()
        self.values = values


class Block:
    """The variables of a block."""

    __slots__ = ("names", "outer", "rest")

    def __init__(self, outer: Block | None, rest: list[MarkedValue] | None = None) -> None:
        self.names: dict[bytes, MarkedValue] = {}
        self.outer = outer
        self.rest: list[MarkedValue] = rest if rest is not None else outer.rest if outer is not None else []

    def holder(self, name: bytes) -> dict[bytes, MarkedValue] | None:
        """Where a name is bound."""
        scope: Block | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names
            scope = scope.outer
        return None


class Interpreter:
    """Runs one script once."""

    def __init__(self, chunk: Chunk, name: str, path: Path, base: dict[bytes, MarkedValue]) -> None:
        self.chunk, self.name, self.path = chunk, name, path
        self.globals = base
        self.steps = 0
        self._text = chunk.text

    def run(self) -> list[MarkedValue]:
        """What the script returns. Raises LuaError, NotFollowed."""
        try:
            self.block(self.chunk.root, Block(None))
        except Return as ended:
            return ended.values
        except RecursionError:
            raise NotFollowed("deep recursion") from None
        return []

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, node: Node | None, scope: Block) -> None:
        """Carry out every statement."""
        for statement in node.named_children if node is not None else ():
            self.statement(statement, scope)

    def statement(self, node: Node, scope: Block) -> None:
        """Carry out a statement."""
        method = self._STATEMENTS.get(node.type)
        if method is None:
            raise NotFollowed(f"{node.type.replace('_', ' ')}")
        self._step()
        method(self, node, scope)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise NotFollowed("long runs")

    def _nothing(self, node: Node, scope: Block) -> None:
        return

    def _local(self, node: Node, scope: Block) -> None:
        inner = node.named_children[0]
        if inner.type == "assignment_statement":
            names, values = self._sides(inner)
            given = self.values(values, scope)
            for number, name in enumerate(names):
                scope.names[self._text(name)] = given[number] if number < len(given) else NIL
        else:
            for name in inner.named_children:
                if name.type == "identifier":
                    scope.names[self._text(name)] = NIL

    def _sides(self, node: Node) -> tuple[list[Node], list[Node]]:
        left, right = (child for child in node.named_children if child.type in ("variable_list", "expression_list"))
        return (
            [child for child in left.named_children if child.type not in ("comment", "attribute")],
            [child for child in right.named_children if child.type != "comment"],
        )

    def _assign(self, node: Node, scope: Block) -> None:
        names, values = self._sides(node)
        given = self.values(values, scope)
        for number, name in enumerate(names):
            self.assign(name, given[number] if number < len(given) else NIL, scope)

    def assign(self, target: Node, value: MarkedValue, scope: Block) -> None:
        """Give a variable or a field a value."""
        if target.type == "identifier":
            name = self._text(target)
            holder = scope.holder(name)
            if holder is None:
                raise LuaError(MarkedValue(b"Attempt to modify a readonly table"))
            holder[name] = value
            return
        table, key = self._place(target, scope)
        if not isinstance(table.value, LuaTable):
            raise LuaError(MarkedValue(b"attempt to index a value"))
        if key.value is None:
            raise LuaError(MarkedValue(b"index is nil"))
        if table.value.site is None:
            table.value.site = target.start_byte
        table.value.set(key.value, value)

    def _place(self, node: Node, scope: Block) -> tuple[MarkedValue, MarkedValue]:
        table = self.value(self._child(node, "table"), scope)
        field = self._child(node, "field")
        if node.type == "dot_index_expression":
            return table, MarkedValue(self._text(field))
        return table, self.value(field, scope)

    def _child(self, node: Node, name: str) -> Node:
        child = node.child_by_field_name(name)
        if child is None:
            raise NotFollowed(f"{node.type} without {name}")
        return child

    def _function(self, node: Node, scope: Block) -> None:
        name = self._child(node, "name")
        if node.children[0].type == "local":
            scope.names[self._text(name)] = NIL
        made = MarkedValue(self.closure(node, scope))
        if node.children[0].type == "local":
            scope.names[self._text(name)] = made
        else:
            self.assign(name, made, scope)

    def closure(self, node: Node, scope: Block) -> Callable[[list[MarkedValue]], list[MarkedValue]]:
        """A function of the script."""
        parameters = [child for child in self._child(node, "parameters").named_children if child.type != "comment"]
        names = [self._text(item) for item in parameters if item.type == "identifier"]
        is_open = any(item.type == "vararg_expression" for item in parameters)
        body = node.child_by_field_name("body")

        def function(given: list[MarkedValue]) -> list[MarkedValue]:
            inner = Block(scope, given[len(names) :] if is_open else [])
            for number, name in enumerate(names):
                inner.names[name] = given[number] if number < len(given) else NIL
            try:
                self.block(body, inner)
            except Return as ended:
                return ended.values
            return []

        return function

    def _return(self, node: Node, scope: Block) -> None:
        listed = next((child for child in node.named_children if child.type == "expression_list"), None)
        parts = [child for child in listed.named_children if child.type != "comment"] if listed is not None else []
        raise Return(self.values(parts, scope))

    def _break(self, node: Node, scope: Block) -> None:
        raise Break

    def _do(self, node: Node, scope: Block) -> None:
        self.block(node.child_by_field_name("body"), Block(scope))

    def holds(self, node: Node, scope: Block) -> bool:
        """Whether a condition is true; what it is made of decides a branch."""
        value = self.value(node, scope)
        self.path.use(BRANCH, value)
        return value.is_true

    def _if(self, node: Node, scope: Block) -> None:
        if self.holds(self._child(node, "condition"), scope):
            self.block(node.child_by_field_name("consequence"), Block(scope))
            return
        for other in node.children_by_field_name("alternative"):
            if other.type == "else_statement":
                self.block(other.child_by_field_name("body"), Block(scope))
            elif self.holds(self._child(other, "condition"), scope):
                self.block(other.child_by_field_name("consequence"), Block(scope))
                return

    def _while(self, node: Node, scope: Block) -> None:
        condition = self._child(node, "condition")
        try:
            while self.holds(condition, scope):
                self._step()
                self.block(node.child_by_field_name("body"), Block(scope))
        except Break:
            pass

    def _repeat(self, node: Node, scope: Block) -> None:
        try:
            while True:
                self._step()
                inner = Block(scope)
                self.block(node.child_by_field_name("body"), inner)
                if self.holds(self._child(node, "condition"), inner):
                    return
        except Break:
            pass

    def _for(self, node: Node, scope: Block) -> None:
        clause, body = self._child(node, "clause"), node.child_by_field_name("body")
        try:
            if clause.type == "for_numeric_clause":
                self._count(clause, body, scope)
            else:
                self._go_through(clause, body, scope)
        except Break:
            pass

    def _count(self, clause: Node, body: Node | None, scope: Block) -> None:
        name, step = self._text(self._child(clause, "name")), clause.child_by_field_name("step")
        first, last = (self.value(self._child(clause, part), scope) for part in ("start", "end"))
        by = self.value(step, scope) if step is not None else MarkedValue(1.0)
        at, end, stride = (number_of(each.value) for each in (first, last, by))
        if at is None or end is None or stride is None or stride == 0:
            raise LuaError(MarkedValue(b"'for' limit must be a number"))
        self.path.use(BRANCH, first, last, by)
        counter = MarkedValue(at, first.expression, first.marks)
        while True:
            goes_on = counter.value <= end if stride > 0 else counter.value >= end
            low, high = (counter, last) if stride > 0 else (last, counter)
            self.path.meet("<=", low, high, goes_on, self._site(clause))
            if not goes_on:
                return
            self._step()
            inner = Block(scope)
            inner.names[name] = counter
            self.block(body, inner)
            moved = None if counter.expression is None else ("+", counter.expression, stride)
            counter = MarkedValue(counter.value + stride, moved, counter.marks)

    def _go_through(self, clause: Node, body: Node | None, scope: Block) -> None:
        names, listed = (child for child in clause.named_children if child.type in ("variable_list", "expression_list"))
        given = [*self.values(listed.named_children, scope), NIL, NIL, NIL]
        step, state, control = given[:3]
        while True:
            self._step()
            collected = self.apply(step, [state, control])
            if not collected or collected[0].value is None:
                return
            control = collected[0]
            inner = Block(scope)
            for number, name in enumerate(names.named_children):
                inner.names[self._text(name)] = collected[number] if number < len(collected) else NIL
            self.block(body, inner)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def values(self, nodes: Sequence[Node], scope: Block) -> list[MarkedValue]:
        """The values of a list of expressions; the last may give several."""
        collected: list[MarkedValue] = []
        for number, node in enumerate(nodes):
            if number == len(nodes) - 1 and node.type in ("function_call", "vararg_expression"):
                collected += self.call(node, scope) if node.type == "function_call" else scope.rest
            else:
                collected.append(self.value(node, scope))
        return collected

    def value(self, node: Node, scope: Block) -> MarkedValue:
        """The value of an expression."""
        self._step()
        kind = node.type
        if kind == "identifier":
            name = self._text(node)
            holder = scope.holder(name)
            if holder is None and name not in self.globals:
                raise LuaError(MarkedValue(b"Script attempted to access nonexistent global variable"))
            return (self.globals if holder is None else holder)[name]
        method = self._EXPRESSIONS.get(kind)
        if method is None:
            raise NotFollowed(kind.replace("_", " "))
        return method(self, node, scope)

    def _number(self, node: Node, scope: Block) -> MarkedValue:
        number = number_of(self._text(node))
        if number is None:
            raise NotFollowed("a number of this form")
        return MarkedValue(number)

    def _string(self, node: Node, scope: Block) -> MarkedValue:
        text = self._text(node)
        if text[:1] == b"[":
            text = text[text.index(b"[", 1) + 1 : -text.index(b"[", 1) - 1]
            return MarkedValue(text[1:] if text[:1] == b"\n" else text)
        return MarkedValue(unescaped(text[1:-1]))

    def _index(self, node: Node, scope: Block) -> MarkedValue:
        table, key = self._place(node, scope)
        if isinstance(table.value, bytes):
            table = self.globals.get(b"string", NIL)
        if not isinstance(table.value, LuaTable):
            raise LuaError(MarkedValue(b"attempt to index a value"))
        if key.marks and isinstance(key.value, bytes):
            self.path.use(EQUALITY, key)
        return table.value.get(key.value)

    def _one_call(self, node: Node, scope: Block) -> MarkedValue:
        collected = self.call(node, scope)
        return collected[0] if collected else NIL

    def call(self, node: Node, scope: Block) -> list[MarkedValue]:
        """All that a call gives."""
        self._step()
        callee, listed = self._child(node, "name"), self._child(node, "arguments")
        if listed.type in ("string", "table_constructor"):
            parts = [listed]
        else:
            parts = [child for child in listed.named_children if child.type != "comment"]
        if callee.type == "method_index_expression":
            owner = self.value(self._child(callee, "table"), scope)
            name = self._text(self._child(callee, "method"))
            holder = self.globals[b"string"] if isinstance(owner.value, bytes) else owner
            if not isinstance(holder.value, LuaTable):
                raise LuaError(MarkedValue(b"attempt to index a value"))
            return self.apply(holder.value.get(name), [owner, *self.values(parts, scope)], node)
        return self.apply(self.value(callee, scope), self.values(parts, scope), node)

    def apply(self, function: MarkedValue, given: list[MarkedValue], node: Node | None = None) -> list[MarkedValue]:
        """Call a function."""
        if not callable(function.value):
            raise LuaError(MarkedValue(b"attempt to call a value"))
        self.at = self.at if node is None else node.start_byte
        collected: list[MarkedValue] = function.value(given)
        return collected

    at = 0
    """The byte of the call that is under way."""

    def _rest(self, node: Node, scope: Block) -> MarkedValue:
        return scope.rest[0] if scope.rest else NIL

    def _inner(self, node: Node, scope: Block) -> MarkedValue:
        return self.value(next(child for child in node.named_children if child.type != "comment"), scope)

    def _table(self, node: Node, scope: Block) -> MarkedValue:
        made = LuaTable(site=node.start_byte)
        fields = [child for child in node.named_children if child.type == "field"]
        at = 0
        for number, field in enumerate(fields):
            content, name = self._child(field, "value"), field.child_by_field_name("name")
            if name is not None:
                is_plain = field.children[0].type != "["
                key = MarkedValue(self._text(name)) if is_plain else self.value(name, scope)
                made.set(key.value, self.value(content, scope))
            elif number == len(fields) - 1:
                for value in self.values([content], scope):
                    at += 1
                    made.set(float(at), value)
            else:
                at += 1
                made.set(float(at), self.value(content, scope))
        return MarkedValue(made)

    def _closure(self, node: Node, scope: Block) -> MarkedValue:
        return MarkedValue(self.closure(node, scope))

    def _unary(self, node: Node, scope: Block) -> MarkedValue:
        operator, value = node.children[0].type, self.value(self._child(node, "operand"), scope)
        if operator == "not":
            return MarkedValue(not value.is_true, None, value.marks)
        if operator == "#":
            return self.length(value, node)
        number = number_of(value.value)
        if operator != "-" or number is None:
            raise LuaError(MarkedValue(b"attempt to perform arithmetic"))
        self.path.use(CALCULATED, value)
        return MarkedValue(-number, None if value.expression is None else ("-", 0, value.expression), value.marks)

    def length(self, value: MarkedValue, node: Node) -> MarkedValue:
        """What ``#`` gives."""
        if isinstance(value.value, bytes):
            self.path.use(MEASURED, value)
            size = float(len(value.value))
            marks = [mark for mark in value.marks if isinstance(mark, int)]
            symbol = self.path.symbol(LENGTH, marks[0], size) if len(marks) == 1 else None
            return MarkedValue(size, symbol, value.marks)
        if not isinstance(value.value, LuaTable):
            raise LuaError(MarkedValue(b"attempt to get length"))
        table = value.value
        size = float(table.border)
        if table.length is None and table.site is not None:
            return MarkedValue(size, self.path.symbol(BUILT, (self.name, table.site), size))
        return MarkedValue(size, table.length)

    def _site(self, node: Node) -> tuple[str, int]:
        return self.name, node.start_byte

    def _binary(self, node: Node, scope: Block) -> MarkedValue:
        operator = self._text(self._child(node, "operator")) if node.child_by_field_name("operator") else b""
        operator = operator or next(child.type.encode() for child in node.children if not child.is_named)
        left = self.value(self._child(node, "left"), scope)
        if operator in (b"and", b"or"):
            self.path.use(BRANCH, left)
            if left.is_true is (operator == b"or"):
                return left
            right = self.value(self._child(node, "right"), scope)
            return self.absent(left, right) if operator == b"or" else right
        right = self.value(self._child(node, "right"), scope)
        if operator in (b"==", b"~="):
            return self.equal(left, right, self._site(node), operator == b"==")
        if operator in _ORDERS:
            return self.order(operator, left, right, self._site(node))
        if operator == b"..":
            return self.join(left, right, self._site(node))
        return self.calculate(operator, left, right, self._site(node))

    def absent(self, left: MarkedValue, right: MarkedValue) -> MarkedValue:
        """``left or right`` where a reply was nil: the number that the script takes instead stands for it."""
        number = number_of(right.value)
        if not isinstance(left.expression, Unknown) or number is None or right.expression is not None:
            return right
        self.path.given[left.expression] = number
        return MarkedValue(right.value, left.expression, joined(left, right))

    def equal(self, left: MarkedValue, right: MarkedValue, site: tuple[str, int], wanted: bool = True) -> MarkedValue:
        """``==`` and ``~=``."""
        same = type(left.value) is type(right.value) and (
            left.value is right.value if isinstance(left.value, LuaTable) else left.value == right.value
        )
        self.path.use(EQUALITY, left, right)
        a, b = ((self._as_number(each)) for each in (left, right))
        if a is not None and b is not None and type(left.value) is type(right.value):
            self.path.meet("==", a, b, same, site)
        for item, other in ((left, right), (right, left)):
            if len(item.marks) == 1 and not other.marks and isinstance(other.value, bytes):
                self.path.texts += [(mark, other.value) for mark in item.marks]
        return MarkedValue(same is wanted, None, joined(left, right))

    def _as_number(self, value: MarkedValue) -> MarkedValue | None:
        if isinstance(value.value, float):
            return value
        if isinstance(value.value, bytes) and value.value.removeprefix(b"-").isdigit():
            return MarkedValue(float(value.value), value.expression, value.marks)
        return None

    def order(self, operator: bytes, left: MarkedValue, right: MarkedValue, site: tuple[str, int]) -> MarkedValue:
        """``<``, ``<=``, ``>``, ``>=``."""
        if operator in (b">", b">="):
            operator, left, right = {b">": b"<", b">=": b"<="}[operator], right, left
        a, b = left.value, right.value
        if type(a) is not type(b) or not isinstance(a, (float, bytes)):
            raise LuaError(MarkedValue(b"attempt to compare"))
        self.path.use(ORDERED, left, right)
        holds = a < b if operator == b"<" else a <= b
        if isinstance(a, float):
            self.path.meet(operator.decode(), left, right, holds, site)
        return MarkedValue(holds, None, joined(left, right))

    def join(self, left: MarkedValue, right: MarkedValue, site: tuple[str, int]) -> MarkedValue:
        """``..``."""
        return MarkedValue(self.text(left, site) + self.text(right, site), None, joined(left, right))

    def text(self, value: MarkedValue, site: tuple[str, int]) -> bytes:
        """A value as ``..`` and ``tostring`` have it. A number of more than 14 digits is not written whole."""
        if isinstance(value.value, bytes):
            return value.value
        if not isinstance(value.value, float):
            raise LuaError(MarkedValue(b"attempt to concatenate"))
        if value.expression is not None:
            self.path.meet("digits", value, MarkedValue(10.0**14), value.value < 10.0**14, site)
        return text_of(value.value)

    def calculate(self, operator: bytes, left: MarkedValue, right: MarkedValue, site: tuple[str, int]) -> MarkedValue:
        """Arithmetic on doubles."""
        a, b = number_of(left.value), number_of(right.value)
        if a is None or b is None:
            raise LuaError(MarkedValue(b"attempt to perform arithmetic"))
        self.path.use(CALCULATED, left, right)
        with_symbols = left.expression is not None or right.expression is not None
        expression: Any = None
        if with_symbols and operator in b"+-*/%":
            sides = [item.expression if item.expression is not None else n for item, n in ((left, a), (right, b))]
            expression = (operator.decode(), *sides)
        if with_symbols and operator == b"%" and b:
            quotient, divisor = MarkedValue(a, left.expression), MarkedValue(b, right.expression)
            self.path.meet("<", quotient, divisor, a < b, site)
        return MarkedValue(calculated(operator, a, b), expression, joined(left, right))

    _STATEMENTS: ClassVar[dict[str, Callable[[Any, Node, Block], object]]] = {
        "comment": _nothing,
        "empty_statement": _nothing,
        "hash_bang_line": _nothing,
        "variable_declaration": _local,
        "assignment_statement": _assign,
        "function_call": call,
        "function_declaration": _function,
        "return_statement": _return,
        "break_statement": _break,
        "do_statement": _do,
        "if_statement": _if,
        "while_statement": _while,
        "repeat_statement": _repeat,
        "for_statement": _for,
    }
    _EXPRESSIONS: ClassVar[dict[str, Callable[[Any, Node, Block], MarkedValue]]] = {
        "nil": lambda self, node, scope: NIL,
        "true": lambda self, node, scope: TRUE,
        "false": lambda self, node, scope: FALSE,
        "number": _number,
        "string": _string,
        "bracket_index_expression": _index,
        "dot_index_expression": _index,
        "function_call": _one_call,
        "vararg_expression": _rest,
        "parenthesized_expression": _inner,
        "table_constructor": _table,
        "function_definition": _closure,
        "unary_expression": _unary,
        "binary_expression": _binary,
    }
