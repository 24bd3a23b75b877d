"""What is linted: Lua files, stores, and programs whose strings are scripts, by path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding.includes import composed
from orderlab.sim.stores.binding.loader import FILE_NAME, PROGRAM_SIZE_MAX, Untrusted, load_binding, read_text_file
from orderlab.sim.stores.binding.lua_text import check_syntax
from orderlab.sim.stores.binding.results import Piece, Script
from orderlab.sim.stores.sources import SUFFIXES

SKIPPED = frozenset({"node_modules", "vendor", "target", "dist", "build", "__pycache__", "venv", "site-packages"})
"""Folders that hold other people's files; those whose names begin with a dot are left out, too."""


def scripts_at(
    paths: Sequence[Path], trust_adapter: bool = False, is_binding_ignored: bool = False
) -> tuple[list[Script], list[str]]:
    """The scripts at the paths, and what was left out and why. Raises InputError for a path that holds none.

    ``is_binding_ignored``: all in a folder are meant, not those that its ``store.toml`` names.
    """
    found: dict[tuple[Path, str], Script] = {}
    left: list[str] = []
    for path in paths:
        before = len(found) + len(left)
        is_below = is_binding_ignored and path.is_dir()
        for script in _files_below(path, left) if is_below else _scripts(path, left, trust_adapter):
            found.setdefault((script.path.resolve(), script.name if script.pieces else ""), script)
        if len(found) + len(left) == before and (is_binding_ignored or not _is_store(path)):
            raise InputError(f"{path}: no Lua file, no {FILE_NAME}, and no program with a script in it; name one")
    return list(found.values()), left


def _is_store(path: Path) -> bool:
    """Whether a binding is there: that of a store of plain commands has no scripts, and is linted all the same."""
    return (path / FILE_NAME if path.is_dir() else path).name == FILE_NAME and (
        path.is_file() or (path / FILE_NAME).is_file()
    )


def _scripts(path: Path, left: list[str], trust_adapter: bool) -> Iterator[Script]:
    if path.is_dir():
        yield from _of_folder(path, left, trust_adapter)
    elif path.suffix == ".toml":
        yield from load_binding(path, trust_adapter=trust_adapter).scripts
    elif path.suffix in (".lua", *SUFFIXES):
        yield from _of_file(path, left)
    elif path.exists():
        raise InputError(f"{path}: neither a Lua file, a {FILE_NAME}, nor a program of a language that is read")
    else:
        raise InputError(f"{path}: no such file; name a Lua file, a folder, a {FILE_NAME} or a program")


def _of_folder(folder: Path, left: list[str], trust_adapter: bool) -> Iterator[Script]:
    """The scripts of a store; of a folder that is none, or not one yet (a draft has gaps), those of all its files."""
    if (folder / FILE_NAME).is_file():
        try:
            yield from load_binding(folder, trust_adapter=trust_adapter).scripts
            return
        except Untrusted:
            raise
        except InputError as error:
            left.append(str(error))
    yield from _files_below(folder, left)


def _files_below(folder: Path, left: list[str]) -> Iterator[Script]:
    """The scripts of all files in a folder, called by their paths in it, with what they include; files that others
    include are no scripts."""
    scripts: list[Script] = []
    for file in _files(folder):
        for script in _of_file(file, left):
            within = file.relative_to(folder).as_posix()
            name = f"{within}#{script.name.partition('#')[2]}" if script.pieces else within
            scripts.append(
                replace(script, name=name, pieces=tuple(piece._replace(name=name) for piece in script.pieces))
            )
    whole = [_whole(script, folder, left) for script in scripts]
    included = {piece.path for script in whole for piece in script.pieces if piece.name != script.name}
    yield from (script for script in whole if script.path not in included)


def _whole(script: Script, folder: Path, left: list[str]) -> Script:
    """A script with the files of the folder that it includes; as it is where one cannot be read, which is told."""

    def reading(part: str, name: str, where: str) -> tuple[bytes, Path]:
        if part:
            raise InputError(f"{where}: unknown part <{part}>; give its folder under [includes] of a {FILE_NAME}")
        return read_text_file(folder / name), folder / name

    try:
        return composed([script], reading)
    except InputError as error:
        left.append(str(error))
        return script


def program_files(folder: Path) -> Iterator[Path]:
    """The programs in a folder whose strings may be scripts, and which may call some."""
    return (file for file in _files(folder) if file.suffix in SUFFIXES)


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            if name.endswith((".lua", *SUFFIXES)):
                yield Path(top) / name


def _of_file(path: Path, left: list[str]) -> Iterator[Script]:
    if path.suffix == ".lua":
        script = Script(path.name, read_text_file(path), path)
        check_syntax(script)
        yield script
        return
    from orderlab.sim.stores.sources.scripts import LOOKS_LIKE_LUA, parsed, scripts_of, sent

    data = read_text_file(path, PROGRAM_SIZE_MAX)
    if not LOOKS_LIKE_LUA.search(data.decode("utf-8", "replace")):
        return
    for found in scripts_of(parsed(str(path), data, {})):
        if found.text is None:
            left.append(found.why_not)
            continue
        name = f"{path.name}#{found.name}"
        source, runs = sent(found.text)
        script = Script(name, source, path, tuple(Piece(name, path, *run) for run in runs))
        try:
            check_syntax(script)
        except InputError as error:
            left.append(str(error))
        else:
            yield script
