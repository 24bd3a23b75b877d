"""`orderlab simulate`: run a whole system in virtual time, measure it, and judge its history by every pipeline law."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orderlab.commands.options import (
    AllowVacuous,
    EveryLaw,
    Exclusion,
    OtherServer,
    Requirement,
    check_together,
    parsed,
    server_of,
)
from orderlab.exit_codes import EXIT
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome, Verdict, overall
from orderlab.report.forms import REPORT_HELP

if TYPE_CHECKING:
    from orderlab.model.checkers.judge import Question
    from orderlab.model.history.events import EventBatch
    from orderlab.properties.simulation_witness import Shrunk
    from orderlab.report.progress import ProgressLine
    from orderlab.report.report import Subject
    from orderlab.sim.systems.progress import SimulationProgress
    from orderlab.sim.systems.settings import Settings
    from orderlab.sim.systems.sustainable import RateTrial

JUDGING = "judging the history by every law"
BELOW_MS, TOLERANCE, SHRINK_RUNS = 100.0, 0.02, 150
DRAIN_BOUND_MS_MAX = 86_400_000.0
TRACE_HELP = "Write a timeline for Perfetto (Chrome trace events, JSON)."
SAYS_HOW = "{0} {{}}: says how {1} searches; add {1}, or leave it out"
NAMES = (
    "tbmq-p2p",
    "tbmq-postgres",
    "tbmq-jedis",
    "tbmq-lettuce",
    "tbmq-application",
    "tbmq-fan-out",
    "zaqar-watch",
    "zaqar-lua",
    "zaqar-race",
    "emqx-streams",
)
"""``SYSTEMS`` of `orderlab.sim.systems.catalogue`, which takes long to import, for the help; a test keeps them the
same."""


SEARCHES = "--sustainable runs many times, keeps nothing of them, and judges no law"
EXCLUSIONS = (
    Exclusion(
        "shrink",
        ("sustainable", "replications"),
        "--shrink: makes one run smaller; leave out --sustainable and --replications, and give the --seed that breaks "
        "a law",
    ),
    Exclusion("sustainable", ("report",), "--report: --sustainable judges no law; leave one of them out"),
    Exclusion(
        "sustainable",
        ("history", "trace", "timeline", "against", "replications", "drain_bound_ms"),
        f"simulate: {SEARCHES}; leave out --history, --trace, --timeline, --against, --replications, --drain-bound-ms",
    ),
    Exclusion(
        "replications",
        ("trace",),
        "--trace: shows one run; leave out --replications, or trace the seed that it prints",
    ),
    Exclusion("replications", ("against",), "--against: shows one run; leave out --replications"),
)
REQUIREMENTS = (
    Requirement("below_ms", "sustainable", SAYS_HOW.format("--below-ms", "--sustainable")),
    Requirement("tolerance", "sustainable", SAYS_HOW.format("--tolerance", "--sustainable")),
    Requirement("shrink_runs", "shrink", SAYS_HOW.format("--shrink-runs", "--shrink")),
    Requirement("trace_window", "trace", "--trace-window: of which trace? add --trace FILE.json"),
)


@dataclass(frozen=True)
class Plan:
    """What the command line asks for: the parameters of `simulate` by their names."""

    system: str | None = None
    settings: list[str] | None = None
    config: Path | None = None
    list_them: bool = False
    history: Path | None = None
    replications: int = 1
    trace: Path | None = None
    trace_window: str | None = None
    timeline: Path | None = None
    against: Path | None = None
    sustainable: bool = False
    below_ms: float | None = None
    tolerance: float | None = None
    drain_bound_ms: float | None = None
    shrink: bool = False
    shrink_runs: int | None = None
    allow_vacuous: bool = False
    seed: int = 0
    as_json: bool = False
    verbose: bool = False
    report: list[str] | None = None
    server: str | None = None

    def chosen(self) -> tuple[str, Settings]:
        """The system and its settings. Raises InputError."""
        from orderlab.sim.systems.catalogue import SYSTEMS, entry, settings_of
        from orderlab.sim.systems.settings import read_config

        if self.system is None:
            raise InputError(f"simulate: which system? one of {', '.join(SYSTEMS)}; --list shows their settings")
        given = {} if self.config is None else read_config(self.config)
        given |= parsed(self.settings or [], "row=1m")
        has_redis = "server" in entry(self.system).settings.model_fields
        if self.server is not None and not has_redis:
            raise InputError(f"--server {self.server}: there is no Redis in {self.system}; leave it out")
        if has_redis and (self.server is not None or "server" not in given):
            given["server"] = server_of(self.server).name
        chosen = settings_of(self.system, given)
        if not SYSTEMS[self.system].has_rate and (self.sustainable or self.trace is not None):
            option = "--sustainable" if self.sustainable else "--trace"
            raise InputError(
                f"{option}: {self.system} has no publishers at a rate and no timeline, its producers wait for answers; "
                "leave it out"
            )
        return self.system, chosen

    @property
    def drain_bound_us(self) -> int | None:
        """Raises InputError for what is no bound."""
        bound_ms = self.drain_bound_ms
        if bound_ms is not None and not 0 < bound_ms <= DRAIN_BOUND_MS_MAX:
            raise InputError(
                f"--drain-bound-ms {bound_ms:g}: a positive number of milliseconds, {DRAIN_BOUND_MS_MAX:g} (a day) at "
                "most"
            )
        return None if bound_ms is None else round(bound_ms * 1000)

    def histories(self) -> list[Path | None]:
        """Where the history of each run goes."""
        if self.history is None or self.replications == 1:
            return [self.history] * self.replications
        return [self.history.with_stem(f"{self.history.stem}-{number}") for number in range(self.replications)]

    def check_places(self, reports: Iterable[Path]) -> None:
        """Raises InputError where a file that is asked for cannot be written, before any work."""
        from orderlab.model.files import checked_place
        from orderlab.report.timeline_page import checked_timeline

        histories = self.histories()
        for each in histories:
            if each is not None:
                checked_place(f"--history {each}", each, is_read_again=True)
        if self.timeline is not None:
            checked_timeline(self.timeline)
        if self.trace is not None:
            checked_place(f"--trace {self.trace}", self.trace)
        taken: dict[Path, str] = {}
        for option, file in (
            *(("--history", each) for each in histories),
            ("--trace", self.trace),
            ("--timeline", self.timeline),
            *(("--report", each) for each in reports),
        ):
            if file is not None and (other := taken.setdefault(file.resolve(), option)) != option:
                raise InputError(f"{option} {file}: what {other} asks for goes there; give each a file of its own")


def simulate(
    system: Annotated[str | None, typer.Argument(help=f"{', '.join(NAMES)}; --list shows their settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; --set overrides them.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the systems and their settings.")] = False,
    history: Annotated[Path | None, typer.Option(help="Keep the history: .parquet, .jsonl or .csv.")] = None,
    replications: Annotated[int, typer.Option(help="Independent runs; means then carry nominal 95 % intervals.")] = 1,
    trace: Annotated[Path | None, typer.Option(help=TRACE_HELP)] = None,
    trace_window: Annotated[
        str | None, typer.Option(metavar="BEGIN:END", help="Of the trace, in simulated seconds; 20 ms after warm-up.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Write the run, or the mean of --replications, over time: .html or .parquet.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with a run that --json has told into this file.")
    ] = None,
    sustainable: Annotated[
        bool, typer.Option("--sustainable", help="Search the highest rate whose mean latency stays under a limit.")
    ] = False,
    below_ms: Annotated[
        float | None, typer.Option(help="With --sustainable: the limit.", show_default=str(BELOW_MS))
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="With --sustainable: how close to come, relatively.", show_default=str(TOLERANCE)),
    ] = None,
    drain_bound_ms: Annotated[
        float | None, typer.Option(help="Judge `drain`: how long after the last heal a backlog may last.")
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink", help="Of each law that breaks: search a smaller run that breaks it by the same cause."
        ),
    ] = False,
    shrink_runs: Annotated[
        int | None,
        typer.Option(min=1, help="With --shrink: so many runs at most for a law.", show_default=str(SHRINK_RUNS)),
    ] = None,
    allow_vacuous: AllowVacuous = False,
    seed: Annotated[int, typer.Option(min=0, help="Of every random draw; printed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    verbose: EveryLaw = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
    server: OtherServer = None,
) -> None:
    """Simulate a broker system: throughput, latency, utilisation, and the verdict of every pipeline law.

    Exit code 0: every law that was tested held; 1: one was violated; 2: the input is unusable; 3: unknown, or
    vacuous: no law was tested, or not the one that was asked for (`drain`, by its bound).
    """
    plan = Plan(**locals())
    if plan.list_them:
        _print_catalogue(plan.as_json)
        return
    name, chosen = plan.chosen()
    check_together(plan, EXCLUSIONS, REQUIREMENTS)
    if plan.sustainable:
        _search(plan, name, chosen)
    else:
        raise typer.Exit(EXIT[_simulate(plan, name, chosen)])


def _simulate(plan: Plan, system: str, chosen: Settings) -> Outcome:
    """Check all that is asked for before any work, run, judge, and report."""
    from orderlab.model.checkers.judge import Question
    from orderlab.report.output import made_report, replayable, wanted_reports, write_reports
    from orderlab.report.progress import ProgressLine
    from orderlab.report.subjects import subject_of_simulation
    from orderlab.report.timeline_page import run_to_compare
    from orderlab.report.verdicts import why_vacuous
    from orderlab.sim.engine.random_streams import replication_seed
    from orderlab.sim.systems.catalogue import SYSTEMS

    if plan.replications < 1:
        raise InputError(f"--replications {plan.replications}: at least 1")
    wanted = wanted_reports(plan.report)
    plan.check_places(each.file for each in wanted)
    other_run = None if plan.against is None else run_to_compare(plan.against, system)
    window = None if plan.trace is None else _window(plan.trace_window, chosen)
    question = Question(drain_bound_us=plan.drain_bound_us, is_feed=SYSTEMS[system].is_feed)
    runs, line = list[_RunOutcome](), ProgressLine()
    try:
        for number, place in enumerate(plan.histories()):
            line.name = f"replication {number + 1} of {plan.replications}" if plan.replications > 1 else ""
            seed = replication_seed(plan.seed, number)
            runs.append(_run(system, chosen, seed, place, plan.trace, window, question, line))
    except KeyboardInterrupt:
        if not runs:
            raise
        stopped = f"stopped after {len(runs)} of {plan.replications} replications; what follows is of these alone"
        typer.echo(f"\norderlab: {stopped}", err=True)
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    outcome = overall(verdicts, question.named, plan.allow_vacuous)
    if len(runs) < plan.replications and outcome is Outcome.HOLDS:
        outcome = Outcome.UNKNOWN
    subjects = [
        subject_of_simulation(run.result, run.verdicts, overall(run.verdicts, question.named, plan.allow_vacuous))
        for run in runs
    ]
    if plan.replications == 1:
        subjects = [_tell_one(plan, system, chosen, runs[0], outcome, subjects[0], question, other_run)]
    else:
        _tell_all(plan, system, chosen, runs, outcome)
    reason = why_vacuous(verdicts, outcome, question.named)
    if reason is not None:
        typer.echo(reason, err=plan.as_json)
    if wanted:
        write_reports(replayable(made_report("simulate", outcome, subjects, plan.seed), wanted), wanted)
    return outcome


def _tell_one(
    plan: Plan,
    system: str,
    chosen: Settings,
    run: _RunOutcome,
    outcome: Outcome,
    subject: Subject,
    question: Question,
    other_run: dict[str, Any] | None,
) -> Subject:
    """Print what one run came to, and smaller runs of what it breaks; the subject of a report, with them."""
    from orderlab.report.simulation import print_shrunk, with_smaller
    from orderlab.report.timeline_page import VerdictsShown, write_timeline

    if plan.timeline is not None:
        judged = VerdictsShown.once(subject, run.verdicts)
        write_timeline(
            plan.timeline, f"{system} over time", plan.seed, run.series, run.report.get("recovery", []), judged
        )
    smaller = _shrunk(system, chosen, run, question, plan.shrink_runs or SHRINK_RUNS) if plan.shrink else []
    commands = [(each, each.command(question.drain_bound_us)) for each in smaller]
    told = {"shrunk": [{"command": command, **each.to_json()} for each, command in commands]} if plan.shrink else {}
    subject = with_smaller(subject, commands, run.result)
    whole = replace(run, result={**run.result, "outcome": str(outcome), **told})
    _print(whole, subject, plan.as_json, plan.verbose, other_run)
    if not plan.as_json and outcome is Outcome.VIOLATED:
        print_shrunk(Console(), commands, run.result, plan.shrink)
    return subject


def _tell_all(plan: Plan, system: str, chosen: Settings, runs: list[_RunOutcome], outcome: Outcome) -> None:
    """Print what several runs came to together."""
    from orderlab.report.simulation import judged_together
    from orderlab.report.timeline_page import write_timeline
    from orderlab.sim.systems.series import recoveries_over, table_over

    recovery = recoveries_over([run.report.get("recovery", []) for run in runs])
    joint = _print_replications(system, chosen, plan.seed, outcome, runs, recovery, plan.as_json)
    if plan.timeline is not None:
        series = table_over([run.series for run in runs])
        write_timeline(
            plan.timeline,
            f"{system} over time",
            plan.seed,
            series,
            recovery,
            judged_together(joint),
            len(runs),
            [*joint["warnings"], joint["unseen"]],
        )


def _shrunk(system: str, chosen: Settings, run: _RunOutcome, question: Question, runs_max: int) -> list[Shrunk]:
    """For each law that the run breaks, the smallest run that was found to break it too."""
    from orderlab.properties.simulation_witness import shrunk
    from orderlab.report.progress import ProgressLine

    line = ProgressLine()
    broken = [verdict.law for verdict in run.verdicts if verdict.outcome is Outcome.VIOLATED]

    def tell(best: Shrunk) -> None:
        line.show(
            f"shrinking {best.verdict.law}: {best.runs} runs, {best.size['clients']:g} clients, "
            f"{best.size['messages']:g} messages"
        )

    try:
        found = [
            shrunk(system, chosen, run.seed, law, question, runs_max, tell if line.is_heard else None) for law in broken
        ]
    finally:
        line.clear()
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class _RunOutcome:
    """What one run came to."""

    seed: int
    result: dict[str, Any]
    report: dict[str, Any]
    verdicts: list[Verdict]
    wall: dict[str, float]
    series: list[dict[str, float | None]]


def _run(
    system: str,
    chosen: Settings,
    seed: int,
    history: Path | None,
    trace: Path | None,
    window: tuple[int, int] | None,
    question: Question,
    line: ProgressLine,
) -> _RunOutcome:
    from orderlab.model.checkers.judging_process import JudgedBeside
    from orderlab.model.files import scratch_folder, write_whole
    from orderlab.model.history.disk import HistoryWriter
    from orderlab.properties.simulation_witness import located, needed_faults
    from orderlab.report.progress import COMPILING
    from orderlab.sim.systems.catalogue import entry
    from orderlab.sim.systems.timeline import Tracer

    started = time.perf_counter()
    with ExitStack() as stack:
        path = history
        if path is None:  # judged from a file, so that memory does not grow with the run
            path = stack.enter_context(scratch_folder()) / "history.parquet"
        sinks: list[Callable[[EventBatch], None]] = []
        assembled = entry(system).assemble(chosen, seed, sinks)
        tracer = None if window is None else Tracer(*window)
        if tracer is not None:
            tracer.attach(assembled.world)
            sinks.append(tracer.sink)
        assembled_s = time.perf_counter() - started
        names = assembled.names()
        beside = stack.enter_context(JudgedBeside(names, question))
        with HistoryWriter(path, names) as writer:
            sinks += (writer.write, beside.write)
            report = assembled.run(_telling(line) if line.is_heard else None)
            if not report["counts"].get("published"):
                raise InputError(
                    f"simulate {system}: nobody published anything in this run; set duration_s or rate higher"
                )
        ran_s = time.perf_counter() - started - assembled_s
        line.show(JUDGING)
        stack.callback(line.clear)
        with line.telling_compilation():
            verdicts, rows = beside.verdicts(path, lambda is_on: line.show(COMPILING if is_on else JUDGING))
        if any(verdict.outcome is Outcome.VIOLATED for verdict in verdicts):
            line.show("running it again, to see what became of the messages that break laws")
            needed = needed_faults(verdicts, rows, system, chosen, seed, question)
            verdicts = located(verdicts, system, chosen, seed, needed)
    if tracer is not None and trace is not None:
        write_whole(trace, json.dumps(tracer.to_json(), separators=(",", ":")).encode())
    wall = {
        "assembling_s": round(assembled_s, 3),
        "running_s": round(ran_s, 3),
        "judging_s": round(time.perf_counter() - started - assembled_s - ran_s, 3),
    }
    result: dict[str, Any] = {
        "system": system, "seed": seed, "outcome": str(overall(verdicts, question.named)),
        "history_digest": assembled.digest, "history_rows": rows, "settings": chosen.model_dump(), **report,
    }  # fmt: skip
    return _RunOutcome(seed, result, report, verdicts, wall, assembled.series.table())


def _window(text: str | None, chosen: Settings) -> tuple[int, int]:
    """By default the first 20 ms after the warm-up."""
    from orderlab.sim.systems.timeline import parse_window

    begin_s = float(getattr(chosen, "warm_up_s", 0.0))
    try:
        window = parse_window(text, (begin_s, begin_s + 0.02))
    except ValueError as error:
        raise InputError(f"--trace-window {text}: {error}") from None
    over_s = sum(float(getattr(chosen, part, 0.0)) for part in ("warm_up_s", "duration_s", "drain_s"))
    if window[0] >= over_s * 1e6:
        raise InputError(f"--trace-window {text}: the run is over after {over_s:g} s; let it begin before that")
    return window


def _print_replications(
    system: str,
    chosen: Settings,
    seed: int,
    outcome: Outcome,
    runs: list[_RunOutcome],
    recovery: list[dict[str, Any]],
    as_json: bool,
) -> dict[str, Any]:
    """Print what all runs came to, and return it."""
    from orderlab.model.verdict import joint_verdicts
    from orderlab.report.simulation import print_replications, shown_means
    from orderlab.sim.engine.few_runs import evidence_of
    from orderlab.sim.engine.statistics import report_means

    reports = [{name: each for name, each in run.report.items() if name != "recovery"} for run in runs]
    means = report_means(reports)
    evidence = evidence_of(reports, shown_means(means))
    result = {
        "system": system,
        "seed": seed,
        "outcome": str(outcome),
        "settings": chosen.model_dump(),
        "warm_up": {
            "rule": "fixed",
            "cut_s": runs[0].report["warm_up"]["cut_s"],
            "settled_runs": sum(bool(run.report["warm_up"]["has_settled"]) for run in runs),
        },
        "means": means,
        "warnings": evidence.warnings,
        "unseen": evidence.unseen,
        "recovery": recovery,
        "verdicts": joint_verdicts([(run.seed, run.verdicts) for run in runs]),
        "replications": [
            {
                "seed": run.seed,
                "outcome": run.result["outcome"],
                "history_digest": run.result["history_digest"],
                "history_rows": run.result["history_rows"],
                "verdicts": [verdict.to_json() for verdict in run.verdicts],
                **run.report,
            }
            for run in runs
        ],
    }
    if as_json:
        typer.echo(json.dumps(result))
    else:
        print_replications(Console(), result, outcome)
    return result


def _search(plan: Plan, system: str, chosen: Settings) -> None:
    from orderlab.report.progress import ProgressLine
    from orderlab.report.simulation import print_ceiling, progress_line, step_line
    from orderlab.sim.systems.sustainable import ceiling_json, sustainable_rate

    line, runs, last = ProgressLine(), 0, ""

    def show(step: RateTrial) -> None:
        nonlocal runs, last
        runs, last = runs + 1, f", the last: {step_line(step)}"
        line.clear()
        if line.is_shown:  # each run is worth a line of its own to who looks
            typer.echo(step_line(step), err=True)

    def tell(rate_per_s: float, progress: SimulationProgress) -> None:
        line.show(f"run {runs + 1}, {rate_per_s:,.0f} msg/s, at {progress_line(progress)}{last}")

    below_ms = BELOW_MS if plan.below_ms is None else plan.below_ms
    tolerance = TOLERANCE if plan.tolerance is None else plan.tolerance
    try:
        ceiling = sustainable_rate(system, chosen, plan.seed, below_ms, tolerance, show, tell)
    finally:
        line.clear()
    result = {
        "system": system, "seed": plan.seed, "below_ms": below_ms, "tolerance": tolerance,
        "settings": chosen.model_dump(), **ceiling_json(ceiling),
    }  # fmt: skip
    if plan.as_json:
        typer.echo(json.dumps(result))
    else:
        print_ceiling(Console(), result)


def _print(run: _RunOutcome, subject: Subject, as_json: bool, verbose: bool, other: dict[str, Any] | None) -> None:
    from orderlab.report.simulation import print_comparison, print_simulation
    from orderlab.report.timeline_page import compared, laws_changed

    told: dict[str, Any] = {**run.result, "verdicts": [verdict.to_json() for verdict in run.verdicts]}
    if as_json:
        if other is not None:
            told["against"] = [
                dict(zip(("figure", "before", "now"), row, strict=True)) for row in compared(told, other)
            ]
            told["against_laws"] = laws_changed(told["verdicts"], other["verdicts"]) if "verdicts" in other else None
        typer.echo(json.dumps({**told, "wall": run.wall}))
        return
    print_simulation(Console(), run.result, run.wall, subject, run.verdicts, verbose)
    if other is not None:
        print_comparison(Console(), other, told)


def _print_catalogue(as_json: bool) -> None:
    from orderlab.sim.faults import FAULTS
    from orderlab.sim.systems.catalogue import SYSTEMS

    described = {
        name: {
            "summary": found.summary,
            "rows": list(found.rows),
            "settings": found.settings.model_json_schema().get("properties", {}),
        }
        for name, found in SYSTEMS.items()
    }
    if as_json:
        typer.echo(json.dumps(described))
        return
    for name, about in described.items():
        typer.echo(f"{name}: {about['summary']}")
        if about["rows"]:
            typer.echo(f"    row: one of {', '.join(about['rows'])}")
        for key, schema in about["settings"].items():
            typer.echo(f"    {key} = {schema.get('default')}")
    typer.echo(
        'faults, for --set faults="NAME@SECONDS:TARGET:DURATION" (the last two may be left out) and '
        'fault_rates="NAME=RATE/s":'
    )
    for name, kind in FAULTS.items():
        needs = f" Needs {kind.needs}." if kind.needs else ""
        typer.echo(f"    {name}: {kind.summary}{needs}")


def _telling(line: ProgressLine) -> Callable[[SimulationProgress], None]:
    from orderlab.report.simulation import progress_line

    return lambda progress: line.show(progress_line(progress), progress.simulated_s / progress.total_s)
