"""Several databases of one node: snapshots, whole states, effects, expiry and eviction. Replies are told in
``scenarios/databases.txt``."""

from __future__ import annotations

import pickle
import random
import shutil
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.backends import KernelBackend, open_backend
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import Abort, NodeCrashed
from orderlab.sim.redis.database import DatabaseKey
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.memo import MemoStore

WORDS = (b"a", b"b", b"c")


def run(shard: Shard, line: str, client: Client | None = None) -> Reply:
    return shard.execute(line.encode().split(), client)


def test_a_name_is_equal_to_no_key_that_reads_the_same() -> None:
    name = DatabaseKey(3, b"k")
    assert name != b"db3:k"
    assert b"db3:k" != name  # noqa: SIM300 - both ways
    assert {name: 1, b"db3:k": 2}[DatabaseKey(3, b"k")] == 1
    assert bytes(name) == b"db3:k"
    assert pickle.loads(pickle.dumps(name)) == name
    assert DatabaseKey(1, b"k") != name


def test_between_commands_database_0_is_selected() -> None:
    shard, client = Shard(), Client()
    run(shard, "SET k 0")
    run(shard, "SELECT 3", client)
    run(shard, "SET k 3", client)
    assert shard.data == {b"k": b"0"}
    assert run(shard, "GET k", client) == b"3"
    assert run(shard, "GET k") == b"0"
    assert isinstance(run(shard, "NONSENSE", client), ErrorReply)
    assert shard.database == 0


def test_a_frozen_state_holds_every_database_and_loads_again() -> None:
    shard = Shard()
    run(shard, "SET k 0")
    plain = shard.freeze()
    assert plain == {b"k": ("string", b"0", None)}
    run(shard, "COPY k k DB 2")
    run(shard, "MOVE k 1")
    run(shard, "SELECT 1")
    run(shard, "PEXPIRE k 100")
    frozen = shard.freeze()
    assert frozen == {DatabaseKey(1, b"k"): ("string", b"0", 100), DatabaseKey(2, b"k"): ("string", b"0", None)}
    other = Shard()
    run(other, "SET x 1")
    other.load(frozen)
    assert other.freeze() == frozen
    other.patch(
        {b"y": ("string", b"1", None), DatabaseKey(3, b"z"): ("list", (b"1",), None)}, removed=[DatabaseKey(2, b"k")]
    )
    assert other.freeze() == {
        b"y": ("string", b"1", None),
        DatabaseKey(1, b"k"): ("string", b"0", 100),
        DatabaseKey(3, b"z"): ("list", (b"1",), None),
    }
    assert other.freeze([DatabaseKey(3, b"z"), DatabaseKey(3, b"y"), b"y"]).keys() == {DatabaseKey(3, b"z"), b"y"}
    other.load(plain)
    assert other.freeze() == plain
    assert other.all_deadlines_ms() == []


FORMS = (
    "SELECT {db}",
    "SET {key} {db}",
    "SET {key} {db} PX 50",
    "DEL {key}",
    "MOVE {key} {db}",
    "COPY {key} {key2} DB {db} REPLACE",
    "SWAPDB {db} {db2}",
    "FLUSHDB",
    "FLUSHALL",
    "RPUSH {key} x",
    "APPEND {key} y",
    "RENAME {key} {key2}",
    "PERSIST {key}",
    "GET {key}",
)


@pytest.mark.parametrize("seed", range(40))
def test_a_rollback_undoes_what_was_done_in_any_database(seed: int) -> None:
    draw = random.Random(seed)
    shard, client = Shard(), Client()
    run(shard, f"CONFIG SET maxmemory {(0, 10**9)[seed % 2]} maxmemory-policy allkeys-lru")

    def some(count: int) -> None:
        for _ in range(count):
            names = {
                "db": draw.randrange(4),
                "db2": draw.randrange(4),
                "key": draw.choice("abc"),
                "key2": draw.choice("abc"),
            }
            run(shard, draw.choice(FORMS).format_map(names), client)
            shard.now_ms += draw.choice((0, 0, 20))

    some(20)
    shard.snapshot()
    some(10)
    states = []
    for _ in range(3):
        states.append((shard.snapshot(), shard.freeze()))
        some(10)
    now_ms = shard.now_ms
    for mark, before in reversed(states):
        shard.rollback(mark)
        assert shard.freeze() == {key: value for key, value in before.items() if value[2] is None or value[2] >= now_ms}
        assert shard.database == 0
    if shard.memory is not None:
        used = shard.memory.used()
        shard.memory.forget_all()
        assert shard.memory.used() == used
    for index, database in shard.databases().items():
        if database.access is not None:
            shard.use(index)
            assert set(database.data) == set(database.access._last_ms)
    shard.use(0)


def test_effects_name_keys_by_their_databases() -> None:
    shard = Shard()
    run(shard, "SET k 0")
    shard.effects = []
    run(shard, "COPY k j DB 1")
    shard.execute(
        (b"EVAL", b"redis.call('SELECT', 2) redis.call('SET', KEYS[1], 1) redis.call('MOVE', KEYS[1], 0)", b"1", b"k")
    )
    copied, *_, select, written, moved, _ = (*shard.effects[:1], *shard.effects[1:])
    assert (copied.keys, copied.changed) == ((b"k", b"j", DatabaseKey(1, b"j")), (DatabaseKey(1, b"j"),))
    assert select.database == 0
    assert (written.database, written.keys, written.changed) == (2, (DatabaseKey(2, b"k"),), (DatabaseKey(2, b"k"),))
    assert (moved.keys, moved.changed) == ((DatabaseKey(2, b"k"), b"k"), ())  # the key is there in database 0
    script = shard.effects[-1]
    assert (script.database, script.keys) == (0, (b"k",))


def test_a_crash_within_another_database_leaves_nothing() -> None:
    shard = Shard()
    run(shard, "SET k 0")
    before = shard.freeze()
    shard.interrupt = lambda at, argv: Abort.CRASH if at == 2 else None
    with pytest.raises(NodeCrashed):
        shard.execute((b"EVAL", b"redis.call('SELECT', 2) redis.call('SET', 'k', 1) redis.call('GET', 'k')", b"0"))
    assert shard.freeze() == before
    assert shard.database == 0


def test_active_expiry_looks_into_every_database() -> None:
    shard = Shard()
    for index in range(3):
        run(shard, f"SELECT {index}")
        run(shard, "SET k v PX 10")
    shard.now_ms += 11
    assert shard.expire_cycle.run() == 3
    assert all(not database.data for database in shard.databases().values())


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-ttl", "volatile-random"])
def test_eviction_takes_keys_of_every_database(policy: str) -> None:
    shard = Shard()
    shard.evicted = []
    for index in (0, 3, 5):
        run(shard, f"SELECT {index}")
        for number in range(60):
            run(shard, f"SET k{number} {'v' * 200} PX {1000 + number}")
            shard.now_ms += 1
    run(shard, f"CONFIG SET maxmemory-policy {policy} maxmemory 880000")
    assert run(shard, "SET more 1 PX 1000") == b"OK"
    assert {name.database if isinstance(name, DatabaseKey) else 0 for name in shard.evicted} == {0, 3, 5}
    assert shard.memory is not None
    assert shard.memory.used() <= 880_000 + 200


def test_memory_counts_every_database() -> None:
    one, several = Shard(), Shard()
    for number in range(40):
        for shard, index in ((one, 0), (several, number % 4)):
            run(shard, f"SELECT {index}")
            run(shard, f"SET k{number} {'v' * 100}")
    used = []
    for shard in (one, several):
        reply = run(shard, "INFO memory")
        used.append(int(dict(line.split(b":") for line in reply.split(b"\r\n") if b":" in line)[b"used_memory"]))
    assert abs(used[0] - used[1]) < 200


def test_a_connection_that_stays_in_another_database_is_told() -> None:
    backend = KernelBackend()
    backend.execute(b"SELECT", b"2")
    with pytest.raises(InputError, match="leaves its connection in database 2; end the operation with SELECT 0"):
        backend.keyspace()
    backend.execute(b"SELECT", b"0")
    assert backend.keyspace() == {}


@pytest.mark.server
@pytest.mark.parametrize("name", ["fakeredis", "auto"])
def test_what_a_script_keeps_elsewhere_goes_from_backend_to_backend(name: str) -> None:
    script = b"redis.call('SELECT', 3) redis.call('SADD', 's', 1, 'x') redis.call('SET', 'k', 1, 'PXAT', 4000000000000)"
    with open_backend("kernel") as kernel, open_backend(name) as other:
        for backend in (kernel, other):
            backend.execute(b"SET", b"here", b"1")
            backend.eval(script)
        state = kernel.keyspace()
        assert DatabaseKey(3, b"k") in state
        assert other.keyspace() == state
        other.flush()
        assert other.keyspace() == {}
        other.load(state)
        assert other.keyspace() == state
        other.advance(1000)
        assert other.keyspace()[DatabaseKey(3, b"k")] == state[DatabaseKey(3, b"k")]
        assert other.execute(b"DBSIZE") == 1


@pytest.mark.server
def test_a_server_of_the_user_is_changed_in_its_own_database_alone() -> None:
    with (
        ServerProcess() as process,
        open_backend(f"redis://{process.address}") as backend,
        pytest.raises(InputError, match="keeps keys in several databases"),
    ):
        backend.load({DatabaseKey(3, b"k"): ("string", b"1", None)})


def test_a_remembered_store_knows_its_states_by_all_databases(tmp_path: Path) -> None:
    store_folder = tmp_path / "store"
    shutil.copytree(Path(__file__).parents[3] / "orderlab/lua/session", store_folder)
    for script in store_folder.glob("*.lua"):
        script.write_text("redis.call('SELECT', 1) " + script.read_text())
    store = MemoStore(load_binding(store_folder), 20_000)
    store.restart(1_700_000_000_000)
    empty = store.keyspace
    store.perform("open", b"c", {"epoch": 1, "clean_start": 1})
    opened = store.keyspace
    assert opened != empty
    assert {key for key in store.frozen(opened) if isinstance(key, DatabaseKey)} == set(store.frozen(opened)) != set()
    store.keyspace = empty
    store.perform("open", b"c", {"epoch": 1, "clean_start": 1})
    assert store.keyspace == opened
