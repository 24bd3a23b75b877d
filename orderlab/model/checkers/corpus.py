"""A corpus of histories with their verdicts, and how a checker does on it: this one, or another by what it said.

The index (``index.json`` beside the histories) has a row a file: its name, the laws that it is about with their
verdicts (``violated`` or ``holds``), the reason, and the command that made it; logs in EDN name their model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderlab.model.checkers.judge import Question, judge, judge_operations
from orderlab.model.errors import InputError
from orderlab.model.files import json_of
from orderlab.model.history.disk import HistoryFile
from orderlab.model.history.jepsen import read_edn_operations

INDEX = "index.json"
DECIDED = ("violated", "holds")
Said = Mapping[tuple[str, str], str]
"""By file and law, what a checker says of it."""


@dataclass(frozen=True)
class CorpusEntry:
    """One history, its laws with their verdicts, and why."""

    file: Path
    verdicts: Mapping[str, str]
    reason: str
    model: str | None = None


@dataclass(frozen=True)
class CorpusScore:
    """Of each law of each file: right, or why not."""

    right: int
    missed: tuple[tuple[str, str, str], ...]
    """File, law and reason where something is wrong and the checker says that the law holds."""
    false_alarms: tuple[tuple[str, str, str], ...]
    undecided: tuple[tuple[str, str, str], ...]

    @property
    def total(self) -> int:
        """How many verdicts the corpus asks for."""
        return self.right + len(self.missed) + len(self.false_alarms) + len(self.undecided)


def read_corpus(folder: Path) -> list[CorpusEntry]:
    """The rows of the index. Raises InputError for a folder without one, or one that is not as it should be."""
    place = folder / INDEX
    entries = []
    for number, row in enumerate(_rows_of(place), 1):
        try:
            entry = CorpusEntry(folder / row["file"], dict(row["verdicts"]), str(row["reason"]), row.get("model"))
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{place}: row {number} lacks file, verdicts or reason; see notes/corpus.md") from None
        wrong = sorted(set(entry.verdicts.values()) - set(DECIDED))
        if wrong:
            raise InputError(f"{place}: row {number}: verdict {wrong[0]!r}; write {' or '.join(DECIDED)}")
        entries.append(entry)
    return entries


def own_verdicts(entries: list[CorpusEntry]) -> Said:
    """What this suite says of each file."""
    said = {}
    for entry in entries:
        question = Question(laws=tuple(entry.verdicts), model=entry.model)
        if entry.file.suffix == ".edn":
            verdicts = judge_operations(str(entry.file), read_edn_operations(entry.file), question)
        else:
            verdicts, _ = judge(HistoryFile(entry.file), question)
        said.update({(entry.file.name, verdict.law): str(verdict.outcome) for verdict in verdicts})
    return said


def read_verdicts(file: Path) -> Said:
    """What another checker says: an object a line, as ``orderlab check --json`` writes it, of which only the names of
    file and law and the outcome are read. Raises InputError."""
    said = {}
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json_of(line, str(file))
            for verdict in row["verdicts"]:
                said[Path(row["file"]).name, str(verdict["law"])] = str(verdict["outcome"])
        except (InputError, KeyError, TypeError):
            form = '{"file": "loss.parquet", "verdicts": [{"law": "at-least-once", "outcome": "violated"}]}'
            raise InputError(f"{file}: line {number} is not of the form {form}") from None
    return said


def scored(entries: list[CorpusEntry], said: Said) -> CorpusScore:
    """How right a checker is; of what it does not say it is undecided."""
    right = 0
    missed: list[tuple[str, str, str]] = []
    false_alarms: list[tuple[str, str, str]] = []
    undecided: list[tuple[str, str, str]] = []
    for entry in entries:
        for law, verdict in entry.verdicts.items():
            given = said.get((entry.file.name, law))
            shown = (entry.file.name, law, entry.reason)
            if given == verdict:
                right += 1
            elif given not in DECIDED:
                undecided.append(shown)
            else:
                (missed if verdict == "violated" else false_alarms).append(shown)
    return CorpusScore(right, tuple(missed), tuple(false_alarms), tuple(undecided))


def _rows_of(place: Path) -> list[Any]:
    try:
        rows = json_of(place.read_bytes(), str(place), "see notes/corpus.md")
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}; a corpus is a folder with {INDEX} in it") from error
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{place}: not a list of histories; see notes/corpus.md")
    return rows
