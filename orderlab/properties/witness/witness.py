"""A law broken by a store: what was found, what it looks like from within, and who else saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orderlab.properties.validation.findings import Finding
from orderlab.properties.validation.headline import Cause, cause_of, headline
from orderlab.properties.witness.explanation import Explanation


@dataclass(frozen=True)
class Witness:
    """A law broken: the shortest trace that is known, on the scripts as they are."""

    finding: Finding
    explanation: Explanation
    confirmation: str
    round: int = 0
    """In which round of the validation it was found."""

    @property
    def headline(self) -> str:
        """The cause, then what is seen of it."""
        return headline(self.finding, self.explanation)

    @property
    def cause(self) -> Cause:
        """What tells it from other witnesses of its law."""
        return cause_of(self.finding, self.explanation)

    def to_json(self) -> dict[str, Any]:
        """The trace, what it did, and who confirmed it."""
        return {
            "headline": self.headline,
            "text": self.finding.text,
            "found_by": self.finding.analysis,
            "trace": self.finding.trace.to_json(),
            "confirmation": self.confirmation,
            **self.explanation.to_json(),
        }
