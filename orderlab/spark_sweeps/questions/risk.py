"""How likely a violation is under random faults: batches of runs with drawn faults, an exact interval, an early end.

Faults are drawn for each run from a stream of their own: how many (Poisson), which, when (uniform) and where. Wald's
sequential test stops as soon as the probability is known to be acceptable or not, with the error that is asked for. The
Clopper-Pearson interval that is reported beside it counts all runs. An early end chooses among as many intervals as
there were looks, so the error is divided among them (the k-th has a share of 1/k - 1/(k + 1)): together they keep their
promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.statistics import Interval, clopper_pearson
from orderlab.sim.fault_schedule import parse_faults
from orderlab.spark_sweeps.questions.asking import AnswerTable, Ask, insist_on_judgement
from orderlab.spark_sweeps.sweep_file.specification import Listed

TAIL = 1e-12
"""More faults than this probability allows are never drawn."""


class RandomFaults(BaseModel):
    """What a question about random faults says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)
    faults: Listed[str] = Field(min_length=1)
    """Names of faults, ``broker-crash``, or with a target, ``redis-stall:1``, and a duration, ``redis-stall:1:0.2``."""
    mean_faults: float = Field(default=1.0, gt=0, le=1000)
    """Per run, on average."""
    first_s: float = Field(alias="from", ge=0, allow_inf_nan=False)
    last_s: float = Field(alias="to", gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> RandomFaults:
        if self.first_s >= self.last_s:
            raise ValueError(f"from {self.first_s:g} s is not before to {self.last_s:g} s; exchange them")
        return self

    @field_validator("faults")
    @classmethod
    def _are_faults(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for fault in given:
            name, _, where = fault.partition(":")
            try:
                parse_faults(f"{name}@0:{where or 0}")
            except InputError as error:
                raise ValueError(str(error).removeprefix("faults: ")) from None
        return given

    @property
    def dimensions(self) -> int:
        """How many numbers ``schedule`` needs: one, and two for each fault that there may be."""
        from scipy import stats

        return 1 + 2 * int(stats.poisson.isf(TAIL, self.mean_faults))

    def schedule(self, inputs: Sequence[float] | np.ndarray) -> str:
        """The faults that independent uniform ``inputs`` stand for, in the notation of the setting ``faults``."""
        from scipy import stats

        many = min(int(stats.poisson.ppf(inputs[0], self.mean_faults)), (len(inputs) - 1) // 2)
        struck = []
        for number in range(many):
            when, which = float(inputs[1 + 2 * number]), float(inputs[2 + 2 * number])
            at_s = self.first_s + when * (self.last_s - self.first_s)
            struck.append((at_s, self.faults[min(int(which * len(self.faults)), len(self.faults) - 1)]))
        written = []
        for at_s, fault in sorted(struck):
            name, _, where = fault.partition(":")
            written.append(f"{name}@{at_s:.6f}:{where or 0}")
        return " ".join(written)


CONFIDENCE = 0.95


class Risk(RandomFaults):
    """What is asked: is the probability of a violation at most ``acceptable``, or at least ``unacceptable``?"""

    kind: Literal["risk"]
    acceptable: float = Field(gt=0, lt=1)
    unacceptable: float = Field(gt=0, lt=1)
    error: float = Field(default=0.05, gt=0, lt=0.5)
    batch: int = Field(default=32, ge=1)
    runs_max: int = Field(default=1024, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Risk:
        if self.acceptable >= self.unacceptable:
            raise ValueError(
                f"acceptable {self.acceptable:g} is not below unacceptable {self.unacceptable:g}; widen them"
            )
        return self


@dataclass(frozen=True)
class Likelihood:
    """The answer; ``failed`` runs, those whose laws stayed unknown among them, are counted as violations, because
    nobody knows what they would have shown."""

    decision: str
    decided_after: int
    violations: int
    failed: int
    interval: Interval
    first_violation: str | None
    """The command that replays it."""


def drawn_faults(asked: RandomFaults, seed: int, number: int) -> str:
    """The schedule of run ``number``, in the notation of the setting ``faults``."""
    return asked.schedule(RandomStreams(seed).vector_stream(f"faults-of-run-{number}").random(asked.dimensions))


def risk(asked: Risk, configuration: dict[str, Any], ask: Ask, seed: int) -> Likelihood:
    """Batches until the test decides or ``runs_max`` runs are done. Raises InputError as runs do."""
    outcomes: list[bool] = []
    failed, first = 0, None
    number = 0
    while True:
        size = min(asked.batch, asked.runs_max - len(outcomes))
        points = [{**configuration, "faults": drawn_faults(asked, seed, len(outcomes) + k)} for k in range(size)]
        found = ask(f"batch-{number:04d}", points, 1)
        if number == 0:
            insist_on_judgement(found)
        for run in found:
            is_event = run.tells_nothing or run.outcome == "violated"
            outcomes.append(is_event)
            failed += run.tells_nothing
            if first is None and is_event:
                first = run.replay
        number += 1
        decision, after = wald_test(outcomes, asked.acceptable, asked.unacceptable, asked.error)
        if decision != "undecided" or len(outcomes) >= asked.runs_max:
            hits = sum(outcomes)
            interval = clopper_pearson(hits, len(outcomes), confidence_at(number))
            return Likelihood(decision, after, hits, failed, interval, first)


def confidence_at(look: int) -> float:
    """Confidence of the interval at look 1, 2, ...: those of all looks hold together with CONFIDENCE."""
    return 1 - (1 - CONFIDENCE) / (look * (look + 1))


def wald_test(outcomes: Sequence[bool], acceptable: float, unacceptable: float, error: float) -> tuple[str, int]:
    """Is the probability at most ``acceptable`` or at least ``unacceptable``? ("acceptable", "unacceptable" or
    "undecided", after how many outcomes). Each wrong answer has at most about probability ``error`` (Wald 1945).
    """
    if not 0 < acceptable < unacceptable < 1:
        raise InputError(
            f"acceptable {acceptable:g} must lie below unacceptable {unacceptable:g}, both between 0 and 1"
        )
    accept, reject = math.log(error / (1 - error)), math.log((1 - error) / error)
    hit, miss = math.log(unacceptable / acceptable), math.log((1 - unacceptable) / (1 - acceptable))
    evidence = 0.0
    for number, outcome in enumerate(outcomes, 1):
        evidence += hit if outcome else miss
        if evidence <= accept:
            return "acceptable", number
        if evidence >= reject:
            return "unacceptable", number
    return "undecided", len(outcomes)


def of_risk(asked: Risk, found: Likelihood) -> AnswerTable:
    """One row: the test's decision, and the interval of the probability."""
    told = asdict(found)
    interval = told.pop("interval")
    row = {**told, "probability": interval["estimate"], "low": interval["low"], "high": interval["high"],
           "runs": interval["count"]}  # fmt: skip
    outcome = {"acceptable": Outcome.HOLDS, "unacceptable": Outcome.VIOLATED}.get(found.decision, Outcome.UNKNOWN)
    notes = [
        f"Wald's test between {asked.acceptable:g} (acceptable) and {asked.unacceptable:g} (unacceptable), each wrong "
        f"answer with a probability of about {asked.error:g}. low to high: exact 95 % by Clopper and Pearson, "
        "the early end included.",
    ]
    if found.failed:
        notes.append(
            f"{found.failed} runs that failed or tested no law are counted as violations: nobody knows what "
            "they would have shown."
        )
    if found.violations == 0:
        notes.append("Not one violation: for the probability of something so rare ask a rare-event question.")
    return AnswerTable([row], notes, outcome)
