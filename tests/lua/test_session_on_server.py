"""lua/session on a real server: its promises told one by one, at full scale, and under whatever a server can refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orderlab.sim.live import free_port
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding import Assigned, Cleared, Failed, Fetched, Message, Opened, Removed, Saved, ScriptCall

pytestmark = pytest.mark.server

INDEX, BODY = b"{s:c}:i", b"{s:c}:b"
WEEK_MS = 604_800_000


@pytest.fixture
def store(open_store: Callable[..., Any]) -> Any:
    """A session of client c that was begun by CONNECT 1."""
    made = open_store("lua/session")
    assert made.perform("open", epoch=1) == Opened(False, 1)
    return made


def save(store: Any, *payloads: bytes, expiry_ms: Any = None, **fields: Any) -> Any:
    messages = [Message(payload, b"topic", 2, expiry_ms) for payload in payloads]
    return store.perform("save", **{"epoch": 1, "messages": messages, **fields})


def payloads(store: Any, **fields: Any) -> list[bytes | None]:
    fetched = store.perform("fetch", **fields)
    assert isinstance(fetched, Fetched)
    return [message.payload for message in fetched.messages]


def dump(connection: Connection) -> list[object]:
    return [connection.execute(b"DUMP", key) for key in (INDEX, BODY)]


def test_messages_come_back_whole(store: Any) -> None:
    odd = bytes(range(256)) * 3
    assert save(store, b"", odd, b"x" * 100_000).assigned == (Assigned(1, 1), Assigned(2, 2), Assigned(3, 3))
    first, second, third = store.perform("fetch").messages
    assert (first.payload, second.payload, third.payload) == (b"", odd, b"x" * 100_000)
    assert (second.topic, second.qos, second.kind, second.packet_id, second.sequence) == (b"topic", 2, "PUBLISH", 2, 2)
    assert WEEK_MS - 5000 < second.remaining_ms <= WEEK_MS


def test_pages_follow_one_another(store: Any) -> None:
    save(store, *(b"%d" % number for number in range(7)))
    assert payloads(store, count=3) == [b"0", b"1", b"2"]
    assert payloads(store, count=3, after=3) == [b"3", b"4", b"5"]
    store.perform("acknowledge", packet_id=7, sequence=7)
    assert payloads(store, count=3, after=6) == []


INTERVALS = [
    (0, False),
    (-1, False),
    (-1e300, False),
    (0.5, False),
    (1e7 + 0.5, True),
    (2**31 * 1000, True),
    (4_294_967_295_000, True),
    (2**53, True),
    (1e300, True),
    ("inf", True),
    (" 60000 ", True),
    ("0x10000", True),
]


@pytest.mark.parametrize(("interval", "lives"), INTERVALS, ids=[str(interval) for interval, _ in INTERVALS])
def test_any_interval_leaves_the_rest_of_the_batch_alone(store: Any, interval: Any, lives: bool) -> None:
    messages = [Message(b"a"), Message(b"b", expiry_ms=interval), Message(b"c")]
    saved = store.perform("save", epoch=1, messages=messages)
    expected = [
        Assigned(1, 1),
        Assigned(2, 2) if lives else Assigned(None),
        Assigned(3 if lives else 2, 3 if lives else 2),
    ]
    assert list(saved.assigned) == expected
    assert payloads(store) == ([b"a", b"b", b"c"] if lives else [b"a", b"c"])


def test_a_huge_interval_is_kept_exactly_up_to_the_longest_of_mqtt(store: Any) -> None:
    save(store, b"a", expiry_ms=4_294_967_295_000)
    save(store, b"b", expiry_ms=2**53)
    longest, endless = store.perform("fetch").messages
    assert 4_294_967_290_000 < longest.remaining_ms <= 4_294_967_295_000
    assert endless.remaining_ms is None


BAD_ARGUMENTS = [
    {"limit": 0},
    {"limit": -1},
    {"limit": 65536},
    {"limit": 1.5},
    {"limit": b"ten"},
    {"limit": b"nan"},
    {"epoch": b""},
    {"epoch": -1},
    {"batch": b"x"},
    {"batch": 1.5},
    {"default_expiry_ms": b"soon"},
    {"default_expiry_ms": b"nan"},
    {"messages": [Message(b"a"), Message(b"b", expiry_ms=b"later")]},
    {"messages": [Message(b"a"), Message(b"b", expiry_ms=float("nan"))]},
]


@pytest.mark.parametrize("fields", BAD_ARGUMENTS, ids=[str(fields)[:40] for fields in BAD_ARGUMENTS])
def test_a_bad_argument_is_refused_before_anything_is_written(
    store: Any, connection: Connection, fields: dict[str, Any]
) -> None:
    save(store, b"old")
    before = dump(connection)
    failed = save(store, b"new", **fields)
    assert isinstance(failed, Failed)
    assert failed.error.startswith(b"ERR ")
    assert dump(connection) == before


@pytest.mark.parametrize("limit", [1, 65535])
def test_the_ends_of_the_limit(store: Any, limit: int) -> None:
    assert isinstance(save(store, b"a", b"b", limit=limit), Saved)
    assert payloads(store) == [b"a", b"b"][-limit:]


def test_a_repeated_batch_gets_the_same_reply_and_changes_nothing(store: Any, connection: Connection) -> None:
    first = save(store, b"a", b"b", producer=b"p", batch=5)
    store.perform("acknowledge", packet_id=1, sequence=1)
    before = dump(connection)
    assert save(store, b"a", b"b", producer=b"p", batch=5) == first
    assert save(store, b"older", producer=b"p", batch=4) == Saved(refused="STALE")
    assert dump(connection) == before
    assert save(store, b"c", producer=b"q", batch=5).assigned == (Assigned(3, 3),)


def test_a_session_that_is_not_open_is_left_alone(store: Any, connection: Connection) -> None:
    assert store.perform("clear", epoch=1) == Cleared(1)
    assert connection.execute(b"DBSIZE") == 0
    assert save(store, b"late") == Saved(refused="CLOSED")
    assert payloads(store) == []
    assert store.perform("acknowledge", packet_id=1, sequence=1) == Removed(0)
    assert store.perform("release", packet_id=1, sequence=1) == Removed(0)
    assert store.perform("clear", epoch=1) == Cleared(0)
    assert connection.execute(b"DBSIZE") == 0


def test_what_belongs_to_an_earlier_session_is_refused(store: Any, connection: Connection) -> None:
    assert store.perform("open", epoch=5, clean_start=1) == Opened(False, 5)
    save(store, b"new", epoch=5)
    before = dump(connection)
    assert save(store, b"late", epoch=4) == Saved(refused="CLOSED")
    assert store.perform("acknowledge", epoch=4, packet_id=1, sequence=1) == Removed(0)
    assert store.perform("release", epoch=4, packet_id=1, sequence=1) == Removed(0)
    assert store.perform("clear", epoch=4) == Cleared(0)
    assert store.perform("open", epoch=4, clean_start=1) == Opened(refused="STALE")
    assert dump(connection) == before


def test_a_connect_that_is_repeated_gets_its_first_answer(store: Any) -> None:
    save(store, b"a")
    assert store.perform("open", epoch=1, clean_start=1) == Opened(False, 1)
    assert store.perform("open", epoch=2) == store.perform("open", epoch=2) == Opened(True, 1)
    assert payloads(store) == [b"a"]
    assert store.perform("open", epoch=3, clean_start=1) == Opened(False, 3)
    save(store, b"b", epoch=3)
    assert store.perform("open", epoch=3, clean_start=1) == Opened(False, 3)
    assert payloads(store) == [b"b"]


def test_release_keeps_place_identifier_and_deadline(store: Any) -> None:
    save(store, b"a", expiry_ms=50_000)
    save(store, b"b")
    assert store.perform("release", epoch=1, packet_id=1, sequence=1) == Removed(1)
    assert store.perform("release", epoch=1, packet_id=1, sequence=1) == Removed(1)  # the reply was lost
    first, second = store.perform("fetch").messages
    assert (first.kind, first.packet_id, first.sequence, first.payload) == ("PUBREL", 1, 1, None)
    assert 40_000 < first.remaining_ms <= 50_000
    assert second.kind == "PUBLISH"
    assert store.perform("acknowledge", epoch=1, packet_id=1, sequence=1) == Removed(1)


# -- full scale ------------------------------------------------------------------------------------------------------


def passing(store: Any, count: int) -> None:
    """``count`` messages are saved in one batch and acknowledged, so that their identifiers have gone by."""
    saved = save(store, *([b"passing"] * count), limit=65535)
    calls = [
        store.binding.call("acknowledge", epoch=1, client=b"c", packet_id=one.packet_id, sequence=one.sequence)
        for one in saved.assigned
    ]
    store.connection.execute(b"SCRIPT", b"LOAD", calls[0].script.source)
    for start in range(0, count, 5000):
        assert set(store.connection.pipeline([call.argv for call in calls[start : start + 5000]])) == {1}


def test_a_live_identifier_is_passed_over_and_a_late_acknowledgement_finds_nothing(store: Any) -> None:
    save(store, b"stuck")
    save(store, b"early")
    assert store.perform("acknowledge", epoch=1, packet_id=2, sequence=2) == Removed(1)
    passing(store, 65_533)
    assert save(store, b"after the wrap").assigned == (Assigned(2, 65_537),)
    assert store.perform("acknowledge", epoch=1, packet_id=2, sequence=2) == Removed(0)  # a whole wrap late
    assert payloads(store) == [b"stuck", b"after the wrap"]
    assert store.perform("acknowledge", epoch=1, packet_id=2, sequence=65_537) == Removed(1)


def test_every_identifier_in_use(store: Any, connection: Connection) -> None:
    everything = save(store, *(b"%d" % number for number in range(65_535)), limit=65_535)
    assert {one.packet_id for one in everything.assigned} == set(range(1, 65_536))
    assert store.perform("acknowledge", epoch=1, packet_id=40_000, sequence=40_000) == Removed(1)
    assert save(store, b"in the gap", limit=65_535).assigned == (Assigned(40_000, 65_535 + 40_000),)
    assert save(store, b"dead", expiry_ms=0, limit=65_535).assigned == (Assigned(None),)
    assert save(store, b"in place of the oldest", limit=65_535).first == 1
    waiting = payloads(store, count=65_535)
    assert (waiting[0], waiting[-2:], len(waiting)) == (b"1", [b"in the gap", b"in place of the oldest"], 65_535)
    assert save(store, *([b"new"] * 9000), limit=65_535).count is None
    assert connection.execute(b"ZCARD", INDEX) == connection.execute(b"HLEN", BODY) == 65_536
    assert store.perform("open", epoch=2, clean_start=1) == Opened(False, 2)
    assert connection.execute(b"ZCARD", INDEX) == connection.execute(b"HLEN", BODY) == 1


def test_many_expired_messages_go_in_portions_and_trim_nobody(open_store: Callable[..., Any]) -> None:
    store = open_store("lua/session", now_ms=1_000_000)
    store.perform("open", epoch=1)
    save(store, b"a", limit=5000)
    save(store, *([b"short"] * 4000), expiry_ms=10, limit=5000)
    save(store, *(b"%d" % number for number in range(999)), limit=5000)
    store.set_clock(1_000_010)
    assert payloads(store, count=2) == [b"a", b"0"]
    save(store, b"b", limit=5000)
    assert len(payloads(store, count=9000)) == 1001
    assert store.connection.execute(b"ZCOUNT", INDEX, b"1", b"+inf") == 5001 - 512
    save(store, *([b"c"] * 3000), limit=1500)
    assert payloads(store, count=9000) == [b"c"] * 1500
    assert store.connection.execute(b"ZCOUNT", INDEX, b"1", b"+inf") == 1500


def test_an_expired_message_is_in_the_way_of_no_identifier(open_store: Callable[..., Any]) -> None:
    store = open_store("lua/session", now_ms=1_000_000)
    store.perform("open", epoch=1)
    save(store, b"stuck", limit=65535)
    save(store, *([b"short"] * 65_533), expiry_ms=10, limit=65535)
    store.set_clock(1_000_010)
    assert save(store, b"a", b"b", limit=65535).assigned == (Assigned(65_535, 65_535), Assigned(2, 65_537))
    assert payloads(store, count=9) == [b"stuck", b"a", b"b"]


def test_a_single_message_takes_five_commands(store: Any, connection: Connection) -> None:
    save(store, b"warm up")
    connection.execute(b"CONFIG", b"RESETSTAT")
    save(store, b"a")
    told = connection.execute(b"INFO", b"commandstats").decode()
    inner = [line.split("_", 1)[1].split(":")[0] for line in told.splitlines() if line.startswith("cmdstat_")]
    assert sorted(set(inner) - {"eval", "config|resetstat", "info"}) == ["hmget", "hset", "time", "zadd", "zcard"]


# -- what a server refuses -------------------------------------------------------------------------------------------

OPERATIONS: list[tuple[str, dict[str, Any]]] = [
    ("open", {"epoch": 2, "clean_start": 1}),
    ("save", {"epoch": 1, "limit": 2, "messages": [Message(b"new"), Message(b"newer")]}),
    ("acknowledge", {"epoch": 1, "packet_id": 1, "sequence": 1}),
    ("release", {"epoch": 1, "packet_id": 1, "sequence": 1}),
    ("clear", {"epoch": 1}),
]
NAMES = [name for name, _ in OPERATIONS]


@pytest.mark.parametrize(("operation", "fields"), OPERATIONS, ids=NAMES)
@pytest.mark.parametrize("key", [INDEX, BODY])
def test_a_key_of_another_type(
    store: Any, connection: Connection, key: bytes, operation: str, fields: dict[str, Any]
) -> None:
    save(store, b"a", b"b")
    connection.execute(b"RENAME", key, b"{s:c}:aside")
    connection.execute(b"RPUSH", key, b"x")
    before = dump(connection)
    failed = store.perform(operation, **fields)
    assert isinstance(failed, Failed)
    assert failed.error.startswith(b"WRONGTYPE ")
    assert dump(connection) == before


REFUSALS: list[tuple[str, tuple[tuple[bytes, ...], ...], bytes]] = [
    ("out of memory", ((b"CONFIG", b"SET", b"maxmemory", b"1"),), b"OOM "),
    ("too few replicas", ((b"CONFIG", b"SET", b"min-replicas-to-write", b"1"),), b"NOREPLICAS "),
    ("read-only replica", ((b"REPLICAOF", b"127.0.0.1", b"PORT"),), b"READONLY "),
]
FIXED = (
    (b"CONFIG", b"SET", b"maxmemory", b"0"),
    (b"CONFIG", b"SET", b"min-replicas-to-write", b"0"),
    (b"REPLICAOF", b"NO", b"ONE"),
)


@pytest.mark.parametrize(("operation", "fields"), OPERATIONS, ids=NAMES)
@pytest.mark.parametrize(("name", "commands", "error"), REFUSALS, ids=[name for name, *_ in REFUSALS])
def test_a_node_that_refuses_writes(
    store: Any,
    connection: Connection,
    name: str,
    commands: tuple[tuple[bytes, ...], ...],
    error: bytes,
    operation: str,
    fields: dict[str, Any],
) -> None:
    save(store, b"a", b"b")
    before = dump(connection)
    for command in commands:
        connection.demand(*(b"%d" % free_port() if word == b"PORT" else word for word in command))
    try:
        result = store.perform(operation, **fields)
        reading = payloads(store)  # goes on whatever may not be written
    finally:
        for command in FIXED:
            connection.demand(*command)
    if name == "out of memory" and operation in ("acknowledge", "clear"):
        assert result in (Removed(1), Cleared(1))  # what frees memory is allowed
        return
    assert isinstance(result, Failed)
    assert result.error.startswith(error)
    assert reading == [b"a", b"b"]
    assert dump(connection) == before


def test_eviction_of_one_key_is_noticed(store: Any, connection: Connection) -> None:
    save(store, b"a")
    connection.execute(b"DEL", INDEX)
    failed = save(store, b"b")
    assert isinstance(failed, Failed)
    assert failed.error.startswith(b"ERR the session is damaged: its index is gone")
    assert store.perform("open", epoch=2) == Opened(False, 2)
    save(store, b"c", epoch=2)
    connection.execute(b"DEL", BODY)
    failed = store.perform("fetch")
    assert isinstance(failed, Failed)
    assert failed.error.startswith(b"ERR the session is damaged: its body is gone")
    assert save(store, b"d", epoch=2) == Saved(refused="CLOSED")
    assert store.perform("open", epoch=3) == Opened(False, 3)
    assert connection.execute(b"ZCARD", INDEX) == 1


def test_fetch_runs_where_nothing_may_be_written(store: Any, connection: Connection) -> None:
    save(store, b"a")
    call = store.binding.call("fetch", client=b"c")
    assert isinstance(call, ScriptCall)
    assert call.read_only
    _, *rest = call.argv_with_source
    reply = connection.execute(b"EVAL_RO", *rest)
    assert not isinstance(reply, ErrorReply)
    assert store.binding.decode("fetch", reply).messages[0].payload == b"a"
