"""A real MQTT broker as a child process: started on a free loopback port, killed, and started again on what it kept."""

from __future__ import annotations

import getpass
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from orderlab.child import dying_with_parent
from orderlab.model.errors import InputError
from orderlab.sim.live import free_port

START_TIMEOUT_S = 20.0
CURE = "install one (`apt-get install mosquitto`), or name a broker that runs with --broker HOST:PORT"
MOSQUITTO = """listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
log_dest file {folder}/log
user {user}
"""
"""Sessions and what they are owed are saved after each change, and no queue has a limit. Without the user a broker that
root starts becomes another one, who may not write there."""


def mosquitto_binary() -> str:
    """Where Mosquitto is. Raises InputError where it is not."""
    places = (shutil.which("mosquitto"), "/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto")
    for place in places:
        if place and Path(place).exists():
            return place
    raise InputError(f"mosquitto: no such program; {CURE}")


class BrokerProcess:
    """One broker; a context manager. ``command``: `mosquitto`, or words with {port} (and {folder}) in them."""

    host = "127.0.0.1"

    def __init__(self, command: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="orderlab-broker-", ignore_cleanup_errors=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._words = self._words_of(command)
            self.start()
        except BaseException:
            self.stop()
            raise

    def _words_of(self, command: str) -> list[str]:
        places = {"port": str(self.port), "folder": self._directory.name}
        if command != "mosquitto":
            if "{port}" not in command:
                raise InputError(f"--start {command}: no {{port}} in it; write it where the command takes its port")
            return [word.replace("{port}", places["port"]).replace("{folder}", places["folder"])
                    for word in shlex.split(command)]  # fmt: skip
        configuration = Path(self._directory.name, "broker.conf")
        configuration.write_text(MOSQUITTO.format(**places, user=getpass.getuser()))
        return [mosquitto_binary(), "-c", str(configuration)]

    def start(self) -> None:
        """Start it, on what it kept. Raises InputError where it does not come up."""
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )
        except OSError as error:
            raise InputError(f"--start {self._words[0]}: {error.strerror or error}; {CURE}") from None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise InputError(f"{self._words[0]}: the broker did not start on port {self.port}; try it by hand")

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End it and remove what it kept."""
        self.kill()
        self._directory.cleanup()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
