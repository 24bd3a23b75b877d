"""Exit codes of every command, in this one place.

What was judged decides between 0, 1 and 3; nothing else may end with one of these. A command that a signal ended has the
shell's code of that signal, which is no verdict either.
"""

from __future__ import annotations

from enum import IntEnum

from orderlab.model.verdict import Outcome


class ExitCode(IntEnum):
    """How a command ended."""

    HOLDS = 0
    """Every law held and was put to the test; or what was asked for was done, where nothing is judged."""
    VIOLATED = 1
    """A law is violated."""
    UNUSABLE = 2
    """The input is unusable: one line on standard error says what, where, and the cure; nothing is written."""
    UNKNOWN = 3
    """Undecided within the budget, or nothing was put to the test."""
    INTERNAL = 70
    """A defect of orderlab itself (EX_SOFTWARE of sysexits.h)."""


EXIT = {Outcome.HOLDS: ExitCode.HOLDS, Outcome.VIOLATED: ExitCode.VIOLATED, Outcome.UNKNOWN: ExitCode.UNKNOWN}
"""The exit code of what was judged."""


def of_signal(number: int) -> int:
    """The exit code of a command that this signal ended, as shells tell it."""
    return 128 + number
