"""The parts of a state, each a value that is known by a small number."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.run_state import Connection, Sending

T = TypeVar("T")

Broken = tuple[tuple[str, str], ...]
"""Laws that a step has broken, each with what happened."""


class Interned(Generic[T]):
    """Values by number, numbers by value. Numbers are given in the order of asking."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        """The number of a value, a new one for a new value."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self._values)
            self._values.append(value)
        return known

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)


class Core(NamedTuple):
    """One session: its keys (number of a frozen keyspace), the moment, and where the judge says that it stands."""

    keyspace: int
    now_ms: int
    account: Account
    connection: Connection


class Known(NamedTuple):
    """What goes on around one session: messages that were sent its way, and what its reader was told."""

    addressed: int = 0
    writers: int = 0
    """That have saved here, and so have a name here."""
    sendings: tuple[tuple[int, Sending], ...] = ()

    def told(self, more: tuple[tuple[int, Sending], ...]) -> Known:
        """With later sendings in place of earlier ones of the same messages."""
        return self._replace(sendings=tuple(sorted({**dict(self.sendings), **dict(more)}.items()))) if more else self


class Last(NamedTuple):
    """A writer's last save, as long as it may be sent again."""

    reader: int
    label: int
    position: int
    epoch: int
    is_answered: bool
    is_stale: bool = False


class Writer(NamedTuple):
    """How far a writer is, and its name towards each reader's session: 1 for the first to save there; 0, none yet."""

    quota: int
    position: int
    names: tuple[int, ...]
    last: Last | None = None


class Node(NamedTuple):
    """The condition of the node, and what is left of each budget."""

    left: tuple[int, ...]
    has_scripts: bool = True
    replica: tuple[int, ...] | None = None
    """The sessions as a lagging replica has them, by core; None: it has all."""
    has_failed_over: bool = False
    broken: Broken = ()
    """What the step that led here has broken."""
    is_over: bool = False
    """Nothing after this can be judged."""
