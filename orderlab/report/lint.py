"""Findings of lint as SARIF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orderlab import __version__
from orderlab.properties.lint.linter import LintFinding
from orderlab.properties.lint.rule import RULES
from orderlab.report.report import Line, LintMention
from orderlab.report.sarif import uri_of


def lint_sarif(found: Sequence[LintFinding]) -> str:
    """One SARIF 2.1.0 log; paths are relative to the working directory."""
    root = Path.cwd()
    rules = sorted({finding.rule for finding in found})
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "orderlab lint", "version": __version__, "rules": list(map(_rule, rules))}},
                "results": [_result(finding, rules.index(finding.rule), root) for finding in found],
            }
        ],
    }
    return json.dumps(log, indent=1) + "\n"


def mentions(found: Sequence[LintFinding]) -> tuple[LintMention, ...]:
    """Findings as a report of a store tells them."""
    return tuple(
        LintMention(
            rule=one.rule, level=one.level, message=one.message,
            line=Line(path=str(one.path), line=one.line, source=one.source),
        )
        for one in found
    )  # fmt: skip


def _rule(name: str) -> dict[str, Any]:
    rule = RULES.get(name)
    summary = rule.summary if rule is not None else "A comment allows what is not there."
    why = rule.why if rule is not None else "It may hide what comes later: remove it."
    return {"id": name, "shortDescription": {"text": summary}, "fullDescription": {"text": why}}


def _result(finding: LintFinding, rule: int, root: Path) -> dict[str, Any]:
    uri = uri_of(str(finding.path), root)
    region = {"startLine": finding.line, "snippet": {"text": finding.source}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
