"""Witnesses whose rows break their law by themselves: judged alone, they come to the same finding.

`findings.tell` shows the rows of the message, of its exchange and of its session. Where these alone do not bring the
finding about (what others received, what else was in flight, that the recording went on), rows from around it are added
until they do, and left out again one run after the other (delta debugging; Zeller and Hildebrandt 2002) while the same
finding stays. The same finding, not only the same law: without a SUBSCRIBE row every delivery would be a flaw.

A history of up to ROWS_WHOLE rows is looked through whole; of a longer one the rows of its clients, the last before the
break. What takes more than ROWS_SHOWN rows (a window of a hundred) keeps the rows that `tell` has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from orderlab.model.checkers.findings import Finding, is_about
from orderlab.model.history.events import (
    COLUMNS,
    KIND_OF_LABEL,
    EventBatch,
    EventKind,
    History,
    IntArray,
    Names,
    describe_event,
)
from orderlab.model.verdict import Verdict

ROWS_WHOLE = 20_000
ROWS_AROUND = 4096
ROWS_WANTED = 16
"""If more were shown, rows that `tell` chose may be left out as well."""
ROWS_SHOWN = 40
TRIALS = 600

Judge = Callable[[str, EventBatch, Names], Finding | None]
"""What a law comes to on some rows."""
Surroundings = Callable[[Mapping[int, Finding]], Mapping[int, tuple[EventBatch, Names]]]
"""The rows among which findings are sought again."""
_OF_ALL = (EventKind.END, EventKind.CUT, EventKind.HEAL)


def complete(verdicts: Iterable[Verdict], surroundings: Surroundings, judge: Judge) -> list[Verdict]:
    """The verdicts, their witnesses completed where the rows that `tell` found do not break the law by themselves; then
    only is the history gone through once more."""
    verdicts = list(verdicts)
    told = {at: one.witness for at, one in enumerate(verdicts) if isinstance(one.witness, Finding)}
    if not told:
        return verdicts
    alone = {at: not _is_same(judge(verdicts[at].law, *_encoded(one)), one) for at, one in told.items()}
    lacking = {at: told[at] for at, lacks in alone.items() if lacks}
    if not lacking:
        return verdicts
    for at, (around, names) in surroundings(lacking).items():
        events = _completed(verdicts[at].law, lacking[at], around, names, judge)
        verdicts[at] = replace(verdicts[at], witness=replace(lacking[at], events=events))
    return verdicts


def _ids(finding: Finding) -> list[int]:
    return [int(event["event_id"]) for event in finding.events]


def _encoded(finding: Finding) -> tuple[EventBatch, Names]:
    """The rows that are shown."""
    names = Names()
    absent = [-1] * len(finding.events)
    columns: dict[str, list[int]] = {"event_id": list(absent)}
    for row, event in enumerate(finding.events):
        for name, value in event.items():
            table = names.table(name)
            code = KIND_OF_LABEL[value] if name == "kind" else value if table is None else table.code(str(value))
            columns.setdefault(name, list(absent))[row] = int(code)
    return EventBatch.of(**columns), names


def joined(batches: Iterable[EventBatch]) -> EventBatch:
    return History(tuple(batches)).joined()


def _is_same(found: Finding | None, wanted: Finding) -> bool:
    """Whether it is the same violation: of the same message and subscriber, at the same event, for the same reason."""
    names = ("why", "event_id", "publisher", "topic", "qos", "sequence", "subscriber")
    return found is not None and all(str(getattr(found, name)) == str(getattr(wanted, name)) for name in names)


def rows_around(
    findings: Mapping[int, Finding], batches: Iterable[EventBatch], names: Names
) -> Mapping[int, tuple[EventBatch, Names]]:
    """The rows among which a finding is sought again: the whole history if it is short."""
    whole: list[EventBatch] | None = []
    kept: dict[int, list[EventBatch]] = {at: [] for at in findings}
    seen = 0
    for batch in batches:
        seen += len(batch)
        whole = None if whole is None or seen > ROWS_WHOLE else [*whole, batch]
        for at, finding in findings.items():
            kept[at].append(batch.select(_around(finding, batch, names)))
            if sum(map(len, kept[at])) > 4 * ROWS_AROUND:
                kept[at] = [last(joined(kept[at]), finding)]
    if whole is not None:
        return dict.fromkeys(findings, (joined(whole), names))
    return {at: (last(joined(rows), findings[at]), names) for at, rows in kept.items()}


def _around(finding: Finding, batch: EventBatch, names: Names) -> Any:
    """A mask of the rows among which a finding is sought again."""
    about = _of_clients(finding, batch, names)
    about[first_of_kinds(batch)] = True  # that such rows were recorded at all, be it later
    return about


def _of_clients(finding: Finding, batch: EventBatch, names: Names) -> Any:
    """A mask of the rows of the clients that a finding names, of its message, and of the whole recording."""
    about = is_about(finding, batch, names) | np.isin(batch.kind, _OF_ALL)
    clients = {finding.subscriber, *(event.get("subscriber") for event in finding.events)} - {None}
    codes = [one if isinstance(one, int) else names.clients.code_of.get(str(one), -2) for one in clients]
    about |= np.isin(batch.subscriber, codes)
    if finding.event_id is not None:
        about &= batch.event_id <= finding.event_id
    return about


def last(rows: EventBatch, finding: Finding) -> EventBatch:
    """The last of the rows, and those that are shown."""
    kept = np.isin(rows.event_id, _ids(finding)) | np.isin(rows.kind, _OF_ALL)
    kept[first_of_kinds(rows)] = True
    kept[-ROWS_AROUND:] = True
    return rows.select(kept)


def first_of_kinds(rows: EventBatch) -> IntArray:
    """The first row of each kind."""
    return np.unique(rows.kind, return_index=True)[1]


def _completed(
    law: str, finding: Finding, around: EventBatch, names: Names, judge: Judge
) -> tuple[Mapping[str, Any], ...]:
    """The rows that are shown and those that they lack; the rows that are shown if that does not help."""
    small, its_names = _small(around, names)
    left = TRIALS

    def breaks(rows: IntArray) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and _is_same(judge(law, small.select(np.sort(rows)), its_names), finding)

    shown = np.isin(small.event_id, _ids(finding))
    mine, others = np.flatnonzero(shown), np.flatnonzero(~shown)
    if not breaks(np.concatenate([mine, others])):
        # The first row of a kind may be another client's, who then looks as if this were all that it had.
        of_clients = _of_clients(finding, small, its_names)
        others = others[of_clients[others] | ~np.isin(small.kind[others], small.kind[of_clients])]
        if not breaks(np.concatenate([mine, others])):
            return finding.events
    rows = np.concatenate([mine, fewest(others, lambda some: breaks(np.concatenate([mine, some])))])
    if len(rows) > ROWS_WANTED:
        left = TRIALS
        rows = fewest(np.sort(rows), breaks)
    if len(rows) > ROWS_SHOWN:
        return finding.events
    return tuple(describe_event(small, row, its_names) for row in np.sort(rows).tolist())


def fewest(rows: IntArray, breaks: Callable[[IntArray], bool]) -> IntArray:
    """Of rows that break a law some that do, none of which can be left out alone; runs of them are tried first, from
    the earliest on."""
    size = max(1, len(rows) // 2)
    while True:
        at, before = 0, len(rows)
        while at < len(rows):
            rest = np.concatenate([rows[:at], rows[at + size :]])
            if breaks(rest):
                rows = rest
            else:
                at += size
        if size == 1 and len(rows) == before:
            return rows
        size = max(1, size // 2)


def _small(batch: EventBatch, names: Names) -> tuple[EventBatch, Names]:
    """The rows with names of their own: what judges them may take memory for each name that there is."""
    own = Names()
    columns = {name: getattr(batch, name) for name in COLUMNS}
    for name in _named(names):
        table, new = names.table(name), own.table(name)
        assert table is not None
        assert new is not None
        codes, places = np.unique(columns[name], return_inverse=True)
        new.numeric = table.numeric
        new_codes = [new.code(str(table.label(code))) if code >= 0 else -1 for code in codes.tolist()]
        columns[name] = np.array(new_codes)[places]
    return EventBatch(**{name: np.asarray(column, COLUMNS[name].dtype) for name, column in columns.items()}), own


def _named(names: Names) -> Iterator[str]:
    """The columns of names; where a file holds integers, they stay what they are."""
    for name in COLUMNS:
        table = names.table(name)
        if table is not None and table.names:
            yield name
