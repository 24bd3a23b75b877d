"""A session store on a Redis Cluster of three masters: calls find their slot by themselves, and the judge sees all
nodes.

Kernel shards or real servers; the machine ``slots_on_the_move`` moves slots under the store and lets masters fail.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from orderlab.model.contracts.client_steps import Fault
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.backends.backend import FIRST_MS, Argv
from orderlab.sim.redis.backends.dump import dump
from orderlab.sim.redis.cluster import Cluster, Node, RedirectingClient
from orderlab.sim.redis.error_conditions import SLOT_MIGRATES
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Effect, FrozenKeyspace, Shard
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Fields, Result
from orderlab.sim.stores.bound import EVERYTHING, BoundStore, Interruption, calls_for
from orderlab.sim.stores.records import Record, record_of
from tests.laboratory.live_cluster import ClusterProcess

MASTERS = 3
COUNTED = (b"MOVED", b"ASK", b"TRYAGAIN", b"CROSSSLOT", b"NOSCRIPT")
ON_EVERY_NODE = (b"SCRIPT", b"FUNCTION")


class _Noting:
    """A connection to one node that counts the errors which only a cluster gives."""

    def __init__(self, node: Node, met: Counter[str]) -> None:
        self._node, self._met = node, met

    def execute(self, *argv: bytes) -> Reply:
        """As the node does."""
        reply = self._node.execute(*argv)
        if isinstance(reply, ErrorReply):
            code = reply.message.split(b" ", 1)[0]
            if code in COUNTED:
                self._met[code.decode()] += 1
            elif b"non local key" in reply.message:
                self._met["a script stopped at a key that is not there"] += 1
        return reply


class ClusterBackend(Backend):
    """Masters and a client that follows redirections. Of a slot that moves, the source's keys count over the
    target's."""

    contains_scripts = True

    @property
    @abstractmethod
    def masters(self) -> Cluster | ClusterProcess:
        """The nodes."""
        ...

    def __init__(self, masters: Cluster | ClusterProcess) -> None:
        self.coverage: Counter[str] = Counter()
        """Errors that nodes gave, redirections included."""
        self._connect(masters)

    def _connect(self, masters: Cluster | ClusterProcess) -> None:
        nodes: Sequence[Node] = masters.nodes
        self.client = RedirectingClient(
            {masters.address(at).encode(): _Noting(node, self.coverage) for at, node in enumerate(nodes)}
        )

    def execute(self, *argv: bytes) -> Reply:
        """Where its keys live; scripts are loaded everywhere."""
        if argv[0].upper() in ON_EVERY_NODE:
            return [node.execute(*argv) for node in self.masters.nodes][-1]
        return self.client.execute(*argv)

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        return [self.execute(*argv) for argv in commands]

    @abstractmethod
    def contents(self, node: int) -> FrozenKeyspace:
        """All keys of one master."""
        ...

    def keyspace(self) -> FrozenKeyspace:
        """Every key once: a copy at a node that does not serve its slot is overwritten when the slot moves on."""
        found: FrozenKeyspace = {}
        for at in range(MASTERS):
            for key, value in self.contents(at).items():
                if key not in found or self.masters.owner(hash_slot(key)) == at:
                    found[key] = value
        return dict(sorted(found.items()))

    def load(self, keyspace: FrozenKeyspace) -> None:
        raise NotImplementedError("a cluster is filled by its clients")


class KernelCluster(ClusterBackend):
    """Three kernel shards, each with a replica that has what it had when it was last in touch."""

    sees_virtual_time = True

    def __init__(self) -> None:
        self._masters = Cluster(MASTERS, FIRST_MS)
        self._replicas: list[FrozenKeyspace] = [{}] * MASTERS
        self._libraries: list[Argv] = []
        super().__init__(self._masters)

    @property
    def masters(self) -> Cluster:
        return self._masters

    @property
    def now_ms(self) -> int:
        return self.masters.shards[0].now_ms

    def execute(self, *argv: bytes) -> Reply:
        if argv[0].upper() == b"FUNCTION":
            self._libraries.append(argv)
        return super().execute(*argv)

    def contents(self, node: int) -> FrozenKeyspace:
        return self.masters.shards[node].freeze()

    def flush(self) -> None:
        """Not while a slot moves."""
        for shard in self.masters.shards:
            shard.load({})

    def advance(self, ms: int) -> None:
        for shard in self.masters.shards:
            shard.now_ms += ms

    def catch_up(self) -> None:
        """Every replica has what its master has."""
        self._replicas = [shard.freeze() for shard in self.masters.shards]

    def fail_over(self, node: int) -> None:
        """The replica of one master takes its place: with the keys that it has, with functions, without scripts."""
        old, new = self.masters.shards[node], Shard()
        new.now_ms, new.slots = old.now_ms, old.slots
        new.load(self._replicas[node])
        self.masters.replace([new if shard is old else shard for shard in self.masters.shards])
        for argv in self._libraries:
            new.execute(argv)
        self._connect(self.masters)

    def describe(self) -> str:
        return f"a cluster of {MASTERS} kernel shards"

    def close(self) -> None:
        pass


class ServerCluster(ClusterBackend):
    """Three real masters on loopback."""

    sees_virtual_time = False

    def __init__(self, masters: ClusterProcess) -> None:
        self._masters = masters
        super().__init__(masters)

    @property
    def masters(self) -> ClusterProcess:
        return self._masters

    @property
    def now_ms(self) -> int:
        seconds, microseconds = self.masters.nodes[0].demand(b"TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def contents(self, node: int) -> FrozenKeyspace:
        connection = self.masters.nodes[node]

        def asking(commands: Sequence[Argv]) -> list[Reply]:
            """Of keys that have arrived before their slot a node tells only whoever asks."""
            return connection.pipeline([argv for command in commands for argv in ((b"ASKING",), command)])[1::2]

        return dump(asking, f"master {node}")

    def flush(self) -> None:
        self.masters.flush()

    def advance(self, ms: int) -> None:
        raise NotImplementedError("a real cluster's scripts read its own clock")

    def describe(self) -> str:
        return f"a cluster of {MASTERS} real masters"

    def close(self) -> None:
        self.masters.stop()


class ClusterStore(BoundStore):
    """A store on a cluster. A listing is taken on a node of its own that holds every key: it shows what is there,
    however far a slot has moved."""

    def __init__(self, binding: Binding, backend: ClusterBackend, default_expiry_ms: int) -> None:
        self.cluster = backend
        self._aside = BoundStore(binding, KernelBackend(), default_expiry_ms)
        self.last: list[Record] = []
        """What the last operation called, where that can be seen."""
        super().__init__(binding, backend, default_expiry_ms)

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """As on any store; on kernel shards with a record."""
        if not isinstance(self.cluster, KernelCluster):
            return super().perform(operation, client, fields, between)
        effects: list[Effect] = []
        for shard in self.cluster.masters.shards:
            shard.effects = effects
        try:
            return super().perform(operation, client, fields, between)
        finally:
            self.last = [record_of(operation, client, effects)]

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which the store is as it was."""
        self._aside.set_now(max(self.now_ms, self.backend.now_ms))
        self._aside.backend.load(self.backend.keyspace())
        return self._aside.perform("fetch", client, {"count": EVERYTHING, "after": 0})

    @contextmanager
    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> Iterator[None]:
        """A slot that migrates here does so by itself; other faults are not made on a cluster."""
        assert fault.kind == SLOT_MIGRATES.name, fault
        yield

    def slots_of(self, client: bytes) -> list[int]:
        """The slots of all keys that calls for a client name."""
        keys: set[bytes] = set()
        for operation in self.operations:
            for argv in calls_for(self.binding, operation, {"client": client}):
                command = find(argv)
                keys.update(command.find_keys(argv) if command is not None else ())
        return sorted({hash_slot(key) for key in keys})


class Migration:
    """The slot that is on its way, if any. Keys go in the order of their names."""

    def __init__(self, backend: ClusterBackend) -> None:
        self.backend = backend
        self.slot: int | None = None
        self.source = self.target = 0

    def begin(self, slot: int, target: int) -> None:
        """Open a slot; ``target`` is another master than the one that serves it."""
        self.slot, self.source, self.target = slot, self.backend.masters.owner(slot), target
        self.backend.masters.begin_migration(slot, self.source, target)

    def move(self, most: int | None = None, back: bool = False) -> int:
        """Move keys on, or back; how many."""
        source, target = (self.target, self.source) if back else (self.source, self.target)
        keys = [key for key in sorted(self.backend.contents(source)) if hash_slot(key) == self.slot][:most]
        if keys:
            self.backend.masters.migrate_keys(source, target, *keys)
        return len(keys)

    def end(self) -> None:
        """The keys that are left, then the slot itself."""
        if self.slot is not None:
            self.move()
            self.backend.masters.end_migration(self.slot, self.source, self.target)
            self.slot = None

    def turn_back(self) -> None:
        """The operator thinks again: the slot stays, and keys return to a source that does not send them away again."""
        if self.slot is not None:
            self.backend.masters.set_slot(self.source, self.slot, b"STABLE")
            self.move(back=True)
            self.backend.masters.cancel_migration(self.slot, self.source, self.target)
            self.slot = None


def served(met: Mapping[str, int]) -> dict[str, int]:
    """What a cluster answered, by names that statistics print."""
    return {f"the cluster says {word}" if word.isupper() else word: count for word, count in met.items()}
