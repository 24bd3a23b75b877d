"""What is kept of what the analyses find: few candidates for a law, the shortest first, whatever they are many of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model.refinement import Discrepancy
from model.trace import Save, Trace
from properties.validation.findings import Findings


@dataclass(frozen=True, repr=False)
class Told(Save):
    """A save that counts how often it is written out, as one of 10,000 messages takes long to be."""

    times: ClassVar[list[int]] = []

    def __repr__(self) -> str:
        self.times.append(1)
        return "a save"


def trace(*steps: Save) -> Trace:
    return Trace(steps, (b"c",))


def test_a_step_with_thousands_of_discrepancies_is_soon_noted() -> None:
    findings, long = Findings(frozenset(["no-loss", "legal-trim"])), trace(Told(()))
    for law in ("no-loss", "legal-trim", "expiry"):
        findings.add([Discrepancy(law, f"m{n}") for n in range(5000)], long, "test")
    assert len(Told.times) <= 2 * Findings.KEPT
    assert {law: [one.text for one in known] for law, known in findings.by_law.items()} == {
        law: ["m0", "m1", "m2", "m3"] for law in ("no-loss", "legal-trim")
    }


def test_of_several_traces_the_shortest_are_kept() -> None:
    findings = Findings(frozenset(["no-loss"]))
    for length in (9, 3, 7, 1, 5):
        findings.add([Discrepancy("no-loss", str(length))], trace(*[Save(())] * length), "test")
    findings.add([Discrepancy("no-loss", "again 9")], trace(*[Save(())] * 9), "test")
    assert [one.text for one in findings.by_law["no-loss"]] == ["1", "3", "5", "7"]
