"""Which machines put which law of a session store to the test, the most telling first."""

from __future__ import annotations

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.machines.concurrent_writers import ConcurrentWriters
from orderlab.properties.machines.hostile_clients import HostileClients
from orderlab.properties.machines.operations_in_trouble import OperationsInTrouble
from orderlab.properties.machines.packet_identifiers import PacketIdentifiers
from orderlab.properties.machines.session import SessionMachine
from orderlab.properties.machines.sessions import Sessions
from orderlab.properties.machines.store import StoreMachine
from orderlab.properties.machines.trim_and_expiry import TrimAndExpiry

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
