"""The keyspace of one shard: values, deadlines, lazy and active expiry, and an undo journal for O(changes)
snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from orderlab.sim.redis.database import AccountsForMemory, Database, DatabaseKey, KeyUse, name_in, place_of
from orderlab.sim.redis.replies import WRONG_TYPE, ErrorReply
from orderlab.sim.redis.values import EncodingLimits, ExpiringHash, Hash, List, Set, SortedSet, Stream, Value

Undo = list[tuple[Any, ...]]
"""Inverse steps, oldest first; each is ``(function, *arguments)``."""

FrozenKeyspace = dict[bytes, tuple[str, Any, int | None]]
"""key -> (type name as TYPE says, frozen value, deadline in ms or None): plain hashable values inside. A key of another
database than 0 is a ``DatabaseKey``."""

TYPE_NAMES: dict[type, str] = {
    bytes: "string",
    SortedSet: "zset",
    ExpiringHash: "hash",
    Hash: "hash",
    List: "list",
    Set: "set",
    Stream: "stream",
}
WAITED_FOR: frozenset[type] = frozenset((List, SortedSet, Stream))
"""Types that clients can wait for."""
TYPES: dict[str, Any] = {name: kind for kind, name in TYPE_NAMES.items()}


class Keyspace:
    """Keys to values and deadlines. A string is plain ``bytes``; the other types are the classes of ``values``.

    One database is selected, 0 between commands: ``data``, ``deadlines_ms``, ``string_encodings`` and ``access`` are
    its own, and so each command works on the database of its client without knowing of others. Selecting is a step of
    the undo journal.
    """

    def __init__(self) -> None:
        self.database = 0
        """The selected one."""
        self._others: dict[int, Database] = {}
        """Those that were selected before, by index."""
        self.data: dict[bytes, Value] = {}
        self.deadlines_ms: dict[bytes, int] = {}
        """Absolute Unix times. A key is past its deadline when the clock shows *more* (``keyIsExpired``)."""
        self.string_encodings: dict[bytes, bytes] = {}
        """Strings whose encoding is not the one that SET would choose: ``raw`` after APPEND, ``embstr`` after
        INCRBYFLOAT. OBJECT ENCODING alone shows it; ``freeze`` leaves it out."""
        self.now_ms = 0
        self.slept_ms = 0
        """How long DEBUG SLEEP has held up the command that runs: no key goes past its deadline within a script or a
        transaction, though TIME and TTL tell the time."""
        self.dirty = 0
        """Changes made so far, counted as the server counts them (``server.dirty``)."""
        self.expired_keys = 0
        """Keys removed because their deadline had passed (``INFO stats``)."""
        self.has_field_deadlines = False
        """Whether a field of a hash has ever had a deadline."""
        self.undo: Undo | None = None
        self.on_modified: Callable[[bytes], None] | None = None
        """Told each key that a command changes."""
        self.on_vanished: Callable[[bytes], None] | None = None
        """Told each key that expires or is evicted."""
        self.on_presence: Callable[[bytes, Value, bool], None] | None = None
        """Told each value that comes to a key where none was (True), or goes (False), while clients wait for keys."""
        self.access: KeyUse | None = None
        """Who was used when: kept while there is a ``maxmemory``."""
        self.memory: AccountsForMemory | None = None
        """The estimate of used memory: kept from the first time it is asked for."""
        self.sees_expired = False
        """While the stream of a master is carried out: to it, a key lives until it says otherwise."""
        self.encoding_limits = EncodingLimits()
        self.random_state = 0
        """The stream of SPOP, SRANDMEMBER and the like (``random_draws``)."""
        self.resp = 2
        """The protocol that replies are made for: 2 or 3."""

    def is_bare(self) -> bool:
        """Whether a change of keys is one of ``data`` and ``deadlines_ms`` alone, and ``modified``."""
        return self.undo is None and self.access is None and not self.string_encodings and self.on_presence is None

    @property
    def removes_expired(self) -> bool:
        """False on a replica: it hides keys past their deadline and waits for its master to delete them."""
        return True

    # -- databases ---------------------------------------------------------------------------------------

    def use(self, index: int) -> None:
        """Select a database."""
        if index == self.database:
            return
        if self.undo is not None:
            self.undo.append((self.use, self.database))
        self._others[self.database] = self._selected()
        self._select(index, self._others.pop(index, None))

    def swap(self, first: int, second: int) -> None:
        """Let two databases change places (SWAPDB)."""
        if first == second:
            return
        if self.undo is not None:
            self.undo.append((self.swap, first, second))
        if self.database in (first, second):
            other = first + second - self.database
            here, there = self._selected(), self._others.pop(other, None)
            self._others[other] = here
            self._select(self.database, there)
        else:
            others = self._others
            others[first], others[second] = others.pop(second, Database()), others.pop(first, Database())
        if self.memory is not None:
            self.memory.forget_all()

    def databases(self) -> dict[int, Database]:
        """All databases that may hold keys, by index in order; the selected one among them."""
        return dict(sorted({**self._others, self.database: self._selected()}.items()))

    def home_of(self, name: bytes) -> tuple[Database, bytes]:
        """The database of the key that ``name`` stands for, and that key."""
        index, key = place_of(name)
        return self._selected() if index == self.database else self._others.get(index) or Database(), key

    def all_deadlines_ms(self) -> list[int]:
        """Those of all databases."""
        deadlines_ms = [deadline_ms for one in self.databases().values() for deadline_ms in one.deadlines_ms.values()]
        if self.has_field_deadlines:
            hashes = [value for one in self.databases().values() for value in one.data.values()]
            deadlines_ms += [
                at for value in hashes if type(value) is ExpiringHash for at in value.deadlines_ms.values()
            ]
        return deadlines_ms

    def lapsed(self) -> list[bytes]:
        """The names of keys that are past their deadlines and still there, of all databases."""
        return [
            name_in(index, key)
            for index, database in self.databases().items()
            for key, at_ms in database.deadlines_ms.items()
            if self.now_ms > at_ms
        ]

    def is_past(self, name: bytes) -> bool:
        """``is_expired`` by the name of a key among those of all databases."""
        database, key = self.home_of(name)
        deadline_ms = database.deadlines_ms.get(key)
        return deadline_ms is not None and self.now_ms - self.slept_ms > deadline_ms and not self.sees_expired

    def forget_use(self) -> None:
        """Begin anew to track the use of keys in each database that is not selected."""
        for database in self._others.values():
            database.access = None

    def _selected(self) -> Database:
        return Database(self.data, self.deadlines_ms, self.string_encodings, self.access)

    def _select(self, index: int, database: Database | None) -> None:
        if database is None:
            database = Database()
        self.database = index
        self.data, self.deadlines_ms = database.data, database.deadlines_ms
        self.string_encodings = database.string_encodings
        if self.access is not None:
            self.access = database.access if database.access is not None else self.access.anew()

    # -- reading -----------------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Value | None:
        """The live value at ``key``, or None. A key past its deadline is removed on the way (lazy expiry)."""
        deadline_ms = self.deadlines_ms.get(key)
        if deadline_ms is not None and self.now_ms - self.slept_ms > deadline_ms and not self.sees_expired:
            self.expire(key)
            return None
        value = self.data.get(key)
        if self.access is not None and value is not None:
            self.access.touch(key)
        return value

    def peek(self, key: bytes) -> Value | None:
        """Like ``lookup``, but does not count as a use of the key (TYPE, TTL, OBJECT, ...)."""
        deadline_ms = self.deadlines_ms.get(key)
        if deadline_ms is not None and self.now_ms - self.slept_ms > deadline_ms and not self.sees_expired:
            self.expire(key)
            return None
        return self.data.get(key)

    def lookup_as(self, key: bytes, kind: type) -> Any:
        """The live value at ``key`` if it is of type ``kind``, None if there is none; else WRONGTYPE."""
        plain = self.access is None and key not in self.deadlines_ms
        value = self.data.get(key) if plain else self.lookup(key)
        if type(value) is kind or value is None:
            return value
        if type(value) is ExpiringHash and kind is Hash:
            return self._live_fields(key, value)
        raise ErrorReply(WRONG_TYPE)

    def _live_fields(self, key: bytes, value: ExpiringHash) -> ExpiringHash | None:
        """A hash without the fields that are past their deadlines; None if no other is left."""
        lapsed = value.lapsed(self.now_ms - self.slept_ms)
        if not lapsed or not self.removes_expired or self.sees_expired:
            return value
        value.remove(lapsed, self.undo)
        if value.fields:
            return value
        self.remove(key)
        return None

    def is_expired(self, key: bytes) -> bool:
        """Whether ``key`` has a deadline that has passed."""
        deadline_ms = self.deadlines_ms.get(key)
        return deadline_ms is not None and self.now_ms - self.slept_ms > deadline_ms and not self.sees_expired

    def live_keys(self) -> list[bytes]:
        """Every key that is not past its deadline, in no meaningful order."""
        now_ms, deadlines_ms = self.now_ms - self.slept_ms, self.deadlines_ms
        if not deadlines_ms:
            return list(self.data)
        return [key for key in self.data if deadlines_ms.get(key, now_ms) >= now_ms]

    # -- writing: each primitive journals its own inverse --------------------------------------------------

    def install(self, key: bytes, value: Value) -> None:
        """Put ``value`` at ``key``; the deadline stays as it is."""
        if self.undo is not None:
            self.undo.append((self._put_back, key, self.data.get(key)))
        if self.on_presence is not None:
            before = self.data.get(key)
            self.on_presence(key, value if before is None else before, before is None)
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
        if self.on_presence is not None:
            self.on_presence(key, value, False)
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
        """Remove every key of the selected database; O(1) to do and to undo."""
        if self.on_presence is not None:
            for key, value in self.data.items():
                self.on_presence(key, value, False)
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
        frozen: FrozenKeyspace = {}
        if keys is not None:
            for name in keys:
                database, key = self.home_of(name)
                self._freeze_into(frozen, database, {name: key})
        elif not self._others:
            self._freeze_into(frozen, self._selected(), dict.fromkeys(sorted(self.data)))
        else:
            for index, database in self.databases().items():
                self._freeze_into(frozen, database, {name_in(index, key): key for key in sorted(database.data)})
        return frozen

    def _freeze_into(self, frozen: FrozenKeyspace, database: Database, keys: dict[bytes, bytes | None]) -> None:
        """Freeze keys of one database; they stand below their names, which None repeats."""
        data, deadlines_ms, now_ms = database.data, database.deadlines_ms, self.now_ms
        for name, other in keys.items():
            key = name if other is None else other
            value = data.get(key)
            deadline_ms = deadlines_ms.get(key)
            if value is None or (deadline_ms is not None and now_ms > deadline_ms):
                continue
            if type(value) is bytes:
                frozen[name] = ("string", value, deadline_ms)
            elif type(value) is ExpiringHash:
                fields = value.freeze_at(now_ms)
                if fields is not None:
                    frozen[name] = ("hash", fields, deadline_ms)
            else:
                frozen[name] = (TYPE_NAMES[type(value)], value.freeze(), deadline_ms)  # type: ignore[union-attr]

    def load(self, frozen: FrozenKeyspace) -> None:
        """Replace every key by those of ``frozen``. Can be rolled back like any other change."""
        here: Database | None = None  # most states are of one database
        loaded: dict[int, Database] = {}
        for name, (kind, value, deadline_ms) in frozen.items():
            if type(name) is DatabaseKey:
                index, key = place_of(name)
                database = loaded.setdefault(index, Database())
            else:
                key = name
                if here is None:
                    here = loaded[0] = Database()
                database = here
            database.data[key] = value if kind == "string" else TYPES[kind].thaw(value)
            if kind == "hash" and len(value) > 2:
                self.has_field_deadlines = True
            if deadline_ms is not None:
                database.deadlines_ms[key] = deadline_ms
        selected = self.database
        for index in sorted({selected, *self._others, *loaded}):
            new = loaded.get(index) or Database()
            self.use(index)
            self._swap_in(new.data, new.deadlines_ms, new.string_encodings)
        self.use(selected)

    def patch(self, frozen: FrozenKeyspace, removed: Iterable[bytes] = ()) -> None:
        """Put the keys of ``frozen`` in place of what they hold now, and take ``removed`` away; the rest stays."""
        selected = self.database
        for name in removed:
            index, key = place_of(name)
            self.use(index)
            self.remove(key)
        for name, (kind, value, deadline_ms) in frozen.items():
            index, key = place_of(name)
            self.use(index)
            self.install(key, value if kind == "string" else TYPES[kind].thaw(value))
            if deadline_ms is not None or key in self.deadlines_ms:
                self.set_deadline(key, deadline_ms)
        self.use(selected)

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
            self.forget_use()
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


SAMPLE_SIZE: Final = 20
"""Keys looked at in one round (``ACTIVE_EXPIRE_CYCLE_KEYS_PER_LOOP``)."""
ACCEPTABLE_STALE_PERCENT: Final = 10
"""The cycle goes on while more of a round than this was past its deadline."""


class ExpireCycle:
    """Active expiry: what the server does ten times a second about keys that nobody asks for (``activeExpireCycle``).

    Walks over the keys that have a deadline, a round of samples at a time, and remembers where it stopped.

    The server stops a cycle after a quarter of its CPU time as well; there is no such limit here. Its walk follows its
    hash table; this one follows the order in which deadlines were set.
    """

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._ahead: dict[int, list[bytes]] = {}
        """Keys still to be looked at in the present pass through each database; the next one is last."""
        self.is_enabled = True
        """DEBUG SET-ACTIVE-EXPIRE."""

    def run(self) -> int:
        """One cycle; how many keys it removed. A replica removes none."""
        keyspace = self._keyspace
        if not self.is_enabled or not keyspace.removes_expired:
            return 0
        return self._in_each(self._look_at_samples)

    def remove_all(self) -> int:
        """Remove every key past its deadline at once; how many."""
        return self._in_each(self._remove_all) if self._keyspace.removes_expired else 0

    def _in_each(self, remove: Callable[[], int]) -> int:
        """Call ``remove`` with each database selected."""
        keyspace, removed = self._keyspace, 0
        selected = keyspace.database
        for index in keyspace.databases():
            keyspace.use(index)
            removed += remove()
        keyspace.use(selected)
        return removed

    def _look_at_samples(self) -> int:
        keyspace, removed = self._keyspace, 0
        ahead = self._ahead.get(keyspace.database)
        if not ahead:
            ahead = self._ahead[keyspace.database] = list(reversed(keyspace.deadlines_ms))
        while ahead:
            lapsed = sampled = 0
            while ahead and sampled < SAMPLE_SIZE:
                key = ahead.pop()
                sampled += key in keyspace.deadlines_ms
                if keyspace.is_expired(key):
                    keyspace.expire(key)
                    lapsed += 1
            removed += lapsed
            if lapsed * 100 <= sampled * ACCEPTABLE_STALE_PERCENT:
                break
        return removed

    def _remove_all(self) -> int:
        keyspace = self._keyspace
        lapsed = [key for key in keyspace.deadlines_ms if keyspace.is_expired(key)]
        for key in lapsed:
            keyspace.expire(key)
        if keyspace.has_field_deadlines:
            for key in [key for key, value in keyspace.data.items() if type(value) is ExpiringHash]:
                keyspace.lookup_as(key, Hash)
        return len(lapsed)
