"""A machine for one store on one backend: on the kernel with its keys inspected, elsewhere by its replies alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.machines.concurrent_writers import ConcurrentWriters, OperationsInTrouble
from orderlab.properties.contracts.session.machines.hostile_clients import HostileClients
from orderlab.properties.contracts.session.machines.queue import PacketIdentifiers, TrimAndExpiry
from orderlab.properties.contracts.session.machines.session import SessionMachine, Sessions
from orderlab.properties.contracts.session.machines.store import StoreMachine, configured, faults_of
from orderlab.properties.contracts.session.subject import CLIENTS, DEFAULT_EXPIRY_MS, Prepared, Subject
from orderlab.properties.contracts.session.witness.confirmation import SLACK_MS
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BoundStore, keeps_sent

Machines = tuple[type[StoreMachine], ...]

ALL: Machines = (TrimAndExpiry, PacketIdentifiers, ConcurrentWriters, OperationsInTrouble, Sessions, SessionMachine)
"""Every machine over one session store."""
_FIRST: dict[str, Machines] = {
    "bounded": (),
    "store-order": (PacketIdentifiers, TrimAndExpiry),
    "packet-id": (PacketIdentifiers, ConcurrentWriters),
    "counter": (Sessions, ConcurrentWriters, TrimAndExpiry, PacketIdentifiers),
    "all-or-nothing": (OperationsInTrouble, ConcurrentWriters),
    "no-phantom": (Sessions,),
    "retransmission": (PacketIdentifiers,),
    "no-residue": (Sessions, TrimAndExpiry),
    "no-loss": (TrimAndExpiry, PacketIdentifiers, ConcurrentWriters),
}
FOOTPRINT_LAWS = ("one-slot", "bounded")
"""Decided, before any machine runs, by counting what operations touch and cost."""


def machines_for(law: str) -> Machines:
    """Machines for a law, ending with the general one."""
    assert law in STORE_LAWS, law
    if law == "one-slot":
        return (HostileClients,)
    return (*_FIRST.get(law, (TrimAndExpiry,)), SessionMachine)


def on_kernel(machine: type[StoreMachine], subject: Subject, name: str, **attributes: Any) -> type[StoreMachine]:
    """``machine`` on the store of ``subject``, from an empty keyspace on.

    Examples seldom come by the same keyspace twice, so nothing is remembered.
    """
    if subject.remembers:
        subject = replace(subject, remembers=False)
    return at_place(machine, Prepared(subject, ()), name, **attributes)


def at_place(machine: type[StoreMachine], place: Prepared, name: str, **attributes: Any) -> type[StoreMachine]:
    """``machine`` from a place to which the store has been brought."""
    subject = place.subject
    facts = facts_of(subject.binding, subject.store.largest_batch)
    return configured(machine, name, facts | {"make_run": place.run, "prefix": place.prefix} | attributes)


def facts_of(binding: Binding, largest_batch: int) -> dict[str, Any]:
    """What a machine must know of a store."""
    return {
        "limit": binding.fixed.get("limit"),
        "has_gaps": any(not bound.is_atomic for bound in binding.operations.values()),
        "largest_batch": min(largest_batch, 4),
    }


def on_backend(
    machine: type[StoreMachine],
    binding: Binding,
    backend: Backend,
    name: str,
    clients: Sequence[bytes] = CLIENTS,
    **attributes: Any,
) -> type[StoreMachine]:
    """``machine`` on the store of ``binding`` on ``backend``, which is flushed at the beginning of each example.

    A real server carries steps out a little later than planned, and its scripts see its own clock: what the laws say
    of time is judged with ``SLACK_MS`` of slack.
    """
    backend.flush()
    store = BoundStore(binding, backend, DEFAULT_EXPIRY_MS)
    capabilities = store.capabilities._replace(keeps_sent=keeps_sent(store))

    def make_run() -> SessionRun:
        backend.flush()
        fresh = BoundStore(binding, backend, DEFAULT_EXPIRY_MS)
        fresh.capabilities = capabilities
        return SessionRun(fresh, clients, slack_ms=SLACK_MS if backend.clock_runs else 0)

    facts = facts_of(binding, store.largest_batch) | {
        "make_run": make_run,
        "faults": faults_of(backend),
        "can_abort": backend.aborts_scripts,
    }
    return configured(machine, name, facts | attributes)
