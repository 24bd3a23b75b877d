"""`orderlab compare`: every store and system side by side, on one workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orderlab.commands.options import TrustAdapter
from orderlab.commands.simulate import NAMES as SYSTEMS
from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.properties.side_by_side import Table
    from orderlab.report.output import Wanted

STORES = (
    "lua/session",
    "lua/pending",
    "lua/specimens/published",
    "postgres",
    "postgres-async",
    "lua/feed",
    "lua/job_queue",
)
TABLES = ("postgres", "postgres-async")
"""``WITHOUT_SCRIPTS`` of `orderlab.sim.stores.binding.loader`, for the help; a test keeps them the same."""
NONE = "none"
FORMS = ("html", "json", "markdown")


def compare(
    stores: Annotated[
        str,
        typer.Option(
            help=f"Folders of stores, with commas between; {', '.join(TABLES)} are tables of PostgreSQL; {NONE} "
            "for none."
        ),
    ] = ",".join(STORES),
    systems: Annotated[
        str, typer.Option(help=f"Of `orderlab simulate --list`, with commas between; {NONE} for none.")
    ] = ",".join(SYSTEMS),
    effort: Annotated[
        str, typer.Option(help="Of each store's validation: quick, standard, thorough, or a number (quick is 1).")
    ] = "quick",
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    trust_adapter: TrustAdapter = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    report: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORM=FILE", help=f"Write it as well: FORM one of {', '.join(FORMS)}; may be given several times."
        ),
    ] = None,
    note: Annotated[
        Path | None, typer.Option(help="Write the table into this Markdown file, between its marks.")
    ] = None,
) -> None:
    """Put stores and systems side by side: laws kept, what a message costs, what falls under each fault.

    Exit code 0: the table is there, whatever laws it says are broken; 2: the input is unusable.
    """
    from orderlab.model.files import checked_place, read_text
    from orderlab.properties.contracts.kind import kind_of, row_of
    from orderlab.properties.side_by_side import Table, check_systems, system_row
    from orderlab.properties.validation.effort import effort_named, name_of_effort
    from orderlab.report.output import wanted_files
    from orderlab.report.progress import ProgressLine
    from orderlab.report.side_by_side import MARKS
    from orderlab.sim.stores.binding.loader import load_binding

    work = effort_named(effort)
    wanted = wanted_files("--report", report, FORMS)
    chosen, run = _names("--stores", stores), _names("--systems", systems)
    if not chosen and not run:
        raise InputError(f"compare: --stores {NONE} and --systems {NONE} leave nothing to compare; name one")
    check_systems(run)
    bindings = {name: load_binding(Path(name), trust_adapter=trust_adapter) for name in chosen}
    for binding in bindings.values():
        kind_of(binding).terms(binding)
    if note is not None:
        checked_place(f"--note {note}", note, is_read_again=True)
    if note is not None and not (note.is_file() and all(mark in read_text(note) for mark in MARKS)):
        raise InputError(f"--note {note}: it has no marks; it needs the lines {MARKS[0]} and {MARKS[1]}")
    made = []
    for name in chosen:
        line = ProgressLine(name, f"compare {name} {work}", None)
        made.append(row_of(name, bindings[name], work, seed, line.show))
        line.clear()
    simulated = []
    for name in run:
        line = ProgressLine(name, f"compare {name}", None)
        simulated.append(system_row(name, seed, line.show))
        line.clear()
    _print(Table(tuple(made), tuple(simulated), seed, name_of_effort(work)), wanted, note, as_json)
    raise typer.Exit(ExitCode.HOLDS)


def _print(table: Table, wanted: Sequence[Wanted], note: Path | None, as_json: bool) -> None:
    """Print the table, and write it wherever else it is wanted."""
    from orderlab.model.files import read_text
    from orderlab.report.output import write_files
    from orderlab.report.side_by_side import markdown, page, print_table, put
    from orderlab.report.terminal import WIDTH_IN_PIPE

    text = json.dumps(table.to_json(), indent=1)
    forms = {"json": lambda: text + "\n", "html": lambda: page(table), "markdown": lambda: markdown(table) + "\n"}
    files = [(one.file, forms[one.form]()) for one in wanted]
    if note is not None:
        files.append((note, put(read_text(note), table)))
    write_files(files)
    if as_json:
        typer.echo(text)
    else:
        print_table(Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPE), table)


def _names(option: str, given: str) -> list[str]:
    """What stands between the commas, each once. Raises InputError."""
    if given.strip() == NONE:
        return []
    names = [one.strip() for one in given.split(",")]
    if not all(names):
        raise InputError(f"{option} {given}: an empty name; write them with commas between, or {NONE}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{option} {given}: {twice} stands there twice; name each once")
    return names
