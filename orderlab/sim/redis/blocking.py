"""Clients that wait for a key: who waits, what makes a key ready, in which order they are served, and when a wait is
over (``blocked.c``).

A connection may wait if its ``may_wait`` is set; ``Shard.execute`` then returns a ``Waiting`` where a server would send
nothing yet. Waits end within a later command of another client, right after it (a whole script, a whole EXEC); at a
timeout, for which the owner of the clock calls ``time_out``; or by ``cancel``. ``on_over`` is told each time. Without
``may_wait``, in MULTI and in scripts the reply is that of a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.database import name_in, place_of
from orderlab.sim.redis.keyspace import WAITED_FOR, Keyspace
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.values import Stream

Serve = Callable[[bytes], Reply]
"""Gives the reply to a client that waits for this key, which holds a value of the right type; NOT_YET if it must go on
waiting."""
CarryOut = Callable[["Waiting", bytes], Reply]
"""Carries out the rest of a waiting client's command, as that client."""


class NotYet:
    """There is nothing for this client here."""


NOT_YET = NotYet()
UNBLOCKED = ErrorReply(b"UNBLOCKED client unblocked via CLIENT UNBLOCK")


@dataclass(slots=True, eq=False)
class Waiting:
    """A client that waits. What stands in place of a reply until ``is_over``."""

    client: Client
    argv: tuple[bytes, ...]
    database: int
    kind: type
    """The type that its keys must have."""
    keys: tuple[bytes, ...]
    deadline_ms: int
    """The last moment of the wait; 0: no timeout."""
    serve: Serve = field(repr=False)
    reply: Reply = None
    is_over: bool = False

    @property
    def is_endless(self) -> bool:
        """Whether it has no timeout."""
        return not self.deadline_ms


class WaitTable:
    """The waits of one node, in the order in which they began."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._by_name: dict[bytes, dict[Waiting, None]] = {}
        self._order: dict[Waiting, None] = {}
        self.ready: dict[bytes, None] = {}
        """Names of keys that may serve somebody, in the order in which they became so."""
        self.on_over: Callable[[Waiting], None] | None = None
        """Told each wait that ends, its reply set."""

    def __bool__(self) -> bool:
        return bool(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def all(self) -> tuple[Waiting, ...]:
        """The waits, the longest first."""
        return tuple(self._order)

    def freeze(self) -> tuple[tuple[bytes, int, tuple[bytes, ...], int], ...]:
        """The waits as plain values, in order: name of the client, database, command (``$`` resolved), deadline in ms.
        With a frozen keyspace all that an explorer needs to tell two states apart."""
        return tuple(
            (waiting.client.name, waiting.database, waiting.argv, waiting.deadline_ms) for waiting in self._order
        )

    def add(self, waiting: Waiting) -> None:
        """Let a client wait."""
        self._note()
        self._enter(waiting)
        self._listen()

    def cancel(self, waiting: Waiting) -> None:
        """The client has gone: nobody is told."""
        if waiting in self._order:
            self._note()
            self._leave(waiting)

    def end(self, waiting: Waiting, reply: Reply) -> None:
        """End a wait with ``reply``: CLIENT UNBLOCK, a timeout, or because it was served."""
        self._note()
        self._leave(waiting)
        waiting.reply = reply
        if self.on_over is not None:
            self.on_over(waiting)

    def next_timeout_ms(self) -> int | None:
        """The first moment at which ``time_out`` has something to do."""
        deadlines = [waiting.deadline_ms for waiting in self._order if waiting.deadline_ms]
        return min(deadlines) + 1 if deadlines else None

    def time_out(self) -> list[Waiting]:
        """End the waits whose time is over, the earliest deadline first and then the oldest client
        (``handleBlockedClientsTimeout``)."""
        over = [each for each in self._order if each.deadline_ms and each.deadline_ms < self._keyspace.now_ms]
        over.sort(key=lambda waiting: (waiting.deadline_ms, waiting.client.id))
        for waiting in over:
            self.end(waiting, None)
        return over

    # -- what makes a key ready ----------------------------------------------------------------------------

    def signal(self, name: bytes, kind: type) -> None:
        """The key ``name`` has come to hold, or has lost, a value of this type (``signalKeyAsReady``)."""
        if name in self._by_name and any(waiting.kind is kind for waiting in self._order):
            self.ready.setdefault(name)

    def signal_changed(self, before: dict[bytes, Any]) -> None:
        """Several keys were replaced at once; ``before``: what those of ``names`` held."""
        for name, old in before.items():
            database, key = self._keyspace.home_of(name)
            new = database.data.get(key)
            for value in (old, new):
                if value is not None and (value is new or type(old) is not type(new)):
                    self.signal(name, type(value))

    def held(self, databases: Iterable[int]) -> dict[bytes, Any]:
        """What the keys that somebody waits for hold in these databases, by name."""
        chosen = set(databases)
        values: dict[bytes, Any] = {}
        for name in self._by_name:
            if place_of(name)[0] in chosen:
                database, key = self._keyspace.home_of(name)
                values[name] = database.data.get(key)
        return values

    # -- serving -------------------------------------------------------------------------------------------

    def serve(self, carry_out: CarryOut) -> None:
        """Serve whom the ready keys can serve, key by key and each in the order of the waits; what that makes ready
        comes after (``handleClientsBlockedOnKeys``)."""
        keyspace = self._keyspace
        database, sees_expired = keyspace.database, keyspace.sees_expired
        try:
            keyspace.sees_expired = False
            while self.ready:
                names, self.ready = list(self.ready), {}
                for name in names:
                    self.ready.pop(name, None)
                    index, key = place_of(name)
                    keyspace.use(index)
                    self._serve_key(name, key, carry_out)
        finally:
            keyspace.sees_expired = sees_expired
            keyspace.use(database)

    def _serve_key(self, name: bytes, key: bytes, carry_out: CarryOut) -> None:
        keyspace = self._keyspace
        value = keyspace.lookup(key)
        kind = type(value)
        for waiting in list(self._by_name.get(name, ())):
            if waiting.is_over:
                continue
            if waiting.kind is not kind and waiting.kind is not Stream:
                continue
            try:
                reply = carry_out(waiting, key)
            except ErrorReply as error:
                reply = error
            if reply is not NOT_YET:
                self.end(waiting, reply)
            if kind is not Stream and value is not None and keyspace.data.get(key) is not value:
                kind = type(None)  # what is left are readers of a stream that is not there

    # -- the table -----------------------------------------------------------------------------------------

    def _enter(self, waiting: Waiting) -> None:
        self._order[waiting] = None
        for key in waiting.keys:
            self._by_name.setdefault(name_in(waiting.database, key), {})[waiting] = None
        waiting.is_over = False
        waiting.reply = None
        waiting.client.waiting = waiting

    def _leave(self, waiting: Waiting) -> None:
        del self._order[waiting]
        for key in dict.fromkeys(waiting.keys):
            name = name_in(waiting.database, key)
            waits = self._by_name[name]
            del waits[waiting]
            if not waits:
                del self._by_name[name]
        waiting.is_over = True
        waiting.client.waiting = None
        self._listen()

    def _listen(self) -> None:
        self._keyspace.on_presence = self._note_presence if self._order else None

    def _note_presence(self, key: bytes, value: Any, is_there: bool) -> None:
        kind = type(value)
        if kind in WAITED_FOR and (is_there or kind is Stream):
            self.signal(name_in(self._keyspace.database, key), kind)

    def _note(self) -> None:
        if self._keyspace.undo is not None:
            self._keyspace.undo.append((self._restore, tuple(self._order)))

    def _restore(self, order: Sequence[Waiting]) -> None:
        for waiting in [each for each in self._order if each not in order]:
            self._leave(waiting)
        self._order.clear()
        self._by_name.clear()
        for waiting in order:
            self._enter(waiting)
        self.ready.clear()
        self._listen()


def served_command(command: Any, serve: Serve, key: bytes) -> Any:
    """The command of a waiting client as it is carried out when ``key`` is ready."""
    return replace(command, handler=lambda node, argv: serve(key))
