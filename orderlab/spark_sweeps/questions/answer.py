"""From a sweep file with a [question] to its answer: which kind it is, the runs that it needs, a table on disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from orderlab.model.errors import InputError, did_you_mean, shortened
from orderlab.model.files import write_whole
from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.questions.aims import Best, Short
from orderlab.spark_sweeps.questions.asking import COMMANDS, AnsweredRun, AnswerTable, Rounds, answers, asking, finite
from orderlab.spark_sweeps.questions.best import FINAL_ROUND, best, of_best
from orderlab.spark_sweeps.questions.capacity import Capacity, capacity, of_capacity
from orderlab.spark_sweeps.questions.cheapest import Cheapest, cheapest, of_cheapest, price_of
from orderlab.spark_sweeps.questions.comparison import Comparison, comparison, of_comparison
from orderlab.spark_sweeps.questions.dependence import Dependence
from orderlab.spark_sweeps.questions.rare_event import RareEvent, of_rare_event, rare_event
from orderlab.spark_sweeps.questions.risk import RandomFaults, Risk, of_risk, risk
from orderlab.spark_sweeps.questions.sensitivity import Sensitivity, of_sensitivity, sensitivity
from orderlab.spark_sweeps.results.folder import OwnedFolder, QuestionFolder, ResultFolder
from orderlab.spark_sweeps.results.rows import confidence_of
from orderlab.spark_sweeps.runs.job import RunsProgress, SweepOptions, folder_of, run_loaded
from orderlab.spark_sweeps.runs.subject import subject_of
from orderlab.spark_sweeps.runs.workers import Engine
from orderlab.spark_sweeps.sweep_file.expressions import Expression
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import SweepFile, complaint_of, digest_of

KINDS: dict[str, type[BaseModel]] = {
    "capacity": Capacity, "sensitivity": Sensitivity, "risk": Risk, "rare-event": RareEvent, "cheapest": Cheapest,
    "comparison": Comparison, "best": Best,
}  # fmt: skip
ENDS_MAX = 1000
"""Values of a searched list that are put to the system before any run."""
MakeEngine = Callable[[ResultFolder], Engine]
Show = Callable[[RunsProgress], None]


@dataclass(frozen=True)
class Answer:
    """A table of the answer: rows of plain values, what to know when reading it, and what it comes to as a whole.
    ``folder`` holds it as answer.json and answer.csv.
    """

    kind: str
    seed: int
    folder: Path
    rows: list[dict[str, Any]]
    notes: list[str]
    outcome: Outcome
    settings: tuple[str, ...] = ()
    """Columns that say which configuration a row is about. A parameter called as a column of the answer is
    ``parameter.NAME``."""
    replays: tuple[str, ...] = ()
    """Of each row the command that does one of the runs behind it again, where rows have runs of their own."""
    warnings: list[str] = field(default_factory=list)
    """What weakens the answer as a whole: it is said before the table."""
    unseen: str = ""
    """What may happen in runs and is in no mean, as so few were done; said in the answer's line."""
    dependence: Sequence[Dependence] = ()
    """What each parameter does to an aim, over what a search tried."""
    digest: str = ""
    """Equal wherever the same runs gave the same answer."""


def question_of(sweep: SweepFile, place: str) -> BaseModel:
    """The checked question of a sweep file. Raises InputError with the key."""
    asked = sweep.question or {}
    kind = asked.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{place}: question.kind: {shortened(kind)}; {did_you_mean(str(kind), tuple(KINDS))}")
    try:
        return KINDS[kind].model_validate(asked)
    except ValidationError as error:
        told = complaint_of(error, KINDS[kind], ("question",))
        raise InputError(f"{place}: {told}") from None


def usable_question(path: Path, sweep: SweepFile, plan: Plan) -> BaseModel:
    """The checked question of a sweep file that runs can answer. Raises InputError, before any run."""
    asked = question_of(sweep, str(path))
    if sweep.replications.until is not None and not isinstance(asked, (Cheapest, Comparison)):
        kind = (sweep.question or {})["kind"]
        raise InputError(
            f"{path}: replications.until: a {kind} question decides itself how many runs it needs; remove it"
        )
    _insist_on_sense(asked, path, sweep, plan)
    return asked


def folder_of_question(asked: BaseModel, sweep: SweepFile) -> tuple[OwnedFolder, dict[str, Any]]:
    """Where the rounds of a question go, or the one sweep that it is, and the manifest that the folder has to have."""
    if isinstance(asked, (Cheapest, Comparison)):
        return folder_of(sweep)
    owner = {"sweep": sweep.identity, "question": {"kind": (sweep.question or {})["kind"]}}
    return QuestionFolder(sweep.folder), owner


def answer(
    path: Path,
    sweep: SweepFile,
    plan: Plan,
    make_engine: MakeEngine,
    on_progress: Show | None,
    options: SweepOptions | None = None,
) -> Answer:
    """Do the runs that the question needs, or what is left of them, and write its table. Raises InputError."""
    asked = usable_question(path, sweep, plan)
    shared = _OneEngine(make_engine)
    asks_of_metrics = isinstance(asked, (Comparison, Sensitivity)) or (
        isinstance(asked, RareEvent) and asked.above is not None
    )
    is_search = isinstance(asked, Best)
    options = replace(options or SweepOptions(), needs=needs_of(asked))
    rounds = Rounds(options, asks_of_metrics, is_search, FINAL_ROUND if is_search else None)
    folder = Path(sweep.output)
    owned, manifest = folder_of_question(asked, sweep)
    with owned.held(manifest) if isinstance(owned, QuestionFolder) else nullcontext():
        try:
            told = _told(asked, path, sweep, plan, shared, on_progress, rounds)
        finally:
            shared.end()
    rows = [
        {name: finite(value) if isinstance(value, float) else value for name, value in row.items()} for row in told.rows
    ]
    warnings = [*rounds.warnings, *told.evidence.warnings]
    digest = _digest_of_answer(rows, str(told.outcome), rounds)
    content = {
        "question": sweep.question, "digest": digest, "rows": rows, "warnings": warnings,
        "unseen": told.evidence.unseen, "notes": told.notes, "outcome": str(told.outcome), "replays": told.replays,
        "dependence": [dependence.to_json() for dependence in told.dependence],
        "importance": {
            metric: {name: [share.estimate, share.low, share.high] for name, share in shares.items()}
            for metric, shares in told.importance.items()
        },
    }  # fmt: skip
    write_whole(folder / "answer.json", json.dumps(content, indent=1).encode())
    write_whole(folder / "answer.csv", _csv(rows).encode())
    return Answer(
        str(sweep.question and sweep.question["kind"]), sweep.seed, folder, rows, told.notes, told.outcome,
        told.settings, told.replays, warnings, told.evidence.unseen, told.dependence, digest,
    )  # fmt: skip


def _digest_of_answer(rows: Sequence[Mapping[str, Any]], outcome: str, rounds: Rounds) -> str:
    """Of its rows and of the runs behind it, commands left out, which may name a folder."""
    plain = [{name: value for name, value in row.items() if name not in COMMANDS} for row in rows]
    return digest_of(json.dumps([plain, outcome, rounds.digests], sort_keys=True).encode())


def _told(
    asked: BaseModel,
    path: Path,
    sweep: SweepFile,
    plan: Plan,
    make_engine: MakeEngine,
    on_progress: Show | None,
    rounds: Rounds,
) -> AnswerTable:
    ask = asking(sweep, make_engine, on_progress, rounds, independent=isinstance(asked, RandomFaults))
    points = [plan.design.point(number) for number in range(plan.points)]
    match asked:
        case Capacity():
            record = sweep.record.model_copy(update={"metrics": (*sweep.record.metrics, "steady.*")})
            ask = asking(
                sweep.model_copy(update={"record": record}), make_engine, on_progress, rounds, independent=True
            )
            return of_capacity(asked, capacity(asked, points, ask))
        case Sensitivity():
            # points of Morris's paths are compared with their neighbours, on the same seeds
            ask = asking(sweep, make_engine, on_progress, rounds, independent=asked.method == "sobol")
            found = sensitivity(asked, sweep.axes, ask, sweep.replications.count, sweep.seed)
            return of_sensitivity(asked, found)
        case RareEvent():
            return of_rare_event(asked, rare_event(asked, _only(points, path, asked.kind), ask, sweep.seed))
        case Risk():
            return of_risk(asked, risk(asked, _only(points, path, asked.kind), ask, sweep.seed))
        case Best():
            length = _length(asked.short, path, sweep) if asked.short else 0.0
            return of_best(asked, best(asked, ask, sweep.replications.count, sweep.seed, length))
        case Cheapest():
            runs = _all_runs(path, sweep, plan, make_engine, on_progress, rounds)
            surer = asked.model_copy(update={"confidence": confidence_of(sweep, asked.confidence)})
            return of_cheapest(asked, cheapest(surer, runs), plan.parameter_names)
        case Comparison():
            runs = _all_runs(path, sweep, plan, make_engine, on_progress, rounds)
            sure_of_pairs = asked.model_copy(update={"confidence": confidence_of(sweep, asked.confidence)})
            return of_comparison(asked, comparison(sure_of_pairs, runs, sweep.derived), plan.parameter_names)
    raise AssertionError(f"no answer to {asked}")


def _only(points: list[dict[str, Any]], path: Path, kind: str) -> dict[str, Any]:
    if len(points) != 1:
        raise InputError(f"{path}: question: {kind} is asked of one configuration; put its parameters into [base]")
    return points[0]


def _all_runs(
    path: Path, sweep: SweepFile, plan: Plan, make_engine: MakeEngine, on_progress: Show | None, rounds: Rounds
) -> list[AnsweredRun]:
    summary = run_loaded(path, sweep, plan, make_engine, rounds.options, on_progress)
    if summary.counts.rows < summary.runs:
        raise InputError(
            f"{summary.folder}: {summary.runs - summary.counts.rows} runs were not done ({summary.stopped})"
        )
    found = answers(ResultFolder(sweep.output), plan)
    rounds.digests[""] = summary.digest
    rounds.take(found)
    return found


def _insist_on_sense(asked: BaseModel, path: Path, sweep: SweepFile, plan: Plan) -> None:
    """Raise InputError, before any run, for a question that no run can answer."""
    subject, first = subject_of(sweep.system), plan.undecided(0).parameters
    probes: list[tuple[str, dict[str, Any]]] = []
    match asked:
        case Capacity():
            probes = [
                ("parameter", {asked.parameter: round(rate) if asked.integer else rate})
                for rate in (asked.low, asked.high)
            ]
        case RareEvent() | Risk():
            probes = [("faults", {"faults": ""})]
        case Best():
            if sweep.axes or sweep.design.kind == "table":
                raise InputError(f"{path}: axes: a best question searches [question.parameters]; move them there")
            for name, axis in asked.parameters.items():
                if name in sweep.derived:
                    raise InputError(f"{path}: question.parameters.{name}: {name} is derived already; keep one")
                ends = axis.listed()[:ENDS_MAX] if axis.has_list else (axis.at(0.0), axis.at(1.0))
                probes += [(f"parameters.{name}", {name: value}) for value in ends]
            if asked.short is not None:
                probes.append(("short", {asked.short.parameter: asked.short.length(_length(asked.short, path, sweep))}))
        case Cheapest():
            if asked.of_runs is not None and sweep.replications.until is not None:
                raise InputError(f"{path}: replications.until: it looks at means, and of_runs asks for runs; remove it")
            asked.insist_on_runs(plan.points, sweep.replications.count, str(path))
            price_of(Expression(asked.price, f"{path}: question.price"), plan.run(0).parameters)
        case Comparison():
            if asked.a == asked.b:
                raise InputError(
                    f"{path}: question: a and b are both {asked.a!r}; compare two values of {asked.parameter}"
                )
            if asked.parameter not in plan.parameter_names:
                told = did_you_mean(asked.parameter, plan.parameter_names)
                raise InputError(f"{path}: question.parameter: {asked.parameter} does not vary; {told}")
    for key, changed in probes:
        try:
            subject.check({**first, **changed})
        except InputError as error:
            raise InputError(f"{path}: question.{key}: {error}") from None
    for key, metrics in _metrics_of(asked).items():
        for metric in metrics:
            if not any(fnmatchcase(metric, pattern) for pattern in sweep.record.metrics):
                raise InputError(f"{path}: question.{key}: {metric} is not recorded; add it to record.metrics")


def needs_of(asked: BaseModel) -> tuple[str, ...]:
    """The metrics that each run has to show."""
    return tuple(metric for metrics in _metrics_of(asked).values() for metric in metrics)


def _metrics_of(asked: BaseModel) -> dict[str, list[str]]:
    """They by the key of the question."""
    match asked:
        case Capacity() | Sensitivity():
            return {"metric": [asked.metric]}
        case RareEvent():
            return {"score": [asked.score]}
        case Best():
            return {"aims": [aim.metric for aim in asked.aims], "subject_to": asked.measured}
        case Cheapest():
            return {"targets": list(asked.targets)}
        case Comparison():
            return {"metrics": list(asked.metrics)}
    return {}


def _length(short: Short, path: Path, sweep: SweepFile) -> float:
    """The length of whole runs. Raises InputError where [base] does not say it."""
    length = sweep.base.get(short.parameter)
    if isinstance(length, bool) or not isinstance(length, (int, float)) or length <= 0:
        what = "is not there" if length is None else f"is {shortened(length)}"
        raise InputError(
            f"{path}: question.short.parameter: base.{short.parameter} {what}; give [base] the length of a whole run"
        )
    return length


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    out = csv.DictWriter(text, list(names), lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    return text.getvalue()


class _OneEngine:
    """One engine for all rounds: they would spend their time starting it."""

    def __init__(self, make: MakeEngine) -> None:
        self._make = make
        self._engine: Engine | None = None

    def __call__(self, folder: ResultFolder) -> Any:
        if self._engine is None:
            self._engine = self._make(folder)
        return _Lent(self._engine)

    def end(self) -> None:
        if self._engine is not None:
            self._engine.close()


class _Lent:
    """An engine that a round cannot close."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.cores = engine.cores
        self.run = engine.run

    def close(self) -> None:
        """Leave it open: its owner closes it."""
