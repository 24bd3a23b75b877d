"""Progress of long work: one line on standard error that is written over, with the time so far and the time that is
left.

Where standard error is no terminal it is a line of its own, every ten seconds at most; ORDERLAB_PROGRESS=0 in the
environment keeps it away. The time left is told where something is known of it: the share that
is done, else how long the same work took the last time on this machine, else the cap that was set; where nothing is
known nothing is told.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from orderlab.model.errors import InputError
from orderlab.model.files import cache_folder, write_whole
from orderlab.report.words import harmless

BAR = 24
TOLD_EACH_S = 10.0
"""In a pipe."""
SHARE_MIN = 0.02
"""Done, from which the pace says something."""
PACE = (0.25, 4.0)
"""How much faster, or slower, than the last time work is taken to go on."""
COMPILING = "compiling the checkers, once after an installation, about 20 s of work"


_UNKNOWN = (OSError, InputError, ValueError, TypeError, RecursionError)
"""By what the times of the last run cannot be read or kept."""


class ProgressLine:
    """The line of one piece of work. ``work`` is what makes another piece the same: its time is remembered under
    that."""

    def __init__(
        self, name: str = "", work: str = "", cap_s: float | None = None, to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic, kept: Path | None = None,
    ) -> None:  # fmt: skip
        self.name, self.cap_s = name, cap_s
        self._to = sys.stderr if to is None else to
        self.is_shown = self._to.isatty()
        self.is_told = not self.is_shown and os.environ.get("ORDERLAB_PROGRESS") != "0"
        """Now and then, in a pipe."""
        self.is_heard = self.is_shown or self.is_told
        self._told_s = 0.0
        self._clock, self._began = clock, clock()
        self._phase, self._phase_began = "", 0.0
        self._last: dict[str, float] = {}
        self._file: Path | None = None
        if self.is_shown and work:
            with contextlib.suppress(*_UNKNOWN):  # a time that is not known is not told
                place = kept or cache_folder("durations")
                self._file = place / f"{hashlib.sha256(f'{work} {Path.cwd()}'.encode()).hexdigest()[:16]}.json"
                self._running.unlink(missing_ok=True)
                told = json.loads(self._file.read_text())
                self._last = {str(text): float(s) for text, s in told.items()} if isinstance(told, dict) else {}

    @property
    def _running(self) -> Path:
        """Where the phases of this run are noted as they begin: some are told by a process of its own."""
        assert self._file is not None
        return self._file.with_suffix(".running")

    def show(self, text: str, done: float | None = None) -> None:
        """What is being done, and the share that is done where that is known."""
        so_far_s = self._clock() - self._began
        if self.is_told and so_far_s >= self._told_s + TOLD_EACH_S:
            self._told_s = so_far_s
            name = f"{self.name}: " if self.name else ""
            share = "" if done is None else f" {done:.0%}"
            print(harmless(f"{name}{text}{share}, {seconds(so_far_s)} so far"), file=self._to, flush=True)
        if not self.is_shown:
            return
        if done is None and text != self._phase:
            self._phase, self._phase_began = text, so_far_s
            if self._file is not None:
                with contextlib.suppress(OSError), self._running.open("a") as file:
                    file.write(json.dumps([text, so_far_s]) + "\n")
        bar = "" if done is None else f"[{('#' * round(min(done, 1) * BAR)).ljust(BAR, '.')}] "
        name = f"{self.name}: " if self.name else ""
        left = self._left(so_far_s, done)
        line = harmless(f"{name}{bar}{text}, {seconds(so_far_s)} so far{', ' + left if left else ''}")
        print(f"\r\x1b[K{line}", end="", file=self._to, flush=True)

    def _left(self, so_far_s: float, done: float | None) -> str:
        """How long it will take, in words; nothing where nobody knows."""
        cap_s = None if self.cap_s is None else max(self.cap_s - so_far_s, 0.0)
        left_s = None
        if done is not None and done >= SHARE_MIN:
            left_s, said = so_far_s * max(1 - done, 0) / done, "about"
        elif self._phase in self._last and "" in self._last:
            then_s = self._last[self._phase]
            pace = min(max(self._phase_began / then_s, PACE[0]), PACE[1]) if then_s > 1 else 1.0
            left_s = (self._last[""] - then_s) * pace - (so_far_s - self._phase_began)
            if left_s <= 0:
                return "longer than the last time" if cap_s is None else f"at most {seconds(cap_s)} left"
            said = "by the last time about"
        if left_s is not None and (cap_s is None or left_s < cap_s):
            return f"{said} {seconds(left_s)} left"
        return "" if cap_s is None else f"at most {seconds(cap_s)} left"

    def clear(self, is_whole: bool = True) -> None:
        """Leave an empty line behind. ``is_whole``: the work has come to its end, so its time is worth remembering."""
        if not self.is_shown:
            return
        print("\r\x1b[K", end="", file=self._to, flush=True)
        if self._file is None:
            return
        with contextlib.suppress(*_UNKNOWN):
            if is_whole and self._running.exists():
                phases: dict[str, float] = {}
                for line in self._running.read_text().splitlines():
                    text, at_s = json.loads(line)
                    phases.setdefault(text, at_s)
                write_whole(self._file, json.dumps({**phases, "": self._clock() - self._began}).encode())
            self._running.unlink(missing_ok=True)

    @contextmanager
    def telling_compilation(self) -> Iterator[None]:
        """Within it, what compiles machine code is told as compiling, and not as what it is compiled for."""
        if not self.is_shown:
            yield
            return
        from orderlab.model.machine_code import compilation

        with compilation(lambda is_on: self.show(COMPILING) if is_on else None):
            yield


def seconds(amount: float) -> str:
    """A time for people: seconds, then minutes, then hours."""
    if amount < 100:
        return f"{amount:.0f} s"
    return f"{amount / 60:.0f} min" if amount < 6000 else f"{amount / 3600:.1f} h"
