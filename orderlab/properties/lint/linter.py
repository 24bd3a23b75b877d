"""What all rules say of a script, less what its author allows with a reason; and the script with what can be repaired
mechanically repaired."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orderlab.model.errors import did_you_mean
from orderlab.properties.lint import keys, names, replies, work
from orderlab.properties.lint.rule import DEFAULT, ERROR, NOTE, RULES, WARNING, LintSettings
from orderlab.properties.lint.values import ParsedScript
from orderlab.properties.syntax import Change
from orderlab.sim.stores.binding.loader import read_text_file
from orderlab.sim.stores.binding.results import Script

__all__ = ["ALLOW_RULE", "RULES", "LintFinding", "lint_script", "lint_scripts", "new_findings", "repaired"]
assert all(module.__name__ for module in (keys, names, replies, work))  # imported for the rules that they hold
_ALLOW = re.compile(rb"--+[ \t]*orderlab:[ \t]*allow[ \t]+(?P<rule>[\w-]+)(?P<reason>.*)", re.DOTALL)
ALLOW_RULE = "allow-unused"
LEVELS = (ERROR, WARNING, NOTE)
"""From the gravest."""


@dataclass(frozen=True)
class LintFinding:
    """A place that a rule speaks of."""

    rule: str
    level: str
    path: Path
    line: int
    """Of the file, from 1."""
    column: int
    """From 1, in bytes; 1 where the script is a string of a program, whose columns are others."""
    message: str
    source: str
    """The script's line, without blanks around it."""
    fix: Change | None = None
    """Of the file's own text; of no script that is composed of several."""

    def to_json(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {
            "rule": self.rule, "level": self.level, "file": str(self.path), "line": self.line, "column": self.column,
            "message": self.message, "source": self.source, "fixable": self.fix is not None,
        }  # fmt: skip

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same in another version of the file, wherever the line has gone."""
        return self.rule, self.path.name, self.source


@dataclass(frozen=True)
class _Allowance:
    rule: str
    lines: tuple[int, int]
    has_reason: bool
    line: int


def lint_script(script: Script, settings: LintSettings = DEFAULT) -> list[LintFinding]:
    """What the rules say of a script, in the order of its lines. Raises InputError where it cannot be parsed."""
    parsed = ParsedScript(script.source, str(script.path))
    allowances = list(_allowances(parsed))
    used: set[_Allowance] = set()
    found = []
    for rule in RULES.values():
        for mention in rule.check(parsed, settings):
            line = parsed.chunk.line(mention.node.start_byte)
            given = [each for each in allowances if each.rule == rule.name and line in each.lines and each.has_reason]
            used |= set(given)
            if not given:
                column = mention.node.start_point[1] + 1
                found.append(_finding(script, rule.name, rule.level, line, column, mention.message, mention.fix))
    for allowance in allowances:
        if allowance not in used:
            known = did_you_mean(allowance.rule, [*RULES]) if allowance.rule not in RULES else "remove the comment"
            message = "no reason is given" if not allowance.has_reason else f"nothing here is {allowance.rule}: {known}"
            found.append(_finding(script, ALLOW_RULE, WARNING, allowance.line, 1, message, None))
    return sorted(found, key=lambda finding: (finding.line, finding.column, finding.rule))


def _finding(
    script: Script, rule: str, level: str, line: int, column: int, message: str, fix: Change | None
) -> LintFinding:
    _, path, number = script.place_of(line)
    if script.pieces:  # places in what is composed are none of a file
        column, fix = 1, None
    return LintFinding(rule, level, path, number, column, message, script.text_of(line), fix)


def _allowances(parsed: ParsedScript) -> Iterable[_Allowance]:
    """Comments that allow something: on their own line for the next, else for theirs."""
    for node in parsed.chunk.nodes("comment"):
        match = _ALLOW.match(parsed.chunk.text(node))
        if match is not None:
            line = parsed.chunk.line(node.start_byte)
            reason = match["reason"].strip(b" \t:,-").strip()
            yield _Allowance(match["rule"].decode(), (line, line + 1), bool(reason), line)


def lint_scripts(scripts: Sequence[Script], settings: LintSettings = DEFAULT) -> list[LintFinding]:
    """What the rules say of several scripts, each place once: two may include the same file."""
    found: dict[tuple[str, str, int, int, str], LintFinding] = {}
    for script in scripts:
        for finding in lint_script(script, settings):
            found.setdefault((finding.rule, str(finding.path), finding.line, finding.column, finding.message), finding)
    return list(found.values())


def new_findings(found: Sequence[LintFinding], before: Sequence[LintFinding]) -> list[LintFinding]:
    """Those that were not there before, line numbers aside."""
    known = [finding.identity for finding in before]
    fresh = []
    for finding in found:
        if finding.identity in known:
            known.remove(finding.identity)
        else:
            fresh.append(finding)
    return fresh


def repaired(scripts: Sequence[Script], found: Sequence[LintFinding]) -> dict[Path, bytes]:
    """The files with every mechanical repair made that does not overlap another. Files without one are left out, and
    those that the store has edited (``[[edits]]``), whose text is not the script's."""
    result = {}
    for script in scripts:
        changes = sorted({one.fix for one in found if one.path == script.path and one.fix is not None}, reverse=True)
        if not changes or script.pieces or read_text_file(script.path) != script.source:
            continue
        source, begin = script.source, len(script.source)
        for change in changes:
            if change.end <= begin:
                source = source[: change.start] + change.replacement + source[change.end :]
                begin = change.start
        result[script.path] = source
    return result
