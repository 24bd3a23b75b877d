"""The text of the search loop for one specification: its translated methods and a function that expands states.

The loop is the same for every specification; only the calls to its actions and laws are spelled out, so that the
compiler sees one flat function. Numbering and order are exactly the interpreter's. The text and its machine code are
kept in the user's cache folder, under the digest of everything they depend on, so that only the first run of a
specification in a scope pays for compilation.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from orderlab.model.explorer.compiled.intervals import ValueInterval, hull
from orderlab.model.explorer.compiled.layout import Layout, layout_of
from orderlab.model.explorer.compiled.runtime import CALLED
from orderlab.model.explorer.compiled.translation import NotCompilable, Translator, overridden
from orderlab.model.files import cache_folder, write_whole
from orderlab.model.machine_code import RunTimeCache, undisturbed
from orderlab.model.spec.declarations import (
    Action,
    Declaration,
    InvariantDeclaration,
    LeadsToDeclaration,
    SometimesDeclaration,
    StepInvariantDeclaration,
    law_name,
)
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, IndexSet, sorts_by_columns, symmetric_sets

_HEAD = f'''"""Generated from a specification; safe to delete."""
import numpy as np
from numba import int64, njit

from orderlab.model.explorer.compiled.runtime import FREE, slot_of, {", ".join(CALLED)}
'''

_MAY_OVERRIDE = frozenset(
    [
        "variables",
        "initial",
        "starts_anywhere",
        "terminal",
        "initial_states",
        "describe",
        "parameters",
        "source_text",
        "action_names",
        "fairness",
        "expansion",
    ]
)
"""Methods that a specification may replace: the kernel does not stand in for them, or translates the replacement."""

D = TypeVar("D", bound=Declaration)

_EXPAND = '''
@njit(cache=True)
def expand(rows, table, numbers, parents, count, first, last, fired, found, met, error, record, edges):
    """Expand states first..last-1. Returns (next state, states known, steps, edges recorded); stops early when full."""
    mask = table.shape[0] - 1
    words = rows.shape[1]
    buffer = np.empty(({instances} + 1, words), np.int64)
    taken = np.empty({instances} + 1, np.int64)
    steps = int64(0)
    recorded = int64(0)
    columns = np.empty({columns}, np.int64)
    for state in range(first, last):
        known = count
        full = count + {instances} > rows.shape[0] or 2 * (count + {instances}) > table.shape[0]
        if full or (record and recorded + {instances} > edges.shape[0]):
            return state, count, steps, recorded
        enabled = 0
{actions}
        if enabled == 0 and found[{deadlock}] < 0 and not ({terminal}):
            found[{deadlock}] = state
        steps += enabled
        for i in range(enabled):
{step_laws}{canonical}            at = slot_of(table, buffer, i, mask)
            if table[at, 0] == FREE:
                for word in range(words):
                    table[at, word] = buffer[i, word]
                    rows[count, word] = buffer[i, word]
                numbers[at] = count
                parents[count] = state
                judge(rows, count, found, met, error)
                count += 1
            if record:
                edges[recorded, 0] = state
                edges[recorded, 1] = taken[i]
                edges[recorded, 2] = numbers[at]
                recorded += 1
        if error[0] != 0:
            error[1] = state
            error[2] = known
            return state, count, steps, recorded
    return last, count, steps, recorded
'''


@dataclass(frozen=True)
class KernelText:
    """`laws` gives the slot of each law in the arrays `found` and `met`; `deadlock` is the slot after them."""

    text: str
    laws: tuple[str, ...]
    deadlock: int
    predicates: tuple[str, ...]


class KernelWriter:
    """`judged` names the invariants, step invariants and goals that the kernel looks at; None: all."""

    def __init__(
        self, specification: Specification, layout: Layout, symmetry: bool, judged: Collection[str] | None = None
    ):
        self.judged = judged
        self.specification = specification
        self.layout = layout
        self.symmetry = symmetry
        self.translator = Translator(specification, layout)
        self.laws: list[str] = []
        self.tests: list[str] = []

    def write(self) -> KernelText:
        """Raises NotCompilable for a text that cannot be translated so that it does what Python does."""
        try:
            return self._write()
        except RecursionError:
            raise NotCompilable("an expression is nested too deeply") from None

    def _write(self) -> KernelText:
        allowed = _MAY_OVERRIDE if self.symmetry else _MAY_OVERRIDE | {"canonical"}
        if replaced := overridden(self.specification, Specification, allowed):
            raise NotCompilable(f"{type(self.specification).__name__}.{replaced[0]} replaces a method of Specification")
        actions = self._actions()
        judge = self._judge()
        step_laws = self._step_laws()
        predicates, evaluate = self._evaluate()
        terminal = f"{self._predicate('terminal')}(rows, state, error)"
        expand = _EXPAND.format(
            instances=len(self.specification.action_instances),
            columns=max([1, *(s.size for s in symmetric_sets(self.specification.schema_of_state))]),
            actions=actions,
            deadlock=len(self.laws),
            terminal=terminal,
            canonical="            canonical(buffer, i, columns)\n" if self.symmetry else "",
            step_laws=step_laws,
        )
        canonical = self._canonical() if self.symmetry else ""
        tables = [f"{name} = np.array({list(t)}, np.int64)" for t, name in self.translator.tables.items()]
        functions = self.translator.functions.values()
        parts = [_HEAD, "\n".join(tables), *functions, *self.tests, canonical, judge, evaluate, expand]
        return KernelText("\n\n".join(p for p in parts if p) + "\n", tuple(self.laws), len(self.laws), predicates)

    def _predicate(self, method: str, given: tuple[ValueInterval, ...] = ()) -> str:
        found = inspect.getattr_static(type(self.specification), method, None)
        if not inspect.isfunction(found):
            raise NotCompilable(f"{type(self.specification).__name__}.{method}: not a plain method")
        return self.translator.predicate(found, 1, given)

    def _intervals(self, declaration: Declaration | LeadsToDeclaration) -> tuple[ValueInterval, ...]:
        """The intervals of the parameters."""
        found = []
        for name in declaration.ranges.values():
            interval = hull([*self.specification.range_of(name)] or [0])
            if not interval.fits:
                raise NotCompilable(f"{declaration.name}: members of {name} are beyond 64 bits")
            found.append(interval)
        return tuple(found)

    def _loops(self, declaration: Declaration | LeadsToDeclaration) -> tuple[list[str], str]:
        """Nested loops over the bindings, and the arguments to pass inside."""
        lines = []
        for depth, (parameter, name) in enumerate(declaration.ranges.items()):
            values = self.specification.range_of(name)
            if not values:
                over = "range(0)"
            elif list(values) == list(range(values[0], values[-1] + 1)):
                over = f"range({values[0]}, {values[-1] + 1})"
            else:
                over = self.translator.tables.setdefault(tuple(values), f"table_{len(self.translator.tables)}")
            lines.append("    " * depth + f"for p_{parameter} in {over}:")
        return lines, "".join(f", int64(p_{parameter})" for parameter in declaration.ranges)

    def _test(self, declaration: Declaration, calls: str, outcome: bool) -> str:
        """A function that tries the bindings in turn and returns `outcome` at the first for which `calls` is true."""
        loops, given = self._loops(declaration)
        inner = "    " * len(loops)
        name = f"test_{len(self.tests)}"
        lines = [
            *loops,
            f"{inner}if {calls.format(given=given)}:",
            f"{inner}    return {outcome}",
            f"return {not outcome}",
        ]
        self.tests.append(f"@njit\ndef {name}(rows, row, error):\n" + "\n".join("    " + line for line in lines))
        return f"{name}(rows, row, error)"

    def _actions(self) -> str:
        lines = []
        base = 0
        for number, declaration in enumerate(self.specification.declared(Action)):
            given_intervals = self._intervals(declaration)
            function = self.translator.function(declaration.method, 1, given_intervals, is_action=True)[0]
            loops, given = self._loops(declaration)
            inner = "    " * len(loops)
            lines += [f"instance = {base}", *loops]
            lines += [
                f"{inner}for word in range(words):",
                f"{inner}    buffer[enabled, word] = rows[state, word]",
                f"{inner}if {function}(buffer, enabled, error{given}):",
                f"{inner}    fired[{number}] += 1",
                f"{inner}    taken[enabled] = instance",
                f"{inner}    enabled += 1",
                f"{inner}instance += 1",
            ]
            base += len(list(self.specification.bindings(declaration)))
        return "\n".join("        " + line for line in lines)

    def _judge(self) -> str:
        """Laws of one state, evaluated just as far as the interpreter does: an error beyond is none."""
        lines = []
        for declaration in self._judged(InvariantDeclaration):
            given = self._intervals(declaration)
            law = f"not {self.translator.predicate(declaration.method, 1, given)}(rows, row, error{{given}})"
            slot = self._slot(declaration.name)
            inner = ""
            if declaration.when:
                when = f"{self._predicate(declaration.when, given)}(rows, row, error{{given}})"
                lines += [f"if {self._test(declaration, when, True)}:", f"    met[{slot}] += 1"]
                law = f"{when} and {law}"
                inner = "    "
            holds = self._test(declaration, law, False)
            lines += [f"{inner}if found[{slot}] < 0 and not {holds}:", f"{inner}    found[{slot}] = row"]
        for goal in self._judged(SometimesDeclaration):
            reached = f"{self.translator.predicate(goal.method, 1, self._intervals(goal))}(rows, row, error{{given}})"
            slot = self._slot(goal.name)
            lines += [f"if found[{slot}] < 0 and {self._test(goal, reached, True)}:", f"    found[{slot}] = row"]
        body = "\n".join("    " + line for line in lines or ["pass"])
        return f'@njit(cache=True)\ndef judge(rows, row, found, met, error):\n    """Judge a new state."""\n{body}'

    def _judged(self, kind: type[D]) -> list[D]:
        declared = self.specification.declared(kind)
        return [one for one in declared if self.judged is None or law_name(one.name) in self.judged]

    def _slot(self, name: str) -> int:
        self.laws.append(law_name(name))
        return len(self.laws) - 1

    def _step_laws(self) -> str:
        lines = []
        for declaration in self._judged(StepInvariantDeclaration):
            law = self.translator.predicate(declaration.method, 2, self._intervals(declaration))
            loops, given = self._loops(declaration)
            inner = "    " * len(loops)
            slot = self._slot(declaration.name)
            lines += [*loops, f"{inner}if found[{slot}] < 0 and not {law}(rows, state, buffer, i, error{given}):"]
            lines += [f"{inner}    found[{slot}] = state"]
        return "".join("            " + line + "\n" for line in lines)

    def _evaluate(self) -> tuple[tuple[str, ...], str]:
        """A function that decides one predicate for a stretch of states: the two sides of leads-to, and invariants."""
        wanted: dict[str, str] = {}
        for declaration in self.specification.declared(LeadsToDeclaration):
            intervals = self._intervals(declaration)
            for binding in self.specification.bindings(declaration):
                given = "".join(f", int64({value})" for value in binding)
                for predicate in filter(None, (declaration.when, declaration.then)):
                    called = self._predicate(predicate, intervals)
                    wanted[f"{predicate}{binding}"] = f"{called}(rows, row, error{given})"
        lines = [
            "@njit(cache=True)",
            "def evaluate(which, rows, first, last, truth, error):",
            "    for row in range(first, last):",
        ]
        for number, call in enumerate(wanted.values()):
            lines += [f"        if which == {number}:", f"            truth[row - first] = {call} != 0"]
        return tuple(wanted), "\n".join([*lines, "        pass"])

    def _canonical(self) -> str:
        schema = self.specification.schema_of_state
        if not sorts_by_columns(schema):
            raise NotCompilable("symmetric sets whose members are values or index arrays twice")
        lines = ["@njit", "def canonical(rows, row, columns):"]
        for index in symmetric_sets(schema):
            lines += ["    " + line for line in self._column_sort(index)]
        return "\n".join([*lines, "    return"])

    def _column_sort(self, index: IndexSet) -> list[str]:
        """Gather each column into one integer, sort by insertion, write back."""
        schema = self.specification.schema_of_state
        rows = [
            f
            for f, k in zip(self.layout.fields, schema.kinds, strict=True)
            if isinstance(k, Array) and k.index == index
        ]
        if sum(f.bits for f in rows) > 63:
            raise NotCompilable(f"symmetric set {index.name}: a column is wider than 63 bits")
        gather = []
        scatter = []
        behind = 0
        for f in reversed(rows):
            mask = (1 << f.bits) - 1
            word = f"{f.word} + i // {f.per_word}"
            shift = f"{f.shift} + (i % {f.per_word}) * {f.bits}"
            gather.append(f"    key |= ((rows[row, {word}] >> ({shift})) & {mask}) << {behind}")
            scatter.append(
                f"    rows[row, {word}] = (rows[row, {word}] & ~({mask} << ({shift})))"
                f" | (((columns[i] >> {behind}) & {mask}) << ({shift}))"
            )
            behind += f.bits
        return [
            f"for i in range({index.size}):",
            "    key = int64(0)",
            *gather,
            "    j = i",
            "    while j > 0 and columns[j - 1] > key:",
            "        columns[j] = columns[j - 1]",
            "        j -= 1",
            "    columns[j] = key",
            f"for i in range({index.size}):",
            *scatter,
        ]


FOLDER = "kernels"
"""In the cache folder."""


def load_kernel(text: str) -> ModuleType:
    """Import the generated text from the cache folder, writing it there first if it is new."""
    name = module_name(text)
    if name in sys.modules:
        return sys.modules[name]
    path = cache_folder(FOLDER) / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        write_whole(path, text.encode())
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    for function in (module.judge, module.evaluate, module.expand):
        undisturbed(function)._cache = RunTimeCache(function.py_func)  # type: ignore[no-untyped-call]
    return module


def is_cached(specification: Specification, symmetry: bool, judged: Collection[str] | None = None) -> bool:
    """Whether machine code for this specification in this scope is at hand. Raises NotCompilable where none can be."""
    text = KernelWriter(specification, layout_of(specification.schema_of_state), symmetry, judged).write().text
    return any((cache_folder(FOLDER) / "__pycache__").glob(f"{module_name(text)}.expand-*.nbi"))


def module_name(text: str) -> str:
    inlined = Path(__file__).with_name("runtime.py").read_text()
    depends_on = [text, inlined, version("numba"), version("numpy"), sys.version]
    digest = hashlib.sha256("\0".join(depends_on).encode()).hexdigest()
    return f"orderlab_kernel_{digest[:24]}"
