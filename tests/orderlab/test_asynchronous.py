"""Commands that serve end where they are asked to, whatever the event loop is at."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from orderlab.exit_codes import Terminated, run_asynchronously
from orderlab.sim.redis.wire import Connection


@pytest.fixture
def raising() -> Iterator[None]:
    """SIGTERM raises, as in a command."""

    def terminate(number: int, frame: object) -> None:
        raise Terminated(number)

    before = signal.signal(signal.SIGTERM, terminate)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("raising")
def test_a_signal_within_a_callback_of_the_loop_ends_the_work() -> None:
    ended = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(20)
        finally:
            ended.append(True)

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as raised:
        run_asynchronously(work())
    assert raised.value.args == (signal.SIGTERM,)
    assert ended
    assert signal.getsignal(signal.SIGTERM) is handler


def test_work_that_ends_by_itself_tells_its_result_and_its_error() -> None:
    async def result() -> int:
        return 7

    async def error() -> int:
        raise ValueError("no")

    assert run_asynchronously(result()) == 7
    with pytest.raises(ValueError, match="no"):
        run_asynchronously(error())


def test_a_served_node_that_is_at_work_ends_by_sigterm() -> None:
    command = [sys.executable, "-m", "orderlab", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        port = int(served.stdout.readline().partition(" (")[0].split(":")[-1].split()[0])
        connection = Connection("127.0.0.1", port)
        connection.pipeline([[b"SET", b"k", b"v"]] * 500)
        served.terminate()
        assert served.wait(300) == 128 + signal.SIGTERM
        connection.close()
