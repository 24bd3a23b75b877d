"""Logs with offsets and transactions: what producers sent, consumers polled and transactions did to partitioned logs.

An operation is a list of *micro-operations* on keys (a key is a topic partition), as in Jepsen's Kafka workload:

    [send key value]  →  [send key [offset value]]        [poll]  →  [poll {key [[offset value] …]}]

Functions: `txn`, `send`, `poll` (Jepsen names an operation by what it consists of, so a `send` of two is a transaction
as well), `assign` and `subscribe` (their value lists keys); `crash` and `debug-topic-partitions` say nothing. What
polls returned is read from whatever completed, for it was seen however the operation ended; which offsets sends got
from what ended `ok`, and of a value that was sent once from the polls. The *version order* of a key is the order of its
offsets that are known from any of these.

 1. `consistent-offsets`: an offset has two values. Proves divergent or overwritten logs.
 2. `no-duplicate`: a value has more offsets than it was sent times (failed sends aside). Proves that a send was applied
    twice; cannot say by whom.
 3. `no-lost-write`: a send was acknowledged with an offset, no poll returned its value, and somebody read past it: its
    offset was polled with another value, or a consumer's polls went from below it to above it (within an operation, or
    as in 8 from one to the next), or began above it after an `assign` with `seek-to-beginning?`. Undecided is what lies
    below something polled where nobody is known to have come from below it, for a consumer may have begun there
    (Jepsen's checker takes that as lost); what lies above everything polled is unseen, which is told and is no loss.
 4. `no-phantom`: a poll returned what nobody sent, or what was sent only after the poll had returned.
 5. `no-G1a` (aborted read): a poll returned what a failed operation sent. `fail` has to mean: certainly did not happen.
 6. `no-precommitted-read`: a transaction polled what it had itself sent and not yet committed.
 7. `no-int-poll-skip`, `no-int-nonmonotonic-poll`: within one operation a poll passed over an offset that is known, or
    did not go up. After `subscribe` each poll of an operation is judged by itself: a rebalance may come between two.
 8. `no-poll-skip`, `no-nonmonotonic-poll`: the same from one operation of a process to its next that polled the key.
    Not judged: after `subscribe` (a rebalance may move a consumer), for a key newly assigned, after a seek to the
    beginning, after an operation that may have polled and did not end `ok`.
 9. `no-int-nonmonotonic-send`, `no-nonmonotonic-send`: later sends of one operation, or of one process, got lower
    offsets.
10. `no-wr-cycle`: transactions read from each other in a circle: the part of G1c that Kafka promises.

On request, as Kafka does not promise them (its transactions interleave their writes):

11. `no-int-send-skip`: between two sends of one operation to a key lies another known offset.
12. `no-G0`: a circle of transactions that each wrote to some key before the next (Adya's write cycle).
13. `no-G1c`: a circle of writes before writes and reads from writes, at least one of these (Adya's circular information
    flow).

Cycles: strongly connected components of the graph over operations. An operation of unknown outcome is there once one of
its values was polled. Values with two offsets and offsets with two values stay out of the version order of 10 to 13, so
that each fault is told once.

A value may be sent to a key again (a producer that retries). Where it was, whoever polled it may have any of these
sends: 4 to 6 need all of them to be wrong, 3 goes by its offset, and it is in no circle, unless all but one of them
failed.

Complexity: O(n log n) in micro-operations; the shortest cycle of the first component costs its edges times its nodes,
of at most 100 edges. A budget that runs out leaves undecided what is not violated by then.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from orderlab.model.checkers.findings import VACUOUS, OutOfBudget, TimeBudget
from orderlab.model.checkers.kafka_operations import (
    SEEKS,
    SILENT,
    TRANSACTION,
    LogOperation,
    Send,
    steps_of,
    typed,
)
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, OK, OperationLog
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict

PROMISED = (
    "consistent-offsets",
    "no-duplicate",
    "no-lost-write",
    "no-phantom",
    "no-G1a",
    "no-precommitted-read",
    "no-int-poll-skip",
    "no-int-nonmonotonic-poll",
    "no-poll-skip",
    "no-nonmonotonic-poll",
    "no-int-nonmonotonic-send",
    "no-nonmonotonic-send",
    "no-wr-cycle",
)
ON_REQUEST = ("no-int-send-skip", "no-G0", "no-G1c")
LAWS = (*PROMISED, *ON_REQUEST)
UNDECIDED = -1
"""In place of how often a law was met: it could not be told whether it was broken."""


@dataclass(frozen=True)
class LogAnomaly:
    """The witness: why, the operations that show it, and the key if it is one's."""

    why: str
    operations: tuple[dict[str, Any], ...]
    key: str | None = None


class _Break(NamedTuple):
    why: str
    rows: tuple[int, ...]
    key: str | None = None


@dataclass
class _Found:
    met: int = 0
    undecided: int = 0
    broken: list[_Break] = field(default_factory=list)


class _Log:
    """What is known of every key, from operations that ended `ok`."""

    def __init__(self, steps: Sequence[LogOperation], budget: TimeBudget) -> None:
        self.steps, self.budget = steps, budget
        self.writers: dict[tuple[str, Any], list[LogOperation]] = {}  # one entry a send
        self.values: dict[tuple[str, int], dict[Any, int]] = {}  # (key, offset) → value → the row that tells it first
        self.offsets: dict[tuple[str, Any], dict[int, int]] = {}  # (key, value) → offset → row
        self.polled: set[tuple[str, Any]] = set()  # (key, value)
        # (key, offset) → value polled → row of its first poll.
        self.polled_at: dict[tuple[str, int], dict[Any, int]] = {}
        self.high: dict[str, int] = {}  # key → the highest offset that was polled
        known: dict[str, set[int]] = {}
        for step in steps:
            budget.check()
            for send in step.sends:
                self.writers.setdefault((send.key, typed(send.value)), []).append(step)
            told = [send for send in step.sends if send.offset is not None]
            for key, value, offset in (
                *((send.key, send.value, send.offset) for send in told),
                *((poll.key, poll.value, poll.offset) for poll in step.polls),
            ):
                assert offset is not None
                self.values.setdefault((key, offset), {}).setdefault(typed(value), step.row)
                self.offsets.setdefault((key, typed(value)), {}).setdefault(offset, step.row)
                known.setdefault(key, set()).add(offset)
            for poll in step.polls:
                value = typed(poll.value)
                self.polled.add((poll.key, value))
                self.polled_at.setdefault((poll.key, poll.offset), {}).setdefault(value, step.row)
                self.high[poll.key] = max(poll.offset, self.high.get(poll.key, -1))
        self.known = {key: sorted(offsets) for key, offsets in known.items()}

    def skipped(self, key: str, low: int, high: int) -> int | None:
        """A known offset between two; None if there is none."""
        at = bisect_right(self.known[key], low)
        return self.known[key][at] if at < len(self.known[key]) and self.known[key][at] < high else None

    def possible(self, key: str, value: Any) -> list[LogOperation]:
        """The operations, one a send, that may have written a value: those that did not fail."""
        return [step for step in self.writers.get((key, value), ()) if step.outcome != FAIL]

    def author(self, key: str, value: Any) -> LogOperation | None:
        """The one operation that may have written a value; None if several may, or none."""
        possible = self.possible(key, value)
        return possible[0] if len(possible) == 1 else None

    def was_polled(self, send: Send) -> bool:
        """Whether a poll returned a send's value; where it was sent several times, from the offset of this one."""
        value = typed(send.value)
        if len(self.possible(send.key, value)) > 1 and send.offset is not None:
            return value in self.polled_at.get((send.key, send.offset), ())
        return (send.key, value) in self.polled

    def offset(self, send: Send) -> int | None:
        """Where a send's value stands: as its answer says, or, of a value that was sent once, as the polls that placed
        it say."""
        if send.offset is not None:
            return send.offset
        value = typed(send.value)
        places = self.offsets.get((send.key, value), {})
        return next(iter(places)) if len(places) == 1 and len(self.writers[send.key, value]) == 1 else None

    def teller(self, key: str, offset: int) -> int:
        """The first row that tells an offset."""
        return min(self.values[key, offset].values())


def _offsets(log: _Log) -> Iterator[tuple[str, int, _Break | None]]:
    for (key, offset), values in sorted(log.values.items()):
        if len(values) > 1:
            first, second = list(values)[:2]
            why = f"offset {offset} of {key} has the values {_shown(first)} and {_shown(second)}"
            yield "consistent-offsets", 1, _Break(why, (values[first], values[second]), key)
        else:
            yield "consistent-offsets", 1, None
    for (key, value), offsets in log.offsets.items():
        sent = max(1, len(log.possible(key, value)))
        if len(offsets) > sent:
            first_offset, second_offset = sorted(offsets)[sent - 1 : sent + 1]
            why = f"{_shown(value)} is in {key} at the offsets {first_offset} and {second_offset}"
            if sent > 1:
                why = f"{_shown(value)} was sent to {key} {sent} times and is at {len(offsets)} offsets"
            yield "no-duplicate", 1, _Break(why, (offsets[first_offset], offsets[second_offset]), key)
        else:
            yield "no-duplicate", 1, None


def _shown(typed: Any) -> str:
    kind, value = typed
    return repr(tuple(item[1] for item in value) if kind is tuple else value)


class _Move(NamedTuple):
    """Two offsets of a key that one consumer polled in a row, each with its operation's row; `within` one operation."""

    key: str
    low: tuple[int, int]
    high: tuple[int, int]
    within: bool


def _moves(log: _Log) -> Iterator[_Move]:
    """How each consumer went on, where that is known. After a seek to the beginning it comes from offset -1."""
    polled: dict[int, dict[str, tuple[int, int]]] = {}
    subscribed: set[int] = set()
    for step in log.steps:
        log.budget.check()
        mine = polled.setdefault(step.process, {})
        if step.function == "subscribe":
            subscribed.add(step.process)
            mine.clear()
        elif step.function == "assign":
            kept = set(step.keys) if step.outcome == OK and step.process not in subscribed else set()
            if step.outcome == OK:
                subscribed.discard(step.process)
            for key in set(mine) - (set() if step.from_beginning else kept):
                del mine[key]
            if step.from_beginning:
                mine.clear()
                mine |= dict.fromkeys(step.keys if step.outcome == OK else (), (step.row, -1))
        elif step.function in SILENT or step.may_have_polled:
            mine.clear()
        here: dict[str, tuple[int, int]] = {}
        parts: dict[str, int] = {}
        for poll in step.polls:
            now = (step.row, poll.offset)
            if poll.key in here:
                if step.process not in subscribed or parts[poll.key] == poll.part:
                    yield _Move(poll.key, here[poll.key], now, within=True)
            elif poll.key in mine and step.outcome == OK and step.process not in subscribed:
                yield _Move(poll.key, mine[poll.key], now, within=False)
            here[poll.key], parts[poll.key] = now, poll.part
        mine |= here if step.outcome == OK else {}


def _passed(log: _Log) -> dict[str, tuple[list[int], list[_Move]]]:
    """key → where stretches begin that a consumer passed over, and the moves, of those within others the longest."""
    by_key: dict[str, list[_Move]] = {}
    for move in _moves(log):
        if move.high[1] > move.low[1] + 1:
            by_key.setdefault(move.key, []).append(move)
    passed = {}
    for key, moves in by_key.items():
        kept: list[_Move] = []
        for move in sorted(moves, key=lambda move: (move.low[1], -move.high[1], move.low[0])):
            if not kept or move.high[1] > kept[-1].high[1]:
                kept.append(move)
        passed[key] = ([move.low[1] for move in kept], kept)
    return passed


def _lost(log: _Log) -> Iterator[tuple[str, int, _Break | None]]:
    passed = _passed(log)
    for step in log.steps:
        log.budget.check()
        for send in step.sends if step.has_committed else ():
            if send.offset is None or send.offset > log.high.get(send.key, -1):
                continue
            if log.was_polled(send):
                yield "no-lost-write", 1, None
                continue
            told = f"{send.value!r} was acknowledged at offset {send.offset} of {send.key}"
            others = log.polled_at.get((send.key, send.offset))
            if others:
                other, row = min(others.items(), key=lambda item: item[1])
                why = f"{told}, {_shown(other)} was polled there, and it never was"
                yield "no-lost-write", 1, _Break(why, (step.row, row), send.key)
                continue
            lows, moves = passed.get(send.key, ([], []))
            at = bisect_left(lows, send.offset) - 1  # of those that begin below it this one goes farthest
            if at < 0 or moves[at].high[1] <= send.offset:
                yield "no-lost-write", UNDECIDED, None
                continue
            low, high = moves[at].low, moves[at].high
            why = f"{told}, a consumer went from offset {low[1]} to {high[1]}, and it never was polled"
            if low[1] < 0:
                why = (
                    f"{told}, a consumer began at the beginning and first polled offset {high[1]}, and it never "
                    "was polled"
                )
            yield "no-lost-write", 1, _Break(why, tuple(dict.fromkeys((step.row, low[0], high[0]))), send.key)


def _reads(log: _Log) -> Iterator[tuple[str, int, _Break | None]]:
    for step in log.steps:
        log.budget.check()
        for poll in step.polls:
            writers = log.writers.get((poll.key, typed(poll.value)), ())
            if not writers:
                why = f"{poll.value!r} was polled from {poll.key}, and nobody sent it"
                yield "no-phantom", 1, _Break(why, (step.row,), poll.key)
                continue
            first = writers[0]
            if first.invoked > step.returned or (0 <= step.returned_row < first.invoked_row):
                why = f"{poll.value!r} was polled from {poll.key} before its send was invoked"
                yield "no-phantom", 1, _Break(why, (step.row, first.row), poll.key)
            else:
                yield "no-phantom", 1, None
            aborted = not log.possible(poll.key, typed(poll.value))
            why = f"{poll.value!r} was polled from {poll.key}, and the operation that sent it had failed"
            yield "no-G1a", 1, _Break(why, (first.row, step.row), poll.key) if aborted else None
            if step.function == TRANSACTION and step.sends:
                why = f"{poll.value!r} was polled from {poll.key} by the transaction that sent it, before it committed"
                own = all(writer is step for writer in writers)
                yield "no-precommitted-read", 1, _Break(why, (step.row,), poll.key) if own else None


def _order(
    log: _Log, skip: str | None, fall: str, key: str, low: tuple[int, int], high: tuple[int, int]
) -> Iterator[tuple[str, int, _Break | None]]:
    """Two offsets, each with its row, that have to go up, and without passing over another."""
    rows = (low[0],) if low[0] == high[0] else (low[0], high[0])
    falls = high[1] <= low[1]
    why = f"after offset {low[1]} of {key} came offset {high[1]}"
    yield fall, 1, _Break(why, rows, key) if falls else None
    if skip is not None and not falls:
        between = log.skipped(key, low[1], high[1])
        if between is None:
            yield skip, 1, None
        else:
            teller = log.teller(key, between)
            rows = rows if teller in rows else (*rows, teller)
            yield skip, 1, _Break(f"{why}, and offset {between} lies between them", rows, key)


def _polling(log: _Log) -> Iterator[tuple[str, int, _Break | None]]:
    for key, low, high, within in _moves(log):
        if within:
            yield from _order(log, "no-int-poll-skip", "no-int-nonmonotonic-poll", key, low, high)
        elif low[1] >= 0:
            yield from _order(log, "no-poll-skip", "no-nonmonotonic-poll", key, low, high)


def _sending(log: _Log) -> Iterator[tuple[str, int, _Break | None]]:
    sent: dict[int, dict[str, tuple[int, int]]] = {}
    for step in log.steps:
        log.budget.check()
        if step.outcome == FAIL:
            continue
        last: dict[str, int] = {}
        places = [(send.key, log.offset(send)) for send in step.sends]
        for key, offset in places:
            if offset is None:
                last.pop(key, None)  # whatever lies between may be this one
                continue
            if key in last:
                low, high = (step.row, last[key]), (step.row, offset)
                yield from _order(log, "no-int-send-skip", "no-int-nonmonotonic-send", key, low, high)
            last[key] = offset
        before = sent.setdefault(step.process, {})
        told = [(key, offset) for key, offset in places if offset is not None]
        for key, offset in dict(reversed(told)).items():
            if key in before:
                yield from _order(log, None, "no-nonmonotonic-send", key, before[key], (step.row, offset))
        before |= {key: (step.row, offset) for key, offset in told}


def dependencies(log: _Log) -> nx.DiGraph:
    """Who wrote before whom (`ww`: the key) and who read from whom (`wr`: the key). A node is a row."""
    graph = nx.DiGraph()

    def edge(before: int, after: int, kind: str, key: str) -> None:
        if before != after:
            graph.add_edge(before, after)
            graph.edges[before, after].setdefault(kind, key)

    for key, offsets in log.known.items():
        previous = None
        for offset in offsets:
            log.budget.check()
            values = log.values[key, offset]
            (value,) = values if len(values) == 1 else (None,)
            writer = log.author(key, value)
            if writer is None or len(log.offsets[key, value]) > 1:
                continue
            now = writer.row
            if previous is not None:
                edge(previous, now, "ww", key)
            previous = now
    for step in log.steps:
        log.budget.check()
        for poll in step.polls:
            writer = log.author(poll.key, typed(poll.value))
            if writer is not None:
                edge(writer.row, step.row, "wr", poll.key)
    return graph


_STARTS = 100  # of a larger component the cycle is short, and perhaps not the shortest
_KINDS = {"no-G0": ("ww",), "no-wr-cycle": ("wr",), "no-G1c": ("ww", "wr")}


def _cycles(log: _Log, law: str) -> Iterator[tuple[str, int, _Break | None]]:
    whole = dependencies(log)
    kinds = _KINDS[law]
    graph = whole.edge_subgraph([edge for edge in whole.edges if any(kind in whole.edges[edge] for kind in kinds)])
    yield law, graph.number_of_edges(), None
    log.budget.check(1 << 20)
    for component in sorted(nx.strongly_connected_components(graph), key=min):
        if len(component) < 2:
            continue
        inside = graph.subgraph(component)
        starts = sorted(edge for edge in inside.edges if kinds != ("ww", "wr") or "wr" in inside.edges[edge])
        if not starts:
            continue  # of writes alone: that is G0
        cycles: list[list[int]] = []
        for before, after in starts[:_STARTS]:
            if cycles and log.budget.is_over():
                break  # the circle is known, and perhaps not the shortest
            cycles.append([before, *nx.shortest_path(inside, after, before)])
        cycle = min(cycles, key=lambda nodes: (len(nodes), nodes))
        links: list[tuple[int, int, str, str]] = []
        for before, after in pairwise(cycle):
            edge = inside.edges[before, after]
            reads = "wr" in kinds and "wr" in edge and (not links or "ww" not in edge or "ww" not in kinds)
            links.append((before, after, "was read by" if reads else "wrote before", edge["wr" if reads else "ww"]))
        first = links.index(min(links))
        links = links[first:] + links[:first]
        rows = list(dict.fromkeys(row for row, *_ in links))
        told = (
            f"operation {rows.index(low) + 1} {verb} {rows.index(high) + 1} in {key}" for low, high, verb, key in links
        )
        yield law, 0, _Break("; ".join(told), tuple(rows))


_ANALYSES: tuple[tuple[tuple[str, ...], Callable[[_Log], Iterable[tuple[str, int, _Break | None]]]], ...] = (
    (("consistent-offsets", "no-duplicate"), _offsets),
    (("no-lost-write",), _lost),
    (("no-phantom", "no-G1a", "no-precommitted-read"), _reads),
    (("no-int-poll-skip", "no-int-nonmonotonic-poll", "no-poll-skip", "no-nonmonotonic-poll"), _polling),
    (("no-int-nonmonotonic-send", "no-nonmonotonic-send", "no-int-send-skip"), _sending),
    *(((law,), partial(_cycles, law=law)) for law in _KINDS),
)
"""Laws, and what finds their violations."""


def judge_kafka_log(log: OperationLog, laws: Collection[str] = (), budget_s: float | None = None) -> list[Verdict]:
    """The verdicts: on the laws asked for, or on all that Kafka promises. Raises InputError as `steps_of` does."""
    started, budget = time.perf_counter(), TimeBudget(budget_s)
    asked = [law for law in LAWS if law in laws] if laws else list(PROMISED)
    found = {law: _Found() for law in asked}
    unfinished, known = set(asked), None
    try:
        known = _Log(steps_of(log, budget), budget)
        for judged, analysis in _ANALYSES:
            if found.keys().isdisjoint(judged):
                continue
            for law, met, broken in analysis(known):
                if law in found:
                    found[law].met += met != UNDECIDED and met
                    found[law].undecided += met == UNDECIDED
                    if broken is not None:
                        found[law].broken.append(broken)
            unfinished -= set(judged)
    except OutOfBudget:
        pass
    seconds = round(time.perf_counter() - started, 6)
    return [_verdict(law, found[law], known, log, seconds, law in unfinished) for law in asked]


def _verdict(
    law: str, found: _Found, known: _Log | None, log: OperationLog, seconds: float, unfinished: bool
) -> Verdict:
    work = {
        "antecedents": found.met + found.undecided, "violations": len(found.broken), "operations": len(log),
        "indeterminate": int((log.outcome == INFO).sum()), "seconds": seconds,
    }  # fmt: skip
    if found.undecided:
        work["undecided"] = found.undecided
    notes = () if known is None or unfinished else tuple(_notes(law, known, found))
    if unfinished:
        work[UNFINISHED] = 1
        notes = ("the budget ran out",)
    if found.broken:
        first = min(found.broken, key=lambda broken: (max(broken.rows), broken.rows, broken.why))
        witness = LogAnomaly(first.why, tuple(log.describe(row) for row in dict.fromkeys(first.rows)), first.key)
        return Verdict(law, Outcome.VIOLATED, witness, work, notes)
    if unfinished or found.undecided:
        return Verdict(law, Outcome.UNKNOWN, None, work, notes)
    if found.met == 0:
        return Verdict(law, Outcome.UNKNOWN, None, work, (VACUOUS, *notes))
    return Verdict(law, Outcome.HOLDS, None, work, notes)


def _notes(law: str, known: _Log, found: _Found) -> Iterator[str]:
    acknowledged = [send for step in known.steps if step.has_committed for send in step.sends]
    if law == "no-lost-write":
        if found.undecided:
            yield (
                f"{found.undecided} acknowledged sends were not polled although later ones were, and nobody is known "
                "to have read past"
                f" them: poll each key from its beginning (assign with {SEEKS})"
            )
        unseen = sum(send.offset is not None and send.offset > known.high.get(send.key, -1) for send in acknowledged)
        if unseen:
            yield f"{unseen} acknowledged sends are unseen: they lie above all that was polled from their keys"
        unplaced = sum(send.offset is None and not known.was_polled(send) for send in acknowledged)
        if unplaced:
            yield (
                f"{unplaced} acknowledged sends tell no offset and were never polled: whether they are lost is "
                "not known"
            )
    if law in ("no-poll-skip", "no-nonmonotonic-poll") and any(step.function == "subscribe" for step in known.steps):
        yield "consumers that subscribe are not judged from one poll to the next: a rebalance may move them"
