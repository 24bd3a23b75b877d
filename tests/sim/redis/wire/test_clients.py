"""Other people's clients against a served node: redis-cli, redis-benchmark, redis-py on asyncio."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import redis.asyncio

from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with InBackground() as background:
        yield background.serve(ServedNode).port


def ran(*words: str, text: str = "") -> str:
    """What a program prints, with its complaints."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    run = subprocess.run(words, input=text, capture_output=True, text=True, timeout=600, check=True)
    return run.stdout + run.stderr


def test_redis_cli_works_unchanged(port: int) -> None:
    text = "SET k 'a b'\nGET k\nEVAL 'return redis.call(\"get\", KEYS[1])' 1 k\nHGETALL none\nNOTHING\nINFO server\n"
    told = ran("redis-cli", "-p", str(port), text=text)
    assert told.startswith("OK\na b\na b\n\nERR unknown command 'NOTHING'")
    assert "redis_version:7.0.15" in told
    assert ran("redis-cli", "-3", "-p", str(port), "CONFIG", "GET", "maxmemory") == "maxmemory 0\n"
    assert ran("redis-cli", "-p", str(port), "--scan").split() == ["k"]
    assert "keyspace" in ran("redis-cli", "-p", str(port), "--bigkeys")


def test_redis_benchmark_has_nothing_to_complain_of(port: int) -> None:
    told = ran(*f"redis-benchmark -p {port} -n 300 -c 5 -q -t ping,set,get,lpush,zadd,xadd,mset".split())
    assert "WARN" not in told.upper()
    assert len(re.findall(r"requests per second", told)) >= 7


def test_redis_py_on_asyncio_works_unchanged(port: int) -> None:
    async def exchange() -> None:
        client = redis.asyncio.Redis(port=port, client_name="mine", protocol=3)
        await client.flushall()
        async with client.pipeline(transaction=True) as pipeline:
            assert await pipeline.set("a", 1).incr("a").execute() == [True, 2]
        waiting = asyncio.create_task(client.blpop(["queue"], timeout=5))
        await asyncio.sleep(0.05)
        await client.rpush("queue", "x")
        assert await waiting == [b"queue", b"x"]
        async with client.pubsub() as subscriber:
            await subscriber.psubscribe("n*")
            await subscriber.get_message(timeout=5)
            await client.publish("news", "hello")
            message = await subscriber.get_message(timeout=5)
            assert message is not None
            assert message["data"] == b"hello"
        assert [one["name"] for one in await client.client_list()].count("mine") >= 2
        assert (await client.info("commandstats"))["cmdstat_incrby"]["calls"] >= 1
        assert (await client.config_get("maxmemory")) == {"maxmemory": "0"}
        assert (await client.command_count()) > 200
        assert "get" in await client.command()
        await client.aclose()

    asyncio.run(exchange())


@pytest.mark.exhaustive
def test_ten_thousand_idle_connections_leave_the_others_alone(port: int) -> None:
    code = (
        "import resource, socket, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
        f"held = [socket.create_connection(('127.0.0.1', {port})) for _ in range(9990)]\n"
        "print('there', flush=True)\nsys.stdin.read()\n"
    )
    holder = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "there\n"
        client = redis.Redis(port=port)
        assert client.ping()
        assert client.info("clients")["connected_clients"] >= 9990
        client.close()
    finally:
        holder.communicate("")
    assert redis.Redis(port=port).ping()
