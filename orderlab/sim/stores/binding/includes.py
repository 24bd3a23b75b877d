"""Scripts composed of files: a comment ``--- @include "name"`` on a line of its own stands for another file of the
store's.

``"name"`` is looked for beside the file that includes it, ``<name>`` in the store's folder, ``"<part>/name"`` in the
folder that ``[includes]`` of the binding calls ``part``; ``.lua`` may be left out. A script holds each file once, where
it is first included. The line itself stays, a comment, so that every line of the script is a line of one file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding.lua_text import tokens
from orderlab.sim.stores.binding.results import Piece, Script
from orderlab.sim.stores.binding.schema import JOINED

DEPTH_MAX = 64
"""Files that include one another."""
SIZE_MAX = 1 << 20
"""Bytes of a composed script."""
_DIRECTIVE = re.compile(rb"--+[ \t]*@include[ \t]+(?=[\"'<])(.*)", re.DOTALL)
_REFERENCE = re.compile(
    r"""(?P<mark>["'])(?:<(?P<part>[^<>"']+)>/)?(?P<beside>[^<>"']+)(?P=mark)|<(?P<top>[^<>"']+)>"""
)

Reading = Callable[[str, str, str], tuple[bytes, Path]]
"""The part, the name in it and the place that asks -> the content of a file, and where it lies. Raises InputError."""


@dataclass(frozen=True)
class Place:
    """A file: ``name`` in the folder of the store's, or in one that the binding calls ``part``."""

    part: str
    name: str

    @property
    def told(self) -> str:
        """As it is called in witnesses."""
        return f"<{self.part}>/{self.name}" if self.part else self.name


@dataclass
class _Composition:
    """A script while it is put together."""

    reading: Reading
    parts: dict[Path, str] = field(default_factory=dict)
    source: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0

    def add(self, place: Place, content: bytes, path: Path, above: tuple[tuple[Place, Path], ...]) -> None:
        """The lines of a file, each include replaced. Raises InputError for a file that cannot be included."""
        stack = (*above, (place, path))
        self.parts[path.resolve()] = place.told
        lines = content.split(b"\n")
        first = 1
        for line, reference in _directives(content):
            self._take(place, path, lines, first, line)
            first = line + 1
            where = f"{path}:{line}: @include {reference}"
            wanted = _resolved(reference, place, where)
            found, other = self.reading(wanted.part, wanted.name, where)
            if other.resolve() in [one.resolve() for _, one in stack]:
                names = " -> ".join([*(one.told for one, _ in stack), wanted.told])
                raise InputError(f"{where}: files that include one another: {names}; remove one of these lines")
            if other.resolve() in self.parts:
                continue
            if len(stack) > DEPTH_MAX:
                raise InputError(f"{where}: more than {DEPTH_MAX} files below one another; include them directly")
            if found.startswith((b"#!", b"\x1b")):
                raise InputError(
                    f"{where}: {other} is no plain Lua text (a first line with #! belongs to scripts alone); correct it"
                )
            self.add(wanted, found, other, stack)
        self._take(place, path, lines, first, len(lines) - (lines[-1] == b"" and len(lines) > 1))

    def add_embedded(self, script: Script) -> None:
        """The lines of a string of a program."""
        lines = script.source.split(b"\n")
        self.source += lines
        self.size += len(script.source)
        self.pieces += script.pieces

    def _take(self, place: Place, path: Path, lines: list[bytes], first: int, last: int) -> None:
        if last < first:
            return
        piece = lines[first - 1 : last]
        self.size += sum(map(len, piece)) + len(piece)
        if self.size > SIZE_MAX:
            raise InputError(f"{path}: with all that is included more than {SIZE_MAX:,} bytes; include less")
        self.source += piece
        self.pieces.append(Piece(place.told, path, first, len(piece)))


def composed(scripts: Sequence[Script], reading: Reading) -> Script:
    """The script that files make one after the other, each with those that it includes; the same one where it is a
    single file without. What strings of programs include was put in when they were made."""
    if len(scripts) == 1 and (scripts[0].pieces or not _directives(scripts[0].source)):
        return scripts[0]
    composition = _Composition(reading)
    for script in scripts:
        if script.pieces:
            composition.add_embedded(script)
        else:
            composition.add(Place("", script.name), script.source, script.path, ())
    name = JOINED.join(script.name for script in scripts)
    source = b"\n".join(composition.source) + b"\n"
    return replace(scripts[0], name=name, source=source, pieces=tuple(composition.pieces))


def _directives(source: bytes) -> list[tuple[int, str]]:
    """Line and reference of each include. What stands in a string, or behind code, is none."""
    if b"@include" not in source:
        return []
    found = []
    for token in tokens(source):
        if token.kind == "comment" and (directive := _DIRECTIVE.match(source, token.start, token.end)):
            begin = source.rfind(b"\n", 0, token.start) + 1
            if not source[begin : token.start].strip():
                found.append((token.line, directive[1].decode("utf-8", "surrogateescape").strip().rstrip("; \t")))
    return found


def _resolved(reference: str, beside: Place, where: str) -> Place:
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise InputError(
            f'{where}: no file that is named like this; write "name" (beside this file) or <name> (in the '
            "store's folder)"
        )
    part, name = found["part"] or "", found["beside"] or found["top"]
    if found["beside"] and not part:
        part = beside.part
        name = posixpath.join(posixpath.dirname(beside.name), name)
    name = posixpath.normpath(name if name.endswith(".lua") else f"{name}.lua")
    if name.startswith(("/", "../")) or "\0" in name:
        cure = "move the file into it, or name its folder under [includes] of store.toml"
        raise InputError(f"{where}: outside {f'the folder of <{part}>' if part else 'the store folder'}; {cure}")
    return Place(part, name)
