"""What a backend is, something that runs Redis commands and scripts and can be looked into, loaded and aged; and the
kernel as one."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from orderlab.model.errors import InputError
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.commands.connection import VERSION
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace, Shard

Argv = Sequence[bytes]
EXCEPTION = b"EXCEPTION "
"""How the error begins that stands for an exception which came out of a backend instead of a reply."""


class Backend(Protocol):
    """One Redis database behind an interface that the kernel, fakeredis and a real server share.

    The three implementations inherit from it and so share the scripting calls, which are commands like any other.
    """

    sees_virtual_time: bool
    """True when scripts that read TIME see what ``advance`` did."""
    contains_scripts: bool
    """True when an untrusted script can do no harm outside the database."""
    is_aside: bool = False
    """True while what is executed is not the store's own doing: the judge looks, or a fault is made."""

    @property
    @abstractmethod
    def now_ms(self) -> int:
        """The backend's clock: Unix time in ms, with all that ``advance`` added."""
        ...

    @abstractmethod
    def execute(self, *argv: bytes) -> Reply:
        """Run one command. An error reply is returned as an ``ErrorReply`` value."""
        ...

    @abstractmethod
    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        """Run commands one after the other: the replies of one ``execute`` each, in fewer round trips."""
        ...

    @abstractmethod
    def keyspace(self) -> FrozenKeyspace:
        """Every live key with its type, value and absolute deadline (on the clock of ``now_ms``), in canonical form."""
        ...

    @abstractmethod
    def load(self, keyspace: FrozenKeyspace) -> None:
        """Replace all keys by those of ``keyspace``."""
        ...

    @abstractmethod
    def flush(self) -> None:
        """Remove all keys. Scripts stay loaded."""
        ...

    @abstractmethod
    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass without waiting."""
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

    def run_script(self, source: bytes, keys: Argv = (), args: Argv = ()) -> Reply:
        """Run a script as drivers do: by its SHA-1, and after NOSCRIPT by loading it and asking again."""
        sha = hashlib.sha1(source).hexdigest().encode()
        reply = self.evalsha(sha, keys, args)
        if isinstance(reply, ErrorReply) and reply.message.startswith(b"NOSCRIPT"):
            loaded = self.execute(b"SCRIPT", b"LOAD", source)
            return loaded if isinstance(loaded, ErrorReply) else self.evalsha(sha, keys, args)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


FIRST_MS = 1_700_000_000_000
"""Where virtual time begins unless the caller says otherwise: a round Unix time, the same in every run."""


class KernelBackend(Backend):
    """One kernel shard. ``shard`` is open to callers that need what only the kernel has."""

    sees_virtual_time = True
    contains_scripts = True

    def __init__(self, now_ms: int = FIRST_MS) -> None:
        self.shard = Shard()
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

    def connect(self, name: bytes) -> Client:
        """A further connection, whose blocking commands wait."""
        return Client(name=name, may_wait=True)

    def execute_as(self, client: Client, *argv: bytes) -> Reply:
        """Run one command of ``client``. The reply is a ``Waiting`` if it waits: that has the reply as soon as
        ``is_over``, which a command of another client, ``advance``, or ``shard.disconnect`` brings about."""
        return self.shard.execute(argv, client)

    def describe(self) -> str:
        return f"kernel {VERSION.decode()}"  # of the Redis that it follows

    def close(self) -> None:
        pass
