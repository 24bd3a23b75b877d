"""What a session leaves behind: one line a law, the statistics of the machines, and traces for ``orderlab replay``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.properties.machines.tally import Tally


def print_summary(terminal: pytest.TerminalReporter, how: str, seed: int) -> None:
    """Each law of each store: verdict, how often it was tested, seconds, reason."""
    rows = [(nodeid, told["summary"]) for nodeid, told in _told(terminal) if "summary" in told]
    if not rows:
        return
    terminal.section("orderlab")
    for nodeid, (outcome, because, tested, seconds) in rows:
        store, _, law = nodeid.rpartition("::")
        why = f": {because}" if because and outcome != "holds" else ""
        terminal.write_line(f"{store}  {law:<16} {outcome:<14} tested {tested:>8,} times, {seconds:>6.1f} s{why}")
    total_s = sum(told[3] for _, told in rows)
    terminal.write_line(f"{len(rows)} law{'s' * (len(rows) != 1)} in {total_s:.0f} s, {how}, seed {seed}")


def print_statistics(terminal: pytest.TerminalReporter) -> None:
    """How often each rule fired, each step was carried out and each law was tested, by machine."""
    tallies: dict[str, Tally] = {}
    for _, told in _told(terminal):
        for name, data in told["statistics"].items():
            tallies.setdefault(name, Tally()).add(Tally.from_json(data))
    terminal.section("orderlab statistics")
    for name, tally in sorted(tallies.items()):
        terminal.write_line(name)
        for line in tally.lines():
            terminal.write_line(f"  {line}")
    if not tallies:
        terminal.write_line("no machine has run")


def _told(terminal: pytest.TerminalReporter) -> list[tuple[str, dict[str, Any]]]:
    """What each test had to tell, by test identifier: the order in which workers finish must not show."""
    reports = [report for reports in terminal.stats.values() for report in reports if hasattr(report, "orderlab")]
    return sorted(((report.nodeid, report.orderlab) for report in reports), key=lambda one: one[0])


TRACES = ".orderlab"
NAME_LONGEST = 100


def home_of(config: pytest.Config) -> Path:
    """Where traces and failing examples are kept: beside the configuration file. Without one pytest takes the nearest
    folder above all that it was given for the root, which is nobody's: then it is where pytest was started."""
    return config.rootpath if config.inipath is not None else config.invocation_params.dir


def keep_trace(config: pytest.Config, name: str, trace: dict[str, Any]) -> str:
    """Write a trace; what replays it, or why there is nothing to replay. Where it cannot be written no story is
    lost."""
    file = home_of(config) / TRACES / f"{name}.json"
    shown = os.path.relpath(file, config.invocation_params.dir)
    try:
        file.parent.mkdir(exist_ok=True)
        write_whole(file, json.dumps(trace, indent=1).encode())
    except (OSError, InputError) as error:
        return f"no trace to replay: {shown}: {error.strerror if isinstance(error, OSError) else error}"
    return f"replay it: orderlab replay {shown}"


def file_name_of(nodeid: str) -> str:
    """A test's identifier as the name of a file."""
    return re.sub(r"[^\w.-]+", "-", nodeid)[-NAME_LONGEST:].strip("-.")
