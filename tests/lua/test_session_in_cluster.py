"""lua/session and lua/pending in a real Redis Cluster: any client, and a slot that moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orderlab.sim.redis.hash_slots import hash_slot, hash_slots
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding import (
    Binding,
    Cleared,
    Message,
    Opened,
    Removed,
    Result,
    Saved,
    ScriptCall,
    load_binding,
)
from tests.laboratory.live_cluster import ClusterProcess

pytestmark = pytest.mark.server

LUA = Path(__file__).parents[2] / "lua"
HOSTILE = [
    b"dev-7",
    b"",
    b"}",
    b"{",
    b"{}",
    b"}{",
    b"}x",
    b"{x",
    b"a}b{c",
    b"\x00",
    b"\xff\xfe",
    "grün".encode(),
    b"c" * 65_535,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterProcess]:
    with ClusterProcess() as made:
        yield made


@pytest.fixture(params=["session", "pending"])
def binding(request: pytest.FixtureRequest, cluster: ClusterProcess) -> Binding:
    cluster.flush()
    loaded: Binding = load_binding(LUA / request.param)
    return loaded


def call_of(binding: Binding, operation: str, client: bytes, **fields: object) -> ScriptCall:
    call = binding.call(operation, client=client, **fields)
    assert isinstance(call, ScriptCall)
    return call


def perform(binding: Binding, node: Connection, operation: str, client: bytes, **fields: object) -> Result:
    reply = node.execute(*call_of(binding, operation, client, **fields).argv_with_source)
    return binding.decode(operation, reply, fields)


@pytest.mark.parametrize("client", HOSTILE, ids=[repr(client)[:12] for client in HOSTILE])
def test_all_keys_of_any_client_are_in_one_slot(cluster: ClusterProcess, binding: Binding, client: bytes) -> None:
    keys = call_of(binding, "open", client).keys
    (slot,) = hash_slots(keys)
    node = cluster.nodes[cluster.owner(slot)]
    messages = [Message(b"a", b"t", 2)]
    assert perform(binding, node, "open", client, epoch=1) == Opened(False, 1)
    saved = perform(binding, node, "save", client, epoch=1, messages=messages)
    assert isinstance(saved, Saved)
    assert saved.first == 1
    if "release" in binding.operations:
        assert perform(binding, node, "release", client, packet_id=1, sequence=1) == Removed(1)
    assert perform(binding, node, "acknowledge", client, packet_id=1, sequence=1) == Removed(1)
    assert perform(binding, node, "clear", client) == Cleared(1)
    assert node.execute(b"DBSIZE") == 0


def test_two_clients_never_share_a_key(binding: Binding) -> None:
    owners: dict[bytes, bytes] = {}
    for client in HOSTILE:
        for key in call_of(binding, "open", client).keys:
            assert owners.setdefault(key, client) == client


def test_a_slot_that_moves(cluster: ClusterProcess, binding: Binding) -> None:
    """Before its keys have moved a session is served in full; a call that is refused has changed nothing."""
    client, other = b"dev-7", b"dev-7}other"  # a tag ends at the first brace: both are in one slot
    keys = call_of(binding, "open", client).keys
    slot = hash_slot(keys[0])
    assert hash_slots(call_of(binding, "open", other).keys) == {slot}
    source = cluster.owner(slot)
    target = (source + 1) % 3
    node = cluster.nodes[source]
    perform(binding, node, "open", client, epoch=1)
    cluster.begin_migration(slot, source, target)
    try:
        for number in range(1, 4):  # the queue is emptied and filled again while the slot moves
            saved = perform(binding, node, "save", client, epoch=1, batch=number, messages=[Message(b"a")])
            assert isinstance(saved, Saved)
            assert saved.first == number
            assert perform(binding, node, "acknowledge", client, packet_id=number, sequence=number) == Removed(1)
        assert perform(binding, node, "open", client, epoch=2, clean_start=1) == Opened(False, 2)

        refused = node.execute(*call_of(binding, "open", other, epoch=1).argv_with_source)
        assert isinstance(refused, ErrorReply)
        assert refused.message.startswith(b"ASK ")
        cluster.migrate_keys(source, target, keys[0])
        halfway = node.execute(*call_of(binding, "save", client, epoch=2, messages=[Message(b"b")]).argv_with_source)
        assert isinstance(halfway, ErrorReply)
        assert halfway.message.startswith((b"TRYAGAIN ", b"ASK "))
        cluster.migrate_keys(source, target, *keys[1:])
        cluster.end_migration(slot, source, target)
    except BaseException:
        cluster.cancel_migration(slot, source, target)
        raise
    moved = cluster.nodes[target]
    saved = perform(binding, moved, "save", client, epoch=2, messages=[Message(b"b")])
    assert isinstance(saved, Saved)
    assert saved.first == 1
    assert sum(one.execute(b"DBSIZE") for one in cluster.nodes) == len(keys)
