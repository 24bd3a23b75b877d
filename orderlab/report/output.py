"""``--report FORM=FILE``: which forms there are, and files that appear whole or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from orderlab.exit_codes import EXIT, TRUSTED, ExitCode
from orderlab.extras import find
from orderlab.model.errors import InputError
from orderlab.model.files import checked_place, write_whole
from orderlab.model.verdict import Outcome
from orderlab.report.forms import FORMS
from orderlab.report.report import Report, Subject, versions
from orderlab.report.words import escaped


def _json(report: Report) -> str:
    return escaped(report.model_dump_json(indent=1)) + "\n"


def _sarif(report: Report) -> str:
    from orderlab.report.sarif import sarif

    return sarif(report)


def _junit(report: Report) -> str:
    from orderlab.report.junit import junit

    return junit(report)


def _html(report: Report) -> str:
    from orderlab.report.report_page import page

    return page(report)


def _markdown(report: Report) -> str:
    from orderlab.report.markdown import markdown

    return markdown(report)


WRITERS: dict[str, Callable[[Report], str]] = dict(zip(FORMS, (_json, _sarif, _junit, _html, _markdown), strict=True))


class Wanted(NamedTuple):
    """One report that was asked for."""

    form: str
    file: Path


def wanted_reports(given: Sequence[str] | None) -> list[Wanted]:
    """What ``--report`` asks for, before any work is done. Raises InputError where a form or a file cannot be."""
    return wanted_files("--report", given, FORMS)


def wanted_files(option: str, given: Sequence[str] | None, forms: Sequence[str]) -> list[Wanted]:
    """What an option of ``FORM=FILE`` asks for. Raises InputError where a form or a file cannot be."""
    found: list[Wanted] = []
    for text in given or ():
        form, sign, name = text.partition("=")
        if not sign or not name or form not in forms:
            raise InputError(f"{option} {text}: no FORM=FILE; FORM is one of {', '.join(forms)}")
        if form == "html":
            find("jinja2", f"{option} {text}")
        found.append(Wanted(form, checked_place(f"{option} {text}", Path(name))))
    return found


def made_report(
    command: str,
    outcome: Outcome,
    subjects: Sequence[Subject],
    seed: int,
    effort: str = "",
    budget: str = "",
    exit_code: ExitCode | None = None,
) -> Report:
    """The report of a whole run. ``exit_code``: where it is not that of the outcome."""
    return Report(
        command=command,
        outcome=outcome,
        exit_code=EXIT[outcome] if exit_code is None else exit_code,
        subjects=tuple(subjects),
        seed=seed,
        effort=effort,
        budget=budget,
        versions=versions(),
    )


def replayable(report: Report, wanted: Sequence[Wanted], is_trusted: bool = False) -> Report:
    """The same with a command for each finding of a store that shows it again; it reads the JSON of this report.

    ``is_trusted``: the Python that a store names was allowed to run, and has to be again.
    """
    file = next((one.file for one in wanted if one.form == "json"), Path("report.json"))
    number, subjects = 0, []
    for subject in report.subjects:
        findings = []
        for one in subject.findings:
            number += 1
            if one.witness is None:
                findings.append(one)
                continue
            findings.append(
                one.model_copy(
                    update={
                        "replay": shlex.join(
                            [
                                "orderlab",
                                "replay",
                                str(file),
                                "--finding",
                                str(number),
                                *([TRUSTED] if is_trusted else []),
                            ]
                        )
                    }
                )
            )
        subjects.append(subject.model_copy(update={"findings": tuple(findings)}))
    return report.model_copy(update={"subjects": tuple(subjects)})


def write_reports(report: Report, wanted: Sequence[Wanted]) -> None:
    """Write each file, whole or not at all."""
    write_files([(one.file, WRITERS[one.form](report)) for one in wanted])


def write_files(made: Sequence[tuple[Path, str]]) -> None:
    """Write texts that are all there, each file whole or not at all."""
    for file, text in made:
        write_whole(file, text.encode())
