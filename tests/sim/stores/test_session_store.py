"""A bound store on the kernel: what its binding tells of it, listings that leave no trace, faults that end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.errors import InputError
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.results import Failed, Fetched, Message, Saved
from orderlab.sim.stores.bound import (
    ENDLESS_MAX,
    BoundStore,
    BudgetExceeded,
    TimedOut,
    capabilities_of,
    keeps_sent,
    uses,
)
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS, condition

LUA = Path(__file__).parents[3] / "lua"
CLIENT = b"c"


@pytest.fixture
def store() -> BoundStore:
    made = BoundStore(load_binding(LUA / "session"), KernelBackend())
    made.perform("open", CLIENT, {"epoch": 1, "clean_start": 1})
    return made


def save(store: BoundStore, batch: int, *payloads: bytes, expiry_ms: int | None = None) -> Any:
    messages = tuple(Message(payload, b"t", 1, expiry_ms, 0) for payload in payloads)
    fields = {
        "epoch": 1,
        "limit": 10,
        "default_expiry_ms": 5000,
        "producer": b"p",
        "batch": batch,
        "messages": messages,
    }
    return store.perform("save", CLIENT, fields)


def payloads(store: BoundStore) -> list[bytes | None]:
    listed = store.listing(CLIENT)
    assert isinstance(listed, Fetched)
    return [message.payload for message in listed.messages]


def binding(name: str) -> Binding:
    return load_binding(LUA / name)


def test_what_the_judge_must_know_is_read_off_the_binding() -> None:
    session, published, pending = (
        capabilities_of(binding("session")),
        capabilities_of(binding("specimens/published")),
        capabilities_of(binding("specimens/pending-as-published")),
    )
    assert (session.has_tokens, session.has_pages, session.has_counts) == (True, True, True)
    assert (published.has_tokens, published.has_pages, published.has_counts) == (False, False, False)
    assert (pending.has_pages, pending.has_counts) == (False, True)
    assert uses(binding("session"), "save", "limit", 1, 2)
    assert not uses(binding("specimens/published"), "save", "epoch", 1, 2)
    assert not uses(binding("specimens/published"), "open", "epoch", 1, 2)


def test_a_listing_changes_nothing_not_even_where_fetch_removes() -> None:
    removing = BoundStore(binding("specimens/fetch-removes"), KernelBackend())
    removing.perform("open", CLIENT, {"epoch": 1, "clean_start": 1})
    save(removing, 1, b"a")
    before = removing.backend.keyspace()
    assert payloads(removing) == payloads(removing) == [b"a"]
    assert removing.backend.keyspace() == before
    removing.perform("fetch", CLIENT, {"count": 9, "after": 0})
    assert payloads(removing) == []


def test_time_is_the_stores(store: BoundStore) -> None:
    save(store, 1, b"short", expiry_ms=1000)
    save(store, 2, b"default")
    store.advance(999)
    assert payloads(store) == [b"short", b"default"]
    store.advance(1)
    assert payloads(store) == [b"default"]
    store.restart(store.now_ms - 1000)
    assert payloads(store) == []


def test_a_server_that_forgot_its_scripts_is_told_them_again(store: BoundStore) -> None:
    store.backend.execute(b"SCRIPT", b"FLUSH")
    assert isinstance(save(store, 1, b"a"), Saved)


def test_whether_sent_messages_outlive_their_deadline_is_asked_of_the_store(store: BoundStore) -> None:
    assert keeps_sent(store) is False


@pytest.mark.parametrize("kind", NODE_CONDITIONS)
def test_a_condition_of_the_node_stops_a_save_and_ends(store: BoundStore, kind: str) -> None:
    save(store, 1, b"a")
    fault = Fault(kind)
    with store.under(fault, "save", CLIENT, {}):
        during = save(store, 2, b"b")
    assert isinstance(during, Failed) or kind == "slot-migrates"
    assert isinstance(save(store, 2, b"b"), Saved)
    assert payloads(store) == [b"a", b"b"]


@pytest.mark.parametrize("found", ["string", "list"])
def test_another_type_stops_a_save_and_the_stores_value_comes_back(store: BoundStore, found: str) -> None:
    save(store, 1, b"a")
    before = store.backend.keyspace()
    for key in before:
        with store.under(Fault("wrong-type", key=key, found=found), "save", CLIENT, {}):
            assert isinstance(save(store, 2, b"b"), Failed)
        assert store.backend.keyspace() == before


@pytest.mark.parametrize(("found", "is_right"), [("zset", True), ("string", False)])
def test_a_key_that_is_not_there_holds_no_wrong_type_if_it_is_the_type_that_the_store_reads_there(
    tmp_path: Path, found: str, is_right: bool
) -> None:
    """Deadlines are kept only of messages that have one: what is planted there would mix with the store's own data."""
    (tmp_path / "save.lua").write_text("redis.call('ZCARD', KEYS[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) return 1")
    (tmp_path / "fetch.lua").write_text("return redis.call('LRANGE', KEYS[1], 0, -1)")
    (tmp_path / "store.toml").write_text(
        '[keys]\ndue = "{<client>}d"\nq = "{<client>}q"\n'
        '[operations.save]\nscript = "save.lua"\nkeys = ["due", "q"]\nargs = ["<payload>"]\n'
        'batch_max = 1\nreply = { shape = "integer", is = "count" }\n'
        '[operations.fetch]\nscript = "fetch.lua"\nkeys = ["q"]\nreply = { shape = "strings", fields = { payload = '
        '"value" } }\n'
    )
    store = BoundStore(load_binding(tmp_path), KernelBackend())
    fields = {"limit": 10, "producer": b"p", "batch": 1, "messages": (Message(b"a", b"t", 1, None, 0),)}
    with store.under(Fault("wrong-type", key=b"{c}d", found=found), "save", b"c", fields):
        saved = store.perform("save", b"c", fields)
        planted = store.backend.execute(b"TYPE", b"{c}d")
    assert (isinstance(saved, Saved), planted) == ((True, b"none") if is_right else (False, b"string"))


def test_what_an_operation_puts_in_place_of_the_other_type_stays() -> None:
    kernel = KernelBackend()
    kernel.execute(b"SET", b"k", b"mine")
    with condition(kernel, Fault("wrong-type", key=b"k", found="list")):
        kernel.execute(b"SET", b"k", b"new")
    assert kernel.keyspace() == {b"k": ("string", b"new", None)}


@pytest.mark.parametrize("fault", [Fault("no-such"), Fault("wrong-type", key=b"k", found="stream")])
def test_a_fault_that_nobody_knows_is_an_input_error(fault: Fault) -> None:
    with pytest.raises(InputError, match=r"fault .*one of "), condition(KernelBackend(), fault):
        pass


def test_a_reply_that_the_binding_cannot_read_is_a_failure(store: BoundStore) -> None:
    (script,) = [one for one in store.binding.scripts if one.name == "fetch.lua"]
    broken = store.binding.with_sources({script.name: b"return {'1', '2'}"})
    listed = BoundStore(broken, KernelBackend()).listing(CLIENT)
    assert isinstance(listed, Failed)
    assert b"the binding cannot read the reply" in listed.error


def test_an_endless_script_is_stopped_and_a_store_that_goes_on_like_that_is_given_up() -> None:
    binding_of_session = binding("session")
    endless = BoundStore(binding_of_session.with_sources({"fetch.lua": b"while true do end"}), KernelBackend())
    results = [endless.listing(CLIENT) for _ in range(ENDLESS_MAX)]
    assert {type(one) for one in results} == {TimedOut}
    with pytest.raises(BudgetExceeded):
        endless.listing(CLIENT)
    endless.run_again()
    assert isinstance(endless.listing(CLIENT), TimedOut)


def test_a_script_that_fills_the_keyspace_is_stopped_like_one_that_does_not_end() -> None:
    script = b"for i = 1, 9 do redis.call('SETRANGE', 'k' .. i, 1e8, 'x') end"
    filling = BoundStore(binding("session").with_sources({"fetch.lua": script}), KernelBackend())
    stopped = filling.listing(CLIENT)
    assert isinstance(stopped, TimedOut)
    assert b"made the keyspace grow" in stopped.error
