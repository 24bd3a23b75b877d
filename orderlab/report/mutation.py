"""Mutation testing as text: the score, a table by operator, what each law killed, and every survivor with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orderlab.properties.mutants.campaign import Judged, Score
from orderlab.properties.mutants.mutant import OUTCOMES, Mutant
from orderlab.properties.mutants.specification import SpecificationScore


def render_score(name: str, score: Score, scope: Sequence[str], asked: int) -> RenderableType:
    """The whole report on one store."""
    parts: list[RenderableType] = [_table(f"mutants of {name}", score.by_operator(), score.outcomes)]
    parts += [Text(line) for line in _laws(score)]
    for heading, some in (("survived", score.survivors), ("equivalent within the scope", score.equivalents)):
        if some:
            parts += [Text(""), Text(f"{heading}:", "bold"), *(Text(line) for one in some for line in _told(one))]
    if scope:
        parts += [Text(""), Text("the scope of equivalence: every call of a script that these lead to")]
        parts += [Text(f"  {line}") for line in scope]
    parts += [Text(""), Text(_summary(score, asked), "bold")]
    return Group(*parts)


def _summary(score: Score, asked: int) -> str:
    meant = len(score.judged) - score.outcomes["equivalent"]
    said = f"{score.detected} of {meant} mutants that are not equivalent were noticed: {score.score:.1%}"
    said += f"; {score.median_s_to_kill:.2f} s of one core to kill one (median)"
    return said if asked == len(score.judged) else f"{said}; {asked - len(score.judged)} were not judged"


def _table(title: str, rows: dict[str, dict[str, int]], total: dict[str, int]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("operator", no_wrap=True)
    for outcome in OUTCOMES:
        table.add_column(outcome, justify="right")
    for operator, row in rows.items():
        table.add_row(operator, *(str(row[outcome] or "") for outcome in OUTCOMES))
    table.add_section()
    table.add_row("all", *(str(total[outcome]) for outcome in OUTCOMES))
    return table


def _laws(score: Score) -> Iterator[str]:
    told = ", ".join(f"{law} {count:,}" for law, count in score.by_law().items())
    yield f"first broken: {told or 'nothing'}"
    if score.laws_beside:
        yield f"broken beside another only: {', '.join(score.laws_beside)}"
    if score.idle_laws:
        yield f"laws that kill nothing: {', '.join(score.idle_laws)}"


def _told(one: Judged) -> Iterator[str]:
    mutant = one.mutant
    before, after = mutant.difference
    yield f"  {mutant.place}  {mutant.operator}: {mutant.said}"
    yield f"      - {_shortened(before)}"
    yield f"      + {_shortened(after)}"
    if one.result.text:
        yield f"      differs: {one.result.text}"


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) < 2 else f"{lines[0]} … ({len(lines)} lines)"


def mutant_lines(mutants: Sequence[Mutant]) -> Iterator[str]:
    """One line a mutant, for ``--list``."""
    for mutant in mutants:
        yield f"{mutant.place}\t{mutant.operator}\t{mutant.said}"


def render_specification(found: SpecificationScore) -> RenderableType:
    """The whole report on one specification."""
    parts: list[RenderableType] = []
    table = Table(title=f"mutants of the specification {found.name}", title_justify="left")
    for heading in ("place", "change", "outcome", "law"):
        table.add_column(heading)
    for one in found.judged:
        table.add_row(one.mutant.place, one.mutant.said, one.outcome, one.law)
    parts.append(table)
    told = ", ".join(f"{law} {count}" for law, count in found.by_law().items())
    parts.append(Text(f"killed by: {told or 'nothing'}"))
    if found.idle_laws:
        parts.append(Text(f"laws that kill nothing: {', '.join(found.idle_laws)}", "yellow"))
    meant = len(found.judged) - len(found.equivalents)
    parts.append(
        Text(f"{found.killed} of {meant} mutants that are not equivalent were noticed: {found.score:.1%}", "bold")
    )
    return Group(*parts)
