"""Exit codes of every command that judges: 0 every law held, 1 violated, 3 unknown; 2 is an unusable input."""

from __future__ import annotations

from model.verdict import Outcome

EXIT = {Outcome.HOLDS: 0, Outcome.VIOLATED: 1, Outcome.UNKNOWN: 3}
