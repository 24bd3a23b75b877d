"""A rule: what it looks for, why that is a mistake, an example of each kind; and the table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tree_sitter import Node

from orderlab.properties.lint.values import ParsedScript
from orderlab.properties.syntax import Change

ERROR, WARNING, NOTE = "error", "warning", "note"
"""Levels: it fails or never does what it says; it may; it should be known."""


class Mention(NamedTuple):
    """A place in a script that a rule speaks of."""

    node: Node
    message: str
    fix: Change | None = None
    """The change that repairs it, where that is mechanical."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


Check = Callable[[ParsedScript, "LintSettings"], Iterator[Mention]]


@dataclass(frozen=True)
class LintSettings:
    """What a script is linted for."""

    server: tuple[int, int] = (7, 0)
    """Major and minor version of the server."""


DEFAULT = LintSettings()


@dataclass(frozen=True)
class Rule:
    """One rule."""

    name: str
    level: str
    summary: str
    why: str
    bad: str
    """A script that it speaks of."""
    good: str
    """The same script without the mistake, of which no rule speaks."""
    check: Check
    settings: LintSettings = DEFAULT
    """Under which ``bad`` is bad."""
    language: str = "lua"
    """What the examples are: scripts, or (``toml``) a piece of a binding."""


RULES: dict[str, Rule] = {}
"""By name, in the order of the files of rules."""


def rule(
    name: str,
    level: str,
    summary: str,
    *,
    why: str,
    bad: str,
    good: str,
    settings: LintSettings = DEFAULT,
    language: str = "lua",
) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a rule."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, level, summary, why, bad, good, check, settings, language)
        return check

    return register
