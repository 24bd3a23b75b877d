"""The mutation operators by name, and the mutants that they make of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orderlab.model.errors import InputError, did_you_mean
from orderlab.properties.mutants import command_changes, lua_changes
from orderlab.properties.mutants.mutant import Mutant
from orderlab.properties.syntax import Chunk, Operator
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import check_syntax
from orderlab.sim.stores.binding.results import Script

OPERATORS: dict[str, Operator] = {
    "relational": lua_changes.swap_comparisons,
    "arithmetic": lua_changes.swap_arithmetic,
    "constant": lua_changes.shift_constants,
    "statement": lua_changes.drop_statements,
    "option": command_changes.change_options,
    "command": command_changes.swap_commands,
    "default": lua_changes.drop_defaults,
    "order": lua_changes.swap_effects,
    "key": command_changes.take_other_keys,
    "return": lua_changes.return_early,
    "range": command_changes.widen_ranges,
}
"""Two that make the same script count once, for the first."""


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
            file, _, line = script.place_of(chunk.line(change.start))
            yield Mutant(
                script.name, name, change.said, change.start, change.end, line, before, change.replacement, source, file
            )


def _compiles(script: Script, source: bytes) -> bool:
    try:
        check_syntax(replace(script, source=source))
    except InputError:
        return False
    return True
