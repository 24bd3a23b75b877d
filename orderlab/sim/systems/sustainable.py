"""The sustainable rate of a system: the highest rate at which the mean latency stays under a limit, found by runs.

A rate is what is published per second on average, over the bursts of the publishers and the silence between them. It is
*sustained* when the mean latency of what was published in the measured interval is under the limit and does not grow,
and nothing is left under way; otherwise it is *overloaded*. What is delivered twice, or to nobody (QoS 0 without a
connection, a session that ended), is no overload. Where more comes than goes, by a share x, latency grows by x seconds
per second: so the slope of the batch means over the interval tells x, and up to ``GROWTH_MAX_MS_PER_S`` (1 %) counts as
none. Its 95 % interval comes from the regression, widened as neighbouring batches depend on each other. A run that
leaves the question open, or that grows without having reached the limit (a system that has not settled does that too),
is repeated over twice the time, at most ``DOUBLINGS`` times; then the slope itself decides.

The search takes big steps until one rate is sustained and one is not, and then closes in between them; what came out of
an overloaded run is about what the system can do, so the next rate is tried just below that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError
from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.progress import SimulationProgress

GROWTH_MAX_MS_PER_S = 10.0
WIDER = 2.0
"""Times the half-width that independent batch means would have."""
DOUBLINGS = 2
STEP_UP = 1.4
NEARBY, CREEPS = 0.04, 3
"""Above a sustained rate the next is tried so much higher; after so many in a row, twice as much each time."""
STEPS_MAX = 40
LOWEST_PER_S = 1.0

OnProgress = Callable[[float, SimulationProgress], None]
"""Is told a run's rate, and how far it is."""


class Trial(Protocol):
    """What one run at one rate has to tell."""

    @property
    def means_ms(self) -> npt.NDArray[np.float64]:
        """Mean latency of each of the equal parts of the measured interval."""

    @property
    def measured_s(self) -> float:
        """Length of that interval."""

    @property
    def in_per_s(self) -> float:
        """Messages published per second, on average."""

    @property
    def out_per_s(self) -> float:
        """Messages delivered per second in it."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing that was published in it is still under way."""


@dataclass(frozen=True)
class RateTrial:
    """One run. Rates are messages published per second."""

    rate_per_s: float
    out_per_s: float
    mean_ms: float
    growth_ms_per_s: float
    growth_half_width: float
    measured_s: float
    is_sustained: bool
    report: dict[str, Any]
    """Of the run, for the last one that was sustained."""


@dataclass(frozen=True)
class Ceiling:
    """The highest rate that was sustained, the lowest that was not, and all runs in their order."""

    rate_per_s: float
    overloaded_per_s: float
    steps: tuple[RateTrial, ...]

    @property
    def at(self) -> RateTrial:
        """The run at the ceiling."""
        return next(step for step in self.steps if step.is_sustained and step.rate_per_s == self.rate_per_s)


def growth(trial: Trial) -> tuple[float, float]:
    """(slope of the batch means in ms per s, half the width of its 95 % interval)."""
    from scipy import stats  # takes a second to import, and a search begins with runs

    means = trial.means_ms
    if len(means) < 3:
        return 0.0, float("inf")
    at_s = (np.arange(len(means)) + 0.5) * trial.measured_s / len(means)
    fit = stats.linregress(at_s, means)
    return float(fit.slope), float(WIDER * stats.t.ppf(0.975, len(means) - 2) * fit.stderr)


def is_sustained(trial: Trial, limit_ms: float, slope: float) -> bool:
    """Whether the latency is under the limit, and stays there if it grows by ``slope``."""
    return _is_below(trial, limit_ms) and slope < GROWTH_MAX_MS_PER_S


def _is_below(trial: Trial, limit_ms: float) -> bool:
    return trial.is_complete and len(trial.means_ms) > 0 and float(trial.means_ms.mean()) < limit_ms


def find_ceiling(
    run: Callable[[float, int], tuple[Trial, dict[str, Any]]],
    start_per_s: float,
    limit_ms: float = 100.0,
    tolerance: float = 0.02,
    on_step: Callable[[RateTrial], None] | None = None,
) -> Ceiling:
    """Search from ``start_per_s``. ``run(rate, times)`` runs at a rate or, as bursts and intervals are whole, near it,
    ``times`` as long as usual.

    Raises InputError when not even ``LOWEST_PER_S`` is sustained, or nothing ever overloads the system.
    """
    if not (0 < tolerance < 1 and limit_ms > 0):
        raise InputError(
            f"sustainable: a limit of {limit_ms:g} ms within {tolerance:g}: both must be above 0, the latter below 1"
        )
    steps: list[RateTrial] = []
    low, high, rate = 0.0, float("inf"), start_per_s
    while high - low > tolerance * high or not low or high == float("inf"):
        if len(steps) == STEPS_MAX or rate < LOWEST_PER_S:
            raise InputError(
                f"sustainable: no ceiling after {len(steps)} runs, the last at {steps[-1].rate_per_s:,.0f} msg/s; "
                "nothing limits this system, or its latency is above the limit at any rate"
            )
        step = _decide(run, rate, limit_ms)
        steps.append(step)
        if on_step is not None:
            on_step(step)
        if step.is_sustained:
            low = rate
        else:
            high = rate
        rate = _next(steps, low, high)
    kept = [step.rate_per_s for step in steps if step.is_sustained]
    return Ceiling(max(kept), min(step.rate_per_s for step in steps if not step.is_sustained), tuple(steps))


def _decide(run: Callable[[float, int], tuple[Trial, dict[str, Any]]], rate: float, limit_ms: float) -> RateTrial:
    """Run at ``rate``, longer and longer until the outcome is the same at both ends of the slope's interval."""
    for doubling in range(DOUBLINGS + 1):
        trial, report = run(rate, 2**doubling)
        slope, half = growth(trial)
        sustained = is_sustained(trial, limit_ms, slope)
        if not _is_below(trial, limit_ms) or is_sustained(trial, limit_ms, slope + half):
            break
    means = trial.means_ms
    mean = float(means.mean()) if len(means) else float("inf")
    return RateTrial(trial.in_per_s, trial.out_per_s, mean, slope, half, trial.measured_s, sustained, report)


def _next(steps: list[RateTrial], low: float, high: float) -> float:
    """The next rate to try."""
    if high == float("inf"):
        return low * STEP_UP
    if not steps[-1].is_sustained:
        guess = 0.98 * steps[-1].out_per_s
        if low < guess < 0.98 * high:
            return guess
    if not low:
        return high / 2
    since_overload = next((count for count, step in enumerate(reversed(steps)) if not step.is_sustained), len(steps))
    # What came out of that run was far too little: it never settled.
    nearby = low * (1 + NEARBY * 2 ** max(since_overload - CREEPS, 0))
    return nearby if nearby < (low + high) / 2 else (low + high) / 2


@dataclass(frozen=True)
class _Run:
    """The trial of a simulated system."""

    means_ms: npt.NDArray[np.float64]
    measured_s: float
    in_per_s: float
    out_per_s: float
    is_complete: bool


def trial_of(system: Any, report: Mapping[str, Any], in_per_s: float | None = None) -> Trial:
    """What a system that has run tells about its rate. ``in_per_s``: what was due, where that is known better than by
    what came in."""
    means = system.world.measured.delivery_latency.batch_means_us() / 1000
    through = report["throughput_per_s"]
    return _Run(
        means,
        report["measured_s"],
        through["in"] if in_per_s is None else in_per_s,
        through["out"],
        system.is_drained(),
    )


def share_of_time(settings: Any) -> float:
    """How much of the time a publisher publishes."""
    on_s, off_s = getattr(settings, "publish_on_s", None), getattr(settings, "publish_off_s", None)
    return 1.0 if on_s is None or off_s is None else float(on_s / (on_s + off_s))


def runs_of(
    name: str, settings: Any, seed: int, on_progress: OnProgress | None = None
) -> Callable[[float, int], tuple[Trial, dict[str, Any]]]:
    """Runs of a system at any rate: every publisher publishes more often, nothing else changes. They raise InputError
    for a rate that the system refuses."""
    assemble, each = entry(name).assemble, settings.publishers * share_of_time(settings)

    def run(rate_per_s: float, times: int) -> tuple[Trial, dict[str, Any]]:
        given = {**settings.model_dump(), "rate": rate_per_s / each, "duration_s": settings.duration_s * times}
        try:
            at_rate = settings_of(name, given)
        except InputError as error:
            raise InputError(
                f"sustainable: the search has come to {rate_per_s:,.0f} msg/s, by rate={given['rate']:.4g} of "
                f"{settings.publishers} publishers, and {error}; "
                "begin with another number of publishers"
            ) from None
        system = assemble(at_rate, seed, [])
        report = system.run(None if on_progress is None else partial(on_progress, rate_per_s))
        return trial_of(system, report, system.world.traffic.schedule.mean_per_s), {
            **report, "history_digest": system.digest, "set": {name: given[name] for name in ("rate", "duration_s")},
        }  # fmt: skip

    return run


def sustainable_rate(
    name: str,
    settings: Any,
    seed: int,
    limit_ms: float = 100.0,
    tolerance: float = 0.02,
    on_step: Callable[[RateTrial], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Ceiling:
    """The ceiling of a system, searched from the rate of its settings. Raises InputError."""
    start = settings.rate * settings.publishers * share_of_time(settings)
    return find_ceiling(runs_of(name, settings, seed, on_progress), start, limit_ms, tolerance, on_step)


def _told(value: float) -> float | None:
    """None where nothing arrived, or too little: JSON has no infinity."""
    return round(value, 3) if math.isfinite(value) else None


def ceiling_json(ceiling: Ceiling) -> dict[str, Any]:
    """As `--json` prints it: the ceiling, the runs behind it, each with the settings that make it again, and the
    figures of the run at the ceiling."""
    step = ceiling.at
    counts = step.report["counts"]
    both = 1 + counts["delivered"] / counts["published"]
    return {
        "sustainable_per_s": {"in": round(ceiling.rate_per_s), "in_and_out": round(both * ceiling.rate_per_s)},
        "overloaded_per_s": {
            "in": round(ceiling.overloaded_per_s),
            "in_and_out": round(both * ceiling.overloaded_per_s),
        },
        "runs": [
            {
                "rate_per_s": round(run.rate_per_s, 1),
                "out_per_s": run.out_per_s,
                "mean_ms": _told(run.mean_ms),
                "growth_ms_per_s": _told(run.growth_ms_per_s),
                "growth_half_width_ms_per_s": _told(run.growth_half_width),
                "measured_s": run.measured_s,
                "sustained": run.is_sustained,
                "history_digest": run.report["history_digest"],
                "set": run.report.get("set"),
            }
            for run in ceiling.steps
        ],
        "at_the_ceiling": step.report,
    }
