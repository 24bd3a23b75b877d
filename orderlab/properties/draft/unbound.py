"""Scripts that no binding says how to call yet: none is there, or a draft that has gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orderlab.model.errors import InputError
from orderlab.model.files import toml_of
from orderlab.properties.draft.guessed_promises import TODO
from orderlab.properties.draft.own_contract import first_gap
from orderlab.properties.lint.subjects import scripts_at
from orderlab.sim.stores.binding.loader import FILE_NAME, WITHOUT_SCRIPTS, read_text_file
from orderlab.sim.stores.binding.results import Script
from orderlab.sim.stores.sources import SUFFIXES


@dataclass(frozen=True)
class Unbound:
    """Scripts, and what keeps them from being judged by a contract."""

    path: Path
    scripts: Sequence[Script]
    not_read: Sequence[str]
    gap: str
    """The first thing that is missing, with its cure."""
    read_only: frozenset[str]
    """Scripts that a draft says write nothing."""

    @property
    def folder(self) -> Path | None:
        """That whose files these are; None of a single file."""
        if self.path.is_dir():
            return self.path
        return self.path.parent if self.path.name == FILE_NAME else None

    @property
    def name(self) -> str:
        """What reports call it."""
        folder = self.path if self.path.is_dir() or self.path.name != FILE_NAME else self.path.parent
        return folder.resolve().name


def unbound_at(path: Path) -> Unbound | None:
    """The scripts at a path where no binding is, or one with gaps; None where there is a binding. Raises InputError
    where there are no scripts either."""
    file = path / FILE_NAME if path.is_dir() else path
    if path.name == FILE_NAME or (path.is_dir() and file.is_file()):
        return _draft(path, file)
    if str(path) in WITHOUT_SCRIPTS or not path.exists() or (path.suffix == ".lua" and _has_binding(path)):
        return None
    if not path.is_dir() and path.suffix not in (".lua", *SUFFIXES):
        return None
    try:
        scripts, left = scripts_at([path], is_binding_ignored=True)
    except InputError:
        if not path.is_dir():
            raise
        return None  # a folder without scripts is told as one without a binding
    if not scripts:
        if not path.is_dir():
            raise InputError("; ".join(left))
        return None
    folder = path if path.is_dir() else path.parent
    gap = f"{folder / FILE_NAME}: there is none, which would say how these scripts are called; orderlab init {folder}"
    return Unbound(path, scripts, left, f"{gap} drafts one", frozenset())


def _has_binding(script: Path) -> bool:
    return (script.parent / FILE_NAME).is_file()


def _draft(path: Path, file: Path) -> Unbound | None:
    """A binding in which gaps are marked."""
    from orderlab.sim.stores.binding.loader import Untrusted, load_binding

    try:
        content = toml_of(read_text_file(file), str(file))
    except InputError:
        return None
    own, _, _ = str(content.get("specification", "")).partition(":")
    unwritten = first_gap(file.parent / own) if own.endswith(".py") and "/" not in own else None
    if unwritten is None and not any(TODO in text for text in _texts(content)):
        return None
    try:
        load_binding(path)
        gap = ""
    except Untrusted:
        gap = ""
    except InputError as error:
        gap = str(error)
    if not gap and unwritten is None:
        return None
    gap = gap or str(unwritten)
    scripts, left = scripts_at([file.parent], is_binding_ignored=True)
    operations = content.get("operations")
    tables = operations.values() if isinstance(operations, dict) else ()
    read_only = frozenset(
        str(table.get("script")) for table in tables if isinstance(table, dict) and table.get("read_only") is True
    )
    return Unbound(path, scripts, left, gap, read_only)


def _texts(value: object) -> Iterator[str]:
    """Every text in a table of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for table in value.values():
            yield from _texts(table)
    elif isinstance(value, list):
        for table in value:
            yield from _texts(table)
