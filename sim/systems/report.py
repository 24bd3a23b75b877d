"""What a run is measured by: counters now, and their difference over the measured interval."""

from __future__ import annotations

from dataclasses import dataclass

from sim.mqtt.fabric import Fabric

Usage = tuple[float, float]
"""(busy us, waited us)."""


@dataclass(frozen=True)
class Measured:
    """Counters at an instant, or over an interval."""

    at_us: float
    counts: dict[str, int]
    brokers: tuple[Usage, ...]
    redis: tuple[Usage, ...]
    kafka: tuple[Usage, ...]
    redis_commands: tuple[int, ...]
    redis_requests: tuple[int, ...]
    flushes: int

    def since(self, before: Measured) -> Measured:
        """What came after ``before``; ``at_us`` is then the length of the interval."""
        return Measured(
            self.at_us - before.at_us,
            {name: value - before.counts.get(name, 0) for name, value in self.counts.items()},
            _less(self.brokers, before.brokers),
            _less(self.redis, before.redis),
            _less(self.kafka, before.kafka),
            tuple(now - then for now, then in zip(self.redis_commands, before.redis_commands, strict=True)),
            tuple(now - then for now, then in zip(self.redis_requests, before.redis_requests, strict=True)),
            self.flushes - before.flushes,
        )


def _less(now: tuple[Usage, ...], then: tuple[Usage, ...]) -> tuple[Usage, ...]:
    return tuple((a - c, b - d) for (a, b), (c, d) in zip(now, then, strict=True))


def measure(fabric: Fabric) -> Measured:
    """All counters as they stand."""
    return Measured(
        float(fabric.env.now),
        dict(fabric.counts),
        tuple((broker.cpu.busy_us, broker.cpu.waited_us) for broker in fabric.brokers),
        tuple((node.busy_us, node.waited_us) for node in fabric.nodes),
        tuple((station.busy_us, station.waited_us) for station in fabric.kafka.stations),
        tuple(node.commands for node in fabric.nodes),
        tuple(node.requests for node in fabric.nodes),
        sum(broker.driver.flushes for broker in fabric.brokers),
    )
