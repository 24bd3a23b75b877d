"""Translation of a specification's methods into functions over packed states, as Python text that numba compiles.

`s.manager[rm] == Manager.WORKING` becomes a shift, a mask and a comparison on row `r_s` of the array `s_s`. Expressions
are translated in `expressions`; here are statements and functions. Intervals of local variables are found by running
the text on intervals: branches are joined, loops repeated until nothing new can come, or as often as they can go
round. Whatever cannot be translated so that it does what Python does is refused (`NotCompilable`); the interpreter
then runs the very same text.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from orderlab.model.explorer.compiled.expressions import Expressions
from orderlab.model.explorer.compiled.intervals import ValueInterval
from orderlab.model.explorer.compiled.layout import Field, Layout
from orderlab.model.explorer.compiled.program_text import NotCompilable, program_text
from orderlab.model.explorer.compiled.translated import RAISES, UNKNOWN, MethodScope, position, shortened, unsubscripted
from orderlab.model.spec.declarations import GuardNotMet, require
from orderlab.model.spec.variables import Domain

ROUNDS_AT_MOST = 300
"""Rounds of a loop on intervals after which it is refused."""

Ranges = dict[str, ValueInterval]


class Translator(Expressions):
    """Collects the translated functions of one specification; `functions` maps their names to their text."""

    def __init__(self, specification: Any, layout: Layout):
        self.specification = specification
        self.layout = layout
        self.functions: dict[str, str] = {}
        self.tables: dict[tuple[int, ...], str] = {}
        self._made: dict[tuple[Any, ...], tuple[str, ValueInterval | None, bool]] = {}
        self._in_progress: set[tuple[Any, ...]] = set()

    def function(
        self,
        method: Callable[..., Any],
        states: int,
        given: tuple[ValueInterval, ...] = (),
        is_action: bool = False,
        bound: bool = True,
        is_predicate: bool = False,
    ) -> tuple[str, ValueInterval | None, bool]:
        """Translate a function whose first parameters (after self if `bound`) are `states` states and the rest integers
        of the given intervals. A predicate raises where it yields None; a helper's None is false. Return its new name,
        what it yields (None: nothing), and whether it may yield None.
        """
        key = (method, states, given, is_action, bound, is_predicate)
        if key in self._in_progress:
            raise NotCompilable(f"{method.__qualname__}: recursion")
        if key not in self._made:
            self._in_progress.add(key)
            self._made[key] = self._translate(method, states, given, is_action, bound, is_predicate)
            self._in_progress.discard(key)
        return self._made[key]

    def predicate(self, method: Callable[..., Any], states: int, given: tuple[ValueInterval, ...] = ()) -> str:
        """The name of a function of which only the truth matters, as of a law."""
        return self.function(method, states, given, is_predicate=True)[0]

    def _translate(
        self,
        method: Callable[..., Any],
        states: int,
        given: tuple[ValueInterval, ...],
        is_action: bool,
        bound: bool,
        is_predicate: bool,
    ) -> tuple[str, ValueInterval | None, bool]:
        text = program_text(method)
        parameters = list(text.parameters[1:] if bound else text.parameters)
        if len(parameters) != states + len(given) or (bound and not text.parameters):
            raise NotCompilable(f"{method.__qualname__}: called with another number of arguments than it has")
        owner = text.parameters[0] if bound else None
        taken = {*parameters[:states], owner}
        scope = MethodScope(
            owner, text.names, text.assigned, method.__qualname__, frozenset(parameters[:states]),
            dict(zip(parameters[states:], given, strict=True)), is_action, is_predicate,
        )  # fmt: skip
        if any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in taken for n in _nodes(text.body)):
            raise NotCompilable(f"{method.__qualname__}: assigns a parameter that holds the state")
        lines = self.block(text.body, scope)
        falls_off = scope.ranges is not None
        if falls_off:
            lines += ["return True"] if is_action else self._none(scope)
        name = self.define(method.__name__, parameters[:states], parameters[states:], lines)
        returned = [*scope.returned, ValueInterval(0, 0)] if falls_off or None in scope.returned else scope.returned
        intervals = [r for r in returned if r is not None]
        interval = ValueInterval(min(i.low for i in intervals), max(i.high for i in intervals)) if intervals else None
        return name, interval, falls_off or None in scope.returned

    def define(self, stem: str, states: list[str], rest: list[str], lines: list[str]) -> str:
        name = f"f_{stem}_{len(self.functions)}"
        given = ", ".join([*(f"s_{s}, r_{s}" for s in states), "error", *(f"v_{n}" for n in rest)])
        self.functions[name] = f"@njit\ndef {name}({given}):\n" + "\n".join("    " + line for line in lines or ["pass"])
        return name

    def block(self, body: list[ast.stmt], scope: MethodScope) -> list[str]:
        """The lines of some statements; what stands after the end of control is left out."""
        lines: list[str] = []
        for statement in body:
            if scope.ranges is not None:
                lines += self.statement(statement, scope)
        return lines

    def statement(self, node: ast.stmt, scope: MethodScope) -> list[str]:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.AnnAssign(target=ast.Name(), value=None):
                return []
            case ast.Expr(value=ast.Call(func=called, args=[guard], keywords=[])) if (
                self.constant(called, scope) is require
            ):
                return self._require(guard, scope)
            case ast.Assign(targets=[target], value=value):
                return self.assignment(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self.assignment(target, value, scope)
            case ast.AugAssign(target=target, op=operator, value=value):
                new = ast.BinOp(_loaded(target), operator, value)
                return self.assignment(target, ast.fix_missing_locations(ast.copy_location(new, node)), scope)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._if(test, body, orelse, scope)
            case ast.For(target=ast.Name(id=name), iter=over, body=body, orelse=[]):
                return self._for(name, over, body, scope)
            case ast.Return(value=value):
                return self._return(value, scope)
            case ast.Assert(test=test):
                return [] if not __debug__ else self._unless(test, self._raising(scope), scope)
            case ast.Raise(exc=ast.expr() as raised, cause=None):
                self._check_exception(raised, node, scope)
                scope.ranges = None
                return self._raising(scope)
            case ast.Break() | ast.Continue():
                assert scope.ranges is not None
                (scope.breaks if isinstance(node, ast.Break) else scope.continues).append(scope.ranges)
                scope.ranges = None
                return [ast.unparse(node)]
        raise self.refusal(node, scope)

    def _require(self, guard: ast.expr, scope: MethodScope) -> list[str]:
        if not scope.is_action:
            raise NotCompilable(f"{scope.where}: require outside an action")
        return self._unless(guard, ["return False"], scope)

    def _unless(self, test: ast.expr, lines: list[str], scope: MethodScope) -> list[str]:
        return [f"if not {self.condition(test, scope)}:", *("    " + line for line in lines)]

    def _raising(self, scope: MethodScope) -> list[str]:
        return ["error[0] = 1", "return False" if scope.is_action else "return int64(0)"]

    def _check_exception(self, raised: ast.expr, node: ast.stmt, scope: MethodScope) -> None:
        """Only what is surely an exception that ends the run; GuardNotMet, for one, does not."""
        kind = raised.func if isinstance(raised, ast.Call) else raised
        named = isinstance(kind, ast.Name) and kind.id in ("ValueError", "AssertionError", "RuntimeError")
        if not (named and isinstance(kind, ast.Name) and self._is_builtin(kind.id, scope)):
            raise self.refusal(node, scope)
        assert not issubclass(ValueError, GuardNotMet)

    def _return(self, value: ast.expr | None, scope: MethodScope) -> list[str]:
        """What an action returns is ignored, though it is evaluated."""
        none = value is None or (isinstance(value, ast.Constant) and value.value is None)
        made = None if none or value is None else self.value(value, scope)
        scope.ranges = None
        if scope.is_action:
            first = [f"ignored = {made.number}"] if made is not None and made.may_raise else []
            return [*first, "return True"]
        scope.returned.append(None if made is None else made.interval)
        return self._none(scope) if made is None else [f"return int64({made.text})"]

    def _none(self, scope: MethodScope) -> list[str]:
        """None as the outcome of a function: false, and of a law or a predicate an error."""
        return [*(["error[0] = 1"] if scope.is_predicate else []), "return int64(0)"]

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt], scope: MethodScope) -> list[str]:
        known = self.constant(test, scope)
        if known is not UNKNOWN and known is not RAISES:
            return self.block(body if known else orelse, scope)
        assert scope.ranges is not None
        lines = [f"if {self.condition(test, scope)}:"]
        before = dict(scope.ranges)
        lines += ["    " + line for line in self.block(body, scope) or ["pass"]]
        after, scope.ranges = scope.ranges, before
        if orelse:
            lines += ["else:", *("    " + line for line in self.block(orelse, scope) or ["pass"])]
        scope.ranges = joined([after, scope.ranges])
        return lines

    def _for(self, name: str, over: ast.expr, body: list[ast.stmt], scope: MethodScope) -> list[str]:
        """A loop, run on intervals until its variables reach nothing new."""
        if name in scope.known or name in scope.states or name == scope.owner:
            raise NotCompilable(f"{scope.where}: the loop variable {name} has another meaning")
        stretch = self.iterable(over, scope, name)
        self._holds(name, stretch.kind, scope)
        assert scope.ranges is not None
        if stretch.element is None:
            return []
        outer = scope.breaks, scope.continues
        entry = dict(scope.ranges)
        rounds = 0
        while rounds < stretch.rounds.high:
            functions, made = dict(self.functions), dict(self._made)
            ends = self._round(name, stretch.element, entry, body, scope)[1]
            self.functions, self._made = functions, made
            following = joined([entry, ends])
            assert following is not None
            if following == entry:
                break
            entry = following
            rounds += 1
            if rounds > ROUNDS_AT_MOST:
                grown = ", ".join(n for n in entry if entry[n] != scope.ranges.get(n)) if scope.ranges else "a variable"
                raise NotCompilable(f"{scope.where}: no bound is proved for {grown or name} in a loop")
        lines, ends = self._round(name, stretch.element, entry, body, scope)
        scope.ranges = joined([ends, *scope.breaks, *([entry] if stretch.rounds.low == 0 else [])])
        scope.breaks, scope.continues = outer
        return [*stretch.head(name), *("    " + line for line in lines or ["pass"])]

    def _holds(self, name: str, kind: Domain | None, scope: MethodScope) -> None:
        """Note what kind of value a local holds: the same wherever it is assigned."""
        if scope.kinds.setdefault(name, kind) != kind:
            raise NotCompilable(f"{scope.where}: {name} is now one kind of value, now another")

    def _round(
        self, name: str, element: ValueInterval, entry: Ranges, body: list[ast.stmt], scope: MethodScope
    ) -> tuple[list[str], Ranges | None]:
        """One round: the lines of the body, and the variables where the next round would begin."""
        scope.ranges, scope.breaks, scope.continues = {**entry, name: element}, [], []
        lines = self.block(body, scope)
        return lines, joined([scope.ranges, *scope.continues])

    def assignment(self, target: ast.expr, value: ast.expr, scope: MethodScope) -> list[str]:
        if not isinstance(target, ast.Name) and (compound := self._compound_assigned(target, value, scope)) is not None:
            return compound
        made = (self.compound(value, scope) if isinstance(target, ast.Name) else None) or self.value(value, scope)
        if isinstance(target, ast.Name):
            assert scope.ranges is not None
            self._holds(target.id, made.kind, scope)
            scope.ranges = {**scope.ranges, target.id: made.interval}
            return [f"v_{target.id} = int64({made.text})"]
        if not scope.is_action:
            raise NotCompilable(f"{scope.where}: {shortened(target)} is assigned outside an action")
        state, place, index = self.field_access(target, scope)
        low, high = place.domain.low, place.domain.high
        write = _writing(state, place, index)
        lines = [f"put = int64({made.text})", *([f"put_at = {index}"] if index else [])]
        if made.interval.within(low, high):
            return [*lines, write]
        return [*lines, f"if put < {low} or put > {high}:", "    error[0] = 1", "else:", f"    {write}"]

    def _compound_assigned(self, target: ast.expr, value: ast.expr, scope: MethodScope) -> list[str] | None:
        """The assignment of a set, a record or a sequence; None if the target holds integers."""
        root, _ = unsubscripted(target)
        place = self._field(root, scope)
        if place is None or not place.domain.is_compound:
            return None
        if not scope.is_action:
            raise NotCompilable(f"{scope.where}: {shortened(target)} is assigned outside an action")
        text = self.as_code(value, place.domain, scope, assigned=True)
        state, place, index = self.field_access(target, scope)
        return [f"put = int64({text})", *([f"put_at = {index}"] if index else []), _writing(state, place, index)]


def _writing(state: str, place: Field, index: str) -> str:
    """The line that writes `put` into the row, at `put_at` where there is an index."""
    mask, low = (1 << place.bits) - 1, place.domain.low
    word, shift = position(place, "put_at" if index else "")
    at = f"s_{state}[r_{state}, {word}]"
    less = f" - {low}" if low > 0 else f" + {-low}" if low < 0 else ""
    return f"{at} = ({at} & ~({mask} << ({shift}))) | ((put{less}) << ({shift}))"


def joined(ways: list[Ranges | None]) -> Ranges | None:
    """The variables where several ways of control meet: those that all of them assign."""
    come = [way for way in ways if way is not None]
    if not come:
        return None
    found = dict(come[0])
    for way in come[1:]:
        found = {name: interval | way[name] for name, interval in found.items() if name in way}
    return found


def _nodes(body: list[ast.stmt]) -> list[ast.AST]:
    return [node for statement in body for node in ast.walk(statement)]


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def overridden(specification: Any, base: type, allowed: frozenset[str]) -> list[str]:
    """The methods of the base that the specification's class replaces, other than those that it is meant to."""
    return sorted(
        name
        for name, value in vars(base).items()
        if name not in allowed
        and (inspect.isroutine(value) or hasattr(value, "func"))
        and not name.startswith("__")
        and inspect.getattr_static(type(specification), name) is not value
    )


__all__ = ["NotCompilable", "Translator", "overridden"]
