"""`orderlab simulate`: run a whole system in virtual time, measure it, and judge its history by every pipeline law."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orderlab.model.errors import InputError
from orderlab.model.verdict import Verdict, overall
from orderlab.program import EXIT
from orderlab.report.forms import REPORT_HELP

if TYPE_CHECKING:
    from orderlab.model.checkers.judge import Question
    from orderlab.model.history.events import EventBatch
    from orderlab.model.verdict import Outcome
    from orderlab.properties.simulation import Shrunk
    from orderlab.report.progress import ProgressLine
    from orderlab.report.report import Subject
    from orderlab.sim.systems.running import SimulationProgress
    from orderlab.sim.systems.settings import Settings
    from orderlab.sim.systems.sustainable import RateTrial

JUDGING = "judging the history by every law"
BELOW_MS, TOLERANCE, SHRINK_RUNS = 100.0, 0.02, 150
DRAIN_BOUND_MS_MAX = 86_400_000.0
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


def simulate(  # noqa: C901
    system: Annotated[str | None, typer.Argument(help=f"{', '.join(NAMES)}; --list shows their settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; --set overrides them.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the systems and their settings.")] = False,
    history: Annotated[Path | None, typer.Option(help="Keep the history: .parquet, .jsonl or .csv.")] = None,
    replications: Annotated[int, typer.Option(help="Independent runs; means then carry nominal 95 % intervals.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Write a timeline for Perfetto (Chrome trace events, JSON).")
    ] = None,
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
    allow_vacuous: Annotated[
        bool, typer.Option("--allow-vacuous", help="Exit 0, not 3, where no law was put to the test.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of every random draw; printed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every law, and how often it was put to the test.")
    ] = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
) -> None:
    """Simulate a broker system: throughput, latency, utilisation, and the verdict of every pipeline law.

    Exit code 0: every law that was put to the test held; 1: one was violated; 2: the input is unusable; 3: unknown, or
    vacuous: no law was put to the test, or not the one that was asked for (`drain`, by its bound).
    """
    from orderlab.model.checkers.judge import Question
    from orderlab.model.files import checked_place
    from orderlab.model.verdict import Outcome
    from orderlab.report.output import made_report, replayable, wanted_reports, write_reports
    from orderlab.report.simulation import judged_together, print_shrunk, with_smaller
    from orderlab.report.subjects import subject_of_simulation
    from orderlab.report.timeline_page import VerdictsShown, checked_timeline, run_to_compare, write_timeline
    from orderlab.report.verdicts import why_vacuous
    from orderlab.sim.engine.random_streams import replication_seed
    from orderlab.sim.systems.catalogue import SYSTEMS, settings_of
    from orderlab.sim.systems.series import recoveries_over, table_over
    from orderlab.sim.systems.settings import read_config

    if list_them:
        _print_catalogue(as_json)
        return
    if system is None:
        raise InputError(f"simulate: which system? one of {', '.join(SYSTEMS)}; --list shows their settings")
    given = {} if config is None else read_config(config)
    chosen = settings_of(system, {**given, **parsed(settings or [])})
    wanted = wanted_reports(report)
    if not SYSTEMS[system].has_rate and (sustainable or trace is not None):
        option = "--sustainable" if sustainable else "--trace"
        raise InputError(
            f"{option}: {system} has no publishers at a rate and no timeline, its producers wait for answers; "
            "leave it out"
        )
    if shrink and (sustainable or replications > 1):
        raise InputError(
            "--shrink: makes one run smaller; leave out --sustainable and --replications, and give the --seed that "
            "breaks a law"
        )
    if sustainable:
        if wanted:
            raise InputError("--report: --sustainable judges no law; leave one of them out")
        if (
            history is not None
            or trace is not None
            or timeline is not None
            or against is not None
            or replications != 1
            or drain_bound_ms is not None
        ):
            raise InputError(
                "simulate: --sustainable runs many times, keeps nothing of them, and judges no law; "
                "leave out --history, --trace, --timeline, --against, --replications, --drain-bound-ms"
            )
        _search(
            system,
            chosen,
            seed,
            BELOW_MS if below_ms is None else below_ms,
            TOLERANCE if tolerance is None else tolerance,
            as_json,
        )
        return
    for option, given_with, value in (
        ("--below-ms", "--sustainable", below_ms),
        ("--tolerance", "--sustainable", tolerance),
        ("--shrink-runs", "--shrink", shrink_runs),
    ):
        if value is not None and not (shrink and given_with == "--shrink"):
            raise InputError(f"{option} {value:g}: says how {given_with} searches; add {given_with}, or leave it out")
    if replications < 1:
        raise InputError(f"--replications {replications}: at least 1")
    if replications > 1 and trace is not None:
        raise InputError("--trace: shows one run; leave out --replications, or trace the seed that it prints")
    if replications > 1 and against is not None:
        raise InputError("--against: shows one run; leave out --replications")
    histories = (
        [history] * replications
        if history is None or replications == 1
        else [history.with_stem(f"{history.stem}-{number}") for number in range(replications)]
    )
    for each in histories:
        if each is not None:
            checked_place(f"--history {each}", each, is_read_again=True)
    if timeline is not None:
        checked_timeline(timeline)
    if trace is not None:
        checked_place(f"--trace {trace}", trace)
    _check_places(
        *(("--history", each) for each in histories),
        ("--trace", trace),
        ("--timeline", timeline),
        *(("--report", one.file) for one in wanted),
    )
    other_run = None if against is None else run_to_compare(against, system)
    window = None if trace is None else _window(trace_window, chosen)
    if trace is None and trace_window is not None:
        raise InputError("--trace-window: of which trace? add --trace FILE.json")
    if drain_bound_ms is not None and not 0 < drain_bound_ms <= DRAIN_BOUND_MS_MAX:
        raise InputError(
            f"--drain-bound-ms {drain_bound_ms:g}: a positive number of milliseconds, {DRAIN_BOUND_MS_MAX:g} (a "
            "day) at most"
        )
    bound_us = None if drain_bound_ms is None else round(drain_bound_ms * 1000)
    question = Question(drain_bound_us=bound_us, is_feed=SYSTEMS[system].is_feed)
    runs = []
    for number, place in enumerate(histories):
        runs.append(_run(system, chosen, replication_seed(seed, number), place, trace, window, question))
    told = [verdict for run in runs for verdict in run.verdicts]
    outcome = overall(told, question.named, allow_vacuous)
    subjects = [
        subject_of_simulation(run.result, run.verdicts, overall(run.verdicts, question.named, allow_vacuous))
        for run in runs
    ]
    series = [run.series for run in runs]
    if replications == 1:
        if timeline is not None:
            judged = VerdictsShown.once(subjects[0], runs[0].verdicts)
            write_timeline(timeline, f"{system} over time", seed, series[0], runs[0].report.get("recovery", []), judged)
        smaller = _shrunk(system, chosen, runs[0], question, shrink_runs or SHRINK_RUNS) if shrink else []
        commands = [(each, each.command(bound_us)) for each in smaller]
        told_smaller = {"shrunk": [{"command": command, **each.to_json()} for each, command in commands]}
        subjects = [with_smaller(subjects[0], commands, runs[0].result)]
        _print(
            replace(runs[0], result={**runs[0].result, "outcome": str(outcome), **(told_smaller if shrink else {})}),
            subjects[0],
            as_json,
            verbose,
            other_run,
        )
        if not as_json and outcome is Outcome.VIOLATED:
            print_shrunk(Console(), commands, runs[0].result, shrink)
    else:
        recovery = recoveries_over([run.report.get("recovery", []) for run in runs])
        joint = _print_replications(system, chosen, seed, outcome, runs, recovery, as_json)
        if timeline is not None:
            write_timeline(
                timeline,
                f"{system} over time",
                seed,
                table_over(series),
                recovery,
                judged_together(joint),
                replications,
                [*joint["warnings"], joint["unseen"]],
            )
    reason = why_vacuous(told, outcome, question.named)
    if reason is not None:
        typer.echo(reason, err=as_json)
    if wanted:
        write_reports(replayable(made_report("simulate", outcome, subjects, seed), wanted), wanted)
    raise typer.Exit(EXIT[outcome])


def _check_places(*wanted: tuple[str, Path | None]) -> None:
    taken: dict[Path, str] = {}
    for option, file in wanted:
        if file is not None and (other := taken.setdefault(file.resolve(), option)) != option:
            raise InputError(f"{option} {file}: what {other} asks for goes there; give each a file of its own")


def _shrunk(system: str, chosen: Settings, run: _Run, question: Question, runs_max: int) -> list[Shrunk]:
    """For each law that the run breaks, the smallest run that was found to break it too."""
    from orderlab.model.verdict import Outcome
    from orderlab.properties.simulation import shrunk
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
            shrunk(system, chosen, run.seed, law, question, runs_max, tell if line.is_shown else None) for law in broken
        ]
    finally:
        line.clear()
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class _Run:
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
) -> _Run:
    from orderlab.model.checkers.beside import JudgedBeside
    from orderlab.model.files import write_whole
    from orderlab.model.history.disk import HistoryWriter
    from orderlab.model.verdict import Outcome
    from orderlab.properties.simulation import located
    from orderlab.report.progress import COMPILING, ProgressLine
    from orderlab.sim.systems.catalogue import entry
    from orderlab.sim.systems.timeline import Tracer

    started = time.perf_counter()
    with ExitStack() as stack:
        path = history
        if path is None:  # judged from a file, so that memory does not grow with the run
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "history.parquet"
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
            line = ProgressLine()
            report = assembled.run(_telling(line) if line.is_shown else None)
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
            verdicts = located(verdicts, system, chosen, seed)
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
    return _Run(seed, result, report, verdicts, wall, assembled.series.table())


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
    runs: list[_Run],
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


def _search(system: str, chosen: Settings, seed: int, below_ms: float, tolerance: float, as_json: bool) -> None:
    from orderlab.report.simulation import print_ceiling, step_line
    from orderlab.sim.systems.sustainable import ceiling_json, sustainable_rate

    def show(step: RateTrial) -> None:
        typer.echo(step_line(step), err=True)

    ceiling = sustainable_rate(system, chosen, seed, below_ms, tolerance, show if sys.stderr.isatty() else None)
    result = {
        "system": system, "seed": seed, "below_ms": below_ms, "tolerance": tolerance, "settings": chosen.model_dump(),
        **ceiling_json(ceiling),
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(result))
    else:
        print_ceiling(Console(), result)


def _print(run: _Run, subject: Subject, as_json: bool, verbose: bool, other: dict[str, Any] | None) -> None:
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


def parsed(settings: list[str]) -> dict[str, str]:
    """`key=value` pairs. Raises InputError for anything else and for a key that is set twice."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f'--set {setting}: not a setting; write --set key=value, for instance "--set row=1m"')
        if key in found:
            raise InputError(f"--set {setting}: {key} is set twice; keep one")
        found[key] = value.strip()
    return found


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
