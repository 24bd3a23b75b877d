"""`orderlab docs`: the pages that are installed with the package."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown


def docs(
    name: Annotated[str | None, typer.Argument(help="A page, such as bindings; all are listed without one.")] = None,
) -> None:
    """Show a page of the documentation, or list the pages.

    In a pipe a page is its Markdown. Exit code 2: there is no such page.
    """
    from orderlab.report.explanations import page_named, page_names

    if name is None:
        print("\n".join(page_names()))
        return
    text = page_named(name).read_text(encoding="utf-8")
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
