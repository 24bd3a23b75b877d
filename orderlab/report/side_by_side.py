"""Stores and systems side by side, as tables of text: on a terminal, as Markdown for the README, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orderlab.properties.side_by_side import DRAIN_BOUND_MS, KEPT, LIMIT, LOAD, WAITING, Row, Table
from orderlab.report.report_page import template
from orderlab.report.words import harmless

NOTHING = "–"
STORES, SYSTEMS = "stores", "systems"
MARKS = ("<!-- the table below is written by: make compare -->", "<!-- end of the table -->")
STORE_COLUMNS = (
    "store",
    "laws",
    "broken",
    "commands/msg",
    "bytes/msg",
    "save, ms",
    "msg/s a node",
    "blocks, ms",
    "by",
    "memory, bytes/msg",
)
SYSTEM_COLUMNS = (
    "system",
    "laws",
    "broken",
    "commands/msg",
    "latency, ms",
    "msg/s at full load",
    "faults without a violation",
)


def cells_of_store(row: Row) -> dict[str, str]:
    """A store's row."""
    cost = row.cost
    told = [_kept(row), ", ".join(row.broken) or NOTHING]
    if cost is None:
        return dict(zip(STORE_COLUMNS, [row.name, *told, *[NOTHING] * 7], strict=True))
    numbers = [_number(one) for one in (cost.commands, cost.bytes, cost.latency_ms, cost.per_s, cost.blocking_ms)]
    return dict(
        zip(
            STORE_COLUMNS,
            [row.name, *told, *numbers, cost.blocking_by or NOTHING, _number(cost.memory_bytes)],
            strict=True,
        )
    )


def cells_of_system(row: Row) -> dict[str, str]:
    """A system's row."""
    assert row.cost is not None
    kept = sum(said == KEPT for said in row.faults.values())
    numbers = [_number(one) for one in (row.cost.commands, row.cost.latency_ms, row.cost.per_s)]
    told = [row.name, _kept(row), ", ".join(row.broken) or NOTHING, *numbers, f"{kept} of {len(row.faults)}"]
    return dict(zip(SYSTEM_COLUMNS, told, strict=True))


def fault_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row for each fault, a column for whatever was tried under any."""
    tried = [row for row in rows if row.faults]
    names = dict.fromkeys(name for row in tried for name in row.faults)
    return [{"fault": name, **{row.name: row.faults.get(name, NOTHING) for row in tried}} for name in names]


def limits(table: Table) -> Iterator[str]:
    """What the numbers are, and what they are not."""
    yield (
        f"Laws: kept of those that the store is held to, from `orderlab validate --effort {table.effort}`, seed "
        f"{table.seed}; a law that is neither kept nor "
        "broken is unknown at this effort. The tables of PostgreSQL: random runs on the simulated tables."
    )
    yield (
        "Costs of a store, by one workload of its kind, messages of 62 bytes, one client. Sessions: QoS 1, saved one "
        "at a time, fetched in pages of 10, acknowledged one at a time. "
        "Feeds: posted one at a time, listed and claimed in pages of 10, deleted one at a time. Job queues: added, "
        "taken and completed one at a time. What a store has no operation for is left out."
    )
    yield (
        "Commands: those of scripts, of PostgreSQL statements. Bytes: commands and replies, before packets (of "
        "PostgreSQL as psycopg sends them, and each of its fetches returns all that waits). "
        "Save (a post, an add) and msg/s a node: processor time of the commands within scripts, not of the Lua "
        "between them, by the cost "
        "model sim/costs/redis.toml (of PostgreSQL, one core and the wait for the log, by prototype.toml): "
        "estimates, without the network and the driver."
    )
    yield (
        f"Blocks: the longest of these at {LIMIT:,} messages; on Redis nobody else is served meanwhile. Sessions: "
        "one save, fetch of everything, acknowledge, clear. Feeds: a post, a delete; "
        "list, claim, renew and release of everything, and a claim once all claims have lapsed. Job queues: each "
        "operation once, and take once the leases of all have lapsed. "
        f"Memory: what MEMORY USAGE says of {WAITING:,} waiting messages of one client; of PostgreSQL, both tables "
        "on disk with their indexes (pg_total_relation_size, by the layout of its blocks)."
    )
    yield (
        f"Systems, as published: {LOAD['publishers']:,} publishers, one message a second each, in virtual time, "
        "costs as `orderlab simulate --list` names them; latency from publish to "
        "delivery, mean (zaqar: of a request, 18 producers in closed loops); msg/s at full load goes on linearly "
        "from the busiest node under that load, so it is no ceiling that was reached (`--sustainable` searches one). "
        f"Faults strike once a run, a small system with short timeouts as in notes/guarantees.md; {DRAIN_BOUND_MS:,} "
        "ms to drain. One run each: what is not named showed no violation "
        "in this run, and may in another."
    )


def print_table(console: Console, table: Table) -> None:
    """On a terminal, or in a pipe."""
    for title, rows in _tables(table):
        if rows:
            shown = RichTable(title=title, title_justify="left")
            for name in rows[0]:
                shown.add_column(name, overflow="fold")
            for row in rows:
                shown.add_row(*map(Text, row.values()))
            console.print(shown)
    for line in limits(table):
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _tables(table: Table) -> list[tuple[str, list[dict[str, str]]]]:
    return [
        (STORES, [cells_of_store(row) for row in table.stores]),
        ("laws that fall when an operation meets a fault (sessions: a save), by store", fault_rows(table.stores)),
        (SYSTEMS, [cells_of_system(row) for row in table.systems]),
        ("laws that fall when a fault strikes, by system", fault_rows(table.systems)),
    ]


def markdown(table: Table) -> str:
    """Everything, as Markdown."""
    return "\n\n".join([*_as_markdown(_tables(table)), *limits(table)])


def put(note: str, table: Table) -> str:
    """The note with the designs between its marks: one row each, without what falls under each fault."""
    begin, end = MARKS
    rows = _as_markdown([(title, rows) for title, rows in _tables(table) if title in (STORES, SYSTEMS)])
    return f"{note.partition(begin)[0]}{begin}\n\n" + "\n\n".join(rows) + f"\n\n{end}{note.partition(end)[2]}"


def _as_markdown(tables: Sequence[tuple[str, list[dict[str, str]]]]) -> list[str]:
    parts = []
    for title, rows in tables:
        if rows:
            lines = [f"{title[0].upper()}{title[1:]}:", "", f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
            parts.append(
                "\n".join([*lines, *(f"| {' | '.join(_escaped(one) for one in row.values())} |" for row in rows)])
            )
    return parts


def page(table: Table) -> str:
    """The page, which needs nothing else."""
    tables = [{"title": title, "rows": rows} for title, rows in _tables(table) if rows]
    return harmless(
        template("side_by_side.html.j2").render(
            title="orderlab compare", tables=tables, limits=list(limits(table)), seed=table.seed
        )
    )


def _kept(row: Row) -> str:
    kept = len(row.laws) - len(row.broken) - len(row.open)
    return f"{kept} of {len(row.laws)}" + (f", {len(row.open)} unknown" if row.open else "")


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
