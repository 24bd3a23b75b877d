"""Files that appear whole or not at all, and the folder of what was made once and can be made again."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

from orderlab.model.errors import InputError


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the file, then rename over it. Raises InputError where that cannot be done."""
    file = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)  # a temporary file is its owner's alone; results are shared
        os.replace(file.name, path)
    except BaseException as error:  # an interrupt too leaves nothing beside the file
        if file is not None:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
        if not isinstance(error, OSError):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "free some space" if full else "name a file in a folder that exists"
        raise InputError(f"{path}: cannot be written ({error.strerror}); {cure}") from None


@cache
def cache_folder(name: str) -> Path:
    """A folder that can be written: ``$XDG_CACHE_HOME/orderlab/NAME``, or in ``~/.cache``.

    Where neither can be written (a container with a read-only image and no home) it is one of this user in the folder of
    temporary files, or at last a new one for this process alone.
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
