"""Slot behaviour, judged by a real cluster: commands, scripts and transactions at every node, while slots move.

The same steps go to a real three-master cluster and to a kernel cluster, which go through the same migrations. Their
node identifiers and addresses differ, so these are compared by the number of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orderlab.sim.redis.cluster import Cluster, Node
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.replies import ErrorReply, Reply
from tests.laboratory.conformance.comparison import same
from tests.laboratory.conformance.grammar import Argv, Draw
from tests.laboratory.live_cluster import ClusterProcess

TAGS = (b"a", b"b", b"c")
"""Their slots belong to three different masters at the start, and move from there."""
KEYS = tuple(b"{%b}%d" % (tag, number) for tag in TAGS for number in range(4))
SCRIPTS = (
    b"return redis.call('GET', KEYS[1])",
    b"return redis.call('SET', KEYS[1], ARGV[1])",
    b"return redis.call('MGET', unpack(KEYS))",
    b"return redis.call('GET', ARGV[1])",
    b"return redis.call('SET', ARGV[1], 'undeclared')",
    b"redis.call('SET', KEYS[1], 'before') return redis.call('SET', ARGV[1], 'after')",
    b"redis.call('SET', KEYS[1], 'before') return redis.pcall('GET', ARGV[1])",
    b"for i = 0, 3 do redis.call('SET', '{' .. ARGV[1] .. '}' .. i, i) end return 'done'",
    b"for i = 0, 3 do redis.call('APPEND', '{' .. ARGV[1] .. '}' .. i, i) end return 'done'",
    b"redis.call('GET', KEYS[1]) return redis.call('GET', ARGV[1])",
    b"return redis.call('MGET', KEYS[1], ARGV[1])",
    b"return redis.call('PING')",
    b"return {redis.pcall('DEL', KEYS[1], ARGV[1]), redis.call('DBSIZE')}",
    b"return redis.call('CLUSTER', 'KEYSLOT', 'a')",
    b"redis.call('ASKING')",
)
FLAGS = (b"allow-cross-slot-keys", b"no-cluster", b"no-writes", b"allow-oom")
SHEBANGS = (b"", b"", b"", b"#!lua\n", *(b"#!lua flags=%b\n" % flag for flag in FLAGS))


class AnyCluster(Protocol):
    """What the kernel's cluster and the real one share."""

    @property
    def nodes(self) -> Sequence[Node]:
        """A connection to each master."""
        ...

    @property
    def ids(self) -> Sequence[bytes]:
        """The identifier of each master."""
        ...

    def address(self, index: int) -> str:
        """``host:port`` of a master."""
        ...

    def migrate_keys(self, source: int, target: int, *keys: bytes) -> object:
        """Move keys from one master to another."""
        ...

    def settle(self) -> None:
        """Let all masters learn what is true of the slots."""
        ...


@dataclass(frozen=True, slots=True)
class Migration:
    """A slot on the move."""

    slot: int
    source: int
    target: int


class SlotJudge:
    """Two clusters in step. ``step`` draws one thing to do, does it on both and says how they differ."""

    def __init__(self, real: ClusterProcess, kernel: Cluster) -> None:
        self.clusters: tuple[AnyCluster, AnyCluster] = (real, kernel)
        self.owners = {hash_slot(tag): real.owner(hash_slot(tag)) for tag in TAGS}
        self.migration: Migration | None = None
        self.seen: Counter[str] = Counter()
        """How often each kind of reply came: OK, MOVED, ASK, ..."""
        self.script_errors: Counter[bytes] = Counter()

    def step(self, draw: Draw) -> str | None:
        """Do one thing on both; what differs, or None."""
        if draw.random() < 0.05:
            return self._migrate(draw)
        node = draw.randrange(3)
        for argv in self._commands(draw):
            difference = self.compare(node, argv)
            if difference is not None:
                return difference
        return None

    def compare(self, node: int, argv: Argv) -> str | None:
        """Run ``argv`` at one node of both clusters."""
        real, kernel = (self._readable(one.nodes[node].execute(*argv), one) for one in self.clusters)
        self._count(real)
        if argv[0] == b"KEYS" or argv[1:2] == (b"GETKEYSINSLOT",):
            real, kernel = sorted(real), sorted(kernel)
        if same(real, kernel):
            return None
        return f"node {node}, {self.migration}: {argv!r}: kernel {kernel!r}, server {real!r}"

    def _count(self, reply: Reply) -> None:
        if not isinstance(reply, ErrorReply):
            self.seen["answered"] += 1
            return
        code = reply.message.split(b" ")[0].decode()
        self.seen[code] += 1
        if reply.message.startswith(b"ERR Script attempted"):
            self.script_errors[reply.message.split(b" script:")[0]] += 1

    @staticmethod
    def _readable(reply: Reply, cluster: AnyCluster) -> Reply:
        if isinstance(reply, list):
            return [SlotJudge._readable(item, cluster) for item in reply]
        if not isinstance(reply, ErrorReply):
            return reply
        message = reply.message
        for index in range(3):
            message = message.replace(cluster.address(index).encode(), b"<node %d>" % index)
            message = message.replace(cluster.ids[index], b"<id %d>" % index)
        return ErrorReply(message)

    # -- migrations ----------------------------------------------------------------------------------------

    def _migrate(self, draw: Draw) -> str | None:
        open_now = self.migration
        if open_now is None:
            slot = hash_slot(TAGS[draw.randrange(3)])
            source = self.owners[slot]
            target = (source + 1 + draw.randrange(2)) % 3
            self.migration = Migration(slot, source, target)
            return self._set_slot(target, slot, b"IMPORTING", source) or self._set_slot(
                source, slot, b"MIGRATING", target
            )
        if draw.random() < 0.7:
            self._move_keys(open_now, [key for key in _keys_of(open_now.slot) if draw.random() < 0.4])
            return None
        self._move_keys(open_now, _keys_of(open_now.slot))
        self.owners[open_now.slot] = open_now.target
        self.migration = None
        order = (open_now.target, *(index for index in range(3) if index != open_now.target))
        for index in order:
            difference = self._set_slot(index, open_now.slot, b"NODE", open_now.target)
            if difference is not None:
                return difference
        for cluster in self.clusters:
            cluster.settle()
        return None

    def _move_keys(self, migration: Migration, keys: Sequence[bytes]) -> None:
        for cluster in self.clusters:
            if keys:
                cluster.migrate_keys(migration.source, migration.target, *keys)

    def _set_slot(self, node: int, slot: int, action: bytes, about: int) -> str | None:
        replies = [
            cluster.nodes[node].execute(b"CLUSTER", b"SETSLOT", b"%d" % slot, action, cluster.ids[about])
            for cluster in self.clusters
        ]
        if same(*replies):
            return None
        return f"SETSLOT {slot} {action!r} node {about} at node {node}: {replies!r}"

    # -- commands ------------------------------------------------------------------------------------------

    def _commands(self, draw: Draw) -> list[Argv]:
        commands = MAKERS[draw.randrange(len(MAKERS))](draw)
        return [(b"ASKING",), *commands] if draw.random() < 0.3 else commands


def _keys_of(slot: int) -> list[bytes]:
    return [key for key in KEYS if hash_slot(key) == slot]


def _key(draw: Draw) -> bytes:
    return KEYS[draw.randrange(len(KEYS))]


def _keys(draw: Draw) -> list[bytes]:
    """Some keys, mostly of one slot."""
    if draw.random() < 0.2:
        return [_key(draw) for _ in range(1 + draw.randrange(3))]
    tag = TAGS[draw.randrange(3)]
    return [b"{%b}%d" % (tag, draw.randrange(4)) for _ in range(1 + draw.randrange(3))]


def _plain(draw: Draw) -> list[Argv]:
    keys = _keys(draw)
    forms: Sequence[Argv] = (
        (b"GET", keys[0]),
        (b"SET", keys[0], b"x"),
        (b"SET", keys[0], b"x"),
        (b"DEL", *keys),
        (b"MGET", *keys),
        (b"MSET", *(word for key in keys for word in (key, b"y"))),
        (b"EXISTS", *keys),
        (b"RENAME", keys[0], keys[-1]),
        (b"APPEND", keys[0], b"z"),
        (b"PING",),
    )
    return [forms[draw.randrange(len(forms))]]


def _script(draw: Draw) -> list[Argv]:
    keys = _keys(draw)[: draw.randrange(4)]
    source = SHEBANGS[draw.randrange(len(SHEBANGS))] + SCRIPTS[draw.randrange(len(SCRIPTS))]
    argument = TAGS[draw.randrange(3)] if b"'{' .. ARGV" in source else _key(draw)
    return [(b"EVAL", source, b"%d" % len(keys), *keys, argument)]


def _transaction(draw: Draw) -> list[Argv]:
    count = 1 + draw.randrange(3)
    inner = [argv for _ in range(count) for argv in (_plain if draw.random() < 0.8 else _script)(draw)]
    before: list[Argv] = [(b"WATCH", _key(draw))] if draw.random() < 0.2 else []
    asks: list[Argv] = [(b"ASKING",)] if draw.random() < 0.2 else []
    return [*before, (b"MULTI",), *asks, *inner, (b"EXEC",), (b"UNWATCH",)]


def _about(draw: Draw) -> list[Argv]:
    slot = b"%d" % hash_slot(TAGS[draw.randrange(3)])
    forms: Sequence[Argv] = (
        (b"CLUSTER", b"COUNTKEYSINSLOT", slot),
        (b"CLUSTER", b"GETKEYSINSLOT", slot, b"10"),
        (b"CLUSTER", b"KEYSLOT", _key(draw)),
        (b"CLUSTER", b"SETSLOT", slot, b"MIGRATING", b"nosuch"),
        (b"CLUSTER", b"SETSLOT", slot, b"NODE"),
        (b"CLUSTER", b"ADDSLOTS", slot),
        (b"KEYS", b"*"),
        (b"DBSIZE",),
        (b"SELECT", (b"0", b"1", b"x", b"16")[draw.randrange(4)]),
        (b"SWAPDB", b"0", b"1"),
        (b"MOVE", _key(draw), b"1"),
        (b"COPY", (key := _key(draw)), key, b"DB", b"1"),
        (b"READONLY",),
        (b"READWRITE",),
    )
    return [forms[draw.randrange(len(forms))]]


MAKERS: Sequence[Callable[[Draw], list[Argv]]] = (_plain, _plain, _plain, _script, _script, _transaction, _about)
