"""A real three-master cluster judges the kernel's: what every node answers, by whatever means, while slots move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orderlab.sim.redis.cluster import Cluster, RedirectingClient
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.replies import ErrorReply
from tests.laboratory.conformance.sequences import SeededDraw
from tests.laboratory.conformance.slots import SlotJudge
from tests.laboratory.live_cluster import ClusterProcess

pytestmark = pytest.mark.server
STEPS = 6000


@pytest.fixture(scope="module")
def real() -> Iterator[ClusterProcess]:
    with ClusterProcess() as cluster:
        yield cluster


@pytest.fixture
def fresh(real: ClusterProcess) -> ClusterProcess:
    real.flush()
    return real


def test_a_client_is_redirected_on_the_real_cluster_as_on_the_kernel(fresh: ClusterProcess) -> None:
    client = RedirectingClient({fresh.address(index).encode(): node for index, node in enumerate(fresh.nodes)})
    slot = hash_slot(b"{m}")
    source, target = fresh.owner(slot), (fresh.owner(slot) + 1) % 3
    assert client.execute(b"MSET", b"{m}1", b"a", b"{m}2", b"b") == b"OK"
    fresh.begin_migration(slot, source, target)
    fresh.migrate_keys(source, target, b"{m}1")
    assert client.execute(b"GET", b"{m}1") == b"a"
    assert client.execute(b"MGET", b"{m}1", b"{m}2") == ErrorReply(
        b"TRYAGAIN Multiple keys request during rehashing of slot"
    )
    fresh.migrate_keys(source, target, b"{m}2")
    fresh.end_migration(slot, source, target)
    assert fresh.owner(slot) == target
    assert client.execute(b"MGET", b"{m}1", b"{m}2") == [b"a", b"b"]


def test_a_script_with_undeclared_keys_fails_midway_while_its_slot_moves(fresh: ClusterProcess) -> None:
    """B14: what the script wrote before the key that is not there stays written, on both."""
    source_code = b"for i = 0, 3 do redis.call('SET', '{m}' .. i, 'new') end return 'done'"
    kernel = Cluster()
    slot = hash_slot(b"{m}")
    outcomes = []
    for cluster in (fresh, kernel):
        source, target = cluster.owner(slot), (cluster.owner(slot) + 1) % 3
        node = cluster.nodes[source]
        for number in (0, 1):
            node.execute(b"SET", b"{m}%d" % number, b"old")
        cluster.begin_migration(slot, source, target)
        reply = node.execute(b"EVAL", source_code, b"1", b"{m}0")
        outcomes.append((reply, node.execute(b"MGET", b"{m}0", b"{m}1"), node.execute(b"DBSIZE")))
        cluster.cancel_migration(slot, source, target)
    assert outcomes[0] == outcomes[1]
    reply, values, size = outcomes[0]
    assert reply.message.startswith(b"ERR Script attempted to access a non local key in a cluster node")
    assert (values, size) == ([b"new", b"new"], 2)


def test_the_kernel_answers_as_the_real_cluster(fresh: ClusterProcess) -> None:
    judge = SlotJudge(fresh, Cluster(now_ms=1))
    draw = SeededDraw(14)
    for _ in range(STEPS):
        assert judge.step(draw) is None
    for code in ("answered", "MOVED", "ASK", "CROSSSLOT", "TRYAGAIN", "EXECABORT", "ERR"):
        assert judge.seen[code] >= 20, f"vacuous: {judge.seen}"
    for reason in (b"access a non local key in a cluster node", b"access keys that do not hash to the same slot"):
        assert judge.script_errors[b"ERR Script attempted to " + reason] >= 3, f"vacuous: {judge.script_errors}"


def test_a_kernel_that_forgets_the_migration_is_caught(fresh: ClusterProcess) -> None:
    kernel = Cluster(now_ms=1)
    judge = SlotJudge(fresh, kernel)
    draw = SeededDraw(14)
    for shard in kernel.shards:
        assert shard.slots is not None
        shard.slots.importing = _Forgetful()
    assert any(judge.step(draw) is not None for _ in range(STEPS))


class _Forgetful(dict[int, bytes]):
    def __setitem__(self, slot: int, node: bytes) -> None:
        pass
