"""A report as one HTML page that needs nothing else: no network, no other file, and no script to be read."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from orderlab.report.report import Change, Finding, Report, Step, Subject
from orderlab.report.words import cell, harmless, holding, undecided

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

STORE, FAULTS = "store", "faults"
"""The lanes of what is called, and of what befalls it."""
KEYS_SHOWN = 24
UNCHANGED_SHOWN = 6
"""Keys of one state that are shown, and those of them that the step did not change."""


class KeyRow(NamedTuple):
    """A key in the state after a step; ``sign``: ``+`` new, ``-`` gone, ``~`` changed, or nothing."""

    sign: str
    key: str
    value: str
    before: str = ""
    """Of a changed one, what it was."""


class StepRow(NamedTuple):
    """A step with the places of its lanes, counted from 0, and the keys after it."""

    number: int
    step: Step
    at: int
    to: int
    fault_at: int | None
    keys: list[KeyRow] | None
    left_out: int


class Drawing(NamedTuple):
    """A finding as a sequence of steps between lanes."""

    lanes: list[str]
    rows: list[StepRow]
    before: list[KeyRow]
    after: list[KeyRow]


WORD_MAX = 16
"""Letters of a word that no column breaks."""


def page(report: Report) -> str:
    """The text of the page."""
    return harmless(
        template("report.html.j2").render(
            title=f"orderlab {report.command}: {report.outcome}",
            report=report,
            subjects=report.subjects,
            Change=Change,
            drawing=drawing,
            holding=holding,
            undecided=undecided,
            said=_said,
        )
    )


def template(name: str) -> jinja2.Template:
    """One of the ``.html.j2`` files beside this one."""
    import jinja2

    here = files("orderlab.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text()),
    )  # fmt: skip
    environment.globals |= {"cell": cell, "breakable": _breakable}
    return environment.get_template(name)


def _breakable(name: str) -> Markup:
    """A dotted name that a narrow column may break after a dot or an underscore, and within no usual word."""
    from markupsafe import Markup, escape

    def shown(part: str) -> Markup:
        if part in "._":
            return Markup(f"{part}<wbr>")
        if len(part) > WORD_MAX or not part.isidentifier():
            return escape(part)
        return Markup(f'<span class="word">{part}</span>')

    return Markup("").join(shown(part) for part in re.split("([._])", name) if part)


def drawing(finding: Finding) -> Drawing:
    """Who acts at which step, on what, and the keys after each step as they differ from those before it."""
    lanes = list(dict.fromkeys(step.lane for step in finding.steps))
    calls = any(step.answer for step in finding.steps)
    lanes = [*lanes, STORE] if calls else lanes
    lanes = [*lanes, FAULTS] if any(step.fault for step in finding.steps) else lanes
    rows, known = [], {}  # type: list[StepRow], dict[str, str]
    for number, step in enumerate(finding.steps, 1):
        at = lanes.index(step.lane)
        to = lanes.index(STORE) if step.answer else at
        keys = None if step.keys is None else key_rows(known, step.keys)
        known = known if step.keys is None else step.keys
        rows.append(StepRow(number, step, at, to, lanes.index(FAULTS) if step.fault else None, *_shown(keys)))
    return Drawing(lanes, rows, key_rows(finding.before, finding.before), key_rows(finding.before, finding.after))


def _shown(keys: list[KeyRow] | None) -> tuple[list[KeyRow] | None, int]:
    """What of a state is shown, and how many keys are left out."""
    if keys is None:
        return None, 0
    changed = sum(bool(row.sign) for row in keys)
    shown = keys[: min(changed + UNCHANGED_SHOWN, KEYS_SHOWN)]
    return shown, len(keys) - len(shown)


def key_rows(before: dict[str, str], after: dict[str, str]) -> list[KeyRow]:
    """The keys of two states, what changed first."""
    rows = []
    for key in sorted({*before, *after}):
        if key not in after:
            rows.append(KeyRow("-", key, before[key]))
        else:
            sign = "" if before.get(key) == after[key] else "~" if key in before else "+"
            rows.append(KeyRow(sign, key, after[key], before[key] if sign == "~" else ""))
    return sorted(rows, key=lambda row: not row.sign)


def _said(subject: Subject) -> dict[str, str]:
    """What each law says, and the clauses that it rests on."""
    return {
        one.law: f"{one.statement}{f' ({clauses})' if (clauses := ', '.join(one.clauses)) else ''}"
        for one in subject.laws
        if one.statement
    }
