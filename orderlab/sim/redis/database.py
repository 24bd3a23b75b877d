"""The databases of a node beside the one that is selected, and how their keys are named among all keys of the node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orderlab.sim.redis.eviction import KeyUse
    from orderlab.sim.redis.values import Value


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
