"""Digests of what a run depends on: the code of the rooms that it goes through, and the scripts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

CODE = ("model", "sim", "spark_sweeps")
_NOT_CODE_OF_A_RUN = ("report", "examples", "questions", "engines", "__pycache__")


@cache
def code_digest() -> str:
    """Of every Python and TOML file of the rooms that a run goes through."""
    hashed = blake2b(digest_size=16)
    for package in CODE:
        _add(hashed, package, files(package), (".py", ".toml"))
    return hashed.hexdigest()


@cache
def scripts_digest() -> str:
    """Of every Lua script and binding."""
    hashed = blake2b(digest_size=16)
    _add(hashed, "lua", Path(__file__).parents[1] / "lua", (".lua", ".toml"))
    return hashed.hexdigest()


def _add(hashed: blake2b, name: str, folder: Traversable, suffixes: tuple[str, ...]) -> None:
    for path, content in _contents(name, folder, suffixes):
        hashed.update(f"{path}\0{len(content)}\0".encode())
        hashed.update(content)


def _contents(name: str, folder: Traversable, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            if item.name not in _NOT_CODE_OF_A_RUN:
                yield from _contents(f"{name}/{item.name}", item, suffixes)
        elif item.name.endswith(suffixes):
            yield f"{name}/{item.name}", item.read_bytes()
