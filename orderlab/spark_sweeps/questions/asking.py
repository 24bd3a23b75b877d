"""How a question has runs done: rows of parameters in, the same rows with what they showed out, kept in a folder.

An adaptive question asks in rounds. Each round is a sweep of its own (a table of points, in a folder of its own below the
output), so that a question that was stopped goes on where it was, and a round that is there already is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.results.folder import ResultFolder
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

    @property
    def is_sound(self) -> bool:
        """Whether it came to its end, and no law broke or stayed unknown; where a run judges nothing, its end is enough."""
        return self.status == "ok" and self.outcome in (None, "holds")

    @property
    def tells_nothing(self) -> bool:
        """Whether it failed, or its laws stayed unknown or were not put to the test: nobody knows what it would have shown."""
        return self.status != "ok" or self.outcome not in ("holds", "violated")


class Ask(Protocol):
    """How a question has its runs done."""

    def __call__(
        self, name: str, points: Sequence[Mapping[str, Any]], replications: int, seeds: Sequence[int] | None = None
    ) -> list[AnsweredRun]:
        """The runs of the round ``name``, in the order of points and replications; ``seeds``: of each point."""


COMMANDS = ("first_event", "first_violation")
"""Columns that hold a command that replays a run."""


@dataclass(frozen=True)
class AnswerTable:
    """An answer. ``outcome`` is VIOLATED where the question has a target and it is missed, UNKNOWN where it stayed open.
    ``settings``: the columns that say which configuration a row is about.
    """

    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    outcome: Outcome = Outcome.HOLDS
    settings: tuple[str, ...] = ()
    replays: tuple[str, ...] = ()
    """Of each row the command that does one of the runs behind it again; none where a row has no runs of its own."""


def finite(value: float) -> float | None:
    """None for what no JSON or CSV holds."""
    return value if abs(value) != float("inf") else None


def metric_of(answered: AnsweredRun, metric: str) -> float:
    """The metric of a run that came to its end. Raises InputError for a name that the run does not have."""
    if metric not in answered.metrics:
        raise InputError(f'question.metric: no metric "{metric}"; {did_you_mean(metric, tuple(answered.metrics))}')
    return float(answered.metrics[metric])


def insist_on_an_end(found: Sequence[AnsweredRun]) -> None:
    """Raise InputError where every one of the first runs failed: that is no property of the system."""
    if found and all(run.status != "ok" for run in found):
        raise InputError(f"question: all of the first {len(found)} runs failed; see why: {found[0].replay}")


def insist_on_judgement(found: Sequence[AnsweredRun]) -> None:
    """Raise InputError where no run put a law to the test: how often one breaks cannot be learned there."""
    if found and not any(run.outcome in ("holds", "violated") for run in found if run.status == "ok"):
        raise InputError(
            f"question: none of the first {len(found)} runs put a law to the test; return verdicts, or see: {found[0].replay}"
        )


def asking(
    sweep: SweepFile,
    make_engine: Any,
    on_progress: Callable[[RunsProgress], None] | None,
    independent: bool = False,
) -> Ask:
    """An Ask that runs rounds of ``sweep``, each with its own points, on one kind of engine. ``independent``: no two runs
    of any rounds share their random numbers, as an estimate of a probability needs it.
    """

    earlier: str | None = None  # what runs cost is known from the round before

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
        summary: Summary = run_loaded(place, asked, plan, make_engine, SweepOptions(costs=earlier), on_progress)
        if summary.counts.rows < summary.runs:
            raise InputError(
                f"{output}: {summary.runs - summary.counts.rows} runs were not done ({summary.stopped}); go on"
            )
        earlier = output
        return answers(ResultFolder(output), plan)

    return ask


def answers(folder: ResultFolder, plan: Plan) -> list[AnsweredRun]:
    """The rows of a finished sweep, in the order of their runs."""
    found: dict[int, AnsweredRun] = {}
    for table in folder.tables(len(plan), ["seed", "status", "outcome", "metrics", "replay"]):
        for row in table.to_pylist():
            point, replication = divmod(row["run"], plan.sweep.replications.count)
            found[row["run"]] = AnsweredRun(
                point, replication, _parameters(plan, row["run"]), row["seed"], row["status"], row["outcome"],
                dict(row["metrics"] or ()), row["replay"],
            )  # fmt: skip
    return [found[number] for number in sorted(found)]


def _parameters(plan: Plan, number: int) -> Mapping[str, Any]:
    try:
        return plan.run(number).parameters
    except InputError:
        return plan.undecided(number).parameters
