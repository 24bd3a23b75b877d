"""How a declarative state is packed into 63-bit words, so that a state is a row of a few integers.

The sign bit stays clear, which leaves -1 to mark free slots of the hash table. An array never straddles words in the
middle of an element; an array of at most 63 bits lies within one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.spec.variables import Array, Domain, Schema, StateTuple, Value

WORD_BITS = 63
WORDS_AT_MOST = 4096


@dataclass(frozen=True)
class Field:
    """Where a variable lives: element e is in word `word + e // per_word` at bit `shift + (e % per_word) * bits`."""

    name: str
    domain: Domain
    shape: tuple[int, ...]
    word: int
    shift: int
    bits: int
    per_word: int

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def place(self, at: int) -> tuple[int, int]:
        return self.word + at // self.per_word, self.shift + (at % self.per_word) * self.bits


@dataclass(frozen=True)
class Layout:
    fields: tuple[Field, ...]
    words: int

    @cached_property
    def _places(self) -> list[tuple[Field, list[tuple[int, int]], int, int]]:
        """For each field its places, its mask and its least value: thousands of states are packed and unpacked."""
        return [(f, [f.place(at) for at in range(f.elements)], (1 << f.bits) - 1, f.domain.low) for f in self.fields]

    @cached_property
    def has_compounds(self) -> bool:
        return any(field.domain.is_compound for field in self.fields)

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def pack(self, state: StateTuple) -> tuple[int, ...]:
        row = [0] * self.words
        for (_, places, _, low), value in zip(self._places, state, strict=True):
            for (word, shift), number in zip(places, flat(value), strict=True):
                row[word] |= (number - low) << shift
        return tuple(row)

    def unpack(self, row: NDArray[np.int64]) -> StateTuple:
        words = row.tolist()
        state: list[Value] = []
        for field, places, mask, low in self._places:
            numbers = [((words[word] >> shift) & mask) + low for word, shift in places]
            state.append(folded(numbers, field.shape))
        return tuple(state)


def layout_of(schema: Schema) -> Layout:
    """First fit, in order of declaration. A variable with one value still takes a bit.

    Raises NotCompilable for a variable that no word can hold, and for more of them than are worth a row.
    """
    room = [WORD_BITS]
    fields = []
    for name, kind in zip(schema.names, schema.kinds, strict=True):
        shape, domain = shape_of(kind)
        bits = max(1, (domain.high - domain.low).bit_length())
        elements = prod(shape)
        if bits > WORD_BITS or not -(1 << 62) <= domain.low <= domain.high <= 1 << 62:
            told = f"a value of {bits:,} bits" if domain.is_compound else f"{domain.low}..{domain.high}"
            raise NotCompilable(f"variable {name}: {told} does not fit into {WORD_BITS} bits")
        if elements * bits > WORD_BITS * WORDS_AT_MOST:
            raise NotCompilable(f"variable {name}: {elements:,} elements are too many for a packed state")
        if elements * bits <= WORD_BITS:
            word = next((w for w, free in enumerate(room) if free >= elements * bits), len(room))
            if word == len(room):
                room.append(WORD_BITS)
            fields.append(Field(name, domain, shape, word, WORD_BITS - room[word], bits, max(1, elements)))
            room[word] -= elements * bits
        else:
            per_word = WORD_BITS // bits
            fields.append(Field(name, domain, shape, len(room), 0, bits, per_word))
            room += [0] * -(-elements // per_word)
    return Layout(tuple(fields), len(room))


def shape_of(kind: Domain | Array) -> tuple[tuple[int, ...], Domain]:
    shape: tuple[int, ...] = ()
    while isinstance(kind, Array):
        shape += (kind.index.size,)
        kind = kind.of
    return shape, kind


def flat(value: Value) -> list[int]:
    if isinstance(value, int):
        return [value]
    if value and isinstance(value[0], int):
        return list(value)  # of one dimension
    return [number for entry in value for number in flat(entry)]


def folded(numbers: list[int], shape: tuple[int, ...]) -> Value:
    if not shape:
        return numbers[0]
    if len(shape) == 1:
        return tuple(numbers)
    step = len(numbers) // shape[0] if shape[0] else 0
    return tuple(folded(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
