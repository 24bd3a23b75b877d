"""The keyspace of one shard: values, deadlines, lazy expiry, and an undo journal for O(changes) snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.redis.replies import WRONG_TYPE, ErrorReply
from sim.redis.values import EncodingLimits, Value

Undo = list[tuple[Any, ...]]
"""Inverse steps, oldest first; each is ``(function, *arguments)``."""


class Keyspace:
    """Keys to values and deadlines. A string is plain ``bytes``; the other types are the classes of ``values``."""

    def __init__(self) -> None:
        self.data: dict[bytes, Value] = {}
        self.deadlines_ms: dict[bytes, int] = {}
        self.now_ms = 0
        self.dirty = 0
        """Changes made so far, counted as the server counts them (``server.dirty``)."""
        self.undo: Undo | None = None
        self.on_modified: Callable[[bytes], None] | None = None
        self.encoding_limits = EncodingLimits()
        self.random_state = 0
        """The stream of SPOP, SRANDMEMBER and the like (``random_draws``)."""
        self.resp = 2
        """The protocol that replies are made for: 2 or 3."""

    # -- reading -----------------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Value | None:
        """The live value at ``key``, or None. A key past its deadline is removed on the way (lazy expiry)."""
        deadline_ms = self.deadlines_ms.get(key)
        if deadline_ms is not None and self.now_ms > deadline_ms:
            self.expire(key)
            return None
        return self.data.get(key)

    def lookup_as(self, key: bytes, kind: type) -> Any:
        """The live value at ``key`` if it is of type ``kind``, None if there is none; else WRONGTYPE."""
        value = self.lookup(key)
        if value is not None and type(value) is not kind:
            raise ErrorReply(WRONG_TYPE)
        return value

    # -- writing: each primitive journals its own inverse --------------------------------------------------

    def install(self, key: bytes, value: Value) -> None:
        """Put ``value`` at ``key``; the deadline stays as it is."""
        if self.undo is not None:
            self.undo.append((self._put_back, key, self.data.get(key)))
        self.data[key] = value

    def remove(self, key: bytes) -> bool:
        """Remove ``key`` with its deadline. True if it was there."""
        value = self.data.pop(key, None)
        if value is None:
            return False
        deadline_ms = self.deadlines_ms.pop(key, None)
        if self.undo is not None:
            self.undo.append((self._put_back, key, value))
            if deadline_ms is not None:
                self.undo.append((self._put_back_deadline, key, deadline_ms))
        return True

    def set_deadline(self, key: bytes, deadline_ms: int | None) -> None:
        """Set, or with None clear, the absolute deadline of ``key`` (Unix time, ms)."""
        if self.undo is not None:
            self.undo.append((self._put_back_deadline, key, self.deadlines_ms.get(key)))
        if deadline_ms is None:
            self.deadlines_ms.pop(key, None)
        else:
            self.deadlines_ms[key] = deadline_ms

    def expire(self, key: bytes) -> None:
        """Remove a key whose deadline has passed."""
        self.remove(key)
        if self.on_modified is not None:
            self.on_modified(key)

    def modified(self, key: bytes, changes: int = 1) -> None:
        """Every command calls this for each key it changed: it counts towards ``dirty`` and breaks WATCH."""
        self.dirty += changes
        if self.on_modified is not None:
            self.on_modified(key)

    # -- snapshots -----------------------------------------------------------------------------------------

    def snapshot(self) -> int:
        """Begin, or go on, journaling; the mark returned goes to ``rollback``."""
        if self.undo is None:
            self.undo = []
        return len(self.undo)

    def rollback(self, mark: int) -> None:
        """Undo every change since ``mark``, newest first: O(changes), whatever the size of the keyspace."""
        undo = self.undo
        assert undo is not None, "rollback without a snapshot"
        self.undo = None
        try:
            while len(undo) > mark:
                function, *arguments = undo.pop()
                function(*arguments)
        finally:
            self.undo = undo

    def forget_snapshots(self) -> None:
        """Stop journaling: the changes made so far stay."""
        self.undo = None

    def _put_back(self, key: bytes, value: Value | None) -> None:
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value

    def _put_back_deadline(self, key: bytes, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            self.deadlines_ms.pop(key, None)
        else:
            self.deadlines_ms[key] = deadline_ms
