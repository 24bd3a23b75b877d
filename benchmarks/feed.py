"""Requests per second of `zaqar-watch` and `zaqar-lua`, history recorded, every command on the kernel.

Both run in turns within each round. The rate is that of one core: by processor time, so that other work on the machine
changes it little. Requests that conflict are counted once, however often they begin again. Assembling and judging are
not counted.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

from benchmarks.timing import ROUNDS_MIN, report
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

TO_REACH = {"watch_requests_per_core_s": (">=", 20_000.0), "lua_requests_per_core_s": (">=", 20_000.0)}
SYSTEMS_TIMED = {"watch": "zaqar-watch", "lua": "zaqar-lua"}
SETTINGS = {"warm_up_s": 0.1, "duration_s": 2.0, "drain_s": 0.2}


def _timed(name: str, seed: int) -> tuple[float, float, dict[str, Any]]:
    """(requests per second of processor time, of wall time, report)."""
    rows: list[int] = []
    system = SYSTEMS[name].assemble(settings_of(name, SETTINGS), seed, [lambda batch: rows.append(len(batch))])
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    told = system.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    requests = told["counts"]["requests"] * (SETTINGS["warm_up_s"] + SETTINGS["duration_s"]) / SETTINGS["duration_s"]
    return requests / cpu, requests / wall, told


def run(rounds: int = ROUNDS_MIN) -> dict[str, Any]:
    """Measure; the benchmark's report."""
    runs: dict[str, list[tuple[float, float, dict[str, Any]]]] = {cure: [] for cure in SYSTEMS_TIMED}
    for seed in range(rounds):
        for cure, name in SYSTEMS_TIMED.items():
            runs[cure].append(_timed(name, seed))
    figures = {
        f"{cure}_requests_per_core_s": statistics.median(each[0] for each in done) for cure, done in runs.items()
    }
    detail = {
        "rounds": rounds,
        "requests": {cure: done[-1][2]["counts"]["requests"] for cure, done in runs.items()},
        "requests_per_wall_s": {
            cure: round(statistics.median(each[1] for each in done)) for cure, done in runs.items()
        },
        "conflicts_per_request": {
            cure: done[-1][2]["contention"]["conflicts_per_request"] for cure, done in runs.items()
        },
        "peers": {},
    }
    return report("feed", figures, detail)
