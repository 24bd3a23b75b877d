"""How long a collector stops a broker: pauses and safepoints of a Java heap that lives as a broker's does, beside the
model's defaults.

    python -m benchmarks.collector_pauses [--seconds 60] [--sessions N] [--rate MESSAGES_PER_S] [--heap-mb N] [--json]

starts `CollectorPauses.java` in the launcher's single-file mode with ``-Xlog:gc*,safepoint`` and reads the log. A share
of a broker is measured that fits the processors at hand, heap included: by default an eighth, 2 of 16 cores, of the
published row of 200k msg/s. ``--rate 0`` lets the threads make as many messages as they can, which no broker does. Load
of others lengthens pauses: the load average is told, and the mean pause is bounded from below by the processor time of
the collector's threads, shared evenly among them. The rate, the sizes and the time a message is held are those of the
published row; garbage a message, sessions' state and the heap are assumed: vary them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.systems.settings import DeviceSettings

SOURCE = Path(__file__).with_name("CollectorPauses.java")
INSTALL = "apt-get install openjdk-17-jdk-headless"
QUIET_BELOW = 0.2
"""Load average a processor up to which others hardly matter."""
_PAUSE = re.compile(
    r"\[(?P<at>[\d.]+)s\].*\bGC\((?P<number>\d+)\) (?P<what>Pause [^\[]*?) \d+M->\d+M\(\d+M\) (?P<ms>[\d.]+)ms"
)
_SHORT_PAUSE = re.compile(
    r"\[(?P<at>[\d.]+)s\].*\bGC\((?P<number>\d+)\) (?P<what>Pause (?:Remark|Cleanup)) .*?(?P<ms>[\d.]+)ms$"
)
_CPU = re.compile(r"GC\((?P<number>\d+)\) User=(?P<user>[\d.]+)s Sys=(?P<sys>[\d.]+)s Real=(?P<real>[\d.]+)s")
_WORKERS = re.compile(r"Parallel Workers: (\d+)")
_SAFEPOINT = re.compile(
    r'\[(?P<at>[\d.]+)s\].*Safepoint "(?P<what>\w+)".*Reaching safepoint:\s+(?P<reach>\d+) '
    r"ns.*Total:\s+(?P<total>\d+) ns"
)


@dataclass(frozen=True)
class Pause:
    """One stop of the world by the collector; ``cpu_ms`` is that of all its threads, to 10 ms, where the log tells
    it."""

    at_s: float
    what: str
    ms: float
    cpu_ms: float | None = None


@dataclass(frozen=True)
class Log:
    """What a log of ``-Xlog:gc*,safepoint`` tells."""

    pauses: tuple[Pause, ...]
    safepoints_ms: tuple[tuple[float, str, float], ...]
    """(seconds, operation, milliseconds from the request to the end), those of the collector included."""
    workers: int = 1
    """Threads of the collector in a pause."""


def parse_log(text: str) -> Log:
    """The pauses and safepoints of a log with the decorations ``uptime`` and ``tags``."""
    pauses: list[Pause] = []
    cpu: dict[int, float] = {}
    numbers: list[str] = []
    safepoints = []
    for line in text.splitlines():
        if found := _PAUSE.search(line) or _SHORT_PAUSE.search(line):
            pauses.append(Pause(float(found["at"]), found["what"].strip(), float(found["ms"])))
            numbers.append(found["number"])
        elif (
            (found := _CPU.search(line)) and numbers and numbers[-1] == found["number"]
        ):  # the line follows that of its pause
            cpu[len(pauses) - 1] = 1000 * (float(found["user"]) + float(found["sys"]))
        elif found := _SAFEPOINT.search(line):
            safepoints.append((float(found["at"]), found["what"], int(found["total"]) / 1e6))
    told = tuple(Pause(pause.at_s, pause.what, pause.ms, cpu.get(number)) for number, pause in enumerate(pauses))
    workers = _WORKERS.search(text)
    return Log(told, tuple(safepoints), int(workers[1]) if workers else 1)


def lognormal(values_ms: Sequence[float]) -> tuple[float, float]:
    """Median and spread of the logarithm of what fits best. Raises InputError for fewer than two."""
    if len(values_ms) < 2:
        raise InputError(
            f"{len(values_ms)} pauses: no distribution; give more --seconds, a smaller --heap-mb, or a higher --rate"
        )
    logs = [math.log(value) for value in values_ms]
    return math.exp(statistics.fmean(logs)), statistics.stdev(logs)


def figures(log: Log, after_s: float, until_s: float) -> dict[str, Any]:
    """What the pauses from ``after_s`` on come to."""
    pauses = [pause for pause in log.pauses if pause.at_s >= after_s]
    lengths = sorted(pause.ms for pause in pauses)
    median, sigma = lognormal(lengths)
    others = [ms for at, what, ms in log.safepoints_ms if at >= after_s and not what.startswith("G1")]
    cpu = [pause.cpu_ms for pause in pauses if pause.cpu_ms is not None]
    return {
        "pauses": len(lengths),
        "every_s": (until_s - after_s) / len(lengths),
        "median_ms": median,
        "sigma": sigma,
        "p95_ms": lengths[math.ceil(0.95 * len(lengths)) - 1],
        "max_ms": lengths[-1],
        "share_of_time": sum(lengths) / 1000 / (until_s - after_s),
        "mean_ms": statistics.fmean(lengths),
        "mean_ms_at_least": statistics.fmean(cpu) / log.workers if cpu else 0.0,
        "other_safepoints": len(others),
        "other_safepoints_max_ms": max(others, default=0.0),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the program and tell what its log says. Raises InputError where there is no Java, or nothing to tell."""
    java = shutil.which("java")
    if java is None:
        raise InputError(f"java: not on the path; install it: {INSTALL}")
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr.splitlines()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "gc.log"
        sizes = [f"-Xms{options.heap_mb}m", f"-Xmx{options.heap_mb}m", "-XX:+UseG1GC"]
        told = [f"-Xlog:gc*,safepoint:file={place}:uptime,tags:filecount=0"]
        given = [
            options.seconds,
            options.sessions,
            options.rate,
            options.held_ms,
            options.message_bytes,
            options.garbage_bytes,
            options.threads,
        ]
        done = subprocess.run([java, *sizes, *told, str(SOURCE), *map(str, given)], capture_output=True, text=True)
        if done.returncode:
            said = [
                line
                for line in (done.stderr + done.stdout).splitlines()
                if line.startswith(("Exception", "Error", "Too ", "Could not"))
            ]
            raise InputError(
                f"java: {' '.join(said) or f'exit code {done.returncode}'}; a larger --heap-mb, or fewer --sessions, "
                "may help"
            )
        log = parse_log(place.read_text())
    served = dict(word.split("=") for word in done.stdout.split())
    until_s = max((pause.at_s for pause in log.pauses), default=0.0)
    found = figures(log, min(options.settle_s, until_s / 2), until_s)
    return {
        "java": version[0], "collector": "G1", "processors": os.cpu_count(), "settings": vars(options),
        "load_before": load_before, "load_after": os.getloadavg()[0],
        "messages_per_s": int(served["messages_per_s"]), "busy_s": float(served["busy_s"]), **found,
        "model": {"median_ms": DeviceSettings().gc_median_ms, "sigma": DeviceSettings().gc_sigma},
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collector_pauses",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    parser.add_argument(
        "--settle-s",
        type=float,
        default=5,
        help="pauses before that are left out: the heap is being filled, code compiled",
    )
    parser.add_argument("--sessions", type=int, default=25_000, help="of publishers and subscribers")
    parser.add_argument("--rate", type=int, default=12_500, help="messages a second; 0: as many as the threads make")
    parser.add_argument("--heap-mb", type=int, default=1500)
    parser.add_argument("--held-ms", type=int, default=35, help="how long a message is held: the broker's latency")
    parser.add_argument("--message-bytes", type=int, default=302, help="of a packet, and of a record")
    parser.add_argument(
        "--garbage-bytes",
        type=int,
        default=8192,
        help="allocated for a message beside it, and dropped at once (assumed)",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(arguments)
    for name in ("seconds", "sessions", "heap_mb", "message_bytes", "threads"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} {getattr(options, name)}: at least 1")
    for name in ("rate", "held_ms", "garbage_bytes", "settle_s"):
        if getattr(options, name) < 0:
            raise InputError(f"--{name.replace('_', '-')} {getattr(options, name)}: not below 0")
    if options.sessions < options.threads:
        raise InputError(f"--sessions {options.sessions}: at least one a thread ({options.threads})")
    found = measure(options)
    if options.json:
        print(json.dumps(found))
        return
    loads = f"load average {found['load_before']:.2f} before, {found['load_after']:.2f} after"
    print(f"{found['java']}, G1, heap {options.heap_mb} MB, {found['processors']} processors, {loads}")
    if found["load_before"] > QUIET_BELOW * (found["processors"] or 1):
        print("others work on this machine, or did in the last minute: the pauses may be too long", file=sys.stderr)
    print(f"{found['messages_per_s']} msg/s, {found['busy_s']:.1f} s of processor time in {options.seconds} s")
    print(
        f"{found['pauses']} pauses, one in {found['every_s']:.2f} s ({found['share_of_time']:.2%} of the time): "
        f"median {found['median_ms']:.1f} ms, "
        f"sigma {found['sigma']:.2f}, 95 % below {found['p95_ms']:.1f} ms, longest {found['max_ms']:.1f} ms"
    )
    print(
        f"mean {found['mean_ms']:.1f} ms; by the processor time of the collector's threads at least "
        f"{found['mean_ms_at_least']:.1f} ms"
    )
    print(f"{found['other_safepoints']} other safepoints, longest {found['other_safepoints_max_ms']:.2f} ms")
    print(f"the model's defaults: median {found['model']['median_ms']:g} ms, sigma {found['model']['sigma']:g}")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "collector_pauses")
