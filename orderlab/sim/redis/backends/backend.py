"""What a backend is, and the kernel as one.

Three narrow protocols, so that what runs on a backend can be typed by what it needs: ``Commands`` (a driver), ``Keys``
(the keyspace as one value, conditions of the node, attempts that are undone) and ``VirtualTime``. A ``Backend`` has all
three. Nobody asks which backend it has: what one cannot do it says by a flag, or by raising InputError.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Protocol, Self

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.errors import InputError
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.error_conditions import Condition, condition_of, imposed
from orderlab.sim.redis.lua.host import host_of
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Effect, FrozenKeyspace, Shard
from orderlab.sim.redis.versions import DEFAULT, ServerVersion

Argv = Sequence[bytes]
Watched = tuple[tuple[tuple[bytes, bool], ...], bool]
"""Keys that a client watches, each with whether it was past its deadline then; and whether one has changed since."""
EXCEPTION = b"EXCEPTION "
"""How the error begins that stands for an exception which came out of a backend instead of a reply."""


class Commands(Protocol):
    """What a driver does with a database: commands one by one, in pipelines, and by clients with a connection each."""

    contains_scripts: bool
    """True when an untrusted script can do no harm outside the database."""
    has_connections: bool = True
    """True when ``connect`` gives further connections, whose blocking commands wait."""

    @abstractmethod
    def execute(self, *argv: bytes) -> Reply:
        """Run one command. An error reply is returned as an ``ErrorReply`` value."""
        ...

    @abstractmethod
    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        """Run commands one after the other: the replies of one ``execute`` each, in fewer round trips."""
        ...

    @abstractmethod
    def describe(self) -> str:
        """Name and version, for reports."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Release what the backend holds; a server that it started is stopped. Idempotent."""
        ...

    def connect(self, name: bytes) -> Any:
        """A further connection, for ``execute_as``. Raises InputError where there is but one."""
        raise InputError(
            f"{self.describe()}: clients with connections of their own are carried out on the kernel, or on one "
            "server; name such a backend"
        )

    def execute_as(self, client: Any, *argv: bytes) -> Any:
        """Run one command of a client that ``connect`` gave."""
        return self.execute(*argv)

    def block_as(self, client: Any, *argv: bytes) -> Any:
        """Run a command that may block, of a client that ``connect`` gave: its reply, or the wait that has begun."""
        return self.execute_as(client, *argv)

    def look_at(self, waits: Sequence[Any]) -> None:
        """Receive the replies of those of ``waits`` that are over by now."""
        return

    def hang_up(self, wait: Any) -> bool:
        """End the connection of a client that waits. Returns whether it needs a new one for its next command."""
        return False

    def disconnect(self, client: Any) -> None:
        """End a connection that ``connect`` gave, as a client does that dies."""
        return

    def waiting(self) -> Sequence[Any]:
        """The waits that are not over, the longest first, where that is known."""
        return ()

    def watched(self, client: Any) -> Watched:
        """The keys that ``client`` watches, as a value, where that is known."""
        return (), False

    def watch_again(self, watched: Sequence[tuple[Any, Watched]]) -> None:
        """Have clients watch what they watched when ``watched`` was asked."""
        return


class Keys(Protocol):
    """The keys of a database as one value, and what a judge does besides: attempts and faults."""

    aborts_scripts: bool = False
    """True when a node can die within a script, and any condition of a node or of a key can be made."""
    shows_calls: bool = False
    """True when ``noting`` sees what scripts call, and ``charge`` the work they take."""
    is_aside: bool = False
    """True while what is executed is not the store's own doing: the judge looks, or a fault is made."""
    trouble: tuple[str, ...] = ()
    """What can befall an operation here in place of the conditions of a node, by name."""
    upkeep: tuple[str, ...] = ()
    """What the store does by itself now and then, by name: ``keep_up``."""

    @abstractmethod
    def keyspace(self) -> FrozenKeyspace:
        """Every live key with its type, value and absolute deadline (on the clock of ``now_ms``), in canonical form."""
        ...

    def visible(self) -> FrozenKeyspace:
        """The part of it that is there to be read: what a crash would leave besides is not."""
        return self.keyspace()

    @abstractmethod
    def load(self, keyspace: FrozenKeyspace) -> None:
        """Replace all keys by those of ``keyspace``."""
        ...

    @abstractmethod
    def flush(self) -> None:
        """Remove all keys. Scripts stay loaded."""
        ...

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens to the keys within is undone at the end."""
        before = self.keyspace()
        try:
            yield
        finally:
            if self.keyspace() != before:
                self.load(before)

    def noting(self, effects: list[Effect]) -> AbstractContextManager[None]:
        """Within it what commands and scripts do is added to ``effects``; nothing unless ``shows_calls``."""
        return nullcontext()

    def measuring(self) -> AbstractContextManager[Callable[[], tuple[int, int]]]:
        """Within it the work of scripts is counted: their instructions, and the units of ``work`` of their commands; 0
        where it is not seen."""
        return nullcontext(lambda: (0, 0))

    def charge(self) -> int:
        """Work of scripts that took long since this was asked last, in the units of a shard; 0 where it is not seen."""
        return 0

    @abstractmethod
    def can_be_in(self, condition: Condition) -> bool:
        """Whether ``condition`` can be made here and strike within a script."""
        ...

    @abstractmethod
    def imposed(
        self, condition: Condition, key: bytes = b"", before_call: int = 0, found: str = ""
    ) -> AbstractContextManager[None]:
        """Within it the node is in ``condition`` (see ``error_conditions.imposed``). Raises InputError where that
        cannot be made."""
        ...

    def befalling(self, fault: Fault) -> AbstractContextManager[None]:
        """Within it operations meet ``fault``, one of ``trouble``. Raises InputError where that cannot be made."""
        raise InputError(f"fault {fault.kind!r}: unknown")

    def keep_up(self, what: str) -> None:
        """Have the store do one thing of ``upkeep``."""
        raise InputError(f"upkeep {what!r}: unknown; a node of Redis does nothing by itself that a step could ask for")

    def condition(self) -> str:
        """The condition that the node is in, by its name; nothing where there is none, or none is seen."""
        return ""


class VirtualTime(Protocol):
    """A clock that is moved instead of waited for."""

    sees_virtual_time: bool
    """True when scripts that read TIME see what ``advance`` did."""
    clock_runs: bool = False
    """True when time goes by besides: a server's clock, on which steps come a little later than planned."""

    @property
    @abstractmethod
    def now_ms(self) -> int:
        """The backend's clock: Unix time in ms, with all that ``advance`` added."""
        ...

    @abstractmethod
    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass without waiting."""
        ...

    def set_now(self, now_ms: int) -> None:
        """Go to another moment, an earlier one too. Raises InputError where time cannot go back."""
        raise InputError(f"{type(self).__name__}: its time cannot go back; use --backend kernel")

    @abstractmethod
    def deadlines_ms(self) -> Collection[int]:
        """When keys end, and when waits without a reply do where that is known."""
        ...


class Backend(Commands, Keys, VirtualTime, Protocol):
    """One Redis database behind an interface that the kernel, fakeredis and a real server share.

    The implementations inherit from it and so share the scripting calls, which are commands like any other.
    """

    def can_be_in(self, condition: Condition) -> bool:
        return False

    @contextmanager
    def imposed(self, condition: Condition, key: bytes = b"", before_call: int = 0, found: str = "") -> Iterator[None]:
        raise InputError(f"fault {condition.name}: {self.describe()} cannot be brought into it; use --backend kernel")
        yield

    def timed(self, client: Any, *argv: bytes) -> tuple[Reply, tuple[int, int]]:
        """The reply to a command, as this client or as any, and the clock just before and after it."""
        before_ms = self.now_ms
        reply = self.execute(*argv) if client is None else self.execute_as(client, *argv)
        return reply, (before_ms, self.now_ms)

    def deadlines_ms(self) -> Collection[int]:
        return [deadline for _, _, deadline in self.keyspace().values() if deadline is not None]

    def script_load(self, source: bytes) -> bytes:
        """Load a script; its SHA-1 in hex. Raises ErrorReply when it does not compile."""
        reply = self.execute(b"SCRIPT", b"LOAD", source)
        if isinstance(reply, ErrorReply):
            raise reply
        return bytes(reply)

    def eval(self, source: bytes, keys: Argv = (), args: Argv = ()) -> Reply:
        """EVAL."""
        return self.execute(b"EVAL", source, b"%d" % len(keys), *keys, *args)

    def evalsha(self, sha: bytes, keys: Argv = (), args: Argv = ()) -> Reply:
        """EVALSHA; NOSCRIPT comes back as an error value."""
        return self.execute(b"EVALSHA", sha, b"%d" % len(keys), *keys, *args)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Valued(Backend):
    """Put before a backend: it can be told what it would hold, without holding it yet."""

    value: FrozenKeyspace | None = None

    def keyspace(self) -> FrozenKeyspace:
        return super().keyspace() if self.value is None else self.value  # type: ignore[safe-super]

    def held(self) -> FrozenKeyspace:
        """What it does hold."""
        return super().keyspace()  # type: ignore[safe-super]


FIRST_MS = 1_700_000_000_000
"""Where virtual time begins unless the caller says otherwise: a round Unix time, the same in every run."""


class KernelBackend(Backend):
    """One kernel shard. ``shard`` is open to callers that need what only the kernel has."""

    sees_virtual_time = True
    contains_scripts = True
    aborts_scripts = True
    shows_calls = True

    def __init__(self, now_ms: int = FIRST_MS, version: ServerVersion = DEFAULT) -> None:
        self.shard = Shard(version=version)
        self.shard.now_ms = now_ms

    @property
    def now_ms(self) -> int:
        return self.shard.now_ms

    def execute(self, *argv: bytes) -> Reply:
        return self.shard.execute(argv)

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        execute = self.shard.execute
        return [execute(argv) for argv in commands]

    def keyspace(self) -> FrozenKeyspace:
        database = self.shard.client.database
        if database:  # what comes next would depend on more than the keys
            raise InputError(
                f"a store's command leaves its connection in database {database}; end the operation with SELECT 0"
            )
        return self.shard.freeze()

    def load(self, keyspace: FrozenKeyspace) -> None:
        self.shard.load(keyspace)

    def flush(self) -> None:
        self.shard.load({})

    def advance(self, ms: int) -> None:
        self.shard.now_ms += ms
        if self.shard.waits:
            self.shard.waits.time_out()

    def set_now(self, now_ms: int) -> None:
        self.shard.now_ms = now_ms

    def deadlines_ms(self) -> Collection[int]:
        timeout_ms = self.shard.waits.next_timeout_ms() if self.shard.waits else None
        deadlines_ms = self.shard.all_deadlines_ms()
        return deadlines_ms if timeout_ms is None else [*deadlines_ms, timeout_ms]

    @contextmanager
    def undone(self) -> Iterator[None]:
        was_journaling = self.shard.undo is not None
        mark = self.shard.snapshot()
        try:
            yield
        finally:
            self.shard.rollback(mark)
            if not was_journaling:
                self.shard.forget_snapshots()

    @contextmanager
    def noting(self, effects: list[Effect]) -> Iterator[None]:
        noted, self.shard.effects = self.shard.effects, effects
        try:
            yield
        finally:
            self.shard.effects = noted

    def charge(self) -> int:
        charged, self.shard.charged = self.shard.charged, 0
        return charged

    @contextmanager
    def measuring(self) -> Iterator[Callable[[], tuple[int, int]]]:
        begun = self.shard.work
        with host_of(self.shard).measuring() as instructions:
            yield lambda: (instructions(), self.shard.work - begun)

    def can_be_in(self, condition: Condition) -> bool:
        return True

    @contextmanager
    def imposed(self, condition: Condition, key: bytes = b"", before_call: int = 0, found: str = "") -> Iterator[None]:
        with imposed(self.shard, condition, key=key, before_call=before_call, found=found):
            yield

    def condition(self) -> str:
        return condition_of(self.shard)

    def connect(self, name: bytes) -> Client:
        """A further connection, whose blocking commands wait."""
        return Client(name=name, may_wait=True)

    def execute_as(self, client: Client, *argv: bytes) -> Reply:
        """Run one command of ``client``. The reply is a ``Waiting`` if it waits: that has the reply as soon as
        ``is_over``, which a command of another client, ``advance``, or ``shard.disconnect`` brings about."""
        return self.shard.execute(argv, client)

    def hang_up(self, wait: Waiting) -> bool:
        self.shard.disconnect(wait.client)
        return False

    def disconnect(self, client: Client) -> None:
        self.shard.disconnect(client)

    def waiting(self) -> Sequence[Waiting]:
        return self.shard.waits.all()

    def watched(self, client: Client) -> Watched:
        return tuple(sorted(client.watched.items())), client.is_dirty

    def watch_again(self, watched: Sequence[tuple[Client, Watched]]) -> None:
        for client, (keys, is_dirty) in watched:
            self.shard.watches.put_back(client, dict(keys), is_dirty)
        if watched:
            self.shard.observe_changes()

    def describe(self) -> str:
        return f"kernel {self.shard.version.number.decode()}"  # of the Redis that it follows

    def close(self) -> None:
        pass
