"""A Redis Cluster of kernel shards: slots spread over masters, slots on the move, a client that is redirected.

Nodes do not talk to each other by themselves: ``gossip`` is the step at which they learn of each other's slots, so
that a test or an explorer decides when, and sees what happens before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.slot_map import SlotMap

FIRST_PORT = 7000
REDIRECTIONS_MAX = 5
"""As redis-py and others: a cluster in order never needs more than two."""


class Node(Protocol):
    """A connection to one node, which follows no redirection."""

    def execute(self, *argv: bytes) -> Reply:
        """Run one command there; errors are values."""
        ...


class ShardConnection:
    """A connection to a kernel shard."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.client = Client()

    def execute(self, *argv: bytes) -> Reply:
        """Run one command there; errors are values."""
        return self.shard.execute(argv, self.client)


def number_at(address: bytes) -> int:
    """The number of the master that redirections call ``address``."""
    return int(address.rpartition(b":")[2]) - FIRST_PORT


class Cluster:
    """Masters with contiguous slot ranges. ``nodes[i]`` is a connection to master ``i``."""

    def __init__(self, masters: int = 3, now_ms: int = 0) -> None:
        shards = [Shard() for _ in range(masters)]
        for shard in shards:
            shard.now_ms = now_ms
        bounds = [index * SLOT_COUNT // masters for index in range(masters + 1)]
        self._join(shards, [index for index in range(masters) for _ in range(bounds[index], bounds[index + 1])])

    @classmethod
    def of(cls, shards: Sequence[Shard], owners: Sequence[int]) -> Cluster:
        """A cluster of shards that are there already; ``owners``: for each slot the number of its master."""
        cluster = cls.__new__(cls)
        cluster._join(shards, owners)
        return cluster

    def _join(self, shards: Sequence[Shard], owners: Sequence[int]) -> None:
        self.ids = [hashlib.sha1(b"node %d" % index).hexdigest().encode() for index in range(len(shards))]
        addresses = {node: b"127.0.0.1:%d" % (FIRST_PORT + index) for index, node in enumerate(self.ids)}
        self.shards = list(shards)
        for node, shard in zip(self.ids, shards, strict=True):
            shard.slots = SlotMap(node, addresses, epochs={one: 1 + index for index, one in enumerate(self.ids)})
            shard.slots.owners = [self.ids[owner] for owner in owners]
        self.nodes = [ShardConnection(shard) for shard in self.shards]

    def replace(self, shards: Sequence[Shard]) -> None:
        """Other processes have taken the places of the masters, with the slot maps of those before them."""
        if self.shards != list(shards):
            self.shards = list(shards)
            self.nodes = [ShardConnection(shard) for shard in shards]

    def slots(self, index: int) -> SlotMap:
        """What master ``index`` believes about the slots."""
        slots = self.shards[index].slots
        assert slots is not None, "every shard of a cluster has a slot map"
        return slots

    def address(self, index: int) -> str:
        """``host:port`` of master ``index``, as redirections name it."""
        return self.slots(index).addresses[self.ids[index]].decode()

    def owner(self, slot: int) -> int:
        """Index of the master that serves ``slot``, as master 0 sees it."""
        node = self.slots(0).owners[slot]
        assert node is not None, f"slot {slot}: nobody serves it"
        return self.ids.index(node)

    def gossip(self) -> None:
        """Every node learns who claims which slot with the highest epoch. A node that loses a slot drops its keys."""
        epochs = {node: self.slots(index).epochs[node] for index, node in enumerate(self.ids)}
        for index, shard in enumerate(self.shards):
            slots = self.slots(index)
            slots.epochs.update(epochs)
            for other, node in enumerate(self.ids):
                if other != index:
                    self._hear(shard, slots, node, self.slots(other).owners)

    def _hear(self, shard: Shard, slots: SlotMap, sender: bytes, claims: Sequence[bytes | None]) -> None:
        for slot, claimed_by in enumerate(claims):
            owner = slots.owners[slot]
            if claimed_by != sender or owner == sender or slot in slots.importing:
                continue
            if owner is None or slots.epochs[sender] > slots.epochs[owner]:
                slots.assign((slot,), sender)
                if owner == slots.myself:
                    slots.migrating.pop(slot, None)
                    _drop_slot(shard, slot)

    settle = gossip
    """As the cluster of real servers names it, where the nodes do it by themselves."""

    def begin_migration(self, slot: int, source: int, target: int) -> None:
        """Open ``slot``: ``target`` imports it and ``source`` migrates it. Keys stay where they are."""
        self.set_slot(target, slot, b"IMPORTING", self.ids[source])
        self.set_slot(source, slot, b"MIGRATING", self.ids[target])

    def migrate_keys(self, source: int, target: int, *keys: bytes) -> None:
        """Move those of ``keys`` that are there, with their deadlines, as MIGRATE ... REPLACE does."""
        moved = self.shards[source].freeze(keys)
        self.shards[target].patch(moved)
        for key in moved:
            self.shards[target].modified(key)
        for key in moved:
            if self.shards[source].remove(key):
                self.shards[source].modified(key)

    def end_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot``: ``target`` serves it from now on, and every master knows."""
        for index in (target, *(index for index in range(len(self.nodes)) if index != target)):
            self.set_slot(index, slot, b"NODE", self.ids[target])

    def cancel_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot`` without moving it; keys that have moved stay at ``target``."""
        self.set_slot(source, slot, b"STABLE")
        self.set_slot(target, slot, b"STABLE")

    def set_slot(self, node: int, slot: int, *action: bytes) -> None:
        """CLUSTER SETSLOT on one master. Raises ErrorReply."""
        reply = self.nodes[node].execute(b"CLUSTER", b"SETSLOT", b"%d" % slot, *action)
        if isinstance(reply, ErrorReply):
            raise reply


def _drop_slot(shard: Shard, slot: int) -> None:
    for key in [key for key in shard.data if hash_slot(key) == slot]:
        shard.remove(key)
        shard.modified(key)


class RedirectingClient:
    """A cluster client: sends a command where its first key lives, and follows MOVED and ASK.

    MOVED is remembered, ASK is not. Everything else, TRYAGAIN included, is the caller's to handle. Works on kernel
    shards and on connections to real nodes alike.
    """

    def __init__(self, nodes: Mapping[bytes, Node]) -> None:
        """``nodes``: address (``host:port``) -> connection; the first one is asked where nothing better is known."""
        self._nodes = nodes
        self._first = next(iter(nodes))
        self._owners: dict[int, bytes] = {}

    def execute(self, *argv: bytes) -> Reply:
        """The reply of the node that finally serves the command, or the last redirection when there were too many."""
        command = find(argv)
        keys = command.find_keys(argv) if command is not None and command.admits(len(argv)) else ()
        address = self._owners.get(hash_slot(keys[0]), self._first) if keys else self._first
        reply: Reply = None
        is_asking = False
        for _ in range(REDIRECTIONS_MAX):
            node = self._nodes[address]
            if is_asking:
                node.execute(b"ASKING")
            reply = node.execute(*argv)
            if not isinstance(reply, ErrorReply) or not reply.message.startswith((b"MOVED ", b"ASK ")):
                return reply
            kind, slot, address = reply.message.split(b" ")
            is_asking = kind == b"ASK"
            if not is_asking:
                self._owners[int(slot)] = address
        return reply
