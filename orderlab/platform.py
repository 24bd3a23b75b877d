"""What the system below Python has, asked in one place: Linux has all of it, macOS most, Windows too little."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec

UNSUPPORTED = (
    "this system has no fork and no limits of resources, without which a script that hangs could not be ended; "
    "run it on Linux or macOS, under Windows in WSL"
)
"""What is said where there is no POSIX system."""
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals by which others ask a process to end; Windows has no SIGHUP."""


def can_fork() -> bool:
    """Whether a process can be forked."""
    return hasattr(os, "fork")


def is_supported() -> bool:
    """Whether there is what no command does without: fork, limits of resources, and locks on files."""
    return can_fork() and all(find_spec(module) is not None for module in ("resource", "fcntl"))


def cores() -> int:
    """Cores that this process may use; all of the machine, where its system does not say (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident_bytes_max() -> int:
    """The most memory that this process ever held."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
