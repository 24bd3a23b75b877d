"""Processes of any language judged: in every order of their commands, then with faults.

Verified: final keys, exit codes and standard output of whole processes, held against those of some order one after the
other; or, where a program is asked at the end, that alone. A process that a fault befell may have done all or nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.verdict import Outcome
from orderlab.properties.clients.footprints import StepFootprint
from orderlab.properties.clients.processes import (
    FAULTS,
    QUIET_S,
    Choose,
    ProcessesEnded,
    ProcessRun,
    Programs,
    Step,
    carried_out,
)

EXECUTIONS: Final = {"quick": 50, "normal": 400, "thorough": 4_000}
"""At most, for each number of faults."""
ABSENT: Final = "absent"
STATEMENTS: Final = {
    "serializable": "exit codes, standard output and final keys are those of some order of whole processes",
    "no-deadlock": "no process waits for ever, unless one does in each order of whole processes",
    "finally": "the program that is asked at the end exits with 0",
}
"""Laws of processes, in words."""


def laws_of(programs: Programs) -> tuple[str, ...]:
    """Those that are judged."""
    return ("finally" if programs.check else "serializable", "no-deadlock")


@dataclass(frozen=True)
class ProcessVerdict:
    """What was decided about processes. ``schedule``: the steps that break the law, as ``--schedule`` takes them."""

    outcome: Outcome
    law: str
    what: str
    how_far: str
    steps: tuple[str, ...]
    executions: int
    schedule: str = ""
    keys: tuple[dict[str, str], ...] = ()
    """After each step."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "outcome": str(self.outcome), "steps": list(self.steps), "keys": list(self.keys)}


def race_processes(programs: Programs, effort: str, trouble: int = 0, faults: Sequence[str] = ()) -> ProcessVerdict:
    """Judge processes in every order of their commands, with up to ``trouble`` faults. Raises InputError."""
    for fault in faults:
        if fault not in FAULTS:
            raise InputError(f"--fault {fault}: none that befalls a process; {did_you_mean(fault, tuple(FAULTS))}")
    judge = _SerialProcesses(programs)
    again = carried_out(programs, _in_order(range(len(programs.clients))))
    judge.executions += 1
    if not judge.is_same(again, judge.first):
        why = "leave out chance, times of day and process numbers from keys and output"
        return judge.unknown(f"uncontrolled: the same order ended otherwise when run again; {why}")
    broken = next((run for run in judge.serial if judge.law_broken(run)), None)
    if broken is not None:
        return judge.violated(broken, "one after the other")
    parts: list[str] = []
    for budget in range(trouble + 1):
        search = _ProcessSearch(programs, EXECUTIONS[effort], tuple(faults or FAULTS), budget)
        for run in search.runs():
            judge.executions += 1
            judge.is_timed |= run.is_timed
            if judge.law_broken(run):
                return judge.violated(run, f"found in {judge.executions:,} executions")
        told = f"{len(programs.clients)} processes" + (f", {budget} trouble" if budget else "")
        if search.is_astray:
            return judge.unknown("uncontrolled: a step could not be made again")
        if not search.is_exhausted:
            return judge.unknown("; ".join([*parts, f"not exhausted: {search.executions:,} orders of {told}"]))
        parts.append(f"every order that differs of {told}, in {search.executions:,} executions")
    if judge.is_timed:
        parts.append(f"uncontrolled: a process was quiet for {QUIET_S:g} s, and real time had a say")
        return judge.unknown("; ".join(parts))
    return ProcessVerdict(Outcome.HOLDS, "", "", "; ".join(parts), (), judge.executions)


def replayed_processes(programs: Programs, schedule: str) -> ProcessVerdict:
    """Make the steps of a schedule again: ``0,1,1!killed``. Raises InputError where one cannot be made."""
    steps: list[Step] = []
    for word in schedule.split(","):
        number, _, fault = word.strip().partition("!")
        if not number.isdigit() or int(number) >= len(programs.clients) or (fault and fault not in FAULTS):
            raise InputError(f"--schedule: {word!r} is no step of these processes; write 0,1,0!killed")
        steps.append((int(number), fault))

    def choose(at: int, enabled: Sequence[Step]) -> Step:
        if at < len(steps) and steps[at] not in enabled:
            raise InputError(
                f"--schedule: step {at + 1}, of process {steps[at][0]}, cannot be made: it asks for nothing"
            )
        return steps[at] if at < len(steps) else enabled[0]

    judge = _SerialProcesses(programs)
    run = carried_out(programs, choose, tuple(FAULTS), sum(bool(fault) for _, fault in steps))
    if len(run.choices) < len(steps):
        raise InputError(
            f"--schedule: the processes end after {len(run.choices)} steps of {len(steps)}; leave out the rest"
        )
    if judge.law_broken(run):
        return judge.violated(run, "one schedule, made again")
    return ProcessVerdict(Outcome.HOLDS, "", "", "one schedule, made again", tuple(run.steps), 1, schedule)


class _SerialProcesses:
    """What processes do one after the other, and whether a run may be told from that."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.serial = list(_serial_runs(programs))
        self.first = self.serial[0]
        self.executions = len(self.serial)
        self.is_timed = any(run.is_timed for run in self.serial)
        self._expected: dict[tuple[int, ...], set[ProcessesEnded]] = {(): self._endings(self.serial)}
        """By those that are left out."""

    @staticmethod
    def _endings(runs: Sequence[ProcessRun]) -> set[ProcessesEnded]:
        return {run.ended for run in runs if run.ended is not None}

    def is_same(self, run: ProcessRun, other: ProcessRun) -> bool:
        """Whether two runs ended alike, as far as that is judged."""
        return run.choices == other.choices and (bool(self.programs.check) or run.ended == other.ended)

    def law_broken(self, run: ProcessRun) -> str:
        """The law that a run breaks, or nothing."""
        assert run.ended is not None
        if run.is_stuck:
            return "no-deadlock" if run.ended not in self._expected[()] else ""
        if self.programs.check:
            return "finally" if run.ended.check else ""
        return "" if self._is_expected(run, run.ended) else "serializable"

    def _is_expected(self, run: ProcessRun, ended: ProcessesEnded) -> bool:
        """Whether it ended as some order one after the other; of processes that were struck, each may be left out."""
        struck = sorted(run.struck)
        for count in range(len(struck) + 1):
            for left_out in itertools.combinations(struck, count):
                if any(_alike(ended, each, struck) for each in self._without(left_out)):
                    return True
        return False

    def _without(self, left_out: tuple[int, ...]) -> set[ProcessesEnded]:
        if left_out not in self._expected:
            runs = list(_serial_runs(self.programs, left_out))
            self.executions += len(runs)
            self._expected[left_out] = self._endings(runs)
        return self._expected[left_out]

    def violated(self, run: ProcessRun, how_far: str) -> ProcessVerdict:
        """The verdict that ``run`` is the witness of."""
        assert run.ended is not None
        law = self.law_broken(run)
        what = f"the check ended with {run.ended.check}" if law == "finally" else _difference(run.ended, self.first)
        schedule = ",".join(f"{number}" + (f"!{fault}" if fault else "") for number, fault in run.choices)
        return ProcessVerdict(
            Outcome.VIOLATED, law, what, how_far, tuple(run.steps), self.executions, schedule, tuple(run.keys)
        )

    def unknown(self, how_far: str) -> ProcessVerdict:
        """Nothing was decided."""
        return ProcessVerdict(Outcome.UNKNOWN, "", "", how_far, (), self.executions)


def _alike(ended: ProcessesEnded, expected: ProcessesEnded, struck: Sequence[int]) -> bool:
    """Whether keys, and what processes that were not struck said, are the same."""
    ends = zip(ended.ends, expected.ends, strict=True)
    return ended.keys == expected.keys and all(
        end == other or number in struck for number, (end, other) in enumerate(ends)
    )


def _serial_runs(programs: Programs, left_out: Sequence[int] = ()) -> Iterator[ProcessRun]:
    """One process after the other in every order, without those that are left out."""
    members = [number for number in range(len(programs.clients)) if number not in left_out]
    alone = replace(programs, clients=tuple(programs.clients[number] for number in members))
    for order in itertools.permutations(range(len(members))):
        run = carried_out(alone, _in_order(order), numbers=members)
        assert run.ended is not None
        ends = dict(zip(members, run.ended.ends, strict=True))
        all_ends = tuple(ends.get(number, ABSENT) for number in range(len(programs.clients)))
        run.ended = replace(run.ended, ends=all_ends)
        yield run


def _in_order(order: Sequence[int]) -> Choose:
    return lambda _, enabled: min(enabled, key=lambda step: order.index(step[0]))


@dataclass
class _ProcessPlace:
    enabled: tuple[Step, ...]
    asleep: dict[Step, StepFootprint]
    done: dict[Step, StepFootprint] = field(default_factory=dict)

    @property
    def left(self) -> list[Step]:
        """The steps that were not tried here and do not sleep."""
        return [each for each in self.enabled if each not in self.done and each not in self.asleep]


class _ProcessSearch:
    """Depth first from the beginning each time, with sleep sets (``orders`` says why that is enough)."""

    def __init__(self, programs: Programs, executions_max: int, faults: Sequence[str], budget: int) -> None:
        self.programs, self.executions_max, self.faults, self.budget = programs, executions_max, faults, budget
        self.executions = 0
        self.is_exhausted = self.is_astray = False
        self._path: list[_ProcessPlace] = []

    def runs(self) -> Iterator[ProcessRun]:
        """Executions, each of an order that differs from the others."""
        prefix: list[Step] = []
        while self.executions < self.executions_max:
            run = carried_out(self.programs, partial(self._next, tuple(prefix)), self.faults, self.budget)
            self.executions += 1
            if tuple(run.choices[: len(prefix)]) != tuple(prefix):
                self.is_astray = True
                return
            yield run
            self._note(run)
            while self._path and not self._path[-1].left:
                self._path.pop()
            if not self._path:
                self.is_exhausted = True
                return
            prefix = [*run.choices[: len(self._path) - 1]]

    def _next(self, prefix: Sequence[Step], at: int, enabled: Sequence[Step]) -> Step:
        if at < len(prefix):
            return prefix[at] if prefix[at] in enabled else enabled[0]
        left = self._path[at].left if at < len(self._path) else []
        return next((each for each in left if each in enabled), enabled[0])

    def _note(self, run: ProcessRun) -> None:
        """Add the places that a run came by, and what its steps touched there."""
        path = self._path
        for at, (chosen, footprint) in enumerate(zip(run.choices, run.footprints, strict=True)):
            if at >= len(path):
                before, asleep = path[at - 1] if at else None, dict[Step, StepFootprint]()
                if before is not None:
                    last = run.footprints[at - 1]
                    for other, touched in (*before.asleep.items(), *before.done.items()):
                        if other[0] != run.choices[at - 1][0] and touched.commutes_with(last):
                            asleep[other] = touched
                path.append(_ProcessPlace(run.enabled[at], asleep))
            path[at].done[chosen] = footprint


def _difference(ended: ProcessesEnded, serial: ProcessRun) -> str:
    text = [f"client {number}: {end}" for number, end in enumerate(ended.ends)]
    text += [f"key {key} is {value}" for key, value in ended.keys]
    also = "; ".join(f"{key} is {value}" for key, value in serial.ended.keys) if serial.ended is not None else ""
    return "; ".join(text[:8]) + f"; no order one after the other ends so (one of them: {also[:200]})"
