"""The databases of a node beside the one that is selected, and how their keys are named among all keys of the node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

from orderlab.sim.redis.values import Value


class DrawableKeys(Protocol):
    """Keys in no meaningful order."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> bytes: ...


class KeyUse(Protocol):
    """Who was used when, in one database (``eviction``)."""

    is_lfu: bool

    @property
    def keys(self) -> DrawableKeys:
        """All keys."""
        ...

    @property
    def volatile(self) -> DrawableKeys:
        """Those that have a deadline."""
        ...

    def anew(self) -> Self:
        """The same for the database that is selected now, each key of which counts as used now."""
        ...

    def reset(self) -> None:
        """The whole database was replaced: every key counts as used now."""
        ...

    def admit(self, key: bytes) -> None:
        """``key`` may be new."""
        ...

    def drop(self, key: bytes) -> None:
        """``key`` is gone."""
        ...

    def note_deadline(self, key: bytes, has_deadline: bool) -> None:
        """``key`` was given a deadline, or has lost it."""
        ...

    def touch(self, key: bytes) -> None:
        """``key`` was just used."""
        ...

    def idle_ms(self, key: bytes) -> int:
        """Time since the last use, in the server's resolution of a second."""
        ...

    def frequency(self, key: bytes) -> int:
        """The LFU counter now."""
        ...


class AccountsForMemory(Protocol):
    """The estimate of used memory (``memory``)."""

    def forget(self, key: bytes) -> None:
        """``key``, by its name among those of all databases, may have changed."""
        ...

    def forget_all(self) -> None:
        """Anything may have changed (rollback, load, flush)."""
        ...

    def used(self) -> int:
        """Bytes in use now."""
        ...


class DatabaseKey(bytes):
    """A key of another database than 0, where keys of several databases stand together (frozen states, effects, WATCH).

    It reads ``db3:key``, and equals no key of database 0 that happens to read so.
    """

    database: int
    key: bytes

    def __new__(cls, database: int, key: bytes) -> DatabaseKey:
        """The name of ``key`` of ``database``, which is not 0."""
        named = super().__new__(cls, b"db%d:%b" % (database, key))
        named.database, named.key = database, key
        return named

    def __eq__(self, other: object) -> bool:
        return type(other) is DatabaseKey and bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.database, self.key))

    def __reduce__(self) -> tuple[type[DatabaseKey], tuple[int, bytes]]:
        return DatabaseKey, (self.database, self.key)


def name_in(database: int, key: bytes) -> bytes:
    """The name of a key among those of all databases."""
    return DatabaseKey(database, key) if database else key


def place_of(name: bytes) -> tuple[int, bytes]:
    """The database and the key that ``name`` stands for."""
    return (name.database, name.key) if isinstance(name, DatabaseKey) else (0, name)


@dataclass(slots=True)
class Database:
    """What a keyspace holds of one database: see its attributes of the same names."""

    data: dict[bytes, Value] = field(default_factory=dict)
    deadlines_ms: dict[bytes, int] = field(default_factory=dict)
    string_encodings: dict[bytes, bytes] = field(default_factory=dict)
    access: KeyUse | None = None
    """None until it is selected, where use is tracked at all."""
