"""What became of one mutant, as a value and as the file that a later run resumes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.session.steps import Trace
from orderlab.model.contracts.steps import ContractTrace

OUTCOMES = ("killed", "timed out", "survived", "equivalent")
"""Killed: a law was seen broken. Timed out: a script did not end, which breaks ``bounded``. Equivalent: it differs from
the original in no reply and no key within the scope (``equivalence``). Survived: neither."""


@dataclass(frozen=True)
class Result:
    """The judgement on one mutant."""

    outcome: str
    law: str = ""
    text: str = ""
    """What was said of the broken law, or how a survivor differs from the original."""
    trace: Trace | ContractTrace | None = None
    found_by: str = ""
    cpu_s: float = 0.0
    """Processor time of the validation."""
    compared: int | None = None
    """Calls in which it was held against the original; None: not compared."""
    beside: tuple[str, ...] = ()
    """Laws that were seen broken along with the one that killed it; their witnesses were not taken to full scale."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "outcome": self.outcome,
            "law": self.law or None,
            "text": self.text,
            "found_by": self.found_by,
            "trace": None if self.trace is None else self.trace.to_json(),
            "cpu_s": self.cpu_s,
            "compared_calls": self.compared,
            "laws_beside": list(self.beside),
        }

    @classmethod
    def from_json(cls, data: Any, place: str) -> Result:
        """The result that ``to_json`` gave ``data`` for. Raises KeyError or InputError when it is none."""
        told = data["trace"]
        read = ContractTrace.from_json if told and "contract" in told else Trace.from_json
        trace = None if told is None else read(told, place)
        return cls(
            data["outcome"],
            data["law"] or "",
            data["text"],
            trace,
            data["found_by"],
            float(data["cpu_s"]),
            data["compared_calls"],
            tuple(data["laws_beside"]),
        )
