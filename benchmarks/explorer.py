"""Two-phase commit with 7 and 8 resource managers: ``orderlab explore`` beside SPIN, whole processes, in turns.

Both visit every state and check that no manager commits while another aborts. SPIN's verifier is compiled beforehand
(-O2, safety only, hash table of 2^23 slots); so is our search loop, which the first, uncounted round leaves in the
cache folder. Timed is what a user waits for afterwards: a process from start to exit, interpreter and imports included;
``inside_vs_spin`` is our search alone. ``detail`` tells what the very first run with an empty cache takes.
``script_transitions_per_s`` explores the real scripts of ``lua/session`` (2 writers, 1 reader, 4 messages), each step
judged, in seconds of one core from an empty memory: finding out what the scripts do, judging it, and the search itself.
``two_workers_vs_one`` is an interpreted search shared by two processes against the same search in one; it needs two
cores that nobody else uses. What the machine itself allows is measured in the same rounds: two searches that know
nothing of each other, side by side, against one alone (``machine_ceiling`` in ``detail``, 2 on two free cores), and
``two_workers_vs_ceiling``, the shared search against that. Where others use the cores, the processor time in ``detail``
tells more: SPIN's against ours, and one process's against that of the busier of two.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.timing import Contender, report, take_turns
from orderlab.child import quiet_fork
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.search import Options, search
from orderlab.properties.contracts.session.exploration.catalogue import Parameters

PROMELA = Path(__file__).with_name("promela") / "two_phase_commit.pml"
DISTINCT_STATES = {7: 296_448, 8: 1_745_408}
COMPILE = ("gcc", "-O2", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c")
"""Nothing can be reduced in one process, and without the attempt SPIN is faster."""
RUN = ("./pan", "-w23", "-m1000")
TO_REACH = {
    "wall_vs_spin": ("<=", 1.3),
    "inside_vs_spin": ("<=", 1.0),
    "script_transitions_per_s": (">=", 300_000),
    "two_workers_vs_one": (">=", 1.7),
}
SHARED_MANAGERS = 6


class Spin:
    """The verifiers, one for each number of managers."""

    def __init__(self, folder: Path) -> None:
        for tool in ("spin", "gcc"):
            if shutil.which(tool) is None:
                raise InputError(f"bench explorer: {tool} is not installed; install the packages spin and gcc")
        self._folders = {managers: folder / str(managers) for managers in DISTINCT_STATES}
        for managers, place in self._folders.items():
            place.mkdir()
            _run(("spin", "-a", f"-DN={managers}", str(PROMELA)), cwd=place)
            _run(COMPILE, cwd=place)
        self.version = _run(("spin", "-V"), cwd=folder).strip()

    def work(self) -> int:
        """Verify both; returns the states that SPIN says it stored."""
        total = 0
        for managers, place in self._folders.items():
            text = _run(RUN, cwd=place)
            stored = re.search(r"(\d+) states, stored", text)
            assert stored is not None, text
            assert "errors: 0" in text, text
            assert int(stored[1]) == DISTINCT_STATES[managers], text
            total += int(stored[1])
        return total


class Ours:
    """The command line, run as a user runs it."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self.inside_s: list[float] = []

    def work(self) -> int:
        """Explore both; returns the distinct states."""
        runs = [self.explore(managers) for managers in DISTINCT_STATES]
        self.inside_s.append(sum(run["run"]["seconds"] for run in runs))
        return sum(run["distinct_states"] for run in runs)

    def explore(self, managers: int) -> Mapping[str, Any]:
        """One exploration in a process of its own."""
        setting = f"resource_managers={managers}"
        command = (sys.executable, "-m", "orderlab.cli", "explore", "two-phase-commit", "--set", setting, "--json")
        # An installed program has its bytecode, whatever the environment of whoever measures says.
        bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self._cache / "bytecode")}
        environment = {**os.environ, "XDG_CACHE_HOME": str(self._cache), **bytecode}
        found: Mapping[str, Any] = json.loads(_run(command, cwd=Path(__file__).parents[1], environment=environment))
        assert found["outcome"] == "holds", found
        assert found["distinct_states"] == DISTINCT_STATES[managers], found
        return found


def shared_search(workers: int) -> int:
    """An interpreted search by so many workers; returns the distinct states."""
    found = search(TwoPhaseCommit(resource_managers=SHARED_MANAGERS), Options(engine="interpreted", workers=workers))
    return found.space.count


def side_by_side() -> int:
    """The same search by one worker, here and at the same time in a child; returns the distinct states of both."""
    with quiet_fork():
        child = os.fork()
    if child == 0:
        shared_search(1)
        os._exit(0)
    states = shared_search(1)
    assert os.waitpid(child, 0)[1] == 0
    return 2 * states


def processor_s(who: int) -> float:
    """Processor time of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def of_all() -> float:
    """Processor time of this process and its ended children."""
    return processor_s(resource.RUSAGE_SELF) + processor_s(resource.RUSAGE_CHILDREN)


class BusierOfTwo:
    """Processor time of this process or of its one child, whichever used more between two calls."""

    def __init__(self) -> None:
        self._before = (0.0, 0.0)
        self._total = 0.0

    def __call__(self) -> float:
        now = processor_s(resource.RUSAGE_SELF), processor_s(resource.RUSAGE_CHILDREN)
        self._total += max(after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        return self._total


STORE = Path(__file__).parents[1] / "lua" / "session"
SCOPE = {"writers": 2, "readers": 1, "messages": 4, "crashes": 1, "lost_replies": 1, "script_flush": 1, "expiries": 0}


def script_transitions(rounds: int) -> tuple[float, dict[str, Any]]:
    """Transitions a second, the median of ``rounds`` whole explorations, and what was explored. Crashes, lost replies
    and script-cache flushes may strike, each once on a path.
    """
    rates: list[float] = []
    states = transitions = 0
    for _ in range(rounds):
        begun_s = time.process_time()
        done = search(Parameters(path=str(STORE), **SCOPE).build(), Options())
        rates.append(done.space.steps / (time.process_time() - begun_s))
        assert done.complete
        assert not done.violated()
        states, transitions = done.space.count, done.space.steps
    detail = {"distinct_states": states, "transitions": transitions, "per_s": [round(rate) for rate in rates]}
    return statistics.median(rates), {**detail, "seconds": "CPU time of one core, memory empty at first"}


def _run(command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"bench explorer: {' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def run(rounds: int = 5) -> dict[str, Any]:
    """Measure; the benchmark's report. Takes about a minute. Raises InputError without spin and gcc."""
    with tempfile.TemporaryDirectory() as folder:
        spin = Spin(Path(folder))
        ours = Ours(Path(folder) / "cache")
        begun_s = time.perf_counter()
        ours.work()
        first_run_s = time.perf_counter() - begun_s
        contenders = [
            Contender(name, lambda: None, work, of_all) for name, work in (("spin", spin.work), ("orderlab", ours.work))
        ]
        timings = take_turns(contenders, rounds)
    sharers = [Contender(f"{n} workers", lambda: None, partial(shared_search, n), BusierOfTwo()) for n in (1, 2)]
    sharing = take_turns([*sharers, Contender("side by side", lambda: None, side_by_side, BusierOfTwo())], rounds)
    scripts_per_s, scripts = script_transitions(rounds)
    states = sum(DISTINCT_STATES.values())
    inside_s = statistics.median(ours.inside_s[-rounds:])
    detail = {
        "wall_s": {name: round(states / timings.median(name), 3) for name in timings.rates},
        "inside_s": round(inside_s, 3),
        "first_run_with_empty_cache_s": round(first_run_s, 3),
        "processor_time_vs_spin": round(timings.core_ratio("spin", "orderlab"), 3),
        "distinct_states": {str(managers): count for managers, count in DISTINCT_STATES.items()},
        "scripts": scripts,
        "workers": {
            "specification": f"two-phase commit, {SHARED_MANAGERS} managers, interpreted",
            "cores": os.cpu_count(),
            "machine_ceiling": round(sharing.ratio("side by side", "1 workers"), 3),
            "two_workers_vs_ceiling": round(sharing.ratio("2 workers", "side by side"), 3),
            "one_vs_busier_of_two_by_processor_time": round(sharing.core_ratio("2 workers", "1 workers"), 3),
        },
        "rounds": rounds,
        "peers": {"spin": spin.version, "compiled with": " ".join(COMPILE), "run as": " ".join(RUN)},
    }
    figures = {
        "wall_vs_spin": timings.ratio("spin", "orderlab"),
        "inside_vs_spin": round(inside_s * timings.median("spin") / states, 3),
        "script_transitions_per_s": round(scripts_per_s),
        "two_workers_vs_one": sharing.ratio("2 workers", "1 workers"),
    }
    return report("explorer", figures, detail)
