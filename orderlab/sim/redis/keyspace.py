"""The keyspace of one shard: values, deadlines, lazy expiry, and an undo journal for O(changes) snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from orderlab.sim.redis.replies import WRONG_TYPE, ErrorReply
from orderlab.sim.redis.values import EncodingLimits, Hash, List, Set, SortedSet, Value

if TYPE_CHECKING:
    from orderlab.sim.redis.eviction import KeyUse
    from orderlab.sim.redis.memory import MemoryAccount

Undo = list[tuple[Any, ...]]
"""Inverse steps, oldest first; each is ``(function, *arguments)``."""

FrozenKeyspace = dict[bytes, tuple[str, Any, int | None]]
"""key -> (type name as TYPE says, frozen value, deadline in ms or None): plain hashable values inside."""

TYPE_NAMES: dict[type, str] = {bytes: "string", SortedSet: "zset", Hash: "hash", List: "list", Set: "set"}
TYPES: dict[str, Any] = {name: kind for kind, name in TYPE_NAMES.items()}


class Keyspace:
    """Keys to values and deadlines. A string is plain ``bytes``; the other types are the classes of ``values``."""

    def __init__(self) -> None:
        self.data: dict[bytes, Value] = {}
        self.deadlines_ms: dict[bytes, int] = {}
        """Absolute Unix times. A key is past its deadline when the clock shows *more* (``keyIsExpired``)."""
        self.string_encodings: dict[bytes, bytes] = {}
        """Strings whose encoding is not the one that SET would choose: ``raw`` after APPEND, ``embstr`` after
        INCRBYFLOAT. OBJECT ENCODING alone shows it; ``freeze`` leaves it out."""
        self.now_ms = 0
        self.dirty = 0
        """Changes made so far, counted as the server counts them (``server.dirty``)."""
        self.expired_keys = 0
        """Keys removed because their deadline had passed (``INFO stats``)."""
        self.undo: Undo | None = None
        self.on_modified: Callable[[bytes], None] | None = None
        """Told each key that a command changes."""
        self.on_vanished: Callable[[bytes], None] | None = None
        """Told each key that expires or is evicted."""
        self.access: KeyUse | None = None
        """Who was used when: kept while there is a ``maxmemory``."""
        self.memory: MemoryAccount | None = None
        """The estimate of used memory: kept from the first time it is asked for."""
        self.sees_expired = False
        """While the stream of a master is carried out: to it, a key lives until it says otherwise."""
        self.encoding_limits = EncodingLimits()
        self.random_state = 0
        """The stream of SPOP, SRANDMEMBER and the like (``random_draws``)."""
        self.resp = 2
        """The protocol that replies are made for: 2 or 3."""

    @property
    def removes_expired(self) -> bool:
        """False on a replica: it hides keys past their deadline and waits for its master to delete them."""
        return True

    # -- reading -----------------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Value | None:
        """The live value at ``key``, or None. A key past its deadline is removed on the way (lazy expiry)."""
        deadline_ms = self.deadlines_ms.get(key)
        if deadline_ms is not None and self.now_ms > deadline_ms and not self.sees_expired:
            self.expire(key)
            return None
        value = self.data.get(key)
        if self.access is not None and value is not None:
            self.access.touch(key)
        return value

    def peek(self, key: bytes) -> Value | None:
        """Like ``lookup``, but does not count as a use of the key (TYPE, TTL, OBJECT, ...)."""
        deadline_ms = self.deadlines_ms.get(key)
        if deadline_ms is not None and self.now_ms > deadline_ms and not self.sees_expired:
            self.expire(key)
            return None
        return self.data.get(key)

    def lookup_as(self, key: bytes, kind: type) -> Any:
        """The live value at ``key`` if it is of type ``kind``, None if there is none; else WRONGTYPE."""
        plain = self.access is None and key not in self.deadlines_ms
        value = self.data.get(key) if plain else self.lookup(key)
        if type(value) is kind or value is None:
            return value
        raise ErrorReply(WRONG_TYPE)

    def is_expired(self, key: bytes) -> bool:
        """Whether ``key`` has a deadline that has passed."""
        deadline_ms = self.deadlines_ms.get(key)
        return deadline_ms is not None and self.now_ms > deadline_ms and not self.sees_expired

    def live_keys(self) -> list[bytes]:
        """Every key that is not past its deadline, in no meaningful order."""
        now_ms, deadlines_ms = self.now_ms, self.deadlines_ms
        if not deadlines_ms:
            return list(self.data)
        return [key for key in self.data if deadlines_ms.get(key, now_ms) >= now_ms]

    # -- writing: each primitive journals its own inverse --------------------------------------------------

    def install(self, key: bytes, value: Value) -> None:
        """Put ``value`` at ``key``; the deadline stays as it is."""
        if self.undo is not None:
            self.undo.append((self._put_back, key, self.data.get(key)))
        self.data[key] = value
        if self.string_encodings:
            self.set_string_encoding(key, None)
        if self.access is not None:
            self.access.admit(key)

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
        if self.string_encodings:
            self.set_string_encoding(key, None)
        if self.access is not None:
            self.access.drop(key)
        return True

    def set_deadline(self, key: bytes, deadline_ms: int | None) -> None:
        """Set, or with None clear, the absolute deadline of ``key`` (Unix time, ms)."""
        if self.undo is not None:
            self.undo.append((self._put_back_deadline, key, self.deadlines_ms.get(key)))
        self._put_back_deadline(key, deadline_ms)

    def set_string_encoding(self, key: bytes, encoding: bytes | None) -> None:
        """Note that the string at ``key`` has an encoding of its own; None: the one that SET chooses."""
        old = self.string_encodings.get(key)
        if old is encoding:
            return
        if self.undo is not None:
            self.undo.append((self.set_string_encoding, key, old))
        if encoding is None:
            del self.string_encodings[key]
        else:
            self.string_encodings[key] = encoding

    def expire(self, key: bytes) -> None:
        """Remove a key whose deadline has passed; a replica only hides it."""
        if not self.removes_expired:
            return
        if self.remove(key):
            self.expired_keys += 1
            if self.on_vanished is not None:
                self.on_vanished(key)

    def clear(self) -> None:
        """Remove every key; O(1) to do and to undo."""
        self._swap_in({}, {}, {})

    def modified(self, key: bytes, changes: int = 1) -> None:
        """Every command calls this for each key it changed: it counts towards ``dirty`` and breaks WATCH."""
        self.dirty += changes
        if self.on_modified is not None:
            self.on_modified(key)

    # -- whole states --------------------------------------------------------------------------------------

    def freeze(self, keys: Iterable[bytes] | None = None) -> FrozenKeyspace:
        """The live keys (those of ``keys`` that live, if given) as plain hashable values; equal keyspaces freeze
        equally and answer every command equally, but for OBJECT ENCODING of strings and access times."""
        data, deadlines_ms, now_ms = self.data, self.deadlines_ms, self.now_ms
        frozen: FrozenKeyspace = {}
        for key in sorted(data) if keys is None else keys:
            value = data.get(key)
            deadline_ms = deadlines_ms.get(key)
            if value is None or (deadline_ms is not None and now_ms > deadline_ms):
                continue
            if type(value) is bytes:
                frozen[key] = ("string", value, deadline_ms)
            else:
                frozen[key] = (TYPE_NAMES[type(value)], value.freeze(), deadline_ms)  # type: ignore[union-attr]
        return frozen

    def load(self, frozen: FrozenKeyspace) -> None:
        """Replace every key by those of ``frozen``. Can be rolled back like any other change."""
        data: dict[bytes, Value] = {}
        deadlines_ms: dict[bytes, int] = {}
        for key, (kind, value, deadline_ms) in frozen.items():
            data[key] = value if kind == "string" else TYPES[kind].thaw(value)
            if deadline_ms is not None:
                deadlines_ms[key] = deadline_ms
        self._swap_in(data, deadlines_ms, {})

    def patch(self, frozen: FrozenKeyspace, removed: Iterable[bytes] = ()) -> None:
        """Put the keys of ``frozen`` in place of what they hold now, and take ``removed`` away; the rest stays."""
        for key in removed:
            self.remove(key)
        for key, (kind, value, deadline_ms) in frozen.items():
            self.install(key, value if kind == "string" else TYPES[kind].thaw(value))
            if deadline_ms is not None or key in self.deadlines_ms:
                self.set_deadline(key, deadline_ms)

    def snapshot(self) -> int:
        """Begin, or go on, journaling; the mark returned goes to ``rollback``."""
        if self.undo is None:
            self.undo = []
        return len(self.undo)

    def rollback(self, mark: int) -> None:
        """Undo every change since ``mark``, newest first: O(changes), whatever the size of the keyspace.

        The clock, the counters of INFO, access times and what WATCH has seen are no part of a snapshot and stay.
        """
        undo = self.undo
        assert undo is not None, "rollback without a snapshot"
        assert mark <= len(undo), "this snapshot was rolled back before"
        self.undo = None
        try:
            while len(undo) > mark:
                function, *arguments = undo.pop()
                function(*arguments)
        finally:
            self.undo = undo
            self._recount()

    def forget_snapshots(self) -> None:
        """Stop journaling: the changes made so far stay."""
        self.undo = None

    def _swap_in(self, data: dict[bytes, Value], deadlines_ms: dict[bytes, int], encodings: dict[bytes, bytes]) -> None:
        if self.undo is not None:
            self.undo.append((self._swap_in, self.data, self.deadlines_ms, self.string_encodings))
        self.data, self.deadlines_ms, self.string_encodings = data, deadlines_ms, encodings
        self._recount()

    def _recount(self) -> None:
        """Anything may have changed, and no command did it."""
        if self.memory is not None:
            self.memory.forget_all()
        if self.access is not None:
            self.access.reset()

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
        if self.access is not None:
            self.access.note_deadline(key, deadline_ms is not None)
