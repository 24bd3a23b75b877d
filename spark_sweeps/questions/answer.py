"""From a sweep file with a [question] to its answer: which kind it is, the runs that it needs, a table on disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from model.errors import InputError
from model.explorer.whole_file import write_whole
from sim.binding.fields import did_you_mean
from spark_sweeps.engines.engine import Engine
from spark_sweeps.job import Options, Progress, run_loaded
from spark_sweeps.plan import Plan
from spark_sweeps.questions.asking import Answered, answers, asking
from spark_sweeps.questions.capacity import Capacity, capacity
from spark_sweeps.questions.cheapest import Cheapest, cheapest
from spark_sweeps.questions.comparison import Comparison, comparison
from spark_sweeps.questions.risk import Risk, risk
from spark_sweeps.questions.sensitivity import Sensitivity, sensitivity
from spark_sweeps.result_folder import ResultFolder
from spark_sweeps.specification import SweepFile

KINDS: dict[str, type[BaseModel]] = {
    "capacity": Capacity, "sensitivity": Sensitivity, "risk": Risk, "cheapest": Cheapest, "comparison": Comparison,
}  # fmt: skip
MakeEngine = Callable[[ResultFolder], Engine]
Show = Callable[[Progress], None]


@dataclass(frozen=True)
class Answer:
    """A table of the answer: rows of plain values. ``folder`` holds it as answer.json and answer.csv."""

    kind: str
    seed: int
    folder: Path
    rows: list[dict[str, Any]]


def question_of(sweep: SweepFile, place: str) -> BaseModel:
    """The checked question of a sweep file. Raises InputError with the key."""
    asked = sweep.question or {}
    kind = asked.get("kind")
    if kind not in KINDS:
        raise InputError(f"{place}: question.kind: {kind!r}; {did_you_mean(str(kind), tuple(KINDS))}")
    try:
        return KINDS[kind].model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["question", *(str(part) for part in first["loc"])])
        fields = [field.alias or name for name, field in KINDS[kind].model_fields.items()]
        told = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            told = f"unknown key; {did_you_mean(str(first['loc'][-1]), fields)}"
        raise InputError(f"{place}: {key}: {told}") from None


def answer(path: Path, sweep: SweepFile, plan: Plan, make_engine: MakeEngine, on_progress: Show | None) -> Answer:
    """Do the runs that the question needs, or what is left of them, and write its table. Raises InputError."""
    asked = question_of(sweep, str(path))
    shared = _OneEngine(make_engine)
    try:
        rows = _rows(asked, path, sweep, plan, shared, on_progress)
    finally:
        shared.end()
    folder = Path(sweep.output)
    write_whole(folder / "answer.json", json.dumps({"question": sweep.question, "rows": rows}, indent=1).encode())
    write_whole(folder / "answer.csv", _csv(rows).encode())
    return Answer(str(sweep.question and sweep.question["kind"]), sweep.seed, folder, rows)


def _rows(
    asked: BaseModel, path: Path, sweep: SweepFile, plan: Plan, make_engine: MakeEngine, on_progress: Show | None
) -> list[dict[str, Any]]:
    ask = asking(sweep, path, make_engine, on_progress, independent=isinstance(asked, Risk))
    points = [plan.design.point(number) for number in range(plan.points)]
    match asked:
        case Capacity():
            found = capacity(asked, points, ask)
            return [
                {
                    **bracket.configuration, f"{asked.parameter}_kept": bracket.kept,
                    f"{asked.parameter}_broken": bracket.to_json()["broken"], f"{asked.metric}_at_kept": bracket.at_kept,
                    "runs": bracket.runs, "sure": bracket.is_sure,
                }
                for bracket in found
            ]  # fmt: skip
        case Sensitivity():
            return [asdict(one) for one in sensitivity(asked, sweep.axes, ask, sweep.replications.count, sweep.seed)]
        case Risk():
            if plan.points != 1:
                raise InputError(
                    f"{path}: question: risk is asked of one configuration; put its parameters into [base]"
                )
            told = asdict(risk(asked, points[0], ask, sweep.seed))
            interval = told.pop("interval")
            return [{**told, "probability": interval["estimate"], "low": interval["low"], "high": interval["high"],
                     "runs": interval["count"]}]  # fmt: skip
        case Cheapest():
            return [
                _offer(one, plan) for one in cheapest(asked, _all_runs(path, sweep, plan, make_engine, on_progress))
            ]
        case Comparison():
            return [
                {
                    "metric": one.metric, **{name: one.others[name] for name in plan.parameter_names() if name in one.others},
                    "a": one.a, "b": one.b, "difference": one.difference.estimate, "low": _finite(one.difference.low),
                    "high": _finite(one.difference.high), "pairs": one.difference.count, "ratio": one.ratio,
                    "differs": one.differs, "unpaired": one.unpaired,
                }
                for one in comparison(asked, _all_runs(path, sweep, plan, make_engine, on_progress))
            ]  # fmt: skip
    raise AssertionError(f"no answer to {asked}")


def _all_runs(
    path: Path, sweep: SweepFile, plan: Plan, make_engine: MakeEngine, on_progress: Show | None
) -> list[Answered]:
    summary = run_loaded(path, sweep, plan, make_engine, Options(), on_progress)
    if summary.counts.rows < summary.runs:
        raise InputError(
            f"{summary.folder}: {summary.runs - summary.counts.rows} runs were not done ({summary.stopped})"
        )
    return answers(ResultFolder(sweep.output), plan)


def _offer(offer: Any, plan: Plan) -> dict[str, Any]:
    row = {name: offer.parameters.get(name) for name in plan.parameter_names()}
    for metric, interval in offer.metrics.items():
        row |= {metric: interval.estimate, f"{metric}.high": _finite(interval.high)}
    return {**row, "price": offer.price, "sound": offer.is_sound, "meets": offer.meets, "on_front": offer.on_front}


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


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
        """Its owner does."""


def shown(rows: list[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Values as a table prints them."""
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
