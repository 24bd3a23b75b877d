"""``orderlab bench``: measure this project beside its peers, and say which of the figures are reached."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from orderlab.model.errors import InputError

BENCHMARKS = {
    "kernel": "benchmarks.kernel",
    "simulation": "benchmarks.simulation",
    "feed": "benchmarks.feed",
    "explorer": "benchmarks.explorer",
    "checkers": "benchmarks.checkers",
    "sweep": "benchmarks.sweep",
    "mutants": "benchmarks.mutants",
    "bugs": "benchmarks.bugs",
    "startup": "benchmarks.startup",
    "validation": "benchmarks.validation",
    "streams": "benchmarks.streams",
    "serve": "benchmarks.serve",
    "clients": "benchmarks.clients",
}
"""Name -> module with ``run() -> report`` and ``TO_REACH`` (figure -> comparison and bound)."""
PARTED = ("sweep", "validation")
"""Those whose ``run`` takes ``parts``: figures to be measured alone."""
QUICK = ("mutants", "bugs", "validation", "clients")
"""Those whose ``run`` takes ``quick``: fewer seeds, less time for each search, less effort."""
ALL = "all"


def bench(
    name: Annotated[str, typer.Argument(help=f"{', '.join(BENCHMARKS)}, or all.")] = ALL,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per benchmark.")] = False,
    part: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PARTED)}: only this figure.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Give each search of {', '.join(QUICK)} less time.")] = False,
) -> None:
    """Measure this project beside its peers, in one run on this machine.

    A figure that is not reached is shown as such; that is a result, not an error.
    """
    from orderlab.model.errors import did_you_mean

    if name not in (ALL, *BENCHMARKS):
        raise InputError(f"bench {name}: no such benchmark; {did_you_mean(name, (*BENCHMARKS, ALL))}")
    if part and name not in PARTED:
        raise InputError(f"bench {name}: --part {part[0]}: only {' and '.join(PARTED)} have parts; leave it out")
    if not Path(__file__).parents[2].joinpath("benchmarks", "__init__.py").is_file():
        raise InputError(
            f"bench {name}: the benchmarks are no part of an installation; run it in a clone of the repository"
        )
    for chosen in BENCHMARKS if name == ALL else (name,):
        module = importlib.import_module(BENCHMARKS[chosen])
        options: dict[str, Any] = {"quick": True} if quick and chosen in QUICK else {}
        if part:
            options["parts"] = part
        measured = module.run(**options)
        if as_json:
            print(json.dumps(measured))
        else:
            Console().print(figures_table(measured, module.TO_REACH))


def is_reached(figure: float, bound: tuple[str, float]) -> bool:
    """Whether ``figure`` is on the right side of ``bound``, such as (">=", 1.0)."""
    comparison, value = bound
    return figure >= value if comparison == ">=" else figure <= value


def figures_table(measured: Mapping[str, Any], to_reach: Mapping[str, tuple[str, float]]) -> Table:
    """A benchmark's figures beside what is to be reached, with the versions of the peers."""
    peers = ", ".join(f"{peer} {version}" for peer, version in measured["detail"]["peers"].items())
    beside = f" (beside {peers})" if peers else ""
    table = Table(title=f"{measured['benchmark']}{beside}", title_justify="left")
    for heading in ("figure", "measured", "to reach", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "to reach") else "left")
    for figure, value in measured["figures"].items():
        bound = to_reach.get(figure)
        verdict = "" if bound is None else "reached" if is_reached(value, bound) else "not reached"
        table.add_row(figure, f"{value:g}", "" if bound is None else f"{bound[0]} {bound[1]:g}", verdict)
    for what, name in measured["detail"].get("dearest", {}).items():
        table.add_row(f"dearest at {what}", name, "", "")
    return table
