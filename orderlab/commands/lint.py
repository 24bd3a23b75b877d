"""`orderlab lint`: mistakes that are seen in the text of scripts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orderlab.commands.options import server_of
from orderlab.exit_codes import ExitCode

if TYPE_CHECKING:
    from orderlab.properties.lint.linter import LintFinding
    from orderlab.properties.lint.rule import LintSettings
    from orderlab.sim.stores.binding.results import Script


def lint(
    paths: Annotated[list[Path], typer.Argument(help="Lua files, folders, store.toml files, programs.")],
    base: Annotated[str | None, typer.Option(help="Only what is new: against a folder, a file or a revision.")] = None,
    server: Annotated[
        str | None,
        typer.Option(help="The server that scripts are for; as it is, what store.toml says, pyproject.toml, or 7.0."),
    ] = None,
    notes: Annotated[bool, typer.Option("--notes", help="Also what is no mistake but should be known.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Make the repairs that are mechanical.")] = False,
    report: Annotated[list[str] | None, typer.Option(help="FORM=FILE; FORM is json or sarif.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    trust_adapter: Annotated[bool, typer.Option(help="Let Python files of stores run.")] = False,
) -> None:
    """Look for mistakes in the text of scripts.

    Exit code 0: none; 1: some; 2: unusable input. `orderlab explain RULE` says what a rule means.
    """
    from orderlab.model.errors import InputError
    from orderlab.model.files import write_whole
    from orderlab.properties.lint.bindings import lint_bindings
    from orderlab.properties.lint.linter import new_findings, repaired
    from orderlab.properties.lint.rule import NOTE, LintSettings
    from orderlab.properties.lint.subjects import scripts_at
    from orderlab.properties.project_settings import silenced_at
    from orderlab.report.lint import lint_sarif
    from orderlab.report.output import wanted_files, write_files

    given = LintSettings.named(server) if server is not None else None
    if fix and base is not None:
        raise InputError("--fix with --base: repairs are made of all that is found; leave one out")
    wanted = wanted_files("--report", report, ("json", "sarif"))
    scripts, left = scripts_at(paths, trust_adapter)
    found = [*_by_server(scripts, paths, given), *lint_bindings(paths, scripts)]
    if base is not None:
        before = [
            finding for path in paths for finding in lint_of_base(path, base, given or _said(path), trust_adapter)
        ]
        found = new_findings(found, before)
    silenced = silenced_at(Path.cwd())
    found = [finding for finding in found if (notes or finding.level != NOTE) and finding.rule not in silenced]
    changed = repaired(scripts, found) if fix else {}
    for path, content in changed.items():
        write_whole(path, content)
    found = [finding for finding in found if finding.path not in changed or finding.fix is None]
    told = {
        "findings": [finding.to_json() for finding in found],
        "scripts": len(scripts),
        "not_read": left,
        "repaired": [str(path) for path in changed],
    }
    forms = {"json": lambda: json.dumps(told, indent=1) + "\n", "sarif": lambda: lint_sarif(found)}
    write_files([(finding.file, forms[finding.form]()) for finding in wanted])
    if as_json:
        print(json.dumps(told))
    else:
        _show(found, len(scripts), left, list(changed))
    raise typer.Exit(ExitCode.VIOLATED if found else ExitCode.HOLDS)


def _by_server(scripts: list[Script], paths: list[Path], given: LintSettings | None) -> list[LintFinding]:
    """What the rules say of each script, for the server that is given, or that the store.toml above it names."""
    from itertools import groupby

    from orderlab.properties.lint.linter import lint_scripts
    from orderlab.properties.lint.rule import LintSettings

    named = next(filter(None, map(_said, paths)), None) or LintSettings.of(server_of(None))
    asked = [(given or _said(script.path) or named, script) for script in scripts]
    return [
        finding
        for settings, group in groupby(asked, key=lambda each: each[0])
        for finding in lint_scripts([script for _, script in group], settings)
    ]


def _said(path: Path) -> LintSettings | None:
    """For the server that the nearest store.toml at or above a path names; None where it names none."""
    from orderlab.model.errors import InputError
    from orderlab.model.files import read_toml
    from orderlab.properties.lint.rule import LintSettings
    from orderlab.sim.stores.binding.loader import FILE_NAME

    for folder in (path.resolve(), *path.resolve().parents):
        file = folder if folder.name == FILE_NAME else folder / FILE_NAME
        if file.is_file():
            try:
                server = read_toml(file).get("server")
            except InputError:  # told where the store is read
                return None
            return LintSettings.named(server, f"{file}: server") if isinstance(server, str) else None
    return None


def lint_of_base(path: Path, base: str, settings: LintSettings | None, trust_adapter: bool) -> list[LintFinding]:
    """What the old version of what lies at ``path`` has."""
    import tempfile

    from orderlab.model.errors import InputError
    from orderlab.properties.comparison.base_revision import base_of
    from orderlab.properties.lint.bindings import lint_bindings
    from orderlab.properties.lint.linter import lint_scripts
    from orderlab.properties.lint.rule import LintSettings
    from orderlab.properties.lint.subjects import scripts_at

    with tempfile.TemporaryDirectory() as scratch:
        try:
            before = base_of(path, base, Path(scratch), is_store=False)
            scripts, _ = scripts_at([before], trust_adapter)
        except InputError as error:
            raise InputError(f"--base {base}: {error}") from None
        settings = settings or LintSettings.of(server_of(None))
        return [*lint_scripts(scripts, settings), *lint_bindings([before], scripts)]


def _show(found: list[LintFinding], count: int, left: list[str], repaired: list[Path]) -> None:
    from orderlab.report.words import counted

    console = Console(highlight=False, soft_wrap=True)
    styles = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    for finding in found:
        place = f"{finding.path}:{finding.line}:{finding.column}"
        console.print(f"{place}: [{styles[finding.level]}]{finding.level}[/] {finding.rule}: ", end="")
        console.print(finding.message, markup=False)
        console.print(f"    {finding.source}", markup=False)
    for line in left:
        console.print(f"not read: {line}", markup=False)
    for path in repaired:
        console.print(f"repaired: {path}", markup=False)
    files = counted(len({finding.path for finding in found}), "file")
    told = f"{counted(len(found), 'finding')} in {files}" if found else "nothing found"
    console.print(f"{counted(count, 'script')}: {told}")
    if found:
        rules = Counter(finding.rule for finding in found)
        console.print(", ".join(f"{rule} {number}" for rule, number in rules.most_common()), markup=False)
        console.print("orderlab explain RULE says what a rule means and how a line is allowed", markup=False)
