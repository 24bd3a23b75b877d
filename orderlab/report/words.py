"""Words that several forms of a report share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orderlab.model.verdict import Outcome
from orderlab.report.report import Finding, Subject

CONTROLS = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What moves a terminal, turns the direction of what stands beside it, ends a line unseen, or is in no XML file."""
LINE_MAX = 2_000
"""Characters of one line for a person; of the rest it is told how much there is."""


def story(finding: Finding) -> Iterator[str]:
    """A witness as numbered lines of plain text, its Lua line, and how to see it again."""
    return map(one_line, _story(finding))


def _story(finding: Finding) -> Iterator[str]:
    yield from finding.where
    if finding.initial:
        yield "0. " + ", ".join(f"{name} = {value}" for name, value in finding.initial.items())
    for number, step in enumerate(finding.steps, 1):
        yield f"{number}. {step.action}{step.by}"
        if step.answer:
            yield f"   {step.answer}"
        if step.before:
            yield f"   the old scripts: {step.before}"
        if step.state:
            yield f"   {step.state}"
    if finding.line is not None:
        yield f"{finding.line.told}: {finding.line.source}"
    for line in finding.related:
        yield f"{line.role}: {line.path}:{line.line}: {line.source}"
    if finding.found_by or finding.confirmation:
        yield "; ".join(
            filter(None, (f"found by {finding.found_by}" if finding.found_by else "", finding.confirmation))
        )
    if finding.replay:
        yield f"replay: {finding.replay}"


WAY_SHOWN = 8


def whereabouts(where: Mapping[str, Any]) -> Iterator[str]:
    """What became of the message of a simulation: its state, who had it last, who has it still, the fault; then its
    way."""
    if not where:
        return
    if where["state"] != "delivered":
        at = "" if where["at_us"] is None else f", at {where['at_us'] / 1e6:.6f} s"
        yield f"{where['state']}: had last by {where['last_had_by']}{at}"
    for holder in where["held_by"]:
        yield f"still there at the end: {holder}"
    if where.get("turned_at"):
        yield f"out of order since: {where['turned_at']}"
    if where["fault"]:
        fault = where["fault"]
        row = "" if fault.get("event_id") is None else f" (event {fault['event_id']})"
        sure = "to blame, proved by leaving it out" if fault.get("is_proved") else "may be to blame, by place and time"
        yield f"{sure}: {fault['name']} on {fault['node']} at {fault['at_us'] / 1e6:.6f} s{row}"
    if where["way"]:
        yield (
            "its way: "
            + "; ".join(where["way"][:WAY_SHOWN])
            + (f"; {len(where['way']) - WAY_SHOWN} more" if len(where["way"]) > WAY_SHOWN else "")
        )


def holding(subject: Subject) -> str:
    """The laws that hold, in one line; empty where none does."""
    held = [law for law in subject.laws if law.is_applicable and law.outcome is Outcome.HOLDS]
    ways: dict[str, list[str]] = {}
    for law in held:
        ways.setdefault(law.because, []).append(law.law)
    if not held:
        return ""
    count = f"{len(held)} {'holds' if len(held) == 1 else 'hold'}"
    if len(ways) == 1:
        way, laws = next(iter(ways.items()))
        return f"{count}{f', {way}' if way else ''}: {', '.join(laws)}"
    groups = [f"{', '.join(laws)} ({way})" if way else ", ".join(laws) for way, laws in ways.items()]
    return f"{count}: {(', ' if len(groups) == len(held) else '; ').join(groups)}"


def looked_at(subject: Subject) -> list[str]:
    """How far was looked, what was assumed, and what was not covered, a line each."""
    kinds = (
        ("scope", subject.scope),
        ("assumed", subject.assumptions),
        ("note", subject.notes),
        ("not covered", subject.not_covered),
    )
    return [one_line(f"{kind}: {line}") for kind, lines in kinds for line in lines]


def undecided(subject: Subject) -> list[tuple[str, str]]:
    """Laws that are undecided for one reason, and the reason."""
    found: dict[str, list[str]] = {}
    for law in subject.laws:
        if law.is_applicable and law.outcome is Outcome.UNKNOWN:
            found.setdefault(law.because, []).append(law.law)
    return [(", ".join(laws), because) for because, laws in found.items()]


AS_BEFORE = "before as well"
"""In the reason of a law that a comparison leaves out, as the old scripts fare no better under it."""


def as_before(subject: Subject) -> dict[str, list[str]]:
    """Laws that a change left as they were, broken or undecided: reason → laws."""
    found: dict[str, list[str]] = {}
    for law in subject.laws:
        if not law.is_applicable and AS_BEFORE in law.because:
            found.setdefault(law.because, []).append(law.law)
    return found


def untested(subject: Subject) -> tuple[list[str], list[tuple[str, str]]]:
    """Laws that nothing tested, and those that do not apply, with the reason."""
    apart = [law for law in subject.laws if not law.is_applicable and AS_BEFORE not in law.because]
    vacuous = [law.law for law in apart if law.because.startswith("vacuous")]
    return vacuous, [(law.law, law.because) for law in apart if law.law not in vacuous]


def why_untested(subject: Subject) -> dict[str, list[str]]:
    """Why laws were not tested, where their verdicts say it: reason → laws."""
    found: dict[str, list[str]] = {}
    for law in subject.laws:
        _, _, because = law.because.partition("; ")[0].partition("tests the law: ")
        if because and not law.is_applicable:
            found.setdefault(because, []).append(law.law)
    return found


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    plural = noun if number == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {plural}"


def harmless(text: str) -> str:
    """Text with escapes for `CONTROLS`; lines and tabs stay."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped(json: str) -> str:
    """The same JSON, with the escapes of JSON for `CONTROLS`, which it may hold as they are: for who prints the
    file."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


def one_line(text: str, most: int = LINE_MAX) -> str:
    """The same on one line, and not too long to be read: nothing that a script says looks like a line of ours."""
    text = harmless(text).translate(_BREAKS)
    return text if len(text) <= most else f"{text[:most]}... and {len(text) - most:,} characters more"


_BREAKS = {ord("\n"): "\\n", ord("\t"): "\\t"}
