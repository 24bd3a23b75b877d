"""A set of distinct members."""

from __future__ import annotations

from typing import Any

from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.values.hash_order import add_in_hash_order, in_hash_order, remove_from_hash_order

Undo = list[tuple[Any, ...]]
FrozenSet = tuple[str, tuple[bytes, ...]]
"""Encoding; members in the order of SMEMBERS."""


class Set:
    """An intset (integers only) answers in numeric order, a hash table in hash order."""

    __slots__ = ("_order", "intset", "members")

    def __init__(self) -> None:
        self.members: set[bytes] = set()
        self.intset = True
        """Whether nothing but few integers was ever put in; once False it stays so."""
        self._order: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.members)

    @property
    def encoding(self) -> bytes:
        """As OBJECT ENCODING names it."""
        return b"intset" if self.intset else b"hashtable"

    def add(self, member: bytes, max_intset_entries: int, undo: Undo | None) -> bool:
        """Add ``member``; True if it is new. The set leaves the intset encoding when it must."""
        members = self.members
        if member in members:
            return False
        members.add(member)
        if undo is not None:
            undo.append((self._drop, member))
        if self.intset:
            self._order = None
            if len(members) > max_intset_entries or parse_integer(member) is None:
                self.intset = False
                if undo is not None:
                    undo.append((self._become_intset,))
        elif self._order is not None:
            add_in_hash_order(self._order, member)
        return True

    def discard(self, member: bytes, undo: Undo | None) -> bool:
        """Remove ``member``; True if it was there."""
        members = self.members
        if member not in members:
            return False
        members.remove(member)
        if undo is not None:
            undo.append((self._put_back, member))
        if self._order is not None:
            if self.intset:
                self._order.remove(member)
            else:
                remove_from_hash_order(self._order, member)
        return True

    def _drop(self, member: bytes) -> None:
        self.members.remove(member)
        self._order = None

    def _put_back(self, member: bytes) -> None:
        self.members.add(member)
        self._order = None

    def _become_intset(self) -> None:
        self.intset = True
        self._order = None

    def in_order(self) -> list[bytes]:
        """The members in the order of replies; not to be changed by the caller."""
        if self._order is None:
            self._order = sorted(self.members, key=int) if self.intset else in_hash_order(self.members)
        return self._order

    def freeze(self) -> FrozenSet:
        """The value as a hashable tuple, equal for equal sets and for no others."""
        return "intset" if self.intset else "hashtable", tuple(self.in_order())

    @classmethod
    def thaw(cls, frozen: FrozenSet) -> Set:
        """The set that ``freeze`` gave ``frozen`` for."""
        value = cls()
        value.intset = frozen[0] == "intset"
        value.members = set(frozen[1])
        return value

    @classmethod
    def of(cls, members: set[bytes], max_intset_entries: int) -> Set:
        """A new set of ``members`` (taken over, not copied) in the encoding that it asks for."""
        value = cls()
        value.members = members
        value.intset = len(members) <= max_intset_entries and all(
            parse_integer(member) is not None for member in members
        )
        return value

    def copy(self) -> Set:
        """An independent equal value."""
        value = Set()
        value.members = self.members.copy()
        value.intset = self.intset
        return value
