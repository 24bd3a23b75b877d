"""What the system below Python has, asked in one place: Linux has all of it, macOS most, Windows too little;
and how much of it long work takes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import CodeType
from typing import Any

UNSUPPORTED = (
    "this system has no fork and no limits of resources, without which a script that hangs could not be ended; "
    "run it on Linux or macOS, under Windows in WSL"
)
"""What is said where there is no POSIX system."""
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals by which others ask a process to end; Windows has no SIGHUP."""
NEW_OBJECTS = 50_000
"""Between two collections; Python's own 700 would look at every batch of messages under way again and again."""
KEPT_BYTES = 64 << 20
MAPPED_BYTES = 4 << 20
GROWN_BYTES = 64 << 20
_held_bytes: int | None = None
"""How much memory was in use after the last collection of all; None: there was no run yet."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of ``malloc.h``."""


def can_fork() -> bool:
    """Whether a process can be forked."""
    return hasattr(os, "fork")


def is_supported() -> bool:
    """Whether there is what no command does without: fork, limits of resources, and locks on files."""
    return can_fork() and all(find_spec(module) is not None for module in ("resource", "fcntl"))


whole: set[CodeType] = set()
"""Of functions within which a signal's handler must raise nothing (`kept_whole`)."""


def kept_whole(function: Callable[..., Any]) -> None:
    """While this function runs, what asks this process to end waits: what a handler raises within a callback of LLVM is
    lost, or ends the process by SIGSEGV; within one of Lua a script may catch it, and takes it for a refused command.
    Compiled functions have no such moments."""
    code = getattr(function, "__code__", None)
    if code is not None:
        whole.add(code)


def cores() -> int:
    """Cores that this process may use; all of the machine, where its system does not say (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident_bytes_max() -> int:
    """The most memory that this process ever held."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def keep_freed_memory() -> None:
    """Let the C library, if it is glibc, give back no memory that a batch of rows will ask for again: columns of half a
    megabyte came and went, and with each its pages, a seventh of all that a run touches."""
    import ctypes

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in ((_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_MMAP_THRESHOLD, MAPPED_BYTES)):
            library.mallopt(option, size)


def give_back_freed_memory() -> None:
    """Give back the pages of the heap's holes, which glibc keeps otherwise."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def collect_when_grown() -> None:
    """Free what runs before have left in cycles, if this process has grown by 64 MiB since that was done last: to look
    at all objects takes as long as a short run. Where nobody tells how much memory is in use, each time."""
    global _held_bytes
    held = _resident_bytes()
    is_first = _held_bytes is None
    if not is_first and (held is None or held > (_held_bytes or 0) + GROWN_BYTES):
        gc.collect()
        give_back_freed_memory()
    elif not is_first:
        return
    _held_bytes = _resident_bytes() or 0


def _resident_bytes() -> int | None:
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python's cyclic garbage collector pass over what exists now until the end, and look at what comes less often:
    millions of objects stay to the end of a run or a search, and few cycles come up. From here on freed memory stays
    with the process. Within another one it changes nothing, and what somebody has frozen for good stays so: a child
    of a sweep looks at what its own runs left alone."""
    if gc.get_threshold()[0] >= NEW_OBJECTS:
        yield
        return
    keep_freed_memory()
    thresholds = gc.get_threshold()
    is_frozen = gc.get_freeze_count() > 0
    if not is_frozen:
        gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not is_frozen:
            gc.unfreeze()
