"""numba's ``njit``, with machine code that is kept safely between runs, wherever this package lies.

numba keeps it beside the module or in the home of the user, ends the program where neither can be written, and takes
old code for new when a function that is called, or a constant, changes in another file. Here it lies under a digest of
every module that compiled functions and their constants come from; where nothing at all can be written, it is made
anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.event import Listener, install_listener
from numba.core.runtime.nrt import rtsys

from orderlab.model.files import cache_folder, is_writable
from orderlab.platform import kept_whole

ROOM = Path(__file__).parent
LINEARIZABILITY = "checkers/linearizability/objects.py"
CONSTANTS = ("history/events.py", LINEARIZABILITY, "checkers/wildcards.py", "protocol/packet_id.py")
"""Modules whose constants compiled functions hold, beside the modules with such functions."""
STATES_KEPT = 4


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As ``numba.njit``. With ``cache`` the machine code is kept."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if cache and kept_in() is not None:
            dispatcher._cache = _Kept(function)  # type: ignore[no-untyped-call]  # what `enable_caching` does, with a place of ours
        return undisturbed(dispatcher)

    return compiled


def undisturbed(dispatcher: Any) -> Any:
    """The same compiled function; Ctrl-C and SIGTERM wait while its machine code is made or loaded."""
    compile_or_load = dispatcher.compile

    def compile_whole(signature: Any) -> Any:
        return compile_or_load(signature)

    kept_whole(compile_whole)
    dispatcher.compile = compile_whole
    return dispatcher


class _Told(Listener):
    """Hears of each compilation; what is loaded from the folder is none."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self.tell = tell
        self.depth = 0

    def on_start(self, event: Any) -> None:
        """One begins, perhaps within another."""
        self.depth += 1
        if self.depth == 1:
            self.tell(True)

    def on_end(self, event: Any) -> None:
        """Note that a compilation has ended."""
        self.depth -= 1
        if not self.depth:
            self.tell(False)


@contextlib.contextmanager
def compilation(tell: Callable[[bool], None]) -> Iterator[None]:
    """Have ``tell`` hear, within this context, when machine code begins to be made, and when that ends."""
    with install_listener("numba:compile", _Told(tell)):
        yield


def sources() -> dict[Path, bytes]:
    """The modules that compiled functions are made of, with their text."""
    texts = {path: path.read_bytes() for path in sorted(ROOM.rglob("*.py"))}
    constants = {ROOM / name for name in CONSTANTS}
    return {
        path: text for path, text in texts.items() if path in constants or b"model.machine_code import njit" in text
    }


@cache
def kept_in() -> Path | None:
    """The folder of the machine code; None where the sources cannot be read, as in an archive."""
    found = sources()
    if not found:
        return None
    digest = hashlib.sha256(numba.__version__.encode())
    for path, text in found.items():
        digest.update(f"{path.relative_to(ROOM)}:{len(text)}:".encode() + text)
    name = f"machine-code-{digest.hexdigest()[:16]}"
    chosen = getattr(numba.config, "CACHE_DIR", "")
    for folder in (*([Path(chosen) / name] if chosen else []), ROOM / "__pycache__" / name):
        if is_writable(folder):
            _drop_old(folder)
            return folder
    return cache_folder(name)


def _drop_old(newest: Path) -> None:
    """Leave the machine code of a few earlier states of the text, for going back and forth between them."""
    others = [path for path in newest.parent.glob("machine-code-*") if path != newest]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-STATES_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


class _Locator(UserProvidedCacheLocator):
    """Keeps all in one folder, each package in one of its own."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = os.path.join(str(kept_in()), Path(file).parent.name)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return self._cache_path

    def get_source_stamp(self) -> str:
        """The folder is the stamp."""
        return str(kept_in())


class _Implementation(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class RunTimeCache(FunctionCache):
    """A cache of which machine code is loaded without the compiler: what numba prepares before it looks takes half a
    second, and is prepared again where it compiles after all. Loaded code needs only what the run-time defines."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The machine code; None where there is none."""
        rtsys.initialize(target)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target)  # type: ignore[no-untyped-call]


class _Kept(RunTimeCache):
    """A cache that is never needed: what cannot be read or written in it is compiled."""

    _impl_class = _Implementation  # type: ignore[assignment]

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except Exception:  # damaged, or cut short by a full disk
            with contextlib.suppress(Exception):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]
        except Exception:
            self.disable()  # type: ignore[no-untyped-call]
