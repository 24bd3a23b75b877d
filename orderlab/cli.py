"""The command line: one typer application, one module per command in `orderlab.commands`."""

from __future__ import annotations

import sys

import typer

from model.errors import InputError
from orderlab.commands.explore import explore
from orderlab.commands.validate import validate

app = typer.Typer(name="orderlab", no_args_is_help=True, add_completion=False)


@app.callback()
def about() -> None:
    """Judge, explore and simulate ordered queues kept in Redis behind Lua scripts."""


app.command()(validate)
app.command()(explore)


def main() -> None:
    """Run the command line. An unusable input is one line on standard error and exit code 2."""
    try:
        app()
    except InputError as error:
        print(f"orderlab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
