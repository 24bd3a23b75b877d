"""A file of users (``orderlab serve --acl-file``), read and written as a server does with ``aclfile``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.acl_file import read_users
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode
from tests.in_process import orderlab
from tests.laboratory.conformance.bytes_on_wire import RawConnection
from tests.sim.redis.wire.test_later_servers import said

FILES = {
    "one more user": "user default on nopass ~* &* +@all\nuser u on >pw ~k* +get\n",
    "no default user": "  user b on nopass +get ~* \r\n\nuser c on\n",
    "a default user of few rights": "user default on nopass ~k* +acl\n",
    "a selector": "user d on (+get ~x)\nuser e off (+@read ~a ~b) -@all\n",
    "no rules": "user f\n",
    "nothing": "",
    "an unknown command": "user u on >pw ~k* +gett\n",
    "another word": "usr x on\nuser\n",
    "a comment": "\n# c\nuser a on\n",
    "a user twice": "user a on\nuser a off\n",
    "several mistakes": "user a b on +@all c\nuser default on ~*\nuser q on ~k* foo\nuser r +zork +x\n",
    "a name with quotes": 'user "a b" on\n',
    "spaces in a row": "user  a on\nuser b  on\n",
    "no hash": "user a on #12\n",
}
ASKED = ["ACL LOAD", "ACL LIST", "ACL WHOAMI", "GET k", "GET x", "ACL USERS"]


@pytest.fixture(scope="module")
def background() -> Iterator[InBackground]:
    with InBackground() as background:
        yield background


def serve(background: InBackground, file: Path) -> int:
    def made() -> ServedNode:
        node = ServedNode()
        node.server_settings.note(b"aclfile", str(file).encode())
        node.permissions.install(read_users(str(file).encode()))
        return node

    return background.serve(made).port


@pytest.mark.server
def test_files_are_read_and_written_as_by_a_server(background: InBackground, tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("user default on nopass ~* &* +@all\n")
    with ServerProcess({"aclfile": str(file)}) as process:
        ports = serve(background, file), process.port
        for what, text in FILES.items():
            file.write_text(text)
            ours, theirs = (said(port, ASKED) for port in ports)
            assert ours == theirs, what
            saved = []
            for port in ports:
                said(port, ["ACL SETUSER z on +get", "ACL SAVE"])
                saved.append(file.read_text())
            assert saved[0] == saved[1], what
            file.write_text("user default on nopass ~* &* +@all\n")
            assert {said(port, ["ACL LOAD"])[0] for port in ports} == {b"+OK\r\n"}
        file.unlink()
        assert len({said(port, ["ACL LOAD"])[0] for port in ports}) == 1
        assert len({said(port, ["CONFIG GET aclfile"])[0] for port in ports}) == 1


@pytest.mark.server
def test_connections_of_users_are_closed_but_those_of_the_default_one(background: InBackground, tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("user u on nopass ~* +@all\nuser v on nopass +ping\n")
    with ServerProcess({"aclfile": str(file)}) as process:
        for port in (serve(background, file), process.port):
            users, usual = RawConnection("127.0.0.1", port), RawConnection("127.0.0.1", port)
            users.send(b"AUTH v x\r\n")
            assert users.replies(1) == [b"+OK\r\n"]
            usual.send(b"PING\r\nACL LOAD\r\nPING\r\n")
            assert usual.replies(3) == [b"+PONG\r\n", b"+OK\r\n", b"+PONG\r\n"]
            users.send(b"PING\r\n")
            with pytest.raises((EOFError, ConnectionError)):
                users.replies(1)
            usual.send(b"AUTH u x\r\nACL LOAD\r\n")
            assert usual.replies(2) == [b"+OK\r\n", b"+OK\r\n"]
            with pytest.raises((EOFError, ConnectionError)):
                usual.replies(1)


def test_a_selector_without_an_end_is_told_and_ends_no_node(tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("user e on (+get ~x\n")
    with pytest.raises(ErrorReply) as told:
        read_users(str(file).encode())
    assert b":1: Unmatched parenthesis in selector definition starting at '(+get'." in told.value.message


def test_a_file_that_no_server_would_start_with_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("usr x\n")
    for more, said_ in (((), "1 should start with user keyword"), (("--password", "x"), "leave out --password")):
        ended = orderlab("serve", "--port", "0", "--acl-file", file, *more)
        assert ended.returncode == 2
        assert said_ in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
    assert "opening file" in orderlab("serve", "--port", "0", "--acl-file", tmp_path / "none").stderr
