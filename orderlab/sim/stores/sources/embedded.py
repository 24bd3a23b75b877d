"""A script that a file of another language holds, as bytes for a server, and where each of its lines stands."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import PurePath

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.sources.constants import Constants
from orderlab.sim.stores.sources.languages import LANGUAGES
from orderlab.sim.stores.sources.program import Program
from orderlab.sim.stores.sources.scripts import script_named
from orderlab.sim.stores.sources.text import as_bytes


def parsed(path: str, data: bytes, holes: Mapping[str, str]) -> Constants:
    """The texts of the program at ``path``, whose content is ``data``. Raises InputError where its language is not
    known."""
    suffix = PurePath(path).suffix
    if suffix not in LANGUAGES:
        raise InputError(f'{path}: "#" names a string of a program; {did_you_mean(suffix, [*LANGUAGES])}')
    return Constants(Program.parse(path, data, LANGUAGES[suffix]), holes)


def embedded(constants: Constants, name: str) -> tuple[bytes, list[tuple[int, int]]]:
    """The script that ``name`` leads to, and (line of the file, number of lines) of each run of its lines that stand
    one below the other in the file. Raises InputError that names the place and the cure."""
    text = script_named(constants, name)
    lines = text.line_numbers()
    runs = [
        [line for _, line in run]
        for _, run in groupby(enumerate(lines), key=lambda numbered: numbered[1] - numbered[0])
    ]
    return as_bytes(text), [(run[0], len(run)) for run in runs]
