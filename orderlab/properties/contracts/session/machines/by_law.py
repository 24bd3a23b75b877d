"""Which machines put which law of a session store to the test, the most telling first."""

from __future__ import annotations

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.machines.concurrent_writers import ConcurrentWriters, OperationsInTrouble
from orderlab.properties.contracts.session.machines.hostile_clients import HostileClients
from orderlab.properties.contracts.session.machines.packet_identifiers import PacketIdentifiers
from orderlab.properties.contracts.session.machines.session import SessionMachine, Sessions
from orderlab.properties.contracts.session.machines.store import StoreMachine
from orderlab.properties.contracts.session.machines.trim_and_expiry import TrimAndExpiry

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
