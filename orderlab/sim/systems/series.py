"""A run over time: what goes in and out, how late it is, and what waits, in slices of 20 ms; and how long it takes to
recover from a fault.

Latencies belong to the slice in which a message arrives, the rest to the slice at whose end it is looked at. Nothing of
it reaches back into the run. One run has no intervals (`orderlab.sim.engine.statistics`); over replications both have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orderlab.sim.engine.few_runs import Evidence
from orderlab.sim.engine.statistics import ARRIVALS_US, mean_interval
from orderlab.sim.mqtt.parts import SLICE_US
from orderlab.sim.mqtt.world import World

BASELINE_US = 500_000
"""Before a fault: what latency was in it is what has to come back."""
ABOVE = 1.1
"""Times the highest latency of a slice in that time: beyond it a slice is disturbed."""
SILENT = 10.0
"""Messages that were published in a slice before the fault, on average: from so many on one without any is no chance,
but publishers that wait for answers."""


CLIMBING_MIN = 3
"""Slices in a third of those after a fault: fewer tell no trend."""
Row = Mapping[str, float | None]
"""A slice: figures by name."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A fault, and how long after it struck the last slice was disturbed: 0, if none was; None, if it cannot be
    told."""

    fault: str
    node: str
    at_s: float
    recovered_s: float | None
    why: str = ""
    """Why it cannot be told."""

    def to_json(self) -> dict[str, Any]:
        """As reports hold it."""
        return {
            "fault": self.fault,
            "node": self.node,
            "at_s": self.at_s,
            "recovered_s": self.recovered_s,
            "why": self.why,
        }


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
        arrived = self.world.measured.delivery_latency.arrived
        told: list[dict[str, float | None]] = []
        begin_us = 0.0
        for row in self.rows:
            end_us = round(row["at_s"] * 1e6)
            count, sum_us = 0, 0.0
            for number in range(round(begin_us / ARRIVALS_US), round(end_us / ARRIVALS_US)):
                more, more_us = arrived.get(number, (0, 0.0))
                count, sum_us = count + more, sum_us + more_us
            out = round(count * 1e6 / (end_us - begin_us)) if end_us > begin_us else 0
            latency_ms = float(f"{sum_us / count / 1000:.4g}") if count else None
            told.append(
                {
                    "at_s": row["at_s"],
                    "in_per_s": row["in_per_s"],
                    "out_per_s": out,
                    "latency_ms": latency_ms,
                    **{name: value for name, value in row.items() if name not in ("at_s", "in_per_s")},
                }
            )
            begin_us = end_us
        return told

    def recoveries(self, until_us: float, over_us: float) -> list[Recovery]:
        """What each fault that struck came to. ``until_us``: when the publishers stop, ``over_us``: the run."""
        names = self.world.names.all()
        struck = [(name, names[node], at_us) for name, node, at_us in self.world.measured.faults]
        return recoveries(struck, until_us, self.table(), over_us=over_us)


@dataclass
class Slices:
    """The slices of a system that tells message by message what comes and goes, each ``slice_us`` long; and the faults
    that struck it."""

    slice_us: int
    rows: list[dict[str, float | None]] = field(default_factory=list)
    struck: list[tuple[str, str, int]] = field(default_factory=list)
    """(fault, where, microseconds)"""
    came: int = 0
    """Messages published, and ``went``, handed to readers, since the last slice ended."""
    went: int = 0
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """By name, how many arrived since then and the sum of what they took, in microseconds."""
    _waited: dict[str, float] = field(default_factory=dict)

    def took(self, name: str, count: int, sum_us: float) -> None:
        """So many took so long, all together."""
        told = self.latencies.setdefault(name, [0, 0.0])
        told[0] += count
        told[1] += sum_us

    def close(self, now_us: float, names: Sequence[str], waited: Mapping[str, float], **more: float) -> None:
        """End a slice. ``names``: of its latencies; ``waited``: the integrals of what waits for each kind of node, from
        which the mean in the slice follows."""
        means = {name: self.latencies.pop(name, (0, 0.0)) for name in names}
        waiting = {
            name: float(f"{(until - self._waited.get(name, 0.0)) / self.slice_us:.4g}")
            for name, until in waited.items()
        }
        self.rows.append(
            {
                "at_s": now_us / 1e6,
                "in_per_s": round(self.came * 1e6 / self.slice_us),
                "out_per_s": round(self.went * 1e6 / self.slice_us),
                **{
                    name: float(f"{sum_us / count / 1000:.4g}") if count else None
                    for name, (count, sum_us) in means.items()
                },
                **more,
                **{f"waiting_{name}": mean for name, mean in waiting.items()},
            }
        )
        self.came = self.went = 0
        self._waited = dict(waited)

    def table(self) -> list[dict[str, float | None]]:
        """One row a slice."""
        return self.rows

    def recoveries(self, until_us: float, over_us: float) -> list[dict[str, Any]]:
        """What each fault that struck came to. ``until_us``: when the publishers stop, ``over_us``: the run."""
        told = recoveries(self.struck, until_us, self.rows, self.slice_us, over_us)
        return [{**one.to_json(), "slice_s": self.slice_us / 1e6} for one in told]


def recoveries(
    struck: Sequence[tuple[str, str, float]],
    until_us: float,
    rows: Sequence[Row],
    slice_us: int = SLICE_US,
    over_us: float = math.inf,
) -> list[Recovery]:
    """What faults came to that struck one after the other; ``until_us``: when publishers stop, ``over_us``: when the
    run is over at the latest."""
    ends = [*(at_us for _, _, at_us in struck[1:]), until_us][: len(struck)]
    return [
        recovery(*one, min(end_us, until_us), rows, slice_us, number == len(struck), over_us)
        for number, (one, end_us) in enumerate(zip(struck, ends, strict=True), 1)
    ]


def recovery(
    fault: str,
    node: str,
    at_us: float,
    end_us: float,
    rows: Sequence[Row],
    slice_us: int = SLICE_US,
    is_last: bool = False,
    over_us: float = math.inf,
) -> Recovery:
    """What a fault came to by the slices of a run; ``end_us``: when the next one struck or the publishers stopped. Of
    the last one (``is_last``) what it held up comes until the run is over."""

    def between(low_us: float, high_us: float) -> list[Row]:
        return [row for row in rows if low_us + slice_us <= (row["at_s"] or 0) * 1e6 <= high_us]

    before = [row["latency_ms"] for row in between(at_us - BASELINE_US, at_us)]
    known = [latency for latency in before if latency is not None]
    after = between(at_us - slice_us, end_us)
    told = Recovery(fault, node, at_us / 1e6, None)
    if not known or not after:
        why = "nothing was delivered before it" if after else "the run, or the time to the next fault, is too short"
        if end_us < at_us:
            why = f"nobody published any more; strike before {end_us / 1e6:g} s, or give a longer duration_s"
        return Recovery(fault, node, told.at_s, None, why)
    limit = ABOVE * max(known)
    came = [row["in_per_s"] or 0.0 for row in between(at_us - BASELINE_US, at_us)]
    is_silence_odd = sum(came) / len(came) * slice_us / 1e6 >= SILENT

    def is_disturbed(row: Row) -> bool:
        latency = row["latency_ms"]
        return latency > limit if latency is not None else bool(row["in_per_s"]) or is_silence_odd

    disturbed = [row["at_s"] or 0.0 for row in after if is_disturbed(row)]
    if disturbed and disturbed[-1] == after[-1]["at_s"]:
        why = "it was still disturbed when the publishers stopped or the next fault struck"
        return Recovery(fault, node, told.at_s, None, why)
    if is_last:
        usual = max(_carried(row) for row in between(at_us - BASELINE_US, at_us))
        late = [at_s for row in rows if (at_s := row["at_s"] or 0.0) * 1e6 > end_us and _carried(row) > ABOVE * usual]
        if late and late[-1] * 1e6 >= over_us:
            return Recovery(fault, node, told.at_s, None, "messages still came late when the run was over")
        disturbed += late
    if not (disturbed and disturbed[-1] * 1e6 > end_us) and _climbs([row["latency_ms"] for row in after], known):
        why = "latency still climbed when the publishers stopped or the next fault struck"
        return Recovery(fault, node, told.at_s, None, why)
    return Recovery(fault, node, told.at_s, round(disturbed[-1] - told.at_s, 3) if disturbed else 0.0)


def _carried(row: Row) -> float:
    """What those that arrive in a slice took together, over its length: by Little's law, how many were under way.
    Without publishers only what is slow still comes, and the mean of that says nothing."""
    took_ms = row["delivery_ms"] if "delivery_ms" in row else row["latency_ms"]
    return (row.get("out_per_s") or 0.0) * (took_ms or 0.0) / 1000


def _climbs(after: Sequence[float | None], before: Sequence[float]) -> bool:
    """Whether latency goes up from each third of the slices to the next, well above what it was on average."""
    known = [latency for latency in after if latency is not None]
    third = len(known) // 3
    if third < CLIMBING_MIN:
        return False
    first, second, last = (sum(known[begin : begin + third]) / third for begin in (0, third, 2 * third))
    return first < second < last and last > ABOVE * max(first, sum(before) / len(before))


Strike = Mapping[str, Any]
"""A ``Recovery`` as reports hold it."""
_ALIKE: tuple[Callable[[Strike], tuple[Any, ...]], ...] = (
    lambda one: (one["fault"], one["node"], one["at_s"]),
    lambda one: (one["fault"], "", one["at_s"]),
    lambda one: (one["fault"], "", None),
)
"""Which strikes of several runs are one: by node and instant; where nodes were drawn, by instant; where instants were,
by fault."""


def recoveries_over(runs: Sequence[Sequence[Strike]]) -> list[dict[str, Any]]:
    """What each fault came to over independent replications: in how many it struck, in how many of them the system
    recovered, and the mean of those with its nominal 95 % interval: Student's, and a slice on both sides, as no run
    tells its time more closely; ``carried``: which few runs carry that mean. The value of a run in which several
    strikes are one is their mean, and it has none if one of them did not recover."""
    left = [list(strikes) for strikes in runs]
    found: list[dict[str, Any]] = []
    for alike in _ALIKE:
        in_all = alike is not _ALIKE[-1]
        for key in dict.fromkeys(alike(one) for strikes in left for one in strikes):
            groups = [[one for one in strikes if alike(one) == key] for strikes in left]
            if in_all and not all(groups):
                continue
            left = [[one for one in strikes if alike(one) != key] for strikes in left]
            found.append(_over(key, [group for group in groups if group]))
    return sorted(found, key=lambda one: (one["at_s"] is None, one["at_s"] or 0.0))


def _over(key: tuple[Any, ...], groups: Sequence[Sequence[Strike]]) -> dict[str, Any]:
    told = [[one["recovered_s"] for one in group] for group in groups]
    values = [sum(each) / len(each) for each in told if None not in each]
    interval = mean_interval(values) if len(values) > 1 else None
    slice_s = max(one.get("slice_s", SLICE_US / 1e6) for group in groups for one in group)
    whys = [one["why"] for group in groups for one in group if one["why"]]
    evidence = Evidence()
    evidence.take("recovered_s", values or [0.0])
    return {
        "fault": key[0], "node": key[1], "at_s": key[2], "runs": len(groups), "recovered_runs": len(values),
        "recovered_s": _round(sum(values) / len(values)) if values else None,
        "low_s": None if interval is None else max(0.0, _round(interval.low - slice_s)),
        "high_s": None if interval is None else _round(interval.high + slice_s),
        "least_s": _round(min(values)) if values else None, "greatest_s": _round(max(values)) if values else None,
        "carried": "".join(evidence.carried), "why": max(whys, key=whys.count) if whys else "",
    }  # fmt: skip


def table_over(tables: Sequence[Sequence[Row]]) -> list[dict[str, float | None]]:
    """The slices that all replications have: of each figure the mean over those that have it, and both ends of its
    nominal 95 % interval as ``…_low`` and ``…_high``, where at least two have it. The interval is of each slice alone:
    one of twenty may be wrong."""
    found: list[dict[str, float | None]] = []
    for rows in zip(*tables, strict=False):
        if len({row["at_s"] for row in rows}) > 1:
            break  # where one is over, and the end of its last slice its own
        mean: dict[str, float | None] = {"at_s": rows[0]["at_s"]}
        for name in rows[0]:
            values = [value for row in rows if (value := row.get(name)) is not None]
            if name == "at_s":
                continue
            told = mean_interval(values) if len(values) > 1 else None
            ends = (None, None) if told is None else (told.low, told.high)
            mean[name] = _round(sum(values) / len(values)) if values else None
            mean[f"{name}_low"], mean[f"{name}_high"] = (None if end is None else max(0.0, _round(end)) for end in ends)
        found.append(mean)
    return found


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def topic_of(name: str) -> str:
    """The kind of a Kafka topic or consumer: that of each broker's downlinks, or of each application's queue, is
    one."""
    for kind in ("msg.downlink", "msg.app"):
        if name.startswith(kind):
            return kind
    return name
