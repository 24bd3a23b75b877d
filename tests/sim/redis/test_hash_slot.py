"""Hash slots: the tag rule on hostile keys, and a real server as the second opinion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot, hash_slots, hash_tag
from orderlab.sim.redis.wire import Connection


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        (b"{client}_messages", b"client"),
        (b"a{b}c{d}", b"b"),
        (b"{}x", b"{}x"),
        (b"x{}{y}", b"x{}{y}"),
        (b"{{a}}", b"{a"),
        (b"}{a}", b"a"),
        (b"{a", b"{a"),
        (b"a}", b"a}"),
        (b"", b""),
        (b"\xff{\x00}\xfe", b"\x00"),
    ],
)
def test_only_the_first_tag_counts_and_only_when_it_is_not_empty(key: bytes, tag: bytes) -> None:
    assert hash_tag(key) == tag
    assert hash_slot(key) == hash_slot(tag) or tag == key


def test_published_slots() -> None:
    assert hash_slot(b"123456789") == 0x31C3 % SLOT_COUNT  # the check value that the specification gives
    assert hash_slot(b"foo") == 12182


def test_a_client_identifier_that_closes_the_tag_spreads_the_keys() -> None:
    def keys(client: bytes) -> list[bytes]:
        return [b"{%b}_messages" % client, b"{%b}_messages_1" % client, b"{%b}_last" % client]

    assert len(hash_slots(keys(b"c"))) == 1
    assert len(hash_slots(keys(b"}x"))) == 3


@pytest.fixture(scope="module")
def cluster_node():
    with ServerProcess({"cluster-enabled": "yes"}) as process:
        connection = Connection(process.host, process.port)
        yield connection
        connection.close()


@pytest.mark.server
@given(keys=st.lists(st.binary(max_size=12) | st.text("{}ab", max_size=8).map(str.encode), min_size=50, max_size=200))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_server_agrees(cluster_node: Connection, keys: list[bytes]) -> None:
    assert cluster_node.pipeline([(b"CLUSTER", b"KEYSLOT", key) for key in keys]) == list(map(hash_slot, keys))
