"""Analysis (d): thousands of messages, on the scripts as they are, each step judged by every law.

Small scopes never reach what scripts do by portions: values that are handed to a command some thousands at a time (Lua
cannot unpack more than 8000), sweeps that stop at a budget, identifiers that come round to messages which wait. Here a
few long runs go there; their steps are the same as everywhere, so a witness can be made short and replayed. For the
identifiers to come round, they are scaled to some thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from orderlab.model.contracts.session.steps import (
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
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.stepping import take_steps
from orderlab.properties.validation.subject import Subject

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
    yield "many expire before some that stay, and the session ends with many", [*front, *at.saves(some, 1000, most), Clear()]
    at = _Labels(largest, subject.limit)
    trims: list[Step] = [*at.saves(many, LONG_MS, most), Fetch(count=1500), Acknowledge(many), Release(many // 2 | 1)]
    trims += [*at.saves(1, None, max(many // 2, 1)), Fetch(), *at.saves(many, LONG_MS, most), *at.saves(3, LONG_MS, 2)]
    yield "many go at once", [*trims, Fetch(), DrainQueue(count=1), Quiesce()]
    at = _Labels(largest, subject.limit)
    end = Open(clean_start=True) if "open" in subject.binding.operations else Clear()
    ends: list[Step] = [*at.saves(many, 2000, most), *at.saves(many // 4, 1000, most), end, Fetch()]
    yield "a session ends with many", [*ends, *at.saves(1, 1500, most), Wait(1000), Fetch(), DrainQueue(count=1), Quiesce()]


def rounds(subject: Subject) -> Iterator[Filled]:
    """Runs in which identifiers come round to many messages at once."""
    largest, most = subject.store.largest_batch, subject.binding.modulus
    if largest < 100 or subject.limit is not None:
        return
    for fate, interval_ms in (("have expired", ROUND_TAKES_MS), ("wait", LONG_MS)):
        at = _Labels(largest, None)
        some = min(most // 3, SOME)
        steps: list[Step] = [*at.saves(some, interval_ms, most), Fetch(count=1)]
        steps += [Churn(most - some - 10, by_expiry=True), Wait(ROUND_TAKES_MS), Fetch(), *at.saves(some, LONG_MS, most)]
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

    Identifiers go round on a twin first, which takes a fraction of a second; what it shows is run on the scripts as they are.
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
