"""`orderlab specimens`: run the flawed stores of the suite and their correct neighbours through validation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from orderlab.exit_codes import ExitCode

if TYPE_CHECKING:
    from orderlab.properties.validation.specimens import SpecimenResult


def specimens(
    names: Annotated[list[str] | None, typer.Argument(help="Folders or ids (S5); all by default.")] = None,
    effort: Annotated[
        str, typer.Option(help="quick, standard, thorough, or a number; of work, not of time.")
    ] = "standard",
    seed: Annotated[int, typer.Option(min=0, help="Of the random draws; printed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Is every flawed store caught by the laws that it breaks, and does its neighbour pass them?

    Exit code 0: yes; 1: one is missed, or a neighbour is accused; 2: unusable input.
    """
    from orderlab.properties.validation.effort import effort_named
    from orderlab.properties.validation.specimens import find_specimens, judge_specimens
    from orderlab.report.progress import ProgressLine

    line = ProgressLine("specimens", f"specimens {names} {effort}")
    results = judge_specimens(find_specimens(names or (), of_sessions=False), effort_named(effort), seed, line.show)
    line.clear()
    if as_json:
        print(json.dumps({"seed": seed, "specimens": [result.to_json() for result in results]}))
    else:
        console = Console()
        console.print(specimen_table(results))
        console.print(f"seed: {seed}")
    raise typer.Exit(ExitCode.HOLDS if all(result.is_right for result in results) else ExitCode.VIOLATED)


def specimen_table(results: list[SpecimenResult]) -> Table:
    """One row a law that a specimen breaks."""
    table = Table(title="specimens", title_justify="left")
    for heading in ("id", "specimen", "breaks", "caught", "neighbour"):
        table.add_column(heading, no_wrap=heading in ("id", "breaks"))
    for result in results:
        for number, law in enumerate(result.specimen.breaks):
            table.add_row(
                "" if number else result.specimen.id,
                "" if number else result.name,
                law,
                result.caught.get(law, "[bold red]missed[/]"),
                str(result.neighbour[law]),
            )
    return table
