"""Verdicts of earlier runs, kept by a digest of all that they depend on: what is asked again is not judged again.

An entry is there whole or not at all. It is JSON, so that reading what somebody else has put there runs nothing. A
store that brings Python of its owner's is judged each time, for nobody knows what that reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.files import cache_folder, read_json, write_whole
from orderlab.sim.stores.binding.binding import Binding

ENTRIES_MAX = 400
"""Beyond which the oldest go; one takes some 100 KiB."""
PACKAGE = Path(__file__).parents[2]
SOURCES = (".py", ".c", ".h", ".lua")
LIBRARIES = ("lupa", "hypothesis", "pydantic", "fakeredis", "z3-solver")
"""Packages that a verdict, or how it is told, depends on."""
_UNUSABLE = (OSError, InputError, ValueError, TypeError, KeyError, RecursionError)


class VerdictCache:
    """Verdicts of one user. Where nothing can be written, or an entry cannot be read, there is none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def key(self, bindings: Sequence[Binding], asked: object) -> str | None:
        """The digest of the stores, of what is asked of them and of this program; None where the stores run Python of
        their owners'. Where the first lies is told, where the others lie is not."""
        digest = hashlib.sha256(program_digest())
        for text in (str(Path.cwd()), repr(asked)):
            _add(digest, text.encode())
        for index, binding in enumerate(bindings):
            if binding.runs_python:
                return None
            for part in _parts(binding, is_place_told=not index):
                _add(digest, part)
        return digest.hexdigest()

    def get(self, key: str | None) -> dict[str, Any] | None:
        """What was kept under a key."""
        if key is None:
            return None
        with contextlib.suppress(*_UNUSABLE):
            found = read_json(self._file(key))
            if isinstance(found, dict) and found.pop("sum") == _sum(key, found):
                return found
        return None

    def put(self, key: str | None, entry: dict[str, Any]) -> None:
        """Keep what can be written as JSON."""
        if key is None:
            return
        with contextlib.suppress(*_UNUSABLE):
            write_whole(self._file(key), json.dumps({**entry, "sum": _sum(key, entry)}).encode())
            self._make_room()

    def _file(self, key: str) -> Path:
        if self._folder is None:
            self._folder = cache_folder("verdicts")
        return self._folder / f"{key}.json"

    def _make_room(self) -> None:
        assert self._folder is not None
        files = list(self._folder.glob("*.json"))
        if len(files) > ENTRIES_MAX:
            oldest = sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) - ENTRIES_MAX * 3 // 4]
            for file in oldest:
                file.unlink(missing_ok=True)


@cache
def program_digest() -> bytes:
    """The digest of this program's text, of Python, and of the libraries that a verdict depends on."""
    digest = hashlib.sha256()
    for file in sorted(each for each in _files(PACKAGE) if each.suffix in SOURCES):
        _add(digest, str(file.relative_to(PACKAGE)).encode())
        _add(digest, file.read_bytes())
    _add(digest, f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}".encode())
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            _add(digest, f"{name} {version(name)}".encode())
    return digest.digest()


def _files(folder: Path) -> Iterator[Path]:
    for at, _, names in os.walk(folder):
        yield from (Path(at) / name for name in names)


def _parts(binding: Binding, is_place_told: bool) -> Iterator[bytes]:
    """All that a binding is made of, and how its files are called in what is told."""
    file = Path(binding.place)
    yield from (binding.store.model_dump_json().encode(), file.read_bytes() if file.is_file() else b"")
    if is_place_told:
        yield from (str(binding.path).encode(), binding.place.encode())
        yield repr([(str(script.path), script.pieces) for script in binding.scripts]).encode()
    for script in binding.scripts:
        yield from (script.name.encode(), script.source)


def _sum(key: str, entry: dict[str, Any]) -> str:
    """The digest of an entry: one that was edited, damaged, or put under another key is none."""
    return hashlib.sha256(f"{key} {json.dumps(entry)}".encode()).hexdigest()


def _add(digest: Any, part: bytes) -> None:
    """With its length, so that no two lists of parts read alike."""
    digest.update(b"%d:" % len(part))
    digest.update(part)
