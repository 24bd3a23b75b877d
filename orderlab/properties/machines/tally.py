"""What a state machine did: how often each rule fired, each step was carried out, each law was tested.

A green run proves nothing about a rule that never fired. Tests assert on a tally that the rare ones are reached; the
pytest plugin prints it (``--orderlab-statistics``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from hypothesis import stateful


@dataclass
class Tally:
    """Counts over all examples of one machine, those of shrinking included."""

    examples: int = 0
    cut_off: int = 0
    """Examples that ended early, because scripts did not end."""
    rules: Counter[str] = field(default_factory=Counter)
    """Rule -> how often Hypothesis chose it."""
    steps: Counter[str] = field(default_factory=Counter)
    """Kind of step or action -> how often it was carried out: a rule may find nothing to do."""
    coverage: Counter[str] = field(default_factory=Counter)
    """Situation that a law speaks of -> how often it came about."""

    def add(self, other: Tally) -> None:
        """Take over the counts of another."""
        self.examples += other.examples
        self.cut_off += other.cut_off
        self.rules.update(other.rules)
        self.steps.update(other.steps)
        self.coverage.update(other.coverage)

    def since(self, before: Tally) -> Tally:
        """What came after ``before``, an earlier copy."""
        return Tally(
            self.examples - before.examples,
            self.cut_off - before.cut_off,
            self.rules - before.rules,
            self.steps - before.steps,
            self.coverage - before.coverage,
        )

    def copy(self) -> Tally:
        """The counts as they stand."""
        return Tally(self.examples, self.cut_off, Counter(self.rules), Counter(self.steps), Counter(self.coverage))

    def to_json(self) -> dict[str, Any]:
        """Plain values, sorted."""
        counts = {name: dict(sorted(getattr(self, name).items())) for name in ("rules", "steps", "coverage")}
        return {"examples": self.examples, "cut_off": self.cut_off, **counts}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tally:
        """The tally that ``to_json`` gave ``data`` for."""
        return cls(data["examples"], data["cut_off"], *(Counter(data[name]) for name in ("rules", "steps", "coverage")))

    def lines(self) -> Iterator[str]:
        """For a reader: the most frequent first, every one named."""
        yield f"{self.examples:,} examples" + (
            f", {self.cut_off:,} cut off: scripts did not end" if self.cut_off else ""
        )
        for name, counts in (("rules", self.rules), ("carried out", self.steps), ("tested", self.coverage)):
            told = ", ".join(
                f"{key} {count:,}" for key, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
            )
            yield f"{name}: {told or 'nothing'}"


TALLIES: dict[str, Tally] = {}
"""Of every machine that has run in this process, by name."""


def tally_of(name: str) -> Tally:
    """The tally of a machine, made when it is asked for first."""
    return TALLIES.setdefault(name, Tally())


def rule(**arguments: Any) -> Callable[[Callable[..., None]], Any]:
    """Hypothesis's ``rule``, counted. For methods of machines that have a ``tally``."""
    return _counted(stateful.rule, arguments)


def initialize(**arguments: Any) -> Callable[[Callable[..., None]], Any]:
    """Hypothesis's ``initialize``, counted."""
    return _counted(stateful.initialize, arguments)


def _counted(decorator: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[Callable[..., None]], Any]:
    def decorate(function: Callable[..., None]) -> Any:
        name = function.__name__.strip("_").replace("_", " ")

        @wraps(function)
        def counting(machine: Any, **given: Any) -> None:
            machine.tally.rules[name] += 1
            function(machine, **given)

        return decorator(**arguments)(counting)

    return decorate
