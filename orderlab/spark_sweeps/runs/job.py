"""A sweep from its file to its table: what is there already, what is left, in which chunks, on which engine.

Beside it what looks at a sweep without doing it: one run in this process, without limits and without catching anything,
and a preview.
"""

from __future__ import annotations

import heapq
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from orderlab.model.errors import InputError, did_you_mean
from orderlab.spark_sweeps.results.committed import Counts
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import combined, kind_of_failure, wanted_runs
from orderlab.spark_sweeps.runs.costs import (
    CostModel,
    chunks_of,
    estimated,
    measured_rows,
    model_of_earlier,
    numbers_of,
)
from orderlab.spark_sweeps.runs.digests import code_digest, scripts_digest, subject_digest
from orderlab.spark_sweeps.runs.isolation import Ended, described, isolated
from orderlab.spark_sweeps.runs.subject import Observed, Subject, subject_of
from orderlab.spark_sweeps.runs.workers import Engine, Order, observe
from orderlab.spark_sweeps.sweep_file.plan import Plan, Run
from orderlab.spark_sweeps.sweep_file.specification import SweepFile, read_sweep

PILOT_PER_CORE = 2
PILOT_FROM = 8
"""A pilot precedes a sweep of at least so many runs a core."""
FAILURES_SHOWN = 10
CHECKED_MAX = 10_000


@dataclass(frozen=True)
class SweepOptions:
    """What the command line may add to a sweep file."""

    output: str | None = None
    retry_failed: bool = False
    fail_fast: bool = False
    max_failures: int | None = None
    costs: str | None = None
    seed: int | None = None
    needs: tuple[str, ...] = ()
    """Metrics that a question asks of each run."""


@dataclass(frozen=True)
class RunsProgress:
    """Where a sweep stands. ``before``: rows that an earlier start had left."""

    total: int
    before: int
    counts: Counts
    wall_s: float


@dataclass(frozen=True)
class Summary:
    """What a sweep came to. ``runs``: that it wants; ``spared``: further ones that replications.until makes
    needless."""

    folder: Path
    seed: int
    runs: int
    spared: int
    counts: Counts
    before: int
    stopped: str | None
    digest: str
    wall_s: float
    cpu_s: float
    failures: list[dict[str, Any]]
    violations: list[dict[str, Any]]
    unknown: int = 0
    """Runs that came to their end without a verdict on their laws: undecided, or not one was tested."""
    vacuous: int = 0
    """Those of them of which no law was tested, or which have none."""
    unsettled: int = 0
    """Runs whose warm-up had not ended when measurement began."""
    failure_kinds: Mapping[str, int] = field(default_factory=dict)
    """How many runs failed, by what they failed of."""

    def to_json(self) -> dict[str, Any]:
        """The summary for `--json`."""
        return {**asdict(self), "folder": str(self.folder)}


def load(path: Path, seed: int | None = None, output: str | None = None) -> tuple[SweepFile, Plan]:
    """A sweep file whose base, axes and first and last runs its system accepts; ``seed`` and ``output`` stand in place
    of its own. Raises InputError."""
    instead = {"seed": seed, "output": output}
    sweep = read_sweep(path).model_copy(update={name: value for name, value in instead.items() if value is not None})
    plan = Plan(sweep, str(path))
    subject = subject_of(sweep.system)
    first = plan.run(0).parameters
    for name, axis in sweep.axes.items():
        values = axis.listed()[:CHECKED_MAX] if axis.has_list else (axis.at(0.0), axis.at(1.0))
        for value in values:
            try:
                subject.check({**first, name: value})
            except InputError as error:
                _blame_base(path, sweep, subject, str(error))
                raise InputError(f"{path}: axes.{name}: {value!r} is refused: {error}") from None
    for number in dict.fromkeys((0, len(plan) - 1)):
        try:
            subject.check(plan.run(number).parameters)
        except InputError as error:
            raise InputError(f"{path}: run {number}: {error}") from None
    return sweep, plan


def _blame_base(path: Path, sweep: SweepFile, subject: Subject, complaint: str) -> None:
    """Raise InputError if [base] alone is refused with the same words."""
    try:
        subject.check(sweep.base)
    except InputError as error:
        if str(error) == complaint:
            raise InputError(f"{path}: base: {complaint}") from None


def run_sweep(
    path: Path,
    make_engine: Callable[[ResultFolder], Engine],
    options: SweepOptions | None = None,
    on_progress: Callable[[RunsProgress], None] | None = None,
) -> Summary:
    """Do what is left of a sweep. Raises InputError; KeyboardInterrupt passes through, with all that is committed
    kept."""
    options = options or SweepOptions()
    sweep, plan = load(path, options.seed, options.output)
    return run_loaded(path, sweep, plan, make_engine, options, on_progress)


def run_loaded(
    path: Path, sweep: SweepFile, plan: Plan, make_engine: Callable[[ResultFolder], Engine], options: SweepOptions,
    on_progress: Callable[[RunsProgress], None] | None = None,
) -> Summary:  # fmt: skip
    """Run a sweep that is in memory; ``path`` is what messages and commands call it."""
    earlier = None if options.costs is None else model_of_earlier(options.costs)
    folder, manifest = folder_of(sweep)
    folder.open(manifest, sweep.description)
    try:
        return _Sweeping(path, sweep, plan, folder, options, earlier, on_progress).run(make_engine)
    finally:
        folder.close()


def folder_of(sweep: SweepFile) -> tuple[ResultFolder, dict[str, Any]]:
    """Where the rows of a sweep go, and the manifest that the folder has to have."""
    made_of = {"code": code_digest(), "scripts": scripts_digest(), "subject": subject_digest(sweep)}
    return ResultFolder(sweep.folder), {"sweep": sweep.identity, **made_of}


class _Sweeping:
    """One start of a sweep."""

    def __init__(
        self,
        path: Path,
        sweep: SweepFile,
        plan: Plan,
        folder: ResultFolder,
        options: SweepOptions,
        earlier: CostModel | None,
        on_progress: Callable[[RunsProgress], None] | None,
    ) -> None:
        self.path, self.sweep, self.plan, self.folder, self.options = path, sweep, plan, folder, options
        self.earlier, self.on_progress = earlier, on_progress
        self.begun = time.perf_counter()
        self.stopped: str | None = None
        standing = folder.standing(len(plan))
        self.before = standing.counts.rows
        again = standing.failed if options.retry_failed else np.zeros(len(plan), np.bool_)
        self.retried = int(again.sum())
        self.wanted = wanted_runs(plan, folder)
        again |= standing.attempt == 0
        self.left = numbers_of(again & self.wanted)
        self.attempt = (
            int(standing.attempt.max(initial=0)) + 1 if self.retried else max(1, int(standing.attempt.max(initial=0)))
        )
        self.kept_failures = standing.counts.failed - self.retried
        self.needs = options.needs if sweep.replications.until is None else (sweep.replications.until.metric,)
        self.looked_at = 0

    def run(self, make_engine: Callable[[ResultFolder], Engine]) -> Summary:
        if len(self.left):
            self._obey_stop_rules()
        if len(self.left) and self.stopped is None:
            engine = make_engine(self.folder)
            try:
                while len(self.left) and self._run_on(engine):
                    self._look_again()
            finally:
                engine.close()
                self.folder.remove_abandoned()
            self.folder.counts()
            while self.folder.merge_files():
                pass
        return self._summary()

    def _look_again(self) -> None:
        """What replications.until wants now that more is known."""
        before = self.wanted
        if self.sweep.replications.until is None:
            self.left = self.left[:0]
            return
        self.wanted = wanted_runs(self.plan, self.folder)
        self.left = numbers_of(self.wanted & ~before)

    def _run_on(self, engine: Engine) -> bool:
        """Do what is left; whether it is done."""
        order = Order(
            self.sweep.model_dump_json(by_alias=True, exclude_none=True),
            str(self.path),
            str(self.folder.path.absolute()),
            self.attempt,
            code_digest(),
            scripts_digest(),
            subject_digest(self.sweep),
            self.folder.identity,
        )
        left, measured = self.left, measured_rows(self.folder)
        knows_costs = self.plan.has_cost or self.earlier is not None or len(measured) >= 3
        if len(left) >= PILOT_FROM * engine.cores and not knows_costs:
            spread = np.linspace(0, len(left) - 1, PILOT_PER_CORE * engine.cores).astype(int)
            pilot = left[np.unique(spread)]
            if not engine.run(order, [np.array([number]) for number in pilot], self._tick):
                return False
            left, measured = np.delete(left, np.searchsorted(left, pilot)), measured_rows(self.folder)
            self._insist_on_metrics()
            self._look_for_needs()
        costs = estimated(self.plan, left, measured, self.earlier)
        return engine.run(order, chunks_of(left, costs, engine.cores), self._tick)

    def _insist_on_metrics(self) -> None:
        """Raise InputError where the pilot, spread over the design, recorded nothing at all: the rest would not
        either."""
        if any(
            metrics
            for table in self.folder.tables(len(self.plan), ["metrics"])
            for metrics in table.column("metrics").to_pylist()
        ):
            return
        recorded = _Recorded(self.path, self.sweep)
        for table in self.folder.tables(len(self.plan), ["status", "metrics"]):
            recorded.take(table)
        recorded.insist()

    def _look_for_needs(self) -> None:
        shown: set[str] = set()
        for table in self.folder.tables(len(self.plan), ["status", "outcome", "metrics"]):
            for row in table.to_pylist():
                if row["status"] == "ok" and row["outcome"] in (None, "holds"):
                    shown.update(name for name, _ in row["metrics"] or ())
        key = "" if self.sweep.replications.until is None else ": replications.until.metric"
        insist_on_needs(f"{self.path}{key}", self.needs, shown)
        self.needs = () if shown else self.needs

    def _tick(self) -> bool:
        counts = self._obey_stop_rules()
        if self.needs and counts.rows - counts.failed > 2 * self.looked_at:
            self.looked_at = counts.rows - counts.failed
            self._look_for_needs()
        self.folder.merge_files()
        if self.on_progress is not None:
            self.on_progress(
                RunsProgress(int(self.wanted.sum()), self.before, counts, time.perf_counter() - self.begun)
            )
        return self.stopped is not None

    def _obey_stop_rules(self) -> Counts:
        """Counts by file names: rows that were committed twice, or tried again, are seen once here and there twice."""
        counts = self.folder.counts_lately()
        if self.retried:
            new = self.folder.counts_lately(self.attempt)
            counts = Counts(self.before - self.retried + new.rows, self.kept_failures + new.failed, counts.violated)
        stop, wall = self.sweep.stop, time.perf_counter() - self.begun
        given = [most for most in (stop.max_failures, self.options.max_failures) if most is not None]
        most = 1 if self.options.fail_fast else min(given, default=None)
        if most is not None and counts.failed >= most:
            self.stopped = f"{counts.failed} runs have failed (at most {most - 1} may)"
        elif stop.max_violations is not None and counts.violated >= stop.max_violations:
            self.stopped = f"{counts.violated} runs violate a law (stop.max_violations)"
        elif stop.wall_s is not None and wall >= stop.wall_s:
            self.stopped = f"{wall:.0f} s have passed (stop.wall_s)"
        return counts

    def _summary(self) -> Summary:
        standing = self.folder.standing(len(self.plan))
        digest, cpu_s, unknown, vacuous, unsettled = 0, 0.0, 0, 0, 0
        kinds: Counter[str] = Counter()
        recorded = _Recorded(self.path, self.sweep)
        failures, violations = _First(FAILURES_SHOWN), _First(FAILURES_SHOWN)
        for table in self.folder.tables(
            len(self.plan),
            [
                "row_digest",
                "cpu_s",
                "status",
                "outcome",
                "vacuous",
                "settled",
                "verdicts",
                "error",
                "replay",
                "metrics",
            ],
        ):
            digest = combined(table.column("row_digest").to_pylist(), digest)
            cpu_s += float(np.nansum(table.column("cpu_s").to_numpy()))
            runs, status = table.column("run").to_pylist(), table.column("status").to_pylist()
            outcome = table.column("outcome").to_pylist()
            unknown += sum(one == "ok" and told in (None, "unknown") for one, told in zip(status, outcome, strict=True))
            vacuous += table.column("vacuous").to_pylist().count(True)
            unsettled += table.column("settled").to_pylist().count(False)
            recorded.take(table)
            for place, number in enumerate(runs):
                if status[place] != "ok" or outcome[place] == "violated":
                    row = table.slice(place, 1).to_pylist()[0]
                    if status[place] != "ok":
                        kinds[kind_of_failure(row["status"], row["error"])] += 1
                    (failures if status[place] != "ok" else violations).add(number, row)
        recorded.insist()
        return Summary(
            self.folder.path,
            self.sweep.seed,
            int(self.wanted.sum()),
            int((~self.wanted).sum()),
            standing.counts,
            self.before,
            self.stopped,
            f"{digest:032x}",
            time.perf_counter() - self.begun,
            cpu_s,
            failures.rows(),
            violations.rows(),
            unknown,
            vacuous,
            unsettled,
            dict(kinds),
        )


def insist_on_needs(place: str, needs: Sequence[str], shown: Collection[str]) -> None:
    """Raise InputError where the first sound runs show numbers, and not one that is asked of each: the others would not
    either."""
    missing = [name for name in needs if shown and name not in shown]
    if missing:
        close = did_you_mean(missing[0], tuple(sorted(shown)))
        raise InputError(f'{place}: no metric "{missing[0]}"; {close} (none of the first runs shows it)')


class _Recorded:
    """Whether each pattern of record.metrics has matched something in a run that came to its end."""

    def __init__(self, path: Path, sweep: SweepFile) -> None:
        self._path, self._runs = path, 0
        # The latter capacity adds by itself, and functions lack.
        self._left = set(sweep.record.metrics) - {"*", "steady.*"}

    def take(self, table: Any) -> None:
        """Look at the metrics of rows, as long as a pattern has matched nothing."""
        self._runs += table.column("status").to_pylist().count("ok")
        if self._left:
            names = {name for metrics in table.column("metrics").to_pylist() for name, _ in metrics or ()}
            self._left -= {pattern for pattern in self._left if any(fnmatchcase(name, pattern) for name in names)}

    def insist(self) -> None:
        """Raise InputError for a pattern that matched nothing."""
        if self._left and self._runs:
            raise InputError(
                f'{self._path}: record.metrics: "{min(self._left)}" matches no metric of {self._runs:,} runs; '
                f"orderlab sweep {shlex.quote(str(self._path))} --only 0 shows those that there are"
            )


class _First:
    """The rows with the lowest run numbers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, dict[str, Any]]] = []

    def add(self, number: int, row: dict[str, Any]) -> None:
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (-number, row))
        elif -number > self._heap[0][0]:
            heapq.heapreplace(self._heap, (-number, row))

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, row in sorted(self._heap, key=lambda one: -one[0])]


def single_run(path: Path, number: int, seed: int | None = None, option: str = "--only") -> dict[str, Any]:
    """What run ``number`` shows; ``option``: who asks. Raises InputError, also where a function of the user's
    raises."""
    sweep, plan = load(path, seed)
    if (sweep.question or {}).get("kind") == "best":
        raise InputError(
            f"{option} {number}: {path} asks for the best, and a run's parameters are known once it was done; "
            f"orderlab runs {shlex.quote(sweep.output or 'FOLDER')} --replay ROUND/NUMBER does it again"
        )
    if number >= len(plan):
        raise InputError(f"{option} {number}: {path} has {len(plan)} runs, numbered from 0")
    run = plan.run(number)
    try:
        observed = subject_of(sweep.system).run(run.parameters, run.seed, None, "none")
    except Exception as error:
        if ":" not in sweep.system or isinstance(error, InputError):
            raise
        raise InputError(
            f"{option} {number}: {sweep.system} raised {described(error)}; correct the function"
        ) from error
    return {
        "run": number,
        "seed": run.seed,
        "parameters": run.parameters,
        "outcome": observed.outcome if observed.verdicts else None,
        "vacuous": observed.vacuous,
        "verdicts": dict(observed.verdicts),
        "witnesses": observed.witnesses,
        "metrics": dict(observed.metrics),
        "history_digest": observed.history_digest,
    }


PILOT_RUNS = 4
PILOT_S = 30.0
ESTIMATED_MAX = 2000


@dataclass(frozen=True)
class Preview:
    """What is known of a sweep that has not begun. ``cpu_s`` None: no run of the pilot came to its end."""

    runs: int
    points: int
    first: list[Run]
    pilot: list[Ended[Observed]]
    cpu_s: float | None
    cores: int

    @property
    def wall_s(self) -> float | None:
        """About how long it takes on so many cores, without start-up."""
        return None if self.cpu_s is None else self.cpu_s / self.cores


def preview(plan: Plan, cores: int, rows: int = 5) -> Preview:
    """Do a few runs, spread over the design, within PILOT_S seconds in all. Raises InputError."""
    subject = subject_of(plan.sweep.system)
    subject.warm_up()
    limits = plan.sweep.limits
    numbers = np.unique(np.linspace(0, len(plan) - 1, PILOT_RUNS).astype(int)).tolist()
    done: list[Ended[Any]] = []
    deadline = time.perf_counter() + PILOT_S
    while numbers and time.perf_counter() < deadline:
        most_s = min(limits.wall_s, max(0.1, deadline - time.perf_counter()))
        number = numbers.pop(0)
        done += isolated(lambda number: observe(plan, subject, number, None), [number], most_s, limits.memory_mib)
    measured = [(ended.item, ended.usage.wall_s) for ended in done if ended.status == "ok"]
    cpu_s = None
    if measured:
        some = np.unique(np.linspace(0, len(plan) - 1, ESTIMATED_MAX).astype(int))
        cpu_s = float(estimated(plan, some, measured, None).mean() * len(plan))
    first = [plan.run(number) for number in range(min(rows, len(plan)))]
    return Preview(len(plan), plan.points, first, done, cpu_s, cores)
