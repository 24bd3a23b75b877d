"""How a question has runs done: rows of parameters in, the same rows with what they showed out, kept in a folder.

An adaptive question asks in rounds. Each round is a sweep of its own (a table of points, in a folder of its own below
the output), so that a question that was stopped goes on where it was, and a round that is there already is only read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import Evidence
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.questions.dependence import Dependence
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import counted_kinds, kind_of_failure
from orderlab.spark_sweeps.runs.job import RunsProgress, Summary, SweepOptions, run_loaded
from orderlab.spark_sweeps.sweep_file.plan import Plan, seed_of
from orderlab.spark_sweeps.sweep_file.specification import MANIFEST, DesignChoice, SweepFile


@dataclass(frozen=True)
class AnsweredRun:
    """One run: what it was asked and what it showed. ``metrics`` is empty if it failed."""

    point: int
    replication: int
    parameters: Mapping[str, Any]
    seed: int
    status: str
    outcome: str | None
    metrics: Mapping[str, float]
    replay: str
    error: str | None = None
    settled: bool | None = None
    """Whether its warm-up had ended when measurement began; None where nobody knows."""

    @property
    def is_sound(self) -> bool:
        """Whether it came to its end, and no law broke or stayed unknown; where a run judges nothing, its end is
        enough."""
        return self.status == "ok" and self.outcome in (None, "holds")

    @property
    def tells_nothing(self) -> bool:
        """Whether it failed, or its laws stayed unknown or were not tested: nobody knows what it would have
        shown."""
        return self.status != "ok" or self.outcome not in ("holds", "violated")


class Ask(Protocol):
    """How a question has its runs done."""

    def __call__(
        self, name: str, points: Sequence[Mapping[str, Any]], replications: int, seeds: Sequence[int] | None = None
    ) -> list[AnsweredRun]:
        """The runs of the round ``name``, in the order of points and replications; ``seeds``: of each point."""


SAID_MAX = 300

COMMANDS = ("first_event", "first_violation")
"""Columns that hold a command that replays a run."""


@dataclass(frozen=True)
class AnswerTable:
    """An answer. ``outcome`` is VIOLATED where the question has a target and it is missed, UNKNOWN where it stayed
    open. ``settings``: the columns that say which configuration a row is about.
    """

    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    outcome: Outcome = Outcome.HOLDS
    settings: tuple[str, ...] = ()
    replays: tuple[str, ...] = ()
    """Of each row the command that does one of the runs behind it again; none where a row has no runs of its own."""
    evidence: Evidence = field(default_factory=Evidence)
    """What is known of the runs behind its means."""
    dependence: Sequence[Dependence] = ()
    """What each parameter does to an aim."""
    importance: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    """By aim, the share of each parameter in it."""


def finite(value: float) -> float | None:
    """None for what no JSON or CSV holds."""
    return value if math.isfinite(value) else None


def metric_of(answered: AnsweredRun, metric: str) -> float:
    """The metric of a run that came to its end. Raises InputError for a name that the run does not have."""
    if metric not in answered.metrics:
        raise InputError(f'question.metric: no metric "{metric}"; {did_you_mean(metric, tuple(answered.metrics))}')
    return float(answered.metrics[metric])


def insist_on_an_end(found: Sequence[AnsweredRun]) -> None:
    """Raise InputError where a run failed: it measured nothing, and what the others show without it is another
    question's answer, for runs seldom fail by chance alone.
    """
    failed = [run for run in found if run.status != "ok"]
    if failed:
        many = "all" if len(failed) == len(found) else f"{len(failed)} of"
        kinds = counted_kinds(Counter(kind_of_failure(run.status, run.error) for run in failed))
        told = (
            f"question: {many} {len(found)} runs failed ({kinds}), which is no measurement; the first: "
            f"{on_one_line(failed[0].error or '')}"
        )
        raise InputError(f"{told}; see {failed[0].replay}; correct it, or raise [limits] and add --retry-failed")


def on_one_line(error: str) -> str:
    """What a run said, short enough for a complaint."""
    told = " ".join(error.split())
    return told if len(told) <= SAID_MAX else told[:SAID_MAX] + "..."


def insist_on_judgement(found: Sequence[AnsweredRun]) -> None:
    """Raise InputError where no run tested a law: how often one breaks cannot be learned there."""
    if found and not any(run.outcome in ("holds", "violated") for run in found if run.status == "ok"):
        raise InputError(
            f"question: none of the first {len(found)} runs tested a law; return verdicts, or see: {found[0].replay}"
        )


@dataclass
class Rounds:
    """What all rounds of a question have in common: how they are run, and what weakens the answer.
    ``tells_violations``: the answer itself does not, so that they have to be told beside it.
    """

    options: SweepOptions = field(default_factory=SweepOptions)
    tells_violations: bool = False
    bears_failures: bool = False
    """Whether the question itself leaves out what a failed run is about."""
    figures_of: str | None = None
    """The only round whose figures are in the answer, if not all are."""
    runs: int = 0
    violations: int = 0
    first_violation: str = ""
    told: int = 0
    unsettled: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    """Of the rows of each round, whatever engine, order, folder or interruption they come from."""

    def take(self, found: Sequence[AnsweredRun], name: str = "") -> None:
        """Count the round ``name``. Raises InputError where a run failed, unless that is borne."""
        if not self.bears_failures:
            insist_on_an_end(found)
        violating = [run for run in found if run.outcome == "violated"]
        if violating and not self.violations:
            self.first_violation = violating[0].replay
        self.runs += len(found)
        self.violations += len(violating)
        if self.figures_of not in (None, name):
            return
        self.told += sum(run.settled is not None for run in found)
        self.unsettled += sum(run.settled is False for run in found)

    @property
    def warnings(self) -> list[str]:
        """In words, for the first lines of an answer."""
        told = [unsettled_line(self.unsettled, self.told)] if self.unsettled else []
        if self.tells_violations and self.violations:
            told.append(
                f"{self.violations:,} of {self.runs:,} runs violated a law, and the figures hold theirs; the first: "
                f"{self.first_violation}"
            )
        return told


def unsettled_line(unsettled: int, runs: int) -> str:
    """What to know of runs whose warm-up had not ended."""
    return (
        f"{unsettled:,} of {runs:,} runs had not settled when measurement began (MSER-5), or were too short to "
        "tell: their "
        "figures hold the warm-up; raise warm_up_s, or duration_s (where more comes than goes, no run ever settles)"
    )


def asking(
    sweep: SweepFile,
    make_engine: Any,
    on_progress: Callable[[RunsProgress], None] | None,
    rounds: Rounds,
    independent: bool = False,
) -> Ask:
    """An Ask that runs rounds of ``sweep``, each with its own points, on one kind of engine. ``independent``: no two
    runs of any rounds share their random numbers, as an estimate of a probability needs it.
    """

    earlier = rounds.options.costs  # then what runs cost is known from the round before

    def ask(
        name: str, points: Sequence[Mapping[str, Any]], replications: int, seeds: Sequence[int] | None = None
    ) -> list[AnsweredRun]:
        nonlocal earlier
        rows = tuple(dict(point) for point in points)
        design = DesignChoice(kind="table", rows=rows, seeds=None if seeds is None else tuple(seeds))
        again = sweep.replications.model_copy(update={"count": replications, "until": None})
        output = str(Path(sweep.output) / name)
        place = Path(output) / MANIFEST  # a round has no file of its own; what replays its runs names this
        changes: dict[str, Any] = {"axes": {}, "design": design, "replications": again, "output": output}
        if independent:
            changes["seed"] = seed_of(sweep.seed, name)
            changes["replications"] = again.model_copy(update={"common_random_numbers": False})
        asked = sweep.model_copy(update=changes)
        plan = Plan(asked, str(place))
        summary: Summary = run_loaded(
            place, asked, plan, make_engine, replace(rounds.options, costs=earlier), on_progress
        )
        if summary.counts.rows < summary.runs:
            raise InputError(
                f"{output}: {summary.runs - summary.counts.rows} runs were not done ({summary.stopped}); go on"
            )
        earlier = output
        found = answers(ResultFolder(output), plan)
        rounds.digests[name] = summary.digest
        rounds.take(found, name)
        return found

    return ask


def answers(folder: ResultFolder, plan: Plan) -> list[AnsweredRun]:
    """The rows of a finished sweep, in the order of their runs."""
    found: dict[int, AnsweredRun] = {}
    for table in folder.tables(len(plan), ["seed", "status", "outcome", "metrics", "replay", "error", "settled"]):
        for row in table.to_pylist():
            point, replication = divmod(row["run"], plan.sweep.replications.count)
            found[row["run"]] = AnsweredRun(
                point, replication, _parameters(plan, row["run"]), row["seed"], row["status"], row["outcome"],
                dict(row["metrics"] or ()), row["replay"], row["error"], row["settled"],
            )  # fmt: skip
    return [found[number] for number in sorted(found)]


def _parameters(plan: Plan, number: int) -> Mapping[str, Any]:
    try:
        return plan.run(number).parameters
    except InputError:
        return plan.undecided(number).parameters
