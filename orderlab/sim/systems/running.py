"""How a run of any system tells how far it is, and keeps memory while it lasts."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

NEW_OBJECTS = 50_000
"""Between two collections; Python's own 700 would look at every batch of messages under way again and again."""


KEPT_BYTES = 64 << 20
MAPPED_BYTES = 4 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of ``malloc.h``."""


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """Virtual time, messages published and delivered so far, and the wall time that it took."""

    simulated_s: float
    total_s: float
    messages: int
    wall_s: float


def keep_freed_memory() -> None:
    """Let the C library, if it is glibc, give back no memory that a batch of rows will ask for again: columns of half a
    megabyte came and went, and with each its pages, a seventh of all that a run touches."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in ((_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_MMAP_THRESHOLD, MAPPED_BYTES)):
            library.mallopt(option, size)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python's cyclic garbage collector pass over what exists now until the end, and look at what comes less often:
    millions of objects stay to the end of a run, and few cycles come up. From here on freed memory stays with the
    process."""
    keep_freed_memory()
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
