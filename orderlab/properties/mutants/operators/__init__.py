"""The mutation operators, one idea a file, and the mutants that they make of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orderlab.model.errors import InputError, did_you_mean
from orderlab.properties.mutants.mutant import Mutant
from orderlab.properties.mutants.operators import (
    arithmetic,
    commands,
    constants,
    defaults,
    keys,
    options,
    order,
    ranges,
    relational,
    returns,
    statements,
)
from orderlab.properties.mutants.syntax import Chunk, Operator
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.calls import Script
from orderlab.sim.stores.binding.syntax import check_syntax

OPERATORS: dict[str, Operator] = {
    "relational": relational.changes,
    "arithmetic": arithmetic.changes,
    "constant": constants.changes,
    "statement": statements.changes,
    "option": options.changes,
    "command": commands.changes,
    "default": defaults.changes,
    "order": order.changes,
    "key": keys.changes,
    "return": returns.changes,
    "range": ranges.changes,
}
"""By name. Two that make the same script count once, for the first."""


def chosen(only: Iterable[str]) -> list[str]:
    """The operators of these names, all without any. Raises InputError for a name that there is not."""
    wanted = list(only)
    for name in wanted:
        if name not in OPERATORS:
            raise InputError(f"--only {name}: no such operator; {did_you_mean(name, tuple(OPERATORS))}")
    return [name for name in OPERATORS if not wanted or name in wanted]


def mutants_of(binding: Binding, only: Iterable[str] = ()) -> list[Mutant]:
    """Every mutant of a store's scripts that compiles, in the order of the source. Raises InputError for bad Lua."""
    operators = chosen(only)
    found = [mutant for script in binding.scripts for mutant in mutants_of_script(script, operators)]
    names = [script.name for script in binding.scripts]
    return sorted(found, key=lambda one: (names.index(one.script), one.start, one.end, one.after))


def mutants_of_script(script: Script, operators: Iterable[str] = tuple(OPERATORS)) -> Iterator[Mutant]:
    """The mutants of one script."""
    chunk = Chunk.parse(script.source, str(script.path))
    known = {script.source}
    for name in operators:
        for change in OPERATORS[name](chunk):
            source = chunk.changed(change)
            if source in known or not _compiles(script, source):
                continue
            known.add(source)
            before = script.source[change.start : change.end]
            line = chunk.line(change.start)
            yield Mutant(
                script.name, name, change.said, change.start, change.end, line, before, change.replacement, source
            )


def _compiles(script: Script, source: bytes) -> bool:
    try:
        check_syntax(replace(script, source=source))
    except InputError:
        return False
    return True
