"""Loading a binding from disk: the TOML, the scripts that it names, an adapter that the user trusts."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

from model.errors import InputError
from sim.binding.binding import Adapter, Binding
from sim.binding.calls import Script
from sim.binding.schema import Operation, Step, Store, check_store
from sim.binding.syntax import check_syntax

FILE_NAME = "store.toml"
SCRIPT_SIZE_MAX = 1 << 20


def load_binding(path: Path | str, *, trust_adapter: bool = False) -> Binding:
    """The binding at ``path``, a ``store.toml`` or the folder that holds it.

    ``trust_adapter`` allows the Python file that a binding may name to run. Raises InputError, one line that names
    the file, the key and the cure, when the binding or one of its scripts cannot be used.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    place = str(file)
    store = check_store(_read_toml(file), place)
    folder = file.parent
    names = dict.fromkeys(name for _, name in _script_names(store))
    scripts = []
    for name in names:
        where = next(where for where, other in _script_names(store) if other == name)
        script = _read_script(folder, name, f"{place}: {where}")
        check_syntax(script)
        scripts.append(script)
    binding = Binding(folder, place, store, tuple(scripts))
    assert binding.operations  # compiles every template, so that a mistake shows now
    if store.adapter is None:
        return binding
    return Binding(folder, place, store, tuple(scripts), _load_adapter(store.adapter, binding, place, trust_adapter))


def _read_toml(file: Path) -> dict[str, Any]:
    content = _read(file, str(file), f"put a {FILE_NAME} there (notes/bindings.md shows one)")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: not TOML: {error}") from None


def _read(file: Path, place: str, cure: str) -> bytes:
    try:
        if file.is_file() and file.stat().st_size > SCRIPT_SIZE_MAX:
            raise InputError(f"{place}: larger than {SCRIPT_SIZE_MAX} bytes; give a smaller file")
        return file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{place}: no such file; {cure}") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror}); {cure}") from None
    except ValueError:
        raise InputError(f"{place}: not a file name; {cure}") from None


def _script_names(store: Store) -> list[tuple[str, str]]:
    """(key in the binding, file name) of every script, in order."""
    found = []
    for name in type(store.operations).model_fields:
        operation: Operation | None = getattr(store.operations, name)
        if operation is None:
            continue
        calls: list[tuple[str, Operation | Step]] = [(f"operations.{name}", operation)]
        calls += [(f"operations.{name}.steps[{index}]", step) for index, step in enumerate(operation.steps or ())]
        for where, call in calls:
            found += [(f"{where}.{key}", file) for key in ("script", "library") if (file := getattr(call, key))]
    return found


def _read_script(folder: Path, name: str, place: str) -> Script:
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside:
        raise InputError(f'{place}: "{name}" lies outside the store\'s folder; move the script into it')
    return Script(name, _read(path, f'{place}: "{name}"', f"put the script into {folder} or correct the name"), path)


def _load_adapter(reference: str, binding: Binding, place: str, trusted: bool) -> Adapter:
    name, _, class_name = reference.partition(":")
    here = f"{place}: adapter"
    if not name.endswith(".py") or not class_name.isidentifier():
        raise InputError(f'{here}: "{reference}" is no adapter; write "adapter.py:ClassName"')
    if not trusted:
        raise InputError(f'{here}: "{reference}" is Python that would run here; pass --trust-adapter if you trust it')
    file = _read_script(binding.path, name, here).path
    specification = importlib.util.spec_from_file_location(f"orderlab_adapter_{file.stem}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
        adapter: Adapter = getattr(module, class_name)(binding)
    except Exception as error:
        raise InputError(f"{here}: {reference} failed: {type(error).__name__}: {error}") from None
    return adapter
