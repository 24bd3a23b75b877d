"""Every fault that can strike a broker system, by the name that operators use, at an instant of virtual time.

Written ``name@seconds`` or ``name@seconds:target``; the target is the number of a broker, a Redis node or a Kafka broker,
as the fault says. Several are separated by blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from model.errors import InputError
from model.history import EventKind
from sim.binding.fields import did_you_mean
from sim.mqtt.fabric import Fabric
from sim.timers import call_at

REDIS_DOWN_US = 200_000
"""Until a replica is promoted or a process is up again."""
STALL_US = 500_000
PAUSE_US = 600_000
"""How long a consumer stands still that loses its partitions: longer than the rebalance."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule."""

    name: str
    at_us: int
    target: int

    def __str__(self) -> str:
        return f"{self.name}@{self.at_us / 1e6:g}:{self.target}"


def broker_crash(fabric: Fabric, target: int) -> None:
    """The process of a broker dies. Its clients connect to the next broker; its partitions go to the others."""
    fabric.brokers[_place(target, fabric.brokers)].crash()


def broker_crash_before_commit(fabric: Fabric, target: int) -> None:
    """The same at its next commit: what was saved is saved again by the next owner."""
    fabric.brokers[_place(target, fabric.brokers)].crash_at_commit = "before"


def broker_crash_after_commit(fabric: Fabric, target: int) -> None:
    """The same right after its next commit: what was saved is not sent on."""
    fabric.brokers[_place(target, fabric.brokers)].crash_at_commit = "after"


def consumer_rebalance(fabric: Fabric, target: int) -> None:
    """A consumer stands still with a pack in its hands, loses its partitions, and goes on with the pack later."""
    broker = fabric.brokers[_place(target, fabric.brokers)]
    broker.persisted_consumers[0].pause_us = PAUSE_US


def redis_failover(fabric: Fabric, target: int) -> None:
    """A Redis master dies; its replica takes over with what had reached it."""
    node = fabric.nodes[_place(target, fabric.nodes)]
    if node.replica is None:
        raise InputError("redis-failover: the nodes have no replicas; --set redis_replica_lag_ms=1")
    node.crash()
    call_at(fabric.env, fabric.env.now + REDIS_DOWN_US, lambda: fabric.count("commands_lost", node.fail_over()))


def redis_restart(fabric: Fabric, target: int) -> None:
    """A Redis process dies and starts again with what its append-only file holds."""
    node = fabric.nodes[_place(target, fabric.nodes)]
    node.crash()
    call_at(fabric.env, fabric.env.now + REDIS_DOWN_US, lambda: fabric.count("commands_lost", abs(node.restart())))


def redis_stall(fabric: Fabric, target: int) -> None:
    """A Redis node serves nothing for a while: fork, swap, a slow command of somebody else."""
    fabric.nodes[_place(target, fabric.nodes)].stall(fabric.env.now + STALL_US)


def script_cache_flush(fabric: Fabric, target: int) -> None:
    """SCRIPT FLUSH on every node."""
    for node in fabric.nodes:
        node.shard.execute((b"SCRIPT", b"FLUSH"))


def redis_connection_loss(fabric: Fabric, target: int) -> None:
    """Every broker loses its connection to one Redis node, and sends again what had no answer."""
    node = _place(target, fabric.nodes)
    for broker in fabric.brokers:
        broker.driver.lose(node)


def kafka_leader_change(fabric: Fabric, target: int) -> None:
    """A Kafka broker dies: the partitions that it led go to the next one, without what had not been replicated."""
    cluster = fabric.kafka
    leader = _place(target, cluster.stations)
    for partitions in cluster.topics.values():
        for partition in partitions:
            if partition.leader == leader:
                fabric.count("records_lost", len(cluster.fail_leader(partition)))
    for group in fabric.groups:
        for member in group.members:
            member.refresh()


def producer_retry(fabric: Fabric, target: int) -> None:
    """The answers to the next produce requests of a broker are lost."""
    producer = fabric.brokers[_place(target, fabric.brokers)].producer
    producer.lose_requests.extend(["response", "request"] * 4)


def lost_puback(fabric: Fabric, target: int) -> None:
    """Publishers do not get their next PUBACKs; they connect anew and publish again, with DUP."""
    fabric.brokers[_place(target, fabric.brokers)].ingest.pubacks_to_lose = 50


def session_takeover(fabric: Fabric, target: int) -> None:
    """The subscribers of a broker connect to the next one while they are still connected."""
    number = _place(target, fabric.brokers)
    mine = np.flatnonzero(fabric.subscribers.broker == number).tolist()
    other = fabric.next_broker(number)
    for subscriber in mine:
        if fabric.sessions.connected[subscriber]:
            fabric.disconnect(subscriber)
            other.connect(subscriber)


FAULTS: dict[str, Callable[[Fabric, int], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        broker_crash, broker_crash_before_commit, broker_crash_after_commit, consumer_rebalance, redis_failover,
        redis_restart, redis_stall, script_cache_flush, redis_connection_loss, kafka_leader_change, producer_retry,
        lost_puback, session_takeover,
    )
}  # fmt: skip
NEEDS_TWO_BROKERS = frozenset(name for name in FAULTS if name.startswith("broker-crash"))
_WRITTEN = re.compile(r"([a-z-]+)@([0-9.]+)(?::([0-9]+))?")


def parse_faults(text: str) -> list[Fault]:
    """The schedule that ``text`` describes. Raises InputError."""
    found = []
    for word in text.split():
        match = _WRITTEN.fullmatch(word)
        if match is None:
            raise InputError(f'faults: {word}: not a fault; write name@seconds:target, "redis-stall@0.5:0"')
        name, seconds, target = match.groups()
        if name not in FAULTS:
            raise InputError(f'faults: unknown fault "{name}"; {did_you_mean(name, tuple(FAULTS))}')
        try:
            found.append(Fault(name, round(float(seconds) * 1e6), int(target or 0)))
        except ValueError:
            raise InputError(f"faults: {word}: {seconds} is not a number of seconds") from None
    return found


def schedule(fabric: Fabric, faults: list[Fault]) -> None:
    """Let each fault strike at its instant, and leave a row in the history."""
    for fault in faults:
        call_at(fabric.env, fault.at_us, partial(_strike, fabric, fault))


def _strike(fabric: Fabric, fault: Fault) -> None:
    code = fabric.operation_code(fault.name)
    fabric.recorder.add(EventKind.FAULT, np.array([int(fabric.env.now)]), operation=code)
    FAULTS[fault.name](fabric, fault.target)


def _place(target: int, among: Sequence[object]) -> int:
    size = len(among)
    if target >= size:
        raise InputError(f"faults: there is no number {target}; they are numbered from 0 to {size - 1}")
    return target
