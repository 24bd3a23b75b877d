"""`orderlab init`: a first ``store.toml`` for a folder of scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orderlab.exit_codes import ExitCode


def init(
    path: Annotated[Path, typer.Argument(help="A folder with Lua files, or programs whose strings are scripts.")],
    specification: Annotated[
        str | None, typer.Option(help="The contract, if you know it; own: a class to be written.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a store.toml that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write PATH/store.toml: keys, arguments and operations as far as the scripts tell, and marked gaps.

    On a terminal it asks for the gaps that it can name. Where no contract fits it writes PATH/contract.py as well, a
    class in which what the operations promise is to be written. Exit code 0: it is written; 2: there are no scripts, or
    there is one already.
    """
    from orderlab.model.errors import InputError, did_you_mean
    from orderlab.model.files import write_whole
    from orderlab.properties.draft.callers import with_callers
    from orderlab.properties.draft.contractless import first_verdict, runs_told
    from orderlab.properties.draft.draft import draft
    from orderlab.properties.draft.facts import all_facts
    from orderlab.properties.draft.guess import OPERATIONS, Guess, guessed
    from orderlab.properties.draft.guessed_promises import TODO
    from orderlab.properties.draft.own_contract import CONTRACT_FILE, SPECIFICATION, contract_text, named_fields
    from orderlab.properties.draft.questions import OWN, answered, asked_on_terminal
    from orderlab.properties.draft.reply_promises import told_promises
    from orderlab.properties.draft.seen_replies import replies_seen
    from orderlab.properties.lint.subjects import scripts_at
    from orderlab.sim.stores.binding.loader import FILE_NAME

    if not path.is_dir():
        raise InputError(f"{path}: no folder; name the folder that holds the scripts")
    if specification is not None and specification not in (*OPERATIONS, OWN):
        raise InputError(f"--specification {specification}: unknown; {did_you_mean(specification, [*OPERATIONS, OWN])}")
    file = path / FILE_NAME
    if file.exists() and not force:
        raise InputError(f"{file}: there is one already; --force replaces it")
    scripts, left = scripts_at([path], is_binding_ignored=True)
    if not scripts:
        raise InputError(f"{path}: no Lua file and no string that is a script{': ' + left[0] if left else ''}")
    facts = with_callers(path, all_facts(scripts))
    guess = guessed(facts, specification) if specification != OWN else Guess(None, {}, "as asked for")
    if not as_json and specification != OWN and sys.stdin.isatty() and sys.stdout.isatty():
        guess = answered(facts, guess, asked_on_terminal)
    own = None if guess.contract is not None else (SPECIFICATION, named_fields(facts))
    contract = path / CONTRACT_FILE
    if own is not None and contract.exists() and not force:
        raise InputError(f"{contract}: there is one already; --force replaces it, --specification names another")
    verdict = first_verdict(facts, 0.2)
    ran, seen = runs_told(verdict), replies_seen(verdict.probes, guess)
    text = draft(facts, guess, ran, own, seen=seen)
    promised = "" if own is None else contract_text(facts, own[1])
    if own is not None:
        write_whole(contract, promised.encode())
    write_whole(file, text.encode())
    text = draft(facts, guess, ran, own, list(told_promises(path, guess.contract)), seen)
    write_whole(file, text.encode())
    gaps = sum(TODO in line for line in text.splitlines()[2:]) + promised.count(f"# {TODO}")
    drafted = {
        "file": str(file), "scripts": [script.name for script in scripts], "specification": guess.contract,
        "reason": guess.reason, "operations": dict(guess.operations),
        "contract": None if own is None else str(contract), "gaps": gaps, "not_read": left,
    }  # fmt: skip
    print(json.dumps(drafted)) if as_json else _print(drafted, path)
    raise typer.Exit(ExitCode.HOLDS)


def _print(drafted: dict[str, Any], folder: Path) -> None:
    """What was written, and what is to be done next."""
    from orderlab.report.words import counted

    count = counted(len(drafted["scripts"]), "script")
    print(f"{drafted['file']}: {count}, specification {drafted['specification'] or 'unknown'} ({drafted['reason']})")
    if drafted["contract"] is not None:
        print(f"{drafted['contract']}: a class whose outcomes are to be written; orderlab docs contracts says how")
    for line in drafted["not_read"]:
        print(f"not read: {line}")
    if drafted["gaps"]:
        gaps = f"{counted(drafted['gaps'], 'line')} with TODO"
        print(f"{gaps}; orderlab validate {folder} names the first that it cannot go on without")
    else:
        print(f"no line says TODO; orderlab validate {folder} judges it")
