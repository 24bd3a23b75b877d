"""Digests of what a run depends on: the code of the rooms that it goes through, the scripts, and what the user brings.

A user brings a module (``system = "module:function"``) or a cost model in a file. Of a module counts its text and that of
everything that it imports from beside it, found by reading the text, so that driver and workers agree whatever either of
them has imported. What is imported under a computed name, and files that a function reads, are not seen.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orderlab.spark_sweeps.specification import SweepFile

CODE = ("orderlab.model", "orderlab.sim", "orderlab.spark_sweeps")
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


def subject_digest(sweep: SweepFile) -> str:
    """Of what the user brings: the module of a function, or cost models in files; the same for all who bring nothing."""
    if ":" in sweep.system:
        return module_digest(sweep.system.partition(":")[0])
    given: list[Any] = [sweep.base.get("costs")]
    given += sweep.axes["costs"].listed() if "costs" in sweep.axes else ()
    given += [row.get("costs") for row in sweep.design.rows or ()]
    hashed = blake2b(digest_size=16)
    for name in sorted({str(one).split()[0] for one in given if str(one or "").strip()}):
        path = Path(name)
        if path.is_file():  # a name of the catalogue is code, and has its digest already
            content = path.read_bytes()
            hashed.update(f"{name}\0{len(content)}\0".encode())
            hashed.update(content)
    return hashed.hexdigest()


@cache
def module_digest(module: str) -> str:
    """Of a module and of what it imports from beside it. Once a process: of what it has imported, not of a later edit."""
    root = _root_of(module)
    hashed = blake2b(digest_size=16)
    if root is None:  # built in, or without a file
        hashed.update(f"{module}\0{sys.version}".encode())
        return hashed.hexdigest()
    # beside an installed package lie all others: there only the package itself is the user's
    within = module.partition(".")[0] if root.name in ("site-packages", "dist-packages") else None
    found: dict[str, bytes] = {}
    left = [module]
    while left:
        name = left.pop()
        if within is not None and name.partition(".")[0] != within:
            continue
        for path, content in _files_of(root, name):
            if path not in found:
                found[path] = content
                if path.endswith(".py"):
                    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
                    left += _imported(content, package)
    for path, content in sorted(found.items()):
        hashed.update(f"{path}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()


def _root_of(module: str) -> Path | None:
    """The folder, or the zip, from which the first part of a dotted name is imported."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or module.partition(".")[0] in sys.stdlib_module_names:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec.has_location and spec.origin else None


def _files_of(root: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """A module's file, and those of the packages around it."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        place = "/".join(parts[:depth])
        endings = ["/__init__.py"] + ([".py", *EXTENSION_SUFFIXES] if depth == len(parts) else [])
        for ending in endings:
            content = _read(root, place + ending)
            if content is not None:
                yield place + ending, content


def _read(root: Path, name: str) -> bytes | None:
    """A file below a folder, or in a zip or a folder of one; None if there is none."""
    try:
        if root.is_dir():
            path = root / name
            return path.read_bytes() if path.is_file() else None
        for archive in (root, *root.parents):
            if archive.is_file():
                with zipfile.ZipFile(archive) as packed:
                    return packed.read(str((root / name).relative_to(archive)))
    except (OSError, KeyError, zipfile.BadZipFile):
        pass
    return None


def _imported(content: bytes, package: str) -> list[str]:
    """Every name that a text imports, or may: of ``from a import b`` both a and a.b."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # importing it says so
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(filter(None, [*above, base]))
            found += [base, *(f"{base}.{one.name}" if base else one.name for one in node.names)]
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__"):
            found += [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [name for name in found if name]


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
