"""A conformance run: as many compared commands as asked for, over several processes, each with a server of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from orderlab.properties.conformance.judge import Disagreement, Judge, Tally
from orderlab.properties.conformance.sequences import Generator, SeededDraw
from orderlab.properties.conformance.shrink import shrink
from orderlab.properties.conformance.subjects import FakeredisSubject, KernelSubject
from orderlab.sim.live.redis_server import ServerProcess, find_server
from orderlab.sim.redis.registry import COMMANDS, load_commands
from orderlab.sim.redis.wire.connection import Connection

SEQUENCES_AT_ONCE = 20
SHRUNK_MAX = 100
"""Disagreements that are shrunk for one report; the others are counted."""


@dataclass
class Report:
    """The outcome of a run."""

    subject: str
    server: str
    tally: Tally = field(default_factory=Tally)
    disagreements: Counter[str] = field(default_factory=Counter)
    """By the command whose replies differed, and how."""
    examples: dict[str, Disagreement] = field(default_factory=dict)
    """One for each, shrunk."""
    seconds: float = 0.0

    @property
    def compared(self) -> int:
        """Commands of clients whose replies were compared; those inside scripts are not counted."""
        return sum(self.tally.commands.values())

    def add(self, other: Report) -> None:
        """Add another run, on the same subject and server, at the same time."""
        self.tally.add(other.tally)
        self.disagreements += other.disagreements
        self.examples = other.examples | self.examples
        self.seconds = max(self.seconds, other.seconds)


def run(subject_name: str, count: int, seed: int, length: int = 50) -> Report:
    """Compare at least ``count`` commands in one process. Same seed, same sequences.

    ``length``: commands in a sequence. A sequence ends at its first disagreement.
    """
    load_commands()
    report = Report(subject_name, str(find_server()))
    generator, draw = Generator(COMMANDS, escapes=subject_name == "kernel"), SeededDraw(seed)
    begun = time.perf_counter()
    with ServerProcess() as process:
        judge = Judge(Connection(process.host, process.port), new_subject(subject_name))
        while sum(judge.tally.commands.values()) < count:
            sequences = [generator.sequence(draw, length) for _ in range(SEQUENCES_AT_ONCE)]
            for found in judge.compare_all(sequences):
                if found is not None:
                    name = f"{found.command}: {found.kind}"
                    report.disagreements[name] += 1
                    report.examples.setdefault(name, found)
        report.tally, judge.tally = judge.tally, Tally()
        report.seconds = time.perf_counter() - begun
        for name, found in list(report.examples.items())[:SHRUNK_MAX]:
            report.examples[name] = shrink(found, judge.compare)
    return report


def new_subject(name: str) -> KernelSubject | FakeredisSubject:
    """``kernel`` or ``fakeredis``."""
    return KernelSubject() if name == "kernel" else FakeredisSubject()


def run_in_processes(subject_name: str, count: int, seed: int, processes: int, length: int = 50) -> Report:
    """``run`` in several processes with seeds ``seed``, ``seed + 1``, ..., added up."""
    share = -(-count // processes)
    jobs = [(subject_name, share, seed + index, length) for index in range(processes)]
    if processes == 1:
        return run(*jobs[0])
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return add_up(pool.starmap(run, jobs))


def add_up(reports: Iterable[Report]) -> Report:
    """Several runs as one."""
    first, *others = reports
    for other in others:
        first.add(other)
    return first
