"""How fast known flaws are found: each specimen of a store by several methods, each flaw of a broker by exploration.

For a store: examples of Hypothesis, states of the exploration, random walks (clients, time and faults on the store
alone), and processor seconds, until a law that the specimen breaks is first seen broken; ten seeds, median and worst.
A store that the simulated broker can run (``published``) is also looked for in runs of the whole system with random
faults, beside the same runs of ``lua/session``; the other specimens differ in one script and fit no system's settings.
For a broker (B1 to B14): states and seconds of the exploration, which draws nothing. A search that finds nothing
within its seconds counts with those seconds and is told in the detail. There is no peer and nothing to reach.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.timing import report
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.pipeline.exploration import PipelineParameters
from orderlab.model.pipeline.specimens import SPECIMENS
from orderlab.model.verdict import Outcome
from orderlab.properties.validation.specimens import find_specimens
from orderlab.sim.stores.binding.binding import Binding
from tests.laboratory.finding_speed import Found, methods_for

SEEDS, QUICK_SEEDS = 10, 3
SECONDS, QUICK_SECONDS = 20.0, 3.0
"""Of one search."""
BROKER_SECONDS = 60.0
TO_REACH: dict[str, tuple[str, float]] = {}


def run(quick: bool = False) -> dict[str, Any]:
    """Measure; the benchmark's report. Half an hour of one core, a few minutes if quick."""
    seeds, seconds = (QUICK_SEEDS, QUICK_SECONDS) if quick else (SEEDS, SECONDS)
    figures: dict[str, float] = {}
    detail: dict[str, Any] = {"seeds": seeds, "seconds_max": seconds, "stores": {}, "brokers": {}, "peers": {}}
    for binding in find_specimens():
        assert binding.specimen is not None
        row = of_store(binding, seeds, seconds)
        detail["stores"][f"{binding.specimen.id} {binding.name}"] = row
        for method, told in row.items():
            figures[f"{binding.specimen.id} {method} median_s_to_find"] = told["cpu_s"]["median"]
    for name in SPECIMENS:
        row = of_broker(name, BROKER_SECONDS)
        detail["brokers"][name] = row
        figures[f"{name} exploration median_s_to_find"] = row["cpu_s"]
    return report("bugs", figures, detail)


def of_store(binding: Binding, seeds: int, seconds: float) -> dict[str, Any]:
    """Every method on one specimen, with each seed; exploration once, for it draws nothing."""
    told = {}
    for method, look in methods_for(binding).items():
        drawn = range(1 if method == "exploration" else seeds)
        told[method] = summed([look(binding, seed, seconds) for seed in drawn])
    return told


def summed(found: list[Found]) -> dict[str, Any]:
    """Median and worst; a search in vain counts with the time that it took."""
    return {
        "found": sum(bool(one.law) for one in found),
        "of": len(found),
        "laws": sorted({one.law for one in found if one.law}),
        "examples": {"median": statistics.median(o.searched for o in found), "worst": max(o.searched for o in found)},
        "cpu_s": {
            "median": round(statistics.median(o.cpu_s for o in found), 3),
            "worst": round(max(o.cpu_s for o in found), 3),
        },
    }


def of_broker(name: str, seconds: float) -> dict[str, Any]:
    """The exploration of one flawed broker, until its law breaks or the time is over."""
    began = time.process_time()
    found = explore(PipelineParameters(specimen=name).build(), Options(Budget(None, seconds), engine="interpreted"))  # type: ignore[arg-type]
    broken = [verdict.law for verdict in found.verdicts if verdict.outcome is Outcome.VIOLATED]
    return {
        "found": int(SPECIMENS[name].breaks in broken),
        "laws": broken,
        "states": found.distinct_states,
        "cpu_s": round(time.process_time() - began, 3),
    }
