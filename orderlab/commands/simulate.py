"""`orderlab simulate`: run a whole system in virtual time, measure it, and judge its history by every pipeline law."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from model.checkers.judge import Question, judge
from model.errors import InputError
from model.history import EventBatch
from model.history_io import HistoryFile, HistoryWriter
from model.verdict import Verdict, worst
from orderlab.exit_codes import EXIT
from orderlab.render.simulation import print_simulation, progress_line
from orderlab.render.sustainable import print_ceiling, step_line
from sim.systems.catalogue import SYSTEMS, entry, settings_of
from sim.systems.progress import Progress
from sim.systems.settings import Settings, read_config
from sim.systems.sustainable import Step, ceiling_json, sustainable_rate


def simulate(
    system: Annotated[str | None, typer.Argument(help=f"{', '.join(SYSTEMS)}; --list shows their settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; --set overrides them.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the systems and their settings.")] = False,
    history: Annotated[Path | None, typer.Option(help="Keep the history: .parquet, .jsonl or .csv.")] = None,
    sustainable: Annotated[
        bool, typer.Option("--sustainable", help="Search the highest rate whose mean latency stays under a limit.")
    ] = False,
    below_ms: Annotated[float, typer.Option(help="With --sustainable: the limit.")] = 100.0,
    tolerance: Annotated[float, typer.Option(help="With --sustainable: how close to come, relatively.")] = 0.02,
    seed: Annotated[int, typer.Option(help="Of every random draw; printed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate a broker system: throughput, latency, utilisation, and the verdict of every pipeline law.

    Exit code 0: every law held; 1: one was violated; 2: the input is unusable; 3: unknown.
    """
    if list_them:
        _print_catalogue(as_json)
        return
    if system is None:
        raise InputError(f"simulate: which system? one of {', '.join(SYSTEMS)}; --list shows their settings")
    given = {} if config is None else read_config(config)
    chosen = settings_of(system, {**given, **parsed(settings or [])})
    if sustainable:
        if history is not None:
            raise InputError("simulate: --sustainable runs many times and keeps no history; leave out --history")
        _search(system, chosen, seed, below_ms, tolerance, as_json)
        return
    started = time.perf_counter()
    with ExitStack() as stack:
        path = history
        if path is None:  # judged from a file, so that memory does not grow with the run
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "history.parquet"
        sinks: list[Callable[[EventBatch], None]] = []
        assembled = entry(system).assemble(chosen, seed, sinks)
        assembled_s = time.perf_counter() - started
        with HistoryWriter(path, assembled.names()) as writer:
            sinks.append(writer.write)
            report = assembled.run(_show_progress if sys.stderr.isatty() else None)
        ran_s = time.perf_counter() - started - assembled_s
        if sys.stderr.isatty():
            typer.echo("\r\x1b[K", err=True, nl=False)
        verdicts, rows = judge(HistoryFile(path), Question())
    wall = {
        "assembling_s": round(assembled_s, 3),
        "running_s": round(ran_s, 3),
        "judging_s": round(time.perf_counter() - started - assembled_s - ran_s, 3),
    }
    outcome = worst(verdict.outcome for verdict in verdicts)
    result: dict[str, Any] = {
        "system": system, "seed": seed, "outcome": str(outcome), "history_digest": assembled.digest,
        "history_rows": rows, "settings": chosen.model_dump(), **report,
    }  # fmt: skip
    _print(result, wall, verdicts, as_json)
    raise typer.Exit(EXIT[outcome])


def _search(system: str, chosen: Settings, seed: int, below_ms: float, tolerance: float, as_json: bool) -> None:
    def show(step: Step) -> None:
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


def _print(result: dict[str, Any], wall: dict[str, float], verdicts: list[Verdict], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**result, "verdicts": [verdict.to_json() for verdict in verdicts], "wall": wall}))
        return
    print_simulation(Console(), result, wall, verdicts)


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


def _show_progress(progress: Progress) -> None:
    typer.echo(f"\r\x1b[K{progress_line(progress)}", err=True, nl=False)
