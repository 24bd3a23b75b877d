"""The command line: one typer application, one module per command in `orderlab.commands`.

A command is imported when it is asked for, and a command's module imports what it works with when it is called: nobody
waits for a Lua host, a compiler or Arrow who wants help, a completion, or another command.
"""

from __future__ import annotations

import os
import sys

_signals = sys.modules["_signal"]  # there from the start; `signal` takes longer to import than Ctrl-C may wait
_heard = _signals.getsignal(_signals.SIGINT)
try:  # half of what a start takes, in which Python would show a traceback, or lose what it raises in a callback
    if _heard is _signals.default_int_handler:
        _signals.signal(_signals.SIGINT, lambda *_: os._exit(130))
except ValueError:  # not the main thread of a program that imports this
    _heard = None

from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

from orderlab.commands import COMMANDS, PROGRAM  # noqa: E402
from orderlab.exit_codes import SIGPIPE, ExitCode, of_signal, run, tell  # noqa: E402

if _heard is _signals.default_int_handler:
    _signals.signal(_signals.SIGINT, _heard)

if TYPE_CHECKING:
    import typer
    from typer.exceptions import TyperException


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application with every command."""
    from orderlab.application import make

    return make()


def main() -> None:
    """Run the command line and end this process with a code of ``ExitCode``.

    Who ends the run, by Ctrl-C or by closing standard output, gets the exit code of that signal, which is no verdict.
    """
    run(_commanded, PROGRAM)


def _commanded() -> int:
    from typer.exceptions import TyperException

    arguments = sys.argv[1:]
    try:
        arguments = arguments or _of_the_project()
        return int(application()(arguments, standalone_mode=False, prog_name=PROGRAM) or 0)
    except TyperException as error:
        return _wrong_usage(error, arguments)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer makes 1 of it, rich sends the rest nowhere
            return of_signal(SIGPIPE)
        raise


def _of_the_project() -> list[str]:
    """What is done when nothing is asked for: the stores that pyproject.toml names are judged; none, and help is shown.
    Raises InputError for settings that are none."""
    from orderlab.properties.project_settings import settings_at

    settings = settings_at(Path.cwd())
    return [] if settings is None else settings.arguments()


def _wrong_usage(error: TyperException, arguments: Sequence[str]) -> int:
    if not arguments:
        print(error.format_message())
    else:
        asked_for = f"{PROGRAM} {arguments[0]}" if arguments[0] in COMMANDS else PROGRAM
        said = " ".join(error.format_message().split()).rstrip(".")
        tell(asked_for, f"{said}; {asked_for} --help tells what it takes")
    return ExitCode.UNUSABLE


if __name__ == "__main__":
    main()
