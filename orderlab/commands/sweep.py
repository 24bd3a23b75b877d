"""`orderlab sweep`: many simulations of a sweep file on Spark, resumed where an earlier start was stopped."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from orderlab.exit_codes import EXIT, interrupted_by, leave
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome

if TYPE_CHECKING:
    from orderlab.spark_sweeps.questions.answer import Answer
    from orderlab.spark_sweeps.results.folder import ResultFolder
    from orderlab.spark_sweeps.runs.job import RunsProgress, Summary, SweepOptions
    from orderlab.spark_sweeps.runs.workers import Engine

ENGINES = ("spark", "pool")
Found = TypeVar("Found")


def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file (.toml); spark_sweeps/examples holds some.")],
    master: Annotated[str | None, typer.Option(help="Of Spark; local[*] by default.")] = None,
    engine: Annotated[str, typer.Option(help="spark, or pool: processes of this machine, without Java.")] = "spark",
    output: Annotated[str | None, typer.Option(help="Folder of the results, instead of the file's own.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do failed runs again.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed run.")] = False,
    max_failures: Annotated[int | None, typer.Option(min=1, help="Stop when so many runs have failed.")] = None,
    costs: Annotated[
        str | None, typer.Option(help="Results of an earlier sweep: its run times say what is long.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Write report/index.html and the tables, too.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run nothing: show how a sweep of this file goes, here or on a cluster.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and about how long.")] = False,
    only: Annotated[int | None, typer.Option(min=0, help="Do this one run here, now, and print its row.")] = None,
    allow_vacuous: Annotated[
        bool, typer.Option("--allow-vacuous", help="Exit 0, not 3, where runs tested no law, or have none.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the file's own; printed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a sweep file: every run a row with its parameters, metrics, verdicts, and the command that replays it.

    A file with a table `question` is answered: capacity, sensitivity, risk, rare-event, cheapest, best, comparison
    (notes/questions.md). The same command goes on where it was stopped. Exit code 0: every run came to its end and held
    every law; 1: a run violates one; 2: the input is unusable; 3: runs failed, were not done, or left their laws
    unknown (none was tested, or there is none: --allow-vacuous); 130: interrupted. With a question 1: its
    target is missed; 3: it stayed open.
    """
    from orderlab.extras import find
    from orderlab.spark_sweeps.questions.answer import answer
    from orderlab.spark_sweeps.runs.job import SweepOptions, load, run_loaded

    if engine not in ENGINES:
        raise InputError(f"--engine {engine}: no such engine; it is one of {', '.join(ENGINES)}")
    if report:
        find("jinja2", "--report")
    if output is not None and not output.strip():
        raise InputError("--output: empty; name a folder")
    if any("\udc80" <= character <= "\udcff" for character in output or ""):
        raise InputError(f"--output {output!a}: bytes that are no UTF-8; name another folder")
    if watch:
        _watch(file, output, report)
        return
    if only is not None:
        raise typer.Exit(_do_only(file, only, seed, as_json, allow_vacuous))
    options = SweepOptions(output, retry_failed, fail_fast, max_failures, costs, seed)
    if dry_run:
        _dry_run(file, options, as_json)
        return
    sweep_file, plan = load(file, seed, output)
    question = sweep_file.question
    if question is None:
        summary = _shown(lambda show: run_loaded(file, sweep_file, plan, _maker(engine, master), options, show))
        raise typer.Exit(EXIT[_print_runs(summary, report, allow_vacuous, as_json)])
    found = _shown(lambda show: answer(file, sweep_file, plan, _maker(engine, master), show, options))
    if report:
        from orderlab.report.answer_page import write_answer_page

        typer.echo(f"report: {write_answer_page(found, sweep_file)}", err=True)
    _print_answer(found, question, as_json)
    raise typer.Exit(EXIT[found.outcome])


def _watch(file: Path, output: str | None, with_page: bool) -> None:
    """Show the sweep of a file from what it has committed, until it is done."""
    from orderlab.report.sweep_watch import PAGE, watch
    from orderlab.spark_sweeps.results.watching import FolderWatch
    from orderlab.spark_sweeps.sweep_file.specification import read_sweep

    sweep_file = read_sweep(file)
    folder = Path(output) if output else sweep_file.folder
    if with_page:
        typer.echo(f"page: {folder / PAGE}, as soon as there are rows", err=True)
    watch(FolderWatch(folder, sweep_file.question is not None), with_page)


def _shown(work: Callable[[Callable[[RunsProgress], None] | None], Found]) -> Found:
    """What ``work`` returns, with a line of progress; an interruption ends the process, and says how it goes on."""
    from orderlab.report.progress import ProgressLine
    from orderlab.report.sweep import progress_line

    line = ProgressLine()
    known = ""

    def show(progress: RunsProgress) -> None:
        nonlocal known
        text, done = progress_line(progress)
        known = f" at {text}"
        line.show(text, done)

    try:
        return work(show)
    except KeyboardInterrupt as error:
        goes_on = f"what is committed is kept, and the same command goes on: {' '.join(_command())}"
        typer.echo(f"\nstopped{known}; {goes_on}", err=True)
        leave(interrupted_by(error))
    finally:
        line.clear()


def _print_runs(summary: Summary, report: bool, allow_vacuous: bool, as_json: bool) -> Outcome:
    """The outcome of a sweep without a question, printed."""
    from orderlab.report.sweep import print_summary

    if report:
        from orderlab.report.sweep_page import write_report

        typer.echo(f"report: {write_report(summary.folder)}", err=True)
    outcome = outcome_of(summary, allow_vacuous)
    if as_json:
        typer.echo(json.dumps(summary.to_json()))
    else:
        print_summary(Console(), summary, outcome)
    if outcome is Outcome.UNKNOWN and outcome_of(summary, allow_vacuous=True) is Outcome.HOLDS:
        typer.echo(
            f"vacuous: {summary.vacuous:,} runs tested no law (a function has none unless it returns "
            "verdicts), so the outcome is unknown (exit code 3); --allow-vacuous makes it 0",
            err=as_json,
        )
    return outcome


def outcome_of(summary: Summary, allow_vacuous: bool = False) -> Outcome:
    """Of a sweep as a whole. `allow_vacuous` forgives runs of which no law was tested, or which have none."""
    if summary.counts.violated:
        return Outcome.VIOLATED
    unknown = summary.unknown - (summary.vacuous if allow_vacuous else 0)
    if summary.counts.failed or unknown or summary.counts.rows < summary.runs:
        return Outcome.UNKNOWN
    return Outcome.HOLDS


def _print_answer(found: Answer, asked: Mapping[str, Any], as_json: bool) -> None:
    from orderlab.report.sweep import print_answer

    if as_json:
        told = {
            "kind": found.kind,
            "seed": found.seed,
            "folder": str(found.folder),
            "digest": found.digest,
            "rows": found.rows,
            "warnings": found.warnings,
        }
        typer.echo(json.dumps({**told, "notes": found.notes, "outcome": str(found.outcome)}))
    else:
        print_answer(Console(), found, asked)


def _maker(engine: str, master: str | None) -> Callable[[ResultFolder], Engine]:
    def make(folder: ResultFolder) -> Engine:
        if engine == "pool":
            from orderlab.spark_sweeps.runs.workers import PoolEngine

            return PoolEngine()
        from orderlab.spark_sweeps.spark.session import SparkEngine

        return SparkEngine(master, folder.path / "spark.log")

    return make


def _do_only(file: Path, number: int, seed: int | None, as_json: bool, allow_vacuous: bool) -> int:
    from orderlab.report.sweep import print_run
    from orderlab.spark_sweeps.runs.job import single_run

    begun = time.perf_counter()
    row = single_run(file, number, seed)
    if as_json:
        typer.echo(json.dumps(row))
    else:
        print_run(Console(), row, time.perf_counter() - begun)
    outcome = Outcome(row["outcome"] or "unknown")
    return EXIT[Outcome.HOLDS if row["vacuous"] and allow_vacuous else outcome]


def _dry_run(file: Path, options: SweepOptions, as_json: bool) -> None:
    from orderlab.platform import cores
    from orderlab.report.sweep import print_preview
    from orderlab.spark_sweeps.questions.answer import folder_of_question, needs_of, usable_question
    from orderlab.spark_sweeps.runs.costs import model_of_earlier
    from orderlab.spark_sweeps.runs.job import folder_of, insist_on_needs, load, preview

    sweep_file, plan = load(file, options.seed, options.output)
    if options.costs is not None:
        model_of_earlier(options.costs)
    asked = None if sweep_file.question is None else usable_question(file, sweep_file, plan)
    folder, manifest = folder_of(sweep_file) if asked is None else folder_of_question(asked, sweep_file)
    folder.check(manifest)
    found = preview(plan, cores())
    if asked is not None:
        ended = [run.result for run in found.pilot if run.result is not None and run.result.outcome != "violated"]
        insist_on_needs(str(file), needs_of(asked), {name for result in ended for name in result.metrics})
    if as_json:
        shown: dict[str, Any] = {
            "file": str(file),
            "seed": sweep_file.seed,
            "runs": found.runs,
            "points": found.points,
            "cores": found.cores,
            "estimated_cpu_s": found.cpu_s,
            "estimated_wall_s": found.wall_s,
            "pilot": [
                {"run": one.item, "status": one.status, "error": one.error, "wall_s": one.usage.wall_s}
                for one in found.pilot
            ],
            "first": [{"run": run.number, "seed": run.seed, "parameters": run.parameters} for run in found.first],
        }
        typer.echo(json.dumps(shown))
    else:
        print_preview(Console(), found, plan, str(file))


def _command() -> list[str]:
    return ["orderlab", *sys.argv[1:]]
