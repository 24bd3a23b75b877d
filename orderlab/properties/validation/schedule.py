"""The analyses of one store, round by round, in this process or in several: what is found does not depend on that.

Each analysis writes down what it finds by itself. What it found in a round is added to what all have found, in the
order of the analyses, wherever it ran.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from orderlab.properties.validation.effort import INSTRUCTIONS, INSTRUCTIONS_MORE, name_of_effort
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.isolated import SCRIPT_SECONDS_MAX, RunawayScript
from orderlab.properties.validation.work_order import Progress, in_silence
from orderlab.sim.redis.lua.watchdog import CANCELLED, Finished, watch
from orderlab.sim.stores.bound import BudgetExceeded, CpuBudget

NUMBER_BYTES = 2
"""Of the number of a chain of analyses, as processes take it."""


def _nothing(value: Any) -> None:
    pass


@dataclass(frozen=True)
class Analysis:
    """One way to look for trouble."""

    name: str
    run: Callable[[Findings, float, float], Any]
    """Does what is due at an effort beyond that of the rounds before (0: there were none), and writes down what it
    finds. Raises BudgetExceeded."""
    once_from: float | None = None
    """Runs once only: in the first round of at least so much effort."""
    note: Callable[[Any], None] = _nothing
    """Takes, where verdicts are made, what ``run`` returned; from another process, so that it can be pickled."""
    follows: bool = False
    """Goes on from what the analysis before it left behind, in the same process."""

    def is_due(self, effort: float, done: float) -> bool:
        """Whether there is something for it in the round."""
        if self.once_from is None:
            return True
        return done < self.once_from <= effort if self.once_from else not done


@dataclass(frozen=True)
class Part:
    """What one analysis came to in one round."""

    found: Findings
    value: Any = None
    is_cut: bool = False
    """The time ran out in it."""


class Schedule:
    """All analyses of one store, round by round: each goes on where it ended in the round before."""

    def __init__(
        self,
        analyses: Sequence[Analysis],
        findings: Findings,
        budget: CpuBudget,
        progress: Progress = in_silence,
        processes: int = 1,
    ) -> None:
        self.analyses, self.findings, self.budget, self.progress, self.processes = (
            analyses, findings, budget, progress, processes,
        )  # fmt: skip
        self._own = [Findings(findings.wanted) for _ in analyses]
        self.done = 0.0
        """The effort of the rounds so far."""

    def round(self, effort: float, is_enough: Callable[[float], bool] = lambda effort: False) -> str:
        """Everything up to ``effort``, unless it ``is_enough`` before. Where the time ran out, if it did: the name of
        that analysis. Raises RunawayScript."""
        due = [at for at, analysis in enumerate(self.analyses) if analysis.is_due(effort, self.done)]
        cut_in = ""
        for at, part in self._in_processes(due, effort) if self.processes > 1 else self._here(due, effort):
            analysis = self.analyses[at]
            self.findings.merge(part.found)
            analysis.note(part.value)
            if part.is_cut:
                cut_in = analysis.name
                break
            if is_enough(effort):
                break
        if not cut_in:
            self.done = effort
        return cut_in

    def _here(self, due: Sequence[int], effort: float) -> Iterator[tuple[int, Part]]:
        for at in due:
            self.progress(f"{self.analyses[at].name}, {name_of_effort(effort)}")
            yield at, self._carried_out(at, effort)

    def _carried_out(self, at: int, effort: float) -> Part:
        analysis, own = self.analyses[at], self._own[at]
        before = own.mark()
        self.budget.allow(INSTRUCTIONS + INSTRUCTIONS_MORE * effort)
        value, is_cut = None, False
        try:
            value = analysis.run(own, effort, self.done)
        except BudgetExceeded:
            is_cut = self.budget.is_past
            if not is_cut:
                own.gaps.append(f"{analysis.name}: not finished, the scripts are too slow")
        return Part(own.since(before), value, is_cut)

    def _in_processes(self, due: Sequence[int], effort: float) -> Iterator[tuple[int, Part]]:
        """As ``_here``. Each process takes what comes next when it has done what it took before."""
        chains: list[list[int]] = []
        for at in due:
            if self.analyses[at].follows and chains and chains[-1][-1] == at - 1:
                chains[-1].append(at)
            else:
                chains.append([at])
        self.progress(f"{len(due)} analyses, {name_of_effort(effort)}")
        reading, writing = os.pipe()
        for number in range(len(chains)):
            os.write(writing, number.to_bytes(NUMBER_BYTES, "big"))  # who reads it from the pipe has it for himself
        os.close(writing)

        def work() -> list[tuple[int, Part]]:
            parts = []
            while taken := os.read(reading, NUMBER_BYTES):
                for at in chains[int.from_bytes(taken, "big")]:
                    parts.append((at, self._carried_out(at, effort)))
                    if parts[-1][1].is_cut:
                        return parts
            return parts

        has_failed = threading.Event()
        try:
            with ThreadPoolExecutor(self.processes) as pool:  # which wait for the processes
                watched = [pool.submit(_watched, work, has_failed) for _ in range(min(self.processes, len(chains)))]
            parts = dict(part for each in watched for part in each.result())
        finally:
            os.close(reading)
        for at in due:
            if at not in parts:  # the time ran out before
                yield at, Part(Findings(self.findings.wanted), is_cut=True)
            else:
                self._own[at].merge(parts[at].found)
                yield at, parts[at]


def _watched(work: Callable[[], list[tuple[int, Part]]], has_failed: threading.Event) -> list[tuple[int, Part]]:
    """What a process comes to; nothing once another has failed."""
    try:
        answer = watch(work, script_seconds_max=SCRIPT_SECONDS_MAX, is_cancelled=has_failed.is_set, in_order=True)
    except BaseException:
        has_failed.set()
        raise
    if isinstance(answer, Finished):
        return answer.value
    if answer.reason == CANCELLED:
        return []
    has_failed.set()
    raise RunawayScript(answer)
