"""A rule: what it looks for, why that is a mistake, an example of each kind; and the table of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tree_sitter import Node

from orderlab.model.errors import InputError
from orderlab.properties.lint.values import ParsedScript
from orderlab.properties.syntax import Change
from orderlab.sim.redis.versions import RELEASES, VERSIONS, Release, ServerVersion, release_title

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

    server: Release = (7, 0)
    """The release of Redis whose commands the server has."""
    version: ServerVersion | None = None
    """The server, where the kernel can be it."""

    @classmethod
    def of(cls, version: ServerVersion) -> LintSettings:
        """For a server that the kernel can be."""
        return cls(version.follows, version)

    @classmethod
    def named(cls, name: str, place: str = "--server") -> LintSettings:
        """For a server as ``--server`` names it: one that the kernel can be, or an older release. Raises
        InputError."""
        short = ".".join(name.split(".")[:2]) if re.fullmatch(r"\d{1,2}(\.\d{1,2}){1,2}", name) else name
        if short in VERSIONS:
            return cls.of(VERSIONS[short])
        older = {f"{major}.{minor}": (major, minor) for major, minor in RELEASES}
        if short not in older:
            known = ", ".join([*(each for each in older if each not in VERSIONS), *VERSIONS])
            raise InputError(f"{place} {name}: not a server that is known; give one of {known}")
        return cls(older[short])

    @property
    def title(self) -> str:
        """The server, for messages."""
        return release_title(self.server) if self.version is None else self.version.title

    @property
    def is_valkey(self) -> bool:
        """Whether it is Valkey."""
        return self.version is not None and self.version.is_valkey


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
