"""What became of one law of one store, put to the test by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from orderlab.properties.machines.tally import Tally


@dataclass
class LawRun:
    """What became of one law of one store. Plain values, so that another process can report it."""

    store: str
    law: str
    seed: int
    outcome: str = ""
    """holds, violated, unknown, not applicable."""
    because: str = ""
    story: list[str] = field(default_factory=list)
    witness: dict[str, object] | None = None
    """The trace, as ``orderlab replay`` reads it."""
    blob: str = ""
    """Hypothesis's ``@reproduce_failure`` line, where a machine found it."""
    machine: str = ""
    tested: int = 0
    """How often the least frequent situation came about that the law speaks of."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """By machine."""
    seconds: float = 0.0
