"""What became of one law of one store, tested by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orderlab.model.verdict import Outcome
from orderlab.properties.machines.tally import Tally
from orderlab.properties.validation.validation import Validation
from orderlab.properties.validation.verdicts import LawResult
from orderlab.properties.witness.witness import story_lines


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

    def report(self, result: LawResult) -> LawRun:
        """Take over a verdict."""
        gaps = result.verdict.not_covered
        self.tested = result.tested
        self.outcome = "not applicable" if result.not_applicable else str(result.outcome)
        self.because = result.not_applicable or (gaps[-1] if gaps else "")
        if result.witnesses and result.outcome is Outcome.VIOLATED:
            plainest = result.witnesses[0]
            self.because = plainest.headline
            self.story = [line for one in result.witnesses for line, _ in story_lines(one)]
            self.witness = plainest.finding.trace.to_json()
        elif result.outcome is Outcome.VIOLATED:  # a script that was ended together with its process
            self.because = result.because
            self.story = [f"{self.law} is violated: {self.because}"]
        return self


class LawsTogether:
    """One law of a whole validation at a time: it is made the first time that one is asked for."""

    def __init__(self, validated: Callable[[], Validation], seed: int) -> None:
        self._validated = validated
        self._seed = seed
        self._made: Validation | None = None

    def __call__(self, law: str) -> LawRun:
        """What the validation says of ``law``, with the seconds that it took this time."""
        began = time.monotonic()
        if self._made is None:
            self._made = self._validated()
        result = next(one for one in self._made.results if one.law == law)
        run = LawRun(str(self._made.binding.path), law, self._seed).report(result)
        run.seconds = time.monotonic() - began
        return run
