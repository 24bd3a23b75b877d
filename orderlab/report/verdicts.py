"""Verdicts of a history: the answer first, each witness as the events that show it, and with ``--verbose`` a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orderlab.exit_codes import printable
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict, overall, to_plain
from orderlab.report.report import Subject
from orderlab.report.terminal import print_summary
from orderlab.report.words import counted, whereabouts

_IN_TABLE = ("antecedents", "violations", "violated_objects", "seconds", "rows", UNFINISHED)
_COLOUR = {Outcome.HOLDS: "green", Outcome.VIOLATED: "red", Outcome.UNKNOWN: "yellow"}


def print_verdicts(
    console: Console, title: str, subject: Subject, verdicts: Sequence[Verdict], verbose: bool = False
) -> None:
    """Print the answer, the witnesses, what is not covered; with ``verbose`` a line for each law, and the work."""
    print_summary(console, subject)
    for verdict in verdicts:
        if verdict.outcome is Outcome.VIOLATED:
            _print_witness(console, verdict)
    for line in notes_of(verdicts):
        console.print(escape(printable(line)), highlight=False, soft_wrap=True)
    if verbose:
        _print_table(console, title, verdicts)
    else:
        console.print(
            f"{escape(printable(title))}; -v lists how often each law was tested",
            highlight=False,
            soft_wrap=True,
        )


def notes_of(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """What verdicts do not cover, each once with its laws; why laws are undecided is told with them. A budget that
    ended the work is told with what would finish it.
    """
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        for note in verdict.not_covered:
            if (verdict.outcome is not Outcome.UNKNOWN or verdict.vacuous) and not note.startswith("vacuous"):
                found.setdefault(note, []).append(verdict.law)
    yield from (f"not covered: {', '.join(laws)}: {note}" for note, laws in found.items())
    unfinished = [verdict.law for verdict in verdicts if verdict.work.get(UNFINISHED)]
    if unfinished:
        yield f"unfinished: {counted(len(unfinished), 'law')}; a larger --budget, or none, goes on to the end"


def _print_table(console: Console, title: str, verdicts: Sequence[Verdict]) -> None:
    table = Table(title=escape(printable(title)), title_justify="left")
    for heading in ("law", "verdict", "times\nchecked", "times\nviolated", "seconds"):  # fits into 80 columns
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("law", "verdict") else "right")
    for verdict in verdicts:
        work = verdict.work
        broken = work.get("violations", work.get("violated_objects", 0))
        table.add_row(
            verdict.law,
            f"[{_COLOUR[verdict.outcome]}]{verdict.outcome}{' (vacuous)' if verdict.vacuous else ''}[/]",
            f"{work.get('antecedents', 0):,}",
            f"{broken:,}" if broken else "",
            f"{work.get('seconds', 0):.3f}",
        )
    console.print(table)
    efforts: dict[str, list[str]] = {}
    for verdict in verdicts:
        effort = {name: count for name, count in verdict.work.items() if count and name not in _IN_TABLE}
        if effort:
            listed = ", ".join(f"{name.replace('_', ' ')} {_number(count)}" for name, count in effort.items())
            efforts.setdefault(listed, []).append(verdict.law)
    for listed, laws in efforts.items():
        whose = "" if len(laws) == len(verdicts) > 1 else f"{', '.join(laws)}: "
        console.print(f"{whose}{listed}", highlight=False, soft_wrap=True)


def why_vacuous(verdicts: Sequence[Verdict], outcome: Outcome, named: Collection[str]) -> str | None:
    """Why laws that hold, as far as they were tested, make no `holds`; None where that is not the reason."""
    if outcome is not Outcome.UNKNOWN or overall(verdicts, allow_vacuous=True) is not Outcome.HOLDS:
        return None
    tested = {verdict.law for verdict in verdicts if not verdict.vacuous}
    missed = ", ".join(law for law in dict.fromkeys(verdict.law for verdict in verdicts) if law in set(named) - tested)
    told = f"{missed}, asked for by name, was not tested" if missed else "no law was tested"
    return f"vacuous: {told}, so the outcome is unknown (exit code 3); --allow-vacuous makes it 0"


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _print_witness(console: Console, verdict: Verdict) -> None:
    witness = to_plain(verdict.witness)
    console.print(f"\n[red]{verdict.law}[/] is violated: {escape(printable(str(witness['why'])))}", soft_wrap=True)
    where = {
        name: witness[name]
        for name in ("publisher", "topic", "qos", "subscriber", "sequence", "key")
        if witness.get(name) is not None
    }
    if where:
        console.print("  " + escape(printable(_fields(where))), highlight=False, soft_wrap=True)
    for line in whereabouts(witness.get("where") or {}):
        console.print("  " + escape(printable(line)), highlight=False, soft_wrap=True)
    for number, event in enumerate(witness.get("events") or witness.get("operations") or (), 1):
        console.print(f"  {number:>2}. {escape(printable(_event(event)))}", highlight=False, soft_wrap=True)


def print_witness(console: Console, verdict: Verdict) -> None:
    """The law that is violated, and the events that show it."""
    _print_witness(console, verdict)


def _event(event: Mapping[str, Any]) -> str:
    """An event of a history by id, time and kind first; an operation by the rows of its two events."""
    rest = dict(event)
    if "event_id" not in rest:
        rows = "-".join(str(row) for row in rest.pop("rows"))
        return f"rows {rows}: {_fields(rest)}"
    head = f"event {rest.pop('event_id')} at {rest.pop('time_us') / 1e6:.6f} s: {rest.pop('kind')}"
    return f"{head} {_fields(rest)}"


def _fields(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())
