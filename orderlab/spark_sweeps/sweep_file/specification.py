"""Sweep files: TOML that says what to run, over which points, how often, within which limits, and what to keep."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, field_validator, model_validator

from orderlab.model.errors import InputError, did_you_mean, shortened
from orderlab.model.files import read_json
from orderlab.sim.systems.settings import read_config

MANIFEST = "sweep.json"
RUNS_MAX = 100_000_000

Value = bool | int | float | str
Item = TypeVar("Item")
Listed = Annotated[tuple[Item, ...], Strict(False)]
"""A list of a file: models are strict, as "3" and true are no numbers, and a list is no tuple then."""
VALUES_MAX = 1_000_000
DATES = (date, datetime, time)
"""What TOML knows, and no parameter is."""


class Axis(BaseModel):
    """Either ``values`` (a list, also written bare; ``choices`` means the same), or ``from`` and ``to``.

    A range has a ``step``, or a ``count`` of values, linear or (``scale = "log"``) in equal ratios; both ends belong
    to it. Space-filling designs sample a range without a step everywhere between its ends.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    values: Listed[Value] | None = Field(default=None, min_length=1, max_length=VALUES_MAX)
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
        if (self.low is None) != (self.high is None):
            given, missing = ("from", "to") if self.high is None else ("to", "from")
            raise ValueError(f"a range with {given} and without {missing}; add {missing} = ...")
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
        """The value at ``share`` of the way, 0 <= share < 1: each listed value has an equal part, a range is
        continuous. ``listed`` spares who asks often the listing.
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
            if math.isfinite(self.high / self.low):
                return self._kept(self.low * (self.high / self.low) ** share)
            return self._kept(math.exp((1 - share) * math.log(self.low) + share * math.log(self.high)))
        if math.isfinite(self.high - self.low):
            return self._kept(self.low + (self.high - self.low) * share)
        return self._kept(self.low * (1 - share) + self.high * share)

    def _kept(self, value: float) -> Value:
        """Whole where it must be; otherwise 12 significant digits, so that 0.1 * 3 is 0.3."""
        return round(value) if self.is_whole else float(f"{value:.12g}")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DesignChoice(_Part):
    """Which points of the space are run."""

    kind: Literal["grid", "latin-hypercube", "sobol", "one-at-a-time", "table"] = "grid"
    samples: int | None = Field(default=None, ge=1, le=VALUES_MAX)
    """Points of a latin-hypercube or sobol design."""
    rows: Listed[dict[str, Value]] | None = Field(default=None, min_length=1, max_length=VALUES_MAX)
    """Points of a table."""
    seeds: Listed[int] | None = None
    """One for each row of a table, instead of drawn ones."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> DesignChoice:
        fills_space = self.kind in ("latin-hypercube", "sobol")
        if fills_space != (self.samples is not None):
            raise ValueError(
                f"a {self.kind} design {'needs samples, such as samples = 64' if fills_space else 'has no samples'}"
            )
        if (self.kind == "table") != (self.rows is not None):
            raise ValueError(f"a {self.kind} design {'needs rows' if self.kind == 'table' else 'has no rows'}")
        for number, row in enumerate(self.rows or ()):
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"rows.{number}.{name} is {value}, which is not finite; give a finite number")
        if any(not -(2**63) <= seed < 2**63 for seed in self.seeds or ()):
            raise ValueError("a seed of 64 bits or more; give one below 2^63")
        if self.seeds is not None and len(self.seeds) != len(self.rows or ()):
            raise ValueError(f"{len(self.seeds)} seeds for {len(self.rows or ())} rows; a table gives each row one")
        return self


class Until(_Part):
    """When a point has enough replications: the interval of the mean of ``metric`` reaches at most ``half_width`` times
    the mean to either side (`orderlab.spark_sweeps.results.rows`).
    """

    metric: str
    half_width: float = Field(gt=0, le=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    first: int = Field(default=5, ge=2)
    """Replications before the first look."""


class Replications(_Part):
    """How often each point is run. With common random numbers replication r has the same seed at every point."""

    count: int = Field(default=1, ge=1, le=VALUES_MAX)
    common_random_numbers: bool = True
    until: Until | None = None
    """Stop before ``count``."""

    @model_validator(mode="after")
    def _has_room(self) -> Replications:
        if self.until is not None and self.count <= self.until.first:
            raise ValueError(f"until looks first after {self.until.first}; raise count (the most) above that")
        return self


class Record(_Part):
    """What a row keeps. ``metrics``: patterns such as ``latency.*.mean_ms``; ``histories`` are files beside the
    rows."""

    metrics: Listed[str] = ("*",)
    histories: Literal["none", "violations", "all"] = "none"


class Limits(_Part):
    """Limits of one run."""

    wall_s: float = Field(default=600.0, gt=0, le=86_400 * 30)
    memory_mib: int = Field(default=2048, ge=16, le=1 << 24)
    """Beyond what the process holds before the run."""


class Stop(_Part):
    """When to begin no more runs. Runs under way are kept."""

    max_failures: int | None = Field(default=None, ge=1)
    max_violations: int | None = Field(default=None, ge=1)
    wall_s: float | None = Field(default=None, gt=0)


class SweepFile(_Part):
    """A whole sweep file."""

    system: str
    """A system of ``orderlab simulate --list``, or ``module:function`` of (parameters, seed)."""
    output: str = ""
    """The folder of the results; from the current directory. Empty where the command line has to say it."""
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)
    base: dict[str, Value] = {}
    axes: dict[str, Axis] = {}
    derived: dict[str, str] = {}
    cost: str | None = None
    """What a run costs, in any unit, as an expression of its parameters: which runs are begun first."""
    design: DesignChoice = DesignChoice()
    replications: Replications = Replications()
    record: Record = Record()
    limits: Limits = Limits()
    stop: Stop = Stop()
    question: dict[str, Any] | None = None
    """What the runs are to answer: ``kind`` and what that needs (`orderlab.spark_sweeps.questions`)."""

    @field_validator("base", mode="before")
    @classmethod
    def _base_of_scalars(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, dict) else ():
            if not isinstance(value, (bool, int, float, str)):
                cure = _quoted(value) or "; [base] holds one value for each parameter, lists belong into [axes]"
                raise ValueError(f"{name} is {_plain(value)}{cure}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which is not finite; give a finite number")
        return given

    @field_validator("output")
    @classmethod
    def _output_is_a_folder(cls, given: str) -> str:
        if not given.strip():
            raise ValueError("empty; name a folder of its own")
        return given

    @model_validator(mode="after")
    def _parts_fit(self) -> SweepFile:
        if self.design.kind == "table":
            if self.axes:
                raise ValueError("a table lists its points itself; remove [axes]")
            if self.design.seeds is not None and self.replications.count > 1:
                raise ValueError("a row with a seed of its own is run once; remove design.seeds, or replications.count")
        elif self.design.kind == "grid":
            for name, axis in self.axes.items():
                if not axis.has_list:
                    raise ValueError(f"axes.{name}: a grid needs values; add a count or a step to the range")
        elif not self.axes:
            raise ValueError(f"a {self.design.kind} design needs at least one axis; add [axes]")
        until = self.replications.until
        if until is not None and not any(fnmatchcase(until.metric, pattern) for pattern in self.record.metrics):
            raise ValueError(f"replications.until: {until.metric} is not recorded; add it to record.metrics")
        for name in self.derived:
            if name in self.axes:
                raise ValueError(f"derived.{name}: {name} is an axis already; keep one")
        return self

    @property
    def folder(self) -> Path:
        """Where its results go. Raises InputError where nobody has said it."""
        if not self.output:
            raise InputError('output: missing; add output = "FOLDER" to the sweep file, or --output FOLDER')
        return Path(self.output)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides which runs there are and what comes out of them; limits and stop rules may change on a
        resume."""
        return self.model_dump(
            mode="json", by_alias=True, exclude={"output", "description", "cost", "limits", "stop", "question"}
        )


def digest_of(content: bytes) -> str:
    """The digest that stands in rows and manifests."""
    return blake2b(content, digest_size=16).hexdigest()


def read_sweep(path: Path) -> SweepFile:
    """The sweep that a file describes; the manifest of a result folder describes the one that was done there. Raises
    InputError with the file, the key and the cure.
    """
    if path.name == MANIFEST and path.is_file():
        try:
            return sweep_of({**read_json(path)["sweep"], "output": str(path.parent)}, str(path))
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: not the manifest of a sweep; name a sweep file") from None
    return sweep_of(read_config(path), str(path))


def sweep_of(content: dict[str, Any], place: str) -> SweepFile:
    """The sweep that a parsed file describes. Raises InputError."""
    try:
        return SweepFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{place}: {complaint_of(error)}") from None
    except OverflowError:  # of pydantic, which does not say where
        raise InputError(
            f"{place}: a whole number of more than 308 digits where a range or a step is; give a smaller"
        ) from None


def complaint_of(error: ValidationError, kind: type[BaseModel] = SweepFile, above: tuple[str, ...] = ()) -> str:
    """The first complaint about a ``kind`` that stands below the keys ``above``: key path, what is wrong, cure. Unknown
    keys first: they explain the missing ones."""
    found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")[0]
    path = [part for part in found["loc"] if part not in ("function-after", "function-before")]
    # a value of several possible types names the type as the last part of its path
    several = False
    while path and isinstance(path[-1], str) and path[-1] in ("bool", "int", "float", "str", "constrained-str"):
        path.pop()
        several = True
    key = ".".join(str(part) for part in (*above, *path))
    if found["type"] == "extra_forbidden":
        known = _known_keys(path[:-1], kind)
        return f"{key}: unknown key; {did_you_mean(str(path[-1]), known)}"
    if found["type"] == "missing":
        return f"{key}: missing; add {key} = ..."
    given = found["input"]
    if several and not isinstance(given, (bool, int, float, str)):
        return f"{key}: {_plain(given)} is not a number, a text or a truth value{_quoted(given)}"
    message = found["msg"].removeprefix("Value error, ")
    told = isinstance(given, (bool, int, float, str)) and repr(given) not in message
    shown = f" (given: {shortened(given)})" if told else ""
    return f"{key}: {message}{shown}" if key else f"{message}{shown}"


def _plain(given: Any) -> str:
    """A value as the file has it."""
    return str(given) if isinstance(given, DATES) else shortened(given)


def _quoted(given: Any) -> str:
    """The cure for a date of TOML."""
    return f'; write it as text, "{given}"' if isinstance(given, DATES) else ""


def _known_keys(path: list[int | str], kind: type[BaseModel]) -> tuple[str, ...]:
    for part in path:
        if part in ("axes", "parameters"):
            kind = Axis
            break
        annotation = kind.model_fields[str(part)].annotation if str(part) in kind.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ()
        kind = annotation
    names = [field.alias or name for name, field in kind.model_fields.items()]
    return (*names, "choices") if kind is Axis else tuple(names)
