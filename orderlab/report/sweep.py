"""A sweep as text: progress on one line, what came out, what failed and how to see it happen again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orderlab.report.words import cell
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.asking import COMMANDS
from orderlab.spark_sweeps.runs.job import Preview, RunsProgress, Summary
from orderlab.spark_sweeps.sweep_file.plan import Plan

BAR = 24
SAID_MAX = 400
PIPE_WIDTH = 200
"""Columns of text where nobody says how many there are."""


def progress_line(progress: RunsProgress) -> tuple[str, float]:
    """Runs done, failed, rate, violations so far; and the share of this command's own runs that is done."""
    counts, total = progress.counts, progress.total
    new = counts.rows - progress.before
    rate = new / progress.wall_s if progress.wall_s > 0 else 0.0
    text = f"{counts.rows:,} of {total:,} runs, {counts.failed:,} failed, {counts.violated:,} violating, {rate:.3g} runs/s"
    return text, new / max(total - progress.before, 1)


def print_summary(console: Console, summary: Summary) -> None:
    """Counts, the first failures and violations with their commands, where the rows are."""
    counts = summary.counts
    console.print(
        f"{counts.rows:,} of {summary.runs:,} runs done ({summary.before:,} of them before), {counts.failed:,} failed, "
        f"{counts.violated:,} violating a law; {summary.wall_s:.1f} s, {summary.cpu_s:.1f} s of CPU in runs",
        highlight=False,
    )
    if summary.unknown > summary.vacuous:
        console.print(
            f"{summary.unknown - summary.vacuous:,} runs left laws undecided", highlight=False
        )
    if summary.spared:
        console.print(f"{summary.spared:,} more runs were spared by replications.until", highlight=False)
    if summary.stopped is not None:
        console.print(f"stopped: {summary.stopped}; the same command goes on", highlight=False)
    for title, rows in (("failed", summary.failures), ("violating", summary.violations)):
        for row in rows:
            told = row["error"] or ", ".join(law for law, verdict in row["verdicts"] if verdict == "violated")
            console.print(
                f"run {row['run']} {title} ({row['status']}): {said(told)}", highlight=False, soft_wrap=True
            )
            console.print(f"    {escape(row['replay'])}", highlight=False, soft_wrap=True)
        total = counts.failed if title == "failed" else counts.violated
        if total > len(rows):
            console.print(f"... and {total - len(rows):,} more {title}, in the rows", highlight=False)
    console.print(
        f"rows: {escape(str(summary.folder))}/rows (Parquet); digest {summary.digest}; seed: {summary.seed}",
        highlight=False,
        soft_wrap=True,
    )


def print_preview(console: Console, preview: Preview, plan: Plan, file: str) -> None:
    """Number of runs, estimate, first rows."""
    console.print(f"{escape(file)}: {preview.runs:,} runs ({preview.points:,} points)", highlight=False)
    kind = (plan.sweep.question or {}).get("kind")
    if kind not in (None, "cheapest", "comparison"):
        console.print(
            f"a {kind} question finds out on its way how many runs it needs; this is one for each configuration",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    failed = [ended for ended in preview.pilot if ended.status != "ok"]
    if preview.wall_s is None:
        console.print("no estimate: every run of the pilot failed")
    else:
        console.print(
            f"about {preview.wall_s:,.0f} s on {preview.cores} cores ({preview.cpu_s:,.0f} s of CPU), "
            f"from {len(preview.pilot) - len(failed)} runs done now and not kept",
            highlight=False,
        )
    for ended in failed:
        console.print(f"run {ended.item} of the pilot {ended.status}: {said(ended.error or '')}", highlight=False)
    names = plan.parameter_names
    table = Table("run", *map(escape, names), "seed")
    for run in preview.first:
        table.add_row(str(run.number), *(escape(str(run.parameters.get(name, ""))) for name in names), str(run.seed))
    console.print(table)
    console.print(f"seed: {plan.sweep.seed}", highlight=False)


def print_run(console: Console, row: Mapping[str, Any], seconds: float) -> None:
    """One run: parameters, metrics, verdicts."""
    console.print(f"run {row['run']}, seed: {row['seed']}, {seconds:.1f} s", highlight=False)
    for kind in ("parameters", "verdicts", "metrics"):
        table = Table(kind, "", title_justify="left")
        for name, value in row[kind].items():
            table.add_row(escape(name), f"{value:g}" if isinstance(value, float) else escape(str(value)))
        if row[kind]:
            console.print(table)
    for law, witness in row["witnesses"].items():
        console.print(f"{escape(law)}: {escape(str(witness))}", highlight=False, soft_wrap=True)


def print_answer(console: Console, answer: Answer) -> None:
    """The answer's table; one row alone stands upright. Commands are printed below, to be copied."""
    rows = [{name: cell(value) for name, value in row.items()} for row in answer.rows]
    commands = {name: row.pop(name) for row in rows for name in COMMANDS if name in row}
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) == 1:
        table = Table("", "", title=answer.kind, title_justify="left", show_header=False)
        for name, value in rows[0].items():
            table.add_row(escape(name), escape(value))
    else:
        table = Table(title=answer.kind, title_justify="left")
        for name in names:
            table.add_column(escape(name), overflow="fold")  # a number that is cut off is another number
        for row in rows:
            table.add_row(*(escape(row.get(name, "")) for name in names))
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    console.print(table)
    for name, command in commands.items():
        if command:
            console.print(f"{name.replace('_', ' ')}:\n    {escape(command)}", highlight=False, soft_wrap=True)
    for note in answer.notes:
        console.print(escape(note), highlight=False, soft_wrap=True)
    console.print(f"{escape(str(answer.folder))}/answer.json, answer.csv; seed: {answer.seed}", highlight=False, soft_wrap=True)


def said(text: str) -> str:
    """What a run said, on one line: it may hold anything, and a terminal obeys some of it."""
    shown = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return escape(shown if len(shown) <= SAID_MAX else shown[:SAID_MAX] + "...")
