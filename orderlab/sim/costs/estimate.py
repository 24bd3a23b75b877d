"""How long an operation keeps a Redis node busy, estimated from what it calls (``sim/costs/redis.toml``)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orderlab.sim.redis.shard import Effect

COSTS = Path(__file__).with_name("redis.toml")


@functools.cache
def costs() -> dict[str, Any]:
    """The cost model as it stands in the file."""
    return tomllib.loads(COSTS.read_text())


def elements_in(effect: Effect) -> int:
    """Elements that a call handed over or got back beyond one: arguments after the key, items of an array reply."""
    returned = len(effect.reply) if isinstance(effect.reply, list) else 0
    return max(0, len(effect.argv) - 3, returned - 1)


def estimate_us(calls: Iterable[Effect]) -> float:
    """Microseconds for which a script with these calls blocks its node: an estimate, not a measurement."""
    model = costs()
    script, default = model["script"], model["default"]
    total: float = script["start_us"]
    for effect in calls:
        cost = model["commands"].get(effect.argv[0].decode("latin-1").lower(), default)
        per_element = cost.get("element_us", default["element_us"])
        total += script["call_us"] + cost["base_us"] + per_element * elements_in(effect)
    return total
