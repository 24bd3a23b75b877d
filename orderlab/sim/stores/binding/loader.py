"""Loading a binding from disk: the TOML, the scripts that it names, an adapter that the user trusts."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pickle
import signal
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from orderlab.code_of_user import Guard, described, hearers, hearers_put_right, limited
from orderlab.model.errors import InputError, did_you_mean, shortened
from orderlab.model.files import refuse_compressed, toml_of
from orderlab.sim.stores.binding.binding import Adapter, Binding
from orderlab.sim.stores.binding.includes import composed
from orderlab.sim.stores.binding.lua_text import check_syntax
from orderlab.sim.stores.binding.results import Piece, Script
from orderlab.sim.stores.binding.schema import (
    CONTRACTS,
    JOINED,
    TAGS,
    ContractOperation,
    ContractStore,
    Edit,
    StepTable,
    Table,
    has_contract_class,
)
from orderlab.sim.stores.binding.session import (
    OPERATION_FIELDS,
    Operation,
    Specification,
    Store,
)

if TYPE_CHECKING:
    from orderlab.sim.stores.sources.constants import Constants

FILE_NAME = "store.toml"
SCRIPT_SIZE_MAX = 1 << 20
PROGRAM_SIZE_MAX = 1 << 23
"""Bytes of a file of another language that holds scripts."""
BASES_MAX = 4
WITHOUT_SCRIPTS = ("postgres", "postgres-async")
"""Stores of the suite that go by their names alone: their operations are transactions of tables."""
OWN_KEYS = ("name", "base", "edits", "specimen")
"""Keys that a variant does not take over from its base."""


class Untrusted(InputError):
    """A store needs Python of its owner's, and nobody said that it may run."""


def load_binding(
    path: Path | str, *, trust_adapter: bool = False, instead: Mapping[str, Path] = MappingProxyType({})
) -> Binding:
    """The binding at ``path``, a ``store.toml`` or the folder that holds it.

    Or one of ``WITHOUT_SCRIPTS``. ``trust_adapter`` allows the Python file that a binding may name to run. ``instead``
    is read in place of the store's files of these names. Raises InputError, one line that names the file, the key and
    the cure, when the binding or one of its scripts cannot be used.
    """
    file = Path(path)
    own = file if str(file) in WITHOUT_SCRIPTS and not file.exists() else None
    if own is not None:
        file = Path(__file__).parents[1] / str(file).replace("-", "_")
    if file.is_dir():
        file = file / FILE_NAME
    place = str(own or file)
    if file.suffix == ".lua":
        toml = file.parent / FILE_NAME
        beside = f"name {toml}" if toml.is_file() else f"put a {FILE_NAME} beside it that says how it is called"
        raise InputError(f"{place}: a script, and no store; {beside} (notes/bindings.md)")
    content, folders = _read_variant(file)
    store = check_store(content, place)
    wanted: dict[str, str] = {}
    for where, name in _script_names(store):
        wanted.setdefault(name, where)
    files = _Files(store, place, folders, instead)
    scripts = [files.script(name, f"{place}: {where}") for name, where in wanted.items()]
    files.check_all_used()
    for script in scripts:
        check_syntax(script)
    binding = Binding(own or file.parent, place, store, tuple(scripts))
    if store.contract_class is not None:
        kind = _contract_class(store.contract_class, place, folders, trust_adapter)
        # What its calls read is known when they are compiled, for which the contract must say what its fields are.
        binding = replace(binding, contract=_made(kind, place, store, dict.fromkeys(store.operations)))
        passed = {name: one.reads for name, one in binding.operations.items()}
        binding = replace(binding, contract=_made(kind, place, store, passed))
    assert binding.operations  # compiles every template, so that a mistake shows now
    if store.adapter is None:
        return binding
    return replace(binding, adapter=_load_adapter(store.adapter, binding, folders, trust_adapter))


def _read_variant(file: Path, depth: int = 0) -> tuple[dict[str, Any], list[Path]]:
    """The tables of ``file`` laid over those of its base, and the folders to look for scripts in, nearest first.

    Keys and operations replace those of the same name; everything else of the base stays.
    """
    content = _read_toml(file)
    if isinstance(parts := content.get("includes"), dict):
        content["includes"] = {
            name: str(file.parent / one) if isinstance(one, str) else one for name, one in parts.items()
        }
    base = content.get("base")
    if not isinstance(base, str):
        return content, [file.parent]
    below = file.parent / base
    if depth == BASES_MAX:
        raise InputError(f"{file}: base: more than {BASES_MAX} bases behind one another; name the last one directly")
    if not (below / FILE_NAME).is_file():
        raise InputError(f'{file}: base: no {FILE_NAME} in "{base}"; name the folder of another store')
    inherited, folders = _read_variant(below / FILE_NAME, depth + 1)
    merged = {name: value for name, value in inherited.items() if name not in OWN_KEYS}
    for name, value in content.items():
        old = merged.get(name)
        merged[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    edits = inherited.get("edits", [])
    if isinstance(merged.get("edits", []), list) and edits:
        merged["edits"] = [*edits, *merged.get("edits", [])]
    return merged, [file.parent, *folders]


class _Files:
    """The Lua files of a store, edits made: its scripts, and what these include."""

    def __init__(
        self, store: Store | ContractStore, place: str, folders: list[Path], instead: Mapping[str, Path]
    ) -> None:
        self.store, self.place, self.folders, self.instead = store, place, folders, instead
        self.read: dict[str, Script] = {}
        """By name; what lies in a part that the binding names is called ``<part>/name``."""
        self.programs: dict[Path, Constants] = {}
        """Files of other languages that scripts are strings of."""

    def script(self, name: str, where: str) -> Script:
        """A script with all that it includes. Raises InputError that names the place and the cure."""
        files = [self._file(one, [*self.folders], where) for one in name.split(JOINED)]
        return composed(files, self._included)

    def check_all_used(self) -> None:
        """Raises InputError for an edit of a file that no script is made of, and for a hole that no script has."""
        filled = {name for program in self.programs.values() for name in program.filled}
        if unused := [name for name in self.store.holes if name not in filled]:
            cure = "remove it" if not self.programs else "write it as the error says that names it"
            raise InputError(f"{self.place}: holes: no script has the hole {shortened(unused[0])}; {cure}")
        for index, edit in enumerate(self.store.edits):
            if edit.script not in self.read:
                cure = did_you_mean(edit.script, [*self.read])
                raise InputError(f'{self.place}: edits[{index}].script: unknown script "{edit.script}"; {cure}')

    def _included(self, part: str, name: str, where: str) -> tuple[bytes, Path]:
        if part and part not in self.store.includes:
            cure = f"give its folder under [includes] of {self.place}"
            if self.store.includes:
                cure = did_you_mean(part, [*self.store.includes])
            raise InputError(f"{where}: unknown part <{part}>; {cure}")
        folders = [Path(self.store.includes[part])] if part else self.folders
        found = self._file(f"<{part}>/{name}" if part else name, folders, where, name)
        return found.source, found.path

    def _file(self, told: str, folders: list[Path], where: str, name: str = "") -> Script:
        if told in self.read:
            return self.read[told]
        if "#" in told and not name:
            found = self._embedded(told, folders, where)
        else:
            found = _read_script(folders, name or told, where)
        if (other := self.instead.get(told)) is not None:
            found = replace(found, source=_read(other, str(other), "name a file that can be read"), path=other)
        for index, edit in enumerate(self.store.edits):
            if edit.script == told:
                found = _edited(found, edit, f"{self.place}: edits[{index}]")
        self.read[told] = found
        return found

    def _embedded(self, told: str, folders: list[Path], where: str) -> Script:
        """A string of a program, ``FILE#NAME``."""
        from orderlab.sim.stores.sources.scripts import parsed, script_named, sent

        file, _, name = told.partition("#")
        program = _read_script(folders, file, where, PROGRAM_SIZE_MAX)
        if (other := self.instead.get(file)) is not None:
            content = _read(other, str(other), "name a file that can be read", PROGRAM_SIZE_MAX)
            program = replace(program, source=content, path=other)
        if program.path not in self.programs:
            self.programs[program.path] = parsed(str(program.path), program.source, self.store.holes)
        source, runs = sent(script_named(self.programs[program.path], name))
        return Script(told, source, program.path, tuple(Piece(told, program.path, *run) for run in runs))


def _edited(script: Script, edit: Edit, place: str) -> Script:
    found = script.source.count(edit.find.encode())
    if found != 1:
        raise InputError(f"{place}.find: stands {found} times in {edit.script}; give a piece that stands there once")
    return replace(script, source=script.source.replace(edit.find.encode(), edit.replace.encode()))


def _read_toml(file: Path) -> dict[str, Any]:
    content = _read(file, str(file), f"put a {FILE_NAME} there (notes/bindings.md shows one)")
    return toml_of(content, str(file))


def _read(file: Path, place: str, cure: str, size_max: int = SCRIPT_SIZE_MAX) -> bytes:
    try:
        # Opening a pipe that nobody writes to would wait for ever, and a device may never end.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as opened:
            is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = opened.read(size_max + 1) if is_plain else b""
    except FileNotFoundError:
        raise InputError(f"{place}: no such file; {cure}") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror}); {cure}") from None
    except ValueError:
        raise InputError(f"{place}: not a file name; {cure}") from None
    if not is_plain:
        raise InputError(f"{place}: not a plain file; {cure}")
    if len(content) > size_max:
        raise InputError(f"{place}: larger than {size_max} bytes; give a smaller file")
    refuse_compressed(content, place)
    return content


def read_text_file(path: Path, size_max: int = SCRIPT_SIZE_MAX) -> bytes:
    """The content of a plain file of at most so many bytes. Raises InputError for any other."""
    return _read(path, str(path), "name a file that can be read", size_max)


def _script_names(store: Store | ContractStore) -> list[tuple[str, str]]:
    """(key in the binding, file name) of every script, in order."""
    found = []
    for name, operation in dict(store.operations).items():
        if operation is None:
            continue
        calls: list[tuple[str, Operation | ContractOperation | StepTable]] = [(f"operations.{name}", operation)]
        for index, step in enumerate(operation.steps or ()):
            where = f"operations.{name}.steps[{index}]"
            calls += [
                (where, step),
                *((f"{where}.transaction[{at}]", one) for at, one in enumerate(step.transaction or ())),
            ]
        for where, call in calls:
            given = [(f"{where}.{key}", getattr(call, key)) for key in ("script", "library")]
            found += [(key, file) for key, file in given if file is not None]
    return found


def _read_script(folders: list[Path], name: str, place: str, size_max: int = SCRIPT_SIZE_MAX) -> Script:
    """The nearest file ``name``: in the store's folder, or in that of its base."""
    path = next((folder / name for folder in folders if _is_file(folder / name)), folders[0] / name)
    try:
        inside = any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside:
        raise InputError(f'{place}: "{name}" lies outside the store\'s folder; move the script into it')
    cure = f"put the script into {folders[0]} or correct the name"
    return Script(name, _read(path, f'{place}: "{name}"', cure, size_max), path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _contract_class(reference: str, place: str, folders: list[Path], trusted: bool) -> Any:
    """The class of a contract: the suite's own, or what a file of the store's holds."""
    if reference not in CONTRACTS:
        return _load_class(reference, f"{place}: specification", folders, trusted)
    module, _, name = CONTRACTS[reference].partition(":")
    return getattr(importlib.import_module(module), name)


def _made(kind: Any, place: str, store: Store | ContractStore, bound: Mapping[str, frozenset[str] | None]) -> Any:
    """An instance of a contract's class, in which at least ``operations`` can be read. ``bound``: the operations of the
    store, and the fields that the calls of each read, as far as known."""
    promises = getattr(kind, "promises_table", None)
    if promises is None and store.promises:
        raise InputError(f"{place}: promises: {store.specification} leaves nothing to settle; remove the table")
    settled = {} if promises is None else {"promises": check_promises(promises, store.promises, place), "bound": bound}
    try:
        with _running(kind, f"{place}: specification: {store.specification}"):
            contract = kind(**settled)
        for name, fields in contract.operations.items():
            if not isinstance(name, str) or isinstance(fields, str) or not all(isinstance(one, str) for one in fields):
                raise TypeError(f'operations[{name!r}] is {fields!r:.60}; write {{"{name}": ("field", ...)}}')
        pickle.dumps(contract)
    except (Exception, SystemExit) as error:
        raise InputError(f"{place}: specification: {store.specification} failed: {described(error)}") from None
    return contract


def _load_adapter(reference: str, binding: Binding, folders: list[Path], trusted: bool) -> Adapter:
    place = f"{binding.place}: adapter"
    made = _load_class(reference, place, folders, trusted)
    try:
        with _running(made, f"{place}: {reference}"):
            adapter: Adapter = made(binding)
    except (Exception, SystemExit) as error:
        raise InputError(f"{place}: {reference} failed: {described(error)}") from None
    return adapter


def _load_class(reference: str, place: str, folders: list[Path], trusted: bool) -> Any:
    """The class that ``file.py:ClassName`` names, from a file of the store's folder or of its bases'."""
    name, _, class_name = reference.partition(":")
    if not name.endswith(".py") or not class_name.isidentifier():
        kind = place.rpartition(" ")[2]
        raise InputError(f'{place}: "{reference}" is no {kind}; write "{kind}.py:ClassName"')
    if not trusted:
        raise Untrusted(f'{place}: "{reference}" is Python that would run here; pass --trust-adapter if you trust it')
    script = _read_script(folders, name, place)
    file = script.path
    # Files of two stores may have the same name; two stores of the same file have one class, or no pickle could tell
    # which.
    digest = hashlib.sha1(b"\0".join((os.fsencode(file.resolve()), script.source))).hexdigest()[:12]
    module_name = f"orderlab_adapter_{file.stem}_{digest}"
    if hasattr(sys.modules.get(module_name), class_name):
        return getattr(sys.modules[module_name], class_name)
    specification = importlib.util.spec_from_file_location(module_name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses and pickles look their module up
    try:
        with _running(None, f"{place}: {reference}"):
            specification.loader.exec_module(module)
        return getattr(module, class_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, AttributeError) and error.obj is module and error.name == class_name:
            own = [
                each
                for each, value in vars(module).items()
                if isinstance(value, type) and value.__module__ == module_name
            ]
            raise InputError(f"{place}: {name} has no class {class_name}; {did_you_mean(class_name, own)}") from None
        raise InputError(f"{place}: {reference} failed: {described(error)}") from None


@contextmanager
def _running(of: Any, what: str) -> Iterator[None]:
    """Around code of the user's (nothing is looked after where it is the suite's own): it has its time, what it prints
    goes to standard error, the folder that this process is in and who hears of signals stay as they were."""
    if of is not None and of.__module__.startswith("orderlab."):
        yield
        return
    folder, heard, blocked = Path.cwd(), hearers(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with redirect_stdout(sys.stderr), Guard(what), limited():
            try:
                yield
            finally:
                hearers_put_right(heard)  # before they are told: a library may listen for signals as it is imported
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        os.chdir(folder)


def check_store(content: dict[str, Any], place: str) -> Store | ContractStore:
    """``content``, the parsed TOML, as a Store. Raises InputError that names ``place``, the key and the cure."""
    kind = ContractStore if has_contract_class(content) else Store
    if kind is Store:
        _check_specification(content, place)
    try:
        store = kind.model_validate(content)
    except ValidationError as error:
        mistakes = error.errors()
        unknown = [one for one in mistakes if one["type"] == "extra_forbidden"]  # often why another key is missing
        raise InputError(f"{place}: {_explain((unknown or mistakes)[0], kind)}") from None
    if store.name is not None and not store.name.isprintable():
        raise InputError(f"{place}: name: {store.name!a:.60} would not print as it is; use letters, digits and blanks")
    return store


def _check_specification(content: dict[str, Any], place: str) -> None:
    """Raises InputError where no contract is named that there is, or none at all and the operations are not a
    session's."""
    known = (*get_args(Specification), *CONTRACTS)
    choices = f"{', '.join(known)}, or FILE.py:Class for a contract of your own"
    name, operations = content.get("specification"), content.get("operations")
    if isinstance(name, str) and name not in known:
        near = did_you_mean(name, known)
        cure = near if near.endswith("?") else f"give {choices}"
        raise InputError(f'{place}: specification: unknown value "{shortened(name)[1:-1]}"; {cure}')
    if name is None:  # another letter in it makes a store of sessions of any other, and every key of it a mistake
        for key in content.keys() - Store.model_fields.keys() - ContractStore.model_fields.keys():
            if (near := did_you_mean(key, ("specification",))).endswith("?"):
                raise InputError(f'{place}: unknown key "{shortened(key)[1:-1]}"; {near}')
    if name is None and isinstance(operations, dict) and operations and not operations.keys() & set(OPERATION_FIELDS):
        cure = f'add specification = "...": {choices}'
        raise InputError(
            f"{place}: specification: missing, and {shortened(next(iter(operations)))[1:-1]} is no operation of a "
            f"session; {cure}"
        )


def check_promises(table: type[BaseModel], content: Mapping[str, Any], place: str) -> BaseModel:
    """``[promises]`` as the contract's table. Raises InputError that names ``place``, the key and the cure."""
    try:
        return table.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            name = str(first["loc"][-1])
            raise InputError(
                f'{place}: promises: unknown key "{name}"; {did_you_mean(name, tuple(table.model_fields))}'
            ) from None
        raise InputError(f"{place}: promises.{_explain(first, Table)}") from None


def _explain(error: Any, root: type[Table]) -> str:
    steps = [step for step in error["loc"] if step not in TAGS]
    where = _path(steps)
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _known_keys(root, steps[:-1])
        colon = ": " if steps[1:] else ""
        return f'{_path(steps[:-1])}{colon}unknown key "{steps[-1]}"; {did_you_mean(str(steps[-1]), known)}'
    if kind == "missing":
        return f"{where}: missing; add it"
    if kind == "literal_error":
        found = str(error["input"])
        choices = tuple(error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", "))
        gap = "a gap that orderlab init left: " if found == "TODO" else ""
        return f'{where}: unknown value "{found}"; {gap}{did_you_mean(found, choices)}'
    message = error["msg"]
    return f"{where}: {message[0].lower()}{message[1:]}, not {shortened(error['input'])}"


def _path(steps: list[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def _known_keys(root: type[Table], place: Sequence[int | str]) -> tuple[str, ...]:
    """The keys of the tables that may stand at a place, by the annotations of the models."""
    found: list[Any] = [root]
    for step in place:  # one that leads nowhere is the tag of a union
        found = [inner for annotation in found for inner in _within(annotation, step)] or found
    tables = [one for annotation in found for one in _choices(annotation) if _is_table(one)]
    return tuple(dict.fromkeys(field.alias or name for table in tables for name, field in table.model_fields.items()))


def _within(annotation: Any, step: int | str) -> Iterator[Any]:
    for one in _choices(annotation):
        if _is_table(one):
            yield from (field.annotation for name, field in one.model_fields.items() if step in (name, field.alias))
        elif get_origin(one) is dict and isinstance(step, str):
            yield get_args(one)[1]
        elif get_origin(one) is list and isinstance(step, int):
            yield get_args(one)[0]


def _choices(annotation: Any) -> Iterator[Any]:
    """What an annotation allows: a union's parts, without what is annotated."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _choices(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _choices(part)
    else:
        yield annotation


def _is_table(annotation: Any) -> bool:
    """Whether an annotation is one of the models of a TOML table."""
    return isinstance(annotation, type) and issubclass(annotation, Table)
