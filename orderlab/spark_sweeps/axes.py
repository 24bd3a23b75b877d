"""Axes of a sweep: what one parameter ranges over, as the list of its values and as a map from [0, 1)."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Value = bool | int | float | str
VALUES_MAX = 1_000_000


class Axis(BaseModel):
    """Either ``values`` (a list, also written bare; ``choices`` means the same), or ``from`` and ``to``.

    A range has a ``step``, or a ``count`` of values, linear or (``scale = "log"``) in equal ratios; both ends belong
    to it. Space-filling designs sample a range without a step everywhere between its ends.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    values: tuple[Value, ...] | None = Field(default=None, min_length=1, max_length=VALUES_MAX)
    low: float | int | None = Field(default=None, alias="from", allow_inf_nan=False)
    high: float | int | None = Field(default=None, alias="to", allow_inf_nan=False)
    step: float | int | None = Field(default=None, gt=0, allow_inf_nan=False)
    count: int | None = Field(default=None, ge=2, le=VALUES_MAX)
    scale: Literal["linear", "log"] = "linear"
    integer: bool = False
    """Round to whole numbers; implied by a whole ``from``, ``to`` and ``step``."""

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"values": given}
        if isinstance(given, dict) and "choices" in given:
            if "values" in given:
                raise ValueError('"choices" and "values" mean the same; keep one')
            given = dict(given)
            given["values"] = given.pop("choices")
        if not isinstance(given, dict):
            raise ValueError(
                f"{given!r} is one value; a fixed parameter belongs into [base], an axis is a list or a range"
            )
        return given

    @model_validator(mode="after")
    def _either_list_or_range(self) -> Axis:
        if self.values is not None:
            if self.low is not None or self.high is not None or self.step is not None or self.count is not None:
                raise ValueError("a list of values and a range exclude each other; keep one")
            for value in self.values:
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"{value} is not finite")
            if len({(type(value), value) for value in self.values}) < len(self.values):
                raise ValueError("a value is listed twice; remove one")
            return self
        if self.low is None or self.high is None:
            raise ValueError(
                'neither values nor a range; write [1, 2, 4] or { from = 1, to = 8, count = 4, scale = "log" }'
            )
        if self.low >= self.high:
            raise ValueError(f"from {self.low} is not below to {self.high}; exchange them, or write a list")
        if self.step is not None and self.count is not None:
            raise ValueError("step and count exclude each other; keep one")
        if self.scale == "log" and (self.low <= 0 or self.step is not None):
            raise ValueError("a log range begins above 0 and has a count, not a step")
        if self.step is not None and (self.high - self.low) / self.step > VALUES_MAX:
            raise ValueError(f"more than {VALUES_MAX} values; take a larger step")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the values of a range are whole numbers."""
        whole = all(isinstance(bound, int) for bound in (self.low, self.high, 1 if self.step is None else self.step))
        return self.integer or (whole and (self.step is not None or self.count is None))

    @property
    def has_list(self) -> bool:
        """Whether it has a finite list of values: a grid needs one."""
        return self.values is not None or self.step is not None or self.count is not None

    def listed(self) -> tuple[Value, ...]:
        """The values in order; of a range without step and count, both ends."""
        if self.values is not None:
            return self.values
        assert self.low is not None
        assert self.high is not None
        if self.step is not None:
            steps = math.floor((self.high - self.low) / self.step + 1e-9)
            found = [self._kept(self.low + number * self.step) for number in range(steps + 1)]
        else:
            count = self.count or 2
            found = [self._between(number / (count - 1)) for number in range(count)]
        return tuple(dict.fromkeys(found))

    @property
    def is_discrete(self) -> bool:
        """Whether a share of the way falls on one of the listed values."""
        return self.values is not None or self.step is not None

    def at(self, share: float, listed: tuple[Value, ...] | None = None) -> Value:
        """The value at ``share`` of the way, 0 <= share < 1: each listed value has an equal part, a range is continuous.
        ``listed`` spares who asks often the listing.
        """
        if self.is_discrete:
            listed = listed or self.listed()
            return listed[min(int(share * len(listed)), len(listed) - 1)]
        if self.is_whole and self.scale == "linear":
            low, high = int(self.low or 0), int(self.high or 0)
            return min(low + int(share * (high - low + 1)), high)
        return self._between(share)

    def _between(self, share: float) -> Value:
        assert self.low is not None
        assert self.high is not None
        if share == 0:
            return self._kept(self.low)
        if share == 1:
            return self._kept(self.high)
        if self.scale == "log":
            return self._kept(self.low * (self.high / self.low) ** share)
        return self._kept(self.low + (self.high - self.low) * share)

    def _kept(self, value: float) -> Value:
        """Whole where it must be; otherwise 12 significant digits, so that 0.1 * 3 is 0.3."""
        return round(value) if self.is_whole else float(f"{value:.12g}")
