"""Translation of a specification's methods into functions over packed states, as Python text that numba compiles.

`s.manager[rm] == Manager.WORKING` becomes a shift, a mask and a comparison on row `s_row` of the array `s`.
Attributes of the specification, enumerations and module constants are folded, quantifiers over known sets are
unrolled. Whatever the translator does not know makes it refuse (`NotCompilable`); the interpreter then runs the
very same text.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model.explorer.layout import Field, Layout
from model.specification import require

UNROLL_AT_MOST = 64

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.USub: "-", ast.Not: "not ", ast.Invert: "~", ast.And: " and ", ast.Or: " or ",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_PASSED_ON = {"min", "max", "abs", "int", "bool"}


class NotCompilable(Exception):
    """The text uses something that the compiled engine does not know. The message says what and where."""


class _Unknown:
    """Marks an expression whose value is not known before the run."""


UNKNOWN = _Unknown()


@dataclass
class Scope:
    """What the names of one function mean: state parameters, local integers, names already replaced by constants."""

    owner: Any
    names: Mapping[str, Any]
    where: str
    states: set[str] = field(default_factory=set)
    locals: set[str] = field(default_factory=set)
    known: dict[str, int] = field(default_factory=dict)
    is_action: bool = False


class Translator:
    """Collects the translated functions of one specification; `functions` maps their names to their text."""

    def __init__(self, specification: Any, layout: Layout):
        self.specification = specification
        self.layout = layout
        self.functions: dict[str, str] = {}
        self._made: dict[tuple[Any, ...], str] = {}
        self._in_progress: set[tuple[Any, ...]] = set()

    def function(self, method: Callable[..., Any], states: int, is_action: bool = False, bound: bool = True) -> str:
        """Translate a function whose first parameters (after self if `bound`) are `states` states; return its new
        name.
        """
        key = (method, states, is_action)
        if key in self._in_progress:
            raise NotCompilable(f"{method.__qualname__}: recursion")
        if key not in self._made:
            self._in_progress.add(key)
            self._made[key] = self._translate(method, states, is_action, bound)
            self._in_progress.discard(key)
        return self._made[key]

    def _translate(self, method: Callable[..., Any], states: int, is_action: bool, bound: bool) -> str:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise NotCompilable(f"{method.__qualname__}: not a plain function")
        parameters = [argument.arg for argument in tree.args.args][1 if bound else 0 :]
        owner = tree.args.args[0].arg if bound else None
        cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
        names = {**method.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        scope = Scope(owner, names, method.__qualname__, is_action=is_action)
        scope.states = set(parameters[:states])
        scope.locals = set(parameters[states:])
        lines = self.block(tree.body, scope) + (["return True"] if is_action else [])
        name = f"{tree.name}_{len(self.functions)}"
        self._define(name, parameters[:states], parameters[states:], lines)
        return name

    def _define(self, name: str, states: list[str], rest: list[str], lines: list[str]) -> None:
        given = ", ".join([*(f"{s}, {s}_row" for s in states), "error", *rest])
        self.functions[name] = f"@njit\ndef {name}({given}):\n" + "\n".join("    " + line for line in lines or ["pass"])

    def block(self, body: list[ast.stmt], scope: Scope) -> list[str]:
        return [line for statement in body for line in self.statement(statement, scope)]

    def statement(self, node: ast.stmt, scope: Scope) -> list[str]:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return []
            case ast.Expr(value=ast.Call(func=called, args=[guard])) if self.constant(called, scope) is require:
                if not scope.is_action:
                    raise NotCompilable(f"{scope.where}: require outside an action")
                return [f"if not ({self.expression(guard, scope)}):", "    return False"]
            case ast.Assign(targets=[target], value=value):
                return self.assignment(target, self.expression(value, scope), scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self.assignment(target, self.expression(value, scope), scope)
            case ast.AugAssign(target=target, op=operator, value=value):
                old = self.expression(_loaded(target), scope)
                new = f"({old} {_operator(operator)} {self.expression(value, scope)})"
                return self.assignment(target, new, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._if(test, body, orelse, scope)
            case ast.For(target=ast.Name(id=name), iter=over, body=body, orelse=[]):
                scope.locals.add(name)
                inner = self.block(body, scope)
                return [f"for {name} in {self.iterable(over, scope)}:", *("    " + line for line in inner or ["pass"])]
            case ast.Return(value=None):
                return ["return True" if scope.is_action else "return"]
            case ast.Return(value=ast.expr() as value):
                return [f"return {self.expression(value, scope)}"]
            case ast.Break() | ast.Continue():
                return [ast.unparse(node)]
        raise self.refusal(node, scope)

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt], scope: Scope) -> list[str]:
        known = self.constant(test, scope)
        if known is not UNKNOWN:
            return self.block(body if known else orelse, scope)
        lines = [f"if {self.expression(test, scope)}:"]
        lines += ["    " + line for line in self.block(body, scope) or ["pass"]]
        if orelse:
            lines += ["else:", *("    " + line for line in self.block(orelse, scope) or ["pass"])]
        return lines

    def assignment(self, target: ast.expr, value: str, scope: Scope) -> list[str]:
        if isinstance(target, ast.Name):
            scope.locals.add(target.id)
            scope.known.pop(target.id, None)
            return [f"{target.id} = {value}"]
        state, place, index = self.field_access(target, scope)
        mask, low, high = (1 << place.bits) - 1, place.domain.low, place.domain.high
        word, shift = _position(place, "put_at" if index else "")
        at = f"{state}[{state}_row, {word}]"
        lines = [f"put_at = {index}"] if index else []
        return [
            *lines,
            f"put = int64({value}) - {low}",
            f"if put < 0 or put > {high - low}:",
            "    error[0] = 1",
            "else:",
            f"    {at} = ({at} & ~({mask} << ({shift}))) | (put << ({shift}))",
        ]

    def field_access(self, node: ast.expr, scope: Scope) -> tuple[str, Field, str]:
        """The state, the variable and the text of the flat index ("" for a scalar) of an access `s.name[i][j]`."""
        indices: list[ast.expr] = []
        inner = node
        while isinstance(inner, ast.Subscript):
            indices.insert(0, inner.slice)
            inner = inner.value
        if not (
            isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in scope.states
        ):
            raise self.refusal(node, scope)
        place = self.layout.field(inner.attr)
        if place is None or len(indices) != len(place.shape):
            raise self.refusal(node, scope)
        index = ""
        for entry, size in zip(indices, place.shape, strict=True):
            known = self.constant(entry, scope)
            if known is UNKNOWN:
                one = f"checked({self.expression(entry, scope)}, {size}, error)"
            elif 0 <= known < size:
                one = str(int(known))
            else:
                raise NotCompilable(f"{scope.where}: index {known} is outside 0..{size - 1} in {ast.unparse(node)}")
            index = f"({index} * {size} + {one})" if index else one
        return inner.value.id, place, index

    def expression(self, node: ast.expr, scope: Scope) -> str:
        known = self.constant(node, scope)
        if isinstance(known, int):
            return repr(bool(known)) if isinstance(known, bool) else repr(int(known))
        match node:
            case ast.Name(id=name) if name in scope.locals:
                return name
            case ast.Attribute() | ast.Subscript():
                state, place, index = self.field_access(node, scope)
                return _reading(state, place, index)
            case ast.BoolOp(op=operator, values=values):
                return self._junction(operator, values, scope)
            case ast.BinOp(left=left, op=operator, right=right):
                return f"({self.expression(left, scope)} {_operator(operator)} {self.expression(right, scope)})"
            case ast.UnaryOp(op=operator, operand=operand):
                return f"({_operator(operator)}{self.expression(operand, scope)})"
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as operator], comparators=[members]):
                return self._membership(left, isinstance(operator, ast.In), members, scope)
            case ast.Compare(left=left, ops=operators, comparators=others):
                parts = [self.expression(left, scope)]
                for comparison, other in zip(operators, others, strict=True):
                    parts += [_operator(comparison), self.expression(other, scope)]
                return f"({' '.join(parts)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self.constant(test, scope)
                if chosen is not UNKNOWN:
                    return self.expression(body if chosen else orelse, scope)
                branches = (self.expression(body, scope), self.expression(test, scope), self.expression(orelse, scope))
                return "({} if {} else {})".format(*branches)
            case ast.Call():
                return self.call(node, scope)
        raise self.refusal(node, scope)

    def _membership(self, element: ast.expr, inside: bool, members: ast.expr, scope: Scope) -> str:
        """Membership in a set that is known is a disjunction of equalities."""
        known = self.constant(members, scope)
        if known is not UNKNOWN:
            entries = [repr(int(value)) for value in known]
        elif isinstance(members, ast.Tuple | ast.List | ast.Set):
            entries = [self.expression(entry, scope) for entry in members.elts]
        else:
            raise self.refusal(members, scope)
        one = self.expression(element, scope)
        text = f"({' or '.join(f'{one} == {entry}' for entry in entries)})" if entries else "False"
        return text if inside else f"(not {text})"

    def _junction(self, operator: ast.boolop, values: list[ast.expr], scope: Scope) -> str:
        """A conjunction or disjunction, less the operands whose value is known and neutral."""
        neutral = isinstance(operator, ast.And)
        parts = []
        for value in values:
            known = self.constant(value, scope)
            if known is UNKNOWN:
                parts.append(f"bool({self.expression(value, scope)})")
            elif bool(known) != neutral:
                parts.append(repr(not neutral))
                break
        return f"({_operator(operator).join(parts)})" if parts else repr(neutral)

    def call(self, node: ast.Call, scope: Scope) -> str:
        if node.keywords:
            raise self.refusal(node, scope)
        match node.func:
            case ast.Name(id=name) if name in ("any", "all", "sum") and len(node.args) == 1:
                return self.quantifier(name, node.args[0], scope)
            case ast.Name(id=name) if name in _PASSED_ON and name not in scope.names:
                return f"{name}({', '.join(self.expression(a, scope) for a in node.args)})"
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.owner:
                return self._invoke(getattr(type(self.specification), name, None), node, scope, bound=True)
        return self._invoke(self.constant(node.func, scope), node, scope, bound=False)

    def _invoke(self, callee: Any, node: ast.Call, scope: Scope, bound: bool) -> str:
        if not inspect.isfunction(callee):
            raise self.refusal(node, scope)
        states = [a.id for a in node.args if isinstance(a, ast.Name) and a.id in scope.states]
        rest = [self.expression(a, scope) for a in node.args[len(states) :]]
        name = self.function(callee, len(states), bound=bound)
        return f"{name}({', '.join([*(f'{s}, {s}_row' for s in states), 'error', *rest])})"

    def quantifier(self, name: str, node: ast.expr, scope: Scope) -> str:
        if not (isinstance(node, ast.GeneratorExp) and len(node.generators) == 1):
            raise self.refusal(node, scope)
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name):
            raise self.refusal(node, scope)
        variable = generator.target.id
        body: ast.expr = node.elt
        if generator.ifs:
            when = ast.BoolOp(ast.And(), list(generator.ifs)) if len(generator.ifs) > 1 else generator.ifs[0]
            body = _guarded(name, when, body)
        over = self.constant(generator.iter, scope)
        if over is not UNKNOWN and len(list(over)) <= UNROLL_AT_MOST:
            return self._unrolled(name, variable, [int(v) for v in over], body, scope)
        return self._hoisted(name, variable, generator.iter, body, scope)

    def _unrolled(self, name: str, variable: str, over: list[int], body: ast.expr, scope: Scope) -> str:
        parts = []
        outer = scope.known.get(variable)
        for value in over:
            scope.known[variable] = value
            parts.append(self.expression(body, scope))
        scope.known.pop(variable, None)
        if outer is not None:
            scope.known[variable] = outer
        if name == "sum":
            return f"({' + '.join(f'int64({p})' for p in parts)})" if parts else "0"
        joiner = " and " if name == "all" else " or "
        return f"({joiner.join(f'bool({p})' for p in parts)})" if parts else repr(name == "all")

    def _hoisted(self, name: str, variable: str, over: ast.expr, body: ast.expr, scope: Scope) -> str:
        """A quantifier whose set is only known during the run becomes a loop in a function of its own."""
        used = sorted({n.id for part in (over, body) for n in ast.walk(part) if isinstance(n, ast.Name)})
        states = [n for n in used if n in scope.states]
        free = [n for n in used if n in scope.locals and n != variable]
        inner = Scope(scope.owner, scope.names, scope.where, scope.states, {*scope.locals, variable}, dict(scope.known))
        inner.known.pop(variable, None)
        head = f"for {variable} in {self.iterable(over, scope)}:"
        text = self.expression(body, inner)
        if name == "sum":
            lines = ["total = 0", head, f"    total += int64({text})", "return total"]
        else:
            stop = "not " if name == "all" else ""
            lines = [head, f"    if {stop}({text}):", f"        return {name == 'any'}", f"return {name == 'all'}"]
        hoisted = f"{name}_{len(self.functions)}"
        self._define(hoisted, states, free, lines)
        return f"{hoisted}({', '.join([*(f'{s}, {s}_row' for s in states), 'error', *free])})"

    def iterable(self, node: ast.expr, scope: Scope) -> str:
        over = self.constant(node, scope)
        if over is not UNKNOWN:
            values = [int(v) for v in over]
            if values == list(range(values[0], values[0] + len(values))) if values else True:
                return f"range({values[0]}, {values[-1] + 1})" if values else "range(0)"
            return f"({', '.join(map(str, values))},)"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            return f"range({', '.join(self.expression(a, scope) for a in node.args)})"
        raise self.refusal(node, scope)

    def constant(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression if it is the same in every state, else UNKNOWN."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.owner:
                held: Any = getattr(self.specification, name, UNKNOWN)
                return UNKNOWN if inspect.ismethod(held) else held
            case ast.Attribute(value=inner, attr=name):
                base = self.constant(inner, scope)
                return UNKNOWN if base is UNKNOWN else getattr(base, name, UNKNOWN)
            case ast.Call(func=ast.Name(id="len" | "range" as name), args=args):
                return self._evaluated(args, scope, getattr(builtins, name))
            case ast.Tuple(elts=entries) | ast.Set(elts=entries) | ast.List(elts=entries):
                return self._evaluated(entries, scope, lambda *values: values)
            case ast.Subscript(value=inner, slice=index):
                return self._evaluated([inner, index], scope, lambda table, at: table[at])
            case ast.UnaryOp(op=operator, operand=operand):
                return self._evaluated([operand], scope, lambda v: eval(f"{_operator(operator)}v", {}, {"v": v}))
            case ast.BinOp(left=left, op=operator, right=right):
                return self._folded([left, right], [_operator(operator)], scope)
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._folded([left, *others], [_operator(o) for o in operators], scope)
            case ast.BoolOp(op=operator, values=values):
                return self._folded(values, [_operator(operator)] * (len(values) - 1), scope)
        return UNKNOWN

    def _named(self, name: str, scope: Scope) -> Any:
        if name in scope.known:
            return scope.known[name]
        if name in scope.locals or name in scope.states or name == scope.owner:
            return UNKNOWN
        return scope.names.get(name, UNKNOWN)

    def _evaluated(self, nodes: Iterable[ast.expr], scope: Scope, how: Callable[..., Any]) -> Any:
        values = [self.constant(n, scope) for n in nodes]
        return UNKNOWN if any(v is UNKNOWN for v in values) else how(*values)

    def _folded(self, nodes: list[ast.expr], operators: list[str], scope: Scope) -> Any:
        def evaluate(*values: Any) -> Any:
            given = {f"v{i}": v for i, v in enumerate(values)}
            text = "v0" + "".join(f" {o} v{i + 1}" for i, o in enumerate(operators))
            return eval(text, {}, given)

        return self._evaluated(nodes, scope, evaluate)

    def refusal(self, node: ast.AST, scope: Scope) -> NotCompilable:
        return NotCompilable(f"{scope.where}: {ast.unparse(node)}")


def _operator(node: ast.AST) -> str:
    text = _OPERATORS.get(type(node))
    if text is None:
        raise NotCompilable(f"operator {type(node).__name__}")
    return text


def _loaded(target: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(target), mode="eval").body
    return copy


def _guarded(name: str, when: ast.expr, body: ast.expr) -> ast.expr:
    """The element of a filtered quantifier: any(p and e), all(not p or e), sum(e if p else 0)."""
    if name == "any":
        return ast.BoolOp(ast.And(), [when, body])
    if name == "all":
        return ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), when), body])
    return ast.IfExp(when, body, ast.Constant(0))


def _position(place: Field, index: str) -> tuple[str, str]:
    if not index:
        return str(place.word), str(place.shift)
    if index.isdigit():
        word, shift = place.place(int(index))
        return str(word), str(shift)
    if place.elements <= place.per_word:
        return str(place.word), f"{place.shift} + {index} * {place.bits}"
    return f"{place.word} + {index} // {place.per_word}", f"({index} % {place.per_word}) * {place.bits}"


def _reading(state: str, place: Field, index: str) -> str:
    word, shift = _position(place, index)
    low = f" + {place.domain.low}" if place.domain.low else ""
    return f"((({state}[{state}_row, {word}] >> ({shift})) & {(1 << place.bits) - 1}){low})"


__all__ = ["NotCompilable", "Translator"]
