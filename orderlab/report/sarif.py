"""A report as SARIF 2.1.0 (OASIS): a rule for each law, a result for each finding, at its line of Lua."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orderlab.model.verdict import Outcome
from orderlab.report.report import Change, Finding, JudgedLaw, Line, LintMention, Report, Subject
from orderlab.report.words import escaped, looked_at, one_line, story

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "orderlab/v1"


def sarif(report: Report) -> str:
    """The text of the file. Paths are told relative to the working directory, as code scanning wants them."""
    return escaped(json.dumps(sarif_log(report, Path.cwd()), indent=2, ensure_ascii=False)) + "\n"


def sarif_log(report: Report, root: Path) -> dict[str, Any]:
    """The log as plain values."""
    rules: dict[str, JudgedLaw] = {}
    for subject in report.subjects:
        for law in subject.laws:
            rules.setdefault(law.law, law)
        for one in subject.findings:
            rules.setdefault(
                one.law, JudgedLaw(law=one.law, statement=f"The same {one.law} as before", outcome=Outcome.HOLDS)
            )
    numbers = {name: number for number, name in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "orderlab",
                "semanticVersion": report.versions["orderlab"],
                "rules": [_rule(law) for law in rules.values()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": report.exit_code in (0, 1, 3),
                "exitCode": report.exit_code,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": f"{one_line(subject.name)}: {line}"}}
                    for subject in report.subjects
                    for line in looked_at(subject)
                ],
            }
        ],
        "columnKind": "utf16CodeUnits",
        "results": [
            _result(finding, subject, numbers[finding.law], root)
            for subject in report.subjects
            for finding in subject.findings
        ]
        + [
            _undecided(law, subject, numbers[law.law], root)
            for subject in report.subjects
            for law in subject.laws
            if law.is_applicable
            and law.outcome is Outcome.UNKNOWN
            and law.law not in {one.law for one in subject.findings}
        ]
        + [_mentioned(one, subject, root) for subject in report.subjects for one in subject.lint],
        "properties": {
            "seed": report.seed,
            "effort": report.effort,
            "budget": report.budget,
            "versions": report.versions,
        },
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(law: JudgedLaw) -> dict[str, Any]:
    clauses = f" ({', '.join(law.clauses)})" if law.clauses else ""
    return {
        "id": law.law,
        "name": "".join(word.capitalize() for word in law.law.replace("_", "-").split("-")),
        "shortDescription": {"text": f"The law {law.law} is violated"},
        "fullDescription": {"text": f"{law.statement or law.law}{clauses}"},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, subject: Subject, rule: int, root: Path) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ruleId": finding.law,
        "ruleIndex": rule,
        **_severity(finding),
        "message": {"text": "\n".join([one_line(f"{subject.name}: {finding.headline}"), *story(finding)])},
        "locations": [_location(finding.line, subject, root)],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "codeFlows": [
            {
                "threadFlows": [
                    {
                        "locations": [
                            {
                                "location": {"message": {"text": step.action}},
                                "executionOrder": number,
                                "state": {name: {"text": value} for name, value in (step.keys or {}).items()},
                            }
                            for number, step in enumerate(finding.steps, 1)
                        ]
                    }
                ]
            }
        ]
        if finding.steps
        else [],
    }
    if finding.related:
        told["relatedLocations"] = [
            {**_location(line, subject, root), "id": number, "message": {"text": line.role}}
            for number, line in enumerate(finding.related, 1)
        ]
    return told


def _severity(finding: Finding) -> dict[str, str]:
    """What was so before, and what every law allows, is told and does not alarm."""
    if finding.change is Change.FIXED:
        return {"kind": "pass", "level": "none", "baselineState": "absent"}
    if finding.change is Change.BEHAVIOUR:
        return {"kind": "informational", "level": "none", "baselineState": "updated"}
    if finding.change is Change.SAME:
        return {"kind": "fail", "level": "note", "baselineState": "unchanged"}
    new = {"baselineState": "new"} if finding.change is Change.NEW else {}
    return {"kind": "fail", "level": "error" if finding.is_certain else "warning", **new}


def _mentioned(one: LintMention, subject: Subject, root: Path) -> dict[str, Any]:
    """A finding of lint: its rule is none of the laws, so it goes by its name alone."""
    return {
        "ruleId": one.rule,
        "level": one.level,
        "message": {"text": f"{one_line(subject.name)}: {one.message}"},
        "locations": [_location(one.line, subject, root)],
    }


def _undecided(law: JudgedLaw, subject: Subject, rule: int, root: Path) -> dict[str, Any]:
    return {
        "ruleId": law.law,
        "ruleIndex": rule,
        "kind": "open",
        "level": "none",
        "message": {"text": f"{subject.name}: {law.law} is undecided: {law.because}"},
        "locations": [_location(None, subject, root)],
    }


def _location(line: Line | None, subject: Subject, root: Path) -> dict[str, Any]:
    """Where the line stands; without one, the file that names the subject."""
    path = line.path if line is not None else subject.path or subject.name
    place: dict[str, Any] = {"artifactLocation": {"uri": uri_of(path, root)}}
    if line is not None:
        place["region"] = {"startLine": line.line, **({"snippet": {"text": line.source}} if line.source else {})}
    return {"physicalLocation": place}


def uri_of(path: str, root: Path) -> str:
    from urllib.parse import quote

    absolute = Path(path).absolute()
    try:
        return quote(str(absolute.relative_to(root.absolute())))
    except ValueError:
        return absolute.as_uri()
