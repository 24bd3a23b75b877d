"""`orderlab init`: a first ``store.toml`` for a folder of scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orderlab.program import ExitCode


def init(
    path: Annotated[Path, typer.Argument(help="A folder with Lua files, or programs whose strings are scripts.")],
    specification: Annotated[str | None, typer.Option(help="The contract, if you know it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a store.toml that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write PATH/store.toml: keys, arguments and operations as far as the scripts tell, and marked gaps.

    Exit code 0: it is written; 2: there are no scripts, or there is one already.
    """
    from orderlab.model.errors import InputError, did_you_mean
    from orderlab.model.files import write_whole
    from orderlab.properties.draft.callers import hear_callers
    from orderlab.properties.draft.contractless import first_verdict, runs_told
    from orderlab.properties.draft.draft import TODO, draft
    from orderlab.properties.draft.facts import facts_of
    from orderlab.properties.draft.guess import OPERATIONS, guessed
    from orderlab.properties.lint.subjects import scripts_at
    from orderlab.report.words import counted
    from orderlab.sim.stores.binding.loader import FILE_NAME

    if not path.is_dir():
        raise InputError(f"{path}: no folder; name the folder that holds the scripts")
    if specification is not None and specification not in OPERATIONS:
        raise InputError(f"--specification {specification}: unknown; {did_you_mean(specification, [*OPERATIONS])}")
    file = path / FILE_NAME
    if file.exists() and not force:
        raise InputError(f"{file}: there is one already; --force replaces it")
    scripts, left = scripts_at([path], is_binding_ignored=True)
    if not scripts:
        raise InputError(f"{path}: no Lua file and no string that is a script{': ' + left[0] if left else ''}")
    facts = [facts_of(script) for script in scripts]
    hear_callers(path, facts)
    guess = guessed(facts, specification)
    text = draft(facts, guess, runs_told(first_verdict(facts, 0.2)))
    write_whole(file, text.encode())
    gaps = sum(TODO in line for line in text.splitlines()[2:])
    told = {
        "file": str(file), "scripts": [script.name for script in scripts], "specification": guess.contract,
        "reason": guess.reason, "operations": dict(guess.operations), "gaps": gaps, "not_read": left,
    }  # fmt: skip
    if as_json:
        print(json.dumps(told))
    else:
        print(
            f"{file}: {counted(len(scripts), 'script')}, specification {guess.contract or 'unknown'} ({guess.reason})"
        )
        for line in left:
            print(f"not read: {line}")
        print(f"{gaps} lines say TODO; orderlab validate {path} names the first that it cannot go on without")
    raise typer.Exit(ExitCode.HOLDS)
