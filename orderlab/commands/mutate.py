"""`orderlab mutate`: how much is a green validation worth? Flaws are put in one by one; is each of them noticed?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orderlab.commands.options import TrustAdapter
from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError
from orderlab.platform import cores

if TYPE_CHECKING:
    from orderlab.properties.mutants.campaign import Campaign, Score
    from orderlab.properties.mutants.mutant import Mutant

BUDGET_S = 12.0
"""Of ``orderlab.properties.contracts.session.mutation.judging``, which takes long to import."""
EFFORT_HELP = "quick, standard, thorough, or a number (quick is 1), as of validate: work on each mutant."
BUDGET_HELP = "Cap in processor seconds for a mutant that nothing kills."
SPECIFICATION_OF_STORES = "spec"
"""Short for the specification that stores refine."""


def mutate(
    path: Annotated[
        str, typer.Argument(metavar="STORE", help="Folder of a store, or its store.toml; a name with --specification.")
    ],
    specification: Annotated[
        bool, typer.Option("--specification", help="Mutate the actions of this specification (explore --list) instead.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="Operator; may be given several times.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge so many, drawn by the seed.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = cores(),
    effort: Annotated[str, typer.Option(help=EFFORT_HELP)] = "standard",
    budget: Annotated[float, typer.Option(min=0.1, help=BUDGET_HELP)] = BUDGET_S,
    seed: Annotated[int, typer.Option(min=0, help="Of the random draws; printed.")] = 0,
    out: Annotated[str | None, typer.Option(help="Folder of results, resumed from; by default in the cache.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what is known, and keep nothing.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the mutants, judge none.")] = False,
    trust_adapter: TrustAdapter = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make mutants of a store's scripts and validate each: killed by a law, survived, equivalent, or timed out.

    Ctrl-C leaves whole results; the same command goes on from them. Exit code 0: every mutant that is not equivalent
    was noticed; 1: one survived; 2: the input is unusable; 3: interrupted before the end.
    """
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.mutants.campaign import Campaign, Score
    from orderlab.properties.mutants.mutant import sample
    from orderlab.properties.mutants.operators import mutants_of
    from orderlab.properties.validation.effort import effort_named, name_of_effort
    from orderlab.report.mutation import render_score
    from orderlab.report.progress import ProgressLine
    from orderlab.sim.stores.binding.loader import load_binding

    work = effort_named(effort)
    if out is not None and not out.strip():
        raise InputError("--out: empty; name a folder")
    if specification or path == SPECIFICATION_OF_STORES:
        _specification(path, only or [], limit, seed, list_them, as_json)
        return
    binding = load_binding(Path(path), trust_adapter=trust_adapter)
    mutants = sample(mutants_of(binding, only or ()), limit, seed)
    if list_them:
        _list(mutants, as_json)
        return
    if not mutants:
        if not binding.scripts:
            raise InputError(
                f"{binding.place}: no scripts, and flaws are put into Lua alone; name a store that has some"
            )
        raise InputError(f"{binding.place}: these operators make no mutant of its scripts; leave --only out")
    folder = None if fresh else Path(out) if out else _cache(binding.path)
    campaign = Campaign(binding, mutants, seed, budget, jobs, folder, work)
    line = ProgressLine(binding.name)
    judged = campaign.run(lambda done, of, text: line.show(f"{done} of {of} mutants, {text}", done / max(of, 1)))
    line.clear()
    score = Score(judged, tuple(kind_of(binding).terms(binding).laws))
    if as_json:
        print(json.dumps(_told(campaign, score)))
    else:
        console = Console()
        console.print(render_score(binding.name, score, campaign.scope, len(mutants)))
        console.print(
            f"results: {folder or 'not kept'}\neffort: {name_of_effort(work)}\nseed: {seed}",
            highlight=False,
            soft_wrap=True,
        )
    raise typer.Exit(_exit_code(campaign.interrupted, bool(score.survivors)))


def _told(campaign: Campaign, score: Score) -> dict[str, Any]:
    """A campaign as one JSON object."""
    from orderlab.properties.validation.effort import name_of_effort

    return {
        "store": str(campaign.binding.path),
        "seed": campaign.seed,
        "effort": name_of_effort(campaign.effort),
        "budget_s": campaign.budget_s,
        "interrupted": campaign.interrupted,
        **score.to_json(),
        "scope": campaign.scope,
        "of": len(campaign.mutants),
    }


def _specification(path: str, only: list[str], limit: int | None, seed: int, list_them: bool, as_json: bool) -> None:
    """``path`` is the name of a specification, or a store, whose specification is meant."""
    from orderlab.properties.mutants.mutant import sample
    from orderlab.properties.mutants.specification import mutants_of_system, mutate_specification, specification_named
    from orderlab.report.mutation import render_specification
    from orderlab.report.progress import ProgressLine
    from orderlab.sim.stores.binding.loader import load_binding

    is_store = (Path(path) / "store.toml").is_file() or path.endswith(".toml")
    name = load_binding(Path(path)).specification if is_store else path
    name = "session" if name == SPECIFICATION_OF_STORES else name
    if list_them:
        _list(sample(mutants_of_system(specification_named(name), only), limit, seed), as_json)
        return
    line = ProgressLine(name)
    found = mutate_specification(
        name, only, limit, seed, lambda done, of, text: line.show(f"{done} of {of} mutants, {text}", done / max(of, 1))
    )
    line.clear()
    if as_json:
        print(json.dumps({**found.to_json(), "seed": seed}))
    else:
        console = Console()
        console.print(render_specification(found))
        console.print(f"seed: {seed}")
    raise typer.Exit(_exit_code(found.interrupted, bool(found.survivors)))


def _exit_code(interrupted: bool, survived: bool) -> ExitCode:
    return ExitCode.UNKNOWN if interrupted else ExitCode.VIOLATED if survived else ExitCode.HOLDS


def _list(mutants: list[Mutant], as_json: bool) -> None:
    from orderlab.report.mutation import mutant_lines

    if as_json:
        print(json.dumps([mutant.to_json() for mutant in mutants]))
    else:
        print("\n".join(mutant_lines(mutants)))


def _cache(store: Path) -> Path:
    from orderlab.model.files import cache_folder

    place = hashlib.sha256(str(store.resolve()).encode()).hexdigest()[:12]
    return cache_folder("mutants") / f"{store.resolve().name}-{place}"
