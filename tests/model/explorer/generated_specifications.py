"""Random specifications as program text: statements, nested expressions, tables, loops, helpers, laws of every kind.

About half of the programs raise somewhere: an index outside its array, a division by zero, a value outside its domain.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from functools import partial
from types import ModuleType

from orderlab.model.spec.declarative import Specification

HEAD = """\
from enum import IntEnum
from functools import cached_property
from typing import ClassVar

from orderlab.specification import Specification, action, eventually, invariant, leads_to, require, sometimes, step_invariant
from orderlab.model.spec.variables import NOBODY, Array, IndexSet, boolean, choice, element, integer

TABLE = (2, 0, 5, -1)
GRID = [[1, 2, 3], [4, -5, 6]]
WIDE = (3, 1 << 40, -(1 << 33))


class Mode(IntEnum):
    IDLE = 1
    BUSY = 2
    LOST = 3


def free(k):
    if k > 3:
        return k // 2
    return k or -1


class Drawn(Specification):
    name: ClassVar[str] = "drawn"
    n: int = 3
    strict: bool = True
    word: str = "none"

    @cached_property
    def cells(self):
        return IndexSet("cell", 3)

    @property
    def weights(self):
        return (1, 0, 4)

"""  # noqa: E501
BINARY = ["+", "-", "*", "+", "-", "//", "%", "<<", ">>", "&", "|", "^", "**"]
COMPARED = ["==", "!=", "<", "<=", ">", ">="]
PARAMETERS = ["i", "row", "state", "put", "error", "count", "p", "min_"]


class Writer:
    """Draws one program. `names` are the integers that an expression may use besides the state."""

    def __init__(self, seed: int):
        self.rng = random.Random(f"specification {seed}")
        self.scalars: dict[str, tuple[int, int]] = {"x": (0, 6), "y": (-3, 3), "b": (0, 1), "mode": (1, 3)}
        if self.chance(0.3):
            self.scalars["big"] = self.rng.choice([(0, 20_000), (-(1 << 40), 1 << 40), (0, (1 << 61) - 1), (5, 9)])
        self.lines: list[str] = []
        self.quantified = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, *ways: Callable[[], str]) -> str:
        return self.rng.choice(ways)()

    # -- expressions ---------------------------------------------------------------------------------------

    def leaf(self, names: list[str]) -> str:
        s = self.state
        return self.pick(
            lambda: str(self.rng.randint(-3, 6)),
            lambda: f"{s}.{self.rng.choice(list(self.scalars))}",
            lambda: f"{s}.{self.rng.choice(list(self.scalars))}",
            lambda: f"{s}.a[{self.rng.randint(0, 2)}]",
            lambda: self.rng.choice(
                ["self.n", "Mode.BUSY", "NOBODY", "True", "False", "TABLE[1]", "len(TABLE)", f"len({s}.a)"]
            ),
            lambda: self.rng.choice(names) if names else "2",
            lambda: self.rng.choice(["1000000007", "(1 << 40)", "(1 << 62)", "(2 ** 70)"]) if self.chance(0.1) else "1",
        )

    def index(self, depth: int, names: list[str], size: int) -> str:
        """An index that is mostly inside."""
        if self.chance(0.06):
            return self.integer(depth - 1, names)
        return self.pick(
            lambda: str(self.rng.randint(0, size - 1)),
            lambda: f"({self.integer(depth - 1, names)}) % {size}",
            lambda: "p" if "p" in names and size == 3 else "0",
        )

    def integer(self, depth: int, names: list[str]) -> str:
        if depth <= 0:
            return self.leaf(names)
        deeper = partial(self.integer, depth - 1, names)
        return self.pick(
            lambda: self.leaf(names),
            lambda: self.binary(depth, names),
            lambda: self.binary(depth, names),
            lambda: f"({self.rng.choice(['-', '~', '+', 'not '])}{deeper()})",
            lambda: f"({deeper()} {self.rng.choice(['or', 'and'])} {deeper()})",
            lambda: (
                f"({deeper()} {self.rng.choice(['or', 'and'])} {deeper()} {self.rng.choice(['or', 'and'])} {deeper()})"
            ),
            lambda: f"({deeper()} if {self.truth(depth - 1, names)} else {deeper()})",
            lambda: f"{self.rng.choice(['min', 'max'])}({deeper()}, {deeper()})",
            lambda: f"{self.rng.choice(['abs', 'int', 'bool'])}({deeper()})",
            lambda: f"{self.state}.a[{self.index(depth, names, 3)}]",
            lambda: f"{self.state}.m[{self.index(depth, names, 2)}][{self.index(depth, names, 3)}]",
            lambda: (
                f"TABLE[{self.pick(lambda: self.index(depth, names, 4), lambda: str(-self.rng.randint(1, 4)), deeper)}]"
            ),
            lambda: f"GRID[{self.index(depth, names, 2)}][{self.index(depth, names, 3)}]",
            lambda: (
                f"WIDE[{self.index(depth, names, 3)}]"
                if self.chance(0.3)
                else f"self.weights[{self.index(depth, names, 3)}]"
            ),
            lambda: f"self.helper({self.state}, {deeper()})",
            lambda: f"free({deeper()})",
            lambda: self.quantifier("sum", depth, names),
            lambda: self.quantifier(self.rng.choice(["min", "max"]), depth, names),
            lambda: self.truth(depth, names),
        )

    def binary(self, depth: int, names: list[str]) -> str:
        operator = self.rng.choice(BINARY)
        left = self.integer(depth - 1, names)
        if operator in ("<<", ">>"):
            right = self.rng.choice(["s.b", "s.x", "s.y", "2", "70", "s.x % 5", "s.x - 1", "s.x * 30"]).replace(
                "s.", f"{self.state}."
            )
        elif operator == "**":
            right = self.rng.choice(["2", "3", "0", "s.b"]).replace("s.", f"{self.state}.")
        elif operator in ("//", "%") and self.chance(0.8):
            right = self.rng.choice(["3", "-2", "7", "1000000007", "(s.x + 1)", "(s.y - 4)", "(s.y or 2)"]).replace(
                "s.", f"{self.state}."
            )
        else:
            right = self.integer(depth - 1, names)
        return f"({left} {operator} {right})"

    def truth(self, depth: int, names: list[str]) -> str:
        if depth <= 0:
            return f"{self.leaf(names)} {self.rng.choice(COMPARED)} {self.leaf(names)}"
        deeper, number = partial(self.truth, depth - 1, names), partial(self.integer, depth - 1, names)
        comparison = lambda: self.rng.choice(COMPARED)  # noqa: E731
        container = self.rng.choice(
            ["(0, 2, 5)", "range(1, 4)", "TABLE", "{1, 2}", "self.cells", "(1.0, 'a', None, 3)", "range(0, 9, 4)"]
        )
        return self.pick(
            lambda: f"({number()} {comparison()} {number()})",
            lambda: f"({number()} {comparison()} {number()} {comparison()} {number()})",
            lambda: f"({deeper()} {self.rng.choice(['and', 'or'])} {deeper()})",
            lambda: f"(not {deeper()})",
            lambda: f"({number()} {self.rng.choice(['in', 'not in'])} {container})",
            lambda: f"({number()} in ({number()}, {number()}))",
            lambda: f"(0 <= {(e := number())} < 3 and {self.state}.a[{e}] > 0)",
            lambda: f"({(e := number())} != 0 and 7 // {e} > 1)",
            lambda: self.quantifier(self.rng.choice(["any", "all"]), depth, names),
            lambda: "self.strict",
            lambda: "self.word == 'none'",
            lambda: f"self.positive({self.state})",
        )

    def quantifier(self, kind: str, depth: int, names: list[str]) -> str:
        self.quantified += 1
        variable = self.rng.choice([f"q{self.quantified}", "k"])
        over = self.rng.choice(
            [
                "self.cells",
                "range(3)",
                "(0, 2, 1)",
                "TABLE",
                "Mode",
                "range(100)",
                "range(s.x)",
                "range(s.y, s.x)",
                "self.weights",
                "range(0)",
            ]
        )
        if kind in ("min", "max"):
            over = self.rng.choice(["self.cells", "TABLE", "(1, 2)"])
        over = over.replace("s.", f"{self.state}.") if over.startswith("range(s") else over
        inner = [*names, variable, variable]
        body = self.truth(depth - 1, inner) if kind in ("any", "all") else self.integer(depth - 1, inner)
        more = (
            f" for other in self.cells if other != {variable}"
            if kind not in ("min", "max") and self.chance(0.15)
            else ""
        )
        when = f" if {self.truth(0, inner)}" if kind not in ("min", "max") and not more and self.chance(0.3) else ""
        return f"{kind}({body} for {variable} in {over}{more}{when})"

    # -- statements ----------------------------------------------------------------------------------------

    def assigned(self, target: str, low: int, high: int, names: list[str], depth: int) -> str:
        value = self.integer(depth, names)
        span = high - low + 1
        if self.chance(0.08):
            return f"{target} = {value}"
        return self.pick(
            lambda: f"{target} = min({high}, max({low}, {value}))",
            lambda: f"{target} = ({value}) % {span} + {low}",
            lambda: f"{target} = {self.rng.randint(low, min(high, low + 9))}",
        )

    def statement(self, indent: str, names: list[str], depth: int, in_loop: bool = False) -> None:
        line = lambda text: self.lines.append(indent + text)  # noqa: E731
        kind = self.rng.choice(
            [
                "assign",
                "assign",
                "assign",
                "array",
                "nested",
                "increment",
                "local",
                "local",
                "if",
                "for",
                "require",
                "flow",
            ]
        )
        if kind == "assign":
            name = self.rng.choice(list(self.scalars))
            line(self.assigned(f"s.{name}", *self.scalars[name], names, 2))
        elif kind == "array":
            line(self.assigned(f"s.a[{self.index(1, names, 3)}]", -2, 5, names, 2))
        elif kind == "nested":
            line(self.assigned(f"s.m[{self.index(1, names, 2)}][{self.index(1, names, 3)}]", 0, 2, names, 1))
        elif kind == "increment":
            name, operator = self.rng.choice(["x", "y", "a[0]"]), self.rng.choice(["+", "-", "*", "//", "%", "|"])
            step = self.rng.choice(["1", "1", "2", "s.b", "True"])
            if self.chance(0.8):
                line(f"if {self.rng.choice(['-2', '0'])} < s.{name} < 3:")
                self.lines.append(f"{indent}    s.{name} {operator}= {step}")
            else:
                line(f"s.{name} {operator}= {step}")
        elif kind == "local":
            locals_ = [n for n in names if n.startswith("v")]
            if locals_ and self.chance(0.5):
                line(
                    f"{self.rng.choice(locals_)} {self.rng.choice(['+', '-', '%', '*'])}= "
                    f"{self.integer(1, names) if self.chance(0.5) else 2}"
                )
            else:
                name = self.rng.choice(["v1", "v2", "put", "error", "v_x"])
                line(f"{name} = {self.integer(2, names)}")
                if name not in names:
                    names.append(name)
        elif kind == "if" and depth > 0:
            line(f"if {self.truth(2, names)}:")
            self.block(indent + "    ", list(names), depth - 1, in_loop)
            if self.chance(0.5):
                line("else:")
                self.block(indent + "    ", list(names), depth - 1, in_loop)
        elif kind == "for" and depth > 0:
            over = self.rng.choice(
                ["self.cells", "range(3)", "TABLE", "range(s.x)", "range(2, -1, -1)", "range(s.y, 4, 2)", "Mode"]
            )
            variable = self.rng.choice(["j", "p", "k"]) if self.chance(0.9) else "put"
            line(f"for {variable} in {over}:")
            self.block(indent + "    ", [*names, variable], depth - 1, True)
        elif kind == "require":
            line(f"require({self.truth(2, names)})")
        elif kind == "flow":
            if in_loop and self.chance(0.7):
                line(f"if {self.truth(1, names)}:")
                self.lines.append(f"{indent}    {self.rng.choice(['break', 'continue'])}")
            elif self.chance(0.3):
                line(f"assert {self.truth(1, names)} or s.x < 5")
            elif self.chance(0.3):
                line(f"if {self.truth(1, names)}:")
                self.lines.append(f"{indent}    return{self.rng.choice(['', ' None', ' s.x'])}")
        else:
            line("pass")

    def block(self, indent: str, names: list[str], depth: int, in_loop: bool = False) -> None:
        self.lines.append(f"{indent}pass")
        for _ in range(self.rng.randint(1, 3)):
            self.statement(indent, names, depth, in_loop)

    # -- the whole -----------------------------------------------------------------------------------------

    def write(self) -> str:
        self.state = "s"
        out = self.lines
        out += ["    def variables(self):", "        return {"]
        kinds = {"b": "boolean()", "mode": "choice(Mode)"}
        out += [f'            "{n}": {kinds.get(n, f"integer({lo}, {hi})")},' for n, (lo, hi) in self.scalars.items()]
        out += ['            "a": Array(self.cells, integer(-2, 5)),']
        out += ['            "m": Array(IndexSet("pair", 2), Array(self.cells, integer(0, 2))),', "        }", ""]
        out += [
            "    def initial(self, s):",
            f"        s.x = {self.rng.randint(0, 3)}",
            f"        s.y = {self.rng.randint(-3, 3)}",
            "",
        ]
        if self.chance(0.3):
            out += ["    def starts_anywhere(self):", '        return ("b", "y")', ""]
        out += ["    def helper(self, s, k):", f"        if {self.truth(1, ['k']).replace('self.helper', 'max')}:"]
        out += [f"            return {self.integer(1, ['k']).replace('self.helper(s, ', 'abs(')}"]
        out += ["        else:", "            return k" if self.chance(0.9) else "            pass", ""]
        out += ["    def positive(self, s):", f"        return {self.truth(0, [])}", ""]
        for number in range(self.rng.randint(1, 3)):
            parameter = self.rng.choice(PARAMETERS) if self.chance(0.5) else None
            given = f', {parameter}="cells"' if parameter else ""
            out += [f'    @action(actor="one", fair={self.chance(0.3)}{given})']
            out += [f"    def act{number}(self, s{', ' + parameter if parameter else ''}):"]
            if self.chance(0.7):
                out += [f"        require({self.truth(1, [parameter] if parameter else [])})"]
            self.block("        ", [parameter] if parameter else [], 2)
            out += [""]
        self.laws()
        return HEAD + "\n".join(out) + "\n"

    def laws(self) -> None:
        out = self.lines
        for number in range(self.rng.randint(1, 3)):
            parameter = self.rng.choice(PARAMETERS) if self.chance(0.4) else None
            kind = self.rng.choice(["invariant", "invariant", "invariant", "step_invariant", "sometimes"])
            given = [f'{parameter}="cells"'] if parameter else []
            names = [parameter] if parameter else []
            rest = f", {parameter}" if parameter else ""
            if kind == "invariant" and self.chance(0.4):
                out += [f"    def when{number}(self, s{rest}):", f"        return {self.truth(2, names)}", ""]
                given.insert(0, f'when="when{number}"')
            out += [f"    @{kind}({', '.join(given)})"]
            if kind == "step_invariant":
                out += [f"    def law{number}(self, s, t{rest}):"]
                one = self.integer(2, names)
                self.state = "t"
                out += [f"        return {one} {self.rng.choice(COMPARED)} {self.integer(1, names)}", ""]
                self.state = "s"
            else:
                out += [f"    def law{number}(self, s{rest}):"]
                if self.chance(0.3):
                    out += [
                        "        total = 0",
                        f"        for k in {self.rng.choice(['self.cells', 'range(s.x)', 'TABLE'])}:",
                    ]
                    out += [f"            total += {self.integer(1, [*names, 'k'])}"]
                    names = [*names, "total"]
                value = self.truth(2, names) if self.chance(0.7) else self.integer(3, names)
                out += [f"        return {value}", ""]
        if self.chance(0.3):
            out += ["    def goal(self, s):", f"        return {self.integer(1, [])}", ""]
            out += ['    live: ClassVar = leads_to("positive", "goal")', '    ends: ClassVar = eventually("goal")', ""]
        if self.chance(0.3):
            out += ["    def terminal(self, s):", f"        return {self.truth(1, [])}", ""]


def program(seed: int) -> str:
    return Writer(seed).write()


def specification(text: str, name: str) -> Specification:
    """The specification of a program text, which `inspect` then finds."""
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    made: Specification = module.Drawn()
    return made
