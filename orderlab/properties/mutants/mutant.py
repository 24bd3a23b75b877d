"""One mutant: a store whose one script differs in one place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

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

    def of(self, binding: Binding) -> Binding:
        """The store with this mutant for one of its scripts."""
        return binding.with_sources({self.script: self.source})

    @property
    def place(self) -> str:
        """``save.lua:12``."""
        return f"{self.script}:{self.line}"

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
            "script": self.script,
            "line": self.line,
            "operator": self.operator,
            "change": self.said,
            "before": before,
            "after": after,
        }
