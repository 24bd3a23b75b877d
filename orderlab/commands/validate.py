"""`orderlab validate`: is a store safe? Every law, its verdict, and for a violation the shortest way there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orderlab.model.errors import InputError
from orderlab.model.verdict import worst
from orderlab.program import EXIT
from orderlab.report.forms import REPORT_HELP

if TYPE_CHECKING:
    from orderlab.properties.comparison.change import Comparison
    from orderlab.properties.contracts.kind import Kind
    from orderlab.sim.redis.backends import Backend
    from orderlab.sim.stores.binding.binding import Binding


def validate(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Folders of stores, or their store.toml.")],
    effort: Annotated[
        str,
        typer.Option(help="quick, standard, thorough, or a number (quick is 1): of work, the same on every machine."),
    ] = "standard",
    budget: Annotated[
        float | None, typer.Option(min=0.1, max=1e6, help="Cap in seconds for each store; what it cuts off is told.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random draws; printed.")] = 0,
    backend: Annotated[
        str,
        typer.Option(help="Where witnesses are confirmed: auto, redis://HOST:PORT, fakeredis, or kernel for nowhere."),
    ] = "auto",
    law: Annotated[list[str] | None, typer.Option(help="Judge this law only; may be given several times.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REV|PATH", help="Judge the change from these old scripts: a git revision, a folder, a script."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option(help="With --base: fail for what was broken before as well.")] = False,
    trust_adapter: Annotated[
        bool, typer.Option(help="Run the Python that a store names: its adapter, its contract.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per store.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also list what was not covered, and every law.")
    ] = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
) -> None:
    """Judge stores by the laws of their contract: footprint, every interleaving of small scopes, random runs.

    Exit code 0: every law holds; 1: one is violated; 2: the input is unusable; 3: unknown, or not put to the test.
    """
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.validation.effort import effort_named, name_of_effort
    from orderlab.report.output import made_report, replayable, wanted_reports, write_reports
    from orderlab.report.progress import ProgressLine
    from orderlab.report.subjects import subject_of_comparison, subject_of_store
    from orderlab.report.terminal import WIDTH_IN_PIPE, print_subject
    from orderlab.sim.stores.binding.loader import load_binding

    work = effort_named(effort)
    wanted = wanted_reports(report)
    bindings = [load_binding(path, trust_adapter=trust_adapter) for path in paths]
    kinds = [kind_of(binding) for binding in bindings]
    laws = [
        [kind.check_law(binding, name) for name in law] if law else None
        for kind, binding in zip(kinds, bindings, strict=True)
    ]
    console = Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPE)
    outcomes = []
    subjects = []
    with confirming(backend) as server:
        for kind, binding, wanted_laws in zip(kinds, bindings, laws, strict=True):
            if base is not None:
                change = _compared(kind, binding, base, work, seed, server, wanted_laws, trust_adapter, budget)
                outcomes.append(change.outcome(strict))
                subjects.append(subject_of_comparison(change, base, strict))
                if not as_json and not wanted:
                    print_subject(console, subjects[-1], seed, name_of_effort(work), verbose, trust_adapter)
                continue
            line = ProgressLine(
                binding.name, f"validate {binding.path} {work} {wanted_laws} {server is not None}", budget
            )
            found = kind.validate(binding, work, seed, wanted_laws, server, line.show, budget)
            line.clear()
            outcomes.append(found.outcome)
            if as_json:
                print(json.dumps(found.to_json()), flush=True)
            if wanted or not as_json:
                subjects.append(subject_of_store(found))
            if not as_json and not wanted:
                print_subject(console, subjects[-1], seed, name_of_effort(work), verbose, trust_adapter)
    cap = f"capped at {budget:g} s a store" if budget else ""
    whole = replayable(
        made_report("validate", worst(outcomes), subjects, seed, name_of_effort(work), cap), wanted, trust_adapter
    )
    if base is not None and as_json:
        print(whole.model_dump_json(), flush=True)
    write_reports(whole, wanted)
    if wanted and not as_json:  # after the files, which are lost if the reader goes (`| head`)
        for subject in subjects:
            print_subject(console, subject, seed, name_of_effort(work), verbose, trust_adapter)
    raise typer.Exit(EXIT[worst(outcomes)])


@contextmanager
def confirming(spec: str) -> Iterator[Backend | None]:
    """The server for confirmations. ``auto`` is content with none; a server that is named must be there."""
    from orderlab.properties.witness.confirmation import refuse_company
    from orderlab.sim.redis.backends import open_backend

    if spec == "kernel":
        yield None
        return
    try:
        server = open_backend(spec)
    except InputError:
        if spec != "auto":
            raise
        yield None
        return
    with server:
        refuse_company(server)
        yield server


def _compared(
    kind: Kind,
    binding: Binding,
    base: str,
    work: float,
    seed: int,
    server: Backend | None,
    laws: list[str] | None,
    trust_adapter: bool,
    budget_s: float | None,
) -> Comparison:
    """The store beside its old scripts."""
    from orderlab.properties.comparison.base import old_store
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.report.progress import ProgressLine

    with old_store(binding.path, base, trust_adapter) as old:
        if kind_of(old) is not kind:
            raise InputError(f"{binding.place}: --base: the old store has another contract; compare stores of one kind")
        asked = f"validate {binding.path} --base {work} {laws} {server is not None}"
        line = ProgressLine(binding.name, asked, budget_s)
        found = kind.compare(old, binding, work, seed, laws, server, line.show, budget_s)
        line.clear()
        return found
