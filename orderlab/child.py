"""Children of this process: forked without a warning, and gone when it is."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orderlab.model.errors import InputError
from orderlab.platform import UNSUPPORTED, can_fork

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""

asked_to_end: list[int] = []
"""The signals that have asked this process to come to an end and say what it knows; work that can looks at it."""


@contextmanager
def quiet_fork() -> Iterator[None]:
    """Within it a fork is not warned of. Python 3.12 and later do so wherever there are threads, those of pytest-xdist
    for one.

    A child made so runs what it was forked for and ends by ``os._exit``: it waits for no lock that a thread of its
    parent held. Raises InputError where there is no fork.
    """
    if not can_fork():
        raise InputError(UNSUPPORTED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*multi-threaded.*fork", DeprecationWarning)
        yield


def ending_in_order() -> None:
    """In a child that is asked by its parent (SIGTERM) to come to an end: note it, and leave Ctrl-C to the parent,
    which the terminal asks as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_end.append(number))


def dying_with_parent(parent: int | None = None) -> Callable[[], None]:
    """A function to be called in a child of ``parent`` (this process) before anything else.

    Linux then kills the child when the thread that started it ends, however that happens. Elsewhere the child sees only
    whether that has happened before.
    """
    import ctypes

    parent = os.getpid() if parent is None else parent
    # Looked up before the fork: another thread may hold the loader's lock then.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had ended before
            os._exit(1)

    return die_with_parent
