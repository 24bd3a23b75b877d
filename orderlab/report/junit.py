"""A report as JUnit XML: a suite for each subject, a case for each law."""

from __future__ import annotations

from xml.etree import ElementTree

from orderlab.model.verdict import Outcome
from orderlab.report.report import Finding, Report, Subject
from orderlab.report.words import harmless, looked_at, one_line, story


def junit(report: Report) -> str:
    """The text of the file. A violated law is a failure, an undecided one is skipped with its reason: JUnit has no
    third word."""
    root = ElementTree.Element("testsuites", name=f"orderlab {report.command}")
    for subject in report.subjects:
        _suite(root, subject, report)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, subject: Subject, report: Report) -> None:
    laws = [one for one in subject.laws if one.is_applicable]
    counted: dict[str, int] = {
        "tests": len(laws),
        "failures": len(subject.named(Outcome.VIOLATED)),
        "errors": 0,
        "skipped": len(subject.named(Outcome.UNKNOWN)),
    }
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": harmless(subject.name), **{name: str(number) for name, number in counted.items()}}
    )
    properties = ElementTree.SubElement(suite, "properties")
    told = {
        "seed": str(report.seed),
        "effort": report.effort,
        "budget": report.budget,
        **report.versions,
        **subject.facts,
    }
    for name, value in told.items():
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=harmless(value))
    for law in laws:
        case = ElementTree.SubElement(
            suite, "testcase", classname=harmless(f"{subject.kind}.{subject.name}"), name=harmless(law.law)
        )
        found = [one for one in subject.findings if one.law == law.law and one.is_certain]
        if law.outcome is Outcome.VIOLATED:
            headline = found[0].headline if found else law.because
            failure = ElementTree.SubElement(case, "failure", type=harmless(law.law), message=harmless(headline))
            failure.text = harmless("\n\n".join(_told(one) for one in found))
        elif law.outcome is Outcome.UNKNOWN:
            ElementTree.SubElement(case, "skipped", message=harmless(f"unknown: {law.because}"))
    if told_of := looked_at(subject):
        ElementTree.SubElement(suite, "system-out").text = "\n".join(told_of)


def _told(finding: Finding) -> str:
    return "\n".join([one_line(finding.headline), *story(finding)])
