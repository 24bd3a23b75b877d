"""A cluster of real servers on this machine: the judge of slot behaviour."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from orderlab.model.errors import InputError
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.hash_slots import SLOT_COUNT
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.wire import Connection

FORMATION_TIMEOUT_S = 30.0


class ClusterProcess:
    """Masters with contiguous slot ranges; a context manager.

    ``nodes[i]`` is a connection to master ``i``, which answers for itself and follows no redirection.

    The judge of slot behaviour. Nodes are formed into a cluster with plain commands (``CLUSTER MEET``, ``CLUSTER
    ADDSLOTSRANGE``), and slots are moved as an operator moves them: ``SETSLOT IMPORTING`` on the target, ``SETSLOT
    MIGRATING`` on the source, ``MIGRATE`` for the keys, ``SETSLOT NODE``.
    """

    def __init__(self, masters: int = 3) -> None:
        """Start ``masters`` servers and wait until each sees the cluster up. Raises InputError when they do not."""
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "60000",  # a stalled machine must not look like a failed node
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": "0",
        }
        self._processes: list[ServerProcess] = []
        self.nodes: list[Connection] = []
        try:
            for _ in range(masters):
                process = ServerProcess(settings)
                self._processes.append(process)
                self.nodes.append(Connection(process.host, process.port))
            self._form()
        except BaseException:
            self.stop()
            raise

    def _form(self) -> None:
        count = len(self.nodes)
        first = self._processes[0]
        for index, node in enumerate(self.nodes):
            low, high = index * SLOT_COUNT // count, (index + 1) * SLOT_COUNT // count - 1
            node.demand(b"CLUSTER", b"SET-CONFIG-EPOCH", b"%d" % (index + 1))
            node.demand(b"CLUSTER", b"ADDSLOTSRANGE", b"%d" % low, b"%d" % high)
            if index:
                node.demand(b"CLUSTER", b"MEET", first.host.encode(), b"%d" % first.port, b"%d" % first.bus_port)
        self._await(lambda: all(self._is_whole(node) for node in self.nodes), "form")
        self.ids = [bytes(node.demand(b"CLUSTER", b"MYID")) for node in self.nodes]

    def _is_whole(self, node: Connection) -> bool:
        information: bytes = node.demand(b"CLUSTER", b"INFO")
        known = b"cluster_known_nodes:%d\r" % len(self.nodes)
        return b"cluster_state:ok" in information and known in information and self._slots_are_covered(node)

    def _slots_are_covered(self, node: Connection) -> bool:
        covered: int = sum(entry[1] - entry[0] + 1 for entry in node.demand(b"CLUSTER", b"SLOTS"))
        return covered == SLOT_COUNT

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + FORMATION_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                limit = f"{FORMATION_TIMEOUT_S:g} s"
                raise InputError(f"the local cluster did not {what} within {limit}; run it on a quieter machine")
            time.sleep(0.01)

    def address(self, index: int) -> str:
        """``host:port`` of master ``index``, as redirections name it."""
        return self._processes[index].address

    def owner(self, slot: int) -> int:
        """Index of the master that serves ``slot``, as master 0 sees it."""
        for low, high, (_, port, *_), *_ in self.nodes[0].demand(b"CLUSTER", b"SLOTS"):
            if low <= slot <= high:
                return next(i for i, process in enumerate(self._processes) if process.port == port)
        raise InputError(f"slot {slot}: nobody serves it")

    def begin_migration(self, slot: int, source: int, target: int) -> None:
        """Open ``slot``: ``target`` imports it and ``source`` migrates it. Keys stay where they are."""
        self.set_slot(target, slot, b"IMPORTING", self.ids[source])
        self.set_slot(source, slot, b"MIGRATING", self.ids[target])

    def migrate_keys(self, source: int, target: int, *keys: bytes) -> Reply:
        """Move ``keys`` from one master to the other, over what is there (MIGRATE ... REPLACE)."""
        process = self._processes[target]
        host, port = process.host.encode(), b"%d" % process.port
        return self.nodes[source].demand(b"MIGRATE", host, port, b"", b"0", b"5000", b"REPLACE", b"KEYS", *keys)

    def end_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot``: ``target`` serves it from now on, and every master knows."""
        self.set_slot(target, slot, b"NODE", self.ids[target])
        for index in range(len(self.nodes)):
            if index != target:
                self.set_slot(index, slot, b"NODE", self.ids[target])
        self.settle()

    def settle(self) -> None:
        """Wait until every master believes the same about all epochs and slots: no message on its way can change it."""
        self._await(lambda: len({self._beliefs(node) for node in self.nodes}) == 1, "agree on its slots")

    @staticmethod
    def _beliefs(node: Connection) -> frozenset[tuple[str, ...]]:
        """Identifier, configuration epoch and slots of every master, as ``node`` sees them."""
        lines = node.demand(b"CLUSTER", b"NODES").decode().splitlines()
        facts = [line.split() for line in lines]
        return frozenset((one[0], one[6], *(part for part in one[8:] if not part.startswith("["))) for one in facts)

    def cancel_migration(self, slot: int, source: int, target: int) -> None:
        """Close ``slot`` without moving it; keys that have moved stay at ``target``."""
        self.set_slot(source, slot, b"STABLE")
        self.set_slot(target, slot, b"STABLE")

    def set_slot(self, node: int, slot: int, *action: bytes) -> None:
        """CLUSTER SETSLOT on one master."""
        self.nodes[node].demand(b"CLUSTER", b"SETSLOT", b"%d" % slot, *action)

    def flush(self) -> None:
        """Remove all keys of all masters."""
        for node in self.nodes:
            node.demand(b"FLUSHALL")

    def stop(self) -> None:
        """Close the connections and end the servers; idempotent."""
        for node in self.nodes:
            node.close()
        for process in self._processes:
            process.stop()

    def __enter__(self) -> ClusterProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
