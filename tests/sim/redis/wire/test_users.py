"""ACL: what users of a served node may do, held against a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orderlab.sim.redis.replies import OK
from orderlab.sim.redis.wire import Connection
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode
from tests.laboratory.conformance.users import compare


@pytest.mark.server
def test_generated_rules_and_calls_are_a_servers() -> None:
    count, differences = compare(rounds=8, seed=1)
    assert count > 200
    assert not differences


@pytest.mark.server
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
def test_many_generated_rules_and_calls_are_a_servers(seed: int) -> None:
    _, differences = compare(rounds=60, seed=seed)
    assert not differences


@pytest.fixture
def node() -> Iterator[ServedNode]:
    with InBackground() as background:
        yield background.serve(ServedNode)


def said(connection: Connection, *lines: str) -> list[object]:
    return [connection.execute(*line.encode().split(b" ")) for line in lines]


def test_a_script_runs_with_the_rights_of_its_caller(node: ServedNode) -> None:
    owner, worker = (Connection("127.0.0.1", node.port) for _ in range(2))
    said(owner, "ACL SETUSER worker on >pw ~job:* +@read +eval +incr")
    said(worker, "AUTH worker pw")
    replies = [
        repr(worker.execute(b"EVAL", b"return redis.call(KEYS[1], ARGV[1])", b"1", name, key))
        for name, key in ((b"incr", b"job:1"), (b"incr", b"other"), (b"del", b"job:1"))
    ]
    assert "NOPERM" in replies[0]  # KEYS[1] is no key of the worker's
    script = b"return redis.call(ARGV[1], ARGV[2])"
    replies = [
        repr(worker.execute(b"EVAL", script, b"0", name, key))
        for name, key in ((b"incr", b"job:1"), (b"incr", b"other"), (b"del", b"job:1"))
    ]
    assert replies[0] == "1"
    assert "can't access at least one of the keys" in replies[1]
    assert "can't run this command" in replies[2]
    said(owner, "ACL SETUSER worker ~* +del")
    assert worker.execute(b"EVAL", script, b"0", b"del", b"job:1") == 1


def test_who_may_do_everything_is_never_asked(node: ServedNode) -> None:
    owner, other = (Connection("127.0.0.1", node.port) for _ in range(2))
    said(owner, "PING", "ACL SETUSER all on nopass +@all ~* &*", "ACL SETUSER some on nopass +@all ~x &*")
    guards = []
    for user in ("all", "some"):
        said(other, f"AUTH {user} x")
        guards.append([each.guard is None for each in node.connections])
    assert guards == [[True, True], [True, False]]


def test_no_fault_without_a_password_or_all_rights(node: ServedNode) -> None:
    owner, other = (Connection("127.0.0.1", node.port) for _ in range(2))
    said(owner, "ACL SETUSER some on nopass +@all ~x &*", "CONFIG SET requirepass secret")
    late = Connection("127.0.0.1", node.port)
    replies = [repr(late.execute(b"ORDERLAB", b"noscript"))]
    said(other, "AUTH some x")
    replies.append(repr(other.execute(b"ORDERLAB", b"noscript")))
    assert all("unknown command" in reply for reply in replies)
    assert owner.execute(b"ORDERLAB", b"noscript") == OK
