"""Which faults strike when, and when all have healed.

A schedule is ``name@seconds``, ``name@seconds:target`` or ``name@seconds:target:duration``, separated by blanks; the
target is the number of a broker, a Redis node or a Kafka broker, as the fault says. Rates are ``name=rate/s``,
separated by blanks: faults of that name strike at the instants of a Poisson process, each time a target drawn at
random, from a random stream of their own, until nobody publishes any more. Each leaves a row in the history, and one
when all have healed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.history.events import EventKind
from orderlab.sim.drivers.pipelined import PipelinedDriver
from orderlab.sim.engine.clock import call_at
from orderlab.sim.faults import FAULTS, Among, FaultKind
from orderlab.sim.mqtt.world import World

STRIKES_MAX = 100_000
LASTS_MAX_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule. ``duration_us`` None: as long as such a fault usually lasts."""

    name: str
    at_us: int
    target: int
    duration_us: int | None = None

    def __str__(self) -> str:
        written = f"{self.name}@{self.at_us / 1e6:g}:{self.target}"
        return written if self.duration_us is None else f"{written}:{self.duration_us / 1e6:g}"


_WRITTEN = re.compile(r"([a-z-]+)@([0-9.]+)(?::([0-9]+))?(?::([0-9.]+))?")
_RATE = re.compile(r"([a-z-]+)=([0-9.]+)(/s)?")


def parse_faults(text: str) -> list[Fault]:
    """The schedule that ``text`` describes. Raises InputError."""
    found = []
    for word in text.split():
        match = _WRITTEN.fullmatch(word)
        if match is None:
            raise InputError(f'faults: {word}: not a fault; write name@seconds:target, "redis-stall@0.5:0"')
        name, seconds, target, duration = match.groups()
        _kind("faults", name)
        lasts_us = None if duration is None else round(_number("faults", word, duration, "seconds") * 1e6)
        found.append(Fault(name, round(_number("faults", word, seconds, "seconds") * 1e6), int(target or 0), lasts_us))
    return found


def parse_rates(text: str) -> dict[str, float]:
    """Strikes per second by the name of the fault. Raises InputError."""
    found: dict[str, float] = {}
    for word in text.split():
        match = _RATE.fullmatch(word)
        if match is None:
            raise InputError(f'fault_rates: {word}: not a rate; write name=rate/s, "redis-stall=0.5/s"')
        name = match[1]
        _kind("fault_rates", name)
        if name in found:
            raise InputError(f"fault_rates: {word}: {name} has a rate already; keep one")
        found[name] = _number("fault_rates", word, match[2], "faults per second")
    return found


def draw_faults(world: World, rates: dict[str, float], until_us: int) -> Iterator[Fault]:
    """The faults that strike before ``until_us``."""
    for name, per_s in rates.items():
        stream = world.streams.stream(f"faults/{name}")
        at_us = 0.0
        while per_s > 0:
            at_us += stream.expovariate(per_s) * 1e6
            if at_us >= until_us:
                break
            yield Fault(name, int(at_us), stream.randrange(_targets(world, FAULTS[name].among)))


def schedule(world: World, text: str, rates_text: str, until_us: int, over_us: int) -> None:
    """Let the faults of a schedule strike, and until ``until_us`` those that are drawn at rates. Raises InputError,
    before anything runs, for a fault that makes no sense in this system, or that strikes when the run is over, at
    ``over_us``."""
    faults, rates = parse_faults(text), parse_rates(rates_text)
    for fault in faults:
        _check(world, "faults", fault.name)
        among = FAULTS[fault.name].among
        _check_place(fault, among, _targets(world, among), over_us)
    for name, per_s in rates.items():
        _check(world, "fault_rates", name)
        if per_s * until_us / 1e6 > STRIKES_MAX:
            raise InputError(f"fault_rates: {name}={per_s:g}/s: more than {STRIKES_MAX:,} strikes; lower the rate")
    healing = _Healing(world)
    for fault in sorted((*faults, *draw_faults(world, rates, until_us)), key=lambda fault: fault.at_us):
        call_at(world.env, fault.at_us, partial(healing.strike, fault))
        world.healed_us = fault.at_us


def faults_among(
    text: str, names: Sequence[str], among: str, targets: Callable[[str], int], over_us: int
) -> Iterator[Fault]:
    """The schedule of a system that has these faults alone. Raises InputError as `schedule` does."""
    for fault in parse_faults(text):
        if fault.name not in names:
            raise InputError(f"faults: {fault.name}: does not strike this system; it is one of {', '.join(names)}")
        _check_place(fault, among, targets(fault.name), over_us)
        yield fault


def _check_place(fault: Fault, among: str, size: int, over_us: int) -> None:
    if fault.target >= size:
        which = f"they are numbered 0 to {size - 1}" if size else "there is none"
        raise InputError(f"faults: {fault}: {among} {fault.target} is not there; {which}")
    if fault.duration_us is not None and fault.duration_us > LASTS_MAX_US:
        raise InputError(f"faults: {fault}: lasts longer than a day; shorten it")
    if fault.at_us >= over_us:
        raise InputError(f"faults: {fault}: the run is over after {over_us / 1e6:g} s; let it strike before that")


class _Healing:
    """Faults that have struck and not healed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._open = 0

    def strike(self, fault: Fault) -> None:
        """Let it happen, and write it down."""
        world, kind = self.world, FAULTS[fault.name]
        if kind.among == "redis":
            world.ensure_open_on(fault.target)
        healed_us = kind.strike(
            world, fault.target, kind.duration_us if fault.duration_us is None else fault.duration_us
        )
        if healed_us is None:
            world.measured.count("faults_skipped")
            return
        world.measured.count("faults")
        world.measured.faults.append((fault.name, world.names.code(kind.among, fault.target), int(world.env.now)))
        world.recorder.add(
            EventKind.FAULT, np.array([int(world.env.now)]), operation=world.names.operations.code(fault.name),
            node=world.names.code(kind.among, fault.target),
        )  # fmt: skip
        self._open += 1
        world.healed_us = max(world.healed_us, healed_us)
        call_at(world.env, healed_us, self._heal)

    def _heal(self) -> None:
        self._open -= 1
        if not self._open:
            self.world.recorder.add(EventKind.HEAL, np.array([int(self.world.env.now)]))


def _kind(where: str, name: str) -> FaultKind:
    if name not in FAULTS:
        raise InputError(f'{where}: unknown fault "{name}"; {did_you_mean(name, tuple(FAULTS))}')
    return FAULTS[name]


def _number(where: str, word: str, text: str, unit: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: {word}: {text} is not a number of {unit}") from None


def _targets(world: World, among: Among) -> int:
    return {
        "broker": len(world.brokers), "redis": len(world.storage.nodes), "kafka": len(world.kafka.cluster.stations),
        "postgres": len(world.storage.databases),
    }[among]  # fmt: skip


def _check(world: World, where: str, name: str) -> None:
    """Whether this system can have the fault at all."""
    kind = FAULTS[name]
    if not _targets(world, kind.among):
        raise InputError(f"{where}: {name}: this system has no node of kind {kind.among}; leave it out")
    wrong = {
        "": False,
        "two brokers": len(world.brokers) < 2,
        "two nodes": len(world.storage.nodes) < 2 or world.storage.slots is None,
        "two Kafka brokers": len(world.kafka.cluster.stations) < 2,
        "replicas": any(node.replica is None for node in world.storage.nodes),
        "a pipeline": not all(isinstance(broker.driver, PipelinedDriver) for broker in world.brokers),
    }[kind.needs]
    if wrong:
        cure = {
            "two brokers": "another broker has to take over; --set brokers=2",
            "two nodes": "slots move between the nodes of a Redis Cluster; --set redis_nodes=2",
            "two Kafka brokers": "another one has to lead; --set kafka_brokers=2",
            "replicas": "the Redis nodes have no replicas; --set redis_replica_lag_ms=1",
            "a pipeline": "this system reaches Redis in another way than through a pipeline; leave it out",
        }[kind.needs]
        raise InputError(f"{where}: {name}: {cure}")
