"""Random faults of a run: how many (Poisson), which, when (uniform) and where; a function of numbers between 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orderlab.model.errors import InputError
from orderlab.sim.faults.schedule import parse_faults

TAIL = 1e-12
"""More faults than this probability allows are never drawn."""


class RandomFaults(BaseModel):
    """What a question about random faults says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    faults: tuple[str, ...] = Field(min_length=1)
    """Names of faults, ``broker-crash``, or with a target, ``redis-stall:1``, and a duration, ``redis-stall:1:0.2``."""
    mean_faults: float = Field(default=1.0, gt=0, le=1000)
    """Per run, on average."""
    first_s: float = Field(alias="from", ge=0)
    last_s: float = Field(alias="to", gt=0)

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
