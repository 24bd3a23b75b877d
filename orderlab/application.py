"""What typer makes of the commands: help and completions list them, arguments are read by the one that is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from orderlab import __version__
from orderlab.commands import COMMANDS, PROGRAM, SUMMARIES
from orderlab.exit_codes import SIGPIPE, ExitCode, of_signal
from orderlab.extras import told
from orderlab.model.errors import Defect, InputError

HELP = {"help_option_names": ["-h", "--help"]}


class CommandsOnCall(TyperGroup):
    """The commands of SUMMARIES, each imported when its arguments are read, not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """What a list of commands shows of one."""
        return TyperCommand(cmd_name, help=SUMMARIES[cmd_name]) if cmd_name in SUMMARIES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, which is about to read its arguments."""
        self.commands = {name: TyperCommand(name) for name in COMMANDS}  # where it looks for what was meant
        name, found, rest = super().resolve_command(ctx, args)
        return name, name and found and command(name), rest


class Command(TyperCommand):
    """A command whose errors reach the caller as they are: typer has its own use for these two."""

    def invoke(self, ctx: Any) -> Any:
        """Raises Defect where something in the command, a user's own file perhaps, ends the process by itself, and
        InputError where two files would go to one place."""
        from orderlab.commands.places import check_places

        check_places(ctx)
        try:
            return super().invoke(ctx)
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # rich ends so when its reader goes, `| head` for one
                raise typer.Exit(of_signal(SIGPIPE)) from ended
            raise Defect(f"something called sys.exit({ended.code!r})") from ended
        except EOFError as error:
            raise Defect(f"EOFError: {error}") from error
        except ImportError as error:
            if line := told(str(self.name), error):
                raise InputError(line) from None
            raise


def command(name: str) -> TyperCommand:
    """One command, imported."""
    alone = typer.Typer(add_completion=False, context_settings=HELP)
    alone.command(name, cls=Command)(getattr(import_module(f"orderlab.commands.{name}"), name))
    found = typer.main.get_command(alone)
    assert isinstance(found, TyperCommand)
    return found


def make() -> typer.Typer:
    """The application."""
    app = typer.Typer(
        name=PROGRAM, cls=CommandsOnCall, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP
    )
    app.callback()(about)
    return app


INTERPRETED = "interpreted, at about two thirds of the speed; python -m orderlab.sim.native.build compiles it"


def _tell_version(wanted: bool) -> None:
    if wanted:
        from orderlab.sim.native import install

        typer.echo(f"{PROGRAM} {__version__}")
        typer.echo(f"kernel: {'machine code' if install.is_installed() else INTERPRETED}")
        raise typer.Exit(ExitCode.HOLDS)


def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Judge, explore and simulate ordered queues kept in Redis behind Lua scripts."""
