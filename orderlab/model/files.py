"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
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
    except OSError as error:
        if file is not None:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "free some space" if full else "name a file in a folder that exists"
        raise InputError(f"{path}: cannot be written ({error.strerror}); {cure}") from None
