"""A sweep in words: the answer in a sentence, progress on one line, what came out, what failed and how to see it happen
again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orderlab.exit_codes import EXIT
from orderlab.model.verdict import Outcome
from orderlab.report.terminal import STYLE
from orderlab.report.words import cell, counted
from orderlab.spark_sweeps.questions.aims import Aim, Best
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.asking import COMMANDS, unsettled_line
from orderlab.spark_sweeps.questions.best import aim_columns
from orderlab.spark_sweeps.questions.capacity import capacity_columns
from orderlab.spark_sweeps.results.rows import counted_kinds
from orderlab.spark_sweeps.runs.job import Preview, RunsProgress, Summary
from orderlab.spark_sweeps.sweep_file.plan import Plan

BAR = 24
SAID_MAX = 400
Rows = Sequence[Mapping[str, Any]]
PIPE_WIDTH = 200
"""Columns of text where nobody says how many there are."""


def progress_line(progress: RunsProgress) -> tuple[str, float]:
    """Runs done, failed, rate, violations so far; and the share of this command's own runs that is done."""
    counts, total = progress.counts, progress.total
    new = counts.rows - progress.before
    rate = new / progress.wall_s if progress.wall_s > 0 else 0.0
    text = (
        f"{counts.rows:,} of {total:,} runs, {counts.failed:,} failed, {counts.violated:,} violating, {rate:.3g} runs/s"
    )
    return text, new / max(total - progress.before, 1)


def print_summary(console: Console, summary: Summary, outcome: Outcome) -> None:
    """The verdict with its exit code, counts, the first failures and violations with their commands, where the rows
    are."""
    counts = summary.counts
    console.print(
        f"{swept(summary)} (exit code {int(EXIT[outcome])})", style=STYLE[outcome], highlight=False, soft_wrap=True
    )
    console.print(
        f"{counts.rows:,} of {summary.runs:,} runs done ({summary.before:,} of them before), {counts.failed:,} failed, "
        f"{counts.violated:,} violating a law; {summary.wall_s:.1f} s, {summary.cpu_s:.1f} s of CPU in runs",
        highlight=False,
    )
    if summary.unknown > summary.vacuous:
        console.print(f"{summary.unknown - summary.vacuous:,} runs left laws undecided", highlight=False)
    if summary.unsettled:
        console.print(
            f"warning: {unsettled_line(summary.unsettled, counts.rows - counts.failed)}",
            highlight=False,
            soft_wrap=True,
        )
    if summary.failure_kinds:
        console.print(f"failed: {said(counted_kinds(summary.failure_kinds))}", highlight=False, soft_wrap=True)
    if summary.spared:
        console.print(f"{summary.spared:,} more runs were spared by replications.until", highlight=False)
    if summary.stopped is not None:
        console.print(f"stopped: {summary.stopped}; the same command goes on", highlight=False)
    for title, rows in (("failed", summary.failures), ("violating", summary.violations)):
        for row in rows:
            told = row["error"] or ", ".join(law for law, verdict in row["verdicts"] if verdict == "violated")
            console.print(f"run {row['run']} {title} ({row['status']}): {said(told)}", highlight=False, soft_wrap=True)
            console.print(f"    {escape(row['replay'])}", highlight=False, soft_wrap=True)
        total = counts.failed if title == "failed" else counts.violated
        if total > len(rows):
            console.print(f"... and {total - len(rows):,} more {title}, in the rows", highlight=False)
    console.print(
        f"rows: {escape(str(summary.folder))}/rows (Parquet); digest {summary.digest}; seed: {summary.seed}",
        highlight=False,
        soft_wrap=True,
    )


def swept(summary: Summary) -> str:
    """What became of the runs, in a sentence."""
    counts, held = (
        summary.counts,
        summary.counts.rows - summary.counts.failed - summary.counts.violated - summary.unknown,
    )
    parts = [
        f"{counts.violated:,} of {counted(summary.runs, 'run')} "
        f"{'violates' if counts.violated == 1 else 'violate'} a law"
        if counts.violated
        else "",
        f"{counts.failed:,} failed" if counts.failed else "",
        f"{summary.runs - counts.rows:,} are not done" if counts.rows < summary.runs else "",
        f"{summary.vacuous:,} tested no law" if summary.vacuous else "",
        f"{held:,} kept every law" if held and held < summary.runs else "",
    ]
    if held == summary.runs:
        return f"all {counted(held, 'run')} kept every law" if held > 1 else "the run kept every law"
    return ", ".join(filter(None, parts)) or "no run was done"


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


def print_runs(console: Console, shown: Any, met: int) -> None:
    """Rows of runs as a table; ``met``: of how many these are."""
    table = Table()
    for name in shown.column_names:
        table.add_column(escape(name), overflow="fold")
    for row in shown.to_pylist():
        table.add_row(*(said(cell(value)) for value in row.values()))
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    console.print(table)
    rest = met - shown.num_rows
    more = f"; {rest:,} more meet the conditions: raise --limit, or --export FILE" if rest else ""
    console.print(f"{counted(shown.num_rows, 'row')}{more}", highlight=False, soft_wrap=True)


def print_answer(console: Console, answer: Answer, asked: Mapping[str, Any]) -> None:
    """The answer in a sentence with its exit code, then its table; one row alone stands upright. Commands are printed
    below, to be copied."""
    console.print(
        f"{answered(answer.outcome)}: {said(sentence(answer, asked))} (exit code {int(EXIT[answer.outcome])})",
        style=STYLE[answer.outcome], highlight=False, soft_wrap=True,
    )  # fmt: skip
    for warning in answer.warnings:
        console.print(f"warning: {escape(warning)}", highlight=False, soft_wrap=True)
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
    console.print(
        f"{escape(str(answer.folder))}/answer.json, answer.csv; seed: {answer.seed}, digest: {answer.digest}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def said(text: str) -> str:
    """What a run said, on one line: it may hold anything, and a terminal obeys some of it."""
    shown = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return escape(shown if len(shown) <= SAID_MAX else shown[:SAID_MAX] + "...")


# -- the answer in a sentence
# ------------------------------------------------------------------------------------------------

UNITS = (
    ("_per_s", "per s"),
    ("per_s", "per s"),
    ("_ms", "ms"),
    ("_us", "µs"),
    ("_s", "s"),
    ("_mib", "MiB"),
    ("_bytes", "bytes"),
    ("_percent", "%"),
    ("_share", "share of 1"),
    ("_ratio", "ratio"),
)


def unit_of(metric: str) -> str:
    """The unit that a name ends in, or stands for; empty where it says none."""
    for part in reversed(metric.split(".")):
        if part.startswith("utilisation"):
            return "share of 1"
        for ending, unit in UNITS:
            if part.endswith(ending):
                return unit
    return ""


def with_unit(metric: str) -> str:
    """The name as the files have it, and its unit."""
    unit = unit_of(metric)
    return f"{metric} [{unit}]" if unit else metric


def answered(outcome: Outcome) -> str:
    """What an outcome means of a question."""
    return {Outcome.VIOLATED: "the target is missed", Outcome.UNKNOWN: "the question stayed open"}.get(
        outcome, "answered"
    )


def named(row: Mapping[str, Any], settings: Sequence[str]) -> str:
    """The configuration that a row is about."""
    return ", ".join(f"{name} {row[name]}" for name in settings if name in row)


def sentence(answer: Answer, asked: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    say = _SENTENCES.get(answer.kind)
    if say is None or not answer.rows:
        return "nothing was found"
    return "; ".join(filter(None, (say(answer.rows, asked, answer.settings), answer.unseen)))


def _said_sensitivity(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    first = rows[0]
    if "total" in first and first["total"] <= first["total_half_width"]:
        return f"what {asked['metric']} depends on is not told from chance: take more samples"
    if "total" in first:
        rest = f", then {rows[1]['parameter']} with {100 * rows[1]['total']:.0f} %" if len(rows) > 1 else ""
        share = f"a part in {100 * first['total']:.0f} ± {100 * first['total_half_width']:.0f} % of its variance"
        return f"{asked['metric']} depends most on {first['parameter']}: {share}{rest}"
    effect = f"{cell(float(first['mean_absolute_effect']))} ± {cell(float(first['half_width']))}"
    return (
        f"{with_unit(asked['metric'])} depends most on {first['parameter']}: across its range it moves by "
        f"{effect} on average"
    )


def _said_cheapest(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    targets = ", ".join(f"{metric} <= {cell(bound)}" for metric, bound in asked["targets"].items())
    meeting = [row for row in rows if row["meets"]]
    if not meeting:
        told = f"none of {counted(len(rows), 'configuration')} meets {targets}"
        left = sum(row["open"] for row in rows)
        return f"{told} by its interval, and {left} may: raise replications" if left else told
    best = min(meeting, key=lambda row: row["price"])
    left = sum(row["open"] and row["price"] < best["price"] for row in rows)
    return (
        f"the cheapest that meets {targets}: {named(best, settings)}, at price {cell(best['price'])} "
        f"({len(meeting)} of {len(rows)} meet it{f'; {left} cheaper may, raise replications' if left else ''})"
    )


def _said_best(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    question = Best.model_validate(asked)
    columns, many = aim_columns(question), len(question.aims) > 1
    under = f" with {', '.join(question.subject_to)}" if question.subject_to else ""
    chosen = [row for row in rows if row["on_front" if many else "chosen"]]
    if not chosen:
        may = sum(row["open"] for row in rows)
        left = f", and {may} may: raise runs" if may else ""
        return f"no configuration was found{under}{left}; nearest: {named(rows[0], settings)}"
    tied = sum(row["tied"] for row in rows)
    among = f"; {counted(tied, 'other')} cannot be told from {'them' if many else 'it'}" if tied else ""
    row = chosen[0]
    broken = f"; a law broke in {row['violations']} of its {row['runs']} runs" if row["violations"] else ""

    def place(aim: Aim, row: Mapping[str, Any]) -> str:
        mean, low, high = (cell(row[column]) for column in columns[aim.metric])
        return f"{named(row, settings)}, where it is {mean} ({low} to {high})"

    if not many:
        (aim,) = question.aims
        return f"the {aim.word} {with_unit(aim.metric)}{under} that was found: {place(aim, row)}{among}{broken}"
    ends = [
        f"the {aim.word} {with_unit(aim.metric)} at "
        + place(aim, min(chosen, key=lambda row, aim=aim: aim.sign * row[columns[aim.metric][0]]))  # type: ignore[misc]
        for aim in question.aims
    ]
    return f"{counted(len(chosen), 'configuration')} on the front{under} that was found: {'; '.join(ends)}{among}"


def _said_comparison(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    differing = [row for row in rows if row["differs"]]
    what = f"{asked['parameter']} {asked['b']} against {asked['a']}"
    if not differing:
        many = "the metric" if len(rows) == 1 else f"any of {len(rows)} comparisons"
        return f"{what}: no difference is told in {many}"
    row = differing[0]
    share = f" ({100 * row['difference'] / abs(row['a']):+.3g} %)" if row["a"] else ""
    where = f" at {named(row, settings)}" if named(row, settings) else ""
    told = f"{with_unit(row['metric'])} is {cell(row['b'])} instead of {cell(row['a'])}{share}{where}"
    return f"{what}: {told}" + (f"; {len(differing)} of {len(rows)} comparisons differ" if len(rows) > 1 else "")


def _said_capacity(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    kept, broken, _ = capacity_columns(asked["parameter"], asked["metric"])

    def told(row: Mapping[str, Any]) -> str:
        if row[broken] is None and row[kept] >= asked["to"]:
            return f"even {cell(asked['to'])}, the highest that was tried, is kept"
        if row[broken] is None:
            known = f"{cell(row[kept])} is kept, and above it" if row[kept] else "nothing is decided:"
            return f"{known} every rate that was tried up to {cell(asked['to'])} stayed open"
        if not row[kept] and row[broken] <= asked["from"]:
            return f"not even {cell(asked['from'])}, the lowest that was tried, is kept"
        if not row[kept]:
            return f"{cell(row[broken])} is not kept, and below it every rate that was tried stayed open"
        left = "" if row["decided"] else " (between them rates stayed open)"
        return f"{cell(row[kept])} is kept, {cell(row[broken])} is not{left}"

    limit = f"{asked['parameter']} with a mean {with_unit(asked['metric'])} below {cell(asked['below'])}"
    if len(rows) == 1:
        return f"{limit}: {told(rows[0])}"
    best, worst = max(rows, key=lambda row: row[kept]), min(rows, key=lambda row: row[kept])
    return (
        f"{limit}: most at {named(best, settings)}, where {told(best)}; least at {named(worst, settings)}, where "
        f"{told(worst)}"
    )


def _said_risk(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    (row,) = rows
    words = {
        "acceptable": f"acceptable (at most {asked['acceptable']:g})",
        "unacceptable": f"unacceptable (at least {asked['unacceptable']:g})",
    }
    told = f"{row['violations']} of {row['runs']} runs, {cell(row['low'])} to {cell(row['high'])}, exact 95 %"
    return f"the risk that a law breaks is {words.get(row['decision'], 'undecided')}: {told}"


def _said_rare_event(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    (row,) = rows
    event = "a law breaks" if asked.get("above") is None else f"{asked['score']} exceeds {cell(asked['above'])}"
    if not row["probability"]:
        return (
            f"in {counted(row['runs'], 'run')} it was not reached that {event}; the probability stayed open, at "
            f"most {cell(row['high'])}"
        )
    low, high = cell(row["low"]), cell(row["high"])
    return f"{event} with a probability of {cell(row['probability'])} ({low} to {high}, nominal 95 %)"


_SENTENCES: dict[str, Callable[[Rows, Mapping[str, Any], Sequence[str]], str]] = {
    "sensitivity": _said_sensitivity,
    "cheapest": _said_cheapest,
    "best": _said_best,
    "comparison": _said_comparison,
    "capacity": _said_capacity,
    "risk": _said_risk,
    "rare-event": _said_rare_event,
}
