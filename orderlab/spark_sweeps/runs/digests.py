"""Digests of what a run depends on: the code of the rooms that it goes through, the scripts, and what the user brings.

A user brings a module (``system = "module:function"``) or a cost model in a file. Of a module counts its text and that
of everything that it imports, installed packages aside, found by reading the text, so that driver and workers agree
whatever either of them has imported. What is imported under a computed name, and files that a function reads, are not
seen.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.sweep_file.expressions import Expression

if TYPE_CHECKING:
    from orderlab.spark_sweeps.sweep_file.specification import SweepFile


CODE = ("orderlab.model", "orderlab.sim", "orderlab.spark_sweeps")
SPARK = ("pyspark", "py4j")
"""A cluster brings its own."""
_NOT_CODE_OF_A_RUN = ("report", "examples", "questions", "spark", "__pycache__")


@cache
def code_digest() -> str:
    """Digest of every Python and TOML file of the rooms that a run goes through."""
    hashed = blake2b(digest_size=16)
    for package in CODE:
        _add(hashed, package, files(package), (".py", ".toml"))
    return hashed.hexdigest()


@cache
def scripts_digest() -> str:
    """Digest of every Lua script and binding."""
    hashed = blake2b(digest_size=16)
    _add(hashed, "lua", Path(__file__).parents[2] / "lua", (".lua", ".toml"))
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
    """Digest of what the user brings: the module of a function, or cost models in files; the same for all who bring
    nothing."""
    if ":" in sweep.system:
        return module_digest(sweep.system.partition(":")[0])
    return _cost_models_digest(sweep)


def has_changed(sweep: SweepFile, scripts: str, subject: str) -> str | None:
    """What is another text on the disk now than these digests were made of; None if nothing is. A run may import, or
    read a script, when it needs it: only who asks afterwards knows of which text its rows are.
    """
    if scripts_digest.__wrapped__() != scripts:
        return "a Lua script"
    is_module = ":" in sweep.system
    now = _digest_of(_files_behind(sweep.system.partition(":")[0])) if is_module else _cost_models_digest(sweep)
    return None if now == subject else "the module of its system, what that imports, or a cost model"


def _cost_models_digest(sweep: SweepFile) -> str:
    hashed = blake2b(digest_size=16)
    for name in _cost_models(sweep.model_dump_json(by_alias=True, exclude_none=True)):
        path = Path(name)
        if path.is_file():  # a name of the catalogue is code, and has its digest already
            content = path.read_bytes()
            hashed.update(f"{name}\0{len(content)}\0".encode())
            hashed.update(content)
    return hashed.hexdigest()


@lru_cache(maxsize=4)
def _cost_models(text: str) -> list[str]:
    """The names of all cost models that a sweep's runs ask for, without what they change in them."""
    from orderlab.spark_sweeps.sweep_file.plan import Plan
    from orderlab.spark_sweeps.sweep_file.specification import sweep_of

    sweep = sweep_of(json.loads(text), "sweep")
    given: list[Any] = [sweep.base.get("costs")]
    given += sweep.axes["costs"].listed() if "costs" in sweep.axes else ()
    given += [row.get("costs") for row in sweep.design.rows or ()]
    if "costs" in sweep.derived:
        needed, left = set(), ["costs"]
        while left:
            name = left.pop()
            if name not in needed:
                needed.add(name)
                left += Expression(sweep.derived[name], name).names if name in sweep.derived else ()
        less: dict[str, Any] = {"derived": {name: text for name, text in sweep.derived.items() if name in needed}}
        if sweep.design.kind == "grid":
            less["axes"] = {name: axis for name, axis in sweep.axes.items() if name in needed}
        plan = Plan(sweep.model_copy(update=less))
        for point in range(plan.points):
            with contextlib.suppress(InputError):  # such a run becomes a row with its error
                given.append(plan.run(point * sweep.replications.count).parameters["costs"])
    return sorted({str(one).split()[0] for one in given if str(one or "").strip()})


@cache
def module_digest(module: str) -> str:
    """Digest of a module and of what it imports. Once a process: of what it has imported, not of a later edit."""
    _files_behind.cache_clear()
    return _digest_of(_files_behind(module))


def _digest_of(listed: tuple[tuple[Path, str], ...]) -> str:
    hashed = blake2b(digest_size=16)
    if not listed:  # built in, or without a file
        hashed.update(sys.version.encode())
    for root, path in listed:
        content = _read(root, path) or b""
        hashed.update(f"{path}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()


@lru_cache(maxsize=4)
def _files_behind(module: str) -> tuple[tuple[Path, str], ...]:
    """(where it lies, its name there) of each file of a module and of what it imports, by name."""
    within = None
    if any(_is_installed(root) for root in _roots_of(module)):  # beside it lie packages of others
        within = module.partition(".")[0]
    found: dict[str, Path] = {}
    left, seen = [module], set()
    while left:
        name = left.pop()
        first = name.partition(".")[0]
        if name in seen or within not in (None, first):
            continue
        seen.add(name)
        for root in _roots_of(name):
            if within is None and _is_installed(root):
                continue
            for path, content in _files_of(root, name):
                if path not in found:
                    found[path] = root
                    if path.endswith(".py"):
                        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
                        left += _imported(content, package)
    return tuple((root, path) for path, root in sorted(found.items()))


def _is_installed(root: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(root.parts))


def _roots_of(module: str) -> list[Path]:
    """The folders, or zips, from which the first part of a dotted name is imported; none for what is Python's, Spark's
    or has a digest of its own.
    """
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names or first in SPARK or ".".join(module.split(".")[:2]) in ("orderlab", *CODE):
        return []
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(place).parent for place in spec.submodule_search_locations]
    return [Path(spec.origin).parent] if spec.has_location and spec.origin else []


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
