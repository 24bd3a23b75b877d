"""Symmetry: one representative for all states that differ only by renaming the members of symmetric index sets.

Where every symmetric set only indexes arrays of plain values, sorting its columns gives the representative in one
pass. Otherwise (values that name members, arrays indexed twice) the least image under all permutations is taken:
exact, at a cost of size! per set. Sound when initial states, actions and laws do not tell the members apart, which a
specification ensures by using only equality and quantification over a symmetric set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from orderlab.model.spec.variables import Array, Domain, IndexSet, Schema, StateTuple, Value

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
    if kind.of is not None:
        yield kind.of


def sorts_by_columns(schema: Schema) -> bool:
    """Whether each symmetric set is used only as the one index of one-dimensional arrays of plain values."""
    for kind in schema.kinds:
        if not any(index.symmetric for index in mentioned(kind)):
            continue
        if not isinstance(kind, Array) or isinstance(kind.of, Array) or kind.of.of is not None:
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
        new_names = renaming.get(kind.of) if kind.of is not None else None
        return new_names[value] if new_names is not None and value >= 0 else value
    entries = entries_of(value)
    images = [renamed_value(kind.of, entry, renaming) for entry in entries]
    moves = renaming.get(kind.index)
    if moves is None:
        return tuple(images)
    moved: list[Value] = [0] * len(images)
    for old, image in enumerate(images):
        moved[moves[old]] = image
    return tuple(moved)
