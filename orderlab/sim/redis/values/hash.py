"""A hash: fields to values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orderlab.sim.redis.values.hash_order import add_in_hash_order, in_hash_order, remove_from_hash_order

Undo = list[tuple[Any, ...]]
FrozenHash = tuple[str, tuple[tuple[bytes, bytes], ...]]
"""Encoding; (field, value) in the order of HGETALL."""


class Hash:
    """While it is a listpack, ``fields`` keeps the order of insertion, as the server does, and replies show it.
    As a hash table it answers in hash order, and the order of the dictionary means nothing."""

    __slots__ = ("fields", "hash_order", "hashtable")

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.hashtable = False
        """Whether it has outgrown the listpack encoding; never goes back."""
        self.hash_order: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def encoding(self) -> bytes:
        """As OBJECT ENCODING names it."""
        return b"hashtable" if self.hashtable else b"listpack"

    def put(self, field: bytes, value: bytes, undo: Undo | None) -> bool:
        """Set a field; True if it is new."""
        fields = self.fields
        old = fields.get(field)
        if undo is not None:
            undo.append((self._drop, field) if old is None else (self.put, field, old, None))
        fields[field] = value
        if old is not None:
            return False
        if self.hash_order is not None:
            add_in_hash_order(self.hash_order, field)
        return True

    def remove(self, fields: Iterable[bytes], undo: Undo | None) -> int:
        """Remove those of ``fields`` that are there; how many."""
        mine = self.fields
        removed = {field: mine[field] for field in fields if field in mine}
        if not removed:
            return 0
        if undo is not None:
            # A listpack is small, and its order of insertion must come back too.
            undo.append((self._put_back, removed) if self.hashtable else (setattr, self, "fields", mine.copy()))
        for field in removed:
            del mine[field]
            if self.hash_order is not None:
                remove_from_hash_order(self.hash_order, field)
        return len(removed)

    def become_hashtable(self, undo: Undo | None) -> None:
        """Leave the listpack encoding."""
        if undo is not None:
            undo.append((self._become_listpack, list(self.fields)))
        self.hashtable = True

    def _drop(self, field: bytes) -> None:
        del self.fields[field]
        self.hash_order = None

    def _put_back(self, removed: dict[bytes, bytes]) -> None:
        self.fields.update(removed)
        self.hash_order = None

    def _become_listpack(self, order: list[bytes]) -> None:
        self.fields = {field: self.fields[field] for field in order}  # deletions since may have lost the order
        self.hashtable = False
        self.hash_order = None

    def in_order(self) -> list[bytes]:
        """The fields in the order of replies; not to be changed by the caller."""
        if not self.hashtable:
            return list(self.fields)
        if self.hash_order is None:
            self.hash_order = in_hash_order(self.fields)
        return self.hash_order

    def freeze(self) -> FrozenHash:
        """The value as a hashable tuple: equal values answer every command equally."""
        if not self.hashtable:
            return "listpack", tuple(self.fields.items())
        return "hashtable", tuple((field, self.fields[field]) for field in self.in_order())

    @classmethod
    def thaw(cls, frozen: FrozenHash) -> Hash:
        """The hash that ``freeze`` gave ``frozen`` for."""
        value = cls()
        value.hashtable = frozen[0] == "hashtable"
        value.fields = dict(frozen[1])
        return value

    def copy(self) -> Hash:
        """An independent equal value."""
        value = Hash()
        value.fields = self.fields.copy()
        value.hashtable = self.hashtable
        return value
