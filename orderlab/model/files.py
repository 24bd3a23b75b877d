"""Files: written whole or not at all, read as TOML and JSON, and the folder of what was made once and can be made
again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError, shortened

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where a command says so in one line before it writes anything
    flock = None  # type: ignore[assignment]

PART = ".orderlab-part"
"""How the name of a file ends that is being written."""
LOCK_TRIES = 100
"""A millisecond apart."""


class WholeFile:
    """A file that appears whole or not at all: written beside its place, then renamed over it.

    A symbolic link is followed: what it leads to is replaced, the link stays. What is no plain file (a device, a pipe),
    or is where standard output goes already, is never replaced; it is written into when the rest is whole. Raises
    InputError where nothing can be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._told():
            self._into = _is_written_into(path)
            self._place = path if self._into else Path(os.path.realpath(path))
            if self._place.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.file = _new_part(Path(tempfile.gettempdir()) if self._into else self._place.parent, path.name)

    def keep(self) -> None:
        """Give the file its place. Raises InputError."""
        with self._told():
            if not self.file.closed:
                self.file.flush()
                os.fsync(self.file.fileno())
            if self._into:
                with (
                    open(self.file.name, "rb") as whole,
                    open(os.open(self.path, os.O_WRONLY | os.O_APPEND), "wb") as out,
                ):
                    shutil.copyfileobj(whole, out)
                self.drop()
                return
            try:
                mode = stat.S_IMODE(self._place.stat().st_mode)
            except FileNotFoundError:
                mode = 0o644  # a temporary file is its owner's alone; results are shared
            os.chmod(self.file.name, mode)
            os.replace(self.file.name, self._place)
            self.file.close()  # until here its lock says that somebody writes it

    def drop(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.file.name)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            cure = "free some space, or name another place" if full else "name a file in a folder that exists"
            raise InputError(f"{self.path}: cannot be written ({error.strerror}); {cure}") from None


def _new_part(folder: Path, name: str) -> Any:
    """A file for what will be ``name``, locked while this process lives; parts that others left when they were killed
    go."""
    _remove_once(folder)
    while True:
        part = tempfile.NamedTemporaryFile("w+b", dir=folder, prefix=f".{name[:100]}.", suffix=PART, delete=False)  # noqa: SIM115 - closed at its end
        if flock is None or _is_kept(part.fileno()):
            return part
        part.close()  # found by another process before it was locked


def _is_kept(descriptor: int) -> bool:
    """Lock a new part. Returns whether it is still there: who looks for abandoned ones locks each for a moment, and
    may have found it first. It is not waited for long, for a descriptor may lead to what others have locked."""
    for _ in range(LOCK_TRIES):
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            time.sleep(0.001)
            continue
        except OSError:  # a file system without locks: then nothing is found abandoned there either
            pass
        break
    return os.fstat(descriptor).st_nlink > 0


@cache
def _remove_once(folder: Path) -> None:
    """Once for each folder in the life of a process."""
    remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    """Remove the parts of files that processes which were killed have left in a folder."""
    if flock is None:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in [one for one in entries if one.name.startswith(".") and one.name.endswith(PART) and one.is_file()]:
            with contextlib.suppress(OSError), open(entry.path, "rb") as part:
                flock(part.fileno(), LOCK_EX | LOCK_NB)
                os.unlink(entry.path)


SCRATCH = "orderlab-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what is needed until the end of the block. What a process that was killed left of its own goes with
    the next one that is made."""
    base = Path(tempfile.gettempdir())
    _remove_abandoned_folders(base)
    while True:
        with (
            tempfile.TemporaryDirectory(prefix=SCRATCH, dir=base, ignore_cleanup_errors=True) as made,
            open(os.path.join(made, ".lock"), "wb") as lock,
        ):
            if flock is None or _is_kept(lock.fileno()):
                yield Path(made)
                return


@cache
def _remove_abandoned_folders(base: Path) -> None:
    """Remove the scratch folders of processes that are gone: nobody has locked them any more."""
    if flock is None:
        return
    for folder in base.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), open(folder / ".lock", "rb") as lock:
            flock(lock.fileno(), LOCK_EX | LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file as ``WholeFile`` does. Raises InputError where that cannot be done."""
    out = WholeFile(path)
    try:
        with out._told():
            out.file.write(data)
        out.keep()
    except BaseException:  # an interrupt too leaves nothing beside the file
        out.drop()
        raise


def checked_place(given: str, file: Path, is_read_again: bool = False) -> Path:
    """The file, if it can be written there. Raises InputError, which begins with what was ``given``.

    ``is_read_again``: by the command itself, so that it must be a plain file.
    """
    try:
        if file.is_dir():
            raise InputError(f"{given}: {file} is a folder; name a file in it")
        if _is_written_into(file):
            if is_read_again:
                raise InputError(f"{given}: {file} is no plain file, and it is read again; name another")
            if not os.access(file, os.W_OK):
                raise InputError(f"{given}: {file} may not be written; name another file")
            return file
        folder = Path(os.path.realpath(file)).parent if file.is_symlink() else file.parent
        if not folder.is_dir():
            raise InputError(f"{given}: there is no folder {folder}; make it or name another")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{given}: not a file that can be written ({why}); name another") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{given}: nothing can be written in {folder}; name another folder")
    return file


def _is_written_into(path: Path) -> bool:
    """Whether what is there must stay: it is no plain file, or standard output or standard error go there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        return not stat.S_ISDIR(found.st_mode)
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(stream)):
                return True
    return False


# -- reading
# -------------------------------------------------------------------------------------------------------------

PATH_PARTS_MAX = 64
_PART = r"(?:[A-Za-z0-9_-]++|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')"
_LONG_PATH = re.compile(rf"(?<![A-Za-z0-9_\\-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{PATH_PARTS_MAX},}}+")
"""tomllib takes time that grows with the square of a key's parts."""


_COMPRESSED = {
    rb"\x1f\x8b": "gzip",
    rb"\x28\xb5\x2f\xfd": "zstd",
    rb"\xfd7zXZ\x00": "xz",
    rb"BZh[1-9]1A": "bzip2",
    rb"\x04\x22\x4d\x18": "lz4",
    rb"PK\x03\x04": "zip",
}
"""By what a file begins with. No text that is read here begins so."""


def refuse_compressed(head: bytes, place: str) -> None:
    """Raise InputError if ``head``, a file's first six bytes or more, begins a compressed one."""
    for begin, form in _COMPRESSED.items():
        if re.match(begin, head):
            raise InputError(f"{place}: compressed with {form}; decompress it first")


def toml_of(content: bytes, place: str) -> dict[str, Any]:
    """The tables of a TOML document. Raises InputError with the place and what is wrong."""
    try:
        text = content.decode("utf-8-sig")  # editors on Windows put a mark in front
        if _LONG_PATH.search(text):
            raise InputError(f"{place}: a dotted key of more than {PATH_PARTS_MAX} parts; give a shorter one")
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(
            f"{place}: not usable: tables or arrays nested too deeply; write key = value, one a line"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except ValueError as error:  # of the syntax, or of a number with thousands of digits
        raise InputError(f"{place}: not TOML: {error}; write key = value, one a line") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises InputError."""
    return toml_of(_content(path), str(path))


def json_of(content: bytes | str, place: str, cure: str = "give a JSON document") -> Any:
    """The value of a JSON document, in which no object has a key twice. Raises InputError with the place, what is
    wrong, and the cure."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise InputError(f"{place}: the key {shortened(twice)} stands twice in one object; keep one")
        return found

    try:
        return json.loads(content, object_pairs_hook=once)
    except RecursionError:
        raise InputError(f"{place}: nested too deeply; {cure}") from None
    except ValueError as error:  # of the syntax, of UTF-8, or of a number with thousands of digits
        raise InputError(f"{place}: not JSON ({error}); {cure}") from None


def read_json(path: Path, cure: str = "name a JSON file") -> Any:
    """The value that a JSON file holds. Raises InputError."""
    return json_of(_content(path), str(path), cure)


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Raises InputError."""
    try:
        return _content(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a file that can be") from None
    except ValueError:
        raise InputError(f"{str(path)!r}: not a file name; name a file that can be read") from None
    refuse_compressed(content, str(path))
    return content


@cache
def cache_folder(name: str) -> Path:
    """A folder that can be written: ``$XDG_CACHE_HOME/orderlab/NAME``, or in ``~/.cache``.

    Where neither can be written (a container with a read-only image and no home) it is one of this user in the folder
    of temporary files, or at last a new one for this process alone.
    """
    for base in (_of_user(), _temporary()):
        if base is not None and is_writable(base / name):
            return base / name
    return Path(tempfile.mkdtemp(prefix=f"orderlab-{name}-"))


def is_writable(folder: Path) -> bool:
    """Whether files can be made in ``folder``, which is made if that is possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _of_user() -> Path | None:
    """None for a user without a home: in containers a number that no list of users has."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # the XDG specification has others ignored
        return Path(named) / "orderlab"
    try:
        return Path.home() / ".cache" / "orderlab"
    except RuntimeError:
        return None


def _temporary() -> Path | None:
    """The same for every process of this user, who alone can have made it: what is in it is executed."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir()) / f"orderlab-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if is_private else None
