"""What a store is made of on disk, looked at again and again: which stores have changed since they were judged.

Polled, for no two systems tell of changes alike, and editors save in many ways: a file that is replaced, one that is
gone for a moment. A touched file with the same content is no change.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from orderlab.model.errors import InputError

OF_STORES = (".lua", ".toml", ".py")
"""Files of a store's folder that may be part of it, beside those that its scripts are found in."""

Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size."""


class Watched:
    """One store, or a folder of scripts, as it was when it was looked at last."""

    def __init__(self, path: Path, trust_adapter: bool) -> None:
        self.path = path
        self.trust_adapter = trust_adapter
        self._elsewhere: frozenset[Path] = frozenset()
        """Programs that hold its scripts, and files that those include, as far as they are not in its folder."""
        self._stamps: dict[Path, Stamp] = {}
        self._digests: dict[Path, bytes] = {}

    def has_changed(self) -> bool:
        """Whether the content of any of its files differs from what it was; the first time, always."""
        stamps = self._looked_at()
        if stamps == self._stamps:
            return False
        before = self._digests
        self._note(stamps)
        if self._digests == before:
            return False
        self._elsewhere = self._of_scripts() or self._elsewhere
        self._note(self._looked_at())
        return True

    def _note(self, stamps: dict[Path, Stamp]) -> None:
        known = self._digests
        self._digests = {
            file: known[file] if file in known and self._stamps.get(file) == stamp else _digest(file)
            for file, stamp in stamps.items()
        }
        self._stamps = stamps

    def _looked_at(self) -> dict[Path, Stamp]:
        folder = self.path if self.path.is_dir() else self.path.parent
        if self.path.suffix == ".lua":
            files = [self.path]
        else:
            files = [file for file in folder.iterdir() if file.suffix in OF_STORES] if folder.is_dir() else []
        return {file: stamp for file in sorted({*files, *self._elsewhere}) if (stamp := _stamp(file)) is not None}

    def _of_scripts(self) -> frozenset[Path]:
        from orderlab.sim.stores.binding.loader import load_binding

        try:
            binding = load_binding(self.path, trust_adapter=self.trust_adapter)
        except InputError:  # half-written, or no store: what lies in the folder is enough
            return frozenset()
        return frozenset(
            path for script in binding.scripts for path in (script.path, *(piece.path for piece in script.pieces))
        )


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""
