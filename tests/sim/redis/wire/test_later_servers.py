"""What connections say to servers after Redis 7.0, and who may call DEBUG, held against those servers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess, read_version
from orderlab.sim.redis.versions import VERSIONS
from orderlab.sim.redis.wire import encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.lacking import fixed_settings, lacking_commands
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings
from tests.laboratory.conformance.bytes_on_wire import RawConnection
from tests.sim.redis.test_version_conformance import server_of

OF_ONE_PROCESS = re.compile(
    rb"(id|addr|laddr|fd|age|qbuf|qbuf-free|argv-mem|multi-mem|obl|omem|events|rbs|rbp|tot-mem|tot-\S+|io-thread)=\S+|capa="
)
CONNECTION = [
    "CLIENT SETINFO", "CLIENT SETINFO lib-name foo", "CLIENT SETINFO lib-name b\x01b", "CLIENT SETINFO LIB-Ver 1\x7f",
    "CLIENT SETINFO LIB-VER 1.2", "CLIENT SETINFO bad x", "CLIENT NO-TOUCH", "CLIENT NO-TOUCH foo", "CLIENT INFO",
    "CLIENT NO-TOUCH on", "CLIENT NO-EVICT on", "CLIENT INFO", "RESET", "CLIENT INFO", "MULTI",
    "CLIENT SETINFO lib-ver 2", "CLIENT NO-TOUCH ON", "EXEC", "WATCH a b", "CLIENT INFO", "UNWATCH",
]  # fmt: skip
USE = [
    "CONFIG SET maxmemory-policy allkeys-lfu", "CONFIG SET maxmemory 1gb", "CONFIG SET lfu-log-factor 0", "SET k v",
    "CLIENT NO-TOUCH ON", "GET k", "OBJECT FREQ k", "TOUCH k", "OBJECT FREQ k",
    "EVAL return(redis.call('get',KEYS[1])) 1 k", "OBJECT FREQ k", "EVAL return(redis.call('touch',KEYS[1])) 1 k",
    "OBJECT FREQ k", "CLIENT NO-TOUCH OFF", "GET k", "OBJECT FREQ k", "CONFIG SET maxmemory 0",
    "HSET h f 1", "HSCAN h 0 NOVALUES", "XADD s 1-1 a 1", "XREAD STREAMS s +",
]  # fmt: skip
USERS = [
    "ACL SETUSER u on nopass ~k* +@all -@dangerous -@write", "ACL SETUSER w on nopass ~* +@read", "AUTH u x",
    "CLIENT SETINFO lib-name x", "CLIENT NO-TOUCH off", "HTTL k FIELDS 1 f", "HTTL x FIELDS 1 f",
    "HEXPIRE k 9 FIELDS 1 f", "AUTH w x", "CLIENT SETINFO lib-name x", "HPTTL x FIELDS 1 f", "AUTH u x",
    "EVAL return(redis.pcall('get','x')) 0", "EVAL return(redis.pcall('set','k','x')) 0", "GET x", "AUTH default x",
    "ACL DRYRUN u get x", "ACL DRYRUN w set x 1", "ACL SETUSER w resetchannels +publish +eval",
    "ACL DRYRUN w publish c 1", "AUTH w x", "PUBLISH c 1", "EVAL return(redis.pcall('publish','c','x')) 0",
]  # fmt: skip
SCRIPTS = [
    "EVAL return(redis.pcall('client','setinfo','lib-name','x')) 0",
    "EVAL return(redis.pcall('client','no-touch','on')) 0", "client|setinfo lib-ver 2",
]  # fmt: skip


@pytest.fixture(scope="module")
def background() -> Iterator[InBackground]:
    with InBackground() as background:
        yield background


def said(port: int, lines: list[str]) -> list[bytes]:
    """The replies to commands on one connection, without what is a fact of one process."""
    connection = RawConnection("127.0.0.1", port)
    connection.send(b"".join(encode_command(line.encode().split(b" ")) for line in lines))
    try:
        return [OF_ONE_PROCESS.sub(b"", reply) for reply in connection.replies(len(lines))]
    finally:
        connection.close()


def without_length(reply: bytes) -> bytes:
    """What CLIENT INFO says, whose length depends on what was taken out of it."""
    return b" ".join(re.sub(rb"^\$\d+\r\n", b"", reply).replace(b"multi=0", b"multi=-1").split())


@pytest.mark.server
@pytest.mark.parametrize("name", ["6.2", "7.0", "7.4", "8.0", "valkey-8"])
def test_what_a_connection_says_of_itself_is_taken_as_by_that_server(background: InBackground, name: str) -> None:
    path = None if name == "7.0" else server_of(name)
    if path is None and name != "7.0":
        pytest.skip(f"{VERSIONS[name]} was not compared: no such server; ORDERLAB_SERVERS names the folder of one")
    node = background.serve(lambda: ServedNode(ServeSettings(version=VERSIONS[name])))
    with ServerProcess(binary=read_version(path)) if path else ServerProcess() as process:
        # Of 6.2 the line of CLIENT INFO, and when a wrong subcommand is queued, are not imitated.
        for lines in (CONNECTION[:8], SCRIPTS) if name == "6.2" else (CONNECTION, USE, USERS, SCRIPTS):
            for line, ours, theirs in zip(lines, said(node.port, lines), said(process.port, lines), strict=True):
                assert without_length(ours) == without_length(theirs), (line, ours, theirs)


def test_what_a_connection_said_of_its_library_is_listed(background: InBackground) -> None:
    node = background.serve(lambda: ServedNode(ServeSettings(version=VERSIONS["7.2"])))
    replies = said(node.port, ["CLIENT SETINFO LIB-NAME lettuce", "CLIENT NO-TOUCH ON", "CLIENT INFO"])
    assert replies[:2] == [b"+OK\r\n", b"+OK\r\n"]
    assert b" lib-name=lettuce lib-ver=\n" in replies[2]
    assert b" flags=T " in replies[2]
    assert b"watch=" not in replies[2]


@pytest.mark.server
def test_debug_is_refused_where_a_server_refuses_it(background: InBackground) -> None:
    lines = [
        "DEBUG", "DEBUG SLEEP 0", "DEBUG NOPE", "CONFIG GET enable-debug-command", "CONFIG SET io-threads 1",
        "CONFIG SET enable-debug-command yes", "CONFIG SET logfile x", "MULTI", "DEBUG SLEEP 0", "EXEC", "PING",
    ]  # fmt: skip
    for who in ("no", "local", "yes"):
        node = background.serve(lambda who=who: ServedNode(ServeSettings(debug=who)))  # type: ignore[misc]
        with ServerProcess({"enable-debug-command": who}) as process:
            assert said(node.port, lines) == said(process.port, lines), who
    old = background.serve(lambda: ServedNode(ServeSettings(debug="no", version=VERSIONS["6.2"])))
    assert said(old.port, ["DEBUG SLEEP 0"]) == [b"+OK\r\n"], "6.2 has no such directive"


def test_what_is_lacking_names_subcommands_of_debug_and_no_setting_that_servers_fix() -> None:
    assert {"DEBUG DIGEST", "DEBUG POPULATE", "CLIENT TRACKING"} <= set(lacking_commands())
    assert not {"DEBUG SLEEP", "DEBUG RELOAD", "DEBUG"} & set(lacking_commands())
    assert "tcp-backlog" not in fixed_settings()
