"""`orderlab binding check`: what a binding makes of one sample call of each operation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.properties.validation.sample import Sample


def binding(
    action: Annotated[Literal["check", "schema"], typer.Argument(help="check, or schema.")],
    path: Annotated[Path | None, typer.Argument(help="A store.toml, or its folder; of check alone.")] = None,
    trust_adapter: Annotated[bool, typer.Option(help="Let Python files of the store run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """check: show KEYS, ARGV, what ran and how the reply is read, for one sample call of each operation.

    schema: print the JSON Schema of store.toml, for editors. Nothing is judged. Exit code 0: every reply could be
    read; 2: one could not, a script did not end, or the binding is unusable.
    """
    if action == "schema":
        from orderlab.sim.stores.binding.json_schema import schema_of_stores

        if path is not None:
            raise InputError(f"binding schema {path}: the schema is the same for every store; leave the path out")
        print(json.dumps(schema_of_stores(), indent=1))
        raise typer.Exit(ExitCode.HOLDS)
    if path is None:
        raise InputError("binding check: name a store.toml, or its folder")
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.validation.sample import samples
    from orderlab.sim.stores.binding import load_binding

    store = load_binding(path, trust_adapter=trust_adapter)
    found = samples(store, kind_of(store).sampled(store))
    if as_json:
        print(json.dumps({"operations": [asdict(one) for one in found]}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for one in found:
            _show(console, one)
    raise typer.Exit(ExitCode.UNUSABLE if any(one.error for one in found) else ExitCode.HOLDS)


def _show(console: Console, sample: Sample) -> None:
    fields = ", ".join(f"{name}={value}" for name, value in sample.fields.items())
    console.print(f"[bold]{sample.operation}[/] ", end="")
    console.print(fields, markup=False)
    for call in sample.calls:
        console.print(f"  {call.what}", markup=False)
        for number, key in enumerate(call.keys, 1):
            console.print(f"    KEYS[{number}] = {key}", markup=False)
        told = sample.templates if len(sample.templates) == len(call.arguments) else [""] * len(call.arguments)
        for number, (argument, template) in enumerate(zip(call.arguments, told, strict=True), 1):
            console.print(
                f"    ARGV[{number}] = {argument}{f'   from {template}' if '<' in template else ''}", markup=False
            )
        for command in call.ran:
            console.print(f"      ran {command}", markup=False)
        console.print(f"    replied {call.reply}", markup=False)
    console.print(f"  {sample.error or f'read as {sample.result}'}\n", markup=False)
