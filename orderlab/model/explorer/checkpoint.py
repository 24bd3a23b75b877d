"""Checkpoints: an unfinished exploration on disk, to be resumed by a later run of the same specification.

One JSON line (magic, version, what it belongs to, digest) and the pickled plain values. The file is written
whole or not at all. A checkpoint of another specification, scope, text, engine or version is refused, and so is
a damaged one; unpickling admits value types of the specification's own package and nothing else, so the file
cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.model.spec.transition_system import TransitionSystem

MAGIC = "orderlab-checkpoint"
VERSION = 1
_PLAIN = {"builtins": {"frozenset", "set", "complex", "bytearray"}, "collections": {"deque", "OrderedDict"}}


@dataclass(frozen=True)
class Checkpoint:
    engine: str
    levels: list[int]
    expanded: int
    seconds: float
    space: dict[str, Any]


def identity(system: TransitionSystem[Any], symmetry: bool, reduction: bool, chosen: Sequence[str] = ()) -> str:
    """Digest of everything that decides which states there are and in which order."""
    parts = [system.name, json.dumps(system.parameters(), sort_keys=True, default=str), system.source_text()]
    parts += [type(system).__qualname__, str(symmetry), str(reduction), *chosen]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def write_checkpoint(path: Path, belongs_to: str, name: str, checkpoint: Checkpoint) -> None:
    body = pickle.dumps(vars(checkpoint), protocol=5)
    header = {
        "magic": MAGIC,
        "version": VERSION,
        "specification": name,
        "identity": belongs_to,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    write_whole(path, json.dumps(header).encode() + b"\n" + body)


def read_checkpoint(path: Path, belongs_to: str, system: TransitionSystem[Any]) -> Checkpoint:
    """Raises InputError if the file is not a whole checkpoint of this very exploration."""
    try:
        line, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(line)
    except (OSError, ValueError):
        header = None
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise InputError(f"{path}: not a checkpoint; delete it or name another file")
    if header.get("version") != VERSION:
        raise InputError(f"{path}: checkpoint version {header.get('version')}, this is version {VERSION}; delete it")
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise InputError(f"{path}: the checkpoint is damaged; delete it")
    if header.get("identity") != belongs_to:
        other = header.get("specification")
        raise InputError(
            f"{path}: a checkpoint of {other} under another scope, text or reduction than this run of {system.name};"
            " name another file"
        )
    try:
        return Checkpoint(**_ValueUnpickler(io.BytesIO(body), type(system).__module__.split(".")[0]).load())
    except (pickle.UnpicklingError, TypeError, AttributeError, ImportError) as error:
        raise InputError(f"{path}: the checkpoint holds something else than states ({error}); delete it") from None


class _ValueUnpickler(pickle.Unpickler):
    """Finds only value types: named tuples, enumerations and dataclasses of our model or of the system's package."""

    def __init__(self, file: io.BytesIO, package: str):
        super().__init__(file)
        self._packages = {"orderlab", package}

    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module.split(".")[0] in self._packages:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")
