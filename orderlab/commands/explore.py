"""`orderlab explore`: visit every state of a small system and decide its laws."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orderlab.commands.options import Exclusion, check_together, parsed
from orderlab.exit_codes import EXIT
from orderlab.model.errors import InputError
from orderlab.report.forms import REPORT_HELP

if TYPE_CHECKING:
    from orderlab.model.classics.catalogue import CatalogueEntry
    from orderlab.model.explorer.exploration import Exploration
    from orderlab.model.explorer.search import Budget, Engine, Options, Progress
    from orderlab.report.progress import ProgressLine

CATALOGUES = ("orderlab.model.classics.catalogue", "orderlab.properties.contracts.session.exploration.catalogue")
"""Modules with a `CATALOGUE` of entries; a room that offers specifications adds its own."""

CONSTRAINT_HELP = "A predicate that a state must meet to be gone on from (may be repeated)."
ALLOW_VACUOUS_HELP = "Exit 0, not 3, where a law was not tested."
GROUP = "streams"
"""All specifications whose names begin so can be explored together, by this name."""


EXCLUSIONS = (
    Exclusion("graph", ("walks",), "explore: --graph with --walks: walks visit no whole graph; leave one of them out"),
)
OF_A_GROUP = (
    Exclusion(
        "named",
        ("settings", "checkpoint", "graph", "walks", "report", "constraint"),
        f"explore {GROUP}: all its protocols as they stand; --set, --checkpoint, --graph, --walks, --constraint and "
        "--report go with one of them",
    ),
)


def entries(wanted: str | None = None) -> dict[str, CatalogueEntry]:
    """Every specification that can be explored, by name; those of the first room that has the one ``wanted``, as the
    others take long to import."""
    found: dict[str, CatalogueEntry] = {}
    for module in CATALOGUES:
        found |= {entry.name: entry for entry in import_module(module).CATALOGUE}
        if wanted in found:
            break
    return found


@dataclass(frozen=True)
class Plan:
    """What the command line asks for: the parameters of `explore` by their names."""

    named: str | None = None
    settings: list[str] | None = None
    list_them: bool = False
    symmetry: bool = False
    reduction: bool = False
    budget: float | None = None
    max_states: int | None = None
    max_bytes: int | None = None
    checkpoint: Path | None = None
    graph: Path | None = None
    engine: str = "auto"
    seed: int = 0
    law: list[str] | None = None
    keep_going: bool = False
    constraint: list[str] | None = None
    walks: int | None = None
    depth: int = 100
    workers: int = 1
    allow_vacuous: bool = False
    template: bool = False
    as_json: bool = False
    report: list[str] | None = None

    def search_budget(self) -> Budget:
        from orderlab.model.explorer.search import Budget

        return Budget(self.max_states, self.budget, self.max_bytes)

    def options(self) -> Options:
        from orderlab.model.explorer.search import Options

        return Options(
            budget=self.search_budget(),
            symmetry=self.symmetry,
            reduction=self.reduction,
            engine=_engine(self.engine),
            checkpoint=self.checkpoint,
            keep_going=self.keep_going,
            laws=tuple(self.law or ()),
            constraints=tuple(self.constraint or ()),
            allow_vacuous=self.allow_vacuous,
            seed=self.seed,
            workers=self.workers,
        )

    def command(self) -> list[str]:
        """The words that ask for the same again."""
        assert self.named is not None
        repeated = (
            ("--set", self.settings),
            ("--law", self.law),
            ("--constraint", self.constraint),
            ("--walks", [self.walks] if self.walks else None),
            ("--depth", [self.depth] if self.walks else None),
            ("--seed", [self.seed] if self.seed else None),
        )
        flags = (("--continue", self.keep_going), ("--symmetry", self.symmetry), ("--reduction", self.reduction))
        return [
            *("orderlab", "explore", self.named),
            *(str(part) for option, given in repeated for one in given or () for part in (option, one)),
            *(flag for flag, is_on in flags if is_on),
        ]

    def cap(self) -> str:
        """The budget in words; empty where there is none."""
        caps = (
            (self.budget, "{:g} s"),
            (self.max_states, "{:,} states"),
            (self.max_bytes, "{:,} bytes"),
        )
        told = [words.format(given) for given, words in caps if given is not None]
        return f"capped at {', '.join(told)}" if told else ""


def explore(
    named: Annotated[
        str | None,
        typer.Argument(metavar="SPECIFICATION", help="Its name (--list shows all), or FILE.py:NAME of your own."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List specifications and their parameters.")] = False,
    symmetry: Annotated[bool, typer.Option(help="Explore one state of those that differ by renaming.")] = False,
    reduction: Annotated[bool, typer.Option(help="Follow one order of steps that commute.")] = False,
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds to spend.")] = None,
    max_states: Annotated[int | None, typer.Option(min=1, help="States to visit.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Bytes to hold.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Resume from this file; write it when unfinished.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Write the state graph: .dot, .graphml or .json.")] = None,
    engine: Annotated[str, typer.Option(help="auto, interpreted or compiled.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Draws the walks, and the states on which claims are checked.")] = 0,
    law: Annotated[list[str] | None, typer.Option("--law", help="Judge this law only (may be repeated).")] = None,
    keep_going: Annotated[bool, typer.Option("--continue", help="Go on after a violation, to every law.")] = False,
    constraint: Annotated[list[str] | None, typer.Option("--constraint", help=CONSTRAINT_HELP)] = None,
    walks: Annotated[int | None, typer.Option(min=1, help="Instead of every state: so many random walks.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="Steps of a random walk at most.")] = 100,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the search.")] = 1,
    allow_vacuous: Annotated[bool, typer.Option("--allow-vacuous", help=ALLOW_VACUOUS_HELP)] = False,
    template: Annotated[bool, typer.Option("--template", help="Print a specification to begin with.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
) -> None:
    """Visit every state of a specification: laws, goals, liveness, deadlock, coverage.

    Exit code 0: every law holds; 1: one is violated; 2: the input is unusable; 3: the budget did not suffice, or a law
    is vacuous: it was not tested. How to write a specification: notes/specifications.md.
    """
    plan = Plan(**locals())
    if plan.template:
        typer.echo(template_text(), nl=False)
    elif plan.list_them:
        from orderlab.model.classics.catalogue import entries_of_file, own_file

        own = own_file(plan.named or "")
        print_catalogue(entries_of_file(own) if own else entries(), plan.as_json)
    else:
        _explore(plan)


def _explore(plan: Plan) -> NoReturn:
    """Check all that is asked for before any work, search, and report."""
    from orderlab.model.classics.catalogue import chosen_in_file, errors_placed_in, make, own_file
    from orderlab.report.output import made_report, wanted_reports, write_reports
    from orderlab.report.subjects import subject_of_specification
    from orderlab.report.words import harmless

    if plan.named is None:
        raise InputError("explore: which specification? name one, or use --list")
    wanted = wanted_reports(plan.report)
    if plan.named == GROUP:
        check_together(plan, OF_A_GROUP)
        _explore_group(plan)
    own = own_file(plan.named)
    known, name = chosen_in_file(own, plan.named) if own else (entries(plan.named), plan.named)
    with errors_placed_in(own):
        system = make(known, name, parsed(plan.settings or [], "nodes=4"))
    options = plan.options()
    check_together(plan, EXCLUSIONS)
    _check_places(plan)
    with errors_placed_in(own):
        found = _searched(system, options, plan)
    if plan.graph is not None:
        _write_graph(found, plan.graph)
    subject = subject_of_specification(found, plan.command(), plan.named)
    if plan.as_json:
        typer.echo(json.dumps({**found.to_json(), "seed": plan.seed}, default=str))
    else:
        from orderlab.report.exploration import exploration_lines

        typer.echo("\n".join([*map(harmless, exploration_lines(found, subject)), f"seed: {plan.seed}"]))
    if wanted:
        write_reports(made_report("explore", found.outcome, [subject], plan.seed, budget=plan.cap()), wanted)
    raise typer.Exit(EXIT[found.outcome])


def _check_places(plan: Plan) -> None:
    """Raises InputError where a file that is asked for cannot be written, before any work."""
    from orderlab.model.files import checked_place

    if plan.graph is not None:
        from orderlab.model.explorer.state_graph import check_form

        check_form(plan.graph)
    for option, place in (("--graph", plan.graph), ("--checkpoint", plan.checkpoint)):
        if place is not None:
            checked_place(f"{option} {place}", place, is_read_again=place is plan.checkpoint)


def _searched(system: Any, options: Options, plan: Plan) -> Exploration:
    """Every state, or random walks, with a line of progress on a terminal."""
    from orderlab.model.explorer.exploration import explore as explore_system
    from orderlab.report.progress import ProgressLine

    with _interruptible() as asked:
        line = ProgressLine(cap_s=plan.budget)
        told = _telling(line, plan.walks) if line.is_heard else None
        if plan.walks is None:
            found = explore_system(system, options, told, lambda: bool(asked))
        else:
            from orderlab.model.explorer.walks import explore_by_walks

            found = explore_by_walks(system, options, plan.walks, plan.depth, told, lambda: bool(asked))
    line.clear()
    return found


def _explore_group(plan: Plan) -> NoReturn:
    """Explore each protocol of durable streams as it stands; a line of each."""
    from orderlab.model.classics.catalogue import make
    from orderlab.model.explorer.exploration import explore as explore_system
    from orderlab.model.explorer.search import Options
    from orderlab.model.verdict import Outcome

    known = {name: entry for name, entry in entries(f"{GROUP}-handover").items() if name.startswith(f"{GROUP}-")}
    outcomes, told = [], {}
    for name in known:
        found = explore_system(make(known, name, {}), Options(budget=plan.search_budget()))
        outcomes.append(found.outcome)
        told[name] = found.to_json()
        if not plan.as_json:
            broken = [f"{one.law} {one.outcome}" for one in found.verdicts if one.outcome is not Outcome.HOLDS]
            typer.echo(f"{name:24} {found.outcome}: {', '.join(broken) or f'{len(found.verdicts)} laws'}")
    worst = max(outcomes, key=[Outcome.HOLDS, Outcome.UNKNOWN, Outcome.VIOLATED].index)
    if plan.as_json:
        typer.echo(json.dumps({"outcome": worst, "specifications": told}, default=str))
    else:
        typer.echo(
            f"{worst}; one of them in full: orderlab explore NAME, with --set protocol=… for what is wrong nearby"
        )
    raise typer.Exit(EXIT[worst])


def template_text() -> str:
    """A whole specification with every part that one can have, to be changed by its reader."""
    return files("orderlab.commands").joinpath("explore_template.py").read_text()


def print_catalogue(known: Mapping[str, CatalogueEntry], as_json: bool) -> None:
    from orderlab.report.exploration import catalogue_lines

    if as_json:
        typer.echo(json.dumps({n: {"summary": e.summary, "parameters": _schema(e)} for n, e in known.items()}))
    else:
        typer.echo("\n".join(catalogue_lines({n: (e.summary, _schema(e)) for n, e in known.items()})))


def _schema(entry: CatalogueEntry) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = entry.parameters.model_json_schema().get("properties", {})
    return properties


def _engine(name: str) -> Engine:
    known: dict[str, Engine] = {"auto": "auto", "interpreted": "interpreted", "compiled": "compiled"}
    if name not in known:
        raise InputError(f"--engine {name}: unknown engine; it is one of {', '.join(known)}")
    return known[name]


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Ctrl-C or SIGTERM ends the search at the next whole chunk, with everything found until then; a second one ends it
    at once.
    """
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = [(number, signal.signal(number, ask)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield asked
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _telling(line: ProgressLine, walks: int | None) -> Callable[[Progress], None]:
    """Shows how far a search has come. Of walks it is known how many there will be; of states it is not."""
    from orderlab.report.exploration import progress_line

    def tell(progress: Progress) -> None:
        line.show(progress_line(progress), None if walks is None or progress.doing else 1 - progress.queue / walks)

    return tell


def _write_graph(found: Any, path: Path) -> None:
    from orderlab.model.explorer.state_graph import state_graph, write_graph

    write_graph(state_graph(found.search.space, found.search.expanded), path)
