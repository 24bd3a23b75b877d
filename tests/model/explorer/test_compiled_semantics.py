"""What the compiled engine takes, it computes as Python does; what it cannot prove, it refuses by name."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from orderlab.model.errors import EngineError
from orderlab.model.explorer.compiled import runtime
from orderlab.model.explorer.compiled.intervals import RESULT, ValueInterval
from orderlab.model.explorer.compiled.kernel_text import KernelWriter
from orderlab.model.explorer.compiled.layout import layout_of
from orderlab.model.explorer.compiled.program_text import NotCompilable, program_text
from orderlab.model.explorer.compiled.space import CompiledSpace, drawn
from tests.model.explorer.engines import as_it_is, compared, loaded
from tests.model.explorer.generated_specifications import HEAD, specification

WHOLE = """\
    def variables(self):
        return {{"x": integer(0, 6), "z": integer(-6, 6), "big": integer(0, 20_000), "a": Array(self.cells, integer(0, 3))}}

    def none(self, k):
        pass

    @action(actor="one", p="cells")
    def go(self, s, p):
        s.x = (s.x + p) % 7
        {action}

    {law_head}
        {law}
"""  # noqa: E501
LAW = "@invariant()\n    def law(self, s):"
numbers = iter(range(10**6))


def made(action: str = "pass", law: str = "return s.z <= 5", law_head: str = LAW) -> Any:
    text = HEAD + WHOLE.format(
        action=action.replace("\n", "\n        "), law=law.replace("\n", "\n        "), law_head=law_head
    )
    return specification(text, f"semantics_{next(numbers)}")


AGREE = [
    ("s.z = s.x or 5", "return s.z <= 5"),
    ("s.z = s.x and 5", "return s.z < 5"),
    ("s.z = (s.x == 3) or s.x or -1", "return s.z != -1"),
    ("s.z = True + True + (s.x > 2)", "return s.z < 3"),
    ("s.z = -s.x // 4", "return s.z > -2"),
    ("s.z = (s.x - 4) % -3", "return s.z > -2"),
    ("s.z = (s.x - 6) >> 70", "return s.z != -1"),
    ("s.z = 3 >> s.x * 12", "return s.z > 0"),
    ("s.z = ~s.x & 5 | s.x ^ 1", "return s.z < 6"),
    ("s.z = ~(s.x > 2)", "return s.z > -2"),
    ("s.z = TABLE[-1 - s.x % 4]", "return s.z != 5"),
    ("s.z = GRID[s.x % 2][-1] - 1", "return s.z < 5"),
    ("put = s.x\ns.z = 1\ns.z = put", "return s.z <= 5"),
    ("error = s.x\ns.z = error", "return s.z <= 5"),
    ("j = 0\nfor i in range(s.x):\n    if i == 4:\n        break\n    j += i\ns.z = j", "return s.z <= 5"),
    ("return False", "return s.x < 5"),
    ("return s.a[9]", "return s.x < 5"),
    ("s.z = 7", "return True"),
    ("s.z = s.x // (s.x - 2)", "return True"),
    ("s.z = 1 << (s.x - 3)", "return True"),
    ("s.a[s.x] = 1", "return True"),
    ("assert s.x < 5, s.x", "return True"),
    ("if s.x > 4:\n    raise ValueError(s.x)", "return True"),
    ("require(s.x < 3 and s.a[s.x] == 0)", "return True"),
    ("require(s.x < 4 and TABLE[s.x] >= 0)\ns.z = s.x in (1, 2.0, 'a', None)", "return s.z == 0"),
    ("require(s.x in (1, 7 // s.x))", "return True"),
    ("require(0 < s.x < 7 // s.x)", "return True"),
    ("pass", "return s.a[s.x - 1] == 0 or s.x == 5"),
    ("pass", "if s.x < 4:\n    return True"),
    ("s.big = min(20_000, s.big + 4999)", "return s.big * 1_000_003 % 1009 != 7"),
]


@pytest.mark.parametrize(("action", "law"), AGREE, ids=range(len(AGREE)))
def test_it_computes_as_python_does(action: str, law: str) -> None:
    assert not compared(made(action, law)).startswith("refused")


REFUSED = [
    ("pass", "return (s.big * 1000000007 * 1000000009) % 1009 != 7", "may reach about 2^74, beyond 64 bits"),
    ("pass", "return s.x << s.big > 1", "beyond 64 bits"),
    ("pass", "return s.x < 2 ** 70", "beyond 64 bits"),
    ("v = 1\nfor i in range(s.big):\n    v += v", "return True", "beyond 64 bits"),
    ("v = 1\nfor i in range(s.big):\n    v += 1", "return True", "no bound is proved for v"),
    ("if s.x > 3:\n    v = 1\ns.z = v", "return True", "v may have no value here"),
    ("s.z = TABLE[0]\nTABLE = (1, 2)", "return True", "TABLE"),
    ("s.z = s.x / 2", "return True", "s.x / 2"),
    ("s.z = s.x * 0.5", "return True", "0.5"),
    ("s.z = int('3') + s.x\ns.z = int(str(s.x))", "return True", "str"),
    ("require((s.x > 1) is True)", "return True", "(s.x > 1) is True"),
    ("s.z = self.none(s.x)", "return True", "may yield None"),
    ("ok = require(s.x < 3)", "return True", "require"),
    ("pass", "require(s.x < 9)", "require outside an action"),
    ("pass", "s.z = 1\nreturn True", "assigned outside an action"),
    ("s.z = divmod(s.x, 2)[1]", "return True", "divmod"),
]


@pytest.mark.parametrize(("action", "law", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_it_cannot_prove_it_refuses(action: str, law: str, reason: str) -> None:
    system = made(action, law)
    with pytest.raises(NotCompilable, match=re.escape(reason)):
        KernelWriter(system, layout_of(system.schema_of_state), False).write()


def test_a_step_law_may_call_its_parameter_as_the_kernel_calls_its_own() -> None:
    for name in ("i", "row", "state", "count", "error", "found", "words"):
        head = f'@step_invariant({name}="cells")\n    def law(self, s, t, {name}):'
        assert compared(made("s.a[p] = 1", f"return t.a[2] == 0 or s.a[{name}] == 0 or t.x != 3", head)) == "agreed"


class Doubling:
    """A wrapper that changes the meaning of what it wraps, and a plain method beside it."""

    @staticmethod
    def negated(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(*given: Any) -> Any:
            return not method(*given)

        return wrapper

    def plain(self, s: Any) -> Any:
        return s.x

    wrapped = negated(plain)


def test_only_the_text_that_runs_is_translated() -> None:
    assert program_text(Doubling.plain).parameters == ("self", "s")
    with pytest.raises(NotCompilable, match="not a plain function"):
        program_text(Doubling.wrapped)
    system = made("s.z = 1")
    program_text(type(system).go.method)
    file = type(system).go.method.__code__.co_filename
    size, when, lines, name = linecache.cache[file]
    linecache.cache[file] = (size, when, [line.replace("s.z = 1", "s.z = 2") for line in lines], name)
    with pytest.raises(NotCompilable, match="its text in the file is not what runs"):
        program_text(type(system).go.method)


def test_a_replaced_method_of_the_engine_is_refused() -> None:
    system = made()
    replaced = type("Replaced", (type(system),), {"laws": lambda self: (), "__annotations__": {}})()
    with pytest.raises(NotCompilable, match=r"Replaced\.laws replaces a method of Specification"):
        KernelWriter(replaced, layout_of(replaced.schema_of_state), False).write()


def test_a_wrong_kernel_is_found_out() -> None:
    """Each replacement is a defect such as the translator might have."""
    system = made("require(s.z < 4)\ns.z = s.x // 2 if s.a[0] == 0 else 1", "return s.z <= 5")
    text = KernelWriter(system, layout_of(system.schema_of_state), False).write().text
    for right, wrong in (("// 2", "// 3"), ("<= 5", "<= 2"), ("== 0", "== 1"), ("% 7", "% 6")):
        assert right in text
        space = CompiledSpace(system, load=lambda kernel, r=right, w=wrong: loaded(kernel.replace(r, w), as_it_is))
        with pytest.raises(EngineError, match=r"the engines disagree in the state x = .*defect of the compiled engine"):
            explored(space)
    explored(CompiledSpace(system, load=lambda kernel: loaded(kernel, as_it_is)))


def test_a_kernel_that_raises_alone_is_found_out() -> None:
    system = made("require(0 < s.x < 4)\ns.a[s.x - 1] = 1")
    space = CompiledSpace(system, load=lambda kernel: loaded(kernel.replace(", 3, error)", ", 2, error)"), as_it_is))
    with pytest.raises(EngineError, match="no error; compiled, one"):
        explored(space)


def explored(space: CompiledSpace) -> None:
    space.start()
    expanded = 0
    while expanded < space.count:
        expanded = space.expand(expanded, space.count)


def test_the_states_to_check_are_drawn_by_the_seed() -> None:
    stretches = [(0, 100), (100, 5000), (5000, 1_000_000)]
    one = [n for first, last in stretches for n in drawn(1, first, last)]
    assert one == [n for first, last in stretches for n in drawn(1, first, last)]
    assert one != [n for first, last in stretches for n in drawn(2, first, last)]
    assert one[:100] == list(range(100))
    assert 400 < len(set(one)) == len(one) < 700


BOUNDS = [-(1 << 62), -1009, -64, -7, -2, -1, 0, 1, 2, 3, 7, 62, 63, 64, 70, 1009, (1 << 62) - 1]
TEXTS = {
    "+": "Add",
    "-": "Sub",
    "*": "Mult",
    "//": "FloorDiv",
    "%": "Mod",
    "<<": "LShift",
    ">>": "RShift",
    "&": "BitAnd",
    "|": "BitOr",
    "^": "BitXor",
}
MARKING = {"//": runtime.quotient, "%": runtime.remainder, "<<": runtime.shifted_left, ">>": runtime.shifted_right}
INTERVALS = {kind.__name__: rule for kind, rule in RESULT.items()}


@pytest.mark.parametrize("operator", TEXTS)
def test_numba_computes_each_operator_as_python_does(operator: str) -> None:
    """And the interval of two single values is their result."""
    scope: dict[str, Any] = {}
    exec(f"def plain(a, b):\n    return a {operator} b", scope)
    compiled = njit(scope["plain"])
    for a in BOUNDS:
        for b in BOUNDS:
            if operator == "<<" and b > 1009:
                continue
            error = np.zeros(3, np.int64)
            interval = INTERVALS[TEXTS[operator]](ValueInterval(a, a), ValueInterval(b, b))
            try:
                right = scope["plain"](a, b)
            except (ZeroDivisionError, ValueError):
                MARKING[operator](a, b, error)
                assert error[0] == 1
                continue
            if not interval.fits:
                continue
            assert interval.low == right == interval.high or operator in "%&|^"
            assert interval.low <= right <= interval.high
            if operator not in ("<<", ">>") or 0 <= b <= 62:
                assert compiled(a, b) == right
            if operator in MARKING:
                assert MARKING[operator](a, b, error) == right
                assert error[0] == 0


@pytest.mark.parametrize("operator", TEXTS)
def test_intervals_hold_every_result(operator: str) -> None:
    rule, scope = INTERVALS[TEXTS[operator]], {}
    exec(f"def plain(a, b):\n    return a {operator} b", scope)
    ends = [-9, -3, -1, 0, 1, 2, 5]
    pairs = [(low, high) for low in ends for high in ends if low <= high]
    for low, high in pairs:
        for least, most in pairs:
            interval = rule(ValueInterval(low, high), ValueInterval(least, most))
            for a in range(low, high + 1):
                for b in range(least, most + 1):
                    if (operator in ("//", "%") and b == 0) or (operator in ("<<", ">>") and b < 0):
                        continue
                    assert interval.low <= scope["plain"](a, b) <= interval.high
