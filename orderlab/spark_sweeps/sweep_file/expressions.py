"""Derived parameters: arithmetic over other parameters, parsed by Python and evaluated here, node by node.

Only what is listed can be written: no attributes, no subscripts, no calls but those of FUNCTIONS. Powers and products
of text are bounded, so that no expression takes long.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from orderlab.model.errors import InputError, did_you_mean

Value = bool | int | float | str
LENGTH_MAX = 1000
DEPTH_MAX = 40
EXPONENT_MAX = 1024
TEXT_MAX = 10_000

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": abs, "min": min, "max": max, "round": round, "int": int, "float": float, "str": str,
    "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "exp": math.exp,
}  # fmt: skip
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


class Expression:
    """A parsed expression. ``place`` names it in errors. Raises InputError for anything that is not listed above."""

    def __init__(self, text: str, place: str) -> None:
        text = text.strip()
        self.text, self.place = text, place
        if len(text) > LENGTH_MAX:
            raise InputError(f"{place}: {len(text)} characters; at most {LENGTH_MAX}: split it into several")
        if len(text.splitlines()) > 1:
            raise InputError(f"{place}: {len(text.splitlines())} lines; write an expression on one")
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", "too deeply nested")
            raise InputError(f'{place}: "{text}" is not an expression ({reason}); write it as in "2 * rate"') from None
        self.names = frozenset(_names(self._tree, place))

    def evaluate(self, values: Mapping[str, Any]) -> Value:
        """The value under those of other parameters. Raises InputError where it has none (division by zero, ...)."""
        for name in sorted(self.names):
            if name not in values:
                raise InputError(f'{self.place}: unknown name "{name}"; {did_you_mean(name, tuple(values))}')
        try:
            found: Value = _evaluate(self._tree, values)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise InputError(f'{self.place}: "{self.text}" has no value here ({error})') from None
        if isinstance(found, float) and not math.isfinite(found):
            raise InputError(f'{self.place}: "{self.text}" is {found} here; parameters are finite')
        return found

    def column(self, columns: Mapping[str, np.ndarray], length: int) -> np.ndarray:
        """About the values under columns of values, in floating point; nan where there is none. For estimates alone: it
        raises TypeError or ValueError for what only `evaluate` can say.
        """
        with np.errstate(all="ignore"):
            found = np.asarray(_column(self._tree, columns))
        return np.broadcast_to(found, (length,))


def _names(node: ast.AST, place: str, depth: int = 0) -> set[str]:
    """The names that an expression uses; InputError for what may not be written."""
    if depth > DEPTH_MAX:
        raise InputError(f"{place}: nested more than {DEPTH_MAX} deep; split it into several")
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (bool, int, float, str)):
            raise InputError(f"{place}: {node.value!r} is not a number, a text or a truth value")
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            raise InputError(f'{place}: "{name}" cannot be called; functions: {", ".join(FUNCTIONS)}')
        parts: list[ast.expr] = node.args
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        parts = [node.operand]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.IfExp):
        parts = [node.test, node.body, node.orelse]
    else:
        raise InputError(f'{place}: "{ast.unparse(node)}" cannot be written here; use arithmetic, comparisons, if-else')
    return set().union(*(_names(part, place, depth + 1) for part in parts))


def _evaluate(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*(_evaluate(argument, values) for argument in node.args))
        case ast.BinOp():
            return _binary(node.op, _evaluate(node.left, values), _evaluate(node.right, values))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_evaluate(node.operand, values))
        case ast.BoolOp():
            wanted = isinstance(node.op, ast.Or)
            found = False
            for part in node.values:
                found = _evaluate(part, values)
                if bool(found) is wanted:
                    break
            return found
        case ast.IfExp():
            return _evaluate(node.body if _evaluate(node.test, values) else node.orelse, values)
        case ast.Compare():
            left = _evaluate(node.left, values)
            for op, comparator in zip(node.ops, node.comparators, strict=True):
                right = _evaluate(comparator, values)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
    raise AssertionError(f"unchecked node {node!r}")


_COLUMN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "round": np.rint,
    "int": np.trunc,
    "float": np.asarray,
    "ceil": np.ceil,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "log": np.log,
    "log2": np.log2,
    "exp": np.exp,
    "min": lambda *parts: functools.reduce(np.minimum, parts),
    "max": lambda *parts: functools.reduce(np.maximum, parts),
}


def _column(node: ast.AST, columns: Mapping[str, np.ndarray]) -> Any:
    """`_evaluate` over whole columns; numbers are floating point, so that no product overflows."""

    def part(inner: ast.AST) -> Any:
        return _column(inner, columns)

    def number(inner: ast.AST) -> Any:
        return np.asarray(part(inner)).astype(float)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return columns[node.id]
        case ast.Call(func=ast.Name(id=name)):
            if name not in _COLUMN_FUNCTIONS or (len(node.args) != 1 and name not in ("min", "max")):
                raise TypeError(name)
            return _COLUMN_FUNCTIONS[name](*(number(argument) for argument in node.args))
        case ast.BinOp():
            return _BINARY[type(node.op)](number(node.left), number(node.right))
        case ast.UnaryOp(op=ast.Not()):
            return np.logical_not(_true(part(node.operand)))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](number(node.operand))
        case ast.BoolOp():
            found = part(node.values[-1])
            for one in reversed(node.values[:-1]):
                value = part(one)
                true = _true(value)
                found = np.where(true, value, found) if isinstance(node.op, ast.Or) else np.where(true, found, value)
            return found
        case ast.IfExp():
            return np.where(_true(part(node.test)), part(node.body), part(node.orelse))
        case ast.Compare():
            sides = [part(side) for side in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides, sides[1:], strict=False)
            return functools.reduce(np.logical_and, (_COMPARE[type(op)](one, other) for op, one, other in pairs))
    raise TypeError(type(node).__name__)


def _true(values: Any) -> Any:
    return np.asarray(values).astype(bool)


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Pow) and (abs(right) > EXPONENT_MAX or abs(left) > 1e9):
        raise ValueError(f"{left} to the power of {right} is too large")
    if isinstance(op, ast.Mult) and isinstance(left, str | bytes) | isinstance(right, str | bytes):
        raise TypeError("text cannot be multiplied")
    if isinstance(op, ast.Mod) and isinstance(left, str):
        raise TypeError("text has no remainder")
    found = _BINARY[type(op)](left, right)
    if isinstance(found, str) and len(found) > TEXT_MAX:
        raise ValueError(f"a text of {len(found)} characters")
    return found
