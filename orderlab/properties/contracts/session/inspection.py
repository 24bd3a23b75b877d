"""Looks at a store's keys after each step, on the kernel: leftovers that no reply shows.

Beside what ``session_residue`` finds, a failed operation must leave the keys as they were, except that expired
leftovers may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.refinement.account import PROBE, RunState, name_of, names_of
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Open,
    Publication,
    Quiesce,
    Release,
    Save,
    Step,
    kind_of_step,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.saving import PASSING_MARK
from orderlab.properties.harness.keyspace import (
    bytes_of,
    changes,
    elements_of,
    holds,
    is_mark,
    keys_of,
    surplus,
    text_of,
)
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.bound import BudgetExceeded, TimedOut

GROWTH_ROUNDS = ((12, 20, 28), (104, 124, 144))
"""When the bytes of a store are measured, at first and to be sure: within each no number of messages gets another
digit."""
MOST_PROBES = 32
"""Messages that come and go while a store goes on cleaning up."""
CLEAN_UP = "clean-up"
"""By which name stores call it that they take away what has expired."""
LEAVES_NOTHING = ("acknowledged", "trimmed", "cleared", "refused")
"""Fates after which not even the payload may be kept."""


class Baseline(NamedTuple):
    """How many elements each key of one client holds when all is well."""

    settled: dict[bytes, int]
    cleared: dict[bytes, int]
    begun: dict[bytes, int]
    """After a clean start over a session in which a few messages came and went."""
    grows: str = ""
    """What holds more, the more messages have come and gone; empty when nothing does."""
    remembers: str = ""
    """Which key still tells, after a clear, of messages that came and went; empty when none does."""
    shows_payloads: bool = True
    """Whether the payload of a message that waits can be recognised in the keys."""


def measure_baseline(alone: Callable[[], SessionRun], producers: int = 2) -> Baseline:
    """Measured on runs of the store itself with one client: a few messages of each producer come and go; a session
    without any ends.

    A store may keep something for each producer, so what one of fewer producers leaves over may go unnoticed. Raises
    BudgetExceeded when a script does not end: then there is none.
    """
    few, many = (_come_and_go(alone(), rounds, producers) for rounds in (1, 4))
    run = alone()
    mark = b"a payload to be found again"
    run.perform(Save((Publication(1, mark),), limit=run.store.limit))
    shows_payloads = holds(text_of(_keyspace(run)), mark)
    run = alone()
    run.perform(Clear())
    empty = _keyspace(run)  # before the next run: the runs may share one store
    cleared = elements_of(empty)
    remembers = _remembers(alone(), empty)
    begun = _begun(alone(), few)
    grows = surplus(many, few) or _growing_bytes(alone, producers)
    return Baseline(few, cleared, begun, grows, remembers, shows_payloads)


def _remembers(run: SessionRun, empty: FrozenKeyspace) -> str:
    """What the end of a session leaves that is not the mark of its end: that is the same whatever the session held."""
    _come_and_go_on(run, 0, 3, 1)
    run.perform(Clear())
    found = _keyspace(run)
    other = sorted(key for key, value in found.items() if key in empty and value[:2] != empty[key][:2])
    return ", ".join(key.decode("latin-1") for key in other)


def _growing_bytes(alone: Callable[[], SessionRun], producers: int) -> str:
    """Which keys grow inside their elements, by a byte or more for each message, and go on growing: a session that is
    one text has one element whatever it keeps. What keeps the last hundred of something stops before."""
    told = ""
    for rounds in GROWTH_ROUNDS:
        run, sizes, growing = alone(), [], set[bytes]()
        for begin, end in pairwise((0, *rounds)):
            _come_and_go_on(run, begin, end, producers)
            sizes.append(bytes_of(_keyspace(run)))
            if begin:
                before, after = sizes[-2:]
                grown = {key for key, size in after.items() if size - before.get(key, 0) >= producers * (end - begin)}
                growing = grown if len(sizes) == 2 else growing & grown
                if not growing:
                    return ""
        first = next(key for key in sizes[-1] if key in growing)
        told = (
            f"{first.decode('latin-1')} ({sizes[-1][first]:,} bytes after {producers * rounds[-1]} messages, each "
            "acknowledged)"
        )
    return told


def _come_and_go(run: SessionRun, rounds: int, producers: int) -> dict[bytes, int]:
    _come_and_go_on(run, 0, rounds, producers)
    run.perform(Fetch())
    _probe(run, 0)
    return elements_of(_keyspace(run))


def _come_and_go_on(run: SessionRun, first: int, last: int, producers: int) -> None:
    """The rounds from ``first`` to before ``last``: in each a message of every producer is saved, fetched,
    acknowledged."""
    for label in range(producers * first + 1, producers * last + 1):
        publication = Publication(label, b"come and go %d" % label, qos=1 + label % 2)
        save = Save((publication,), producer=label % producers, limit=run.store.limit)
        for step in (save, Fetch(), Release(label), Acknowledge(label)):
            if isinstance(run.perform(step).result, TimedOut):
                raise BudgetExceeded


def _begun(run: SessionRun, settled: dict[bytes, int]) -> dict[bytes, int]:
    for step in (Save((Publication(1, b"gone"),), limit=run.store.limit), Fetch(), Acknowledge(1)):
        run.perform(step)
    is_done = run.perform(Open(clean_start=True)).result is not None
    return elements_of(_keyspace(run)) if is_done else settled


def _keyspace(run: SessionRun) -> FrozenKeyspace:
    backend = getattr(run.store, "backend", None)
    return {} if backend is None else backend.visible()


def _probe(run: SessionRun, client: int) -> list[Discrepancy]:
    """One more message comes and goes, so that a store that cleans up when it saves has had its chance."""
    label = PROBE + len(run.publications)
    steps: list[Step] = [
        Save((Publication(label, b"probe %d" % label),), client, 1, run.store.limit),
        Fetch(client),
        Acknowledge(label),
        Fetch(client),
    ]
    return [one for step in steps for one in run.take(step).discrepancies]


class Inspection:
    """Inspects the steps of one run. ``baseline`` is what is held when all is well, by client."""

    def __init__(self, baseline: Sequence[Baseline]) -> None:
        self.baseline = baseline
        self._before: FrozenKeyspace = {}

    def begin(self, run: SessionRun) -> None:
        """Remember the keys as they are before a step."""
        self._before = _keyspace(run)

    def check(self, run: SessionRun, step: Step, before: RunState, report: StepReport) -> list[Discrepancy]:
        """After a step that was carried out and after which the store still keeps its promises."""
        keyspace = _keyspace(run)
        found = self._payloads(run, before, keyspace) + self._deadlines(run, step, keyspace)
        reply = run.reply_of(report.result)
        if found and reply.status == "error":
            text = f"a failed operation was carried out in part: {found[0].text}"
            found.append(Discrepancy("all-or-nothing", text, False))
        clears = (isinstance(step, Clear) or (isinstance(step, Open) and step.clean_start)) and step.is_new
        if clears and reply.status == "done":
            assert isinstance(step, Clear | Open)
            mine = self._mine(run, step.client, keyspace)
            baseline = self.baseline[step.client]
            held, expected = elements_of(mine), baseline.cleared if isinstance(step, Clear) else baseline.settled
            more = surplus(held, expected) or (surplus(held, baseline.begun) if isinstance(step, Open) else "")
            if more:
                found.append(Discrepancy("no-residue", f"after the clear there is still {more}", False))
            elif (
                self.baseline[step.client].remembers and isinstance(step, Clear) and before.accounts[step.client].fates
            ):
                text = f"after the clear {self.baseline[step.client].remembers} tells of messages that came and went"
                found.append(Discrepancy("no-residue", text, False))
        return found + self.half_done(run, before, report)

    def half_done(self, run: SessionRun, before: RunState, report: StepReport) -> list[Discrepancy]:
        """What a failed operation has changed, also where its failure breaks a law by itself: a mark that it wrote
        makes the next attempt a repetition, which no listing shows."""
        is_error = run.reply_of(report.result).status == "error"
        if not is_error or before.accounts != without_fates(run.state, before):
            return []
        changed = changes(self._before, _keyspace(run))
        text = f"a failed operation changed {', '.join(key.decode('latin-1') for key in changed)}"
        return [Discrepancy("all-or-nothing", text)] if changed else []

    def settle(self, run: SessionRun, step: Quiesce) -> list[Discrepancy]:
        """Nothing is live any more and fetch has seen that: what is left?"""
        baseline = self.baseline[step.client]
        found: list[Discrepancy] = []
        if baseline.grows:
            found.append(
                Discrepancy("no-residue", f"with each message that comes and goes grows {baseline.grows}", False)
            )
        if CLEAN_UP in run.store.upkeep:  # what waits for it is no residue
            run.store.keep_up(CLEAN_UP)
        first = run.take(Fetch(step.client)).discrepancies
        more, left = self._left(run, step.client)
        if more and not left and not run.store.fetch_is_read_only and self._shows_payloads(run, step.client):
            text = f"the payloads are gone, and a whole fetch has left {more}"
            found.append(Discrepancy("no-residue", text, False))
        found += first + _probe(run, step.client)
        more, left = self._left(run, step.client)
        shrinks, rounds = True, 1
        while (more or left) and shrinks and rounds < MOST_PROBES:  # each save may clean up a part of what is left
            before = self._size(run, step.client)
            found += _probe(run, step.client)
            more, left = self._left(run, step.client)
            shrinks, rounds = self._size(run, step.client) < before, rounds + 1
        if (more or left) and not shrinks:  # one that goes on cleaning up, however slowly, leaves nothing for good
            what = more or f"the payload of {names_of(left)}"
            times = "two fetches and a save" if rounds == 1 else f"fetches and {rounds} saves, each acknowledged,"
            text = f"nothing is live, and {times} have left {what}"
            found.append(Discrepancy("no-residue", text, False))
        return found

    def _deadlines(self, run: SessionRun, step: Step, keyspace: FrozenKeyspace) -> list[Discrepancy]:
        """A key that Redis would have taken away keeps another deadline, or none: does a message in it live too long
        now?

        Most keys hold more than one message, or a deadline that is not theirs, so it is asked of the store: what does
        it return once the message is due?
        """
        then = {key: value for key, value in self._before.items() if value[2] is not None}
        moved = {key: value for key, value in then.items() if key in keyspace and keyspace[key][2] != value[2]}
        if not moved or isinstance(step, Clear | Open):
            return []
        text = text_of(moved)
        for client, account in enumerate(run.state.accounts):
            for entry in account.queue:
                exact = entry.earliest_ms == entry.latest_ms < FOREVER_MS
                stays = entry.sent and run.store.capabilities.keeps_sent
                if exact and not stays and holds(text, run.publications[entry.label][1].payload):
                    found = self._outlives(run, client, entry, step)
                    if found:
                        return found
        return []

    def _outlives(self, run: SessionRun, client: int, entry: Entry, step: Step) -> list[Discrepancy]:
        """Whether a message is still returned a moment after its deadline, as things are."""
        left_ms = entry.latest_ms - run.store.now_ms + 1
        listed = run.store.listing_later(run.clients[client], left_ms)
        labels = [seen.label for seen in run.seen_in(client, listed)]
        if entry.label not in labels:
            return []
        done = kind_of_step(step)
        text = (
            f"{done}: the key of {name_of(entry.label)} has lost its deadline, and keeps it {left_ms - 1:,} ms from now"
        )
        return [Discrepancy("expiry", f"{text}, when its interval is over", False)]

    def _shows_payloads(self, run: SessionRun, client: int) -> bool:
        """Whether every payload that is still there would have been recognised, those that only passed by included.

        A record of an expired PUBREL need not have one: what is left of it is no reference to content that is gone.
        """
        account = run.state.accounts[client]
        if account.expired_as_pubrel:
            return False
        passed = holds(text_of(self._mine(run, client, _keyspace(run))), PASSING_MARK)
        fates = account.fates
        marked = all(is_mark(run.publications[label][1].payload) for label, fate in fates if fate not in LEAVES_NOTHING)
        return self.baseline[client].shows_payloads and marked and not passed

    def _size(self, run: SessionRun, client: int) -> int:
        return sum(elements_of(self._mine(run, client, _keyspace(run))).values())

    def _left(self, run: SessionRun, client: int) -> tuple[str, list[int]]:
        """What the keys of a client with an empty queue hold beyond the baseline, and whose payloads are among it."""
        mine = self._mine(run, client, _keyspace(run))
        text = text_of(mine)
        account = run.state.accounts[client]
        left = [label for label, _ in account.fates if holds(text, run.publications[label][1].payload)]
        return surplus(elements_of(mine), self.baseline[client].settled), left

    def _mine(self, run: SessionRun, client: int, keyspace: FrozenKeyspace) -> FrozenKeyspace:
        others = tuple(name for at, name in enumerate(run.clients) if at != client)
        return keys_of(keyspace, run.clients[client], others)

    def _payloads(self, run: SessionRun, before: RunState, keyspace: FrozenKeyspace) -> list[Discrepancy]:
        """Messages that have just gone for good, and whose payload has not."""
        gone: list[int] = []
        others: list[bytes] = []  # that may be there: alive, or expired, which waits for a clean-up
        for client, account in enumerate(run.state.accounts):
            others += [run.publications[entry.label][1].payload for entry in account.queue]
            others += [run.publications[one][1].payload for one, fate in account.fates if fate not in LEAVES_NOTHING]
            if account.fates is not before.accounts[client].fates:
                known = dict(before.accounts[client].fates)
                gone += [one for one, fate in account.fates if known.get(one) != fate and fate in LEAVES_NOTHING]
        if not gone:
            return []
        text = text_of(keyspace)
        permitted = b"\n".join(others)
        payloads = {label: run.publications[label][1].payload for label in gone}
        left = [label for label, payload in payloads.items() if payload not in permitted and holds(text, payload)]
        return [Discrepancy("no-residue", f"{names_of(left)} gone, the payload is not", False)] if left else []


def without_fates(state: RunState, before: RunState) -> tuple[Any, ...]:
    """The accounts as they were before if nothing but fates of messages that never lived has changed."""
    return tuple(
        account._replace(fates=old.fates) for account, old in zip(state.accounts, before.accounts, strict=True)
    )
