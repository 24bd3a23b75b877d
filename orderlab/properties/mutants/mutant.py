"""One mutant: a store whose one script differs in one place; what became of it; and a fair choice where there are too
many."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orderlab.model.contracts.base import AnyTrace
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.stores.binding.binding import Binding


@dataclass(frozen=True, slots=True)
class Mutant:
    """The script ``script`` with ``after`` where ``before`` stood."""

    script: str
    operator: str
    said: str
    start: int
    end: int
    line: int
    before: bytes
    after: bytes
    source: bytes
    """The whole mutated script."""
    file: str = ""
    """Where the line is, if it is one that the script includes."""

    def of(self, binding: Binding) -> Binding:
        """The store with this mutant for one of its scripts."""
        return binding.with_sources({self.script: self.source})

    @property
    def place(self) -> str:
        """``save.lua:12``."""
        return f"{self.file or self.script}:{self.line}"

    @property
    def difference(self) -> tuple[str, str]:
        """The line as it was and as it is, or as many lines as it takes."""
        first = self.source.rfind(b"\n", 0, self.start) + 1
        last = self.source.find(b"\n", self.start + len(self.after))
        after = self.source[first : len(self.source) if last < 0 else last]
        head, tail = self.start - first, len(after) - (self.start - first) - len(self.after)
        before = after[:head] + self.before + after[len(after) - tail :]
        return before.decode("utf-8", "replace").strip(), after.decode("utf-8", "replace").strip()

    def digest(self, context: bytes) -> str:
        """A name for the result of this mutant in a certain context (store, judge, budget, seed)."""
        told = repr((self.script, self.start, self.end, self.after)).encode()
        return hashlib.sha256(context + told).hexdigest()[:24]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        before, after = self.difference
        return {
            "script": self.file or self.script,
            "line": self.line,
            "operator": self.operator,
            "change": self.said,
            "before": before,
            "after": after,
        }


OUTCOMES = ("killed", "timed out", "survived", "equivalent")
"""Killed: a law was seen broken. Timed out: a script did not end, which breaks ``bounded``. Equivalent: it differs from
the original in no reply and no key within the scope. Survived: neither."""


@dataclass(frozen=True)
class Result:
    """The judgement on one mutant."""

    outcome: str
    law: str = ""
    text: str = ""
    """What was said of the broken law, or how a survivor differs from the original."""
    trace: AnyTrace | None = None
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
    def from_json(cls, data: Any, place: str, read_trace: Callable[[Any, str], AnyTrace]) -> Result:
        """The result that ``to_json`` gave ``data`` for. Raises KeyError or InputError when it is none."""
        told = data["trace"]
        trace = None if told is None else read_trace(told, place)
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


T = TypeVar("T")


def sample(mutants: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """``limit`` of the mutants, drawn without regard to operator or place, in their order; all without a limit."""
    if limit is None or limit >= len(mutants):
        return list(mutants)
    drawn = RandomStreams(seed).stream("mutants").sample(range(len(mutants)), limit)
    return [mutants[at] for at in sorted(drawn)]
