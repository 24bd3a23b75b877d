"""A validation as text: a table of laws, then each violation as a numbered story with the keys and the Lua line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orderlab.model.verdict import Outcome
from orderlab.properties.validation.effort import name_of_effort
from orderlab.properties.validation.isolated import Runaway
from orderlab.properties.validation.validation import LawResult, Validation
from orderlab.properties.witness.story import story_lines, without_controls
from orderlab.properties.witness.witness import Witness

STYLE = {Outcome.HOLDS: "green", Outcome.VIOLATED: "bold red", Outcome.UNKNOWN: "yellow"}
WIDTH_IN_PIPE = 140
"""Columns of a table that goes to a file or to another program."""


def print_validation(console: Console, found: Validation) -> None:
    """The whole report of one store. In a pipe no line is broken, so that it can be searched."""
    soft = not console.is_terminal
    console.print(law_table(found))
    for result in found.results:
        for witness in (result.verdict.witness, *result.others, result.small_scope):
            if isinstance(witness, Witness):
                console.print(Text(""), *story(result, witness, found), sep="\n", soft_wrap=soft)
    console.print(Text(""), *(Text(line) for line in remarks(found)), sep="\n", soft_wrap=soft)


def law_table(found: Validation) -> Table:
    """One row a law: verdict, effort, and what it rests on."""
    table = Table(title=Text(f"{found.binding.name}  ({found.binding.path})"), title_justify="left")
    table.add_column("law", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("put to the test", justify="right")
    table.add_column("because")
    for result in found.results:
        outcome = result.outcome
        verdict = Text("not applicable", "dim") if result.not_applicable else Text(str(outcome), STYLE[outcome])
        met = result.verdict.work.get("antecedents")
        told = "\n".join(without_controls(line) for line in because(result))
        table.add_row(result.verdict.law, verdict, "" if met is None else f"{met:,}", Text(told))
    return table


def because(result: LawResult) -> list[str]:
    """A line for each cause in a row of the table."""
    if result.not_applicable:
        return [result.not_applicable]
    witness = result.verdict.witness
    if isinstance(witness, Witness):
        return [_in_a_line(one) for one in (witness, *result.others)]
    if isinstance(witness, Runaway):
        return [witness.text]
    if result.outcome is Outcome.UNKNOWN:
        told = [result.verdict.not_covered[-1]]
        return [*told, result.small_scope.headline] if result.small_scope else told
    return [""]


def _in_a_line(witness: Witness) -> str:
    steps = len(witness.finding.trace.steps)
    return f"{witness.headline} [{steps} step{'s' if steps > 1 else ''}; {witness.confirmation}]"


def story(result: LawResult, witness: Witness, found: Validation) -> Iterator[RenderableType]:
    """The steps of one violation, numbered, with what each answered; then the keys and the line."""
    lines = story_lines(result.verdict.law, witness)
    if witness is not result.small_scope:
        yield from (Text(line, style) for line, style in lines)
        return
    next(lines)
    yield Text(without_controls(f"{result.verdict.law} is broken in the small scope only: {witness.headline}"), "bold")
    yield from (Text(without_controls(f"  there, {line}")) for line in scaled_lines(found))
    yield from (Text(line, style) for line, style in lines)


def scaled_lines(found: Validation) -> Iterator[str]:
    """The lines that were rewritten for the small scope."""
    for line in found.rewritten:
        where = f"{line.file}:{line.line}" if line.line else line.file
        yield f"{where} reads: {line.after.strip()}"


def remarks(found: Validation) -> Iterator[str]:
    """Footprint, scaling, assumptions, effort, gaps, seed."""
    for operation, keys in found.footprint.undeclared_patterns().items():
        yield f"undeclared keys of {operation}: {', '.join(keys)}"
    for operation, commands in sorted(found.footprint.writes.items()):
        if operation == "fetch" and commands:
            yield f"fetch writes: {', '.join(sorted(commands))}"
    for situation, by_length in found.footprint.costs.items():
        told = ", ".join(f"{c:,} for {n:,} ({ms:.2f} ms)" for n, (c, ms) in sorted(by_length.items()))
        yield f"commands of {situation}: {told}"
    yield from (f"for the small scope, {line}" for line in scaled_lines(found))
    yield from (f"assumed: {one}" for one in found.assumptions)
    yield from (f"note: {one}" for one in found.notes)
    yield from (f"not covered: {one}" for one in found.gaps)
    work = ", ".join(f"{number:,} {name}" for name, number in found.work.items())
    yield f"effort: {name_of_effort(found.effort)}{': ' if work else ''}{work}"
    yield f"seed: {found.seed}"
