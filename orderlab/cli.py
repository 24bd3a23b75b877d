"""The command line: one typer application, one module per command in `orderlab.commands`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer
from typer.exceptions import TyperException

from model.errors import InputError

COMMANDS = ("validate", "specimens", "mutate", "replay", "explore", "simulate", "calibrate", "check", "sweep", "bench")
"""Each is the function of that name in the module of that name in `orderlab.commands`."""


def application(arguments: Sequence[str]) -> typer.Typer:
    """The application with the command that is asked for; with all of them when none is, for the help text.

    Commands draw in much (a Lua host, a compiler, Arrow), and nobody should wait for what is not used.
    """
    app = typer.Typer(name="orderlab", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(about)
    asked_for = [name for name in COMMANDS if arguments[:1] == [name]]
    for name in asked_for or COMMANDS:
        app.command(name)(getattr(import_module(f"orderlab.commands.{name}"), name))
    return app


def about() -> None:
    """Judge, explore and simulate ordered queues kept in Redis behind Lua scripts."""


def main() -> None:
    """Run the command line. An unusable input is one line on standard error and exit code 2.

    Who ends the run, by Ctrl-C or by closing standard output, gets the exit code of that signal, which is no verdict.
    """
    arguments = sys.argv[1:]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, who wants the exit code only
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    try:
        code = application(arguments)(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (BrokenPipeError, SystemExit) as ended:
        if not isinstance(ended.__context__ or ended, BrokenPipeError):  # typer makes exit code 1 of it
            raise
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except InputError as error:
        print(f"orderlab: {error}", file=sys.stderr)
    except OSError as error:  # standard output mostly: a full disk
        _drop_output()
        place = error.filename or "standard output"
        print(f"orderlab: {place}: {error.strerror or error}; make room or name another place", file=sys.stderr)
    except TyperException as error:
        if not arguments:
            print(error.format_message())
        else:
            command = f"orderlab {arguments[0]}" if arguments[0] in COMMANDS else "orderlab"
            said = " ".join(error.format_message().split()).rstrip(".")
            print(f"{command}: {said}; {command} --help tells what it takes", file=sys.stderr)
    sys.exit(2)


def _drop_output() -> None:
    """Have what is still buffered go nowhere: the interpreter would try to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.__stdout__ or sys.stdout


if __name__ == "__main__":
    main()
