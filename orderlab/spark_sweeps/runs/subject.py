"""What a sweep runs: a simulated system from the catalogue, or a function of the user's own.

A function is named ``module:function`` and called with (parameters, seed). It returns numbers by name, or a dictionary
with ``metrics`` and, by law, ``verdicts`` ("holds", "violated", "unknown").
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.verdict import Outcome, overall, to_plain, worst
from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.sustainable import growth, trial_of


@dataclass(frozen=True)
class Observed:
    """What a run that came to its end shows."""

    metrics: Mapping[str, float]
    verdicts: Mapping[str, str] = field(default_factory=dict)
    witnesses: Mapping[str, Any] = field(default_factory=dict)
    history_digest: str | None = None
    history_rows: int | None = None
    history_file: str | None = None
    overall: str | None = None
    """The outcome of all laws together, from who knows which were tested."""

    vacuous: bool = False
    """Whether nothing but that no law was tested stands in the way of ``holds``."""

    settled: bool | None = None
    """Whether the warm-up had ended when measurement began; None where nobody knows."""

    @property
    def outcome(self) -> str:
        """The outcome of all laws together."""
        if self.overall is not None:
            return self.overall
        return str(worst(Outcome(verdict) for verdict in self.verdicts.values()))


class Subject(Protocol):
    """What can be run."""

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raise InputError for parameters that it cannot take."""

    def run(self, parameters: Mapping[str, Any], seed: int, history: Path | None, keep: str) -> Observed:
        """Run once; ``history`` is where the history goes if ``keep`` is "all", or "violations" and there is one."""

    def warm_up(self) -> None:
        """Load what every run needs, once for all children of a process."""

    def replay(self, parameters: Mapping[str, Any], seed: int) -> str | None:
        """The command that does the same run on its own; None if only a sweep can."""


def subject_of(name: str) -> Subject:
    """The subject of that name. Raises InputError."""
    if ":" in name:
        return _function_subject(name)
    return SimulatedSystem(name)


@dataclass(frozen=True)
class FunctionSubject:
    """A function of the user's own."""

    name: str
    function: Callable[[dict[str, Any], int], Any]

    def check(self, parameters: Mapping[str, Any]) -> None:
        """A function checks its parameters itself."""

    def run(self, parameters: Mapping[str, Any], seed: int, history: Path | None, keep: str) -> Observed:
        """Call it. Raises whatever it does, and TypeError for a result that is not numbers by name."""
        found = self.function(dict(parameters), seed)
        if not isinstance(found, Mapping):
            raise TypeError(f"{self.name} returned {type(found).__name__}; return numbers by name")
        extended = isinstance(found.get("metrics"), Mapping)
        metrics = found["metrics"] if extended else found
        verdicts = (
            {law: str(Outcome(verdict)) for law, verdict in found.get("verdicts", {}).items()} if extended else {}
        )
        return Observed(
            {str(name): float(value) for name, value in metrics.items()},
            verdicts,
            to_plain(found.get("witnesses", {})) if extended else {},
            vacuous=not verdicts,
        )

    def warm_up(self) -> None:
        """Imported already."""

    def replay(self, parameters: Mapping[str, Any], seed: int) -> str | None:
        """Only the sweep knows how to call it."""
        return None


def _function_subject(name: str) -> FunctionSubject:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise InputError(f"system {name}: cannot import {module} ({error}); put its folder on PYTHONPATH") from None
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"system {name}: cannot import {module} ({told}); correct it") from None
    if function is None:
        raise InputError(f"system {name}: {module} has no {attribute}; name a function of it")
    if not callable(function):
        raise InputError(f"system {name}: not a function; name one that takes (parameters, seed)")
    return FunctionSubject(name, function)


def simulate_command(system: str, parameters: Mapping[str, Any], seed: int) -> str:
    """The shell command that simulates one configuration."""
    words = ["orderlab", "simulate", system]
    for name, value in parameters.items():
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join([*words, "--seed", str(seed)])


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
        verdicts, rows = judge(in_memory(self.name, batches, names), Question(is_feed=self._entry.is_feed))
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
            report["warm_up"]["has_settled"],
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
