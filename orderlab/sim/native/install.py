"""Machine code for the modules that most of the time is spent in, where it has been made (``compiling``).

The same text runs interpreted or compiled and gives the same results; only the speed differs. Machine code lies in the
user's cache folder, or in the wheel, under the digest of every module that it was made from, so code that is out of
date is never found.
``ORDERLAB_COMPILED=0`` in the environment turns it off.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

SWITCH = "ORDERLAB_COMPILED"
ROOT = Path(__file__).resolve().parents[3]
DEPENDS_ON = (
    "orderlab/sim/redis/*.py",
    "orderlab/sim/redis/commands/*.py",
    "orderlab/sim/redis/lua/**/*.py",
    "orderlab/sim/redis/values/*.py",
    "orderlab/sim/redis/**/*.[ch]",
    "orderlab/sim/engine/*.c",
    "orderlab/model/errors.py",
    "orderlab/sim/native/build.py",
)
"""The modules that machine code is made from, those that they import, and the list of what is compiled. What serves
the kernel (``wire``) and ``backends`` are imported by none of them."""
LIBRARY_SUFFIX = ".so"
"""Of what is made from C, beside the place of its text."""
SHARED = "__mypyc"
"""How the name of the one library ends that holds all the code; the modules are openings into it."""
OPEN_FILES = Path("/proc/self/fd")
"""Where a process finds its open files, removed ones too: on Linux."""
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


class _Finder(MetaPathFinder):
    """Finds compiled modules by their full names, and the ``place`` where they lie.

    Each file is held open, so that a process goes on when its folder is removed meanwhile: a module that was not
    imported until then could not be interpreted, as what it inherits from is machine code already.
    """

    def __init__(self, place: Path, files: Mapping[str, Path]) -> None:
        self.place = place
        self.files = files
        self._open = {name: os.open(file, os.O_RDONLY) for name, file in files.items()} if OPEN_FILES.is_dir() else {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's specification, or None if it is not compiled."""
        file = self.files.get(fullname)
        if file is None:
            return None
        if fullname in self._open and not file.exists():
            file = OPEN_FILES / str(self._open[fullname])
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def sources(root: Path) -> list[Path]:
    """The modules of DEPENDS_ON; none where they do not lie in a folder (inside an archive)."""
    return sorted(path for pattern in DEPENDS_ON for path in root.glob(pattern))


def shipped(root: Path = ROOT) -> Path:
    """Where a wheel has its machine code: of the modules under ``root`` as they are now, for any build of this version
    of Python."""
    return root / "orderlab" / "sim" / "native" / "shipped" / _digest(root, SUFFIX)


def _digest(root: Path, made_for: str) -> str:
    digest = hashlib.sha256(made_for.encode())
    for path in sources(root):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(root)}:{len(text)}:".encode() + text)
    return digest.hexdigest()[:24]


def folders(root: Path = ROOT) -> list[Path]:
    """Where machine code of the modules under ``root`` as they are now is made: in the user's cache folder, or in the
    environment where that cannot be written. Empty where the modules cannot be read."""
    if not sources(root):
        return []
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    bases = [*([cache] if os.path.isabs(cache) else []), sys.prefix]  # a user without a home keeps his "~"
    name = _digest(root, f"{sys.version}{SUFFIX}")
    return [Path(base) / "orderlab" / "compiled" / name for base in bases]


def install() -> None:
    """Import compiled modules from here on where there are any for the text as it is."""
    if os.environ.get(SWITCH) == "0" or is_installed():
        return
    try:
        place, found = next((place, found) for place in _places() if (found := modules_in(place)))
    except (OSError, StopIteration):
        return
    finder = _Finder(place, found)
    sys.meta_path.insert(0, finder)
    try:
        for name in found:
            if name.endswith(SHARED):
                importlib.import_module(name)
    except ImportError:  # made on another machine, or damaged
        sys.meta_path.remove(finder)


def _places() -> Iterator[Path]:
    if (ROOT / "orderlab" / "sim" / "native" / "shipped").is_dir():
        yield shipped()
    yield from folders()


def modules_in(place: Path) -> dict[str, Path]:
    """Compiled modules of a folder by their full names."""
    return {".".join(path.relative_to(place).parts).removesuffix(SUFFIX): path for path in place.rglob(f"*{SUFFIX}")}


def is_installed() -> bool:
    """Whether this process takes compiled modules."""
    return _place() is not None


def library(text: Path) -> Path | None:
    """The library made from the C ``text`` of this package, if this process takes compiled modules."""
    place = _place()
    return library_in(place, text) if place is not None and text.is_relative_to(ROOT) else None


def extension(text: Path) -> Any:
    """The module made from the C ``text`` of this package, which is named as the file is; None where this process takes
    no compiled modules."""
    file = library(text)
    if file is None or not file.exists():
        return None
    loader = ExtensionFileLoader(text.stem, str(file))
    spec = spec_from_loader(text.stem, loader)
    assert spec is not None, "a loader makes a specification"
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def library_in(place: Path, text: Path) -> Path:
    """Where in a folder of machine code the library made from the C ``text`` lies."""
    return (place / text.relative_to(ROOT)).with_suffix(LIBRARY_SUFFIX)


def _place() -> Path | None:
    return next((finder.place for finder in sys.meta_path if isinstance(finder, _Finder)), None)
