"""A conformance run: as many compared commands as asked for, over several processes, each with a server of its own."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orderlab.sim.live import ServerProcess, find_server, read_version
from orderlab.sim.redis.registry import COMMANDS, load_commands, spellings_of
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.judge import Disagreement, Judge, Tally, shrink
from tests.laboratory.conformance.sequences import GROUPS, Generator, SeededDraw
from tests.laboratory.conformance.subjects import FakeredisSubject, KernelSubject

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


def run(
    subject_name: str, count: int, seed: int, length: int = 50, version: ServerVersion = DEFAULT, path: str = ""
) -> Report:
    """Compare at least ``count`` commands in one process. Same seed, same sequences.

    ``length``: commands in a sequence. A sequence ends at its first disagreement. ``path``: of the server.
    """
    load_commands()
    binary = read_version(Path(path)) if path else find_server()
    report = Report(subject_name, str(binary))
    generator, draw = Generator(spellings_of(version), escapes=subject_name == "kernel"), SeededDraw(seed)
    begun = time.perf_counter()
    with ServerProcess(binary=binary) as process:
        judge = Judge(Connection(process.host, process.port), new_subject(subject_name, version))
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


def new_subject(name: str, version: ServerVersion = DEFAULT) -> KernelSubject | FakeredisSubject:
    """``kernel`` or ``fakeredis``."""
    return KernelSubject(version) if name == "kernel" else FakeredisSubject()


def run_in_processes(
    subject_name: str,
    count: int,
    seed: int,
    processes: int,
    length: int = 50,
    version: ServerVersion = DEFAULT,
    path: str = "",
) -> Report:
    """``run`` in several processes with seeds ``seed``, ``seed + 1``, ..., added up."""
    share = -(-count // processes)
    jobs = [(subject_name, share, seed + index, length, version, path) for index in range(processes)]
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


NOT_GENERATED = {
    b"acl": "users: tested command by command",
    b"latency": "facts of one process",
    b"slowlog": "facts of one process",
    b"auth": "connection state: tested command by command",
    b"monitor": "connection state: tested command by command",
    b"asking": "cluster: judged by a real cluster",
    b"cluster": "cluster: judged by a real cluster",
    b"readonly": "cluster: judged by a real cluster",
    b"readwrite": "cluster: judged by a real cluster",
    b"client": "connection state: tested command by command",
    b"command": "the table is compared whole",
    b"config": "node settings: tested command by command",
    b"debug": "node internals: tested command by command",
    b"hello": "begins every sequence",
    b"info": "facts of one process",
    b"lastsave": "facts of one process",
    b"memory": "facts of one process",
    **dict.fromkeys(
        (b"dump", b"restore", b"restore-asking"), "payloads may differ: each restores the other's (test_dumps.py)"
    ),
    b"quit": "ends the connection",
    b"reset": "ends every sequence",
    b"role": "replication: tested command by command",
    b"wait": "replication: tested command by command",
    **dict.fromkeys(
        b"subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe pubsub".split(),
        "subscriptions: compared by connections side by side",
    ),
}
"""Commands of the kernel that sequences leave out, and why."""
NEVER_SUCCEEDS = frozenset((b"?",))
"""Spoilt names."""


def generated() -> frozenset[bytes]:
    """Names of all commands that the tables can produce, alone or inside scripts."""
    names = {name.encode() for group in GROUPS.values() for form in group for name in form.names}
    scripting = b"eval eval_ro evalsha evalsha_ro fcall fcall_ro function script"
    return frozenset((*names, *scripting.split()))


def option_words() -> frozenset[bytes]:
    """Upper-case words that the forms of the kernel's commands name."""
    words = {
        word
        for group in GROUPS.values()
        for form in group
        if all(name.encode() in COMMANDS for name in form.names)
        for command in form.text.split(";")
        for word in re.findall(r"[^\s\[\]{}()|#.]+", command)[1:]
    }
    return frozenset(word.encode() for word in words if word.isupper())


def gaps(tally: Tally, times_min: int) -> Iterator[str]:
    """One line for each command that came up, or succeeded, too rarely, and for each option that never did."""
    load_commands()
    for name in sorted(COMMANDS):
        if name in NOT_GENERATED:
            continue
        shown = name.decode()
        if name not in generated():
            yield f"{shown}: the kernel has it, but no form in tests/laboratory/conformance/commands.py produces it"
        elif tally.commands[name] < times_min:
            yield f"{shown}: compared {tally.commands[name]} times, less than {times_min}"
        elif not tally.successes[name]:
            yield f"{shown}: never succeeded in {tally.commands[name]} comparisons"
    seen = {word for _, word in tally.options}
    for word in sorted(option_words() - seen):
        yield f"option {word.decode()}: never accepted"
