"""Processes that this one starts end with it, even if it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


def dying_with_this_process() -> Callable[[], None]:
    """To be called in a child before anything else: Linux then kills it when the thread that started it ends, however
    that happens. Elsewhere it does nothing.
    """
    parent = os.getpid()
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had ended before
            os._exit(1)

    return die_with_parent
