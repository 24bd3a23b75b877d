"""What this package explains: laws, rules of lint, exit codes, words; and the pages of notes, installed beside it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from orderlab.model.errors import InputError, did_you_mean

PLACES = (Path(__file__).parents[1] / "notes", Path(__file__).parents[2] / "notes")
"""Where the pages lie: within an installed package, and within the repository."""
_ROW = re.compile(r"\| (?P<word>[^|]+) \| (?P<meaning>.+) \|")


class Explained(NamedTuple):
    """What one name means. ``text`` is Markdown."""

    kind: str
    name: str
    text: str


def page_names() -> list[str]:
    """The pages that can be opened, by name."""
    return sorted(path.stem for path in _folder().glob("*.md"))


def page_named(name: str) -> Path:
    """The file of a page. Raises InputError, with what is alike, where there is none."""
    wanted = name.removesuffix(".md").removeprefix("notes/")
    path = _folder() / f"{wanted}.md"
    if wanted not in page_names():
        raise InputError(f"{name}: no page is called so; {did_you_mean(wanted, page_names())}")
    return path


def _folder() -> Path:
    found = next((place for place in PLACES if place.is_dir()), None)
    if found is None:
        raise InputError("the pages are not installed; reinstall orderlab")
    return found


def explained(name: str) -> list[Explained]:
    """Everything that is called ``name``. Raises InputError, with what is alike, where nothing is."""
    wanted = name.strip().lower()
    everything = list(_everything())
    found = [one for one in everything if one.name.lower() == wanted]
    if not found:
        raise InputError(f"{name}: nothing is called so; {did_you_mean(wanted, [one.name for one in everything])}")
    return found


def _everything() -> Iterator[Explained]:
    yield from laws()
    yield from rules()
    yield from _exit_codes()
    for line in page_named("glossary").read_text(encoding="utf-8").splitlines():
        row = _ROW.fullmatch(line)
        if row is not None and row["word"] not in ("word", "---"):
            yield Explained("word", row["word"].strip("` "), row["meaning"])


def laws() -> Iterator[Explained]:
    """Every law: of sessions and histories, and of each contract of the suite."""
    from orderlab.model.laws import LAWS
    from orderlab.sim.stores.binding.schema import CONTRACTS

    for law in LAWS.values():
        parts = [law.statement]
        if law.clauses:
            parts.append(f"MQTT 5.0: {', '.join(law.clauses)}.")
        if law.one_sided:
            parts.append(f"How far it reaches: {law.one_sided}.")
        yield Explained(f"law of a {law.subject}", law.name, "\n\n".join(parts))
    for contract, place in CONTRACTS.items():
        module, _, kind = place.partition(":")
        for owner in getattr(importlib.import_module(module), kind).__mro__:
            for member in vars(owner).values():
                if (law_of := getattr(member, "law", None)) is not None:
                    yield Explained(f"law of a {contract}", law_of[0], law_of[1])


def rules() -> Iterator[Explained]:
    """Every rule of lint, with both examples."""
    from orderlab.properties.lint.linter import RULES

    for rule in RULES.values():
        text = (
            f"{rule.summary} ({rule.level})\n\n{rule.why}\n\nBad:\n\n```{rule.language}\n{rule.bad}\n```\n\n"
            f"Good:\n\n```{rule.language}\n{rule.good}\n```\n\nTo allow it on one line, with a reason:\n\n"
            f"```{rule.language}\n{'--' if rule.language == 'lua' else '#'} orderlab: allow {rule.name}: REASON\n```"
        )
        yield Explained("rule of lint", rule.name, text)


def _exit_codes() -> Iterator[Explained]:
    codes = {
        0: "Every law held and was tested; or what was asked for was done, where nothing is judged.",
        1: "A law is violated, or lint found something.",
        2: "The input is unusable: one line on standard error says what, where, and the cure. Nothing is written.",
        3: "Undecided within the budget, or nothing was tested. It is no green: a larger `--effort` looks further.",
        70: "A defect of orderlab itself. `ORDERLAB_TRACEBACK=1` shows where.",
        130: "Ctrl-C ended it before anything was known.",
        143: "SIGTERM ended it before anything was known.",
    }
    for code, text in codes.items():
        yield Explained("exit code", str(code), text)
