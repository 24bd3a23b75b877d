"""What a run is measured by: counters now, their difference over the measured interval, and the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orderlab.sim.engine.clock import Station, Waits
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.mqtt.world import World
from orderlab.sim.systems.series import topic_of

Usage = tuple[float, float]
"""(busy us, waited us)."""
PERCENTILES = (50, 90, 95, 99, 99.9)


class _Server(Protocol):
    busy_us: float


@dataclass(frozen=True)
class Measured:
    """Counters at an instant, or over an interval."""

    at_us: float
    counts: dict[str, int]
    usage: dict[str, tuple[Usage, ...]]
    """By kind of node."""
    redis_commands: tuple[int, ...]
    redis_requests: tuple[int, ...]
    flushes: int
    packs: dict[str, tuple[float, ...]]
    """By consumer: packs, records, busy microseconds."""
    batches: dict[str, tuple[float, ...]]
    """By topic: full batches, lingered ones, records."""
    databases: tuple[float, ...]
    """Of all: rows inserted, transactions, flushes of the log, microseconds that those took."""

    def since(self, before: Measured) -> Measured:
        """What came after ``before``; ``at_us`` is then the length of the interval."""
        return Measured(
            self.at_us - before.at_us,
            {name: value - before.counts.get(name, 0) for name, value in self.counts.items()},
            {kind: _less(usages, before.usage[kind]) for kind, usages in self.usage.items()},
            tuple(now - then for now, then in zip(self.redis_commands, before.redis_commands, strict=True)),
            tuple(now - then for now, then in zip(self.redis_requests, before.redis_requests, strict=True)),
            self.flushes - before.flushes,
            _grown(self.packs, before.packs),
            _grown(self.batches, before.batches),
            tuple(now - then for now, then in zip(self.databases, before.databases, strict=True)),
        )


def _grown(now: dict[str, tuple[float, ...]], then: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(a - b for a, b in zip(each, then.get(name, (0,) * len(each)), strict=True))
        for name, each in now.items()
    }


def _less(now: tuple[Usage, ...], then: tuple[Usage, ...]) -> tuple[Usage, ...]:
    return tuple((a - c, b - d) for (a, b), (c, d) in zip(now, then, strict=True))


def servers(world: World) -> dict[str, tuple[Sequence[tuple[_Server, Waits]], int]]:
    """By kind of node, each node with what has waited for it, and the cores of each. Processes that share a machine
    count against all its cores."""
    stations: dict[str, Sequence[Station]] = {
        "broker": [broker.cpu for broker in world.brokers],
        "redis": (),
        "kafka": world.kafka.cluster.stations,
        **{kind: [station] for kind, station in world.measured.other_stations.items()},
    }
    found: dict[str, tuple[Sequence[tuple[_Server, Waits]], int]] = {
        kind: ([(station, station.waits) for station in each], each[0].servers if each else 1)
        for kind, each in stations.items()
    }
    found["redis"] = list(zip(world.storage.nodes, world.measured.node_waits, strict=True)), 1
    return {kind: (each, cores) for kind, (each, cores) in found.items() if each}


def measure(world: World) -> Measured:
    """All counters as they stand."""
    return Measured(
        float(world.env.now),
        dict(world.measured.counts),
        {
            kind: tuple((server.busy_us, waits.until(world.env.now)) for server, waits in each)
            for kind, (each, _) in servers(world).items()
        },
        tuple(node.commands for node in world.storage.nodes),
        tuple(node.requests for node in world.storage.nodes),
        sum(broker.driver.flushes for broker in world.brokers),
        dict(world.measured.packs),
        _batches(world),
        tuple(
            sum(each)
            for each in zip(
                (0, 0, 0, 0.0),
                *(
                    (one.rows_inserted, one.transactions, one.log.flushes, one.log.busy_us)
                    for one in world.storage.databases
                ),
                strict=True,
            )
        ),
    )


def _batches(world: World) -> dict[str, tuple[float, ...]]:
    """Of all producers, by kind of topic."""
    found: dict[str, tuple[float, ...]] = {}
    for broker in world.brokers:
        for topic, each in broker.producer.batches.items():
            kind = topic_of(topic)
            found[kind] = tuple(a + b for a, b in zip(found.get(kind, (0, 0, 0)), each, strict=True))
    return found


def packs(measured: Measured) -> dict[str, Any]:
    """Of the consumers of each kind of topic, one by one: records of a pack, from poll to commit, and from pack to
    pack. Those that had none are left out."""
    told: dict[str, Any] = {}
    for name, (count, records, busy_us) in sorted(measured.packs.items()):
        if count:
            row = told.setdefault(_read_by(name), {"records": [], "busy_ms": [], "cycle_ms": []})
            row["records"].append(_round(records / count))
            row["busy_ms"].append(_round(busy_us / count / 1000))
            row["cycle_ms"].append(_round(measured.at_us / count / 1000))
    return told


def _read_by(consumer: str) -> str:
    """The kind of topic that a consumer reads: ``broker-0/msg.all/3``, ``msg.downlink.0/1``, ``application-0/1``."""
    first, _, rest = consumer.partition("/")
    if first.startswith("broker-"):
        return rest.partition("/")[0]
    return "msg.app" if first.startswith("application-") else topic_of(first)


def batches(measured: Measured) -> dict[str, Any]:
    """Of the producers' batches to each kind of topic: how many records, and which share left because it was full."""
    return {
        kind: {"records": _round(records / (full + lingered)), "full": _round(full / (full + lingered))}
        for kind, (full, lingered, records) in sorted(measured.batches.items())
        if full + lingered
    }


def stages(world: World) -> dict[str, float]:
    """Mean milliseconds of each part of the way: from one stage that a message reaches to the next."""
    means = {
        "to_" + name: histogram.mean_us()
        for name, histogram in {**world.measured.stage_latency, "delivery": world.measured.delivery_latency}.items()
        if histogram.count
    }
    return {
        f"{'publish' if before is None else before.removeprefix('to_')}_{name}": _round(
            (mean - (0 if before is None else means[before])) / 1000
        )
        for before, (name, mean) in zip([None, *means], means.items(), strict=False)
    }


def latency(histogram: LatencyHistogram) -> dict[str, Any]:
    """A latency in milliseconds: mean, percentiles, maximum; None where there was nothing to measure. One run tells no
    interval (`orderlab.sim.engine.statistics`)."""
    told_us: dict[str, float | None] = {
        "mean": histogram.mean_us(),
        **{f"p{percent:g}": histogram.percentile_us(percent) for percent in PERCENTILES},
        "max": histogram.max_us,
    }
    is_empty = not histogram.count
    return {
        "count": histogram.count,
        **{f"{name}_ms": None if is_empty or us is None else _round(us / 1000) for name, us in told_us.items()},
    }


def warm_up(histogram: LatencyHistogram) -> dict[str, Any]:
    """The cut that was made, and the one that MSER-5 would make on the mean latency: the earlier must not be after the
    later."""
    settled_us = histogram.settled_us()
    return {
        "rule": "fixed",
        "cut_s": histogram.begin_us / 1e6,
        "mser_5_cut_s": None if settled_us is None else settled_us / 1e6,
        "has_settled": settled_us is not None and settled_us <= histogram.begin_us,
    }


def figures(measured: Measured, world: World) -> dict[str, Any]:
    """The report of the measured interval, as JSON holds it. Work is counted when it is taken on, so a node that falls
    behind has an offered load above 1; all that it can do is to be busy all the time."""
    seconds = measured.at_us / 1e6
    published, delivered = measured.counts.get("published", 0), measured.counts.get("delivered", 0)
    cores = {kind: count for kind, (_, count) in servers(world).items()}
    offered = {
        kind: [_round(busy / measured.at_us / cores[kind]) for busy, _ in usages]
        for kind, usages in measured.usage.items()
    }
    commands = [round(count / seconds) for count in measured.redis_commands]
    return {
        "measured_s": seconds,
        "warm_up": warm_up(world.measured.delivery_latency),
        "throughput_per_s": {"in": round(published / seconds), "out": round(delivered / seconds)},
        "latency": {
            "publish_to_puback": latency(world.measured.puback_latency),
            "publish_to_delivery": latency(world.measured.delivery_latency),
            **{f"publish_to_{name}": latency(histogram) for name, histogram in world.measured.stage_latency.items()},
        },
        "stages_ms": stages(world),
        "packs": packs(measured),
        "batches": batches(measured),
        "utilisation": {kind: [min(each, 1.0) for each in loads] for kind, loads in offered.items()},
        "offered_load": offered,
        "mean_queue_length": {
            kind: [_round(waited / measured.at_us) for _, waited in usages] for kind, usages in measured.usage.items()
        },
        "redis_commands_per_s": {"per_node": commands, "all": sum(commands)},
        "redis_requests_per_s": round(sum(measured.redis_requests) / seconds),
        "driver_flushes_per_s": round(measured.flushes / seconds),
        "counts": dict(sorted(world.measured.counts.items())),
    }


def _round(value: float) -> float:
    """The value to four significant digits."""
    return float(f"{value:.4g}")
