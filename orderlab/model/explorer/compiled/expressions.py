"""Translation of expressions into 64-bit integer arithmetic that yields exactly what Python yields, or a refusal.

Each carries the interval of its values, from the domains of variables on, so every intermediate result is proved to fit
into 64 bits; what cannot be proved is refused by name. `or` and `and` yield operands; what raises in Python marks
`error`; names of the text are prefixed, so that none meets a name of the kernel.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterable
from enum import EnumMeta
from types import FunctionType
from typing import Any

from orderlab.model.explorer.compiled.compounds import Compounds
from orderlab.model.explorer.compiled.intervals import RESULT, TRUTH, ValueInterval, absolute, hull, power
from orderlab.model.explorer.compiled.layout import Field
from orderlab.model.explorer.compiled.plain_values import plain_container, plain_integer
from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.explorer.compiled.translated import (
    RAISES,
    UNKNOWN,
    IndexStretch,
    MethodScope,
    Value,
    reading,
    shortened,
    unsubscripted,
)
from orderlab.model.spec.compounds import SequenceDomain, SetDomain
from orderlab.model.spec.declarations import require

UNROLL_AT_MOST = 64
UNROLLED_TEXT_AT_MOST = 20_000
POWER_AT_MOST = 63
TEXT_AT_MOST = 60_000
"""Characters of one expression: beyond, numba takes minutes."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_FOLDED_CALLS = (len, range, min, max, abs, int, bool, sum, any, all, tuple, list, set, frozenset, sorted)


class Expressions(Compounds):
    """The part of the translator that knows expressions."""

    def condition(self, node: ast.expr, scope: MethodScope) -> str:
        """The text of an expression of which only the truth matters."""
        known = self.constant(node, scope)
        if known is not UNKNOWN and known is not RAISES:
            return repr(bool(known))
        match node:
            case ast.BoolOp(op=operator, values=values) if known is UNKNOWN:
                return self._junction(isinstance(operator, ast.And), values, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if known is UNKNOWN:
                return f"(not {self.condition(operand, scope)})"
            case ast.Call() if known is UNKNOWN:
                made = self.compound(node, scope) or self.call(node, scope, truth_only=True)
                if made.kind is not None:
                    raise self.refusal(node, scope)
                return self._proved(made, node, scope).truth
        compound = self.compound(node, scope) if known is UNKNOWN else None
        if compound is not None and isinstance(compound.kind, SetDomain | SequenceDomain):
            return f"({compound.text} != 0)"  # whether it is empty
        return self.value(node, scope).truth

    def _junction(self, conjunction: bool, values: list[ast.expr], scope: MethodScope) -> str:
        """Operands that are known and neutral are left out; after one that decides, none is evaluated."""
        parts = []
        for value in values:
            known = self.constant(value, scope)
            if known is UNKNOWN or known is RAISES:
                parts.append(self.condition(value, scope))
            elif bool(known) != conjunction:
                parts.append(repr(not conjunction))
                break
        return f"({(' and ' if conjunction else ' or ').join(parts)})" if parts else repr(conjunction)

    def value(self, node: ast.expr, scope: MethodScope) -> Value:
        """Raises NotCompilable unless the translation yields what Python yields, in every state."""
        made = self._proved(self._value(node, scope), node, scope)
        if made.kind is not None:
            raise self.refusal(node, scope)
        return made

    def _proved(self, made: Value, node: ast.expr, scope: MethodScope) -> Value:
        if not made.interval.fits:
            reach = made.interval.high if abs(made.interval.high) > abs(made.interval.low) else made.interval.low
            size = f"about 2^{abs(reach).bit_length() - 1}" if reach > 0 else f"about -2^{abs(reach).bit_length() - 1}"
            raise NotCompilable(f"{scope.where}: {shortened(node)} may reach {size}, beyond 64 bits")
        if len(made.text) > TEXT_AT_MOST:
            raise NotCompilable(f"{scope.where}: {shortened(node)} is too long")
        return made

    def _value(self, node: ast.expr, scope: MethodScope) -> Value:
        known = self.constant(node, scope)
        if known is RAISES:
            return Value("raised(error)", ValueInterval(0, 0))
        if known is not UNKNOWN:
            return self._literal(known, node, scope)
        if (compound := self.compound(node, scope)) is not None:
            return compound
        match node:
            case ast.Name(id=name) if scope.ranges is not None and name in scope.ranges:
                return Value(f"v_{name}", scope.ranges[name])
            case ast.Attribute() | ast.Subscript():
                return self._access(node, scope)
            case ast.BoolOp(op=operator, values=values):
                return self._chosen(isinstance(operator, ast.And), values, scope)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(operator, self.value(left, scope), self.value(right, scope), node, scope)
            case ast.UnaryOp(op=operator, operand=operand):
                return self._unary(operator, operand, scope)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as operator], comparators=[members]):
                return self._membership(left, isinstance(operator, ast.In), members, scope)
            case ast.Compare(left=left, ops=operators, comparators=others):
                text = self.value(left, scope).number
                for comparison, other in zip(operators, others, strict=True):
                    if type(comparison) not in _COMPARISONS:
                        raise self.refusal(node, scope)
                    text += f" {_COMPARISONS[type(comparison)]} {self.value(other, scope).number}"
                return Value(f"({text})", TRUTH, is_bool=True)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._either(test, body, orelse, scope)
            case ast.Call():
                return self.call(node, scope)
        raise self.refusal(node, scope)

    def _literal(self, known: Any, node: ast.expr, scope: MethodScope) -> Value:
        if isinstance(known, bool):
            return Value(repr(known), ValueInterval(int(known), int(known)), is_bool=True)
        if not plain_integer(known):
            raise self.refusal(node, scope)
        number = int(known)
        return Value(str(number) if number >= 0 else f"({number})", ValueInterval(number, number))

    def _chosen(self, conjunction: bool, values: list[ast.expr], scope: MethodScope) -> Value:
        """The operand that decides an `and` or an `or`, or the last one."""
        made = self.value(values[0], scope) if len(values) == 1 else None
        if made is not None:
            return made
        known = self.constant(values[0], scope)
        if known is not UNKNOWN and known is not RAISES:
            return (
                self._chosen(conjunction, values[1:], scope)
                if bool(known) == conjunction
                else self.value(values[0], scope)
            )
        first, rest = self.value(values[0], scope), self._chosen(conjunction, values[1:], scope)
        if first.is_bool and rest.is_bool:
            return Value(f"({first.text} {'and' if conjunction else 'or'} {rest.text})", TRUTH, is_bool=True)
        one, other = (rest.number, first.number) if conjunction else (first.number, rest.number)
        text = f"({one} if {first.truth} else {other})"
        if len(text) > TEXT_AT_MOST:
            raise NotCompilable(f"{scope.where}: {shortened(values[0])} …: too many operands")
        return Value(text, first.interval | rest.interval)

    def _either(self, test: ast.expr, body: ast.expr, orelse: ast.expr, scope: MethodScope) -> Value:
        chosen = self.constant(test, scope)
        if chosen is not UNKNOWN and chosen is not RAISES:
            return self.value(body if chosen else orelse, scope)
        one, other = self.value(body, scope), self.value(orelse, scope)
        condition = self.condition(test, scope)
        if one.is_bool and other.is_bool:
            return Value(f"({one.text} if {condition} else {other.text})", TRUTH, is_bool=True)
        return Value(f"({one.number} if {condition} else {other.number})", one.interval | other.interval)

    def _binary(self, operator: ast.operator, left: Value, right: Value, node: ast.expr, scope: MethodScope) -> Value:
        a, b = left.interval, right.interval
        if isinstance(operator, ast.Pow) and b.low == b.high and 0 <= b.low <= POWER_AT_MOST:
            return Value(f"power({left.number}, {b.low})", power(a, b.low))
        if type(operator) not in _BINARY:
            raise self.refusal(node, scope)
        interval = RESULT[type(operator)](a, b)
        match operator:
            case ast.FloorDiv() | ast.Mod() if b.low <= 0 <= b.high:
                called = "quotient" if isinstance(operator, ast.FloorDiv) else "remainder"
            case ast.LShift() if b.low < 0 or b.high > 62:
                called = "shifted_left"
            case ast.RShift() if b.low < 0 or b.high > 63:
                called = "shifted_right"
            case _:
                return Value(f"({left.number} {_BINARY[type(operator)]} {right.number})", interval)
        return Value(f"{called}({left.number}, {right.number}, error)", interval)

    def _unary(self, operator: ast.unaryop, operand: ast.expr, scope: MethodScope) -> Value:
        if isinstance(operator, ast.Not):
            return Value(f"(not {self.condition(operand, scope)})", TRUTH, is_bool=True)
        made = self.value(operand, scope)
        low, high = made.interval.low, made.interval.high
        if isinstance(operator, ast.UAdd):
            return Value(made.number, made.interval)
        if isinstance(operator, ast.USub):
            return Value(f"(-{made.number})", ValueInterval(-high, -low))
        return Value(f"(~{made.number})", ValueInterval(~high, ~low))

    def _membership(self, element: ast.expr, inside: bool, members: ast.expr, scope: MethodScope) -> Value:
        """A disjunction of equalities; Python evaluates every member first, so one that may raise is not skipped."""
        one = self.value(element, scope)
        known = self.constant(members, scope)
        if known is not UNKNOWN and known is not RAISES:
            if not plain_container(known) or len(known) > 4096:
                raise self.refusal(members, scope)
            if isinstance(known, range) and known.step == 1 and len(known) > 2:
                at_ends = (self._bound(known.start), self._bound(known.stop - 1))
                text = f"({at_ends[0]} <= {one.number} <= {at_ends[1]})"
                return Value(text if inside else f"(not {text})", TRUTH, is_bool=True)
            entries = [str(n) if n >= 0 else f"({n})" for n in self._equal_to(known, one.interval, members, scope)]
            eager = one.may_raise
        elif isinstance(members, ast.Tuple | ast.List | ast.Set):
            made = [self.value(entry, scope) for entry in members.elts]
            entries, eager = [entry.number for entry in made], any(entry.may_raise for entry in made) or one.may_raise
        else:
            raise self.refusal(members, scope)
        if not entries:
            text = f"({one.number} != {one.number})" if one.may_raise else "False"
        else:
            text = f"({(' | ' if eager else ' or ').join(f'({one.number} == {entry})' for entry in entries)})"
        return Value(text if inside else f"(not {text})", TRUTH, is_bool=True)

    def _bound(self, number: int) -> str:
        if not ValueInterval(number, number).fits:
            raise NotCompilable(f"a range to {number}, beyond 64 bits")
        return str(number) if number >= 0 else f"({number})"

    def _equal_to(self, known: Iterable[Any], of: ValueInterval, node: ast.expr, scope: MethodScope) -> list[int]:
        """The integers that equal a member of a constant container."""
        found: dict[int, None] = {}
        for member in known:
            if isinstance(member, int) and (isinstance(member, bool) or plain_integer(member)):
                found[int(member)] = None
            elif isinstance(member, float):
                if member.is_integer():
                    found[int(member)] = None
            elif not (member is None or type(member) in (str, bytes, tuple)):
                raise self.refusal(node, scope)
        return [number for number in found if of.low <= number <= of.high]

    # -- places --------------------------------------------------------------------------------------------

    def _access(self, node: ast.expr, scope: MethodScope) -> Value:
        root, indices = unsubscripted(node)
        table: Any = self.constant(root, scope)
        if table is not UNKNOWN and table is not RAISES and indices:
            return self._tabulated(table, indices, node, scope)
        state, place, index = self.field_access(node, scope)
        return Value(reading(state, place, index), ValueInterval(place.domain.low, place.domain.high))

    def _tabulated(self, table: Any, indices: list[ast.expr], node: ast.expr, scope: MethodScope) -> Value:
        """An element of a constant tuple or list of integers, or of a rectangular one of such."""
        shape: list[int] = []
        entries = [table]
        while entries and all(type(entry) in (tuple, list) for entry in entries):
            if len({len(entry) for entry in entries}) != 1:
                raise self.refusal(node, scope)
            shape.append(len(entries[0]))
            entries = [inner for entry in entries for inner in entry]
        if len(shape) != len(indices) or not all(plain_integer(entry) or isinstance(entry, bool) for entry in entries):
            raise self.refusal(node, scope)
        if not entries or len(entries) > 1 << 16:
            raise self.refusal(node, scope)
        index = ""
        for at, size in zip(indices, shape, strict=True):
            made = self.value(at, scope)
            inside = made.interval.within(0, size - 1)
            one = made.number if inside else f"entry({made.number}, {size}, error)"
            index = f"({index} * {size} + {one})" if index else one
        numbers = tuple(int(entry) for entry in entries)
        if not hull(numbers).fits:
            raise NotCompilable(f"{scope.where}: {shortened(node)} has entries beyond 64 bits")
        name = self.tables.setdefault(numbers, f"table_{len(self.tables)}")
        return Value(f"int64({name}[{index}])", hull(numbers))

    def field_access(self, node: ast.expr, scope: MethodScope) -> tuple[str, Field, str]:
        """The state, the variable and the text of the flat index ("" for a scalar) of an access `s.name[i][j]`."""
        inner, indices = unsubscripted(node)
        place = self._field(inner, scope)
        if place is None or len(indices) != len(place.shape):
            raise self.refusal(node, scope)
        assert isinstance(inner, ast.Attribute)
        assert isinstance(inner.value, ast.Name)
        index = ""
        for at, size in zip(indices, place.shape, strict=True):
            made = self.value(at, scope)
            inside = made.interval.within(0, size - 1)
            one = made.number if inside else f"checked({made.number}, {size}, error)"
            index = f"({index} * {size} + {one})" if index else one
        return inner.value.id, place, index

    def _field(self, node: ast.expr, scope: MethodScope) -> Field | None:
        match node:
            case ast.Attribute(value=ast.Name(id=state), attr=name) if state in scope.states:
                return self.layout.field(name)
        return None

    # -- calls ---------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: MethodScope, truth_only: bool = False) -> Value:
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self.refusal(node, scope)
        match node.func:
            case ast.Name(id=name) if self._is_builtin(name, scope):
                return self._builtin(name, node, scope)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.owner:
                found = inspect.getattr_static(type(self.specification), name, None)
                if name in vars(self.specification):
                    raise self.refusal(node, scope)
                if isinstance(found, staticmethod):
                    return self._invoke(found.__func__, node, scope, False, truth_only)
                return self._invoke(found, node, scope, True, truth_only)
        return self._invoke(self.constant(node.func, scope), node, scope, False, truth_only)

    def _is_builtin(self, name: str, scope: MethodScope) -> bool:
        shadowed = name in scope.names or name in scope.assigned or name in scope.known
        return hasattr(builtins, name) and not shadowed

    def _builtin(self, name: str, node: ast.Call, scope: MethodScope) -> Value:
        match name, node.args:
            case "any" | "all" | "sum", [over]:
                return self._quantifier(name, over, node, scope)
            case "min" | "max", [ast.GeneratorExp() as over]:
                return self._quantifier(name, over, node, scope)
            case "min" | "max", [_, _, *_] as given:
                return _extreme(name, [self.value(one, scope) for one in given])
            case "abs", [one]:
                made = self.value(one, scope)
                return Value(f"abs({made.number})", absolute(made.interval))
            case "int", [one]:
                made = self.value(one, scope)
                return Value(made.number, made.interval)
            case "bool", [one]:
                return Value(self.condition(one, scope), TRUTH, is_bool=True)
            case "len", [one]:
                place = self._field(one, scope)
                if place is not None and place.shape:
                    return Value(str(place.shape[0]), ValueInterval(place.shape[0], place.shape[0]))
        raise self.refusal(node, scope)

    def _invoke(self, callee: Any, node: ast.Call, scope: MethodScope, bound: bool, truth_only: bool) -> Value:
        if not isinstance(callee, FunctionType) or callee is require:
            raise self.refusal(node, scope)
        states = [a.id for a in node.args if isinstance(a, ast.Name) and a.id in scope.states]
        rest = [self.value(a, scope) for a in node.args[len(states) :]]
        given = tuple(value.interval.rounded() for value in rest)
        name, interval, may_be_none = self.function(callee, len(states), given, False, bound)
        if interval is None or (may_be_none and not truth_only):
            raise NotCompilable(f"{scope.where}: {shortened(node)} may yield None")
        passed = [*(f"s_{s}, r_{s}" for s in states), "error", *(f"int64({value.text})" for value in rest)]
        return Value(f"{name}({', '.join(passed)})", interval)

    # -- quantifiers ---------------------------------------------------------------------------------------

    def _quantifier(self, name: str, node: ast.expr, whole: ast.Call, scope: MethodScope) -> Value:
        if not isinstance(node, ast.GeneratorExp) or any(g.is_async for g in node.generators):
            raise self.refusal(whole, scope)
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name):
            raise self.refusal(node, scope)
        variable = generator.target.id
        hides_a_local = any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(generator.iter))
        if variable in scope.states or variable == scope.owner or hides_a_local:
            raise self.refusal(node, scope)
        body: ast.expr = node.elt
        if len(node.generators) > 1:
            if name in ("min", "max"):
                raise self.refusal(whole, scope)
            inner = ast.GeneratorExp(node.elt, node.generators[1:])
            body = ast.Call(ast.Name(name, ast.Load()), [inner], [])
            if generator.ifs and name == "sum":
                body = ast.IfExp(_all_of(generator.ifs), body, ast.Constant(0))
            elif generator.ifs:
                body = _guarded(name, _all_of(generator.ifs), body)
        elif generator.ifs:
            if name in ("min", "max"):
                raise self.refusal(whole, scope)
            body = _guarded(name, _all_of(generator.ifs), body)
        body = ast.fix_missing_locations(ast.copy_location(body, node))
        over = self.constant(generator.iter, scope)
        if over is RAISES:
            return Value("raised(error)", ValueInterval(0, 0))
        if over is not UNKNOWN:
            if not (plain_container(over) or isinstance(over, EnumMeta)):
                raise self.refusal(generator.iter, scope)
            if len(over) <= UNROLL_AT_MOST:
                made = self._unrolled(name, variable, list(over), body, whole, scope)
                if name in ("min", "max") or len(made.text) <= UNROLLED_TEXT_AT_MOST:
                    return made
        if name in ("min", "max"):
            raise self.refusal(whole, scope)
        return self._hoisted(name, variable, generator.iter, body, scope)

    def _unrolled(
        self, name: str, variable: str, over: list[Any], body: ast.expr, whole: ast.Call, scope: MethodScope
    ) -> Value:
        hidden = variable in scope.known
        outer = scope.known.get(variable)
        parts: list[Value] = []
        for entry in over:
            scope.known[variable] = entry
            if name in ("any", "all"):
                parts.append(Value(self.condition(body, scope), TRUTH, is_bool=True))
            else:
                parts.append(self.value(body, scope))
        scope.known.pop(variable, None)
        if hidden:
            scope.known[variable] = outer
        if name in ("min", "max"):
            return _extreme(name, parts) if parts else Value("raised(error)", ValueInterval(0, 0))
        if name == "sum":
            # Of the partial sums, too.
            interval = ValueInterval(
                sum(min(0, p.interval.low) for p in parts), sum(max(0, p.interval.high) for p in parts)
            )
            return Value(f"({' + '.join(f'int64({p.text})' for p in parts)})" if parts else "0", interval)
        joiner = " and " if name == "all" else " or "
        text = f"({joiner.join(p.text for p in parts)})" if parts else repr(name == "all")
        return Value(text, TRUTH, is_bool=True)

    def _hoisted(self, name: str, variable: str, over: ast.expr, body: ast.expr, scope: MethodScope) -> Value:
        """A quantifier whose set is only known during the run, or is large, becomes a loop in a function of its own."""
        used = sorted({n.id for part in (over, body) for n in ast.walk(part) if isinstance(n, ast.Name)})
        ranges = scope.ranges or {}
        states = [n for n in used if n in scope.states]
        free = [n for n in used if n in ranges and n != variable and n not in scope.known]
        stretch = self.iterable(over, scope, variable)
        if stretch.element is None:
            return Value("0", ValueInterval(0, 0)) if name == "sum" else Value(repr(name == "all"), TRUTH, is_bool=True)
        known = {n: v for n, v in scope.known.items() if n != variable}
        inner = MethodScope(
            scope.owner, scope.names, scope.assigned | {variable}, scope.where, scope.states,
            {**{n: ranges[n] for n in free}, variable: stretch.element}, known=known,
            kinds={**scope.kinds, variable: stretch.kind},
        )  # fmt: skip
        head = stretch.head(variable)
        if name == "sum":
            term = self.value(body, inner)
            most = stretch.rounds.high
            interval = ValueInterval(min(0, most * term.interval.low), max(0, most * term.interval.high))
            lines = ["total = int64(0)", *head, f"    total += int64({term.text})", "return total"]
        else:
            stop = "not " if name == "all" else ""
            interval = TRUTH
            truth = self.condition(body, inner)
            lines = [*head, f"    if {stop}{truth}:", f"        return {name == 'any'}", f"return {name == 'all'}"]
        hoisted = self.define(name, states, free, lines)
        passed = [*(f"s_{s}, r_{s}" for s in states), "error", *(f"int64(v_{n})" for n in free)]
        return Value(f"{hoisted}({', '.join(passed)})", interval, is_bool=name != "sum")

    def iterable(self, node: ast.expr, scope: MethodScope, variable: str) -> IndexStretch:
        """What a loop runs over: constant integers, a range bounded by the run, a set or a sequence of the state."""
        over = self.constant(node, scope)
        if over is RAISES:
            return IndexStretch("range(raised(error))", ValueInterval(0, 0), ValueInterval(0, 1))
        if over is not UNKNOWN:
            return self._constant_stretch(over, node, scope)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and (
            found := self.members(node, scope, variable)
        ):
            return found
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[_, *_], keywords=[]) if self._is_builtin("range", scope):
                return self._range(node.args, node, scope)
        raise self.refusal(node, scope)

    def _constant_stretch(self, over: Any, node: ast.expr, scope: MethodScope) -> IndexStretch:
        if not (plain_container(over) or isinstance(over, EnumMeta)):
            raise self.refusal(node, scope)
        rounds = ValueInterval(len(over), len(over))
        if isinstance(over, range):
            if not over:
                return IndexStretch("range(0)", None, rounds)
            bounds = f"{self._bound(over.start)}, {self._bound(over.stop)}, {self._bound(over.step)}"
            return IndexStretch(f"range({bounds})", hull((over[0], over[-1])), rounds)
        values = list(over)
        if not all(plain_integer(value) or isinstance(value, bool) for value in values):
            raise self.refusal(node, scope)
        numbers = tuple(int(value) for value in values)
        if not numbers:
            return IndexStretch("range(0)", None, rounds)
        if not hull(numbers).fits or len(numbers) > 1 << 16:
            raise self.refusal(node, scope)
        if numbers == tuple(range(numbers[0], numbers[0] + len(numbers))):
            return IndexStretch(f"range({numbers[0]}, {numbers[-1] + 1})", hull(numbers), rounds)
        name = self.tables.setdefault(numbers, f"table_{len(self.tables)}")
        return IndexStretch(name, hull(numbers), rounds)

    def _range(self, given: list[ast.expr], node: ast.expr, scope: MethodScope) -> IndexStretch:
        if len(given) > 3:
            raise self.refusal(node, scope)
        step = self.constant(given[2], scope) if len(given) == 3 else 1
        if type(step) is not int or step == 0 or abs(step) > 1 << 32:
            raise self.refusal(node, scope)
        start = self.value(given[0], scope) if len(given) > 1 else Value("0", ValueInterval(0, 0))
        stop = self.value(given[1] if len(given) > 1 else given[0], scope)
        a, b = start.interval, stop.interval
        if step > 0:
            widest, narrowest = range(a.low, b.high, step), range(a.high, b.low, step)
            element = ValueInterval(a.low, b.high - 1)
        else:
            widest, narrowest = range(a.high, b.low, step), range(a.low, b.high, step)
            element = ValueInterval(b.low + 1, a.high)
        # One more step than the last must not leave 64 bits either: numba computes it.
        if (
            not ValueInterval(a.low - abs(step), b.high + abs(step)).fits
            or not ValueInterval(b.low - abs(step), a.high).fits
        ):
            raise NotCompilable(f"{scope.where}: {shortened(node)} may leave 64 bits")
        text = f"range({start.number}, {stop.number}, {step})" if step != 1 else f"range({start.number}, {stop.number})"
        least, most = (max(0, -(-(r.stop - r.start) // r.step)) for r in (narrowest, widest))
        return IndexStretch(text, element if most else None, ValueInterval(least, most))

    # -- constants -----------------------------------------------------------------------------------------

    def constant(self, node: ast.expr, scope: MethodScope) -> Any:
        """The value of an expression if it is the same in every state, evaluated by Python; UNKNOWN, or RAISES."""
        names: dict[str, Any] = {}
        if not self._is_known(node, scope, names):
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        try:
            whole = ast.fix_missing_locations(ast.Expression(node))
            return eval(compile(whole, "<constant>", "eval"), {}, names)
        except Exception:  # whatever it raises, it raises in every state
            return RAISES

    def _is_known(self, node: ast.AST, scope: MethodScope, names: dict[str, Any]) -> bool:
        """Whether all leaves are constants; `names` collects what they are bound to."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self._bind(name, scope, names)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.owner and owner is not None:
                names[owner] = self.specification
                return self._is_attribute(name)
            case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
                if not self._is_builtin(name, scope) or getattr(builtins, name) not in _FOLDED_CALLS:
                    return False
                return all(self._is_known(argument, scope, names) for argument in given)
            case (
                ast.Attribute(ctx=ast.Load()) | ast.Tuple() | ast.List() | ast.Set() | ast.BinOp() | ast.UnaryOp()
                | ast.BoolOp() | ast.Compare() | ast.IfExp() | ast.Subscript() | ast.Slice()
            ):  # fmt: skip
                leaves = (n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
                return all(self._is_known(child, scope, names) for child in leaves)
        return False

    def _bind(self, name: str, scope: MethodScope, names: dict[str, Any]) -> bool:
        if name in scope.known:
            names[name] = scope.known[name]
        elif name in scope.assigned or name in scope.states or name == scope.owner or name not in scope.names:
            return False
        else:
            names[name] = scope.names[name]
        return True

    def _is_attribute(self, name: str) -> bool:
        """Whether it is a parameter or a property of the specification, and not a method."""
        try:
            held = getattr(self.specification, name, UNKNOWN)
        except Exception:  # a property that raises does so wherever it is read
            return True
        return held is not UNKNOWN and not inspect.isroutine(held)

    def refusal(self, node: ast.AST, scope: MethodScope) -> NotCompilable:
        if isinstance(node, ast.Name) and node.id in scope.assigned:
            return NotCompilable(f"{scope.where}: {node.id} may have no value here")
        return NotCompilable(f"{scope.where}: {shortened(node)}")


def _extreme(name: str, values: list[Value]) -> Value:
    lows, highs = [v.interval.low for v in values], [v.interval.high for v in values]
    pick = min if name == "min" else max
    text = values[0].number
    for value in values[1:]:
        text = f"{name}({text}, {value.number})"
    return Value(text, ValueInterval(pick(lows), pick(highs)))


def _all_of(tests: list[ast.expr]) -> ast.expr:
    return ast.BoolOp(ast.And(), list(tests)) if len(tests) > 1 else tests[0]


def _guarded(name: str, when: ast.expr, body: ast.expr) -> ast.expr:
    """The element of a filtered quantifier: any(p and e), all(not p or e), sum(e if p else 0)."""
    if name == "any":
        return ast.BoolOp(ast.And(), [when, body])
    if name == "all":
        return ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), when), body])
    return ast.IfExp(when, body, ast.Constant(0))
