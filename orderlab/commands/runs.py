"""`orderlab runs`: the rows of a sweep, filtered, sorted, queried, written out; one of its runs again."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.spark_sweeps.results.run_table import RunTable

SHOWN = 20
COLUMNS = 6
"""Of parameters, metrics and errors on the screen, where nobody says which."""


def runs(
    folder: Annotated[Path, typer.Argument(help="Output folder of a sweep, or of a question with its rounds.")],
    where: Annotated[
        list[str] | None, typer.Option(help="COLUMN OP VALUE with ==, !=, <, <=, >, >=, or ~ (contains); all hold.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names with commas; by default what varies. 'all', 'names': list them.")
    ] = None,
    sort: Annotated[str | None, typer.Option(help="By a column instead of the runs' numbers.")] = None,
    descending: Annotated[bool, typer.Option("--descending", help="The greatest first.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="So many rows at most; 20 on the screen, else all.")] = None,
    sql: Annotated[str | None, typer.Option(help="A query of DuckDB over the table runs, for what is left.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the rows there: .parquet or .csv.")] = None,
    replay: Annotated[str | None, typer.Option(help="RUN or ROUND/RUN: do it again here, and compare.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at the runs of a sweep, from its files alone: also of one that still runs, here or on a cluster.

    Each row has its parameters, metrics, a column for each law, and the command that replays it. Exit code 0: done
    (with --replay: the run shows what its row says); 1: the replayed run shows something else; 2: unusable input.
    """
    from orderlab.extras import find
    from orderlab.spark_sweeps.results.run_table import RunTable, condition_of, export_place, queried, subschema

    if replay is not None:
        raise typer.Exit(_replay(folder, replay, as_json))
    if sql is not None:
        find("duckdb", "--sql")
    if export is not None:
        export_place(export)
    conditions = [condition_of(text) for text in where or ()]
    table = RunTable(folder)
    if columns == "names":
        typer.echo(json.dumps(table.columns) if as_json else "\n".join(table.columns))
        return
    is_shown = export is None and not as_json
    if sql is not None:
        with queried(table, conditions, sql) as (schema, answered):
            _give(folder, answered, schema, limit, export, as_json)
        return
    if is_shown or limit is not None:
        rows, met = table.rows(conditions, sort, descending, SHOWN if limit is None else limit)
        rows = rows.select(_columns(table, columns, rows, is_shown))
        _give(folder, [rows], rows.schema, None, export, as_json, met)
        return
    names = _columns(table, columns, None, is_shown)
    in_order = table.in_order(conditions, sort, descending, names)
    _give(folder, in_order, subschema(table.schema, names), None, export, as_json)


def _give(
    folder: Path, tables: Iterable[Any], schema: Any, limit: int | None, export: Path | None, as_json: bool,
    met: int | None = None,
) -> None:  # fmt: skip
    """Export rows, print them as JSON, or both; else show them. All appear whole, and are held some at a time unless
    they are shown. ``met``: how many there are, where these are not all."""
    from orderlab.spark_sweeps.results.run_table import export as export_rows
    from orderlab.spark_sweeps.results.run_table import joined

    given = there = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text:

        def passing() -> Iterator[Any]:
            nonlocal given, there
            for table in tables:
                part = table if limit is None else table.slice(0, max(0, limit - given))
                if as_json:
                    rows = [json.dumps(row) for row in part.to_pylist()]
                    text.write(", " if given and rows else "")
                    text.write(", ".join(rows))
                given, there = given + part.num_rows, there + table.num_rows
                yield part

        if export is not None:
            export_rows(passing(), schema, export)
            typer.echo(f"{given:,} rows: {export}", err=as_json)
        elif as_json:
            for _ in passing():
                pass
        else:
            shown = joined(schema, passing())
            _print(shown, there if met is None else met)
        if as_json:
            text.seek(0)
            typer.echo(f'{{"folder": {json.dumps(str(folder))}, "rows": [', nl=False)
            shutil.copyfileobj(text, sys.stdout)
            typer.echo(f'], "met": {there if met is None else met}}}')


def _columns(table: RunTable, asked: str | None, rows: Any, is_shown: bool) -> list[str]:
    """The columns that are wanted; where nobody says which, on the screen those that tell rows apart."""
    from orderlab.spark_sweeps.results.rows import rank_of

    if asked is not None and asked != "all":
        return [table.checked(name.strip(), "--columns") for name in asked.split(",") if name.strip()]
    if not is_shown or asked == "all":
        return table.columns
    heads = [name for name in ("round", "run", "status", "outcome") if name in table.columns]
    metrics = [table.metrics[name] for name in sorted(table.metrics, key=lambda name: (rank_of(name), name))]
    given, shown = (
        [name for name in names if len(rows.column(name).unique()) > 1]
        for names in (table.parameters.values(), metrics)
    )
    errors = ["error"] if rows.num_rows and rows.column("error").null_count < rows.num_rows else []
    return [*heads, *given, *shown[: max(1, COLUMNS - len(given) - len(errors))], *errors]


def _print(rows: Any, met: int) -> None:
    from orderlab.report.sweep import print_runs

    print_runs(Console(), rows, met)


def _replay(folder: Path, which: str, as_json: bool) -> ExitCode:
    from orderlab.report.sweep import print_run
    from orderlab.spark_sweeps.results.run_table import rounds_of
    from orderlab.spark_sweeps.runs.again import run_again

    name, _, number = which.rpartition("/")
    if not number.isdigit():
        raise InputError(f"--replay {which}: no run; give its number, in a question ROUND/NUMBER")
    rounds = {each.name: each for each in rounds_of(folder)}
    if name not in rounds:
        raise InputError(f"--replay {which}: no such round; write ROUND/NUMBER with one of {', '.join(rounds)}")
    again = run_again(rounds[name], int(number))
    if as_json:
        typer.echo(json.dumps({"run": again.row, "same": not again.differing, "differing": again.differing}))
    else:
        print_run(Console(), again.row, again.wall_s)
        said = "the same as its row" if not again.differing else f"not as its row: {'; '.join(again.differing)}"
        typer.echo(f"{said}{'' if again.is_same_code else ' (the code or the scripts have changed since)'}")
    return ExitCode.VIOLATED if again.differing else ExitCode.HOLDS
