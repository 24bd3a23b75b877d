"""The estimate of memory against a real server's, and eviction under every policy."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.lua.script_run import ScriptRun
from orderlab.sim.redis.memory import STARTUP_BYTES, KeySet, MemoryAccount, allocated, usage
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

Argv = tuple[bytes, ...]


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        yield connection
        connection.close()


def used_memory(connection: Connection) -> int:
    lines = connection.demand(b"INFO", b"memory").split(b"\r\n")
    return int(dict(line.split(b":") for line in lines if b":" in line)[b"used_memory"])


def collections(size: int, length: int) -> Iterator[Argv]:
    """Commands that build one key of each type, with ``size`` members of ``length`` bytes."""
    tag = b"%d:%d" % (size, length)
    for number in range(size):
        member = (b"m%d" % number).ljust(length, b"y")
        yield b"HSET", b"hash" + tag, member, b"v" * length
        yield b"ZADD", b"zset" + tag, b"%d.5" % number, member
        yield b"SADD", b"set" + tag, member
        yield b"SADD", b"intset" + tag, b"%d" % (number * length)
        yield b"RPUSH", b"list" + tag, member


@pytest.mark.server
def test_the_usage_of_a_key_is_what_the_server_reports(connection: Connection) -> None:
    connection.demand(b"FLUSHALL")
    shard = Shard()
    commands: list[Argv] = [
        (b"SET", b"string%d" % size, b"x" * size) for size in (0, 1, 44, 45, 100, 255, 256, 5000, 70_000)
    ]
    commands += [(b"SET", b"int%d" % number, b"%d" % number) for number in (5, 12_345, -3, 1 << 40)]
    commands += [(b"SET", b"k" * size, b"v") for size in (1, 6, 30, 31, 32, 300)]
    for size, length in ((1, 2), (3, 30), (10, 2), (10, 100), (120, 30), (500, 10), (2000, 30)):
        commands += collections(size, length)
    connection.pipeline(commands)
    for argv in commands:
        shard.execute(argv)
    for key, value in shard.data.items():
        theirs, mine = connection.demand(b"MEMORY", b"USAGE", key, b"SAMPLES", b"0"), usage(key, value)
        if isinstance(value, bytes):
            assert (key, mine) == (key, theirs)
        else:
            assert mine == pytest.approx(theirs, rel=0.15), key  # a table in the middle of growing counts twice
        assert shard.execute((b"MEMORY", b"USAGE", key)) == mine


@pytest.mark.server
@pytest.mark.parametrize("size", [8, 9, 16, 17, 48, 100, 129, 200, 1000, 5000, 20_000, 100_000])
def test_size_classes(size: int) -> None:
    """Against jemalloc's published classes: four to each doubling from 128 on."""
    classes = [8, *range(16, 129, 16)]
    while classes[-1] < 1 << 18:
        classes += [classes[-1] + step * classes[-1] // 4 for step in range(1, 5)]
    assert allocated(size) == min(each for each in classes if each >= size)


def sessions(count: int) -> list[Argv]:
    """The writes of a session store with ``count`` messages."""
    writes: list[Argv] = []
    for number in range(count):
        tag = b"{client%d}" % (number % 300)
        reference = tag + b"_messages_%d" % number
        writes.append((b"SET", reference, b"x" * 300, b"EX", b"1000"))
        writes.append((b"ZADD", tag + b"_messages", b"%d" % number, reference))
        writes.append((b"SET", tag + b"_last", b"%d" % number))
    return writes


@pytest.mark.server
def test_used_memory_grows_as_the_servers_does(connection: Connection) -> None:
    connection.demand(b"FLUSHALL")
    before = used_memory(connection)
    shard = Shard()
    writes = sessions(9000)
    connection.pipeline(writes)
    for argv in writes:
        shard.execute(argv)
    assert MemoryAccount(shard).used() - STARTUP_BYTES == pytest.approx(used_memory(connection) - before, rel=0.05)


@pytest.mark.server
@pytest.mark.parametrize("policy", [b"allkeys-lru", b"allkeys-random", b"volatile-ttl"])
def test_as_many_keys_stay_as_on_a_server(policy: bytes, connection: Connection) -> None:
    connection.demand(b"FLUSHALL")
    room = 2_000_000
    writes: list[Argv] = [
        (b"SET", b"key%d" % number, b"x" * 200, b"EX", b"%d" % (1000 + number)) for number in range(12_000)
    ]
    limit = used_memory(connection) + room
    connection.demand(b"CONFIG", b"SET", b"maxmemory-policy", policy, b"maxmemory", b"%d" % limit)
    connection.pipeline(writes)
    theirs = connection.demand(b"DBSIZE")
    connection.demand(b"CONFIG", b"SET", b"maxmemory", b"0")
    shard = Shard()
    shard.config.maxmemory, shard.config.maxmemory_policy = STARTUP_BYTES + room, policy.decode()
    for argv in writes:
        shard.execute(argv)
    assert shard.execute((b"DBSIZE",)) == pytest.approx(theirs, rel=0.08)
    assert shard.evicted_keys == len(writes) - len(shard.data)


def test_an_account_that_is_kept_is_one_that_is_made_anew() -> None:
    rng = random.Random(7)
    shard = Shard()
    shard.config.maxmemory = 1 << 40
    for _ in range(3000):
        key, member = b"%c%d" % (rng.choice(b"shzl"), rng.randrange(5)), b"%d" % rng.randrange(50)
        name = {115: b"SADD", 104: b"HSET", 122: b"ZADD", 108: b"RPUSH"}[key[0]]
        argv = [name, key, member] + [b"1"] * (name in (b"HSET",)) if name != b"ZADD" else [name, key, b"1", member]
        shard.execute(argv if rng.random() < 0.9 else (b"DEL", key))
        if rng.random() < 0.01:
            shard.execute((b"EXPIRE", key, b"1"))
            shard.now_ms += 600
        if rng.random() < 0.005:
            mark = shard.snapshot()
            shard.execute((b"FLUSHALL",))
            shard.rollback(mark)
            shard.forget_snapshots()
    assert shard.memory is not None
    assert shard.memory.used() == MemoryAccount(shard).used()


# -- eviction --------------------------------------------------------------------------------------------------


def filled(policy: str, keys: int = 1000, room: int = 120_000) -> Shard:
    """A shard with so many keys, the n-th used at second n; every second one has a deadline, later ones sooner."""
    shard = Shard()
    shard.config.maxmemory, shard.config.maxmemory_policy = STARTUP_BYTES + (1 << 30), policy
    for number in range(keys):
        shard.now_ms = number * 1000
        deadline = (b"EX", b"%d" % (10_000_000 - 2000 * number)) if number % 2 else ()
        shard.execute((b"SET", b"key%d" % number, b"x" * 100, *deadline))
    shard.config.maxmemory = STARTUP_BYTES + room
    return shard


def survivors(shard: Shard) -> list[int]:
    return sorted(int(key[3:]) for key in shard.data)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_policy_for_all_keys_makes_room(policy: str) -> None:
    shard = filled(policy)
    assert shard.execute((b"SET", b"key9999", b"v")) == b"OK"
    assert shard.evicted_keys == 1001 - len(shard.data)
    assert 300 < len(shard.data) < 900
    assert shard.memory is not None
    assert shard.memory.used() <= shard.config.maxmemory + 200


def test_lru_prefers_the_keys_unused_for_longest() -> None:
    shard = filled("allkeys-lru", room=1 << 30)
    for number in range(50):
        shard.execute((b"GET", b"key%d" % number))
    shard.config.maxmemory = STARTUP_BYTES + 120_000
    shard.execute((b"PING",))
    left = survivors(shard)
    assert set(range(50)) <= set(left), "what was just read stays"
    old = sum(1 for number in left if 50 <= number < 200)
    new = sum(1 for number in left if number >= 850)
    assert old * 5 < new


def test_lfu_prefers_the_keys_used_least() -> None:
    shard = Shard()
    shard.config.maxmemory, shard.config.maxmemory_policy = STARTUP_BYTES + (1 << 30), "allkeys-lfu"
    for number in range(500):
        shard.execute((b"SET", b"key%d" % number, b"x" * 100))
    for number in range(100):
        for _ in range(30):
            shard.execute((b"GET", b"key%d" % number))
    assert shard.execute((b"OBJECT", b"FREQ", b"key1")) > shard.execute((b"OBJECT", b"FREQ", b"key400"))
    shard.config.maxmemory = STARTUP_BYTES + 60_000
    shard.execute((b"PING",))
    left = survivors(shard)
    assert len([number for number in left if number < 100]) > 90
    assert len(left) < 400


def test_volatile_ttl_prefers_the_soonest_deadlines_and_spares_keys_without_one() -> None:
    shard = filled("volatile-ttl", room=150_000)
    shard.execute((b"PING",))
    left = survivors(shard)
    assert [number for number in left if number % 2 == 0] == list(range(0, 1000, 2))
    odd = [number for number in left if number % 2]
    assert odd
    assert sum(odd) / len(odd) < 450, "the later keys had the sooner deadlines"


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"])
def test_a_policy_for_volatile_keys_runs_out_of_them(policy: str) -> None:
    shard = filled(policy, room=50_000)
    assert shard.execute((b"SET", b"key9999", b"v")).message.startswith(b"OOM")
    assert all(number % 2 == 0 for number in survivors(shard))
    assert shard.execute((b"GET", b"key0")) is not None
    assert shard.execute((b"DEL", b"key0")) == 1


def test_without_eviction_writes_that_need_memory_are_refused() -> None:
    shard = filled("noeviction", room=50_000)
    refused = shard.execute((b"SET", b"key9999", b"v"))
    assert refused.message == b"OOM command not allowed when used memory > 'maxmemory'."
    assert len(shard.data) == 1000
    while len(shard.data) > 200:
        shard.execute((b"DEL", b"key%d" % survivors(shard)[0]))
    assert shard.execute((b"SET", b"key9999", b"v")) == b"OK"


def test_out_of_memory_is_decided_when_a_script_begins() -> None:
    shard = filled("noeviction", room=50_000)
    shard.execute((b"PING",))
    refused = ScriptRun.begin(shard, None, False)
    for number in range(900):
        refused.node.data.pop(b"key%d" % number)
    assert shard.is_out_of_memory
    with pytest.raises(Exception, match="OOM"):
        refused.call((b"SET", b"k", b"v"))
    assert not refused.wrote


def test_the_same_run_evicts_the_same_keys() -> None:
    runs = []
    for _ in range(2):
        shard = filled("allkeys-lfu")
        shard.execute((b"PING",))
        runs.append(survivors(shard))
    assert runs[0] == runs[1]


def test_an_evicted_key_breaks_watch() -> None:
    shard = filled("allkeys-random", room=1000)
    shard.config.maxmemory = 0
    shard.execute((b"WATCH", b"key5"))
    shard.config.maxmemory = STARTUP_BYTES + 1000
    shard.execute((b"PING",))
    assert b"key5" not in shard.data
    shard.config.maxmemory = 0
    for argv, expected in (((b"MULTI",), b"OK"), ((b"PING",), b"QUEUED"), ((b"EXEC",), None)):
        assert shard.execute(argv) == expected


def test_a_replica_leaves_eviction_to_its_master() -> None:
    shard = filled("allkeys-lru", room=1000)
    shard.is_replica = True
    shard.execute((b"GET", b"key1"))
    assert len(shard.data) == 1000


def test_idle_time_and_its_errors() -> None:
    shard = filled("allkeys-lru", room=1 << 30)
    assert shard.execute((b"OBJECT", b"IDLETIME", b"key0")) == 999
    shard.execute((b"TYPE", b"key0"))
    assert shard.execute((b"OBJECT", b"IDLETIME", b"key0")) == 999
    shard.execute((b"TOUCH", b"key0"))
    assert shard.execute((b"OBJECT", b"IDLETIME", b"key0")) == 0
    shard.config.maxmemory_policy = "allkeys-lfu"
    assert shard.execute((b"OBJECT", b"IDLETIME", b"key0")).message.startswith(
        b"ERR An LFU maxmemory policy is selected"
    )


def test_a_set_of_keys_against_a_plain_set() -> None:
    rng = random.Random(3)
    keys, model = KeySet(), set()
    for _ in range(2000):
        key = b"%d" % rng.randrange(40)
        if rng.random() < 0.5:
            keys.add(key)
            model.add(key)
        else:
            keys.discard(key)
            model.discard(key)
        assert {keys[position] for position in range(len(keys))} == model
        assert len(keys) == len(model)


def test_memory_usage_knows_its_options() -> None:
    assert find([b"MEMORY", b"USAGE"]) is not None
    shard = Shard()
    shard.execute((b"SET", b"k", b"v"))
    assert shard.execute((b"MEMORY", b"USAGE", b"missing")) is None
    assert shard.execute((b"MEMORY", b"USAGE", b"k", b"SAMPLES", b"0")) == shard.execute((b"MEMORY", b"USAGE", b"k"))
    for tail in ((b"SAMPLES",), (b"SAMPLES", b"-1"), (b"nonsense", b"1")):
        assert shard.execute((b"MEMORY", b"USAGE", b"k", *tail)).message == b"ERR syntax error"


@pytest.mark.server
@pytest.mark.parametrize("count", [20, 513, 3000])
@pytest.mark.parametrize("length", [1, 64, 200, 1000])
def test_lists_and_growing_tables_are_within_15_percent(connection: Connection, count: int, length: int) -> None:
    """Nodes of a list are filled to 8 KiB, whatever fits; a table that grows keeps the one before."""
    connection.demand(b"FLUSHALL")
    shard = Shard()
    for number in range(count):
        member = b"%d:" % number + b"x" * length
        for argv in (
            (b"RPUSH", b"even", member),
            (b"RPUSH", b"mixed", b"x" * (length * (1 + number % 7))),
            (b"RPUSH", b"numbers", b"%d" % number),
            (b"SADD", b"set", member),
            (b"HSET", b"hash", b"f%d" % number, member),
            (b"ZADD", b"zset", b"%d" % number, member),
        ):
            connection.demand(*argv)
            shard.execute(argv)
    for key in (b"even", b"mixed", b"numbers", b"set", b"hash", b"zset"):
        # all members are sampled: of the first five alone, the heights that a server draws at random decide
        usage = (b"MEMORY", b"USAGE", key, b"SAMPLES", b"0")
        measured, estimated = connection.demand(*usage), shard.execute(usage)
        assert abs(estimated / measured - 1) <= 0.15, (key, measured, estimated)
