"""What is kept of what the analyses find: few candidates for a law, the shortest first, whatever they are many of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import Fetch, Save, Trace
from orderlab.properties.validation.findings import Findings, kind_of, wording


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
        findings.add([Discrepancy(law, f"m{n} gone") for n in range(5000)], long, "test")
    assert len(Told.times) <= 2 * Findings.KEPT
    assert {law: [one.text for one in known] for law, known in findings.by_law.items()} == {
        law: ["m0 gone"] for law in ("no-loss", "legal-trim")
    }
    assert findings.broken == {"no-loss": 1, "legal-trim": 1, "expiry": 1}


def test_of_several_traces_the_shortest_of_each_kind_are_kept() -> None:
    findings = Findings(frozenset(["no-loss"]))
    for length in (9, 3, 7, 1, 5):
        findings.add([Discrepancy("no-loss", f"m{length} gone")], trace(*[Save(())] * length), "test")
    findings.add([Discrepancy("no-loss", "m9 gone again")], trace(*[Save(())] * 9), "test")
    findings.add([Discrepancy("no-loss", "m9 gone")], trace(*[Save(())] * 9), "test")
    assert [one.text for one in findings.by_law["no-loss"]] == ["m1 gone", "m3 gone", "m5 gone", "m9 gone again"]


def test_a_kind_is_what_is_said_without_messages_and_numbers_and_after_what_step() -> None:
    fault = Fault("out-of-memory")
    kinds = [
        kind_of("no-loss", text, step)
        for text, step in (
            ("m1 gone: live, and not returned", Save(())),
            ("m2, m17, and 4 more gone: live, and not returned", Save(())),
            ("m1 gone: live, and not returned", Fetch()),
            ("m1 gone: live, and not returned", Save((), fault=fault)),
            ("m1 doubled", Save(())),
        )
    ]
    assert len(set(kinds)) == 4
    assert kinds[0] == kinds[1]
    assert wording("m1 has 8.64e+08 ms left") == wording("m3 has 1,000 ms left") != wording("m1 has none left")
    errors = [f"ERR x script: {40 * 'a'}, on @user_script:{line}." for line in (3, 3, 4)]
    assert wording(errors[0]) == wording(errors[1]) != wording(errors[2])
    shapes = [
        f"the binding cannot read the reply: s.toml: operations.fetch.reply: records does not fit {row} "
        "(Expecting value)"
        for row in ("[b'a (b)']", "7")
    ]
    assert wording(shapes[0]) == wording(shapes[1]) != wording(shapes[0].replace("Expecting", "Extra"))
