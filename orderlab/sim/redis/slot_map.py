"""Who serves which hash slot, as one node of a Redis Cluster believes, and why it refuses a command (MOVED, ASK, …).

A node serves a command when all its keys fall into one slot that the node owns. While a slot moves, the source
(migrating) serves what it still has and sends the rest away with ASK; the target (importing) serves only commands
announced by ASKING; both answer TRYAGAIN to a command whose keys are split between them. Source: ``getNodeByQuery``
and ``scriptVerifyClusterState`` of Redis 7.0.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot


class Reason(Enum):
    """Why a node refuses a command."""

    CROSS_SLOT = "keys of different slots"
    UNSTABLE = "keys split by a migration"
    UNBOUND = "slot served by nobody"
    DOWN = "cluster down"
    ASK = "key has moved ahead of its slot"
    MOVED = "slot of another node"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node's answer to a command that it does not serve."""

    reason: Reason
    slot: int = 0
    address: bytes = b""
    """``host:port`` where the command should go (ASK, MOVED)."""

    def to_client(self) -> bytes:
        """The error that a client gets."""
        match self.reason:
            case Reason.CROSS_SLOT:
                return b"CROSSSLOT Keys in request don't hash to the same slot"
            case Reason.UNSTABLE:
                return b"TRYAGAIN Multiple keys request during rehashing of slot"
            case Reason.UNBOUND:
                return b"CLUSTERDOWN Hash slot not served"
            case Reason.DOWN:
                return b"CLUSTERDOWN The cluster is down"
            case _:
                return b"%b %d %b" % (self.reason.name.encode(), self.slot, self.address)

    def to_script(self) -> bytes:
        """The error that ``redis.call`` raises inside a script, which cannot be redirected."""
        match self.reason:
            case Reason.DOWN:
                return b"ERR Script attempted to execute a command while the cluster is down"
            case _:  # keys of two slots included: Redis 7.0 has no words of their own for them here
                return b"ERR Script attempted to access a non local key in a cluster node"


class Keys(Protocol):
    """What a slot map must know of its node's keyspace."""

    def lookup(self, key: bytes) -> object | None:
        """The live value at ``key``, or None."""
        ...


@dataclass(slots=True)
class SlotMap:
    """Who serves which slot, as node ``myself`` believes. Nodes are named by their identifier (40 hex digits)."""

    myself: bytes
    addresses: dict[bytes, bytes]
    """Identifier -> ``host:port``, for every known node."""
    owners: list[bytes | None] = field(default_factory=lambda: [None] * SLOT_COUNT)
    migrating: dict[int, bytes] = field(default_factory=dict)
    """Slot of ours -> the node it is moving to."""
    importing: dict[int, bytes] = field(default_factory=dict)
    """Slot of another -> the node it comes from."""
    epochs: dict[bytes, int] = field(default_factory=dict)
    """Configuration epoch of every known node: where two claim a slot, the higher epoch is believed."""
    is_up: bool = True
    """False when the node believes the cluster down (a slot uncovered, a majority of masters unreachable)."""

    def refusal(self, keyspace: Keys, keys: Iterable[bytes], asking: bool) -> Refusal | None:
        """Why a command with ``keys`` is not served here; None when it is. ``asking``: the client sent ASKING first."""
        slot: int | None = None
        first = b""
        several = False
        missing = existing = 0
        is_open = False
        for key in keys:
            at = hash_slot(key)
            if slot is None:
                slot, first = at, key
                if self.owners[slot] is None:
                    return Refusal(Reason.UNBOUND, slot)
                is_open = self._is_migrating(slot) or slot in self.importing
            elif at != slot:
                return Refusal(Reason.CROSS_SLOT, slot)
            elif key != first:
                several = True
            if is_open:
                if keyspace.lookup(key) is None:
                    missing += 1
                else:
                    existing += 1
        if slot is None:
            return None
        if not self.is_up:
            return Refusal(Reason.DOWN, slot)
        return self._route(slot, asking, several, missing, existing)

    def _is_migrating(self, slot: int) -> bool:
        return self.owners[slot] == self.myself and slot in self.migrating

    def _route(self, slot: int, asking: bool, several: bool, missing: int, existing: int) -> Refusal | None:
        if self._is_migrating(slot) and missing:
            if existing:
                return Refusal(Reason.UNSTABLE, slot)
            return Refusal(Reason.ASK, slot, self.addresses[self.migrating[slot]])
        if slot in self.importing and asking:
            return Refusal(Reason.UNSTABLE, slot) if several and missing else None
        owner = self.owners[slot]
        if owner == self.myself:
            return None
        assert owner is not None, "an unbound slot was refused before"
        return Refusal(Reason.MOVED, slot, self.addresses[owner])

    def claim(self) -> None:
        """Take an epoch above all that are known."""
        self.epochs[self.myself] = 1 + max(self.epochs.values(), default=0)

    def assign(self, slots: Iterable[int], node: bytes | None) -> None:
        """Let ``node`` (None: nobody) serve ``slots``."""
        for slot in slots:
            self.owners[slot] = node

    def owned_ranges(self) -> list[tuple[int, int, bytes]]:
        """Maximal runs of slots with one owner, as (first, last, node), in order."""
        return ranges(self.owners)


def ranges(owners: Sequence[bytes | None]) -> list[tuple[int, int, bytes]]:
    """Maximal runs of equal owners; slots without one are left out."""
    runs: list[tuple[int, int, bytes]] = []
    start = 0
    for slot in range(1, len(owners) + 1):
        if slot == len(owners) or owners[slot] != owners[start]:
            owner = owners[start]
            if owner is not None:
                runs.append((start, slot - 1, owner))
            start = slot
    return runs
