"""A law broken by a store: what was found, what it looks like from within, and who else saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from properties.validation.explanation import Explanation
from properties.validation.findings import Finding


@dataclass(frozen=True)
class Witness:
    """A law broken: the shortest trace that is known, on the scripts as they are."""

    finding: Finding
    explanation: Explanation
    confirmation: str

    def to_json(self) -> dict[str, Any]:
        """The trace, what it did, and who confirmed it."""
        return {
            "text": self.finding.text,
            "found_by": self.finding.analysis,
            "trace": self.finding.trace.to_json(),
            "confirmation": self.confirmation,
            **self.explanation.to_json(),
        }
