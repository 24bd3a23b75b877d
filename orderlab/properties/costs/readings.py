"""What one operation cost in one situation: counted on the kernel, priced by the cost model.

A node is blocked for as long as one call of a client takes: a script, a transaction, a command. An operation of several
calls blocks it by the longest of them. Not priced: what Lua's own libraries do with long texts (cjson, string), the
network, the append-only file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orderlab.properties.side_by_side import memory_of
from orderlab.sim.costs.cost_model import costs_of_calls, elements_in, estimate_us
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.redis.shard import Effect, FrozenKeyspace

LENGTH, BATCH, PAYLOAD = "length", "batch", "payload"
AXES = {
    LENGTH: "how much the store holds",
    BATCH: "how much one call is about",
    PAYLOAD: "bytes of one payload",
}
"""What costs are functions of; each is n in what is printed."""
SIZES = {LENGTH: (10, 30, 100, 300, 1000), BATCH: (1, 3, 10, 30, 100, 300), PAYLOAD: (16, 64, 256, 1024, 4096)}
"""Where they are measured."""


FREEING = (b"del", b"set", b"flushdb", b"restore")
"""Commands that give memory back at once."""


@dataclass(frozen=True)
class CostReading:
    """One operation at one size."""

    situation: str
    """The operation, with what it is carried out in."""
    axis: str
    size: int
    commands: int
    blocked_us: float
    instructions: int
    grown_bytes: int
    """By which the keys grew."""
    held_bytes: int
    """Bytes that they took before."""
    before: FrozenKeyspace
    calls: tuple[tuple[bytes, ...], ...]
    """What its client sent."""
    now_ms: int
    failed: str = ""


class CallMeter:
    """Counts what operations take on a kernel."""

    def __init__(self, backend: KernelBackend) -> None:
        self.backend = backend

    def read(self, situation: str, axis: str, size: int, perform: Callable[[list[Effect]], str]) -> CostReading:
        """Carry out an operation, which notes its effects and says how it failed, and tell what it took."""
        effects: list[Effect] = []
        before, bytes_before, now_ms = self.backend.keyspace(), self.held(), self.backend.now_ms
        with self.backend.measuring() as work:
            failed = perform(effects)
            instructions, units = work()
        grown = self.held() - bytes_before
        return CostReading(
            situation, axis, size,
            commands=len(_inner(effects)),
            blocked_us=_blocked_us(effects, instructions, units, max(-grown, 0)),
            instructions=instructions, grown_bytes=grown, held_bytes=bytes_before, before=before,
            calls=tuple(tuple(effect.argv) for effect in effects if effect.line is None),
            now_ms=now_ms, failed=failed,
        )  # fmt: skip

    def held(self) -> int:
        """What MEMORY USAGE says of all keys together."""
        return memory_of(self.backend)


def _inner(effects: Sequence[Effect]) -> list[Effect]:
    return [effect for effect in effects if effect.argv[0].lower() not in SCRIPT_CALLS]


def _blocked_us(effects: Sequence[Effect], instructions: int, units: int, freed: int) -> float:
    """The longest of the client's calls; the instructions are taken for those of the one that called most."""
    price = costs_of_calls()["script"]
    parts: list[list[Effect]] = [[]]
    for effect in effects:  # a script is noted after what it called
        is_script = effect.argv[0].lower() in SCRIPT_CALLS
        if not is_script:
            parts[-1].append(effect)
        if is_script or effect.line is None:
            parts.append([])
    longest = max(parts, key=estimate_us)
    elements = sum(map(elements_in, longest))
    walked = max(0.0, units * price["work_us"] - elements * costs_of_calls()["default"]["element_us"])
    freeing = any(effect.argv[0].lower() in FREEING for effect in longest)
    freed_us: float = freed * price["freed_byte_us"] if freeing else 0.0
    longest_us: float = estimate_us(longest, instructions) + walked + freed_us
    return longest_us
