"""Analysis (a): which keys an operation uses, whether it declared them, which slots they are in, how much it calls."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Open,
    Publication,
    Release,
    Save,
    Step,
    Wait,
)
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.strategies import HOSTILE_CLIENTS
from orderlab.properties.contracts.session.subject import CLIENTS, Subject, fitted_step
from orderlab.properties.contracts.session.validation.scenarios import SCENARIOS
from orderlab.properties.harness.keyspace import spellings
from orderlab.properties.validation.findings import Findings
from orderlab.sim.costs.cost_model import estimate_us
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.stores.binding.results import Failed
from orderlab.sim.stores.bound import BudgetExceeded, TimedOut
from orderlab.sim.stores.records import Record

WHOLE_KEYSPACE = (b"keys", b"scan", b"flushall", b"flushdb", b"dbsize", b"randomkey")
"""Commands whose work depends on everybody's keys."""
BLOCKING_BUDGET_MS = 100.0
"""For which one operation may block its node at the configured limit, by estimate."""
CONFIGURED_LIMIT = 10_000
"""The limit of a store that does not fix its own."""
SIZES = (10, 100, 1000)
"""Queue lengths at which operations are measured, beside the configured limit."""
SUPERLINEAR = 2.5
"""A queue ten times as long may cost ten times as much, times this for what is rounded."""
JUDGED_MAX = 1000
"""Messages of a queue up to which each step is judged by every law as well. Longer ones are judged where an operation
fails or declines there, and by the long queues at the limit: a listing of all that waits takes longer than what is
measured."""
FOREVER_MS = 864_000_000
PLAIN_CLIENTS = (b"plain-client", *CLIENTS)
"""Whose keys are told; those of hostile ones are judged alone."""
SHOWN_MAX = 200
"""Keys of one operation that are looked at for their pattern."""
_NUMBER = re.compile(r"\d+")


@dataclass
class Footprint:
    """What the operations of one store touch and cost."""

    declared: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    undeclared: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    writes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Commands by which an operation changed something."""
    costs: dict[str, dict[int, tuple[int, float]]] = field(default_factory=lambda: defaultdict(dict))
    """Situation -> queue length -> (commands, estimated ms)."""

    def undeclared_patterns(self) -> dict[str, list[str]]:
        """The undeclared keys by operation, those that differ in a number alone told as one: ``<client>:m:<n>``."""
        everywhere = {key for keys in self.undeclared.values() for key in keys}
        alike = Counter(_NUMBER.sub("<n>", key) for key in everywhere)

        def pattern(key: str) -> str:
            told = _NUMBER.sub("<n>", key)
            return told if alike[told] > 1 else key

        return {name: sorted(set(map(pattern, keys))) for name, keys in sorted(self.undeclared.items()) if keys}

    def to_json(self) -> dict[str, Any]:
        """Lists for sets, sorted."""
        return {
            "declared": {name: sorted(keys) for name, keys in sorted(self.declared.items())},
            "undeclared": self.undeclared_patterns(),
            "writes": {name: sorted(commands) for name, commands in sorted(self.writes.items())},
            "costs": {
                name: [{"length": n, "commands": c, "estimated_ms": round(ms, 3)} for n, (c, ms) in sorted(by.items())]
                for name, by in self.costs.items()
            },
        }


def measure_footprint(subject: Subject, findings: Findings) -> Footprint:
    """Run every operation for every hostile client, then at the configured limit and at growing queue lengths; an
    interruption leaves what was measured before."""
    footprint = Footprint()
    is_measured = False
    try:
        is_measured = _visit(subject, findings, footprint)
    except BudgetExceeded:
        findings.gaps.append("footprint: not every queue length was measured, so that growth is not known")
    _judge_growth(subject, footprint, findings, is_measured)
    return footprint


def _visit(subject: Subject, findings: Findings, footprint: Footprint) -> bool:
    """Whether every queue length was measured."""
    for client in (b"plain-client", *HOSTILE_CLIENTS):
        if not _visit_client(subject, client, findings, footprint):
            return False
    _visit_scenarios(subject, findings, footprint)
    if "bounded" not in findings.wanted:
        return False
    limit = subject.limit or CONFIGURED_LIMIT
    shorter = [size for size in SIZES if size < limit] or [max(limit // 2, 1)]
    return all(_visit_length(subject, size, findings, footprint, size <= JUDGED_MAX) for size in (limit, *shorter))


def battery(subject: Subject) -> list[Step]:
    """Every operation at least once, with a trim and expired leftovers."""
    limit = subject.limit or 3
    messages = [
        Publication(label, b"footprint %d" % label, b"t", 1 + label % 2, 1000 if label == 2 else None)
        for label in range(1, 7)
    ]
    steps: list[Step] = [Save((message,), limit=limit) for message in messages[:4]]
    steps += [
        Fetch(),
        Release(3),
        Acknowledge(3),
        Acknowledge(4),
        Wait(1000),
        Save((messages[4],), limit=limit),
        Fetch(),
    ]
    return [*steps, Save((messages[5],), limit=1), Fetch(count=1), Open(), Clear(), Open(clean_start=True)]


def _visit_client(subject: Subject, client: bytes, findings: Findings, footprint: Footprint) -> bool:
    """The battery for one client. False when a script had to be stopped: there is no point in going on."""
    store = subject.another_store()
    taken: list[Step] = []
    try:
        run = SessionRun(store, (client,))
        for step in battery(subject):
            taken.append(step)
            with store.recording() as records:
                report = run.perform(step)
            found = list(report.discrepancies)
            for record in records:
                found += _judge_record(record, footprint)
                findings.coverage["an operation for a hostile client identifier"] += 1
                findings.work["operations"] += 1
            findings.add(found, subject.trace(taken, (client,)), "footprint")
            if report.diverges:
                return not isinstance(report.result, TimedOut)
    except InputError as error:
        findings.gaps.append(f"client identifier {client[:20]!r}: {error}")
    return True


def _visit_scenarios(subject: Subject, findings: Findings, footprint: Footprint) -> None:
    """Every scenario, for the keys alone: a key that is used now and then may be one that nobody declared.

    Also on a twin whose identifiers go round, of which no witness is taken.
    """
    _take_scenarios(subject, findings, footprint)
    twin = subject.scaled(min(3, subject.binding.modulus), remembers=False)
    if twin.rewritten:
        _take_scenarios(twin, Findings(frozenset()), footprint)


def _take_scenarios(subject: Subject, findings: Findings, footprint: Footprint) -> None:
    store = subject.another_store()
    for steps in SCENARIOS.values():
        store.restart(FIRST_MS)
        run, taken = SessionRun(store, CLIENTS), []
        for step in steps:
            taken.append(fitted_step(step, subject))
            with store.recording() as records:
                report = run.perform(taken[-1])
            found = [one for record in records for one in _judge_record(record, footprint)]
            findings.add(found, subject.trace(taken), "footprint")
            findings.work["operations"] += len(records)
            if isinstance(report.result, TimedOut):
                return
            if report.diverges:
                break


def _judge_record(record: Record, footprint: Footprint) -> Iterator[Discrepancy]:
    name = record.operation
    if record.client in PLAIN_CLIENTS:
        _note_keys(record, footprint)
    keys = sorted(record.declared | record.used)
    slots = {hash_slot(key) for key in keys}
    if len(slots) > 1:
        told = ", ".join(f"{key[:60].decode('latin-1')!r} in {hash_slot(key)}" for key in keys[:3])
        yield Discrepancy("one-slot", f"{name}: the keys of one operation are in {len(slots)} slots: {told}", False)
    for call in record.calls:
        if call.argv[0].lower() in WHOLE_KEYSPACE:
            where = f" (line {call.line})" if call.line is not None else ""
            said = call.argv[0].decode("latin-1").upper()
            yield Discrepancy("bounded", f"{name}: {said}{where} works through the keys of all clients", False)


def _note_keys(record: Record, footprint: Footprint) -> None:
    """What was declared and what was not, with the client's name taken out."""
    names = sorted(spellings(record.client), key=len)

    def shown(keys: Iterable[bytes]) -> set[str]:
        told = set()
        for key in islice(keys, SHOWN_MAX):
            for spelling in names:
                key = key.replace(spelling, b"<client>")
            told.add(key.decode("latin-1"))
        return told

    footprint.declared[record.operation] |= shown(record.declared)
    if len(footprint.undeclared[record.operation]) < SHOWN_MAX:
        footprint.undeclared[record.operation] |= shown(sorted(record.undeclared))
    footprint.writes[record.operation] |= {call.argv[0].decode("latin-1").upper() for call in record.writes}


# -- growth ------------------------------------------------------------------------------------------------------------


def _visit_length(subject: Subject, size: int, findings: Findings, footprint: Footprint, is_judged: bool) -> bool:
    """One queue of ``size`` messages, through everything that can be done to it.

    Where the store breaks a law on the way it is measured all the same: what it does with a full queue has its cost,
    right or wrong. False when a script had to be stopped.
    """
    is_first = not is_judged
    store = subject.another_store()
    run = SessionRun(store, (b"plain-client",))
    taken: list[Step] = []
    if not is_judged:
        run.stop_judging()
    at_limit = size == (subject.limit or CONFIGURED_LIMIT)
    for situation, step in _situations(subject, size, store.largest_batch):
        taken.append(step)
        with store.recording() as records:
            report = run.perform(step)
        if is_first and (isinstance(report.result, Failed) or getattr(report.result, "refused", None) is not None):
            return _visit_length(subject, size, findings, footprint, is_judged=True)
        found = (
            list(report.discrepancies) if is_judged else [one for one in report.discrepancies if one.law == "bounded"]
        )
        findings.work["operations"] += len(records)
        for record in records:
            _note_keys(record, footprint)
        for record in records[-1:]:
            commands, ms = len(record.calls), estimate_us(record.calls) / 1000
            if situation:
                footprint.costs[situation][size] = commands, ms
                findings.coverage["an operation at the configured limit"] += at_limit
            if ms > BLOCKING_BUDGET_MS:
                text = f"{situation or record.operation} with {size:,} messages blocks the node for about {ms:.0f} ms"
                text += f" ({commands:,} commands); the budget is {BLOCKING_BUDGET_MS:.0f} ms"
                found.append(Discrepancy("bounded", text, False))
        findings.add(found, subject.trace(taken, (b"plain-client",)), f"a queue of {size:,}")
        if isinstance(report.result, TimedOut):
            return False
        if report.diverges and is_judged:
            is_judged = False
            run.stop_judging()
    return True


def _situations(subject: Subject, size: int, largest: int) -> Iterator[tuple[str, Step]]:
    limit = subject.limit or size
    label = 0

    def batch(count: int, interval_ms: int | None = FOREVER_MS) -> tuple[Publication, ...]:
        nonlocal label
        label += count
        return tuple(
            Publication(label - at, b"m%d" % (label - at), b"t", 2, interval_ms) for at in reversed(range(count))
        )

    yield "save of a batch" if largest >= size else "", Save(batch(size - 1), limit=limit)
    yield "save of one message", Save(batch(1), limit=limit)
    if limit == size:
        yield "save of one message that trims one", Save(batch(1), limit=limit)
    yield "fetch of a page of 10", Fetch(count=10)
    yield "fetch of everything", Fetch()
    yield "release", Release(label - size // 2)
    yield "acknowledge", Acknowledge(label - size // 2)
    if subject.limit is None:
        yield "save that trims half of the queue", Save(batch(1), limit=max(size // 2, 1))
    yield "clear of a full queue", Clear()
    yield "", Open(clean_start=True)
    yield "", Save(batch(size, 1000), limit=limit)
    yield "", Wait(1000)
    yield "fetch with everything expired", Fetch()
    yield "save with everything expired", Save(batch(1), limit=limit)
    yield "", Fetch()


def _judge_growth(subject: Subject, footprint: Footprint, findings: Findings, is_measured: bool) -> None:
    """A queue ten times as long must not cost much more than ten times as much."""
    for situation, by_length in footprint.costs.items():
        lengths = sorted(by_length)
        findings.coverage["queue lengths are compared"] += is_measured * max(len(lengths) - 1, 1)
        for short, long in pairwise(lengths):
            (few, few_ms), (many, many_ms) = by_length[short], by_length[long]
            allowed = long / short * SUPERLINEAR
            if many_ms > 1 and (many > few * allowed or many_ms > few_ms * allowed):
                text = f"{situation}: {few:,} commands for {short:,} messages, {many:,} for {long:,}: more than linear"
                steps = _until(subject, situation, long)
                findings.add(
                    [Discrepancy("bounded", text, False)], subject.trace(steps, (b"plain-client",)), "footprint"
                )
                break


def _until(subject: Subject, situation: str, size: int) -> list[Step]:
    steps: list[Step] = []
    for name, step in _situations(subject, size, subject.store.largest_batch):
        steps.append(step)
        if name == situation:
            break
    return steps
