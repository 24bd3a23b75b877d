"""Client code in every order: how much searching costs beside frontrun, and how many executions a second there are.

``cpu_vs_frontrun`` is the processor time to exhaust a program, divided by what frontrun's search of it takes with its
bound of two preemptions, at the program where that is most; without its server's time and both sides' starts.
frontrun searches threads of one process and says nothing of lost replies; only the work that both do is compared. Where
it came to no end within ``SECONDS_MAX``, or gave up, the time until then counts, which favours it. ``executions_per_s``
is of two clients with six commands each (read, then write), ``found_at`` the execution that shows frontrun's own
example to be wrong (the first has one client after the other).
"""

from __future__ import annotations

import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.clients_programs import PROGRAMS, count, twelve
from benchmarks.timing import ROUNDS_MIN, report
from orderlab.model.errors import Defect, InputError
from orderlab.properties.clients.orders import OrderSearch
from orderlab.properties.clients.race import race
from orderlab.properties.clients.runs import controlled
from orderlab.properties.clients.scenario import scenario
from orderlab.sim.live import ServerProcess

ROOT = Path(__file__).resolve().parents[1]
TO_REACH = {"cpu_vs_frontrun": ("<=", 0.005), "executions_per_s": (">=", 5000.0), "found_at": ("<=", 2.0)}
SECONDS_MAX = 60.0
EXECUTIONS = 2000
OFTEN = ("count2", "watch2")
"""Programs that frontrun exhausts in seconds: those are measured in every round."""


def searched(name: str) -> tuple[float, int]:
    """Processor time and executions until our search of a program is exhausted."""
    function, clients = PROGRAMS[name]
    search = OrderSearch(scenario(clients=clients)(function), 100_000)
    begun = time.process_time()
    for _ in search.runs():
        pass
    if not search.work.is_exhausted:
        raise Defect(f"bench clients: {name} was not exhausted")
    return time.process_time() - begun, search.work.executions


def searched_by_frontrun(name: str, server: ServerProcess) -> dict[str, Any]:
    """The same of frontrun, in a process of its own under its command."""
    command = [sys.executable, "-m", "benchmarks.clients_programs", name, str(server.port), str(SECONDS_MAX)]
    done = subprocess.run(
        [sys.executable, "-m", "frontrun.cli", *command], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise Defect(f"bench clients: frontrun ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def executions_per_s() -> float:
    """Executions a second of processor time, imports and start apart."""
    search = OrderSearch(scenario(clients=2)(twelve), EXECUTIONS, reduction=False)
    begun = time.process_time()
    for _ in search.runs():
        pass
    return search.work.executions / (time.process_time() - begun)


def run(quick: bool = False) -> dict[str, Any]:
    """Measure; two minutes, some ten seconds with ``quick``. Raises InputError without frontrun."""
    try:
        version = importlib.metadata.version("frontrun")
    except importlib.metadata.PackageNotFoundError:
        raise InputError("bench clients: frontrun is not installed; run: .venv/bin/pip install frontrun") from None
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    detail: dict[str, Any] = {}
    names = OFTEN if quick else tuple(PROGRAMS)
    rates = []
    with ServerProcess() as server, controlled():
        executions_per_s()
        for number in range(1 if quick else ROUNDS_MIN):
            rates += [executions_per_s() for _ in range(ROUNDS_MIN if quick else 1)]
            for name in names:
                searched(name)
                spent, executions = searched(name)
                ours.setdefault(name, []).append(spent)
                if number and name not in OFTEN:
                    continue
                told = searched_by_frontrun(name, server)
                theirs.setdefault(name, []).append(told["cpu_s"])
                detail[name] = {"executions": executions, "cpu_s": round(spent, 4), "frontrun": told}
    ratios = {name: statistics.median(ours[name]) / statistics.median(theirs[name]) for name in names}
    found = race(scenario(clients=2)(count))
    figures = {
        "cpu_vs_frontrun": max(ratios.values()),
        "executions_per_s": statistics.median(rates),
        "found_at": float(found.executions),
    }
    detail["ratios"] = {name: round(ratio, 6) for name, ratio in ratios.items()}
    return report("clients", figures, {"peers": {"frontrun": version}, "programs": detail})
