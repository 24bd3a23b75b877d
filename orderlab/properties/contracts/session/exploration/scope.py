"""How small the world around a store is: who is there, what they save, and how often trouble may come on one path."""
from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.refinement.account import Connection, Sending
from orderlab.model.contracts.session.steps import Publication
from orderlab.sim.stores.bound import SessionStore

BUDGETS = ("crashes", "lost_replies", "duplicates", "expiries", "clears", "errors", "script_flush", "failover")
CRASHES, LOST_REPLIES, DUPLICATES, EXPIRIES, CLEARS, ERRORS, SCRIPT_FLUSH, FAILOVER = range(len(BUDGETS))
FREE = -1
"""What a step costs: an index into ``BUDGETS``, or nothing."""

SHORTEST_MS = 1000


@dataclass(frozen=True)
class Scope:
    """The messages are dealt out to the writers; each is saved alone, for whichever reader its writer chooses.

    A reader has a session of its own. The rest are budgets: how often, at most, on one path.
    """

    writers: int = 2
    readers: int = 1
    messages: int = 4
    limit: int = 2
    modulus: int = 3
    """Packet identifiers 1..modulus: few, so that a handful of messages goes round."""
    qos: int = 1
    crashes: int = 0
    """The node stops within an operation and comes back with what had reached its append-only file."""
    lost_replies: int = 0
    """An operation is carried out and its caller does not hear of it."""
    duplicates: int = 0
    """A save that was answered arrives a second time."""
    expiries: int = 0
    """Time passes until just before, or at, the next deadline."""
    clears: int = 0
    """The session ends, or its client connects again."""
    errors: int = 0
    """An operation meets a node that refuses writes, or a key of another type."""
    script_flush: int = 0
    """The node forgets its scripts."""
    failover: int = 0
    """The node is replaced by a replica that has missed everything since some earlier moment."""

    @property
    def budgets(self) -> tuple[int, ...]:
        """How much of each budget there is, in the order of ``BUDGETS``."""
        return tuple(getattr(self, name) for name in BUDGETS)

    @property
    def has_lost_scripts(self) -> bool:
        """Whether the node may stand there without the scripts."""
        return bool(self.script_flush or self.crashes or self.failover)

    def quota(self, writer: int) -> int:
        """How many messages a writer saves."""
        return self.messages // self.writers + (writer < self.messages % self.writers)

    def publication(self, label: int, position: int) -> Publication:
        """A writer's message number ``position``. Where time passes, the first of each two lives twice as long."""
        interval_ms = SHORTEST_MS * (2 - position % 2) if self.expiries else None
        return Publication(label, b"<%d>payload" % label, b"t", self.qos, interval_ms)


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


EXPLORED = (
    "store-order",
    "no-loss",
    "packet-id",
    "legal-trim",
    "expiry",
    "no-residue",
    "all-or-nothing",
    "counter",
    "retransmission",
    "no-phantom",
    "drain",
)
"""Laws of a session store that one session's steps can break. What an operation costs, and its slots, are not seen."""

AFTER_FAILOVER = " after failover"
"""A law so marked is broken by the loss of what the replica had not received: no script can keep it."""


def explored_laws(scope: Scope, operations: Collection[str], law: str | None) -> list[str]:
    """The laws of a scope by name."""
    names = [name for name in EXPLORED if law in (None, name)]
    if scope.qos != 2 or "release" not in operations:
        names = [name for name in names if name != "retransmission" or law == name]
    return [*names, *(name + AFTER_FAILOVER for name in names if scope.failover)]


def goals(scope: Scope, store: SessionStore) -> list[str]:
    """Situations without which the laws would hold for want of trying."""
    most, modulus = scope.messages, store.capabilities.modulus
    found = ["several messages live"] if most > 1 and scope.limit > 1 else []
    found += ["the queue is full"] if most >= scope.limit else []
    found += ["a message is trimmed"] if most > scope.limit else []
    found += ["the identifier wraps while a message is live"] if most > modulus > 1 and scope.limit > 1 else []
    found += ["a message is acknowledged"] if "acknowledge" in store.operations else []
    found += ["a message expires"] if scope.expiries else []
    found += ["a message is released"] if scope.qos == 2 and "release" in store.operations else []
    found += ["a session is cleared"] if scope.clears and "clear" in store.operations else []
    return found


def situations(account: Account, scope: Scope) -> Iterator[str]:
    """The situations that an account is in, or has been in."""
    queue = account.queue
    fates = {fate for _, fate in account.fates}
    if len(queue) > 1:
        yield "several messages live"
        if queue[0].packet_id > queue[-1].packet_id:
            yield "the identifier wraps while a message is live"
    if len(queue) >= scope.limit:
        yield "the queue is full"
    if any(entry.kind == "PUBREL" for entry in queue):
        yield "a message is released"
    for fate, words in (
        ("trimmed", "a message is trimmed"),
        ("acknowledged", "a message is acknowledged"),
        ("expired", "a message expires"),
        ("cleared", "a session is cleared"),
    ):
        if fate in fates:
            yield words


def name_of(label: int) -> str:
    """A message: ``m3``."""
    return f"m{label}"


def shown(value: Any) -> str:
    """A frozen value with its bytes as text."""
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return text if text.isprintable() else repr(value)[2:-1]
    if isinstance(value, tuple | list | frozenset):
        items = sorted(map(shown, value)) if isinstance(value, frozenset) else [shown(item) for item in value]
        return "[" + ", ".join(items) + "]"
    return str(value)
