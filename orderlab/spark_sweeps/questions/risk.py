"""How likely a violation is under random faults: batches of runs with drawn faults, an exact interval, an early end.

Faults are drawn for each run from a stream of their own. Wald's
sequential test stops as soon as the probability is known to be acceptable or not, with the error that is asked for. The
Clopper-Pearson interval that is reported beside it counts all runs. An early end chooses among as many intervals as there
were looks, so the error is divided among them (the k-th has a share of 1/k - 1/(k + 1)): together they keep their promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from orderlab.model.errors import InputError
from orderlab.sim.engine.intervals import Interval, clopper_pearson
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.spark_sweeps.questions.asking import Ask, insist_on_an_end, insist_on_judgement
from orderlab.spark_sweeps.questions.random_faults import RandomFaults

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
    """The answer; ``failed`` runs, those whose laws stayed unknown among them, are counted as violations, because nobody
    knows what they would have shown."""

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
            insist_on_an_end(found)
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
    """Of the interval at look 1, 2, ...: those of all looks hold together with CONFIDENCE."""
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
