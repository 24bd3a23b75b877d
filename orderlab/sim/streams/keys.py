"""Keys of messages: generation, time bucket, topic index, time in the bucket, sequence number; and which indices a
filter selects.

`<generation 2><epoch 4><index 8><offset 4><sequence 8>`, bytes, big-endian, so that keys sort as the numbers do. Topics
are adjacent within a bucket and times within a topic. The epoch is the time shifted right by ``offset_bits``, the
offset what is left of it: an instant has one place, and buckets meet without gap. The sequence number is what the
published format lacks: it makes keys differ (two messages of a topic in one tick) and orders them as they were stored.

A topic index is 64 bits, of hashes of the topic's levels, brought together by ``combine``; a filter is a mask over them
with the bits of wildcard levels clear (`Query`). Hashes collide: the index only says what need not be looked at, and
the topic itself decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Literal, NamedTuple

from orderlab.model.errors import InputError

INDEX_BITS = 64
PATTERN_BITS = 24
VARYING_BITS = INDEX_BITS - PATTERN_BITS
KEY = Struct(">HIQIQ")
SIZE = KEY.size
Combine = Literal["shift", "z-order"]
Padding = Literal["slash", "empty"]


class Key(NamedTuple):
    """The parts of a key, in the order in which they sort."""

    generation: int
    epoch: int
    topic_index: int
    offset: int
    sequence: int

    def packed(self) -> bytes:
        return KEY.pack(*self)


def unpacked(key: bytes) -> Key:
    return Key(*KEY.unpack(key))


@lru_cache(maxsize=1 << 16)
def level_hash(level: str, bits: int) -> int:
    """The same in every process, unlike Python's own hash."""
    return int.from_bytes(blake2b(level.encode(), digest_size=8).digest(), "big") >> (64 - bits)


class Query(NamedTuple):
    """Selects the indices for which ``index & mask == wanted``."""

    wanted: int
    mask: int


def next_selected(index: int, query: Query) -> int | None:
    """The least index that is not less than ``index`` and is selected; None past the last.

    The free bits count like a number of their own. Where the fixed bits of ``index`` are wrong, the highest wrong one
    decides: if it is too low, everything below it starts anew; if it is too high, the free bits above it must first
    grow by one.
    """
    wanted, mask = query
    wrong = (index ^ wanted) & mask
    if not wrong:
        return index
    highest = 1 << (wrong.bit_length() - 1)
    free = ~mask & ((1 << INDEX_BITS) - 1)
    if index & highest:
        below = 2 * highest - 1
        grown = (index | mask | below) + 1  # ones in the fixed bits let the carry through
        return None if grown >> INDEX_BITS else (grown & free & ~below) | wanted
    return (index & free & ~(highest - 1)) | wanted


class Selection:
    """The indices that one of several queries selects; ``queries`` go from the least pattern to the greatest, one of
    each."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = queries
        self._patterns = [query.wanted >> VARYING_BITS for query in queries]

    def next(self, index: int) -> int | None:
        """The least index that is not less than ``index`` and is selected; None past the last."""
        queries = self.queries
        if len(queries) == 1:
            return next_selected(index, queries[0])
        place = bisect_left(self._patterns, index >> VARYING_BITS)
        if place < len(queries) and self._patterns[place] == index >> VARYING_BITS:
            if (found := next_selected(index, queries[place])) is not None:
                return found
            place += 1  # past the last of its pattern
        return queries[place].wanted if place < len(queries) else None


@dataclass(frozen=True)
class HashedLevels:
    """The published schema: ``levels`` levels of equal width, deeper ones joined with "/" into the last, missing ones
    padded.

    ``combine``: "shift" puts the first level into the highest bits; "z-order" takes a bit of each level in turn.
    ``padding``: "slash", which no level can be, or "empty", which a level can be, so that ``a`` and ``a/`` share an
    index: slower to replay, not wrong.
    """

    levels: int = 4
    combine: Combine = "shift"
    padding: Padding = "slash"

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= INDEX_BITS:
            raise InputError(f"levels: {self.levels}; choose 1 to {INDEX_BITS}, each takes at least a bit of the index")

    def index(self, topic: str) -> int:
        """The index of a topic."""
        return self._combined([level_hash(level, self.width) for level in self._cut(topic.split("/"))])

    def queries(self, topic_filter: str) -> list[Query]:
        """The one query that selects all topics of the filter."""
        return [self.query(topic_filter)]

    def selection(self, topic_filter: str) -> Selection:
        """The indices that replay of the filter looks at."""
        return Selection(self.queries(topic_filter))

    def query(self, topic_filter: str) -> Query:
        """What the indices of all topics that the filter selects have in common."""
        levels = topic_filter.split("/")
        fixed: list[int | None]
        if levels[-1] == "#":
            # "a/#" selects "a" too, so that nothing may be said of the level where "#" stands, nor of a joined one
            # before it
            kept = levels[:-1][: self.levels - 1] if len(levels) > self.levels else levels[:-1]
            fixed = [None if level == "+" else level_hash(level, self.width) for level in kept]
            fixed += [None] * (self.levels - len(fixed))
        else:
            cut = self._cut(levels)
            is_joined = len(levels) > self.levels
            fixed = [None if level == "+" else level_hash(level, self.width) for level in cut]
            if is_joined and "+" in levels[self.levels - 1 :]:
                fixed[-1] = None
        ones = (1 << self.width) - 1
        mask = self._combined([0 if one is None else ones for one in fixed])
        return Query(self._combined([one or 0 for one in fixed]), mask)

    @property
    def width(self) -> int:
        """Bits of each level."""
        return INDEX_BITS // self.levels

    def _cut(self, levels: Sequence[str]) -> list[str]:
        cut = (
            [*levels[: self.levels - 1], "/".join(levels[self.levels - 1 :])]
            if len(levels) > self.levels
            else [*levels]
        )
        return cut + ["/" if self.padding == "slash" else ""] * (self.levels - len(cut))

    def _combined(self, hashes: Sequence[int]) -> int:
        index = 0
        if self.combine == "shift":
            for one in hashes:
                index = index << self.width | one
            return index
        for bit in reversed(range(self.width)):
            for one in hashes:
                index = index << 1 | (one >> bit & 1)
        return index


@dataclass(frozen=True)
class TimeBuckets:
    """How an instant becomes epoch and offset."""

    offset_bits: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.offset_bits <= 32:
            raise InputError(f"offset_bits: {self.offset_bits}; choose 0 to 32")

    def split(self, time: int) -> tuple[int, int]:
        """(epoch, offset). Raises InputError for what does not fit: a key that wraps around would sort before older
        ones."""
        epoch, offset = time >> self.offset_bits, time & ((1 << self.offset_bits) - 1)
        if not 0 <= epoch < 1 << 32:
            raise InputError(
                f"time {time}: outside 0..{(1 << 32 + self.offset_bits) - 1}; use coarser ticks or more offset_bits"
            )
        return epoch, offset

    def joined(self, epoch: int, offset: int) -> int:
        """The instant as one number, of its epoch and offset."""
        return epoch << self.offset_bits | offset


FILTERS_KEPT = 1024
"""Filters whose selections are kept."""
Pattern = tuple[str, ...]
"""Levels of a learned topic pattern; "+", which no level of a topic can be, where they vary."""


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node]
    pattern: int | None = None


class LearnedPatterns:
    """Topics by the pattern of their structure, learned as they come: the index is the pattern's number, then hashes of
    the levels that vary.

    A node with ``threshold`` children gets an edge "+" for all names that it does not know yet. The names that it knows
    keep their edges, for what a topic's index is must not change within a generation: with ``plus_first`` (a specimen)
    the newer edge wins, and a topic's later messages go to another stream than its earlier ones. Patterns are only
    added. Those that are given, of an older generation or of a store that is opened again, are taken as they are,
    whatever the threshold: each keeps its number.
    """

    def __init__(self, threshold: int = 16, patterns: Sequence[Pattern] = (), plus_first: bool = False) -> None:
        if threshold < 1:
            raise InputError(f"threshold: {threshold}; choose 1 or more children before a level is said to vary")
        self.threshold, self.plus_first = threshold, plus_first
        self.patterns: list[Pattern] = []
        self._root = _Node({})
        self._indices: dict[str, int] = {}
        self._selections: dict[str, tuple[int, Selection]] = {}
        """By filter: how many patterns were looked at, and what it selects of them."""
        for pattern in patterns:
            node = self._root
            for edge in pattern:
                node = node.children.setdefault(edge, _Node({}))
            self._pattern_at(node, tuple(pattern))

    def index(self, topic: str) -> int:
        """The index of a topic; learns it if it is new."""
        found = self._indices.get(topic)
        if found is None or self.plus_first:
            levels = topic.split("/")
            node, pattern = self._walked(levels)
            number = node.pattern if node.pattern is not None else self._pattern_at(node, pattern)
            varying = [level for level, edge in zip(levels, pattern, strict=True) if edge == "+"][:VARYING_BITS]
            width = _width(len(varying))
            found = number << VARYING_BITS | _placed([level_hash(level, width) for level in varying], width)
            self._indices[topic] = found
        return found

    def queries(self, topic_filter: str) -> list[Query]:
        """A query for each pattern that has topics which the filter may select."""
        return list(self.selection(topic_filter).queries)

    def selection(self, topic_filter: str) -> Selection:
        """The indices that replay of the filter looks at."""
        looked, kept = self._selections.get(topic_filter) or (0, Selection(()))
        if looked == len(self.patterns):
            return kept
        found, wanted_levels = [*kept.queries], topic_filter.split("/")
        for number, pattern in enumerate(self.patterns[looked:], looked):
            varying = self._varying(pattern, wanted_levels)
            if varying is not None:
                width = _width(len(varying))
                wanted = _placed(
                    [0 if level == "+" else level_hash(level, width) for level in varying[:VARYING_BITS]], width
                )
                mask = _placed([0 if level == "+" else (1 << width) - 1 for level in varying[:VARYING_BITS]], width)
                every = ((1 << PATTERN_BITS) - 1) << VARYING_BITS
                found.append(Query(number << VARYING_BITS | wanted, every | mask))
        if len(self._selections) >= FILTERS_KEPT:
            self._selections.clear()
        self._selections[topic_filter] = len(self.patterns), (selection := Selection(found))
        return selection

    def _walked(self, levels: Sequence[str]) -> tuple[_Node, Pattern]:
        node, edges = self._root, []
        for level in levels:
            children = node.children
            edge = level
            if level not in children or (self.plus_first and "+" in children):
                if "+" in children or len(children) >= self.threshold:
                    edge = "+"
                if edge not in children:
                    children[edge] = _Node({})
            node = children[edge]
            edges.append(edge)
        return node, tuple(edges)

    def _pattern_at(self, node: _Node, pattern: Pattern) -> int:
        if node.pattern is None:
            if len(self.patterns) >> PATTERN_BITS:
                raise InputError(
                    f"{len(self.patterns)} topic patterns: no number is left; start a generation with a lower threshold"
                )
            node.pattern = len(self.patterns)
            self.patterns.append(pattern)
        return node.pattern

    @staticmethod
    def _varying(pattern: Pattern, wanted: Sequence[str]) -> list[str] | None:
        """What the filter wants of the levels that vary ("+" for anything); None if it selects no topic of the
        pattern."""
        is_open = wanted[-1] == "#"
        fixed = wanted[:-1] if is_open else wanted
        if len(pattern) < len(fixed) or (not is_open and len(pattern) > len(fixed)):
            return None
        found = []
        for edge, level in zip(pattern, [*fixed, *["+"] * (len(pattern) - len(fixed))], strict=True):
            if edge == "+":
                found.append(level)
            elif level not in ("+", edge):
                return None
        return found


def _width(count: int) -> int:
    """Bits of each level that varies; of more than have a bit the last are left to the look at the topic."""
    return VARYING_BITS // min(max(count, 1), VARYING_BITS)


def _placed(levels: Sequence[int], width: int) -> int:
    """Levels that vary, the first in the highest bits."""
    bits = 0
    for level in levels:
        bits = bits << width | level
    return bits << VARYING_BITS - width * len(levels)
