"""`orderlab race`: client code in every order of its commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from orderlab.commands.options import Expect, OtherServer, server_of
from orderlab.exit_codes import EXIT, tell
from orderlab.report.forms import EXPORTS, REPORT_HELP

CLIENTS_MAX = 4
"""Programs of other languages that run at once."""
RACE_EXPORTS = tuple(form for form in EXPORTS if form != "redis-cli")
EXPORT_HELP = f"Write the schedule for others: FORM=FILE, FORM one of {', '.join(RACE_EXPORTS)}; may be repeated."

if TYPE_CHECKING:
    from pathlib import Path

    from orderlab.properties.clients.processes import Programs
    from orderlab.properties.clients.race import RaceVerdict
    from orderlab.properties.clients.scenario import Scenario
    from orderlab.report.output import Wanted


def race(
    named: Annotated[
        str | None, typer.Argument(metavar="PATH[:NAME]", help="A Python file with scenarios, or one of them.")
    ] = None,
    effort: Annotated[str, typer.Option(help="quick, normal or thorough: executions at most.")] = "normal",
    trouble: Annotated[int, typer.Option(min=0, max=3, help="Faults in one execution at most.")] = 0,
    fault: Annotated[list[str] | None, typer.Option(help="Only this fault may strike; may be repeated.")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="0,1,0!FAULT", help="Make these steps alone, and show the keys after each.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random walks where a search is not exhausted.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
    export: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=EXPORT_HELP)] = None,
    command: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS", help="In place of PATH: a program of any language; repeated, one for each client."
        ),
    ] = None,
    clients: Annotated[
        int, typer.Option(min=1, max=CLIENTS_MAX, help="With one --command: so many processes of it.")
    ] = 2,
    setup: Annotated[str, typer.Option(metavar="WORDS", help="With --command: a program that runs first.")] = "",
    check: Annotated[
        str,
        typer.Option(
            metavar="WORDS", help="With --command: a program asked at the end, which exits with 0 if all is well."
        ),
    ] = "",
    expect: Expect = "broken",
    server: OtherServer = None,
) -> None:
    """Run client code on the kernel in every order of its commands, and judge what comes of it.

    The file is Python and runs with your rights. Exit code 0: holds; 1: violated; 2: unusable; 3: not exhausted.
    """
    from orderlab.model.errors import InputError
    from orderlab.properties.clients.orders import EFFORTS

    if effort not in EFFORTS:
        raise InputError(f"--effort {effort}: unknown; choose {', '.join(EFFORTS)}")
    if fault and not trouble:
        raise InputError(f"--fault {fault[0]}: no fault may strike; add --trouble 1")
    if command is not None:
        if named or export:
            raise InputError("--command: takes no PATH and no --export; leave them out")
        if len(command) > CLIENTS_MAX:
            raise InputError(
                f"--command: {len(command)} programs; name at most {CLIENTS_MAX}, as their orders multiply"
            )
        from orderlab.properties.clients.processes import Programs

        programs = Programs(tuple(command if len(command) > 1 else command * clients), setup, check, server_of(server))
        raise typer.Exit(_race_processes(programs, effort, trouble, fault or (), schedule, as_json, report))
    if setup or check:
        raise InputError("--setup, --check: for programs; name them by --command, or write setup= in the scenario")
    if named is None:
        raise InputError("race: write a Python file with scenarios, or --command with a program")
    raise typer.Exit(
        _race_scenarios(named, effort, trouble, fault or (), schedule, seed, as_json, report, export, expect, server)
    )


def _race_scenarios(
    named: str, effort: str, trouble: int, faults: Sequence[str], schedule: str | None, seed: int, as_json: bool,
    report: list[str] | None, export: list[str] | None, expect: str, server: str | None,
) -> int:  # fmt: skip
    from pathlib import Path

    from orderlab.model.errors import InputError
    from orderlab.model.verdict import worst
    from orderlab.properties.clients import race as engine
    from orderlab.properties.clients.runs import controlled
    from orderlab.properties.clients.scenario import load
    from orderlab.report.output import wanted_files, wanted_reports

    failed: list[Exception] = []
    wanted, exports = wanted_reports(report), wanted_files("--export", export, RACE_EXPORTS)
    path = named.partition(".py:")[0].removesuffix(".py") + ".py"
    with redirect_stdout(sys.stderr):  # what code of the user's prints is no part of the output
        with controlled():
            scenarios = [replace(each, server=server_of(server, each.server)) for each in load(named)]
        if schedule is not None:
            if len(scenarios) > 1:
                raise InputError(f"--schedule: {named} has {len(scenarios)} scenarios; name one, as FILE.py:NAME")
            verdicts = [engine.replayed(scenarios[0], schedule)]
        else:
            scenarios, verdicts, failed = _judged(scenarios, effort, trouble, seed, tuple(faults))
    outcome = worst(verdict.outcome for verdict in verdicts)
    if wanted:
        _report(verdicts, path, seed, effort, wanted)
    if exports:
        _export(scenarios, verdicts, Path(path), exports, expect)
    if as_json:
        print(json.dumps({"seed": seed, "file": path, "verdicts": [verdict.to_json() for verdict in verdicts]}))
    else:
        lines = [line for verdict in verdicts for line in engine.lines_of(verdict, schedule is not None)]
        print("\n".join([*lines, f"seed {seed}"]))
    for error in failed[1:]:
        tell("orderlab race", str(error))
    if failed:
        raise failed[0]
    return EXIT[outcome]


def _report(verdicts: Sequence[RaceVerdict], path: str, seed: int, effort: str, wanted: Sequence[Wanted]) -> None:
    from orderlab.model.verdict import worst
    from orderlab.report.output import made_report, write_reports
    from orderlab.report.races import subject_of_race

    subjects = [subject_of_race(verdict, path) for verdict in verdicts]
    outcome = worst(verdict.outcome for verdict in verdicts)
    write_reports(made_report("race", outcome, subjects, seed, effort), wanted)


def _race_processes(
    programs: Programs, effort: str, trouble: int, faults: Sequence[str], schedule: str | None, as_json: bool,
    report: list[str] | None,
) -> int:  # fmt: skip
    from orderlab.properties.clients.process_orders import race_processes, replayed_processes
    from orderlab.report.output import made_report, wanted_reports, write_reports
    from orderlab.report.races import subject_of_processes

    wanted = wanted_reports(report)
    if schedule is not None:
        verdict = replayed_processes(programs, schedule)
    else:
        verdict = race_processes(programs, effort, trouble, faults)
    if wanted:
        write_reports(
            made_report("race", verdict.outcome, [subject_of_processes(verdict, programs)], 0, effort), wanted
        )
    told = " | ".join(dict.fromkeys(programs.clients))
    if as_json:
        print(json.dumps({"command": told, "server": programs.server.name, **verdict.to_json()}))
    else:
        print(f"{told}: {verdict.outcome}" + (f" ({verdict.law})" if verdict.law else ""))
        if verdict.law:
            print(f"  {verdict.what}")
        print(f"  {verdict.how_far}")
        for each in programs.server.assumed():
            print(f"  assumed: {each}")
        for number, step in enumerate(verdict.steps, 1):
            print(f"  {number:3}. {step}")
        if verdict.law and schedule is None:
            print(f"again: the same command with --schedule {verdict.schedule!r}")
    return EXIT[verdict.outcome]


def _judged(
    scenarios: Sequence[Scenario], effort: str, trouble: int, seed: int, faults: Sequence[str]
) -> tuple[list[Scenario], list[RaceVerdict], list[Exception]]:
    """The scenarios that can be judged with their verdicts, and what is wrong with the others. Raises InputError where
    none can."""
    from orderlab.model.errors import InputError
    from orderlab.properties.clients import race as engine

    kept: list[Scenario] = []
    verdicts: list[RaceVerdict] = []
    failed: list[Exception] = []
    for each in scenarios:
        try:
            verdicts.append(engine.race(each, effort, trouble, seed, faults))
            kept.append(each)
        except InputError as error:
            failed.append(error)
    if not kept:
        raise failed[0]
    return kept, verdicts, failed


def _export(
    scenarios: Sequence[Scenario], verdicts: Sequence[RaceVerdict], file: Path, wanted: Sequence[Wanted], expect: str
) -> None:
    """Write the first violated schedule in the forms that were asked for."""
    from orderlab.commands.replay_race import write_race

    for scenario, verdict in zip(scenarios, verdicts, strict=True):
        if verdict.law:
            write_race(scenario, verdict, file, wanted, expect)
            return
    tell("orderlab race", "--export: no law is broken, and there is no schedule to write")
