"""How likely something rare is under random faults, by importance splitting, with plain runs beside it as a check.

The event is a violated law, or with ``above`` a run whose ``score`` lies above that. The score, any metric, says how near a
run came to it: levels of the score are climbed one after the other (`splitting`). A run with the event counts as above
every level, so that a score that foretells nothing costs runs and spoils nothing. What is random of a run is its faults
and its seed; chains walk through the former and redraw the latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from orderlab.sim.engine.intervals import Interval, clopper_pearson
from orderlab.spark_sweeps.questions.asking import Answered, Ask, insist_on_an_end, insist_on_judgement, metric_of
from orderlab.spark_sweeps.questions.random_faults import RandomFaults
from orderlab.spark_sweeps.questions.risk import drawn_faults
from orderlab.spark_sweeps.questions.splitting import Rarity, splitting


class RareEvent(RandomFaults):
    """What is asked: the probability of a violation, or of ``score`` above ``above``."""

    kind: Literal["rare-event"]
    score: str
    """The metric that grows towards the event."""
    above: float | None = None
    samples: int = Field(default=100, ge=10)
    """Runs a level in each population."""
    share: float = Field(default=0.2, gt=0, le=0.5)
    """Of the samples of a level that begin the next one."""
    populations: int = Field(default=5, ge=2)
    """Independent estimates; the interval comes from how they differ."""
    plain_runs: int = Field(default=0, ge=0)
    """So many independent runs are done as well and counted, to check the answer."""

    @model_validator(mode="after")
    def _levels_hold_something(self) -> RareEvent:
        if round(self.samples * self.share) < 2:
            raise ValueError(f"a share of {self.share:g} of {self.samples} samples is not 2; raise one of them")
        return self


@dataclass(frozen=True)
class RareAnswer:
    """The answer. ``as_many_plain``: plain runs that would give an interval as narrow; ``failed`` runs count as the event,
    because nobody knows what they would have shown.
    """

    splitting: Rarity
    plain: Interval | None
    failed: int
    first_event: str | None
    """The command that replays one."""

    @property
    def agrees(self) -> bool | None:
        """Whether the intervals of splitting and of plain runs overlap; None without plain runs."""
        if self.plain is None:
            return None
        return self.splitting.low <= self.plain.high and self.plain.low <= self.splitting.high

    @property
    def as_many_plain(self) -> float | None:
        """Plain runs for an interval whose ends have the same ratio, by the normal approximation."""
        one = self.splitting
        if one.low <= 0 or one.high <= one.low:
            return None
        deviation = math.log(one.high / one.low) / (2 * 1.96)  # of the logarithm of the estimate
        return (1 - one.probability) / one.probability / deviation**2


def rare_event(asked: RareEvent, configuration: Mapping[str, Any], ask: Ask, seed: int) -> RareAnswer:
    """Climb the levels. Raises InputError as runs do, and for a metric that there is not."""
    seen = _Seen(asked)
    number = 0

    def score(inputs: np.ndarray) -> np.ndarray:
        nonlocal number
        number += 1
        points = [{**configuration, "faults": asked.schedule(row[:-1])} for row in inputs]
        seeds = [int(row[-1] * 2**32) for row in inputs]
        found = ask(f"step-{number:04d}", points, 1, seeds)
        if number == 1:
            insist_on_an_end(found)
            if asked.above is None:
                insist_on_judgement(found)
        return np.array([seen.score(run) for run in found])

    bound = np.finfo(float).max  # the score of a run with the event is infinite
    found = splitting(
        score, asked.dimensions + 1, bound, asked.samples, seed, asked.share, asked.populations, redrawn=1
    )
    plain = None
    if asked.plain_runs:
        points = [{**configuration, "faults": drawn_faults(asked, seed, run)} for run in range(asked.plain_runs)]
        scores = [seen.score(run) for run in ask("plain", points, 1)]
        plain = clopper_pearson(sum(bool(one > bound) for one in scores), len(scores))
    return RareAnswer(found, plain, seen.failed, seen.first)


class _Seen:
    """Scores of runs, and what else is told of them."""

    def __init__(self, asked: RareEvent) -> None:
        self._asked = asked
        self.failed = 0
        self.first: str | None = None

    def score(self, run: Answered) -> float:
        """Infinite for the event."""
        is_event = run.tells_nothing if self._asked.above is None else run.status != "ok"
        self.failed += is_event
        value = 0.0
        if not is_event:
            value = metric_of(run, self._asked.score)
            is_event = run.outcome == "violated" if self._asked.above is None else value > self._asked.above
        if is_event and self.first is None:
            self.first = run.replay
        return float("inf") if is_event else value
