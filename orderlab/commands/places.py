"""Where a command is asked to write: each file has a place of its own, which is none of what the command reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError

_NAMES = "certificate checkpoint export graph history note out output report timeline trace"
OUTPUTS = frozenset(f"--{name}" for name in _NAMES.split())
"""Options that name a file to be written, or a form and a file."""
_SOURCES = (".toml", ".lua", ".py")
"""What is read of a folder that a command is given; a report that lies there from an earlier run may be replaced."""


def check_places(context: Any) -> None:
    """Raise InputError where two outputs of a command that was called so would go to one file, or one to an input."""
    asked, read = [], set()
    for parameter in context.command.params:
        given = context.params.get(parameter.name)
        if OUTPUTS.isdisjoint(parameter.opts):
            read |= {os.path.realpath(named) for named in _named(given) if os.path.exists(named)}
        else:
            asked += [(f"{parameter.opts[0]} {named}", _file_of(named)) for named in _named(given)]
    taken: dict[str, str] = {}
    for option, name in asked:
        place = os.path.realpath(name) if "\0" not in name else name
        if os.path.exists(place) and not os.path.isfile(place):
            continue  # a device or a pipe takes what comes, and a folder is looked at by the command
        is_source = place.endswith(_SOURCES) and os.path.exists(place)
        if place in read or (is_source and any(str(folder) in read for folder in Path(place).parents)):
            raise InputError(f"{option}: the command reads this file; name another")
        if place in taken:
            raise InputError(f"{option}: {taken[place]} goes there, too; give each a file of its own")
        taken[place] = option


def _named(given: Any) -> list[str | Path]:
    """What an option or an argument names, once or several times."""
    values = given if isinstance(given, list | tuple) else (given,)
    return [value for value in values if isinstance(value, str | Path)]


def _file_of(named: str | Path) -> str:
    """The file of FORM=FILE, or of FILE alone."""
    return str(named) if isinstance(named, Path) else named.partition("=")[2] or named
