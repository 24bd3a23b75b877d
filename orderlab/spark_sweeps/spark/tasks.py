"""What Spark's Python workers are told to call. Imports nothing of orderlab until the code is where it can run from.

``--py-files`` puts a zip on the path; compiled code is cached beside its source, and scripts are files, so a zip is
unpacked once per machine before anything is imported from it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import blake2b

MARK = "ORDERLAB-STOP"
"""Before a line for the user, inside whatever Spark makes of an exception."""


class Stopped(Exception):
    """An error that trying again would not fix."""


@contextlib.contextmanager
def marked_errors() -> Iterator[None]:
    """An InputError leaves a task so that the driver finds its line again."""
    from orderlab.model.errors import InputError

    try:
        yield
    except InputError as error:
        raise Stopped(f"{MARK}<<{error}>>") from None


def do_chunk(order: tuple[str, ...], chunk: bytes) -> int:
    """The runs of a chunk, given as little-endian 64-bit numbers; how many."""
    unpack_own_zip()
    import numpy as np

    from orderlab.spark_sweeps.runs.workers import Order, work_through

    sweep, file, folder, attempt, *digests = order
    with marked_errors():
        return work_through(Order(sweep, file, folder, int(attempt), *digests), np.frombuffer(chunk, "<i8").tolist())


def do_partition(order: tuple[str, ...], chunks: Iterable[bytes]) -> Iterator[int]:
    """Do the chunks of `mapPartitions`: each partition holds one chunk."""
    for chunk in chunks:
        yield do_chunk(order, chunk)


def unpack_own_zip() -> str | None:
    """If this module comes out of a zip, unpack that and import from there; the folder, if so."""
    archive = _own_zip()
    if archive is None:
        return None
    with open(archive, "rb") as file:
        digest = blake2b(file.read(), digest_size=16).hexdigest()
    folder = os.path.join(tempfile.gettempdir(), f"orderlab-code-{os.getuid()}-{digest}")
    if not os.path.isdir(folder):
        temporary = tempfile.mkdtemp(prefix="orderlab-code-")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(temporary)
        with contextlib.suppress(OSError):  # another worker was first
            os.rename(temporary, folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
        here = sys.modules[__name__]
        for name in [name for name in sys.modules if name.partition(".")[0] == "orderlab"]:
            if sys.modules[name] is not here:
                del sys.modules[name]
    return folder


def _own_zip() -> str | None:
    path = os.path.abspath(__file__)
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if os.path.isfile(path):
            return path if zipfile.is_zipfile(path) else None
        if os.path.isdir(path):
            return None
    return None
