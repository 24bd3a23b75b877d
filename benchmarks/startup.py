"""What a user waits for before anything is judged: processor time of whole processes of the command line.

The time is that of the process and of all that it started and waited for, as the system tells it, so that other work on
the machine changes it little. Each figure is the median of the rounds, after one round that warms caches up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import ROUNDS_MIN, report
from orderlab.model.errors import Defect

ROOT = Path(__file__).resolve().parents[1]
RUNS: Mapping[str, Sequence[str]] = {
    "help_cpu_s": ("--help",),
    "command_help_cpu_s": ("simulate", "--help"),
    "validate_quick_cpu_s": ("validate", "lua/session", "--effort", "quick", "--backend", "kernel"),
}
TO_REACH = {"help_cpu_s": ("<=", 0.3), "command_help_cpu_s": ("<=", 0.5), "validate_quick_cpu_s": ("<=", 10.0)}


def cpu_seconds(arguments: Sequence[str]) -> float:
    """Processor time of one call of the command line."""
    command = [sys.executable, "-m", "orderlab.cli", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise Defect(f"bench startup: {' '.join(command[1:])} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def run(rounds: int = ROUNDS_MIN) -> dict[str, Any]:
    """Measure."""
    taken: dict[str, list[float]] = {figure: [] for figure in RUNS}
    for number in range(rounds + 1):
        for figure, arguments in RUNS.items():
            seconds = cpu_seconds(arguments)
            if number:
                taken[figure].append(round(seconds, 3))
    figures = {figure: statistics.median(rounds_of) for figure, rounds_of in taken.items()}
    return report("startup", figures, {"peers": {}, "rounds": taken})
