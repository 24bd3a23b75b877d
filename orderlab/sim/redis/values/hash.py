"""A hash: fields to values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orderlab.sim.redis.values.hash_order import add_in_hash_order, in_hash_order, remove_from_hash_order

Undo = list[tuple[Any, ...]]
FrozenHash = tuple[Any, ...]
"""Encoding; (field, value) in the order of HGETALL; where fields have deadlines, (field, deadline) in order."""


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
            undo.append((self._drop, field) if old is None else (self._put_old, field, old))
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

    def _put_old(self, field: bytes, value: bytes) -> None:
        self.fields[field] = value

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
        value = Hash() if len(frozen) == 2 else ExpiringHash(dict(frozen[2]))
        value.hashtable = frozen[0] == "hashtable"
        value.fields = dict(frozen[1])
        return value

    def copy(self) -> Hash:
        """An independent equal value."""
        value = Hash()
        value.fields = self.fields.copy()
        value.hashtable = self.hashtable
        return value


class ExpiringHash(Hash):
    """A hash of which a field has had a deadline of its own (Redis 7.4). As a listpack it is in the order of its
    deadlines; fields without one stand behind. Who looks it up has what has lapsed removed (``Keyspace.lookup_as``)."""

    __slots__ = ("deadlines_ms",)

    def __init__(self, deadlines_ms: dict[bytes, int] | None = None) -> None:
        super().__init__()
        self.deadlines_ms: dict[bytes, int] = {} if deadlines_ms is None else deadlines_ms
        """Absolute Unix times. A field is past its deadline when the clock shows more."""

    @classmethod
    def of(cls, value: Hash) -> ExpiringHash:
        """The same fields, none with a deadline."""
        expiring = cls()
        expiring.fields, expiring.hashtable = value.fields.copy(), value.hashtable
        return expiring

    @property
    def encoding(self) -> bytes:
        """As OBJECT ENCODING names it."""
        return b"hashtable" if self.hashtable else b"listpackex"

    def put(self, field: bytes, value: bytes, undo: Undo | None) -> bool:
        """Set a field, and forget its deadline; True if it is new."""
        if field in self.deadlines_ms:
            self.set_deadline(field, None, undo)
        return super().put(field, value, undo)

    def put_only(self, field: bytes, value: bytes, undo: Undo | None) -> bool:
        """Set a field whose deadline stays."""
        return super().put(field, value, undo)

    def remove(self, fields: Iterable[bytes], undo: Undo | None) -> int:
        """Remove those of ``fields`` that are there; how many."""
        given = list(fields)
        lost = {field: self.deadlines_ms[field] for field in given if field in self.deadlines_ms}
        removed = super().remove(given, undo)
        if lost:
            if undo is not None:
                undo.append((self.deadlines_ms.update, lost))
            for field in lost:
                del self.deadlines_ms[field]
        return removed

    def set_deadline(self, field: bytes, deadline_ms: int | None, undo: Undo | None) -> None:
        """Set, or with None clear, the deadline of a field that is there."""
        if undo is not None:
            undo.append((self._restore, self.fields.copy(), self.deadlines_ms.copy()))
        self.deadlines_ms.pop(field, None)
        value = self.fields.pop(field)
        if deadline_ms is None:
            self.fields[field] = value
            return
        self.deadlines_ms[field] = deadline_ms
        order = list(self.fields)
        deadlines_ms = self.deadlines_ms
        at = sum(1 for other in order if other in deadlines_ms and deadlines_ms[other] < deadline_ms)
        order.insert(at, field)
        self.fields[field] = value
        self.fields = {name: self.fields[name] for name in order}

    def _restore(self, fields: dict[bytes, bytes], deadlines_ms: dict[bytes, int]) -> None:
        self.fields, self.deadlines_ms = fields, deadlines_ms

    def lapsed(self, now_ms: int) -> list[bytes]:
        """The fields that are past their deadline."""
        return [field for field, deadline_ms in self.deadlines_ms.items() if now_ms > deadline_ms]

    def freeze(self) -> FrozenHash:
        """As ``Hash.freeze``, with the deadlines if there are any."""
        plain = super().freeze()
        return (*plain, tuple(sorted(self.deadlines_ms.items()))) if self.deadlines_ms else plain

    def freeze_at(self, now_ms: int) -> FrozenHash | None:
        """The same without what has lapsed; None if nothing else is there."""
        lapsed = self.lapsed(now_ms)
        if not lapsed:
            return self.freeze()
        rest = self.copy()
        rest.remove(lapsed, None)
        return rest.freeze() if rest.fields else None

    def copy(self) -> ExpiringHash:
        """An independent equal value."""
        value = ExpiringHash.of(self)
        value.deadlines_ms = self.deadlines_ms.copy()
        return value
