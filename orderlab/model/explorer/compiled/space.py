"""The compiled space: states as packed rows in arrays, expanded by a function generated from the specification.

It is held against the interpreter during a run: some hundred of the states that a run expands are expanded by the
interpreter as well: steps, what they lead to, laws, goals, antecedents, deadlock, the predicates of liveness laws. A
difference is a defect of the engine (`EngineError`). Errors of a specification are told in the interpreter's words.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderlab.model.errors import EngineError
from orderlab.model.explorer.compiled import runtime
from orderlab.model.explorer.compiled.kernel_text import KernelText, KernelWriter, load_kernel
from orderlab.model.explorer.compiled.layout import layout_of
from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.explorer.space import Edges, InterpretedSpace
from orderlab.model.spec.declarations import Action
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import DEADLOCK, Invariant, Label, Law, LeadsTo, Sometimes, StepInvariant
from orderlab.model.spec.variables import StateTuple

FIRST_CAPACITY = 1 << 12
EDGE_CAPACITY = 1 << 16


class CompiledSpace:
    """Same numbering, same findings as the interpreted space, at some millions of steps a second.

    Of each run some hundred states, drawn by `seed`, are stepped by the interpreter as well. `load` makes a module of
    the generated text.
    Raises NotCompilable, before any state is visited, for a text that only the interpreter understands.
    """

    engine = "compiled"
    compiles = True

    def __init__(
        self,
        specification: Specification,
        symmetry: bool = False,
        seed: int = 0,
        laws: Sequence[Law] | None = None,
        load: Callable[[str], Any] | None = None,
    ):
        self.system = specification
        self.count = 0
        self.steps = 0
        self.found: dict[str, int] = {}
        self.symmetry = symmetry
        self._seed = seed
        self.cut: set[int] = set()
        self.laws: Sequence[Law] = specification.laws() if laws is None else laws
        self._layout = layout_of(specification.schema_of_state)
        judged = None if laws is None else [law.name for law in laws]
        self._text: KernelText = KernelWriter(specification, self._layout, symmetry, judged).write()
        self._kernel = (load or load_kernel)(self._text.text)
        self._found = np.full(self._text.deadlock + 1, -1, np.int64)
        self._met = np.zeros(max(1, len(self._text.laws)), np.int64)
        self._fired = np.zeros(max(1, len(specification.declared(Action))), np.int64)
        self._error = np.zeros(3, np.int64)
        self._rows = np.empty((FIRST_CAPACITY, self._layout.words), np.int64)
        self._parents = np.empty(FIRST_CAPACITY, np.int32)
        self._no_edges = np.empty((0, 3), np.int64)
        self._new_table(4 * FIRST_CAPACITY)
        try:
            self._run(0, 0, False, self._no_edges)
            self._kernel.evaluate(0, self._rows, 0, 0, np.empty(1, np.bool_), self._error)
        except Exception as error:  # of numba or of LLVM; no state is visited yet
            raise NotCompilable(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None

    def _new_table(self, slots: int) -> None:
        self._table = np.full((slots, self._layout.words), runtime.FREE, np.int64)
        self._numbers = np.empty(slots, np.int32)
        runtime.rehash(self._table, self._numbers, self._rows, self.count)

    def _grow(self, more: int = 0) -> None:
        """Room for `more` states and the successors of one: twice the rows; the table stays at most half full."""
        needed = self.count + more + len(self.system.action_instances)
        if needed > self._rows.shape[0]:
            rows = np.empty((2 * max(needed, self._rows.shape[0]), self._layout.words), np.int64)
            rows[: self.count] = self._rows[: self.count]
            parents = np.empty(rows.shape[0], np.int32)
            parents[: self.count] = self._parents[: self.count]
            self._rows, self._parents = rows, parents
        if 2 * needed > self._table.shape[0]:
            self._new_table(1 << (4 * needed - 1).bit_length())

    def start(self) -> None:
        rows = list(dict.fromkeys(self._pack(state) for state in self.system.initial_states()))
        self._grow(len(rows))
        self._rows[: len(rows)] = rows
        self._parents[: len(rows)] = -1
        self.count = len(rows)
        self._new_table(self._table.shape[0])
        for number in range(self.count):
            self._kernel.judge(self._rows, number, self._found, self._met, self._error)
            if self._error[0] != 0:
                tell_error_at_start(self, number)
        self._note_findings()

    def _pack(self, state: StateTuple) -> tuple[int, ...]:
        return self._layout.pack(self.representative(state))

    def representative(self, state: StateTuple) -> StateTuple:
        return self.system.canonical(state) if self.symmetry else state

    def _run(self, first: int, last: int, record: bool, edges: NDArray[np.int64]) -> tuple[int, int, int]:
        fired = self._fired if not record else np.zeros_like(self._fired)
        at, self.count, steps, recorded = self._kernel.expand(
            self._rows, self._table, self._numbers, self._parents, self.count, first, last,
            fired, self._found, self._met, self._error, record, edges,
        )  # fmt: skip
        if self._error[0] != 0:
            tell_error(self, int(self._error[1]), int(self._error[2]))
        return at, steps, recorded

    def expand(self, first: int, last: int) -> int:
        at = first
        while at < last:
            reached, steps, _ = self._run(at, last, False, self._no_edges)
            self.steps += steps
            if reached < last:
                self._grow()
            at = reached
        self._note_findings()
        for number in drawn(self._seed, first, last):
            check_state(self, number)
        return last

    def _note_findings(self) -> None:
        for law, number in self.findings().items():
            self.found.setdefault(law, number)

    def findings(self) -> Mapping[str, int]:
        """The number of the first state at fault for each law, as the kernel has noted them so far."""
        found = zip((*self._text.laws, DEADLOCK), self._found, strict=True)
        return {law: int(number) for law, number in found if number >= 0}

    def observed(self, number: int) -> Observation:
        """What the kernel says of a state that it has expanded."""
        told = Observation()
        found, met = np.full_like(self._found, -1), np.zeros_like(self._met)
        error, fired = np.zeros_like(self._error), np.zeros_like(self._fired)
        self._kernel.judge(self._rows, number, found, met, error)
        room = np.empty((max(1, len(self.system.action_instances)), 3), np.int64)
        for _ in range(2):
            reached, self.count, _, recorded = self._kernel.expand(
                self._rows, self._table, self._numbers, self._parents, self.count, number, number + 1,
                fired, found, met, error, True, room,
            )  # fmt: skip
            if reached > number or error[0] != 0:
                break
            self._grow()
        instances = self.system.action_instances
        told.steps = [(instances[kind].label, self.state(target)) for _, kind, target in room[:recorded].tolist()]
        told.found = {law for law, at in zip((*self._text.laws, DEADLOCK), found, strict=True) if at >= 0}
        told.met = {law for law, times in zip(self._text.laws, met, strict=False) if times}
        truth = np.zeros(1, np.bool_)
        judged = {law.name for law in self.laws}
        for name, predicate in self.system.liveness_predicates.items():
            if name[0] not in judged:
                continue
            which = self._text.predicates.index(predicate)
            self._kernel.evaluate(which, self._rows, number, number + 1, truth, error)
            if truth[0]:
                told.predicates.add(name)
        told.raised = bool(error[0] != 0)
        return told

    def edges(self, first: int, last: int) -> Edges:
        """Expands once more, recording; all successors of expanded states are known, so nothing is entered."""
        parts = []
        at = first
        room = max(EDGE_CAPACITY, 2 * len(self.system.action_instances))
        buffer = np.empty((room, 3), np.int64)
        known = self.count
        while at < last:
            at, _, recorded = self._run(at, last, True, buffer)
            parts.append(buffer[:recorded].copy())
            if at < last and recorded == 0:
                self._grow()
        self.count = known
        found = np.concatenate(parts) if parts else self._no_edges
        labels = tuple(instance.label for instance in self.system.action_instances)
        return Edges(found[:, 0], found[:, 1], found[:, 2], labels)

    def state(self, number: int) -> StateTuple:
        return self._layout.unpack(self._rows[number])

    def number_of(self, state: StateTuple) -> int | None:
        row = np.array([self._pack(state)], np.int64)
        number = int(runtime.look_up(self._table, self._numbers, row))
        return number if number >= 0 else None

    def parent(self, number: int) -> int:
        return int(self._parents[number])

    def truth(self, law: LeadsTo[Any], side: str, first: int, last: int) -> NDArray[np.bool_]:
        which = self._text.predicates.index(self.system.liveness_predicates[law.name, side])
        truth = np.empty(last - first, np.bool_)
        self._kernel.evaluate(which, self._rows, first, last, truth, self._error)
        if self._error[0] != 0:
            tell_error_of_predicate(self, law, side, first, last)
        return truth

    def fired(self) -> Mapping[str, int]:
        fired = dict.fromkeys(self.system.action_names(), 0)
        for declaration, times in zip(self.system.declared(Action), self._fired, strict=True):
            if times or declaration.name in fired:
                fired[declaration.name] = int(times)
        return fired

    def met(self) -> Mapping[str, int]:
        with_antecedent = self.system.laws_with_antecedent()
        return {n: int(m) for n, m in zip(self._text.laws, self._met, strict=False) if n in with_antecedent}

    def bytes_held(self) -> int:
        """The pages in use: rows and parents up to the last state, the whole table."""
        per_state = self._rows.itemsize * self._layout.words + self._parents.itemsize
        return self.count * per_state + self._table.nbytes + self._numbers.nbytes

    def snapshot(self) -> dict[str, Any]:
        return {
            "rows": self._rows[: self.count].tobytes(),
            "parents": self._parents[: self.count].tobytes(),
            "steps": self.steps,
            "found": self._found.tobytes(),
            "fired": self._fired.tobytes(),
            "met": self._met.tobytes(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        rows = np.frombuffer(saved["rows"], np.int64).reshape(-1, self._layout.words)
        self._rows, self.count = rows.copy(), len(rows)
        self._parents = np.frombuffer(saved["parents"], np.int32).copy()
        self.steps = saved["steps"]
        self._found = np.frombuffer(saved["found"], np.int64).copy()
        self._fired = np.frombuffer(saved["fired"], np.int64).copy()
        self._met = np.frombuffer(saved["met"], np.int64).copy()
        self._new_table(max(4 * FIRST_CAPACITY, 1 << (4 * self.count).bit_length()))
        self._note_findings()


ALL_UP_TO = 128
PER_DOUBLING = 32


def drawn(seed: int, first: int, last: int) -> list[int]:
    """The states first..last-1 that are to be checked: all of the first 128, then 32 for each doubling."""

    def wanted(states: int) -> int:
        return states if states <= ALL_UP_TO else ALL_UP_TO + int(PER_DOUBLING * log2(states / ALL_UP_TO))

    if last <= ALL_UP_TO:
        return list(range(first, last))
    count = min(last - first, wanted(last) - wanted(first))
    return sorted(random.Random(f"{seed}:{first}:{last}").sample(range(first, last), count))


def check_state(space: CompiledSpace, number: int) -> None:
    """Compare both engines on an expanded state. Raises EngineError where they differ."""
    state = space.state(number)
    told = space.observed(number)
    expected = _Observed(space, state)
    if told.raised or expected.raised:
        if told.raised != bool(expected.raised):
            raise disagreement(space, state, f"{expected.raised or 'nothing'} raised", "the opposite")
        return
    for what, one, other in (
        ("steps", expected.steps, told.steps),
        ("laws broken and goals reached", expected.found, told.found),
        ("antecedents met", expected.met, told.met),
        ("predicates of liveness laws", expected.predicates, told.predicates),
    ):
        if one != other:
            raise disagreement(space, state, f"{what} {_difference(one, other)}", _difference(other, one))


def disagreement(space: CompiledSpace, state: StateTuple, interpreted: str, compiled: str) -> EngineError:
    shown = ", ".join(f"{name} = {value}" for name, value in space.system.describe(state).items())
    return EngineError(
        f"{space.system.name}: the engines disagree in the state {shown}: interpreted, {interpreted}; compiled,"
        f" {compiled}; this is a defect of the compiled engine: report it, and use --engine interpreted"
    )


def _difference(one: Any, other: Any) -> str:
    if isinstance(one, set):
        return ", ".join(sorted(map(str, one - other))) or "none beyond"
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"{one[at][0]} to {one[at][1]}" if at < len(one) else "no further step"


class Observation:
    """What one engine says of one state: steps and where they lead, names of laws broken and goals reached, antecedents
    met, predicates that are true, whether anything raised.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Label, StateTuple]] = []
        self.found: set[str] = set()
        self.met: set[str] = set()
        self.predicates: set[tuple[str, str]] = set()
        self.raised: str | bool | None = None


class _Observed(Observation):
    """The interpreter's observation."""

    def __init__(self, space: CompiledSpace, state: StateTuple):
        super().__init__()
        self._attempt(lambda: self._look(space, state))
        for law in space.laws:
            self._attempt(lambda law=law: self._judge(law, state))  # type: ignore[misc]

    def _attempt(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as error:  # whatever the text raises
            self.raised = type(error).__name__

    def _look(self, space: CompiledSpace, state: StateTuple) -> None:
        system = space.system
        step_laws = [law for law in space.laws if isinstance(law, StepInvariant)]
        steps: list[tuple[Label, StateTuple]] = list(system.successors(state))
        for label, after in steps:
            for law in step_laws:
                if law.name not in self.found and not law.holds(state, label, after):
                    self.found.add(law.name)
            self.steps.append((label, space.representative(after)))
        if not steps and not system.is_terminal(state):
            self.found.add(DEADLOCK)

    def _judge(self, law: Any, state: StateTuple) -> None:
        if isinstance(law, Invariant):
            if law.antecedent is not None:
                if not law.antecedent(state):
                    return
                self.met.add(law.name)
            if not law.holds(state):
                self.found.add(law.name)
        elif isinstance(law, Sometimes) and law.reached(state):
            self.found.add(law.name)
        elif isinstance(law, LeadsTo):
            for side, predicate in (("when", law.when), ("then", law.then)):
                if predicate is not None and predicate(state):
                    self.predicates.add((law.name, side))


class _KnownBefore(MutableMapping[Any, int]):
    """The numbers of the states that were known when an expansion began, and of those entered since."""

    def __init__(self, space: CompiledSpace, count: int):
        self._space, self._count = space, count
        self._since: dict[Any, int] = {}

    def __getitem__(self, state: Any) -> int:
        number = self._space.number_of(state)
        return number if number is not None and number < self._count else self._since[state]

    def __setitem__(self, state: Any, number: int) -> None:
        self._since[state] = number

    def __delitem__(self, state: Any) -> None:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def tell_error(space: CompiledSpace, number: int, known: int) -> None:
    """Raise what the interpreter raises when it expands a state while the first `known` states are known; where that
    is nothing, EngineError.
    """
    twin = InterpretedSpace(space.system, space.symmetry, laws=space.laws)
    twin._states = [space.state(number)]
    twin._numbers = _KnownBefore(space, known)  # type: ignore[assignment]
    twin.count = 1
    by_state = {law.name for law in space.laws if isinstance(law, Invariant | Sometimes)}
    earlier = {law for law, at in space.findings().items() if at < (known if law in by_state else number)}
    twin.found = dict.fromkeys(earlier, 0)
    twin.expand(0, 1)
    raise disagreement(space, space.state(number), "no error", "one")


def tell_error_at_start(space: CompiledSpace, number: int) -> None:
    """Tell the error of an initial state that was just entered."""
    twin = InterpretedSpace(space.system, space.symmetry, laws=space.laws)
    twin.found = {law: at for law, at in space.findings().items() if at < number}
    twin._enter(space.state(number), -1)
    raise disagreement(space, space.state(number), "no error", "one")


def tell_error_of_predicate(space: CompiledSpace, law: LeadsTo[Any], side: str, first: int, last: int) -> None:
    """Tell the error of a predicate of a liveness law."""
    predicate = law.then if side == "then" else law.when
    assert predicate is not None
    for number in range(first, last):
        predicate(space.state(number))
    raise disagreement(space, space.state(first), f"no error of {law.name}", "one")
