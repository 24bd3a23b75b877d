"""A cluster behind ports: raw redirections, redis-py's cluster client, and ioredis where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from orderlab.model.errors import InputError
from orderlab.properties.plugin.served import ServedRedis
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.wire.served_cluster import ServedCluster


@pytest.fixture(scope="module")
def served() -> Iterator[ServedRedis]:
    with ServedRedis(cluster=3) as served:
        yield served


def test_a_node_says_who_has_a_slot(served: ServedRedis) -> None:
    node = redis.Redis(port=served.port)
    slot = hash_slot(b"foo")  # of the last master
    with pytest.raises(redis.ResponseError, match=f"{slot} 127.0.0.1:{served.nodes[2].port}"):
        node.set("foo", 1)
    assert node.cluster("keyslot", "foo") == slot
    nodes = node.cluster("nodes")
    assert sorted(nodes) == sorted(f"127.0.0.1:{one.port}" for one in served.nodes)
    assert [shard[b"slots"] for shard in node.cluster("shards")] == [[0, 5461], [5462, 10922], [10923, 16383]]
    assert node.info("cluster") == {"cluster_enabled": 1}


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_pys_cluster_client_works_unchanged(served: ServedRedis, protocol: int) -> None:
    client = served.client(protocol=protocol)
    for number in range(30):
        client.set(f"key:{number}", number)
    assert client.mget_nonatomic([f"key:{number}" for number in range(30)]) == [b"%d" % number for number in range(30)]
    assert client.eval("return redis.call('incr', KEYS[1])", 1, "{a}n") >= 1
    with client.pipeline() as pipeline:
        pipeline.set("x", 1).set("y", 2).get("x")
        assert pipeline.execute() == [True, True, b"1"]
    with pytest.raises(redis.RedisClusterException):
        client.eval("return 1", 2, "a", "b")
    assert client.delete("x", "y") == 2
    client.close()


def test_a_slot_moves_under_a_client(served: ServedRedis) -> None:
    client = served.client()
    client.set("{moving}a", 1)
    slot = hash_slot(b"{moving}a")
    source = next(index for index in range(3) if served.nodes[index].shard.data.get(b"{moving}a") is not None)
    target = (source + 1) % 3
    served.fault(f"migrate {slot} {target} begin")
    client.set("{moving}b", 2)  # ASK: it is new
    served.fault(f"migrate {slot} {target} keys")
    assert client.get("{moving}a") == b"1"
    served.fault(f"migrate {slot} {target} end")
    assert client.get("{moving}b") == b"2"
    assert set(served.nodes[target].shard.data) >= {b"{moving}a", b"{moving}b"}
    client.close()


def test_a_slot_moves_by_its_nodes_own_commands(served: ServedRedis) -> None:
    client = served.client()
    slot = hash_slot(b"{by-hand}")
    owner = int(
        next(i for i in range(3) if served.nodes[i].shard.slots.owners[slot] == served.nodes[i].shard.slots.myself)
    )
    other = (owner + 1) % 3
    nodes = [redis.Redis(port=node.port) for node in served.nodes]
    identifiers = [node.execute_command("CLUSTER MYID").decode() for node in nodes]
    nodes[other].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", identifiers[owner])
    nodes[owner].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", identifiers[other])
    nodes[other].execute_command("CLUSTER SETSLOT", slot, "NODE", identifiers[other])
    nodes[owner].execute_command("CLUSTER SETSLOT", slot, "NODE", identifiers[other])
    assert client.set("{by-hand}x", 1)
    assert served.nodes[other].shard.data.get(b"{by-hand}x") is not None
    client.close()


def test_too_many_masters_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 64 masters"):
        ServedCluster(65)


IOREDIS = """
const Redis = require('ioredis')
const ports = process.argv.slice(2).map(Number)
async function main() {
  const cluster = new Redis.Cluster([{ host: '127.0.0.1', port: ports[0] }])
  for (let i = 0; i < 20; i++) await cluster.set('io:' + i, i)
  const read = await Promise.all([...Array(20).keys()].map(i => cluster.get('io:' + i)))
  cluster.defineCommand('bump', { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], ARGV[1])" })
  console.log(read.map(Number).reduce((a, b) => a + b), await cluster.bump('io:1', 41))
  cluster.disconnect()
  const single = new Redis(ports[1])
  const results = await single.pipeline().set('a', 1).incr('a').lpush('l', 'x').exec()
  const waited = single.duplicate().blpop('later', 5)
  await single.multi().set('b', 1).rpush('later', 'y').exec()
  console.log(JSON.stringify(results.map(pair => pair[1])), JSON.stringify(await waited))
  console.log(await single.info('server') != '')
  process.exit(0)
}
main().catch(error => { console.error(error); process.exit(1) })
"""


def test_ioredis_works_unchanged(served: ServedRedis, tmp_path: Path) -> None:
    modules = Path(__file__).parents[4] / ".libraries/node/node_modules"
    if shutil.which("node") is None or not (modules / "ioredis").is_dir():
        pytest.skip("node or ioredis is not installed; install Node.js with npm, then run: make ioredis")
    script = tmp_path / "client.js"
    script.write_text(IOREDIS)
    with ServedRedis() as single:
        words = ["node", str(script), str(served.port), str(single.port)]
        environment = os.environ | {"NODE_PATH": str(modules)}
        run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.stdout == '190 42\n["OK",2,1] ["later","y"]\ntrue\n', run.stderr
