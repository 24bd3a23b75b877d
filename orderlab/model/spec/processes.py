"""Systems of processes: each process has a local state and a program; all share named variables.

The other form of specification, for programs whose control flow matters more than their state. A process is asked what
it would do in its local state, given a view of the shared variables; the view records what it reads, so such systems
offer footprints for partial-order reduction at no extra effort.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from orderlab.model.spec.transition_system import (
    Constraint,
    Expansion,
    Fairness,
    Footprint,
    Label,
    Law,
    Place,
    StrongFairness,
    TransitionSystem,
    WeakFairness,
    module_of,
    texts_behind,
)
from orderlab.model.spec.variables import SpecificationError


class Move(NamedTuple):
    """One thing that a process may do next: the action's name, its next local state, and the shared variables it
    assigns."""

    action: str
    local: Hashable
    writes: Mapping[str, Hashable] = {}
    arguments: tuple[tuple[str, Any], ...] = ()


class Shared:
    """Read access to the shared variables; remembers which were read."""

    __slots__ = ("_names", "_reads", "_values")

    def __init__(self, names: Mapping[str, int], values: tuple[Hashable, ...]):
        self._names = names
        self._values = values
        self._reads: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._reads.add(name)
        return self._values[self._names[name]]


class Situation(NamedTuple):
    """The values of the shared variables and the local states, each in order of declaration."""

    shared: tuple[Hashable, ...]
    locals: tuple[Hashable, ...]


@dataclass(frozen=True)
class Process:
    """`program` must depend on nothing but its arguments. A `fair` process does not stop while it can go on; one that
    is "strong" also goes on when it can now and then."""

    name: str
    start: Hashable
    program: Callable[[Any, Shared], Iterable[Move]]
    fair: bool | Literal["weak", "strong"] = True


@dataclass(frozen=True)
class ProcessSystem(TransitionSystem[Situation]):
    """Laws are written over situations; `shared` and `local` name what is in one. Give `actions` to have coverage
    judged."""

    title: str
    processes: Sequence[Process]
    variables: Mapping[str, Hashable]
    lawful: Sequence[Law] = ()
    may_end: Callable[[Situation], bool] = lambda _: False
    scope: Mapping[str, Any] = field(default_factory=dict)
    actions: Sequence[str] = ()
    bounds: Sequence[Constraint[Situation]] = ()

    def __post_init__(self) -> None:
        names = [process.name for process in self.processes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SpecificationError(
                f"{self.title}: two processes are called {twice[0]}; a name tells who took a step, so give each its own"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.title

    @property
    def _positions(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.variables)}

    def shared(self, situation: Situation) -> dict[str, Hashable]:
        return dict(zip(self.variables, situation.shared, strict=True))

    def local(self, situation: Situation) -> dict[str, Hashable]:
        return {process.name: here for process, here in zip(self.processes, situation.locals, strict=True)}

    def _value(self, place: str, value: Hashable) -> Hashable:
        """The value. Raises SpecificationError for one that can change, as lists, sets and dictionaries can."""
        try:
            hash(value)
        except TypeError:
            raise SpecificationError(
                f"{self.title}: {place}: {value!r} can change or holds what can ({type(value).__name__}); a state is "
                "made of values"
                " that stay: a tuple for a list, a frozenset for a set, a NamedTuple or a frozen dataclass for a record"
            ) from None
        return value

    def initial_states(self) -> Iterable[Situation]:
        for name, value in self.variables.items():
            self._value(f'variable "{name}"', value)
        for process in self.processes:
            self._value(f"local state of {process.name}", process.start)
        return [Situation(tuple(self.variables.values()), tuple(process.start for process in self.processes))]

    def successors(self, state: Situation) -> Iterable[tuple[Label, Situation]]:
        return self.expansion(state).steps

    def expansion(self, state: Situation) -> Expansion:
        """A process's own state is a place too, so that laws over it stay visible to the reduction."""
        names = self._positions
        steps: list[tuple[Label, Situation]] = []
        waiting: dict[str, frozenset[Place]] = {}
        for at, process in enumerate(self.processes):
            view = Shared(names, state.shared)
            moves = list(process.program(state.locals[at], view))
            reads = frozenset([*view._reads, (process.name,)])
            waiting[process.name] = reads
            for move in moves:
                shared = list(state.shared)
                for name, value in move.writes.items():
                    shared[names[name]] = self._value(f'variable "{name}"', value)
                self._value(f"local state of {process.name}", move.local)
                locals_after = (*state.locals[:at], move.local, *state.locals[at + 1 :])
                touched = Footprint(reads, frozenset([*move.writes, (process.name,)]))
                label = Label(process.name, move.action, move.arguments, touched)
                steps.append((label, Situation(tuple(shared), locals_after)))
        return Expansion(steps, waiting)

    def laws(self) -> Sequence[Law]:
        return self.lawful

    def action_names(self) -> Sequence[str]:
        return self.actions

    def constraints(self) -> Sequence[Constraint[Situation]]:
        return self.bounds

    def fairness(self) -> Sequence[Fairness]:
        return [
            (StrongFairness if process.fair == "strong" else WeakFairness)(process.name, _steps_of(process.name))
            for process in self.processes
            if process.fair
        ]

    def is_terminal(self, state: Situation) -> bool:
        return self.may_end(state)

    def describe(self, state: Situation) -> Mapping[str, Any]:
        return {name: _in_order(value) for name, value in {**self.shared(state), **self.local(state)}.items()}

    def source_text(self) -> str:
        """The texts of the programs, the laws and the bounds, and of what they import."""
        functions = [process.program for process in self.processes] + [self.may_end]
        for one in (*self.lawful, *self.bounds):
            functions += [value for value in vars(one).values() if callable(value)]
        return "\n".join(texts_behind(module_of(function) for function in functions))

    def parameters(self) -> Mapping[str, Any]:
        return self.scope


def _in_order(value: Any) -> Any:
    """The value with its sets as text, members in order: that of a frozenset differs between two processes."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(str(_in_order(one)) for one in value)) + "}"
    if isinstance(value, tuple):
        entries = [_in_order(one) for one in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    return value


def _steps_of(process: str) -> Callable[[Label], bool]:
    return lambda label: label.actor == process
