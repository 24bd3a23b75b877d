"""Children are forked without a warning of threads, and end with the process that made them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from orderlab.child import quiet_fork

WARNING = "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the child."
"""As Python 3.12 to 3.14 say it."""


def test_a_fork_is_not_warned_of() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_fork():
            warnings.warn(WARNING, DeprecationWarning, stacklevel=1)
        assert heard == []
        warnings.warn(WARNING, DeprecationWarning, stacklevel=1)
        assert len(heard) == 1, "outside of it everyone hears"


def test_any_other_warning_is_heard() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_fork():
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        assert [str(one.message) for one in heard] == ["old"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    told = tmp_path / "child"
    text = (
        "import os, sys, time\nfrom pathlib import Path\nfrom orderlab.child import dying_with_parent\n"
        "die = dying_with_parent()\n"
        "if os.fork() == 0:\n    die()\n    Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text, str(told)]) as parent:
        while not (told.exists() and told.read_text()):
            time.sleep(0.01)
        child = int(told.read_text())
        parent.send_signal(signal.SIGKILL)
    for _ in range(12_000):
        if not _lives(child):
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
