"""Whether threads stand still: they wait for something that is neither the processor nor Python's own lock.

Seen from the system where it tells (``/proc``): such a thread sleeps, and was not woken up since it was seen before,
as one that waits for Python's lock is each ``SWITCH_S``. So a busy machine makes no thread look still. Elsewhere by
the instruction at which it is, in ``LONG_S``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SWITCH_S = 0.0005
"""After which a thread that waits for Python's lock asks for it again."""
STILL_S, LONG_S = 0.003, 0.1
"""How long a thread has to look the same."""
FRAMES = "_current_frames"
"""What tells where each thread is."""
_TASKS = Path("/proc/self/task")


class Stillness:
    """What was seen of threads, each by its number for the system and for Python."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, float]] = {}
        self._is_told = _TASKS.is_dir()

    def of(self, threads: Iterable[tuple[int, int]]) -> bool:
        """Whether all of them stand still; to be asked again and again."""
        now = time.monotonic()
        are_still = True
        for number, identity in threads:
            mark = _told_by_system(number) if self._is_told else _instruction(identity)
            known = self._seen.get(number)
            if mark is None or known is None or known[0] != mark:
                self._seen[number] = (mark, now)
                are_still = False
            elif now - known[1] < (STILL_S if self._is_told else LONG_S):
                are_still = False
        return are_still


def _told_by_system(number: int) -> Any:
    """How often a thread went on, if it sleeps; None: it does not."""
    try:
        text = (_TASKS / str(number) / "status").read_text()
    except OSError:
        return None
    rows = dict(line.partition(":")[::2] for line in text.splitlines())
    is_asleep = rows["State"].strip().startswith("S")
    return (rows["voluntary_ctxt_switches"], rows["nonvoluntary_ctxt_switches"]) if is_asleep else None


def _instruction(identity: int) -> Any:
    frame = getattr(sys, FRAMES)().get(identity)
    return None if frame is None else (id(frame), frame.f_lasti)


@contextmanager
def threads_alternate_often() -> Iterator[None]:
    """Within it no thread waits long for Python's lock without being woken up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
