"""The two tables of PostgreSQL under the engine of every session store: which laws fall, with and without waiting for
the log, that what is planted is found, and that a state of them is one value."""

import random

import pytest

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Publication,
    Release,
    Retry,
    Save,
    Trace,
    Upkeep,
    Wait,
)
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.validation.validation import OF_NODES, validate
from orderlab.properties.export.on_server import plan_of
from orderlab.properties.validation.effort import STANDARD
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.servers.session_tables import Incoming, SimulatedTables
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.tables import ON_DISK, TablesBackend
from tests.laboratory.tables import Caller, draw_run

AS_PUBLISHED = {"no-loss", "packet-id", "legal-trim", "all-or-nothing", "counter", "retransmission"}
LATE = {"no-residue", "no-phantom"}
"""A record that comes after its session was cleared is saved."""


def one(label, interval_ms=None, qos=1):
    return Publication(label, b"message %d" % label, qos=qos, interval_ms=interval_ms)


def save(*messages, fault=None):
    return Save(messages, limit=3, fault=fault)


def taken(steps, tables=SimulatedTables, store="postgres"):
    """The laws that steps break on tables."""
    binding = load_binding(store)
    run = SessionRun(BoundStore(binding, TablesBackend(binding, make=tables)), (b"client-one",))
    return [discrepancy for step in steps for discrepancy in run.perform(step).discrepancies]


SHORTEST = {
    "no-loss": (save(one(1, 2_147_483_648_000)),),
    "packet-id": (save(one(1), one(2)), save(one(3, 0), one(4))),
    "legal-trim": (save(one(1), one(2), one(3), one(4)),),
    "all-or-nothing": (save(one(1), fault=Fault("lost-reply")), Retry()),
    "counter": (save(one(1, 0)), Retry(), save(one(2))),
    "retransmission": (save(one(1)), Clear(), save(one(2, 0)), Release(1)),
    "no-residue": (Clear(), Save((one(1),), limit=3, stale=True)),
    "no-phantom": (Clear(), Save((one(1),), limit=3, stale=True)),
}


@pytest.mark.parametrize(("law", "steps"), SHORTEST.items())
def test_the_laws_that_the_tables_break_as_published(law, steps):
    assert law in {one.law for one in taken(steps)}


def test_they_are_validated_as_any_session_store():
    found = validate(load_binding("postgres"), WorkOrder(0.02, laws=["legal-trim", "no-loss", "store-order"]))
    assert set(found.caught) == {"legal-trim", "no-loss"}
    assert found.outcomes["store-order"] is Outcome.HOLDS


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", ["postgres", "postgres-async"])
def test_what_falls_at_the_default_effort(store):
    found = validate(load_binding(store), WorkOrder(STANDARD))
    assert set(found.caught) == AS_PUBLISHED | LATE
    assert {law for law, outcome in found.outcomes.items() if outcome is Outcome.HOLDS} == {
        "store-order", "expiry", "drain"
    }  # fmt: skip
    assert not set(found.outcomes) & set(OF_NODES)


def test_a_law_of_nodes_is_none_of_tables():
    binding = load_binding("postgres")
    with pytest.raises(InputError, match="not a law of this store"):
        kind_of(binding).check_law(binding, "bounded")


LOST = [
    ("no-loss", (save(one(1)), Upkeep("crash"))),
    ("no-phantom", (save(one(1)), Upkeep("settle"), Clear(), Upkeep("crash"), Fetch())),
    ("retransmission", (save(one(1, qos=2)), Upkeep("settle"), Fetch(), Release(1), Upkeep("crash"), Fetch())),
]


@pytest.mark.parametrize(("law", "steps"), LOST)
def test_a_crash_breaks_more_where_commits_do_not_wait(law, steps):
    assert law in {one.law for one in taken(steps, store="postgres-async")}
    assert taken(steps) == []


class NewestFirst(SimulatedTables):
    def fetch(self, client):
        return super().fetch(client)[::-1]


class ExpiredToo(SimulatedTables):
    def fetch(self, client):
        before, self.now_ms = self.now_ms, 0
        try:
            return super().fetch(client)
        finally:
            self.now_ms = before


class HalfOfABatch(SimulatedTables):
    def save(self, client, messages, fault=None):
        if fault == "lost-request":
            super().save(client, messages[:1])
        return super().save(client, messages, fault)


class NeverDeletes(SimulatedTables):
    def acknowledge(self, client, packet_id, fault=None):
        return 1


class KeepsMessages(SimulatedTables):
    def clear(self, client, fault=None):
        return self._submit(lambda transaction, _: transaction.delete_session(client) or 0)


TWO = (one(1, 5000), one(2))
FLAWS = [
    (NewestFirst, "store-order", (save(*TWO),)),
    (ExpiredToo, "expiry", (save(*TWO), Wait(5000))),
    (HalfOfABatch, "all-or-nothing", (save(*TWO, fault=Fault("lost-request")),)),
    (NeverDeletes, "packet-id", (save(*TWO), Fetch(), Acknowledge(1))),
    (KeepsMessages, "no-residue", (save(*TWO), Clear())),
]


@pytest.mark.parametrize(("bad", "law", "steps"), FLAWS)
def test_a_flaw_is_found_and_its_neighbour_is_not(bad, law, steps):
    assert law in {one.law for one in taken(steps, bad)}
    assert taken(steps) == []


def test_a_save_whose_reply_was_lost_and_that_comes_again_is_saved_twice():
    (found,) = taken((save(one(1), fault=Fault("lost-reply")), Retry()))
    assert (found.law, found.text) == (
        "all-or-nothing",
        "the reply was lost and the same save came again: m1 saved twice",
    )


def test_a_dead_message_of_a_save_whose_reply_was_lost_may_have_used_an_identifier():
    assert taken((save(one(1, 0), fault=Fault("lost-reply")), save(one(2)))) == []


@pytest.mark.parametrize("store", ["postgres", "postgres-async"])
@pytest.mark.parametrize("seed", range(6))
def test_tables_that_were_brought_to_a_state_go_on_as_those_that_came_there(store, seed):
    """Keyspace and load, between any two steps: what a crash would leave is part of the state."""
    binding, steps = load_binding(store), draw_run(random.Random(seed), 30)
    there, brought = TablesBackend(binding), TablesBackend(binding)
    callers = Caller(there.tables), Caller(brought.tables)
    for backend in (there, brought):
        for number in range(99):
            backend._number_of(b"%09d" % number)
    for step in steps:
        keyspace, now_ms = brought.keyspace(), brought.now_ms
        brought.flush()
        brought.load(keyspace)
        brought.set_now(now_ms)
        for caller in callers:
            caller.step(step)
        assert brought.keyspace() == there.keyspace()
    assert callers[0].replies == callers[1].replies


def test_what_is_not_on_disk_is_part_of_the_state():
    backend = TablesBackend(load_binding("postgres-async"))
    backend.tables.save(b"c", [Incoming(backend._number_of(b"m1"))])
    assert ON_DISK in backend.keyspace()
    assert ON_DISK not in backend.visible()
    backend.keep_up("settle")
    assert ON_DISK not in backend.keyspace()


def test_tables_are_exported_to_no_script_of_redis_cli():
    binding = load_binding("postgres")
    trace = Trace((save(one(1)),), (b"client-one",), modulus=binding.modulus, store="postgres")
    with pytest.raises(InputError, match="transactions of PostgreSQL"):
        plan_of(kind_of(binding), trace, binding)
