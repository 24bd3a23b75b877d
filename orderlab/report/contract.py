"""The validation of a store with a contract of its owner's as text: a table of laws, then each violation as a story."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orderlab.properties.sequential.validation import ContractValidation
from orderlab.properties.sequential.witness import story_lines
from orderlab.properties.validation.effort import name_of_effort
from orderlab.properties.witness.story import without_controls
from orderlab.report.validation import STYLE


def print_contract_validation(console: Console, found: ContractValidation) -> None:
    """The whole report. In a pipe no line is broken, so that it can be searched."""
    soft = not console.is_terminal
    contract = type(found.contract).__name__
    table = Table(title=Text(f"{found.binding.name}  ({found.binding.path}), by {contract}"), title_justify="left")
    for heading in ("law", "verdict", "put to the test", "because"):
        table.add_column(heading, no_wrap=heading in ("law", "verdict"), justify="right" if "test" in heading else "left")
    for result in found.results:
        because = [without_controls(one.text) for one in result.witnesses] or (
            [] if str(result.outcome) == "holds" else list(result.gaps)
        )
        verdict = Text(str(result.outcome), STYLE[result.outcome])
        table.add_row(result.law, verdict, f"{result.tested:,}", Text("\n".join(because)))
    console.print(table)
    for result in found.results:
        for one in result.witnesses:
            lines = [Text(without_controls(line), style) for line, style in story_lines(one)]
            console.print(Text(""), *lines, sep="\n", soft_wrap=soft)
    work = ", ".join(f"{count:,} {name}" for name, count in found.work.items())
    remarks = [
        *(f"note: {one}" for one in found.notes),
        *(f"assumed: {one}" for one in found.binding.assumptions),
        *(f"not covered: {one}" for one in found.gaps),
        f"effort: {name_of_effort(found.effort)}: {work}",
        f"seed: {found.seed}",
    ]
    console.print(Text(""), *map(Text, remarks), sep="\n", soft_wrap=soft)
