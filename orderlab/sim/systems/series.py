"""A run over time: what goes in and out, how late it is, and what waits, in slices of 20 ms; and how long it takes to recover from a fault.

Latencies belong to the slice in which a message arrives, the rest to the slice at whose end it is looked at. Nothing of it reaches back into the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orderlab.sim.mqtt.world import SLICE_US, World

BASELINE_US = 500_000
"""Before a fault: what latency was in it is what has to come back."""
ABOVE = 1.1
"""Times the highest latency of a slice in that time: beyond it a slice is disturbed."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A fault, and how long after it struck the last slice was disturbed: 0, if none was; None, if it cannot be told."""

    fault: str
    node: str
    at_s: float
    recovered_s: float | None
    why: str = ""
    """Why it cannot be told."""

    def to_json(self) -> dict[str, Any]:
        """As reports hold it."""
        return {"fault": self.fault, "node": self.node, "at_s": self.at_s, "recovered_s": self.recovered_s, "why": self.why}


@dataclass
class Series:
    """The slices of one run. ``sample`` at the end of each."""

    world: World
    rows: list[dict[str, float]] = field(default_factory=list)
    _before: dict[str, float] = field(default_factory=dict)

    def sample(self) -> None:
        """Look at the slice that ends now."""
        world, now = self.world, float(self.world.env.now)
        counts = world.measured.counts
        totals = {
            "published": float(counts.get("published", 0)),
            "broker": sum(broker.cpu.waits.until(now) for broker in world.brokers),
            "redis": sum(waits.until(now) for waits in world.measured.node_waits),
            "at": now,
        }
        then = self._before
        length = now - then.get("at", 0.0)
        if length <= 0:
            return
        self._before = totals
        row = {"at_s": now / 1e6, "in_per_s": round((totals["published"] - then.get("published", 0.0)) * 1e6 / length)}
        for group in world.kafka.groups:
            topic = topic_of(group.partitions[0].topic)
            lag = sum(part.log.end_offset - group.committed[part] for part in group.partitions)
            row[f"uncommitted_{topic}"] = row.get(f"uncommitted_{topic}", 0) + lag
        for what in ("broker", "redis"):
            row[f"waiting_{what}"] = float(f"{(totals[what] - then.get(what, 0.0)) / length:.4g}")
        self.rows.append(row)

    def table(self) -> list[dict[str, float | None]]:
        """One row a slice, with what arrived in it."""
        arrived = self.world.measured.arrived
        told: list[dict[str, float | None]] = []
        begin_us = 0.0
        for row in self.rows:
            end_us = round(row["at_s"] * 1e6)
            count, sum_us = 0, 0.0
            for number in range(int(begin_us // SLICE_US), -(-end_us // SLICE_US)):
                more, more_us = arrived.get(number, (0, 0.0))
                count, sum_us = count + more, sum_us + more_us
            out = round(count * 1e6 / (end_us - begin_us)) if end_us > begin_us else 0
            latency_ms = float(f"{sum_us / count / 1000:.4g}") if count else None
            told.append({"at_s": row["at_s"], "in_per_s": row["in_per_s"], "out_per_s": out, "latency_ms": latency_ms,
                         **{name: value for name, value in row.items() if name not in ("at_s", "in_per_s")}})  # fmt: skip
            begin_us = end_us
        return told

    def recoveries(self, until_us: float) -> list[Recovery]:
        """What each fault that struck came to. ``until_us``: when the publishers stop."""
        faults = self.world.measured.faults
        rows = self.table()
        names = self.world.node_names()
        ends = [*(at_us for _, _, at_us in faults[1:]), until_us][: len(faults)]
        return [
            _recovery(name, names[node], at_us, min(end_us, until_us), rows) for (name, node, at_us), end_us in zip(faults, ends, strict=True)
        ]


def _recovery(fault: str, node: str, at_us: float, end_us: float, rows: Sequence[dict[str, float | None]]) -> Recovery:
    def between(low_us: float, high_us: float) -> list[dict[str, float | None]]:
        return [row for row in rows if low_us + SLICE_US <= (row["at_s"] or 0) * 1e6 <= high_us]

    before = [row["latency_ms"] for row in between(at_us - BASELINE_US, at_us)]
    known = [latency for latency in before if latency is not None]
    after = between(at_us - SLICE_US, end_us)
    told = Recovery(fault, node, at_us / 1e6, None)
    if not known or not after:
        why = "nothing was delivered before it" if after else "the run, or the time to the next fault, is too short"
        if end_us < at_us:
            why = f"nobody published any more; strike before {end_us / 1e6:g} s, or give a longer duration_s"
        return Recovery(fault, node, told.at_s, None, why)
    limit = ABOVE * max(known)

    def is_disturbed(row: dict[str, float | None]) -> bool:
        latency = row["latency_ms"]
        return latency > limit if latency is not None else bool(row["in_per_s"])

    disturbed = [row["at_s"] or 0.0 for row in after if is_disturbed(row)]
    if not disturbed:
        return Recovery(fault, node, told.at_s, 0.0)
    if disturbed[-1] == after[-1]["at_s"]:
        return Recovery(fault, node, told.at_s, None, "it was still disturbed when the publishers stopped or the next fault struck")
    return Recovery(fault, node, told.at_s, round(disturbed[-1] - told.at_s, 3))


def topic_of(name: str) -> str:
    """The kind of a Kafka topic or consumer: that of each broker's downlinks, or of each application's queue, is one."""
    for kind in ("msg.downlink", "msg.app"):
        if name.startswith(kind):
            return kind
    return name
