"""The space of states seen so far: numbered in breadth-first order, each with the state that it was first reached from.

The search drives one of two spaces through the same interface: the interpreted one below, for any transition system,
and the compiled one for declarative specifications. Both number states alike.

A checkpoint is an unfinished space on disk, to be resumed by a later run of the same specification: one JSON line
(magic, version, what it belongs to, digest) and the pickled plain values. The file is written whole or not at all. A
checkpoint of another specification, scope, text, engine or version is refused, and so is a damaged one; unpickling
admits value types of the specification's own package and nothing else, so the file cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orderlab.model.errors import InputError
from orderlab.model.explorer.reduction import Reduction
from orderlab.model.explorer.workers import SHORTEST_STRETCH, Judges, Workers, resident_bytes
from orderlab.model.files import write_whole
from orderlab.model.spec.transition_system import (
    DEADLOCK,
    Constraint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)


@dataclass(frozen=True)
class Edges:
    """Steps between known states, as parallel columns; `label` indexes `labels`."""

    source: NDArray[np.int64]
    label: NDArray[np.int64]
    target: NDArray[np.int64]
    labels: tuple[Label, ...]


class Space(Protocol):
    """`found` holds for each law the number of the first state at fault (or, for a goal, that meets it); `cut` the
    states that a constraint keeps from being gone on from."""

    engine: str
    count: int
    steps: int
    found: dict[str, int]
    cut: set[int]

    @property
    def system(self) -> TransitionSystem[Any]: ...

    @property
    def compiles(self) -> bool:
        """Whether the compiled space can go on from here."""

    def start(self) -> None:
        """Enter the initial states."""

    def expand(self, first: int, last: int) -> int:
        """Expand the states first..last-1; return the first that is not expanded yet (`last`, or less when
        interrupted).
        """

    def edges(self, first: int, last: int) -> Edges:
        """All steps from these expanded states to known states."""

    def state(self, number: int) -> Any: ...

    def number_of(self, state: Any) -> int | None:
        """The number of a state's representative, if it is known."""

    def parent(self, number: int) -> int:
        """The state that this one was first reached from; -1 for initial states."""

    def truth(self, law: LeadsTo[Any], side: str, first: int, last: int) -> NDArray[np.bool_]:
        """The predicate `when` or `then` of a liveness law, for a stretch of states."""

    def fired(self) -> Mapping[str, int]:
        """How many steps each action has taken."""

    def met(self) -> Mapping[str, int]:
        """How many states each antecedent held in."""

    def bytes_held(self) -> int: ...

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain values."""

    def restore(self, saved: Mapping[str, Any]) -> None: ...


class InterpretedSpace:
    """States as Python values in a dictionary. `reduction` chooses which steps of a state to follow, if given."""

    engine = "interpreted"

    def __init__(
        self,
        system: TransitionSystem[Any],
        symmetry: bool = False,
        reduction: Reduction | None = None,
        laws: Sequence[Law] | None = None,
        constraints: Sequence[Constraint[Any]] = (),
    ):
        self.system = system
        self.count = 0
        self.steps = 0
        self.found: dict[str, int] = {}
        self._canonical: Callable[[Any], Any] | None = system.canonical if symmetry else None
        self._reduction = reduction
        self._numbers: dict[Hashable, int] = {}
        self._states: list[Any] = []
        self._parents = array("q")
        self._fired: dict[str, int] = dict.fromkeys(system.action_names(), 0)
        self.cut: set[int] = set()
        self._constraints = constraints
        laws = system.laws() if laws is None else laws
        self._invariants = [law for law in laws if isinstance(law, Invariant)]
        self._step_laws = [law for law in laws if isinstance(law, StepInvariant)]
        self._goals = [law for law in laws if isinstance(law, Sometimes)]
        self._met = {law.name: 0 for law in self._invariants if law.antecedent is not None}
        self._workers: Workers | None = None
        self._bytes_of_workers = 0
        self._baseline = resident_bytes()

    @property
    def compiles(self) -> bool:
        return self._reduction is None and not self._constraints

    def share(self, workers: int) -> None:
        """Share the search with other processes from now on, until `close`: `expand_shared` instead of `expand`, and
        what is known is in several processes, but for its number."""
        self._workers = Workers(
            Judges(self.system, self._canonical, self._invariants, self._step_laws, self._goals, self._constraints),
            workers, self._numbers, self.cut,
        )  # fmt: skip

    @property
    def is_shared(self) -> bool:
        return self._workers is not None

    def close(self, gather: bool = True) -> None:
        """End the other processes; with `gather`, after they told what they have."""
        if self._workers is not None:
            if gather:
                self._gather()
            self._workers.close()
            self._workers = None
            self._bytes_of_workers = 0

    def stop_reducing(self) -> None:
        """Follow all steps from now on."""
        self._reduction = None

    def start(self) -> None:
        for state in self.system.initial_states():
            representative = self._canonical(state) if self._canonical else state
            if representative not in self._numbers:
                self._enter(representative, -1)

    def _enter(self, state: Any, parent: int) -> None:
        number = self.count
        self._numbers[state] = number
        self._states.append(state)
        self._parents.append(parent)
        self.count = number + 1
        for law in self._invariants:
            if law.antecedent is not None:
                if not law.antecedent(state):
                    continue
                self._met[law.name] += 1
            if law.name not in self.found and not law.holds(state):
                self.found[law.name] = number
        for goal in self._goals:
            if goal.name not in self.found and goal.reached(state):
                self.found[goal.name] = number
        if self._constraints and not all(one.holds(state) for one in self._constraints):
            self.cut.add(number)
        if self._reduction is not None:
            self._reduction.saw_state(state)

    def expand_shared(self, first: int, last: int, at_most: int | None) -> int:
        """As `expand`, by all workers, as far as they see fit. Where more than `at_most` states would be known
        afterwards, no more than `SHORTEST_STRETCH` states are expanded."""
        assert self._workers is not None
        reached, reports = self._workers.round(first, last, self.count, at_most, self.found)
        if not reports:
            # Whatever failed there fails here, and is told; or a law was broken before it failed, and is judged no
            # more.
            workers = self._workers.size
            self.close()
            self.expand(first, min(last, first + SHORTEST_STRETCH))
            self.share(workers)
            return min(last, first + SHORTEST_STRETCH)
        self.count += reports[0].new
        for report in reports:
            self.steps += report.steps
            self.cut.update(report.cut)
            for name, times in report.met.items():
                self._met[name] += times
        firsts = sorted((key, action) for report in reports for action, (key, _) in report.fired.items())
        for _, action in firsts:
            self._fired.setdefault(action, 0)
        for report in reports:
            for action, (_, times) in report.fired.items():
                self._fired[action] += times
        for number, name in sorted((number, name) for report in reports for name, number in report.found.items()):
            self.found.setdefault(name, number)
        self._bytes_of_workers = sum(report.bytes_more for report in reports[1:])
        return reached

    def _gather(self) -> None:
        """Have all states in this process."""
        if self._workers is None:
            return
        missing = self.count - len(self._states)
        self._states += [None] * missing
        self._parents.extend([-1] * missing)
        for numbers, parents, states in self._workers.gathered():
            self._numbers.update(zip(states, numbers, strict=True))
            for number, parent, state in zip(numbers, parents, states, strict=True):
                self._states[number], self._parents[number] = state, parent

    def expand(self, first: int, last: int) -> int:
        """The hot loop. Attribute look-ups are hoisted; everything rare is behind a test that is usually false."""
        successors, canonical, numbers, fired = self.system.successors, self._canonical, self._numbers, self._fired
        reduction, step_laws, states, cut = self._reduction, self._step_laws, self._states, self.cut
        for source in range(first, last):
            if source in cut:
                continue
            state = states[source]
            chosen = successors(state) if reduction is None else reduction.choose(state, partial(self._is_open, source))
            steps = 0
            for label, after in chosen:
                steps += 1
                action = label.action
                fired[action] = fired.get(action, 0) + 1
                if step_laws:
                    self._judge_step(source, state, label, after)
                if canonical is not None:
                    after = canonical(after)
                if after not in numbers:
                    self._enter(after, source)
            self.steps += steps
            if steps == 0 and DEADLOCK not in self.found and not self.system.is_terminal(state):
                self.found[DEADLOCK] = source
        return last

    def _judge_step(self, source: int, state: Any, label: Label, after: Any) -> None:
        for law in self._step_laws:
            if law.name not in self.found and not law.holds(state, label, after):
                self.found[law.name] = source

    def _is_open(self, expanding: int, state: Any) -> bool:
        """Whether a successor has still to be expanded (the proviso against postponing a step for ever)."""
        representative = self._canonical(state) if self._canonical else state
        number = self._numbers.get(representative)
        return number is None or number > expanding

    def edges(self, first: int, last: int) -> Edges:
        source, kind, target = array("q"), array("q"), array("q")
        table: dict[tuple[Any, ...], int] = {}
        labels: list[Label] = []
        for number in range(first, last):
            if number in self.cut:
                continue
            for label, after in self.system.successors(self._states[number]):
                reached = self.number_of(after)
                if reached is None:
                    continue
                at = table.setdefault(label[:3], len(labels))
                if at == len(labels):
                    labels.append(label)
                source.append(number)
                kind.append(at)
                target.append(reached)
        return Edges(column(source), column(kind), column(target), tuple(labels))

    def state(self, number: int) -> Any:
        return self._states[number]

    def number_of(self, state: Any) -> int | None:
        return self._numbers.get(self._canonical(state) if self._canonical else state)

    def parent(self, number: int) -> int:
        return self._parents[number]

    def truth(self, law: LeadsTo[Any], side: str, first: int, last: int) -> NDArray[np.bool_]:
        predicate = law.then if side == "then" else law.when
        assert predicate is not None
        return np.fromiter((predicate(s) for s in self._states[first:last]), np.bool_, last - first)

    def fired(self) -> Mapping[str, int]:
        return self._fired

    def met(self) -> Mapping[str, int]:
        return self._met

    def bytes_held(self) -> int:
        return max(0, resident_bytes() - self._baseline) + self._bytes_of_workers

    def snapshot(self) -> dict[str, Any]:
        self._gather()
        return {
            "states": self._states,
            "parents": self._parents.tobytes(),
            "steps": self.steps,
            "found": self.found,
            "fired": self._fired,
            "met": self._met,
            "cut": self.cut,
            "reduction": self._reduction.snapshot() if self._reduction else None,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._states = list(saved["states"])
        self._numbers = {state: number for number, state in enumerate(self._states)}
        self._parents = array("q", saved["parents"])
        self.count, self.steps = len(self._states), saved["steps"]
        self.found, self._fired, self._met = dict(saved["found"]), dict(saved["fired"]), dict(saved["met"])
        self.cut = set(saved["cut"])
        if self._reduction is not None:
            self._reduction.restore(saved["reduction"])


def column(numbers: array[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


MAGIC = "orderlab-checkpoint"
VERSION = 1
_PLAIN = {"builtins": {"frozenset", "set", "complex", "bytearray"}, "collections": {"deque", "OrderedDict"}}


@dataclass(frozen=True)
class Checkpoint:
    engine: str
    levels: list[int]
    expanded: int
    seconds: float
    space: dict[str, Any]


def identity(system: TransitionSystem[Any], symmetry: bool, reduction: bool, chosen: Sequence[str] = ()) -> str:
    """Digest of everything that decides which states there are and in which order."""
    parts = [system.name, json.dumps(system.parameters(), sort_keys=True, default=str), system.source_text()]
    parts += [type(system).__qualname__, str(symmetry), str(reduction), *chosen]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def write_checkpoint(path: Path, belongs_to: str, name: str, checkpoint: Checkpoint) -> None:
    body = pickle.dumps(vars(checkpoint), protocol=5)
    header = {
        "magic": MAGIC,
        "version": VERSION,
        "specification": name,
        "identity": belongs_to,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    write_whole(path, json.dumps(header).encode() + b"\n" + body)


def read_checkpoint(path: Path, belongs_to: str, system: TransitionSystem[Any]) -> Checkpoint:
    """Raises InputError if the file is not a whole checkpoint of this very exploration."""
    try:
        line, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(line)
    except (OSError, ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise InputError(f"{path}: not a checkpoint; delete it or name another file")
    if header.get("version") != VERSION:
        raise InputError(f"{path}: checkpoint version {header.get('version')}, this is version {VERSION}; delete it")
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise InputError(f"{path}: the checkpoint is damaged; delete it")
    if header.get("identity") != belongs_to:
        other = header.get("specification")
        raise InputError(
            f"{path}: a checkpoint of {other} under another scope, text or reduction than this run of {system.name};"
            " name another file"
        )
    try:
        return Checkpoint(**_ValueUnpickler(io.BytesIO(body), type(system).__module__.split(".")[0]).load())
    except (pickle.UnpicklingError, TypeError, AttributeError, ImportError) as error:
        raise InputError(f"{path}: the checkpoint holds something else than states ({error}); delete it") from None


class _ValueUnpickler(pickle.Unpickler):
    """Finds only value types: named tuples, enumerations and dataclasses of our model or of the system's package."""

    def __init__(self, file: io.BytesIO, package: str):
        super().__init__(file)
        self._packages = {"orderlab", package}

    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module.split(".")[0] in self._packages:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")
