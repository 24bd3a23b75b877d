"""The command line: one typer application, one module per command in `orderlab.commands`.

A command is imported when it is asked for, and a command's module imports what it works with when it is called: nobody
waits for a Lua host, a compiler or Arrow who wants help, a completion, or another command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orderlab.program import SIGPIPE, ExitCode, of_signal, run, tell

if TYPE_CHECKING:
    import typer
    from typer.exceptions import TyperException

PROGRAM = "orderlab"
SUMMARIES = {
    "validate": "Judge stores by their laws: footprint, every interleaving of small scopes, random runs.",
    "specimens": "Is every flawed store caught by the laws that it breaks, and does its neighbour pass them?",
    "compare": "Put stores and systems side by side: laws, costs, faults, on one workload.",
    "mutate": "Make mutants of a store's scripts and validate each: what does a green validation miss?",
    "replay": "Take the steps of a trace again and judge each.",
    "explore": "Visit every state of a specification: laws, goals, liveness, deadlock, coverage.",
    "simulate": "Simulate a broker system: throughput, latency, utilisation, and the verdict of every law.",
    "calibrate": "Measure what commands cost on a Redis server, and write a cost model of it.",
    "check": "Judge a recorded history, or a linearizability log, by every law that it can be judged by.",
    "sweep": "Run a sweep file on Spark: thousands of simulations, resumed where they were stopped.",
    "bench": "Measure this project beside its peers, in one run on this machine.",
}
"""What the list of commands says. Each command is the function of that name in its module in `orderlab.commands`."""
COMMANDS = tuple(SUMMARIES)


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
        return int(application()(standalone_mode=False, prog_name=PROGRAM) or 0)
    except TyperException as error:
        return _wrong_usage(error, arguments)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer makes 1 of it, rich sends the rest nowhere
            return of_signal(SIGPIPE)
        raise


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
