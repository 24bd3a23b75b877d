"""Analyses of many messages, on the scripts as they are: long queues judged by every law, and every quantity at its
boundaries.

Small scopes never reach what scripts do by portions: values that are handed to a command some thousands at a time (Lua
cannot unpack more than 8000), sweeps that stop at a budget, identifiers that come round to messages which wait. A few
long runs go there; their steps are the same as everywhere, so a witness can be made short and replayed. For the
identifiers to come round, they are scaled to some thousands.

A portion that is one short, a page that ends where the queue does, a loop that forgets its last turn: such a flaw shows
at one length and at no other. Which lengths, the scripts' own text tells best: each whole number that stands in it, and
its neighbours; powers of two and customary page sizes for numbers that are computed. At each length a short run is
taken without judging, and what is fetched is held against what was saved, which costs little; where they differ, or an
operation fails, the same steps are taken once more and judged by every law: only that is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from orderlab.model.contracts.session.refinement.account import Cursor
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Open,
    Publication,
    Quiesce,
    Release,
    Save,
    Step,
    Wait,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport, replaced
from orderlab.properties.contracts.session.subject import Subject, take_steps
from orderlab.properties.harness.keyspace import items_of
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import tokens
from orderlab.sim.stores.binding.results import Failed, Fetched

CLIENT = b"client-one"
MANY = 8_200
"""Messages at once: more values than Lua can unpack."""
SOME = 1_500
"""Messages that expire at once: more than a sweep with a budget takes at a time."""
LONG_MS = 864_000_000
SMALL_QUEUES = 2
"""Of these, the first so many take a fraction of a second each."""
ROUND = 2_000
"""Packet identifiers where they go round: more than a sweep with a budget takes."""
ROUND_TAKES_MS = 400_000
"""Longer than it takes the identifiers to go round in batches that expire, a second each."""
Filled = tuple[str, list[Step]]


class _Labels:
    """Numbers the messages of one run."""

    def __init__(self, largest: int, limit: int | None) -> None:
        self.last = 0
        self.largest = largest
        self.fixed = limit

    def save(self, count: int, interval_ms: int | None, limit: int) -> Step:
        """``count`` messages in one step, which is judged once however many calls it takes."""
        largest, self.largest = self.largest, count
        (step,) = self.saves(count, interval_ms, limit)
        self.largest = largest
        return step

    def saves(self, count: int, interval_ms: int | None, limit: int) -> Iterator[Step]:
        """``count`` messages in as few saves as the store allows."""
        while count > 0:
            size = min(count, self.largest)
            first, self.last, count = self.last + 1, self.last + size, count - size
            labels = range(first, self.last + 1)
            messages = tuple(Publication(one, b"<%d>crowd" % one, b"t", 1 + one % 2, interval_ms) for one in labels)
            yield Save(messages, limit=self.fixed or limit)


def queues_at_limit(subject: Subject) -> Iterator[Filled]:
    """The runs, the quickest first. A store that takes messages one by one, or holds few, has shorter queues."""
    largest, most = subject.store.largest_batch, subject.limit or subject.binding.modulus
    many, some = (min(count if largest >= 100 else 60, most // 2) for count in (MANY, SOME))
    at = _Labels(largest, subject.limit)
    early: list[Step] = [*at.saves(2, LONG_MS, most), *at.saves(some, 1000, most), *at.saves(20, LONG_MS, most)]
    early += [Wait(1000), *at.saves(1, LONG_MS, most), *at.saves(1, LONG_MS, 23), Fetch(), *at.saves(2, LONG_MS, 23)]
    yield "many expire behind one that stays", [*early, Fetch(), DrainQueue(count=10), Quiesce()]
    at = _Labels(largest, subject.limit)
    front: list[Step] = [*at.saves(some, 1000, most), *at.saves(20, LONG_MS, most), Wait(1000), *at.saves(1, 5000, 22)]
    front += [Fetch(count=10), Wait(5000), *at.saves(2, LONG_MS, 22), Fetch(), DrainQueue(count=10), Quiesce()]
    yield (
        "many expire before some that stay, and the session ends with many",
        [*front, *at.saves(some, 1000, most), Clear()],
    )
    at = _Labels(largest, subject.limit)
    trims: list[Step] = [*at.saves(many, LONG_MS, most), Fetch(count=1500), Acknowledge(many), Release(many // 2 | 1)]
    trims += [*at.saves(1, None, max(many // 2, 1)), Fetch(), *at.saves(many, LONG_MS, most), *at.saves(3, LONG_MS, 2)]
    yield "many go at once", [*trims, Fetch(), DrainQueue(count=1), Quiesce()]
    at = _Labels(largest, subject.limit)
    end = Open(clean_start=True) if "open" in subject.binding.operations else Clear()
    ends: list[Step] = [*at.saves(many, 2000, most), *at.saves(many // 4, 1000, most), end, Fetch()]
    yield (
        "a session ends with many",
        [*ends, *at.saves(1, 1500, most), Wait(1000), Fetch(), DrainQueue(count=1), Quiesce()],
    )


def rounds(subject: Subject) -> Iterator[Filled]:
    """Runs in which identifiers come round to many messages at once."""
    largest, most = subject.store.largest_batch, subject.binding.modulus
    if largest < 100 or subject.limit is not None:
        return
    for fate, interval_ms in (("have expired", ROUND_TAKES_MS), ("wait", LONG_MS)):
        at = _Labels(largest, None)
        some = min(most // 3, SOME)
        steps: list[Step] = [*at.saves(some, interval_ms, most), Fetch(count=1)]
        steps += [
            Churn(most - some - 10, by_expiry=True),
            Wait(ROUND_TAKES_MS),
            Fetch(),
            *at.saves(some, LONG_MS, most),
        ]
        yield f"identifiers come round to many that {fate}", [*steps, Fetch(), *at.saves(20, LONG_MS, most), Fetch()]


def full_queues(subject: Subject) -> Iterator[Filled]:
    """Runs in which every identifier is taken: the next message has to wait for a trim, or for what has expired."""
    most = subject.binding.modulus
    if subject.limit is not None:
        return
    few = min(40, most // 4)
    for name, front in (("wait", LONG_MS), ("have expired in front", 1000)):
        at = _Labels(most, None)
        steps: list[Step] = [at.save(few, front, most), at.save(most - few, LONG_MS, most), Fetch(count=1), Wait(1000)]
        steps += [at.save(1, LONG_MS, most), at.save(2, LONG_MS, most), Fetch(count=few)]
        yield f"a full queue whose messages {name}", [*steps, at.save(1, LONG_MS, few), Fetch(), Clear()]


def run_queues_at_limit(subject: Subject, findings: Findings, first: int = 0, last: int | None = None) -> None:
    """Run those from number ``first`` up to ``last``, all by default; what they break goes to ``findings``.

    Identifiers go round on a twin first, which takes a fraction of a second; what it shows is run on the scripts as
    they are.
    """
    if first == 0:
        _go_round(subject, findings)
    for filled in islice(queues_at_limit(subject), first, last):
        _run_one(subject, filled, findings)


def _go_round(subject: Subject, findings: Findings) -> None:
    twin = subject.scaled(min(ROUND, subject.binding.modulus), remembers=False)
    if twin.rewritten:
        small_ones, large_ones = [*full_queues(twin), *rounds(twin)], [*full_queues(subject), *rounds(subject)]
        for small, large in zip(small_ones, large_ones, strict=True):
            rehearsed = Findings(findings.wanted)
            _run_one(twin, small, rehearsed)
            findings.coverage.update(rehearsed.coverage)
            if rehearsed.by_law.keys() - findings.by_law.keys():  # at full scale it takes long, and the rest is known
                _run_one(subject, large, findings)


def _run_one(subject: Subject, filled: Filled, findings: Findings) -> None:
    name, steps = filled
    run = subject.run((CLIENT,))
    take_steps(subject, run, steps, findings, f"a queue at its limit: {name}")
    findings.coverage.update(run.coverage)


FEW_MAX, SOME_MAX, MANY_MAX = 1_100, 10_250, 40_000
"""Messages up to which constants of the scripts are tried at an effort of 1, from 4 on, and from 50 on."""
SOME_FROM, MANY_FROM = 4.0, 50.0
SIZES = (10, 20, 50, 100, 200, 250, 500, 1000, *(1 << power for power in range(3, 11)))
"""Customary sizes of pages and portions, and powers of two: for numbers that stand in no text, because they are
computed."""
LARGE = (2_048, 4_096, 5_000, 10_241)
"""The last is more than Lua's ``unpack`` takes, in any number of values for each, and more than a queue usually may
hold."""
SHORT_MS = 1000
CONSTANTS_MAX = 24
"""Constants of the scripts, the smallest first."""
ONE_BY_ONE_MAX = 600
"""Messages in a run of a store that takes a few at a time."""
ENDING = "end with their session"
JUDGED_MAX = 3_000
"""Messages in the runs of one kind that are judged, after which its lengths tell nothing new: a store that never does
what is expected here may be right, or is wrong at any length."""


class Length(NamedTuple):
    """A number of messages, and the effort from which on it is tried."""

    messages: int
    effort: float


def constants(binding: Binding) -> list[int]:
    """The whole numbers in the text of the scripts that may be a length, but for the number of identifiers."""
    found = set()
    for script in binding.scripts:
        for token in tokens(script.source):
            if token.kind == "number":
                text = script.source[token.start : token.end]
                value = int(text, 16) if text[:2].lower() == b"0x" else float(text)
                if value == int(value) and 3 <= value < min(binding.modulus - 1, MANY_MAX):
                    found.add(int(value))
    return sorted(found)[:CONSTANTS_MAX]


def lengths(subject: Subject) -> list[Length]:
    """What is tried, the shortest first, each at the least effort that any reason for it gives."""
    most = subject.limit or min(MANY_MAX, subject.binding.modulus // 2)
    if subject.store.largest_batch < 100:
        most = min(most, ONE_BY_ONE_MAX)
    least: dict[int, float] = {}

    def add(count: int, effort: float) -> None:
        effort = max(effort, 1.0 if count <= FEW_MAX else SOME_FROM if count <= SOME_MAX else MANY_FROM)
        if 1 < count <= most:
            least[count] = min(effort, least.get(count, effort))

    for constant in constants(subject.binding):
        for count in (constant, constant + 1):
            add(count, 1.0)
        for count in (constant - 1, 2 * constant):
            add(count, 1.0 if count <= FEW_MAX else MANY_FROM)
    for size in SIZES:
        add(size, SOME_FROM)
        add(size + 1, SOME_FROM)
        add(size - 1, MANY_FROM)
    for size in LARGE:
        add(size, SOME_FROM)
    return [Length(count, effort) for count, effort in sorted(least.items())]


def runs(subject: Subject, count: int) -> Iterator[tuple[str, list[Step]]]:
    """What is done with ``count`` messages, each from an empty store."""
    most, operations = subject.limit or subject.binding.modulus, subject.binding.operations
    promises, largest = subject.store.capabilities, subject.store.largest_batch
    label = 0

    def saves(size: int, limit: int = most, interval_ms: int = LONG_MS) -> Iterator[Save]:
        nonlocal label
        while size > 0:
            part = min(size, largest)
            labels = range(label + 1, label + part + 1)
            label, size = label + part, size - part
            yield Save(
                tuple(Publication(one, b"<%d>length" % one, b"t", 1 + one % 2, interval_ms) for one in labels),
                limit=limit,
            )

    onward: list[Step] = [Fetch(count=count, onward=True)] if promises.has_counts and promises.has_pages else []
    pages: list[Step] = [Fetch(count=count), *onward]
    steps: list[Step] = [*saves(count), *pages, Release(count // 2 | 1), Acknowledge(count), *saves(1), Fetch()]
    if subject.limit is None:
        yield "wait, and are trimmed", [*steps, *saves(1, limit=1), Fetch()]
    else:
        yield "wait", steps
        label = 0
        yield "are trimmed", [*saves(most), *saves(count), Fetch()]
    if onward and count <= FEW_MAX and 2 * count + 1 <= most:
        label = 0
        yield "are a page", [*saves(2 * count + 1), *pages, *onward]
    label = 0
    kept, few = list(saves(1)), most if subject.limit else 2
    if count + 2 <= most:
        yield "expire", [*kept, *saves(count, interval_ms=SHORT_MS), Wait(SHORT_MS), Fetch(), *saves(1, few), Fetch()]
    end = Open(clean_start=True) if "open" in operations else Clear()
    label = 0
    if {"open", "clear"} & set(operations):
        yield ENDING, [*saves(count), end, Fetch()]


def try_boundaries(subject: Subject, findings: Findings, effort: float, done: float = 0.0) -> None:
    """Try what ``effort`` adds to ``done``; what breaks a law goes to ``findings``."""
    try_lengths(subject, findings, [count for count, least in lengths(subject) if done < least <= effort])


def try_lengths(subject: Subject, findings: Findings, counts: Iterable[int]) -> None:
    """Compare listings at queues of these lengths."""
    judged: Counter[str] = Counter()
    left = [name for name, steps in runs(subject, 3) if name == ENDING and is_plain(subject, steps)]
    remains = elements(subject) if left else None
    for count in counts:
        for name, steps in runs(subject, count):
            if judged[name] >= JUDGED_MAX:
                continue
            findings.work["lengths"] += 1
            if not is_plain(subject, steps) or (name == ENDING and elements(subject) != remains):
                judged[name] += count
                take_steps(subject, subject.run((CLIENT,)), steps, findings, f"{count:,} messages that {name}")


def elements(subject: Subject) -> int:
    """How much the keys hold, in elements of collections."""
    keyspace = subject.store.backend.keyspace().values()
    return sum(1 if isinstance(value, bytes) else len(items_of(kind, value)) for kind, value, _ in keyspace)


def is_plain(subject: Subject, steps: Sequence[Step]) -> bool:
    """Whether every operation succeeds, and every fetch returns what was saved. Without judging; False means: look
    closer."""
    subject.store.run_again()
    run = subject.bare_run((CLIENT,))
    run.stop_judging()
    waiting: list[int] = []
    passed = 0
    for step in steps:
        report = run.perform(step)
        if isinstance(report.result, Failed) or getattr(report.result, "refused", None) is not None:
            return False
        match step:
            case Save(messages=messages, limit=limit):
                waiting = [*waiting, *(one.label for one in messages)][-limit:]
            case Acknowledge(label=label) if report.result is not None:
                waiting = [one for one in waiting if one != label]
            case Clear() | Open():
                waiting = []
            case Wait():
                waiting = [one for one in waiting if run.publications[one][1].interval_ms != SHORT_MS]
            case Fetch(count=size, onward=onward):
                passed = passed if onward else 0
                counted = None if size is None or not subject.store.capabilities.has_counts else passed + size
                expected = waiting[passed:counted]
                if not _returned(run, report, expected):
                    return False
                passed += len(expected)
                last = (
                    report.result.messages[-1]
                    if isinstance(report.result, Fetched) and report.result.messages
                    else None
                )
                if last is not None:  # where nothing is judged, nobody else knows how far a reader has come
                    cursor = Cursor(last.sequence or 0, frozenset(waiting[:passed]))
                    run.state = run.state._replace(cursors=replaced(run.state.cursors, 0, cursor))
    return True


def _returned(run: SessionRun, report: StepReport, expected: Sequence[int]) -> bool:
    """Whether a fetch returned these messages under identifiers of their own. A PUBREL need not tell its payload."""
    if not isinstance(report.result, Fetched):
        return report.result is None and not expected
    messages = report.result.messages
    identifiers = [one.packet_id for one in messages if one.packet_id is not None]
    return (
        len(messages) == len(expected)
        and len(identifiers) == len(set(identifiers))
        and all(
            one.kind == "PUBREL" or one.payload == run.publications[label][1].payload
            for one, label in zip(messages, expected, strict=True)
        )
    )
