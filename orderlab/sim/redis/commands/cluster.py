"""CLUSTER and the flags of a cluster connection: what a node tells about its slots, and how slots are moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from orderlab.sim.redis.arguments import integer
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, ErrorReply, Reply, Verbatim, mapping
from orderlab.sim.redis.slot_map import SlotMap

DISABLED = b"ERR This instance has cluster support disabled"
BUS_OFFSET = 10_000
"""The port at which nodes talk to each other, beyond that of clients."""
INVALID_SLOT = b"ERR Invalid or out of range slot"
INVALID_ACTION = b"ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"
_READS = "stale"
_CHANGES = "admin stale no_async_loading"


def slots_of(node: NodeState) -> SlotMap:
    """The node's slot map; an error when it is not part of a cluster."""
    if node.slots is None:
        raise ErrorReply(DISABLED)
    return node.slots


@command("asking", 1, "fast")
def asking(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ASKING."""
    slots_of(node)
    node.caller.asking = True
    return OK


@command("readonly", 1, "loading stale fast")
def readonly(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """READONLY."""
    slots_of(node)
    node.caller.reads_replicas = True
    return OK


@command("readwrite", 1, "loading stale fast")
def readwrite(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """READWRITE."""
    slots_of(node)
    node.caller.reads_replicas = False
    return OK


@command("cluster|myid", 2, _READS)
def myid(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER MYID."""
    return slots_of(node).myself


@command("cluster|keyslot", 3, _READS)
def keyslot(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER KEYSLOT key."""
    slots_of(node)
    return hash_slot(argv[2])


@command("cluster|countkeysinslot", 3, _READS)
def countkeysinslot(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER COUNTKEYSINSLOT slot. Keys past their deadline count until they are removed."""
    slots_of(node)
    slot = integer(argv[2])
    if not 0 <= slot < SLOT_COUNT:
        raise ErrorReply(b"ERR Invalid slot")
    return sum(hash_slot(key) == slot for key in node.data)


@command("cluster|getkeysinslot", 4, _READS)
def getkeysinslot(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER GETKEYSINSLOT slot count."""
    slots_of(node)
    slot, count = integer(argv[2]), integer(argv[3])
    if not 0 <= slot < SLOT_COUNT or count < 0:
        raise ErrorReply(b"ERR Invalid slot or number of keys")
    return [key for key in node.data if hash_slot(key) == slot][:count]


@command("cluster|slots", 2, _READS)
def slots(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER SLOTS."""
    view = slots_of(node)
    return [[first, last, [*_host_and_port(view, name), name, []]] for first, last, name in view.owned_ranges()]


@command("cluster|shards", 2, _READS)
def shards(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER SHARDS."""
    view = slots_of(node)
    owned: dict[bytes, list[Reply]] = {name: [] for name in view.addresses}
    for first, last, name in view.owned_ranges():
        owned[name] += [first, last]
    return [
        mapping(node.resp, [b"slots", owned[name], b"nodes", [mapping(node.resp, _shard_facts(view, name))]])
        for name in view.addresses
    ]


def _shard_facts(view: SlotMap, name: bytes) -> list[Reply]:
    host, port = _host_and_port(view, name)
    return [
        *(b"id", name, b"port", port, b"ip", host, b"endpoint", host),
        *(b"role", b"master", b"replication-offset", 0, b"health", b"online"),
    ]


@command("cluster|nodes", 2, _READS)
def nodes(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER NODES: every known node is a master in touch."""
    view = slots_of(node)
    owned: dict[bytes, list[bytes]] = {name: [] for name in view.addresses}
    for first, last, name in view.owned_ranges():
        owned[name].append(b"%d" % first if first == last else b"%d-%d" % (first, last))
    open_slots = [b"[%d->-%b]" % entry for entry in view.migrating.items()]
    open_slots += [b"[%d-<-%b]" % entry for entry in view.importing.items()]
    lines = []
    for name in view.addresses:
        host, port = _host_and_port(view, name)
        is_me = name == view.myself
        flags = b"myself,master" if is_me else b"master"
        facts = [
            name,
            b"%b:%d@%d" % (host, port, port + BUS_OFFSET),
            flags,
            b"-",
            b"0",
            b"%d" % (0 if is_me else node.now_ms),
        ]
        facts += [b"%d" % view.epochs.get(name, 0), b"connected", *owned[name], *(open_slots if is_me else ())]
        lines.append(b" ".join(facts) + b"\n")
    return Verbatim(b"".join(lines))


@command("cluster|info", 2, _READS)
def info(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER INFO: the facts that a model of a cluster knows."""
    view = slots_of(node)
    assigned = sum(owner is not None for owner in view.owners)
    facts = {
        b"cluster_state": b"ok" if view.is_up else b"fail",
        b"cluster_slots_assigned": b"%d" % assigned,
        b"cluster_slots_ok": b"%d" % assigned,
        b"cluster_known_nodes": b"%d" % len(view.addresses),
        b"cluster_size": b"%d" % len({owner for owner in view.owners if owner is not None}),
        b"cluster_current_epoch": b"%d" % max(view.epochs.values()),
        b"cluster_my_epoch": b"%d" % view.epochs[view.myself],
    }
    return Verbatim(b"".join(b"%b:%b\r\n" % fact for fact in facts.items()))


def _host_and_port(view: SlotMap, node: bytes) -> tuple[bytes, int]:
    host, _, port = view.addresses[node].rpartition(b":")
    return host, int(port)


# -- assignment ----------------------------------------------------------------------------------------------


def _slot(text: bytes) -> int:
    slot = parse_integer(text)
    if slot is None or not 0 <= slot < SLOT_COUNT:
        raise ErrorReply(INVALID_SLOT)
    return slot


def _listed(argv: Sequence[bytes]) -> list[int]:
    return [_slot(text) for text in argv[2:]]


def _in_ranges(argv: Sequence[bytes]) -> list[int]:
    if len(argv) % 2:
        name = argv[0].lower() + b"|" + argv[1].lower()
        raise ErrorReply(b"ERR wrong number of arguments for '%b' command" % name)
    chosen: list[int] = []
    for at in range(2, len(argv), 2):
        first, last = _slot(argv[at]), _slot(argv[at + 1])
        if first > last:
            raise ErrorReply(b"ERR start slot number %d is greater than end slot number %d" % (first, last))
        chosen += range(first, last + 1)
    return chosen


def _assign(node: NodeState, chosen: Iterable[int], name: bytes | None) -> Reply:
    """Give unassigned slots to ``name``, or with None take assigned ones away."""
    view = slots_of(node)
    seen: set[int] = set()
    for slot in chosen:
        if name is not None and view.owners[slot] is not None:
            raise ErrorReply(b"ERR Slot %d is already busy" % slot)
        if name is None and view.owners[slot] is None:
            raise ErrorReply(b"ERR Slot %d is already unassigned" % slot)
        if slot in seen:
            raise ErrorReply(b"ERR Slot %d specified multiple times" % slot)
        seen.add(slot)
    if name is not None:
        for slot in seen:
            view.importing.pop(slot, None)
    view.assign(seen, name)
    view.is_up = None not in view.owners
    return OK


@command("cluster|addslots", -3, _CHANGES)
def addslots(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER ADDSLOTS slot [slot ...]."""
    return _assign(node, _listed(argv), slots_of(node).myself)


@command("cluster|addslotsrange", -4, _CHANGES)
def addslotsrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER ADDSLOTSRANGE first last [first last ...]."""
    view = slots_of(node)
    return _assign(node, _in_ranges(argv), view.myself)


@command("cluster|delslots", -3, _CHANGES)
def delslots(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER DELSLOTS slot [slot ...]."""
    slots_of(node)
    return _assign(node, _listed(argv), None)


@command("cluster|delslotsrange", -4, _CHANGES)
def delslotsrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER DELSLOTSRANGE first last [first last ...]."""
    slots_of(node)
    return _assign(node, _in_ranges(argv), None)


# -- migration -----------------------------------------------------------------------------------------------


@command("cluster|setslot", -4, _CHANGES)
def setslot(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLUSTER SETSLOT slot {MIGRATING node | IMPORTING node | NODE node | STABLE}."""
    view = slots_of(node)
    slot, action = _slot(argv[2]), argv[3].lower()
    if action == b"stable" and len(argv) == 4:
        view.migrating.pop(slot, None)
        view.importing.pop(slot, None)
        return OK
    carry_out = _SETSLOT_ACTIONS.get(action)
    if carry_out is None or len(argv) != 5:
        raise ErrorReply(INVALID_ACTION)
    carry_out(node, slot, argv[4])
    return OK


def _migrate(node: NodeState, slot: int, name: bytes) -> None:
    view = slots_of(node)
    if view.owners[slot] != view.myself:
        raise ErrorReply(b"ERR I'm not the owner of hash slot %d" % slot)
    if name not in view.addresses:
        raise ErrorReply(b"ERR I don't know about node %b" % name)
    view.migrating[slot] = name


def _import(node: NodeState, slot: int, name: bytes) -> None:
    view = slots_of(node)
    if view.owners[slot] == view.myself:
        raise ErrorReply(b"ERR I'm already the owner of hash slot %d" % slot)
    if name not in view.addresses:
        raise ErrorReply(b"ERR I don't know about node %b" % name)
    view.importing[slot] = name


def _give_to(node: NodeState, slot: int, name: bytes) -> None:
    view = slots_of(node)
    if name not in view.addresses:
        raise ErrorReply(b"ERR Unknown node %b" % name)
    has_keys = any(hash_slot(key) == slot for key in node.data)
    if view.owners[slot] == view.myself and name != view.myself and has_keys:
        raise ErrorReply(
            b"ERR Can't assign hashslot %d to a different node while I still hold keys for this hash slot." % slot
        )
    if not has_keys:
        view.migrating.pop(slot, None)
    view.assign((slot,), name)
    if name == view.myself and slot in view.importing:
        view.claim()  # a higher epoch, so that every other node believes the new owner
        del view.importing[slot]


_SETSLOT_ACTIONS: dict[bytes, Callable[[NodeState, int, bytes], None]] = {
    b"migrating": _migrate,
    b"importing": _import,
    b"node": _give_to,
}
