"""A real PostgreSQL server as a child process: found, started on a private socket in a temporary folder, killed and
started again, ended by its own process ids.

It is looked for on PATH, then where Debian puts it. initdb refuses root, so that root hands server and folder to an
unprivileged user. ``fsync`` is off: what is tested is the end of all its processes, after which the operating system
still has what they wrote, and not the end of the machine.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from orderlab.child import dying_with_parent
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    import psycopg

DEBIAN = Path("/usr/lib/postgresql")
CURE = "install one: `apt-get install postgresql`"
USERS = ("postgres", "nobody")
"""Whom root starts the server as: the first that there is."""
TIMEOUT_S = 60.0
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "wal_buffers": "4MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "16",
    "checkpoint_timeout": "1h",
    "wal_writer_delay": "10s",
}
"""Nothing writes the log but commits, and the log's writer, which a test can hold."""


def find_programs() -> Path:
    """The folder with ``initdb`` and ``postgres``. Raises InputError, with the command that installs them, when there
    is none."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(
        DEBIAN.glob("*/bin"),
        key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)],
        reverse=True,
    )
    for folder in folders:
        if os.access(folder / "initdb", os.X_OK) and os.access(folder / "postgres", os.X_OK):
            return folder
    raise InputError(f"no PostgreSQL server: none on PATH or in {DEBIAN}; {CURE}")


class PostgresProcess:
    """One running server; a context manager. ``stop`` ends it, and is idempotent."""

    def __init__(self) -> None:
        """Make a cluster of databases, start a server on it, and wait until it answers. Raises InputError when it does
        not."""
        self.programs = find_programs()
        self._folder = tempfile.TemporaryDirectory(prefix="orderlab-postgres-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, Any] = {}
        try:
            if os.geteuid() == 0:
                user = self._unprivileged()
                os.chown(self.folder, user.pw_uid, user.pw_gid)
                self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            self._initialise()
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def folder(self) -> str:
        """Where its socket is."""
        return self._folder.name

    @property
    def _data(self) -> str:
        return os.path.join(self.folder, "data")

    @staticmethod
    def _unprivileged() -> pwd.struct_passwd:
        for name in USERS:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise InputError(
            f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}; run as another user"
        )

    def _initialise(self) -> None:
        command = [
            str(self.programs / "initdb"),
            "-D",
            self._data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as_user)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise InputError(f"{command[0]}: {lines[-1] if lines else 'it failed'}; try {CURE}")
        with open(os.path.join(self._data, "postgresql.conf"), "a") as file:
            file.writelines(
                f"{name} = '{value}'\n" for name, value in {**SETTINGS, "unix_socket_directories": self.folder}.items()
            )

    def _start(self) -> None:
        log = os.path.join(self.folder, "log")
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.folder,
                start_new_session=True, preexec_fn=dying_with_parent(), **self._as_user,
            )  # fmt: skip
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.connect().close()
                return
            except _driver().OperationalError:
                time.sleep(0.02)
        lines = Path(log).read_text(errors="replace").splitlines()
        raise InputError(
            f"{self.programs / 'postgres'}: the server did not start ({lines[-1] if lines else 'no log'}); try {CURE}"
        )

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of its own; statements commit themselves outside of ``transaction()``."""
        connection: psycopg.Connection[Any] = _driver().connect(
            host=self.folder, user="postgres", dbname="postgres", autocommit=True
        )
        return connection

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        assert self._process is not None, "the server was stopped"
        return self._process.pid

    def hold_log_writer(self) -> None:
        """Stop the process that writes the log behind commits which do not wait for it: from now on only commits that
        wait do."""
        with self.connect() as connection:
            found = connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").fetchall()
        for (pid,) in found:
            os.kill(pid, signal.SIGSTOP)

    def crash(self) -> None:
        """Kill the postmaster and all its children: what is only in their memory is gone."""
        children = self._children()
        self._kill()
        for pid in children:
            _kill(pid)
        deadline = time.monotonic() + TIMEOUT_S
        while any(map(_is_running, children)) and time.monotonic() < deadline:
            time.sleep(0.005)

    def restart(self) -> None:
        """Serve again after a crash: recovery replays the log."""
        self._start()

    def stop(self) -> None:
        """End the server and remove its folder."""
        if self._process is not None:
            self.crash()  # nothing to save: it holds no data that outlives it
        self._folder.cleanup()

    def _children(self) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == self.pid:
                found.append(int(process.name))
        return found

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> PostgresProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _driver() -> Any:
    import psycopg

    return psycopg


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_running(pid: int) -> bool:
    """Whether the process is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
