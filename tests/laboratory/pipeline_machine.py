"""The pipeline under faults in the simulator: each step is a schedule, run in virtual time and judged as a history.

A failing schedule shrinks to the faults that matter and prints the command that simulates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from orderlab.model.checkers.judge import Question, judge
from orderlab.model.history.events import EventBatch, Names
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.machines.tally import Tally, rule, tally_of
from orderlab.sim.systems.catalogue import entry, settings_of
from tests.laboratory.schedules import (
    ANYWHERE,
    SMALLEST,
    Strike,
    publishing_ms,
    schedules,
    ticks_ms,
    written,
)

SYSTEM = "tbmq-p2p"


@dataclass(frozen=True)
class Recorded:
    """A history in memory, as the checkers read one."""

    names: Names
    batches: tuple[EventBatch, ...]
    place: str = "simulation"
    parts: None = None

    def __iter__(self) -> Iterator[EventBatch]:
        return iter(self.batches)


def simulate(settings: dict[str, Any], schedule: Sequence[Strike], number: int = 0) -> list[Verdict]:
    """Run the system once and judge its history by every pipeline law. ``number`` is the seed."""
    batches: list[EventBatch] = []
    chosen = settings_of(SYSTEM, {**settings, "faults": written(schedule)})
    system = entry(SYSTEM).assemble(chosen, number, [batches.append])
    system.run()
    verdicts, _ = judge(Recorded(system.names(), tuple(batches)), Question())
    return verdicts


class PipelineUnderFaults(RuleBasedStateMachine):
    """Set ``settings`` and ``laws``; ``names`` are the faults that may strike. A step is a whole run from the start:
    what is found in a rule shrinks to one run with the faults that matter, which nothing does that a teardown finds."""

    settings_of_system: ClassVar[dict[str, Any]] = SMALLEST
    laws: ClassVar[frozenset[str] | None] = None
    names: ClassVar[tuple[str, ...]] = ANYWHERE
    most: ClassVar[int] = 3
    """Faults in one schedule."""

    judged: ClassVar[dict[tuple[Strike, ...], list[Verdict]]]
    """Of each schedule that has run: shrinking comes by the same ones again and again."""

    def __init_subclass__(cls) -> None:
        cls.judged = {}

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)

    @rule(schedule=st.runner().flatmap(lambda machine: machine.schedules()))
    def run_under(self, schedule: tuple[Strike, ...]) -> None:
        """Simulate and judge."""
        for strike in schedule:
            self.tally.steps[strike.name] += 1
        if schedule not in self.judged:
            self.judged[schedule] = simulate(self.settings_of_system, schedule)
        for verdict in self.judged[schedule]:
            self.tally.coverage[verdict.law] += 1
            if verdict.outcome is Outcome.VIOLATED and (self.laws is None or verdict.law in self.laws):
                given = [f"--set {key}={value}" for key, value in self.settings_of_system.items()]
                command = f"orderlab simulate {SYSTEM} {' '.join(given)} --set 'faults={written(schedule)}'"
                raise AssertionError(f"{verdict.law} is violated: {command}")

    def schedules(self) -> st.SearchStrategy[tuple[Strike, ...]]:
        """Of the faults that may strike, while messages are published."""
        return schedules(
            self.names, self.most, publishing_ms(self.settings_of_system), ticks_ms(self.settings_of_system)
        )

    def teardown(self) -> None:
        """Keep the counts."""
        tally_of(type(self).__name__).add(self.tally)
