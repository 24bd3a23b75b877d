"""A sweep that runs, on a terminal that is drawn again and again, in a pipe, and as a page that loads itself anew."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orderlab.model.files import write_whole
from orderlab.report.progress import BAR, TOLD_EACH_S, seconds
from orderlab.report.report_page import template
from orderlab.report.sweep import said, with_unit
from orderlab.report.words import cell, harmless
from orderlab.spark_sweeps.results.rows import counted_kinds
from orderlab.spark_sweeps.results.watching import FolderWatch, Look

LOOKS_EACH_S = 2.0
PAGE = Path("report") / "watch.html"


def watch(folder: FolderWatch, with_page: bool) -> Look:
    """Show a sweep until it is done; how it stands then. Raises InputError; KeyboardInterrupt passes through."""
    console = Console()
    is_drawn = console.is_terminal
    told_at = -TOLD_EACH_S
    with Live(console=console, auto_refresh=False, transient=True) if is_drawn else _Nothing() as live:
        while True:
            look = folder.look()
            if look is not None and with_page:
                (folder.path / PAGE.parent).mkdir(exist_ok=True)
                write_whole(folder.path / PAGE, page(folder.path, look).encode())
            if is_drawn:
                live.update(view(folder.path, look), refresh=True)
            elif look is not None and time.monotonic() >= told_at + TOLD_EACH_S and not look.is_done:
                told_at = time.monotonic()
                print(headline(look), flush=True)
            if look is not None and look.is_done:
                break
            time.sleep(LOOKS_EACH_S)
    console.print(view(folder.path, look))
    return look


class _Nothing:
    """In place of a terminal's view."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()


def headline(look: Look) -> str:
    """Runs done, failed, violating; the rate of late, and what is left at it."""
    total = f"of {look.wanted:,} " if look.wanted is not None else ""
    parts = [f"{look.counts.rows:,} {total}runs, {look.counts.failed:,} failed, {look.counts.violated:,} violating"]
    if look.is_done:
        return f"{parts[0]}; done"
    if look.rate is not None:
        parts.append(f"{look.rate:.3g} runs/s of late")
    if look.left_s is not None:
        parts.append(f"about {seconds(look.left_s)} left")
    if look.since_s is not None:
        parts.append(f"last rows {seconds(look.since_s)} ago")
    return ", ".join(parts)


def view(path: Path, look: Look | None) -> Group:
    """What a terminal shows."""
    if look is None:
        return Group(Text(f"{path}: no rows yet; a sweep that writes there is shown as it goes"))
    parts: list[Any] = [Text(headline(look))]
    if look.wanted:
        parts.insert(0, Text(f"[{('#' * round(min(look.counts.rows / look.wanted, 1) * BAR)).ljust(BAR, '.')}]"))
    if look.rounds:
        parts.append(Text("rounds: " + ", ".join(f"{name} {counts.rows:,}" for name, counts in look.rounds[-8:])))
    if look.failures:
        parts.append(Text(f"failed: {counted_kinds(look.failures)}"))
    for title, rows in (("so far", metric_rows(look)), ("slowest runs", slow_rows(look))):
        if rows:
            table = Table(title=title, title_justify="left")
            for name in rows[0]:
                table.add_column(escape(name), overflow="fold")
            for row in rows:
                table.add_row(*(said(cell(value)) for value in row.values()))
            parts.append(table)
    return Group(*parts)


def metric_rows(look: Look) -> list[dict[str, Any]]:
    """Two rows for each metric that differs between points: where its mean is least, and where greatest."""
    return [
        {
            "metric": with_unit(name) if which == "least" else "", "": which, "mean": extreme.mean,
            "runs": extreme.runs, "at": _given(extreme.parameters),
        }
        for name, extremes in look.metrics.items()
        for which, extreme in zip(("least", "greatest"), extremes, strict=True)
    ]  # fmt: skip


def slow_rows(look: Look) -> list[dict[str, Any]]:
    """A row for each of the slowest runs."""
    return [{"run": slow.run, "seconds": slow.wall_s, "at": _given(slow.parameters)} for slow in look.slowest]


def _given(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {cell(value)}" for name, value in parameters.items())


def page(path: Path, look: Look) -> str:
    """The same as a page, which loads itself anew until the sweep is done."""
    rounds = [{"round": name, **vars(counts)} for name, counts in look.rounds]
    return harmless(
        template("watch.html.j2").render(
            title=f"Sweep in {path}", look=look, headline=headline(look), metrics=metric_rows(look),
            slowest=slow_rows(look), failures=counted_kinds(look.failures), rounds=rounds,
            share=None if not look.wanted else min(1.0, look.counts.rows / look.wanted), at=time.strftime("%H:%M:%S"),
            each_s=5,
        )
    )  # fmt: skip
