"""What scripts call besides commands: the basic functions, ``string``, ``table``, ``math``, ``cjson``, ``cmsgpack``.

Functions of texts are Lua's own; of what they give, nothing is known but where it came from.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache, cmp_to_key
from typing import Any

import lupa.lua51 as lupa

from orderlab.properties.shadow.arithmetic import NotFollowed, number_of
from orderlab.properties.shadow.interpreter import Interpreter, LuaError
from orderlab.properties.shadow.marked import (
    BUILT,
    CALCULATED,
    DATA,
    EQUALITY,
    MEASURED,
    NIL,
    LuaTable,
    MarkedValue,
    joined,
)
from orderlab.properties.shadow.packing import packed, unpacked

UNPACKED_MAX = 7_999
"""Values that ``unpack`` gives at most in Redis's Lua."""
OF_TEXTS = ("byte", "char", "find", "format", "gsub", "len", "lower", "match", "rep", "reverse", "sub", "upper")
Function = Callable[[list[MarkedValue]], list[MarkedValue]]


@cache
def text_functions() -> dict[str, Any]:
    """Lua's own functions of texts, in a runtime that runs nothing else."""
    runtime: Any = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
    return {name: runtime.eval(b"string." + name.encode()) for name in OF_TEXTS}


@cache
def matches() -> Any:
    """A function that collects what ``gmatch`` goes through, up to four captures each."""
    runtime: Any = lupa.LuaRuntime(encoding=None, register_eval=False)
    rows = b"for a, b, c, d in string.gmatch(s, p) do r[#r + 1] = {a, b, c, d} end"
    return runtime.eval(b"function(s, p) local r = {} " + rows + b" return r end")


class LuaFunctions:
    """The functions of one run."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.run = interpreter
        self.path = interpreter.path
        self._leaves = 0

    def names(self) -> dict[bytes, MarkedValue]:
        """What the environment of a script holds, but ``redis``, ``KEYS`` and ``ARGV``."""
        plain: dict[str, Function] = {
            name: getattr(self, f"_{name}")
            for name in ("tonumber", "tostring", "type", "ipairs", "pairs", "next", "select", "unpack", "error",
                         "pcall", "assert", "rawget", "rawset")
        }  # fmt: skip
        tables: dict[str, dict[str, Function]] = {
            "string": {name: self._of_texts(name) for name in OF_TEXTS} | {"len": self._len, "gmatch": self._gmatch},
            "table": {"insert": self._insert, "remove": self._remove, "concat": self._concat, "sort": self._sort,
                      "getn": self._len, "unpack": self._unpack},
            "math": {"floor": self._floor, "ceil": self._ceil, "min": self._extreme(True), "max": self._extreme(False),
                     "abs": self._abs, "fmod": self._fmod, "pow": self._pow, "sqrt": self._opaque(math.sqrt),
                     "log": self._opaque(math.log)},
            "cmsgpack": {"pack": self._pack, "unpack": self._read_packed},
            "cjson": {"encode": self._encode, "decode": self._decode},
        }  # fmt: skip
        collected = {name.encode(): MarkedValue(function) for name, function in plain.items()}
        for name, functions in tables.items():
            collected[name.encode()] = MarkedValue(
                LuaTable({key.encode(): MarkedValue(item) for key, item in functions.items()})
            )
        holder = collected[b"math"].value
        holder.set(b"huge", MarkedValue(math.inf))
        collected[b"cjson"].value.set(b"null", MarkedValue(LuaTable()))
        return collected

    @property
    def _site(self) -> tuple[str, int]:
        return self.run.name, self.run.at

    # -- basic ---------------------------------------------------------------------------------------------------------

    def _tonumber(self, given: list[MarkedValue]) -> list[MarkedValue]:
        number = number_of(given[0].value)
        if len(given) > 1 and given[1].value != 10.0:
            raise NotFollowed("tonumber with a base")
        return [NIL if number is None else MarkedValue(number, given[0].expression, given[0].marks)]

    def _tostring(self, given: list[MarkedValue]) -> list[MarkedValue]:
        value = given[0].value
        if isinstance(value, (bytes, float)):
            return [MarkedValue(self.run.text(given[0], self._site), given[0].expression, given[0].marks)]
        if value is None or isinstance(value, bool):
            return [MarkedValue(b"nil" if value is None else b"true" if value else b"false", None, given[0].marks)]
        raise NotFollowed("the address of a table")

    def _type(self, given: list[MarkedValue]) -> list[MarkedValue]:
        value = given[0].value
        names = {bool: b"boolean", float: b"number", bytes: b"string", LuaTable: b"table", type(None): b"nil"}
        return [MarkedValue(names.get(type(value), b"function"), None, given[0].marks)]

    def _ipairs(self, given: list[MarkedValue]) -> list[MarkedValue]:
        def step(state: list[MarkedValue]) -> list[MarkedValue]:
            at = state[1].value + 1.0
            value = state[0].value.get(at)
            return [NIL] if value.value is None else [MarkedValue(at), value]

        if not isinstance(given[0].value, LuaTable):
            raise LuaError(MarkedValue(b"bad argument #1 to 'ipairs'"))
        return [MarkedValue(step), given[0], MarkedValue(0.0)]

    def _next(self, given: list[MarkedValue]) -> list[MarkedValue]:
        if not isinstance(given[0].value, LuaTable):
            raise LuaError(MarkedValue(b"bad argument #1 to 'next'"))
        keys = list(given[0].value.items)
        key = given[1].value if len(given) > 1 else None
        at = 0 if key is None else keys.index(key) + 1
        return [MarkedValue(keys[at]), given[0].value.items[keys[at]]] if at < len(keys) else [NIL]

    def _pairs(self, given: list[MarkedValue]) -> list[MarkedValue]:
        return [MarkedValue(self._next), given[0], NIL]

    def _select(self, given: list[MarkedValue]) -> list[MarkedValue]:
        if given[0].value == b"#":
            return [MarkedValue(float(len(given) - 1))]
        return given[int(number_of(given[0].value) or 1) :]

    def _unpack(self, given: list[MarkedValue]) -> list[MarkedValue]:
        table = given[0].value
        if not isinstance(table, LuaTable):
            raise LuaError(MarkedValue(b"bad argument #1 to 'unpack'"))
        size = MarkedValue(float(table.border), table.length)
        if table.length is None and table.site is not None:
            size.expression = self.path.symbol(BUILT, (self.run.name, table.site), size.value)
        first = given[1] if len(given) > 1 else MarkedValue(1.0)
        last = given[2] if len(given) > 2 else size
        low, high = number_of(first.value), number_of(last.value)
        if low is None or high is None:
            raise LuaError(MarkedValue(b"bad argument to 'unpack'"))
        span = self.run.calculate(b"-", last, first, self._site)
        fits = span.value < UNPACKED_MAX
        self.path.meet("<", span, MarkedValue(float(UNPACKED_MAX)), fits, self._site)
        if not fits:
            raise LuaError(MarkedValue(b"too many results to unpack"))
        return [table.get(float(at)) for at in range(int(low), int(high) + 1)]

    def _error(self, given: list[MarkedValue]) -> list[MarkedValue]:
        raise LuaError(given[0] if given else NIL)

    def _pcall(self, given: list[MarkedValue]) -> list[MarkedValue]:
        try:
            return [MarkedValue(True), *self.run.apply(given[0], given[1:])]
        except LuaError as error:
            return [MarkedValue(False), error.value]

    def _assert(self, given: list[MarkedValue]) -> list[MarkedValue]:
        if not given[0].is_true:
            raise LuaError(given[1] if len(given) > 1 else MarkedValue(b"assertion failed!"))
        return given

    def _rawget(self, given: list[MarkedValue]) -> list[MarkedValue]:
        return [given[0].value.get(given[1].value)]

    def _rawset(self, given: list[MarkedValue]) -> list[MarkedValue]:
        given[0].value.set(given[1].value, given[2])
        return [given[0]]

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _of_texts(self, name: str) -> Function:
        function = text_functions()[name]

        def call(given: list[MarkedValue]) -> list[MarkedValue]:
            for each in given:
                if not isinstance(each.value, (bytes, float)) and each.value is not None:
                    raise NotFollowed(f"string.{name} of a table")
            if name == "format":
                self._look_at_widths(given)
            elif name != "char":
                self.path.use(EQUALITY, *given)
            self.path.use(CALCULATED, *given)
            try:
                collected = function(*(each.value for each in given))
            except lupa.LuaError as error:
                raise LuaError(MarkedValue(str(error).encode())) from None
            marks = joined(*given)
            several = collected if isinstance(collected, tuple) else (collected,)
            return [MarkedValue(float(item) if isinstance(item, int) else item, None, marks) for item in several]

        return call

    def _gmatch(self, given: list[MarkedValue]) -> list[MarkedValue]:
        self.path.use(EQUALITY, *given[:2])
        rows = matches()(given[0].value, given[1].value)
        left = [[row[at] for at in range(1, 5)] for row in (rows[at] for at in range(1, len(rows) + 1))]

        def step(state: list[MarkedValue]) -> list[MarkedValue]:
            row = left.pop(0) if left else [None]
            return [MarkedValue(each, None, given[0].marks) for each in row]

        return [MarkedValue(step)]

    def _look_at_widths(self, given: list[MarkedValue]) -> None:
        """A number that outgrows the zeros it is filled up with no longer sorts as its text does."""
        places = re.findall(rb"%[-+ #]*(0?\d*)(?:\.\d+)?([a-zA-Z%])", given[0].value)
        wanted = [place for place in places if place[1] != b"%"]
        for (width, _), value in zip(wanted, given[1:], strict=False):
            if width.startswith(b"0") and len(width) > 1 and value.expression is not None:
                number = number_of(value.value) or 0.0
                limit = 10.0 ** int(width)
                self.path.meet(
                    "<", MarkedValue(number, value.expression), MarkedValue(limit), number < limit, self._site
                )

    def _len(self, given: list[MarkedValue]) -> list[MarkedValue]:
        self.path.use(MEASURED, given[0])
        return [self.run.length(given[0], self.run.chunk.root)]

    # -- tables --------------------------------------------------------------------------------------------------------

    def _insert(self, given: list[MarkedValue]) -> list[MarkedValue]:
        table = given[0].value
        if table.site is None:
            table.site = self.run.at
        size = table.border
        if len(given) == 2:
            table.set(float(size + 1), given[1])
            return []
        at = int(number_of(given[1].value) or 1)
        for place in range(size, at - 1, -1):
            table.items[float(place + 1)] = table.items[float(place)]
        table.set(float(at), given[2])
        return []

    def _remove(self, given: list[MarkedValue]) -> list[MarkedValue]:
        table = given[0].value
        size = table.border
        at = int(number_of(given[1].value) or size) if len(given) > 1 else size
        if not 1 <= at <= size:
            return [NIL]
        removed = table.get(float(at))
        for place in range(at, size):
            table.items[float(place)] = table.items[float(place + 1)]
        table.set(float(size), NIL)
        return [removed]

    def _concat(self, given: list[MarkedValue]) -> list[MarkedValue]:
        table, between = given[0].value, given[1] if len(given) > 1 else MarkedValue(b"")
        if len(given) > 2:
            raise NotFollowed("table.concat of a part")
        parts = [table.get(float(at)) for at in range(1, table.border + 1)]
        return [
            MarkedValue(between.value.join(self.run.text(item, self._site) for item in parts), None, joined(*parts))
        ]

    def _sort(self, given: list[MarkedValue]) -> list[MarkedValue]:
        table = given[0].value
        items = [table.get(float(at)) for at in range(1, table.border + 1)]
        if len(given) > 1:

            def compare(a: MarkedValue, b: MarkedValue) -> int:
                less = self.run.apply(given[1], [a, b])
                return -1 if less and less[0].is_true else 1

            items.sort(key=cmp_to_key(compare))
        else:
            items.sort(key=lambda item: item.value)
        for at, item in enumerate(items, 1):
            table.items[float(at)] = item
        return []

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _numbers(self, given: list[MarkedValue]) -> list[MarkedValue]:
        collected = []
        for each in given:
            number = number_of(each.value)
            if number is None:
                raise LuaError(MarkedValue(b"number expected"))
            collected.append(MarkedValue(number, each.expression, each.marks))
        self.path.use(CALCULATED, *given)
        return collected

    def _floor(self, given: list[MarkedValue]) -> list[MarkedValue]:
        (value,) = self._numbers(given[:1])
        expression = None if value.expression is None else ("floor", value.expression)
        whole = MarkedValue(float(math.floor(value.value)), expression, value.marks)
        self.path.meet("<", whole, value, whole.value < value.value, self._site)  # what is cut off
        return [whole]

    def _ceil(self, given: list[MarkedValue]) -> list[MarkedValue]:
        (value,) = self._numbers(given[:1])
        expression = None if value.expression is None else ("-", 0, ("floor", ("-", 0, value.expression)))
        return [MarkedValue(float(math.ceil(value.value)), expression, value.marks)]

    def _extreme(self, is_least: bool) -> Function:
        def extreme(given: list[MarkedValue]) -> list[MarkedValue]:
            values = self._numbers(given)
            best = values[0]
            for each in values[1:]:
                low, high = (each, best) if is_least else (best, each)
                is_better = low.value < high.value
                self.path.meet("<", low, high, is_better, self._site)
                best = each if is_better else best
            return [best]

        return extreme

    def _abs(self, given: list[MarkedValue]) -> list[MarkedValue]:
        (value,) = self._numbers(given[:1])
        sign = value.value < 0
        self.path.meet("<", value, MarkedValue(0.0), sign, self._site)
        return [value if not sign else self.run.calculate(b"-", MarkedValue(0.0), value, self._site)]

    def _fmod(self, given: list[MarkedValue]) -> list[MarkedValue]:
        a, b = self._numbers(given[:2])
        if a.value < 0 or b.value <= 0:
            return [MarkedValue(math.fmod(a.value, b.value), None, joined(a, b))]
        return [self.run.calculate(b"%", a, b, self._site)]

    def _pow(self, given: list[MarkedValue]) -> list[MarkedValue]:
        return [self.run.calculate(b"^", given[0], given[1], self._site)]

    def _opaque(self, function: Callable[[float], float]) -> Function:
        def call(given: list[MarkedValue]) -> list[MarkedValue]:
            (value,) = self._numbers(given[:1])
            try:
                return [MarkedValue(function(value.value), None, value.marks)]
            except ValueError:
                return [MarkedValue(math.nan, None, value.marks)]

        return call

    # -- packed data ---------------------------------------------------------------------------------------------------

    def _leaf(self, number: float) -> MarkedValue:
        self._leaves += 1
        return MarkedValue(number, self.path.symbol(DATA, (self.run.name, self.run.at, self._leaves), number))

    def _pack(self, given: list[MarkedValue]) -> list[MarkedValue]:
        return [MarkedValue(b"".join(packed(each) for each in given), None, _within(*given))]

    def _read_packed(self, given: list[MarkedValue]) -> list[MarkedValue]:
        if not isinstance(given[0].value, bytes):
            raise LuaError(MarkedValue(b"bad argument #1 to 'unpack'"))
        return unpacked(given[0].value, self._leaf)

    def _encode(self, given: list[MarkedValue]) -> list[MarkedValue]:
        return [MarkedValue(self._json(given[0].value), None, _within(given[0]))]

    def _json(self, value: Any) -> bytes:
        if isinstance(value, LuaTable):
            if not value.items:
                return b"{}"
            if float(1) in value.items and value.border == len(value.items):
                return (
                    b"[" + b",".join(self._json(value.get(float(at)).value) for at in range(1, value.border + 1)) + b"]"
                )
            self.path.is_exact = len(value.items) < 2 and self.path.is_exact  # the order of names is Lua's own
            rows = [self._json(key) + b":" + self._json(each.value) for key, each in value.items.items()]
            return b"{" + b",".join(rows) + b"}"
        if isinstance(value, bytes):
            return json.dumps(value.decode("latin-1"), ensure_ascii=False).replace("/", "\\/").encode("latin-1")
        if isinstance(value, float):
            return b"%.14g" % value
        return b"null" if value is None else b"true" if value else b"false"

    def _decode(self, given: list[MarkedValue]) -> list[MarkedValue]:
        if not isinstance(given[0].value, bytes):
            raise LuaError(MarkedValue(b"bad argument #1 to 'decode'"))
        try:
            plain = json.loads(given[0].value.decode("latin-1"))
        except (ValueError, RecursionError):
            raise LuaError(MarkedValue(b"Expected value but found invalid token")) from None
        null = self.run.globals[b"cjson"].value.get(b"null")
        return [self._from_json(plain, null, given[0].marks)]

    def _from_json(self, plain: Any, null: MarkedValue, marks: frozenset[Any]) -> MarkedValue:
        if plain is None:
            return null
        if isinstance(plain, bool):
            return MarkedValue(plain, None, marks)
        if isinstance(plain, int | float):
            leaf = self._leaf(float(plain))
            return MarkedValue(leaf.value, leaf.expression, marks)
        if isinstance(plain, str):
            return MarkedValue(plain.encode("latin-1"), None, marks)
        if isinstance(plain, list):
            return MarkedValue(
                LuaTable({float(at): self._from_json(item, null, marks) for at, item in enumerate(plain, 1)})
            )
        return MarkedValue(
            LuaTable({key.encode("latin-1"): self._from_json(item, null, marks) for key, item in plain.items()})
        )


def _within(*values: MarkedValue) -> frozenset[Any]:
    inner = [item for each in values if isinstance(each.value, LuaTable) for item in each.value.items.values()]
    return joined(*values) | (_within(*inner) if inner else frozenset())
