"""A Redis server that was started here ends when this process is killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_server_does_not_outlive_who_started_it() -> None:
    program = (
        "import time\n"
        "from orderlab.sim.live import ServerProcess\n"
        "server = ServerProcess()\n"
        "print(server.port, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            parent.kill()
            connection.settimeout(600)
            # A dying server closes the connection (end of stream) or, with something of ours unread, resets it.
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
