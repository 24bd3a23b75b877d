"""Transition systems: what the explorer needs to know of any specification, and the laws it can decide of one.

A system is a set of initial states and a successor function whose steps are labelled (who, what, with which
arguments). Everything else is an offer that a system may make: laws, fairness, a canonical form for symmetry,
footprints for partial-order reduction, a readable rendering. The explorer never looks inside a state.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from orderlab.model.errors import InputError

S = TypeVar("S", bound=Hashable)

DEADLOCK = "no-deadlock"
COVERAGE = "coverage"
"""Names of the two laws that every system has."""

Place = Hashable
"""One thing that a step can read or write: a variable, an element of an array, a key of a store."""


class Footprint(NamedTuple):
    """What one step touched. Two steps are independent when neither writes what the other reads or writes."""

    reads: frozenset[Place]
    writes: frozenset[Place]


class Label(NamedTuple):
    """Who took a step (process), which named action it was, with which arguments, and what it touched if recorded."""

    actor: str
    action: str
    arguments: tuple[tuple[str, Any], ...] = ()
    footprint: Footprint | None = None

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.action}({given})" if given else self.action


class Expansion(NamedTuple):
    """The steps of a state, each with its footprint, and what the disabled actions of each process looked at.

    `waiting` maps a process to the places that its guards read, the failed ones included: as long as nobody writes
    there, the process is offered the same steps.
    """

    steps: Sequence[tuple[Label, Any]]
    waiting: Mapping[str, frozenset[Place]]


@dataclass(frozen=True)
class Invariant(Generic[S]):
    """A law of every reachable state. With an antecedent it speaks only of states that meet it, and is vacuous without
    one.

    `reads` tells which places `holds` and `antecedent` look at in a state; a law without it is taken to look at
    everything, which leaves partial-order reduction nothing to reduce.
    """

    name: str
    holds: Callable[[S], bool]
    antecedent: Callable[[S], bool] | None = None
    reads: Callable[[S], frozenset[Place]] | None = None
    statement: str = ""
    stops: bool = True
    """Whether the search ends with the level in which the law breaks; False: it goes on to the other laws."""
    why: Callable[[S], str] | None = None
    """What in a state that breaks the law does so, in words."""


@dataclass(frozen=True)
class StepInvariant(Generic[S]):
    """A law of every step (state, label, next state), refinement for instance. Steps that change nothing are steps
    too.
    """

    name: str
    holds: Callable[[S, Label, S], bool]
    statement: str = ""
    why: Callable[[S, Label, S], str] | None = None


@dataclass(frozen=True)
class Sometimes(Generic[S]):
    """A goal: some reachable state meets it. Guards against laws that hold because nothing happens."""

    name: str
    reached: Callable[[S], bool]
    reads: Callable[[S], frozenset[Place]] | None = None
    statement: str = ""


@dataclass(frozen=True)
class LeadsTo(Generic[S]):
    """A liveness law: on every fair behaviour each state that meets `when` is followed by one that meets `then`.

    Without `when` the obligation begins in the initial states: `then` eventually holds. A state that meets both is
    its own answer, as in TLA+'s leads-to.
    """

    name: str
    then: Callable[[S], bool]
    when: Callable[[S], bool] | None = None
    statement: str = ""
    when_said: str = ""
    then_said: str = ""


Law = Invariant[Any] | StepInvariant[Any] | Sometimes[Any] | LeadsTo[Any]


@dataclass(frozen=True)
class WeakFairness:
    """A set of steps that may not be enabled for ever and never taken (WF of TLA+; steps that change nothing do not
    count)."""

    name: str
    matches: Callable[[Label], bool]


@dataclass(frozen=True)
class StrongFairness:
    """A set of steps that may not be enabled again and again and never taken (SF of TLA+)."""

    name: str
    matches: Callable[[Label], bool]


Fairness = WeakFairness | StrongFairness


@dataclass(frozen=True)
class Constraint(Generic[S]):
    """What keeps a search finite (CONSTRAINT of TLC): a state that does not meet it is judged, and not gone on from."""

    name: str
    holds: Callable[[S], bool]


class TransitionSystem(Generic[S]):
    """Base of all systems. Override `initial_states` and `successors`; the rest has safe defaults.

    Both must be deterministic and must yield in the same order in every process, whatever PYTHONHASHSEED is: state
    numbers, witnesses and checkpoints depend on it. States are immutable, hashable, and compare by value.
    """

    name: ClassVar[str] = "system"
    deadlock_is_violation: ClassVar[bool] = True
    resumable: ClassVar[bool] = True
    """Whether its states mean the same in another process, so that a checkpoint can keep them."""

    def initial_states(self) -> Iterable[S]:
        raise NotImplementedError

    def successors(self, state: S) -> Iterable[tuple[Label, S]]:
        raise NotImplementedError

    def expansion(self, state: S) -> Expansion:
        """The steps with footprints, for partial-order reduction. Systems that do not record footprints refuse."""
        raise NotImplementedError(f"{self.name} records no footprints")

    def parameters(self) -> Mapping[str, Any]:
        """The scope: what was chosen to make the system finite. Part of the identity of a run."""
        return {}

    def action_names(self) -> Sequence[str]:
        """Every action that ought to fire somewhere. Empty: the system does not say, and action coverage is not
        judged.
        """
        return ()

    def laws(self) -> Sequence[Law]:
        return ()

    def fairness(self) -> Sequence[Fairness]:
        return ()

    def constraints(self) -> Sequence[Constraint[S]]:
        """What a state must meet to be gone on from."""
        return ()

    def constraint_named(self, name: str) -> Constraint[S]:
        """A predicate of the system as a constraint. Raises InputError if there is none of this name."""
        raise InputError(
            f"--constraint {name}: {self.name} has no predicates that can be named; only specifications do"
        )

    def unbound_laws(self) -> Sequence[str]:
        """Declared laws whose parameters range over an empty set: they say nothing."""
        return ()

    def exchanges(self, state: S) -> Iterable[tuple[str, S]]:
        """Which members exchange their names, and the state afterwards; enough exchanges to generate every renaming,
        the same for each state. What a claim of symmetry is checked by.
        """
        return ()

    def exchanges_of_footprints(self) -> Sequence[Callable[[str, frozenset[Place]], tuple[str, frozenset[Place]]]]:
        """What each of these exchanges makes of a process and of places that it touches; the process "" is nobody.

        Raises NotImplementedError where processes are not renamed with the members; then nothing is reduced under
        symmetry.
        """
        raise NotImplementedError(f"{self.name} does not tell how renaming changes footprints")

    def is_terminal(self, state: S) -> bool:
        """Whether stopping here is right. A state without successors that is not terminal is a deadlock."""
        return False

    def canonical(self, state: S) -> S:
        """The representative of the states that differ from this one only by a renaming. Systems without symmetry
        refuse."""
        raise NotImplementedError(f"{self.name} has no symmetry")

    def describe(self, state: S) -> Mapping[str, Any]:
        """The state as JSON-ready values under the names that a reader knows."""
        return {"state": repr(state)}

    def source_text(self) -> str:
        """What the behaviour depends on besides name and parameters; a checkpoint made under another text is refused.

        Unless overridden: every Python file in the folder of the system's class.
        """
        folder = Path(inspect.getfile(type(self))).parent
        return "\n".join(file.read_text() for file in sorted(folder.glob("*.py")))


def texts_behind(modules: Iterable[str]) -> list[str]:
    """The texts of some modules by name, and of those that they import from, as far as these belong to their author:
    not of Python, not of an installed package, not of this suite."""
    texts: dict[str, str] = {}
    waiting = [(name, True) for name in sorted(set(modules))]
    while waiting:
        name, is_named = waiting.pop(0)
        module = sys.modules.get(name)
        file = Path(getattr(module, "__file__", None) or "")
        if name in texts or file.suffix != ".py" or not file.is_file():
            continue
        if (name.split(".")[0] == __name__.split(".")[0] and not is_named) or _is_installed(file):
            continue
        texts[name] = file.read_text()
        held = [
            v.__name__ if isinstance(v, ModuleType) else getattr(v, "__module__", None) for v in vars(module).values()
        ]
        waiting += [(one, False) for one in sorted({one for one in held if isinstance(one, str)})]
    return [texts[name] for name in sorted(texts)]


def _is_installed(file: Path) -> bool:
    library = Path(sysconfig.get_paths()["stdlib"])
    return "site-packages" in file.parts or "dist-packages" in file.parts or library in file.parents


def module_of(function: Callable[..., Any]) -> str:
    """Where a function comes from; of a partial one, the function that it calls."""
    inner = inspect.unwrap(getattr(function, "func", function))
    return getattr(inner, "__module__", None) or type(inner).__module__
