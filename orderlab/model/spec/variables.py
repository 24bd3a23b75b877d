"""States of declarative specifications: finite domains, variables, the draft that an action reads and assigns;
symmetry.

A state is a tuple with one entry per variable: an integer, or a (nested) tuple of integers for an array. Every
variable has a finite domain, so that the compiled engine can pack a state into a few machine words. Sets, records and
sequences are integers there, too: their codes (`compounds`).

Symmetry: one representative for all states that differ only by renaming the members of symmetric index sets. Where
every symmetric set only indexes arrays of plain values, sorting its columns gives the representative in one pass.
Otherwise (values that name members, arrays indexed twice) the least image under all permutations is taken: exact, at a
cost of size! per set. Sound when initial states, actions and laws do not tell the members apart, which a specification
ensures by using only equality and quantification over a symmetric set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from itertools import permutations, product
from numbers import Integral
from typing import Any, ClassVar

from orderlab.model.spec.transition_system import (
    Place,
)

_TRUTH = ("false", "true")
Value = int | tuple[Any, ...]
StateTuple = tuple[Value, ...]


class SpecificationError(Exception):
    """The text of a specification is wrong: a value outside its domain, an index outside its array, an unknown
    variable.

    `place` is the file and the line where it belongs to a method as a whole.
    """

    place: tuple[str, int] | None = None


@dataclass(frozen=True)
class IndexSet:
    """A finite set 0..size-1 of interchangeable (symmetric) or ordered things: processes, clients, payloads.

    Of a symmetric set a specification may use equality and quantification only, never order or arithmetic.
    """

    name: str
    size: int
    symmetric: bool = False

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Domain:
    """The integers low..high. `names` renders enumerations; `of` says that values are elements of an index set."""

    low: int
    high: int
    names: tuple[str, ...] = ()
    of: IndexSet | None = None

    is_compound: ClassVar[bool] = False
    """Whether its values are sets, records or sequences (`compounds`), of which a state has the codes: integers."""

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise SpecificationError(f"empty domain {self.low}..{self.high}")

    @property
    def size(self) -> int:
        """How many codes there are, low..high."""
        return self.high - self.low + 1

    def value(self, code: int) -> Any:
        """What a method sees of a number that a state has."""
        return code

    def code(self, given: Any, place: str) -> int:
        """The number that stands for a value. Raises SpecificationError for one outside of the domain."""
        return fitting(place, (), self, given)

    def codes(self) -> Iterable[int]:
        """The codes of all values, in ascending order where values are integers."""
        return range(self.low, self.high + 1)

    def values(self) -> int:
        """How many values there are."""
        return self.size

    def mentioned(self) -> tuple[IndexSet, ...]:
        """The sets whose members its values name."""
        return () if self.of is None else (self.of,)

    def renamed(self, code: int, renaming: Renaming) -> int:
        new_names = renaming.get(self.of) if self.of is not None else None
        return new_names[code] if new_names is not None and code >= 0 else code

    def show(self, value: int) -> Any:
        if self.of is not None and value == NOBODY:
            return None
        if self.names == _TRUTH:
            return bool(value)
        return self.names[value - self.low] if self.names else value


@dataclass(frozen=True)
class Array:
    """A function from an index set to a domain, or to another array."""

    index: IndexSet
    of: Domain | Array


def integer(low: int, high: int) -> Domain:
    return Domain(low, high)


def boolean() -> Domain:
    return Domain(0, 1, _TRUTH)


def choice(members: type[IntEnum]) -> Domain:
    """The members of an IntEnum whose values are consecutive."""
    values = sorted(members)
    if [int(v) for v in values] != list(range(int(values[0]), int(values[0]) + len(values))):
        raise SpecificationError(f"{members.__name__}: the values of an enumeration must be consecutive")
    return Domain(int(values[0]), int(values[-1]), tuple(v.name.lower() for v in values))


def element(of: IndexSet, optional: bool = False) -> Domain:
    """An element of an index set; with `optional` also NOBODY (-1)."""
    return Domain(-1 if optional else 0, of.size - 1, of=of)


NOBODY = -1


class Schema:
    """The variables of a specification in order of declaration."""

    def __init__(self, variables: Mapping[str, Domain | Array]):
        self.variables = dict(variables)
        self.names = tuple(variables)
        self.kinds = tuple(variables.values())
        self.optional = tuple(name for name, kind in variables.items() if may_be_nobody(kind))
        """The variables that may hold NOBODY, or whose elements may."""
        self.position = {name: at for at, name in enumerate(self.names)}
        self.compounds: tuple[Domain | None, ...] = tuple(
            leaf if (leaf := leaf_of(kind)).is_compound else None for kind in self.kinds
        )
        """For each variable the domain of its values, or of its elements, if these are no integers."""

    def lowest(self) -> list[Value]:
        """Every variable at the low end of its domain: where the initial state starts from."""
        return [lowest(kind) for kind in self.kinds]

    def describe(self, state: StateTuple) -> dict[str, Any]:
        return {name: show(kind, value) for name, kind, value in zip(self.names, self.kinds, state, strict=True)}

    def show_place(self, state: StateTuple, place: tuple[Any, ...]) -> str:
        """One variable or element of an array, with its value: "at[1] = done"."""
        name, *path = place
        kind, value = self.kinds[self.position[name]], state[self.position[name]]
        for index in path:
            assert isinstance(kind, Array)
            assert isinstance(value, tuple)
            kind, value = kind.of, value[index]
        said = shown(show(kind, value))
        where = "".join(f"[{index}]" for index in path)
        return f"{name}{where} = {said}"

    def unknown(self, name: str) -> SpecificationError:
        near = get_close_matches(name, self.names, 1)
        return SpecificationError(f'unknown variable "{name}"' + (f'; did you mean "{near[0]}"?' if near else ""))


def leaf_of(kind: Domain | Array) -> Domain:
    """The domain of a variable, or of the elements of an array."""
    while isinstance(kind, Array):
        kind = kind.of
    return kind


def may_be_nobody(kind: Domain | Array) -> bool:
    leaf = leaf_of(kind)
    return leaf.of is not None and leaf.low == NOBODY


def lowest(kind: Domain | Array) -> Value:
    return kind.low if isinstance(kind, Domain) else (lowest(kind.of),) * kind.index.size


def values_of(kind: Domain | Array) -> int:
    """How many values a domain has, or arrays over it."""
    return kind.values() if isinstance(kind, Domain) else int(values_of(kind.of) ** kind.index.size)


def every_value(kind: Domain | Array) -> list[Value]:
    """All values of a domain, or all arrays over it, in ascending order."""
    if isinstance(kind, Domain):
        return list(kind.codes())
    return list(product(every_value(kind.of), repeat=kind.index.size))


def show(kind: Domain | Array, value: Value) -> Any:
    if isinstance(kind, Domain):
        assert isinstance(value, int)
        return kind.show(value)
    assert isinstance(value, tuple)
    return [show(kind.of, entry) for entry in value]


def shown(value: Any) -> str:
    """A described value as a report prints it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        marks = getattr(value, "marks", "[]")
        return marks[0] + ", ".join(shown(v) for v in value) + marks[1]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    return str(value)


class State:
    """What the methods of a specification see: variables as attributes, arrays by index."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotImplementedError


class Draft(State):
    """A state being read and assigned. With recording on it notes every place that is read or written.

    What only judges (a law, a predicate, a constraint) gets a draft that is not `writable`: to assign there is an
    error, for the text would say one thing when it is read and another when it is run.
    """

    __slots__ = ("_reads", "_schema", "_values", "_writable", "_writes")
    _schema: Schema
    _values: list[Value]
    _reads: set[Place] | None
    _writes: set[Place] | None
    _writable: bool

    def __init__(self, schema: Schema, values: StateTuple, recording: bool = False, writable: bool = True):
        put = object.__setattr__
        put(self, "_schema", schema)
        put(self, "_values", list(values))
        put(self, "_reads", set() if recording else None)
        put(self, "_writes", set() if recording else None)
        put(self, "_writable", writable)

    def __getattr__(self, name: str) -> Any:
        at = self._schema.position.get(name)
        if at is None:
            raise self._schema.unknown(name)
        value = self._values[at]
        if type(value) is tuple:
            return ArrayView(self, at, ())
        if self._reads is not None:
            self._reads.add((name,))
        compound = self._schema.compounds[at]
        return compound.value(value) if compound is not None and type(value) is int else value

    def __setattr__(self, name: str, value: Any) -> None:
        at = self._schema.position.get(name)
        if at is None:
            raise self._schema.unknown(name)
        kind = self._schema.kinds[at]
        if not self._writable:
            raise only_reads(name)
        if isinstance(kind, Array):
            raise SpecificationError(f"{name} is an array: assign its elements")
        self._values[at] = fitting(name, (), kind, value)
        if self._writes is not None:
            self._writes.add((name,))


class ArrayView(Sequence[Any]):
    """An array, or a row of one, inside a draft: a sequence, so that `match` takes it apart and `count` counts in
    it."""

    __slots__ = ("_at", "_draft", "_path")

    def __init__(self, draft: Draft, at: int, path: tuple[int, ...]):
        self._draft = draft
        self._at = at
        self._path = path

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Compares element by element, with any sequence."""
        if not isinstance(other, ArrayView | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it changes with its draft

    def _entries(self) -> tuple[Any, ...]:
        entries: Any = self._draft._values[self._at]
        for index in self._path:
            entries = entries[index]
        return entries  # type: ignore[no-any-return]

    def _checked(self, index: int, entries: tuple[Any, ...]) -> tuple[int, ...]:
        # Most are plain; to ask what else is a whole number takes longer than all the rest.
        whole = type(index) is int or isinstance(index, Integral)
        if not whole or not 0 <= index < len(entries):
            name = self._draft._schema.names[self._at]
            raise SpecificationError(f"{name}: index {index} is outside 0..{len(entries) - 1}")
        return (*self._path, int(index))

    def __getitem__(self, index: Any) -> Any:
        """An element; a list of them for a slice."""
        entries = self._entries()
        if type(index) is slice:
            return [self[at] for at in range(*index.indices(len(entries)))]
        path = self._checked(index, entries)
        value = entries[index]
        if type(value) is tuple:
            return ArrayView(self._draft, self._at, path)
        if self._draft._reads is not None:
            self._draft._reads.add((self._draft._schema.names[self._at], *path))
        compound = self._draft._schema.compounds[self._at]
        return value if compound is None else compound.value(value)

    def __setitem__(self, index: int, value: Any) -> None:
        path = self._checked(index, self._entries())
        draft = self._draft
        name, kind = draft._schema.names[self._at], draft._schema.kinds[self._at]
        if not draft._writable:
            raise only_reads(name)
        for _ in path:
            if isinstance(kind, Domain):
                raise SpecificationError(f"{name}: too many indices")
            kind = kind.of
        if isinstance(kind, Array):
            raise SpecificationError(f"{name}{list(path)} is an array: assign its elements")
        draft._values[self._at] = replaced(draft._values[self._at], path, fitting(name, path, kind, value))
        if draft._writes is not None:
            draft._writes.add((name, *path))


def replaced(entries: Any, path: tuple[int, ...], value: int) -> Any:
    """The nested tuple with the entry at `path` exchanged."""
    head, rest = path[0], path[1:]
    inner = replaced(entries[head], rest, value) if rest else value
    return (*entries[:head], inner, *entries[head + 1 :])


def fitting(name: str, path: tuple[int, ...], kind: Domain, value: Any) -> int:
    """The value as an integer of the domain. Raises SpecificationError for anything else, half a number included."""
    if kind.is_compound:
        return kind.code(value, name + "".join(f"[{i}]" for i in path))
    if type(value) is int and kind.low <= value <= kind.high:
        return value
    try:
        number = int(value)
        whole = number == value
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        place = name + "".join(f"[{i}]" for i in path)
        raise SpecificationError(f"{place}: {value!r} is no integer; its domain is {kind.low}..{kind.high}")
    if not kind.low <= number <= kind.high:
        place = name + "".join(f"[{i}]" for i in path)
        raise SpecificationError(
            f"{place}: {number} is outside its domain {kind.low}..{kind.high}; widen the domain, or guard the action"
        )
    return number


def only_reads(name: str) -> SpecificationError:
    return SpecificationError(
        f"{name}: assigned in a law or a predicate, which may only read the state; compare with == or use a local name"
    )


Renaming = dict[IndexSet, tuple[int, ...]]
"""For each set the new name of each member."""


def symmetric_sets(schema: Schema) -> list[IndexSet]:
    found: dict[IndexSet, None] = {}
    for kind in schema.kinds:
        for index in mentioned(kind):
            if index.symmetric:
                found[index] = None
    return list(found)


def mentioned(kind: Domain | Array) -> Iterator[IndexSet]:
    while isinstance(kind, Array):
        yield kind.index
        kind = kind.of
    yield from kind.mentioned()


def sorts_by_columns(schema: Schema) -> bool:
    """Whether each symmetric set is used only as the one index of one-dimensional arrays of plain values."""
    for kind in schema.kinds:
        if not any(index.symmetric for index in mentioned(kind)):
            continue
        if (
            not isinstance(kind, Array)
            or isinstance(kind.of, Array)
            or any(index.symmetric for index in kind.of.mentioned())
        ):
            return False
    return True


def canonical_state(schema: Schema, state: StateTuple) -> StateTuple:
    sets = symmetric_sets(schema)
    if not sets:
        return state
    if sorts_by_columns(schema):
        for index in sets:
            state = sorted_columns(schema, state, index)
        return state
    return min(renamed(schema, state, renaming) for renaming in renamings(sets))


def sorted_columns(schema: Schema, state: StateTuple, index: IndexSet) -> StateTuple:
    rows = [at for at, kind in enumerate(schema.kinds) if isinstance(kind, Array) and kind.index == index]
    columns = sorted(zip(*(entries_of(state[at]) for at in rows), strict=True))
    result = list(state)
    for at, row in zip(rows, zip(*columns, strict=True), strict=True):
        result[at] = row
    return tuple(result)


def entries_of(value: Value) -> tuple[Any, ...]:
    assert isinstance(value, tuple)
    return value


def renamings(sets: list[IndexSet]) -> Iterator[Renaming]:
    for choice in product(*(permutations(range(index.size)) for index in sets)):
        yield dict(zip(sets, choice, strict=True))


def renamed(schema: Schema, state: StateTuple, renaming: Renaming) -> StateTuple:
    return tuple(renamed_value(kind, value, renaming) for kind, value in zip(schema.kinds, state, strict=True))


def renamed_value(kind: Domain | Array, value: Value, renaming: Renaming) -> Value:
    if isinstance(kind, Domain):
        assert isinstance(value, int)
        return kind.renamed(value, renaming)
    entries = entries_of(value)
    images = [renamed_value(kind.of, entry, renaming) for entry in entries]
    moves = renaming.get(kind.index)
    if moves is None:
        return tuple(images)
    moved: list[Value] = [0] * len(images)
    for old, image in enumerate(images):
        moved[moves[old]] = image
    return tuple(moved)


def exchanged(value: int, member: int) -> int:
    """The name of a member after `member` and the next one have exchanged theirs."""
    return {member: member + 1, member + 1: member}.get(value, value)


def exchanged_footprint(
    schema: Schema, index: IndexSet, member: int, actors: Mapping[str, str], actor: str, places: frozenset[Place]
) -> tuple[str, frozenset[Place]]:
    return actors[actor], frozenset(_exchanged_place(schema, index, member, place) for place in places)


def _exchanged_place(schema: Schema, index: IndexSet, member: int, place: Place) -> Place:
    assert isinstance(place, tuple)
    name, *path = place
    kind, found = schema.variables[name], [name]
    for at in path:
        assert isinstance(kind, Array)
        found.append(exchanged(at, member) if kind.index == index else at)
        kind = kind.of
    return tuple(found)
