"""A kernel cluster: a slot on the move, what each node answers on the way, and a client that is redirected."""

from __future__ import annotations

import pytest

from orderlab.sim.redis.cluster import Cluster, RedirectingClient
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.replies import ErrorReply
from tests.laboratory.live_cluster import ClusterProcess

KEY = b"{a}1"
SLOT = hash_slot(KEY)


def client_of(cluster: Cluster | ClusterProcess) -> RedirectingClient:
    return RedirectingClient({cluster.address(index).encode(): node for index, node in enumerate(cluster.nodes)})


@pytest.fixture
def kernel() -> Cluster:
    return Cluster()


def test_each_slot_has_one_owner_and_all_nodes_know(kernel: Cluster) -> None:
    views = [node.execute(b"CLUSTER", b"SLOTS") for node in kernel.nodes]
    assert views[0] == views[1] == views[2]
    assert [(first, last) for first, last, _ in views[0]] == [(0, 5460), (5461, 10921), (10922, 16383)]


def test_a_client_reaches_every_key(kernel: Cluster) -> None:
    client = client_of(kernel)
    for number in range(50):
        assert client.execute(b"SET", b"key %d" % number, b"%d" % number) == b"OK"
    assert [client.execute(b"GET", b"key %d" % number) for number in range(50)] == [b"%d" % n for n in range(50)]
    assert sum(node.execute(b"DBSIZE") for node in kernel.nodes) == 50
    assert all(node.execute(b"DBSIZE") for node in kernel.nodes)


def test_a_client_follows_a_key_that_has_moved_ahead_of_its_slot(kernel: Cluster) -> None:
    client = client_of(kernel)
    source, target = kernel.owner(SLOT), (kernel.owner(SLOT) + 1) % 3
    client.execute(b"SET", KEY, b"old")
    client.execute(b"PEXPIREAT", KEY, b"5000")
    kernel.begin_migration(SLOT, source, target)
    assert client.execute(b"GET", KEY) == b"old"
    kernel.migrate_keys(source, target, KEY, b"{a}none")
    assert kernel.nodes[source].execute(b"GET", KEY) == ErrorReply(
        b"ASK %d %b" % (SLOT, kernel.address(target).encode())
    )
    assert client.execute(b"GET", KEY) == b"old"
    assert client.execute(b"PEXPIRETIME", KEY) == 5000
    assert client.execute(b"SET", b"{a}2", b"new") == b"OK"
    assert kernel.nodes[target].execute(b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % SLOT) == 2
    kernel.end_migration(SLOT, source, target)
    assert kernel.nodes[source].execute(b"GET", KEY) == ErrorReply(
        b"MOVED %d %b" % (SLOT, kernel.address(target).encode())
    )
    assert client.execute(b"MGET", KEY, b"{a}2") == [b"old", b"new"]


def test_asking_holds_for_one_command_or_one_transaction(kernel: Cluster) -> None:
    source, target = kernel.owner(SLOT), (kernel.owner(SLOT) + 1) % 3
    kernel.begin_migration(SLOT, source, target)
    node = kernel.nodes[target]

    def moved(reply: object) -> bool:
        return isinstance(reply, ErrorReply) and reply.message.startswith(b"MOVED")

    assert moved(node.execute(b"GET", KEY))
    assert node.execute(b"ASKING") == b"OK"
    assert node.execute(b"GET", KEY) is None
    assert moved(node.execute(b"GET", KEY))
    node.execute(b"ASKING")
    assert [node.execute(*argv) for argv in ((b"MULTI",), (b"SET", KEY, b"x"), (b"GET", KEY), (b"EXEC",))] == [
        b"OK",
        b"QUEUED",
        b"QUEUED",
        [b"OK", b"x"],
    ]
    assert moved(node.execute(b"GET", KEY))


def test_a_slot_is_not_given_away_while_keys_are_left(kernel: Cluster) -> None:
    source, target = kernel.owner(SLOT), (kernel.owner(SLOT) + 1) % 3
    kernel.nodes[source].execute(b"SET", KEY, b"x")
    kernel.begin_migration(SLOT, source, target)
    with pytest.raises(ErrorReply, match="while I still hold keys for this hash slot"):
        kernel.end_migration(SLOT, source, target)


def test_the_new_owner_is_believed_only_after_gossip_and_the_old_one_drops_its_keys(kernel: Cluster) -> None:
    source, target = kernel.owner(SLOT), (kernel.owner(SLOT) + 1) % 3
    kernel.nodes[source].execute(b"SET", KEY, b"x")
    kernel.begin_migration(SLOT, source, target)
    kernel.set_slot(target, SLOT, b"NODE", kernel.ids[target])
    assert kernel.nodes[source].execute(b"GET", KEY) == b"x", "two nodes serve the slot: the source has not heard yet"
    kernel.gossip()
    assert kernel.nodes[source].execute(b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % SLOT) == 0
    assert all(kernel.slots(index).owners[SLOT] == kernel.ids[target] for index in range(3))


def test_a_cancelled_migration_leaves_the_slot_where_it_was(kernel: Cluster) -> None:
    source, target = kernel.owner(SLOT), (kernel.owner(SLOT) + 1) % 3
    kernel.begin_migration(SLOT, source, target)
    kernel.cancel_migration(SLOT, source, target)
    assert kernel.nodes[source].execute(b"GET", KEY) is None
    assert not kernel.slots(source).migrating
    assert not kernel.slots(target).importing


def test_redirections_end(kernel: Cluster) -> None:
    """Two nodes that each believe in the other send a client round; it gives up with the last word that it heard."""
    for index, other in ((0, 1), (1, 0)):
        kernel.slots(index).assign([SLOT], kernel.ids[other])
    assert client_of(kernel).execute(b"GET", KEY).message.startswith(b"MOVED")


@pytest.mark.parametrize(
    ("argv", "reply"),
    [
        ((b"KEYSLOT", b"{a}1"), 15495),
        ((b"KEYSLOT",), ErrorReply(b"ERR wrong number of arguments for 'cluster|keyslot' command")),
        ((b"COUNTKEYSINSLOT", b"99999"), ErrorReply(b"ERR Invalid slot")),
        ((b"COUNTKEYSINSLOT", b"x"), ErrorReply(b"ERR value is not an integer or out of range")),
        ((b"GETKEYSINSLOT", b"1", b"-1"), ErrorReply(b"ERR Invalid slot or number of keys")),
        ((b"ADDSLOTS", b"1"), ErrorReply(b"ERR Slot 1 is already busy")),
        ((b"ADDSLOTS", b"x"), ErrorReply(b"ERR Invalid or out of range slot")),
        ((b"ADDSLOTSRANGE", b"5", b"1"), ErrorReply(b"ERR start slot number 5 is greater than end slot number 1")),
        ((b"DELSLOTS", b"1", b"1"), ErrorReply(b"ERR Slot 1 specified multiple times")),
        ((b"SETSLOT", b"1", b"STABLE"), b"OK"),
        (
            (b"SETSLOT", b"1", b"FOO"),
            ErrorReply(b"ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"),
        ),
        ((b"SETSLOT", b"1", b"MIGRATING", b"nosuch"), ErrorReply(b"ERR I don't know about node nosuch")),
        ((b"SETSLOT", b"9999", b"MIGRATING", b"x"), ErrorReply(b"ERR I'm not the owner of hash slot 9999")),
        ((b"SETSLOT", b"1", b"IMPORTING", b"x"), ErrorReply(b"ERR I'm already the owner of hash slot 1")),
        ((b"SETSLOT", b"1", b"NODE", b"nosuch"), ErrorReply(b"ERR Unknown node nosuch")),
        ((b"NOSUCH",), ErrorReply(b"ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.")),
    ],
)
def test_what_cluster_says(kernel: Cluster, argv: tuple[bytes, ...], reply: object) -> None:
    assert kernel.nodes[0].execute(b"CLUSTER", *argv) == reply


def test_slots_are_taken_away_and_given_again(kernel: Cluster) -> None:
    node = kernel.nodes[0]
    assert node.execute(b"CLUSTER", b"DELSLOTSRANGE", b"1", b"5000") == b"OK"
    assert b"cluster_state:fail" in node.execute(b"CLUSTER", b"INFO")
    assert node.execute(b"CLUSTER", b"DELSLOTS", b"1") == ErrorReply(b"ERR Slot 1 is already unassigned")
    assert node.execute(b"GET", b"{b}") == ErrorReply(b"CLUSTERDOWN Hash slot not served")
    assert node.execute(b"GET", b"") == ErrorReply(b"CLUSTERDOWN The cluster is down")
    assert node.execute(b"CLUSTER", b"ADDSLOTSRANGE", b"1", b"5000") == b"OK"
    assert node.execute(b"GET", b"{b}") is None
