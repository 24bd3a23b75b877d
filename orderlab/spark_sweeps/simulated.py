"""A system of the catalogue as the subject of a sweep: simulate, judge the history by every law, flatten the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.history_io import HistoryWriter
from orderlab.model.verdict import Outcome, overall, to_plain
from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.sustainable import growth, trial_of
from orderlab.spark_sweeps.subject import Observed, simulate_command

GROWTH, COMPLETE = "steady.growth_ms_per_s", "steady.is_complete"
"""Metrics of a run: the slope of its latency, and whether all that was published in the measured interval arrived."""


class SimulatedSystem:
    """Runs a system of `orderlab simulate`. Raises InputError for a name that the catalogue lacks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._entry = entry(name)

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for settings that the system refuses."""
        settings_of(self.name, parameters)

    def run(self, parameters: Mapping[str, Any], seed: int, history: Path | None, keep: str) -> Observed:
        """Simulate once. The history is judged in memory, and written if it is to be kept."""
        batches: list[EventBatch] = []
        system = self._entry.assemble(settings_of(self.name, parameters), seed, [batches.append])
        report = system.run()
        names = system.names()
        verdicts, rows = judge(in_memory(self.name, batches, names), Question())
        violated = any(verdict.outcome is Outcome.VIOLATED for verdict in verdicts)
        kept = history is not None and (keep == "all" or (keep == "violations" and violated))
        if kept:
            assert history is not None
            with HistoryWriter(history, names) as writer:
                for batch in batches:
                    writer.write(batch)
        trial = trial_of(system, report)
        steady = {COMPLETE: float(trial.is_complete)}
        if len(trial.means_ms) >= 3:
            steady[GROWTH] = growth(trial)[0]
        return Observed(
            {**dict(flattened(report)), **steady},
            {verdict.law: str(verdict.outcome) for verdict in verdicts},
            {verdict.law: to_plain(verdict.witness) for verdict in verdicts if verdict.witness is not None},
            system.digest,
            rows,
            history.name if kept and history is not None else None,
            str(overall(verdicts)),
            overall(verdicts) is Outcome.UNKNOWN and overall(verdicts, allow_vacuous=True) is Outcome.HOLDS,
        )

    def warm_up(self) -> None:
        """Load the compiled checkers."""
        row = EventBatch.of(event_id=[0], time_us=[0], kind=[EventKind.CUT])
        judge(in_memory("warm-up", [row], Names()), Question())

    def replay(self, parameters: Mapping[str, Any], seed: int) -> str | None:
        """The command that simulates this configuration."""
        return simulate_command(self.name, parameters, seed)


def flattened(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a nested report under dotted names; a list gives its mean and its maximum."""
    for name, value in report.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{path}.")
        elif isinstance(value, (bool, int, float)):
            yield path, float(value)
        elif isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, float)) for item in value):
            yield f"{path}.mean", sum(value) / len(value)
            yield f"{path}.max", float(max(value))
