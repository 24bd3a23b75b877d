"""From readings to what is told: a fitted form for each operation in each situation, what it foretells where it was not
measured, what a real server says of the same calls, and what a change makes dearer.

Verified: how many commands, instructions and bytes there were, and how the estimated time grows. Not verified: that a
server takes so many microseconds; its processor decides, which ``Checked`` tells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orderlab.properties.costs.forms import Fitted, fitted
from orderlab.properties.costs.readings import LENGTH, CostReading
from orderlab.sim.redis.backends.server import ServerBackend
from orderlab.sim.redis.replies import ErrorReply

DEARER = 0.10
"""What costs so much more, relatively, is told."""
ROUNDS = 3
"""In which a server is asked: the quickest counts, as something else may have had the processor in one of them."""


@dataclass(frozen=True)
class Estimate:
    """One operation in one situation, along one axis."""

    operation: str
    situation: str
    axis: str
    readings: tuple[CostReading, ...]
    blocked_us: Fitted
    commands: Fitted
    instructions: Fitted
    at: int
    """The size that it is foretold for."""

    @property
    def at_us(self) -> float:
        """For how long it blocks a node there."""
        return max(self.blocked_us.at(self.at), max(one.blocked_us for one in self.readings if one.size <= self.at))

    @property
    def failed(self) -> str:
        """How it failed, if it did each time: then it is its failure that was measured."""
        return self.readings[-1].failed if all(one.failed for one in self.readings) else ""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        forms = {name: getattr(self, name) for name in ("blocked_us", "commands", "instructions")}
        return {
            "operation": self.operation, "situation": self.situation, "axis": self.axis, "failed": self.failed,
            "at": self.at, "at_us": round(self.at_us, 3),
            **{
                name: {
                    "constant": round(form.constant, 6), "slope": round(form.slope, 9), "form": form.form,
                    "error": round(form.error, 6), "begins": form.begins,
                }
                for name, form in forms.items()
            },
            "measured": [
                {
                    "n": one.size, "blocked_us": round(one.blocked_us, 3), "commands": one.commands,
                    "instructions": one.instructions, "bytes": one.grown_bytes,
                }
                for one in self.readings
            ],
        }  # fmt: skip


def estimates(readings: Iterable[CostReading], at: Mapping[str, int]) -> list[Estimate]:
    """A form for each situation. Of several readings in one, the dearest of each size counts. ``at``: by axis."""
    groups: dict[tuple[str, str], dict[int, CostReading]] = defaultdict(dict)
    for reading in readings:
        by_size = groups[reading.axis, reading.situation]
        if reading.size not in by_size or by_size[reading.size].blocked_us < reading.blocked_us:
            by_size[reading.size] = reading
    made = []
    for (axis, situation), by_size in groups.items():
        kept = tuple(by_size[size] for size in sorted(by_size))

        def form(value: Callable[[CostReading], float], kept: Sequence[CostReading] = kept) -> Fitted:
            return fitted({one.size: value(one) for one in kept})

        made.append(
            Estimate(
                situation.partition(",")[0].partition(" ")[0],
                situation,
                axis,
                kept,
                form(lambda one: one.blocked_us),
                form(lambda one: one.commands),
                form(lambda one: one.instructions),
                max(at[axis], 1),
            )
        )
    return made


def memory_form(estimated: Sequence[Estimate]) -> Fitted | None:
    """Bytes that the keys take, by how much the store holds, in its first situation."""
    first = next((one for one in estimated if one.axis == LENGTH), None)
    return None if first is None else fitted({one.size: one.held_bytes for one in first.readings})


def dearest(estimated: Sequence[Estimate]) -> list[Estimate]:
    """Of each operation and axis the situation in which it costs most."""
    kept: dict[tuple[str, str], Estimate] = {}
    for estimate in estimated:
        place = estimate.axis, estimate.operation
        if place not in kept or kept[place].at_us < estimate.at_us:
            kept[place] = estimate
    return list(kept.values())


@dataclass(frozen=True)
class Dearer:
    """What a change made dearer."""

    what: str
    situation: str
    axis: str
    was: float
    now: float
    grows: bool = False
    """It grows faster than it did, not only by a factor."""


def dearer(old: Sequence[Estimate], new: Sequence[Estimate]) -> list[Dearer]:
    """What costs more in ``new``, at the size that is foretold."""
    known = {(one.axis, one.situation): one for one in old}
    changes = []
    for one in new:
        before = known.get((one.axis, one.situation))
        if before is None:
            continue
        for what in ("commands", "blocked_us", "instructions"):
            was, now = getattr(before, what), getattr(one, what)
            values = (before.at_us, one.at_us) if what == "blocked_us" else (was.at(one.at), now.at(one.at))
            if values[1] > values[0] * (1 + DEARER) and values[1] - values[0] > 0.5:
                changes.append(Dearer(what, one.situation, one.axis, values[0], values[1], now.order > was.order))
    held = memory_form(old), memory_form(new)
    if held[0] is not None and held[1] is not None and new:
        size = next(one.at for one in new if one.axis == LENGTH)
        before_bytes, after_bytes = held[0].at(size), held[1].at(size)
        if after_bytes > before_bytes * (1 + DEARER):
            grows = held[1].order > held[0].order
            changes.append(Dearer("bytes", "what the store holds", LENGTH, before_bytes, after_bytes, grows))
    return changes


@dataclass(frozen=True)
class Checked:
    """What a real server says of the same calls on the same keys."""

    server: str
    ratio: float
    """Its time for a call, to that of the model: the median."""
    within: float
    """By which factor nine of ten calls lie from that ratio at most."""
    forms: Mapping[tuple[str, str], Fitted]
    """By axis and situation, in the server's own microseconds."""
    memory: float
    """What MEMORY USAGE says there of all keys, to what was told of the kernel's: the farthest from 1."""
    memory_at_length: float
    """The same of the longest alone, where what one thing takes counts."""


def check(estimated: Sequence[Estimate], server: ServerBackend, load: Callable[[], None]) -> Checked:
    """Carry the measured calls out on a server. ``load`` brings the scripts there."""
    ratios, memory, longest, forms = [], [1.0], [1.0], {}
    for estimate in estimated:
        timed: dict[float, float] = {}
        for reading in estimate.readings:
            us, held = _on_server(reading, server, load)
            if us is None:
                continue
            timed[reading.size] = us
            ratios.append(max(us, 0.5) / reading.blocked_us)
            if reading.held_bytes and held:
                memory.append(held / reading.held_bytes)
                if estimate.axis == LENGTH and reading is estimate.readings[-1]:
                    longest.append(held / reading.held_bytes)
        if len(timed) > 2:
            forms[estimate.axis, estimate.situation] = fitted(timed)
    ratio = float(np.median(ratios)) if ratios else 1.0
    apart = [max(one / ratio, ratio / one) for one in ratios] or [1.0]
    return Checked(
        server.describe(), ratio, float(np.quantile(apart, 0.9)), forms, _farthest(memory), _farthest(longest)
    )


def _farthest(ratios: Sequence[float]) -> float:
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def _on_server(reading: CostReading, server: ServerBackend, load: Callable[[], None]) -> tuple[float | None, int]:
    """Microseconds of the longest of its calls, the quickest of several rounds; bytes of the keys before."""
    best: float | None = None
    held = 0
    for _ in range(ROUNDS):
        server.load(reading.before)
        load()
        if not held:
            replies = server.pipeline(
                [(b"MEMORY", b"USAGE", key, b"SAMPLES", b"0") for key in reading.before if isinstance(key, bytes)]
            )
            held = sum(size for size in replies if isinstance(size, int))
        longest = 0.0
        for argv in reading.calls:
            server.execute(b"CONFIG", b"RESETSTAT")
            if isinstance(server.execute(*argv), ErrorReply) and not reading.failed:
                return None, held
            longest = max(longest, _took_us(server, argv[0].decode("latin-1").lower()))
        best = longest if best is None else min(best, longest)
    return best, held


def _took_us(server: ServerBackend, command: str) -> float:
    reply = server.execute(b"INFO", b"commandstats")
    assert isinstance(reply, bytes)
    for line in reply.decode("latin-1").splitlines():
        name, _, values = line.partition(":")
        if name == f"cmdstat_{command}":
            return float(dict(one.split("=") for one in values.split(","))["usec"])
    return 0.0
