"""The pipeline under faults in the simulator: an example is a schedule, run in virtual time at its end and judged as a history.

A failing schedule shrinks to the faults that matter and prints the command that simulates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from model.checkers.judge import Question, judge
from model.history import EventBatch, Names
from model.verdict import Outcome, Verdict
from properties.machines.tally import Tally, rule, tally_of
from properties.strategies.pipelines import ANYWHERE, SMALLEST, Strike, strikes, written
from sim.systems.catalogue import entry, settings_of

SYSTEM = "tbmq-p2p"


@dataclass(frozen=True)
class Recorded:
    """A history in memory, as the checkers read one."""

    names: Names
    batches: tuple[EventBatch, ...]
    place: str = "simulation"

    def __iter__(self) -> Iterator[EventBatch]:
        return iter(self.batches)


def simulate(settings: dict[str, Any], schedule: list[Strike], number: int = 0) -> list[Verdict]:
    """Run the system once and judge its history by every pipeline law. ``number`` is the seed."""
    batches: list[EventBatch] = []
    chosen = settings_of(SYSTEM, {**settings, "faults": written(schedule)})
    system = entry(SYSTEM).assemble(chosen, number, [batches.append])
    system.run()
    verdicts, _ = judge(Recorded(system.names(), tuple(batches)), Question())
    return verdicts


class PipelineUnderFaults(RuleBasedStateMachine):
    """Set ``settings`` and ``laws``; ``names`` are the faults that may strike."""

    settings_of_system: ClassVar[dict[str, Any]] = SMALLEST
    laws: ClassVar[frozenset[str] | None] = None
    names: ClassVar[tuple[str, ...]] = ANYWHERE

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)
        self.schedule: list[Strike] = []

    @rule(strike=st.deferred(lambda: strikes()))
    def strike(self, strike: Strike) -> None:
        """One more fault; a name that may not strike here is left out."""
        if strike.name in self.names:
            self.schedule.append(strike)

    def teardown(self) -> None:
        """Run and judge."""
        try:
            for strike in self.schedule:
                self.tally.steps[strike.name] += 1
            for verdict in simulate(self.settings_of_system, self.schedule):
                self.tally.met[verdict.law] += 1
                if verdict.outcome is Outcome.VIOLATED and (self.laws is None or verdict.law in self.laws):
                    given = [f"--set {key}={value}" for key, value in self.settings_of_system.items()]
                    command = f"orderlab simulate {SYSTEM} {' '.join(given)} --set 'faults={written(self.schedule)}'"
                    raise AssertionError(f"{verdict.law} is violated: {command}")
        finally:
            tally_of(type(self).__name__).add(self.tally)
