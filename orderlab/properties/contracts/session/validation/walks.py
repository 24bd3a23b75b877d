"""Analysis (b), second half: random walks through the small world, without Hypothesis and so many times as fast.

Each walk draws its habits first (how much time passes, how often replies are lost, how small the limit is), so that
some walks do little else than one thing: combinations that need many steps of one kind come about all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import (
    PRODUCERS,
    Acknowledge,
    Answer,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Publication,
    Quiesce,
    Release,
    Retry,
    Save,
    Serve,
    Step,
    Upkeep,
    Wait,
)
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.subject import CLIENTS, DEFAULT_EXPIRY_MS, Subject, take_steps
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import NEW, OLD

STEPS_PER_WALK = 40


SERVED_BY_ANOTHER = 0.2
"""How often, where either version of the scripts may serve, the other one begins to."""
UPKEEP = 0.15
"""How often a store does what it does by itself, if it does anything."""


class Habits(NamedTuple):
    """What a walk is like."""

    clients: int
    limits: tuple[int, ...]
    batch: int
    intervals_ms: tuple[float | None, ...]
    weights: tuple[float, ...]
    """Of save, fetch, acknowledge, release, wait, repeat, session, fault, drain."""
    forbidden: bool = False
    """Whether it gives what no caller may give."""
    default_expiry_ms: int = DEFAULT_EXPIRY_MS
    producers: tuple[bytes, ...] = PRODUCERS


LIFETIMES: tuple[tuple[float | None, ...], ...] = (
    (None,),
    (1000, 2000, 3000),
    (1000, 1000, 2000, 40_000, None),
    (3000, 2000, 1000, 40_000),
    (None, 0, 1000, 2_147_483_648_000, 2000),
)
NUMBERED = (b"1", b"2")
"""Names of producers that are identifiers of messages as well, as partitions of a topic are."""
FORBIDDEN = 0.06
"""Walks that also give what no caller may give, which accuses of little and hides the rest."""


def draw_habits(draw: random.Random, subject: Subject) -> Habits:
    """The habits of one walk."""
    modulus = subject.binding.modulus
    small = [limit for limit in (1, 2, 3, 4, 5) if limit <= modulus]
    limits = tuple(draw.choices(small, k=2)) if draw.random() < 0.7 else (draw.choice(small),)
    weights = (6, 2, 3, draw.choice([0, 2]), draw.choice([0, 2, 6]), draw.choice([0, 0, 2]), draw.choice([0, 0, 1]))
    batch = draw.choice([1, 1, 2, 3, 4])
    tail = (draw.choice([0, 0, 2]), draw.choice([0, 0.5]))
    if subject.limit is not None:
        limits = (subject.limit,)
    forbidden = draw.random() < FORBIDDEN
    lifetimes = draw.choice(LIFETIMES)
    if forbidden:
        lifetimes = (None, 1000, 1500, -1, 1e18)
    default_ms = 0 if subject.may_have_no_default and draw.random() < 0.15 else DEFAULT_EXPIRY_MS
    producers = NUMBERED if draw.random() < 0.2 else PRODUCERS
    clients = draw.choice([1, 1, 2])
    return Habits(clients, limits, batch, lifetimes, (*weights, *tail), forbidden, default_ms, producers)


class Walk:
    """One walk: draws a step at a time from what the run has come to."""

    def __init__(self, draw: random.Random, run: SessionRun, habits: Habits, subject: Subject) -> None:
        self.draw = draw
        self.run = run
        self.habits = habits
        self.subject = subject
        self.labels = 0
        operations = subject.binding.operations.items()
        self.gaps = {name for name, bound in operations if not bound.is_atomic}
        """Operations that take several calls."""

    def steps(self) -> Iterator[Step]:
        """All of it: in the end the queue is emptied, and nothing may stay behind."""
        for _ in range(STEPS_PER_WALK - 2):
            yield self.step()
        yield DrainQueue()
        yield Quiesce()

    def step(self) -> Step:
        """The next step."""
        if self.subject.binding.base is not None and self.draw.random() < SERVED_BY_ANOTHER:
            return Serve(self.draw.choice([OLD, NEW]))
        if self.subject.store.upkeep and self.draw.random() < UPKEEP:
            return Upkeep(self.draw.choice(self.subject.store.upkeep))
        choices: tuple[Callable[[], Step], ...] = (
            self._save,
            self._fetch,
            self._acknowledge,
            self._release,
            self._wait,
            lambda: Retry(self.draw.randrange(2), self.draw.random() < 0.3),
            self._session,
            self._fault,
            lambda: DrainQueue(self._client(), self.draw.choice([1, 2])),
        )
        return self.draw.choices(choices, self.habits.weights)[0]()

    def _client(self) -> int:
        return self.draw.randrange(self.habits.clients)

    def _save(self) -> Step:
        save = self._plain_save()
        if "save" in self.gaps and self.draw.random() < 0.3:
            return Interleave(save, replace(self._plain_save(), producer=1 - save.producer), self.draw.randint(1, 3))
        return save

    def _plain_save(self) -> Save:
        draw, habits = self.draw, self.habits
        size = min(draw.randint(1, habits.batch), self.subject.store.largest_batch)
        messages = tuple(self._message() for _ in range(size))
        limit = draw.choice(habits.limits)
        may_be_wrong = habits.forbidden or self.subject.store.capabilities.checks_limit
        if self.subject.limit is None and may_be_wrong and draw.random() < 0.03:
            limit = draw.choice([0, -1, self.subject.binding.modulus + 1])
        return Save(messages, self._client(), draw.randrange(2), limit, draw.random() < 0.05)

    def _message(self) -> Publication:
        self.labels += 1
        interval_ms = self.draw.choice(self.habits.intervals_ms)
        body = b"<%d>payload" % self.labels
        if interval_ms is None and self.draw.random() < 0.05:
            body = self.draw.choice([b"", b"same payload"])
        return Publication(self.labels, body, b"t%d" % (self.labels % 2), self.draw.choice([1, 1, 2]), interval_ms)

    def _fetch(self) -> Step:
        return Fetch(self._client(), self.draw.choice([None, None, 1, 2, 3]), self.draw.random() < 0.4)

    def _label(self) -> int:
        """A live message mostly, the oldest or the newest first; else any, however late."""
        queue = self.run.state.accounts[self._client()].queue
        if queue and self.draw.random() < 0.7:
            return self.draw.choice([queue[0], queue[-1], self.draw.choice(queue)]).label
        return self.draw.randint(1, max(self.labels, 1))

    def _acknowledge(self) -> Step:
        if self.draw.random() < 0.03:
            modulus = self.subject.binding.modulus
            numbers = [0, 1, modulus, modulus + 1, MODULUS + 1] if self.habits.forbidden else [1, 2, modulus]
            return Answer(self.draw.choice(numbers), self._client(), self.draw.random() < 0.5)
        return self._overtaken(Acknowledge(self._label()), "acknowledge")

    def _release(self) -> Step:
        return self._overtaken(Release(self._label()), "release")

    def _overtaken(self, step: Step, operation: str) -> Step:
        """Now and then with a save between its calls, where it takes several."""
        if operation not in self.gaps or self.draw.random() < 0.7:
            return step
        return Interleave(step, self._plain_save(), self.draw.randint(1, 2))

    def _wait(self) -> Step:
        """To the deadline of a live message, a little before or after, or for any time."""
        draw = self.draw
        account = self.run.state.accounts[self._client()]
        left_ms = [entry.latest_ms - account.session.now_ms for entry in account.queue]
        near = [ms + offset for ms in left_ms if ms < 1 << 40 for offset in (-1, 0, 1) if ms + offset > 0]
        if near and draw.random() < 0.8:
            return Wait(draw.choice([min(near), draw.choice(near)]))
        return Wait(draw.choice([1, 500, 1000, 1000, 2000, 19_000, 10_000_000_000]))

    def _session(self) -> Step:
        kinds = ["clear", "clean start", "reconnect"]
        if self.subject.store.capabilities.tells_connects:
            kinds += ["late", "again"]
        if self.subject.store.capabilities.tells_ends:
            kinds.append("late end")
        kind = self.draw.choice(kinds)
        if kind in ("late", "again"):
            return Open(self._client(), self.draw.random() < 0.5, stale=kind == "late", again=kind == "again")
        if kind in ("clear", "late end"):
            return Clear(self._client(), stale=kind == "late end")
        return Open(self._client(), kind == "clean start")

    def _fault(self) -> Step:
        draw = self.draw
        store = self.subject.store
        fault = Fault(draw.choice(store.conditions))
        keys = [] if store.backend.trouble else sorted(store.backend.keyspace())
        if keys and draw.random() < 0.6:
            fault = Fault("wrong-type", key=draw.choice(keys), found=draw.choice(["string", "list", "hash", "zset"]))
        save = self._plain_save()
        steps: list[Step] = [
            Save(save.messages, save.client, save.producer, save.limit, False, fault),
            Fetch(self._client(), None, False, fault),
            Acknowledge(self._label(), fault),
            Release(self._label(), fault),
            Clear(self._client(), fault),
            Open(self._client(), True, fault),
        ]
        return draw.choices(steps, (4, 1, 2, 2, 1, 1))[0]


def walk_about(subject: Subject, findings: Findings, walks: int, first: int = 0) -> None:
    """So many walks, from number ``first`` on; each has draws of its own. What is found goes to ``findings``."""
    for number in range(first, first + walks):
        draw = random.Random(f"{subject.seed} {number}")
        habits = draw_habits(draw, subject)
        run = subject.run(CLIENTS, habits.default_expiry_ms, habits.producers)
        run.coverage = findings.coverage
        walk = Walk(draw, run, habits, subject)
        take_steps(subject, run, walk.steps(), findings, "a random walk")
        findings.work["walks"] += 1
