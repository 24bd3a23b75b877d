"""The report: what one command found, in the one form that every page, file and comment is made of.

`Report` has a subject for each store, specification or history that was judged; a subject has its laws, and a finding
for each cause under which a law fell. The JSON of it is what ``--report json=FILE`` writes; its schema lies beside this
module (``report.schema.json``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.model.verdict import Outcome

FORMAT = 1
"""Of the JSON; counts up when a reader of an older one would misread it."""
SCHEMA = "report.schema.json"
CHANGED = "changed here"
"""The role of a line that a change has touched."""


class _ReportPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        """Names of files may hold bytes that are no text, and no file of text takes them: they become escapes."""
        return _storable(given)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_storable(name): _storable(one) for name, one in value.items()}
    return type(value)(map(_storable, value)) if type(value) in (list, tuple) else value


class Change(StrEnum):
    """What a change of scripts did to a finding."""

    NONE = ""
    NEW = "newly broken"
    MIX = "broken during the rolling upgrade"
    """By the old and the new scripts together on the same data, by neither of them alone."""
    FIXED = "fixed"
    SAME = "broken as before"
    BEHAVIOUR = "another behaviour"
    """Not judged: every law allows the old and the new one alike."""


class Line(_ReportPart):
    """A line of a script."""

    path: str
    line: int
    source: str = ""
    role: str = ""
    """What it has to do with the finding: the call in it, `wrote before`, `changed here`."""

    @property
    def place(self) -> str:
        """``file:line`` with the name of the file alone."""
        return f"{self.path.rpartition('/')[2]}:{self.line}"

    @property
    def told(self) -> str:
        """The whole place; of a line that a change has touched, that it has."""
        return f"{self.role}: {self.path}:{self.line}" if self.role == CHANGED else f"{self.path}:{self.line}"


class Step(_ReportPart):
    """One step of a witness. ``keys`` are those of the store after it, where they are few; None where they were not
    noted."""

    lane: str
    """Who acts: a client, a producer, `time`, `node`, a process of the specification."""
    action: str
    answer: str = ""
    state: str = ""
    """After it, in words: what the specification has, or what changed."""
    fault: str = ""
    before: str = ""
    """What the old scripts answered, where that differs."""
    keys: dict[str, str] | None = None
    scripts: tuple[str, ...] = ()
    """The files of the scripts that it ran, where it was noted."""

    @property
    def by(self) -> str:
        """These in brackets; nothing where none was noted."""
        return f" [{', '.join(self.scripts)}]" if self.scripts else ""


class Finding(_ReportPart):
    """A law broken in one way, with the shortest known witness."""

    law: str
    headline: str
    cause: str
    """The same for findings of one subject that have one root: told once, under the first."""
    fingerprint: str
    """The same from run to run while the law falls by the same line in the same way; numbers of lines do not count."""
    steps: tuple[Step, ...]
    where: tuple[str, ...] = ()
    """Of a simulation, a line each: who had the message last and has it still, the fault that may be to blame, its
    way."""
    initial: dict[str, str] = Field(default_factory=dict)
    """Of a specification, the state that the steps begin in."""
    before: dict[str, str] = Field(default_factory=dict)
    after: dict[str, str] = Field(default_factory=dict)
    """Of a store, its keys around the last step."""
    line: Line | None = None
    related: tuple[Line, ...] = ()
    call: str = ""
    found_by: str = ""
    confirmation: str = ""
    is_certain: bool = True
    """False: seen in the small scope alone."""
    change: Change = Change.NONE
    """Of a comparison with old scripts: what the change has to do with it."""
    replay: str = ""
    """The command that shows it again."""
    witness: dict[str, Any] | None = None
    """What that command reads."""


class ChangedLine(_ReportPart):
    """A row of the old and the new text side by side, with the numbers of the lines; None where one of them has
    nothing."""

    old: str | None
    new: str | None
    old_number: int | None = None
    new_number: int | None = None


class ChangedFile(_ReportPart):
    """What of a script was changed, with a few lines around it."""

    path: str
    rows: tuple[ChangedLine, ...]


class LintMention(_ReportPart):
    """A finding of lint: a mistake that the text of a script shows. It decides no verdict."""

    rule: str
    level: str
    message: str
    line: Line


class JudgedLaw(_ReportPart):
    """One law of a subject and its verdict."""

    law: str
    statement: str
    clauses: tuple[str, ...] = ()
    outcome: Outcome
    tested: int | None = None
    """How often it was tested; None where that is not counted."""
    because: str = ""
    """Why the outcome is unknown, or the law not applicable; else how it was decided, where that is otherwise than
    asked for."""
    is_applicable: bool = True


class Subject(_ReportPart):
    """A store, a specification, a history or a simulated system that was judged."""

    name: str
    path: str = ""
    kind: str
    outcome: Outcome
    laws: tuple[JudgedLaw, ...]
    findings: tuple[Finding, ...] = ()
    facts: dict[str, str] = Field(default_factory=dict)
    """What was measured, in words, by name."""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """How far was looked, a sentence each."""
    changed: tuple[ChangedFile, ...] = ()
    """Of a comparison: the texts."""
    base: str = ""
    """Of a comparison: what the user called the old scripts."""
    lint: tuple[LintMention, ...] = ()
    """What the text of its scripts shows; with old scripts what is new."""
    verdict: str = ""
    """The answer in words, where it is not one about laws alone."""

    def named(self, *outcomes: Outcome) -> list[str]:
        """The applicable laws with these outcomes."""
        return [one.law for one in self.laws if one.is_applicable and one.outcome in outcomes]

    @property
    def roots(self) -> list[list[Finding]]:
        """The findings by cause, in the order in which they were told."""
        grouped: dict[str, list[Finding]] = {}
        for one in self.findings:
            grouped.setdefault(one.cause, []).append(one)
        return list(grouped.values())

    @property
    def answer(self) -> str:
        """The verdict in a few words."""
        if self.verdict:
            return f"{self.name}: {self.verdict}"
        broken, unknown, holding = (self.named(one) for one in (Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.HOLDS))
        judged = len(broken) + len(unknown) + len(holding)
        if broken:
            roots = [root for root in self.roots if any(one.is_certain for one in root)]
            text = _told(broken, judged, "violated") + (f", by {len(roots)} causes" if len(roots) > 1 else "")
        elif unknown:
            text = _told(unknown, judged, "undecided")
        elif holding:
            text = f"{holding[0]} holds" if judged == 1 else f"all {judged} laws hold"
            text += "; not every law that was asked for was tested" if self.outcome is Outcome.UNKNOWN else ""
        else:
            text = "no law was tested"
        return f"{self.name}: {text}"

    @property
    def sentence(self) -> str:
        """The verdict, and the plainest finding if there is one."""
        certain = [
            one for one in self.findings if one.is_certain and one.change in (Change.NONE, Change.NEW, Change.MIX)
        ]
        return f"{self.answer}; {certain[0].law}: {certain[0].headline}" if certain else self.answer


class Report(_ReportPart):
    """All that one run of a command found."""

    format: int = FORMAT
    command: str
    outcome: Outcome
    exit_code: int
    subjects: tuple[Subject, ...]
    seed: int
    effort: str = ""
    budget: str = ""
    versions: dict[str, str]

    @property
    def sentence(self) -> str:
        """The answer first: of all subjects."""
        if len(self.subjects) == 1:
            return self.subjects[0].sentence
        return "; ".join(one.answer for one in self.subjects) or "nothing was judged"


NAMED_MAX = 3
"""Laws that an answer names; more are counted."""


def _told(laws: list[str], judged: int, word: str) -> str:
    """Which of the laws that were judged are ``word``."""
    if len(laws) > NAMED_MAX:
        return f"{f'all {judged}' if len(laws) == judged else f'{len(laws)} of {judged}'} laws are {word}"
    named = f"{', '.join(laws[:-1])} and {laws[-1]} are" if len(laws) > 1 else f"{laws[0]} is"
    return f"{named} {word}" + ("" if judged == 1 else f", {len(laws)} of {judged} laws")


def fingerprint_of(*parts: str) -> str:
    """A digest of what tells one finding from another."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def versions(more: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Of this suite, of Python, and of what else a result rests on."""
    import platform
    from importlib.metadata import version

    return {"orderlab": version("orderlab"), "python": platform.python_version(), **dict(more)}
