"""`orderlab explain`: what a law, a rule of lint, an exit code or a word means."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown


def explain(
    name: Annotated[str, typer.Argument(help="A law, a rule of lint, an exit code, or a word of the glossary.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a law, a rule, an exit code or a word means.

    Exit code 0: it is known; 2: it is not.
    """
    from orderlab.report.explanations import explained

    found = explained(name)
    if as_json:
        print(json.dumps({"explained": [one._asdict() for one in found]}))
        return
    console = Console()
    for one in found:
        console.print(f"[bold]{one.name}[/]: {one.kind}", highlight=False)
        console.print(Markdown(one.text))
        console.print()
