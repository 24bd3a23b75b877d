"""A real server as a backend: one that the user runs, or one that we start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from orderlab.model.errors import InputError
from orderlab.sim.live import CURE, OLDEST, ServerProcess
from orderlab.sim.redis.backends.backend import Argv, Backend
from orderlab.sim.redis.backends.dump import check_all, dump, dump_all, rebuild
from orderlab.sim.redis.cluster import RedirectingClient
from orderlab.sim.redis.database import DatabaseKey
from orderlab.sim.redis.error_conditions import Condition
from orderlab.sim.redis.registry import find, load_commands
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.wire import Connection

BLOCKED_WITHIN_S = 10.0
"""A command that blocks has either been answered by then, or its client is one that waits."""


@dataclass(slots=True, eq=False)
class ServerWait:
    """A client that waits on a server. What stands in place of a reply until ``is_over``."""

    client: Connection
    number: bytes
    """Of its connection, as the server counts them."""
    argv: tuple[bytes, ...]
    is_endless: bool
    reply: Reply = None
    is_over: bool = False


def is_endless(argv: Sequence[bytes]) -> bool:
    """Whether a blocking command waits without a timeout."""
    name, lower = argv[0].lower(), [one.lower() for one in argv]
    if name in (b"xread", b"xreadgroup"):
        given = argv[lower.index(b"block") + 1] if b"block" in lower else b"1"
    else:
        given = argv[1] if name in (b"blmpop", b"bzmpop") else argv[-1]
    try:
        return float(given) == 0
    except ValueError:
        return False


class ServerBackend(Backend):
    """One database of a real Redis (or Valkey) server; all databases of one that we have started.

    Virtual time is made by moving deadlines, not by waiting: ``advance`` brings every deadline nearer. Scripts that
    read TIME do not see it (``sees_virtual_time`` is False), and the server's own clock goes on running besides.

    A user's database must be empty at the start; only this one database is ever cleared, and it is empty again at the
    end. What is cleared is what this backend made, provided that nobody else writes to that database meanwhile.
    """

    sees_virtual_time = False
    contains_scripts = True
    clock_runs = True

    def __init__(
        self,
        host: str,
        port: int,
        database: int = 0,
        username: str | None = None,
        password: str | None = None,
        process: ServerProcess | None = None,
        allows_cluster: bool = False,
    ) -> None:
        """Connect and check that the server can be used. ``process``, if given, is stopped on ``close``.

        Raises InputError when it cannot be reached or authenticated to, is older than 7.0, is part of a cluster (unless
        ``allows_cluster``), or when the database is not empty.
        """
        self.is_of_cluster = False
        self.credentials = username, password
        self.allows_cluster = allows_cluster
        self.place = f"redis://{host}:{port}/{database}"
        self._process = process
        self._offset_ms = 0
        self._may_clear = False
        self._address, self._database = (host, port), database
        self._further: list[Connection] = []
        self._connection = Connection(host, port)
        try:
            self._authenticate(username, password)
            self._check_version()
            if database:
                self._connection.demand(b"SELECT", b"%d" % database)
            self._check_empty(database)
            self._may_clear = True
        except InputError:
            self.close()
            raise

    @classmethod
    def from_url(cls, url: str, allows_cluster: bool = False) -> ServerBackend:
        """``redis://[[user]:password@]host[:port][/database]``; InputError when it is not that."""
        try:
            parts = urlsplit(url)
            database = int(parts.path.strip("/") or 0)
            host, port = parts.hostname, parts.port or 6379
        except ValueError:
            host, port, database, parts = None, 0, 0, urlsplit("")
        if parts.scheme != "redis" or not host or parts.query or parts.fragment:
            raise InputError(
                f"--backend {url}: not a server's address; write redis://HOST:PORT or redis://:PASSWORD@HOST:PORT/DB"
            )
        user, password = parts.username, parts.password
        user, password = unquote(user) if user else None, unquote(password) if password else None
        return cls(host, port, database, user, password, allows_cluster=allows_cluster)

    @classmethod
    def start(cls) -> ServerBackend:
        """Start a server of our own on a free loopback port; it ends with this backend."""
        process = ServerProcess()
        try:
            return cls(process.host, process.port, process=process)
        except InputError:
            process.stop()
            raise

    def _authenticate(self, username: str | None, password: str | None) -> None:
        if password is not None:
            self._connection.demand(b"AUTH", *([username.encode()] if username else []), password.encode())
        reply = self._connection.execute(b"PING")
        if isinstance(reply, ErrorReply):
            said = reply.message.decode(errors="replace")
            locked = said.startswith("NOAUTH")
            cure = "give the password: redis://:PASSWORD@HOST:PORT" if locked else "use another server"
            raise InputError(f"{self.place}: {said}; {cure}")

    def _check_version(self) -> None:
        information = self._connection.demand(b"INFO", b"server").decode(errors="replace")
        facts = dict(line.split(":", 1) for line in information.splitlines() if ":" in line)
        product = facts.get("server_name", "redis")
        version = facts.get("valkey_version") or facts.get("redis_version", "0")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise InputError(f"{self.place}: {product} {version} is older than {oldest}; {CURE}")
        self.is_of_cluster = facts.get("redis_mode") == "cluster"
        if self.is_of_cluster and not self.allows_cluster:
            raise InputError(f"{self.place}: a node of a cluster; give a server that runs alone, or use --backend auto")
        self._description = f"{product} {version} at {self.place.removeprefix('redis://').split('/')[0]}"

    def _check_empty(self, database: int) -> None:
        if self._connection.demand(b"DBSIZE"):
            raise InputError(
                f"{self.place}: database {database} is not empty and is left alone; "
                "name an empty one (redis://HOST:PORT/DB), or use --backend auto"
            )

    @property
    def now_ms(self) -> int:
        return self._moment(self._connection.demand(b"TIME"))

    def _moment(self, clock: Reply) -> int:
        seconds, microseconds = clock
        return int(seconds) * 1000 + int(microseconds) // 1000 + self._offset_ms

    def connect(self, name: bytes) -> Connection:
        further = Connection(*self._address)
        self._further.append(further)
        username, password = self.credentials
        if password is not None:
            further.demand(b"AUTH", *([username.encode()] if username else []), password.encode())
        if self._database:
            further.demand(b"SELECT", b"%d" % self._database)
        return further

    def execute_as(self, client: Connection, *argv: bytes) -> Reply:
        return client.execute(*argv)

    def execute(self, *argv: bytes) -> Reply:
        return self._connection.execute(*argv)

    def timed(self, client: Connection | None, *argv: bytes) -> tuple[Reply, tuple[int, int]]:
        """As of any backend, with the clock asked along: what its client sees of it comes milliseconds later."""
        commands = [(b"TIME",), argv, (b"TIME",)]
        before, reply, after = self.pipeline(commands) if client is None else client.pipeline(commands)
        return reply, (self._moment(before), self._moment(after))

    def block_as(self, client: Connection, *argv: bytes) -> Reply | ServerWait:
        """A command that may block, as this client: its reply, or the wait that has begun."""
        wait = ServerWait(client, b"%d" % client.demand(b"CLIENT", b"ID"), tuple(argv), is_endless(argv))
        client.send([argv])
        self.look_at([wait])
        return wait.reply if wait.is_over else wait

    def look_at(self, waits: Sequence[ServerWait]) -> None:
        """Receive the replies of waits that are over by now. Every other client is one that the server says is
        blocked."""
        until = time.monotonic() + BLOCKED_WITHIN_S
        for wait in waits:
            while not wait.is_over:
                # Before the look: it may be woken in between.
                told = self._connection.demand(b"CLIENT", b"LIST", b"ID", wait.number)
                if wait.client.has_input():
                    (wait.reply,), wait.is_over = wait.client.receive(1), True
                elif any(b"b" in field for field in told.split() if field.startswith(b"flags=")):
                    break
                elif time.monotonic() > until:
                    raise InputError(
                        f"{self.place}: {wait.argv[0].decode()} is neither answered nor blocked; see the server's log"
                    )

    def hang_up(self, wait: ServerWait) -> bool:
        """Close the connection of a client that waits, which is served nothing from now on."""
        # A server notices a closed socket later than the next command.
        self._connection.execute(b"CLIENT", b"KILL", b"ID", wait.number)
        wait.client.close()
        self._further = [one for one in self._further if one is not wait.client]
        return True

    def can_be_in(self, condition: Condition) -> bool:
        return bool(condition.enter)

    @contextmanager
    def imposed(self, condition: Condition, key: bytes = b"", before_call: int = 0, found: str = "") -> Iterator[None]:
        if not condition.enter:
            raise InputError(
                f"fault {condition.name}: {self.describe()} cannot be brought into it; use --backend kernel"
            )
        self.pipeline(condition.enter)
        try:
            yield
        finally:
            self.pipeline(condition.leave)

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        return self._connection.pipeline(commands)

    def keyspace(self) -> FrozenKeyspace:
        stored = (
            dump(self.pipeline, self.place)
            if self._process is None
            else dump_all(self.pipeline, self.place, self._databases())
        )
        if not self._offset_ms:
            return stored
        return {
            key: (kind, value, None if deadline_ms is None else deadline_ms + self._offset_ms)
            for key, (kind, value, deadline_ms) in stored.items()
        }

    def _databases(self) -> list[int]:
        """Those of the server that hold keys."""
        lines = self._connection.demand(b"INFO", b"keyspace").splitlines()
        return [int(line.partition(b":")[0].removeprefix(b"db")) for line in lines if line.startswith(b"db")]

    def load(self, keyspace: FrozenKeyspace) -> None:
        if self._process is None and any(isinstance(name, DatabaseKey) for name in keyspace):
            raise InputError(
                f"{self.place}: the store keeps keys in several databases, and only the one that is named may be "
                "changed; use --backend auto"
            )
        self.flush()
        check_all(self.pipeline(rebuild(keyspace, self._offset_ms)), self.place)

    def flush(self) -> None:
        self._connection.demand(b"FLUSHDB" if self._process is None else b"FLUSHALL")

    def advance(self, ms: int) -> None:
        """Bring every deadline nearer by ``ms``; keys whose deadline passes are gone. TIME inside scripts stays."""
        if self._process is None:
            self._bring_nearer(ms)
        else:
            for index in self._databases():
                self._connection.demand(b"SELECT", b"%d" % index)
                self._bring_nearer(ms)
            self._connection.demand(b"SELECT", b"0")
        self._offset_ms += ms

    def _bring_nearer(self, ms: int) -> None:
        keys = self._connection.demand(b"KEYS", b"*")
        deadlines_ms = self.pipeline([(b"PEXPIRETIME", key) for key in keys])
        self.pipeline(
            [
                (b"PEXPIREAT", key, b"%d" % (deadline_ms - ms))
                for key, deadline_ms in zip(keys, deadlines_ms, strict=True)
                if deadline_ms >= 0
            ]
        )

    def describe(self) -> str:
        return self._description

    def close(self) -> None:
        if self._may_clear and self._process is None:
            self._may_clear = False
            with suppress(InputError):  # a server that went away has nothing of ours left to clear
                self.flush()
        for one in (*self._further, self._connection):
            one.close()
        if self._process is not None:
            self._process.stop()


class ClusterBackend(ServerBackend):
    """The masters of a cluster that the user runs, which must all be empty: a command goes where its keys live, what
    names no key (scripts to load, settings) goes to all. Slots may move meanwhile."""

    has_connections = False

    def __init__(self, node: ServerBackend) -> None:
        """``node``: any of the cluster's masters. Raises InputError when one of them cannot be used."""
        load_commands()  # which tell the keys of a call
        self.nodes: dict[bytes, ServerBackend] = {}
        self._offset_ms = 0
        self._process = None
        self.place = node.place
        host = urlsplit(node.place).hostname or ""
        try:
            for _, _, (named, port, *_), *_ in node.execute(b"CLUSTER", b"SLOTS"):
                place = named.decode() if named not in (b"", b"?", None) else host
                address = b"%b:%d" % (place.encode(), port)
                if address not in self.nodes:
                    self.nodes[address] = ServerBackend(place, port, 0, *node.credentials, allows_cluster=True)
            if not self.nodes:
                raise InputError(
                    f"{self.place}: a cluster without slots; assign them (redis-cli --cluster create), or use "
                    "--backend auto"
                )
        except InputError:
            self.close()
            raise
        finally:
            node.close()
        self._client = RedirectingClient(self.nodes)
        version = next(iter(self.nodes.values())).describe().split(" at ")[0]
        self._description = (
            f"{version} cluster of {len(self.nodes)} masters at {self.place.removeprefix('redis://').split('/')[0]}"
        )

    @property
    def now_ms(self) -> int:
        return next(iter(self.nodes.values())).now_ms

    def connect(self, name: bytes) -> Connection:
        return Backend.connect(self, name)  # type: ignore[no-any-return]  # which of the nodes would it be?

    def execute(self, *argv: bytes) -> Reply:
        command = find(argv)
        if command is None or argv[0].lower() in ONE_NODE or (command.admits(len(argv)) and command.find_keys(argv)):
            return self._client.execute(*argv)
        first, *_ = [node.execute(*argv) for node in self.nodes.values()]
        return first

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        return [self.execute(*argv) for argv in commands]

    def keyspace(self) -> FrozenKeyspace:
        return {key: held for node in self.nodes.values() for key, held in node.keyspace().items()}

    def load(self, keyspace: FrozenKeyspace) -> None:
        self.flush()
        check_all(self.pipeline(rebuild(keyspace, self._offset_ms)), self.place)

    def flush(self) -> None:
        for node in self.nodes.values():
            node.flush()

    def advance(self, ms: int) -> None:
        """As on one server, on each."""
        for node in self.nodes.values():
            node.advance(ms)
        self._offset_ms += ms

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


ONE_NODE = (b"eval", b"evalsha", b"eval_ro", b"evalsha_ro", b"fcall", b"fcall_ro")
"""Carried out once even where they name no key."""
