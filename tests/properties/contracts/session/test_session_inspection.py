"""Leftovers in the keys: found where a store leaves them, and not in one that does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Publication,
    Quiesce,
    Release,
    Save,
    Step,
    Wait,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.inspection import Inspection, measure_baseline
from orderlab.properties.contracts.session.witness.confirmation import SLACK_MS
from orderlab.properties.harness.keyspace import bytes_in, changes, elements_of, holds, keys_of, surplus, text_of
from orderlab.sim.redis.backends import Backend, KernelBackend, ServerBackend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore

LUA = Path(__file__).parents[4] / "lua"
ONE = Publication(1, b"a payload of its own")


def broken_by(changes_to: dict[str, tuple[bytes, bytes]], steps: list[Step], clients: int = 1) -> list[str]:
    """Laws broken by the bundled store with one piece of a script exchanged."""
    binding = load_binding(LUA / "session")
    sources = {script.name: script.source for script in binding.scripts}
    for name, (old, new) in changes_to.items():
        assert old in sources[name]
        sources[name] = sources[name].replace(old, new)
    binding = binding.with_sources(sources)

    def alone() -> SessionRun:
        return SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))

    names = (b"c1", b"c2")[:clients]
    run = SessionRun(BoundStore(binding, KernelBackend()), names)
    run.inspector = Inspection([measure_baseline(alone)] * clients)
    return sorted({one.law for step in steps for one in run.perform(step).discrepancies})


COME_AND_GO: list[Step] = [Save((ONE,)), Fetch(), Acknowledge(1), Fetch(), DrainQueue(), Quiesce()]


def test_the_bundled_store_leaves_nothing() -> None:
    assert broken_by({}, [*COME_AND_GO, Clear()]) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "steps"),
    [
        ("acknowledge.lua", b"call('HDEL', body, id)", b"", COME_AND_GO[:3]),
        ("acknowledge.lua", b"call('HDEL', body, id)", b"call('HSET', body, id, 'P')", COME_AND_GO),
        ("clear.lua", b"call('UNLINK', index, body)", b"call('UNLINK', index)", [*COME_AND_GO[:1], Clear()]),
    ],
)
def test_what_stays_behind_is_residue(name: str, old: bytes, new: bytes, steps: list[Step]) -> None:
    assert "no-residue" in broken_by({name: (old, new)}, steps)


@pytest.mark.parametrize(
    ("before", "is_half_done"), [(b"call('HDEL', body, id)", True), (b"call('ZREM', index, id,", False)]
)
def test_an_answer_that_fails_between_its_two_effects_is_carried_out_in_part(before: bytes, is_half_done: bool) -> None:
    """The reference is gone and the payload is not: no fetch shows that. An error before both leaves all as it was."""
    broken = broken_by({"acknowledge.lua": (before, b"call('GET', body)\n" + before)}, COME_AND_GO[:3])
    assert ("all-or-nothing" in broken) == is_half_done


@pytest.mark.parametrize("limit", [0, 1], ids=["refused for its limit", "acknowledged"])
def test_the_text_of_a_message_that_expired_is_not_taken_for_that_of_another(limit: int) -> None:
    """An expired message may wait in the keys for a clean-up, and its payload may contain another one's."""
    expired = Save((Publication(1, b"<8>payloadsame", interval_ms=1000),), limit=3)
    other = Save((Publication(2, b"same"),), limit=limit, client=1)
    assert broken_by({}, [expired, Wait(2000), other, Fetch(1), Acknowledge(2)], clients=2) == []


def test_a_payload_is_recognised_in_four_spellings_and_a_short_one_in_none() -> None:
    payload = b'pay"load\xff'
    for text in (payload, b"cGF5ImxvYWT/", b'pay\\"load\xff', payload.hex().encode()):
        assert holds(b"..." + text + b"...", payload)
    assert not holds(b"cGF5", payload)
    assert not holds(b"abc", b"abc")


@pytest.mark.parametrize("payload", [b"\x99" * 4, b"\xff" * 9, b"0000"])
def test_a_monotonous_payload_is_not_recognised_in_a_number(payload: bytes) -> None:
    """A store that writes 9999999999999 for "no deadline" holds four bytes 0x99 in hexadecimal."""
    steps = [
        Save((Publication(1, payload), Publication(2, b"another payload"))),
        Fetch(),
        Acknowledge(1),
        DrainQueue(),
        Quiesce(),
    ]
    assert broken_by({}, steps) == []
    assert not holds(b"9999999999999 1740000000000", payload)
    assert holds(b"..." + payload * 4 + b"...", payload * 4)


APPEND = "local s = redis.call('HGET', body, 'log') or ''\n"
LOGS = {
    "a byte for each save, for ever": ("s .. 'x'", True),
    "the last hundred saves": ("string.sub(s .. 'x', -100)", False),
    "a number of saves": ("tostring(#s > 0 and s + 1 or 1)", False),
}


@pytest.mark.parametrize(("log", "grows"), LOGS.values(), ids=LOGS.keys())
def test_what_grows_inside_one_element_is_residue(log: str, grows: bool) -> None:
    """A session that is one text has one element, whatever it keeps."""
    old = b"send('HSET', body, fields)\n"
    new = old + f"{APPEND}redis.call('HSET', body, 'log', {log})\n".encode()
    assert ("no-residue" in broken_by({"save.lua": (old, new)}, COME_AND_GO)) == grows


def test_what_is_usual_is_measured_alike_on_runs_that_share_a_store() -> None:
    binding, shared = load_binding(LUA / "session"), KernelBackend()

    def alone() -> SessionRun:
        return SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))

    def sharing() -> SessionRun:
        shared.flush()
        return SessionRun(BoundStore(binding, shared), (b"c1",))

    assert measure_baseline(sharing) == measure_baseline(alone)
    assert measure_baseline(sharing).cleared == {}


EXPIRED: dict[str, list[Step]] = {
    "passed by": [Churn(30, by_expiry=True)],
    "no payload": [Save((Publication(2, b"", interval_ms=1000),)), Wait(1000)],
    "a monotonous payload": [Save((Publication(2, b"zzzz", interval_ms=1000),)), Wait(1000)],
}


@pytest.mark.parametrize("expired", EXPIRED.values(), ids=EXPIRED.keys())
def test_whole_records_of_expired_messages_may_wait_for_the_next_save(expired: list[Step]) -> None:
    """With their payloads beside them they are no references that outlive anything, recognised or not."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "two-lists")

    def alone() -> SessionRun:
        return SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))

    run = alone()
    run.inspector = Inspection([measure_baseline(alone)])
    for step in (Save((ONE,)), Fetch(), Acknowledge(1), *expired, Quiesce()):
        assert run.perform(step).discrepancies == []


DROPS_AT_PUBREC = "answer.lua", b"one.kind = 'PUBREL'", b"one.kind, one.body = 'PUBREL', nil"
DROPS_WHEN_EXPIRED = (
    "fetch.lua",
    b"  if one.till > now then",
    b"  if one.till <= now then one.body = nil; redis.call('LSET', f, 1, cjson.encode(one)) else",
)


@pytest.mark.parametrize(
    ("edit", "is_released", "broken"),
    [
        (DROPS_AT_PUBREC, True, set()),
        (DROPS_AT_PUBREC, False, set()),
        (DROPS_WHEN_EXPIRED, False, {"no-residue"}),
    ],
)
def test_what_is_left_of_a_pubrel_is_no_reference_to_content_that_is_gone(
    edit: tuple[str, bytes, bytes], is_released: bool, broken: set[str]
) -> None:
    """PUBREC lets a store drop the content at once; its record may wait for the next save as whole records may."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "two-lists")
    script, old, new = edit
    source = next(one.source for one in binding.scripts if one.name == script)
    assert source.count(old) == 1
    binding = binding.with_sources({script: source.replace(old, new)})

    def alone() -> SessionRun:
        return SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))

    run = alone()
    run.inspector = Inspection([measure_baseline(alone)])
    expiring = Publication(2, b"a payload that expires", qos=2, interval_ms=3000)
    released = [Release(2)] if is_released else []
    steps: list[Step] = [Save((expiring,)), Fetch(), *released, Wait(3000), Fetch(), Quiesce()]
    assert {one.law for step in steps for one in run.perform(step).discrepancies} == broken


def test_elements_and_text_of_a_keyspace() -> None:
    kernel = KernelBackend()
    kernel.execute(b"SET", b"{a}s", b"1")
    kernel.execute(b"HSET", b"{a}h", b"f", b"v", b"g", b"w")
    kernel.execute(b"RPUSH", b"{b}l", b"x", b"y", b"z")
    kernel.execute(b"ZADD", b"{a}z", b"1", b"m")
    keyspace = kernel.keyspace()
    assert elements_of(keyspace) == {b"{a}s": 1, b"{a}h": 2, b"{b}l": 3, b"{a}z": 1}
    assert {b"f", b"v", b"x", b"m"} <= set(bytes_in(tuple(keyspace.values())))
    assert b"{b}l" in text_of(keyspace)
    assert set(keys_of(keyspace, b"a", (b"b",))) == {b"{a}s", b"{a}h", b"{a}z"}
    for name in (b"client-one", b"636c69656e742d6f6e65", b"Y2xpZW50LW9uZQ=="):
        other = b"client-two".hex().encode()
        spelt = {b"{%b}s" % name: keyspace[b"{a}s"], b"{%b}s" % other: keyspace[b"{a}s"]}
        assert set(keys_of(spelt, b"client-one", (b"client-two",))) == {b"{%b}s" % name}
    assert surplus({b"k": 3}, {b"k": 2}) == "k (3 instead of 2)"
    assert surplus({b"k": 2}, {b"k": 3}) == ""


def test_a_failed_operation_may_clean_up_but_not_add() -> None:
    kernel = KernelBackend()
    kernel.execute(b"HSET", b"h", b"f", b"v", b"g", b"w")
    before = kernel.keyspace()
    kernel.execute(b"HDEL", b"h", b"f")
    assert changes(before, kernel.keyspace()) == []
    kernel.execute(b"HSET", b"h", b"g", b"other")
    assert changes(before, kernel.keyspace()) == [b"h"]
    kernel.execute(b"SET", b"new", b"1")
    assert changes(before, kernel.keyspace()) == [b"h", b"new"]


@pytest.mark.parametrize("backend_of", [KernelBackend, ServerBackend.start])
@pytest.mark.parametrize(("option", "broken"), [("", {"expiry"}), (", 'KEEPTTL'", set())])
def test_a_key_that_loses_its_deadline_keeps_its_message_too_long(
    option: str, broken: set[str], backend_of: Callable[[], Backend]
) -> None:
    """Seen at once: nobody has to wait until then, and no reply has to tell what is left; on a server as well, which
    then holds what it held."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "strings")
    source = next(script.source for script in binding.scripts if script.name == "release.lua")
    assert source.count(b", 'KEEPTTL'") == 1
    binding = binding.with_sources({"release.lua": source.replace(b", 'KEEPTTL'", option.encode())})
    with closing(backend_of()) as backend:
        run = SessionRun(BoundStore(binding, backend), (b"c1",), slack_ms=SLACK_MS if backend.clock_runs else 0)
        measured = measure_baseline(lambda: SessionRun(BoundStore(binding, KernelBackend()), (b"c1",)))
        run.inspector = Inspection([measured])
        long = Publication(2, b"a payload that lasts longer", interval_ms=90_000)
        for step in (Save((replace(ONE, qos=2, interval_ms=5000), long)), Fetch()):
            assert run.perform(step).discrepancies == []
        found = run.perform(Release(1)).discrepancies
        assert {one.law for one in found if "lost its deadline" in one.text} == broken
        held = {key: value[:2] for key, value in backend.keyspace().items()}
        run.store.listing_later(b"c1", 100_000)
        assert {key: value[:2] for key, value in backend.keyspace().items()} == held


def test_a_key_of_many_messages_may_have_its_deadline_moved() -> None:
    """A session in one key that lasts as long as its longest message: each message still ends when it should."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "packed")
    sources = {script.name: script.source for script in binding.scripts}
    set_once = b"redis.call('SET', KEYS[1], cmsgpack.pack(s))"
    assert set_once in sources["save.lua"]
    longer = set_once + b"\nredis.call('PEXPIRE', KEYS[1], 1000000)"
    binding = binding.with_sources({"save.lua": sources["save.lua"].replace(set_once, longer)})
    run = SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))
    run.inspector = Inspection([measure_baseline(lambda: SessionRun(BoundStore(binding, KernelBackend()), (b"c1",)))])
    for step in (Save((replace(ONE, interval_ms=5000),)), Wait(1000), Save((Publication(2, b"another one"),)), Fetch()):
        assert run.perform(step).discrepancies == []


@pytest.mark.parametrize(
    ("kept", "broken"), [("'l', last[1], 's', last[2]", {"no-residue"}), ("'l', 0, 's', 0", set())]
)
def test_a_counter_that_outlives_the_session_is_no_mark_of_its_end(kept: str, broken: set[str]) -> None:
    """Both leave two fields behind, as they do behind a session without messages; one tells of those that there
    were."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "as-members")
    source = next(script.source for script in binding.scripts if script.name == "end.lua").decode()
    delete = "redis.call('DEL', KEYS[1], KEYS[2])"
    assert source.count(delete) == 1
    keeps = f"local last = redis.call('HMGET', KEYS[2], 'l', 's') {delete} redis.call('HSET', KEYS[2], {kept})"
    binding = binding.with_sources({"end.lua": source.replace(delete, keeps).encode()})
    run = SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))
    run.inspector = Inspection([measure_baseline(lambda: SessionRun(BoundStore(binding, KernelBackend()), (b"c1",)))])
    steps: list[Step] = [Save((ONE,)), Fetch(), Acknowledge(1), Clear()]
    assert {one.law for step in steps for one in run.perform(step).discrepancies} == broken


@pytest.mark.parametrize(
    ("written", "broken"), [("", {"no-loss"}), ("redis.call('HSET', KEYS[3], 'x', 1)", {"no-loss", "all-or-nothing"})]
)
def test_a_save_that_is_refused_without_reason_may_be_half_done_as_well(written: str, broken: set[str]) -> None:
    """What it wrote before its error shows in no listing."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "two-lists")
    source = next(script.source for script in binding.scripts if script.name == "save.lua")
    fails = f"if redis.call('LLEN', KEYS[1]) > 1 then {written} redis.call('GET', KEYS[3]) end\n".encode()
    binding = binding.with_sources({"save.lua": fails + source})
    run = SessionRun(BoundStore(binding, KernelBackend()), (b"c1",))
    run.inspector = Inspection([measure_baseline(lambda: SessionRun(BoundStore(binding, KernelBackend()), (b"c1",)))])
    assert run.perform(Save((ONE,))).discrepancies == []
    found = run.perform(Save((Publication(2, b"another one"),))).discrepancies
    assert {one.law for one in found} == broken
