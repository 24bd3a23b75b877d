"""The situations that a store gets into, by as few operations as may be, and every call in each of them.

One operation after the other, without trouble; time passes to just after whatever is due next. States in which
something is as it never was before (a thing, a key, what may come of a call) are carried on first, so that runs become
long where scopes of every interleaving stay short. Random walks begin here too, besides the situations that a contract
names, so that nobody has to name them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from orderlab.model.contracts.base import AnyOf, Call
from orderlab.model.contracts.client_steps import Begin, ClientStep, Resume, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.properties.engine.noted_moments import agreement, noted_ms
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.search import Beginning, Search, is_idle_step
from orderlab.properties.harness.keyspace import bytes_in, size_of
from orderlab.properties.validation.effort import SITUATION_STEPS
from orderlab.properties.validation.findings import Explored
from orderlab.sim.redis.shard import FrozenKeyspace

ONE_BY_ONE = "one operation after the other"
AFTER_TROUBLE = f"{ONE_BY_ONE} after a trouble"
CROWDED = 2
"""Operations that one thing more in the store counts as: long runs with few things come before short ones with many."""
ORDINARY, AGED, KNOWN = 6, 9, 12
"""And so many, that there is nothing new in a state but how it is combined; but how far away its moments are; not even
that."""
MANY = 3
"""From here on numbers are alike, and so are the members of a collection."""
MOMENT = 10**9
"""Numbers above are moments, of which it counts whether they are over; at most how often their distance doubles."""
DUE_MAX = 3
"""Moments that are waited for from one state, the nearest."""
FEW_CLIENTS, MORE_CLIENTS, MORE_EFFORT = 2, 3, 5.0
"""How many clients there are at least, below this effort and from it on: where a contract needs more to show what it is
about, as a line behind two places does, there are so many."""
DIGITS = re.compile(r"\d+")


def situate(run: ContractRun, search: Search, effort: float, name: str = ONE_BY_ONE) -> None:
    """Find the situations, from the empty store and from where races have left it, or from where trouble has: those in
    which something is as never before go to ``search``, what is wrong to its findings. Raises BudgetExceeded."""
    steps_max, taken = int(SITUATION_STEPS * effort) // (1 if name == ONE_BY_ONE else 2), 0
    clients = max(FEW_CLIENTS if effort < MORE_EFFORT else MORE_CLIENTS, run.contract.clients)
    known = Known(run)
    if name == AFTER_TROUBLE:
        known.queue.clear()
    for end in search.met.raced if name == ONE_BY_ONE else search.met.stopped:
        run.go_to(end.state)
        with suppress(TooManyStates):
            known.add(end.steps, search)

    while known.queue and taken < steps_max and not search.budget.is_past:
        way, state = known.next()
        run.go_to(state)
        for step in ahead(run, clients):
            run.go_to(state)
            try:
                made = [*way]
                report = run.carry_out(step, made)
                taken += report.work
                if isinstance(step, Begin):
                    search.note_effects(step.call.name, report.effects, lambda made=made: made)  # type: ignore[misc]
                if report.violation is not None:
                    search.note(made, report, name)
                elif report.is_over and not is_idle_step(run, state, run.state, step):
                    known.add(tuple(made), search)
            except TooManyStates:
                continue
    search.count_tests(run, taken)
    search.findings.work["situations"] += known.new
    search.findings.explored.append(Explored(name, not known.queue, taken))
    search.budget.check()


class Known:
    """The states that were met, and which of them to carry on from first. Begins with where the run is."""

    def __init__(self, run: ContractRun) -> None:
        self.run = run
        self.found = [Beginning((), run.state)]
        self.queue = [(0, 0)]
        first = features(run)
        self._plain, self._combined, self._exact = set(first.plain), set(first.combined), {run.state.key}
        self._aged = {first.aged}
        self._start, self._unit = _size(run), 0
        self.new = 0
        """Situations: states in which something was as never before."""

    def next(self) -> Beginning:
        """The one to carry on from."""
        return self.found[heapq.heappop(self.queue)[1]]

    def add(self, way: tuple[ClientStep, ...], search: Search) -> None:
        """Where the run is now, unless it was there before. Raises TooManyStates."""
        state = self.run.state
        if state.key in self._exact:
            return
        seen = features(self.run)
        grown = _size(self.run) - self._start
        self._exact.add(state.key)
        is_new = bool(seen.plain - self._plain)
        known = ORDINARY if seen.combined - self._combined else AGED if seen.aged not in self._aged else KNOWN
        self._plain |= seen.plain
        self._combined |= seen.combined
        self._aged.add(seen.aged)
        self._unit = self._unit or max(grown, 0)
        self.found.append(Beginning(way, state))
        if is_new:
            self.new += 1
            search.met.situations.append(self.found[-1])
        length = sum(not isinstance(step, Resume) for step in way)
        cost = length + CROWDED * (grown // self._unit if self._unit else 0) + (0 if is_new else known)
        heapq.heappush(self.queue, (cost, len(self.found) - 1))


def ahead(run: ContractRun, clients: int) -> list[ClientStep]:
    """What may happen next: every call of every client up to the first that has done nothing yet, and what is due. What
    clients with the same clock may all ask, the first of them asks: a store does not know who calls."""
    first: dict[tuple[Call, int, str], ClientStep] = {}
    versions = run.versions if len(run.versions) > 1 else ("",)
    for number, client in enumerate(run.clients[:clients]):
        again = run.repeated(number)
        for call in (*([] if again is None else [again]), *run.judge.asked.calls(number, client.seen)):
            for by in versions:
                first.setdefault((call, run.skews_ms[number], by), Begin(number, call, served_by=by))
        if not client.begun:
            break
    now = run.judge.now_ms
    due = sorted({at for at in run.deadlines_ms if at >= now} | noted_ms(run))[:DUE_MAX]
    before = [at - 1 for at in due if at - 1 > now][:1]  # a moment that was noted just now has nothing before it
    return [*first.values(), *(Wait(at - now) for at in (*before, *(at + 1 for at in due)))]


def _size(run: ContractRun) -> int:
    return max(run.judge.asked.size(state) for state in run.judge.states())


class Features(NamedTuple):
    """What tells a state from others, each by itself."""

    plain: frozenset[Hashable]
    """Each thing in it, with where it stands and beside what is gone, whose moments come before whose, each key, each
    call with what may come of it."""
    combined: frozenset[Hashable]
    """All things together, and all that one client may do."""
    aged: Hashable
    """All things together, with how far away their moments are: a lease that was renewed, beside an end that was
    not."""


def features(run: ContractRun) -> Features:
    """How a state looks to the contract, as keys, and to each client."""
    asked, now_ms = run.judge.asked, run.judge.now_ms
    states = run.judge.states()
    calls = [asked.calls(number, client.seen) for number, client in enumerate(run.clients)]
    names = {text for some in calls for call in some for text in texts_in(call)}
    names.update(text for client in run.clients for one in client.seen for text in texts_in(one.call))
    shape = Shape(frozenset(names), now_ms)
    outlooks = {
        call: (call.name, shape.of(tuple(value for _, value in call.fields)), _allowed(run, states, call, shape))
        for call in {call: None for some in calls for call in some}
    }
    views = [frozenset(outlooks[call] for call in some) for some in calls]
    keyspace = run.backend.keyspace()
    keys = _keys(keyspace, shape)
    records = [thing for state in states for thing in _things(state)]
    places = Places(keyspace, shape, shape.names - {text for thing in records for text in texts_of(thing)})
    things = {(shape.of(thing), places.of(thing)) for thing in records}
    turns = {turn for state in states for turn in _turns(state)}
    shapes = frozenset(map(shape.of, states))
    aged = frozenset(map(Shape(shape.names, now_ms, tells_distance=True).of, states))
    return Features(
        frozenset((agreement(run), *things, *keys, *turns, *(outlook for view in views for outlook in view))),
        frozenset(((shapes, keys), *views)),
        aged,
    )


class Places:
    """In which keys the names of things stand, and whether before or behind what is ``gone``: an entry that was left
    there matters to whoever counts from one end."""

    def __init__(self, keyspace: FrozenKeyspace, shape: Shape, gone: Set[str]) -> None:
        self._names = shape.names
        gone_names = [name.encode("latin-1", "replace") for name in gone]
        self._texts: list[tuple[str, bytes]] = []
        self._rows: dict[str, list[tuple[bytes, bool]]] = {}
        """Keys whose members stand in a row, some of them gone: each member, and whether it is."""
        for key, (kind, value, _) in keyspace.items():
            name, members = shape.of_text(key.decode("latin-1")), [*bytes_in(value)]
            self._texts.append((name, b"\0".join((key, *members))))
            if gone_names and kind in ("list", "zset"):
                row = [(member, any(each in member for each in gone_names)) for member in members]
                if any(is_gone for _, is_gone in row):
                    self._rows[name] = row

    def of(self, thing: tuple[Any, ...]) -> tuple[frozenset[str], frozenset[tuple[str, bool]]]:
        """The keys in which the first name in a record stands; and those in which something that is gone stands behind
        it, or before it."""
        name = next((text for text in thing if isinstance(text, str) and text in self._names), "").encode()
        keys = frozenset(key for key, text in self._texts if name and name in text)
        sides = set[tuple[str, bool]]()
        for key in keys & self._rows.keys():
            row = self._rows[key]
            here = next((at for at, (member, _) in enumerate(row) if name in member), None)
            if here is not None:
                sides.update((key, at > here) for at, (_, is_gone) in enumerate(row) if is_gone and at != here)
        return keys, frozenset(sides)


def _things(value: Any) -> Iterator[tuple[Any, ...]]:
    """The records that a state is made of, each without those within it."""
    if isinstance(value, frozenset):
        for member in value:
            yield from _things(member)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _things(tuple(getattr(value, field.name) for field in fields(value)))
    elif isinstance(value, tuple):
        yield tuple(member for member in value if not isinstance(member, tuple | frozenset))
        for member in value:
            if isinstance(member, tuple | frozenset) or is_dataclass(member):
                yield from _things(member)


def _turns(value: Any) -> Iterator[tuple[str, int]]:
    """Of records that stand in a row, the moments which come later in the former than in the one behind it: as when
    the first was renewed."""
    if is_dataclass(value) and not isinstance(value, type):
        value = tuple(getattr(value, field.name) for field in fields(value))
    if isinstance(value, tuple):
        for former, latter in pairwise(value):
            if isinstance(former, tuple) and type(former) is type(latter):
                for at, (moment, next_moment) in enumerate(zip(former, latter, strict=False)):
                    if isinstance(moment, int) and isinstance(next_moment, int) and moment > next_moment >= MOMENT:
                        yield type(former).__name__, at
    if isinstance(value, tuple | frozenset):
        for member in value:
            yield from _turns(member)


def _allowed(run: ContractRun, states: Sequence[Any], call: Call, shape: Shape) -> Hashable:
    return frozenset(
        (True, shape.of(reply.example)) if isinstance(reply, AnyOf) else shape.of(reply)
        for state in states
        for reply, _ in run.judge.asked.outcomes(state, call, run.judge.now_ms)
    )


def _keys(keyspace: FrozenKeyspace, shape: Shape) -> frozenset[Hashable]:
    return frozenset(
        (shape.of_text(key.decode("latin-1")), kind, min(size_of(kind, value), 2), until_ms is None)
        for key, (kind, value, until_ms) in keyspace.items()
    )


def texts_in(call: Call) -> Iterator[str]:
    """The texts that a call passes, which name things."""
    for _, value in call.fields:
        yield from texts_of(value)


def texts_of(value: Any) -> Iterator[str]:
    """The texts in a plain value."""
    if isinstance(value, tuple):
        for member in value:
            yield from texts_of(member)
    elif isinstance(value, str) and value:
        yield value
    elif isinstance(value, bytes) and value:
        yield value.decode("latin-1")


class Shape:
    """Values without what tells one thing from another of its kind: names that clients gave, moments, numbers."""

    def __init__(self, names: frozenset[str], now_ms: int, tells_distance: bool = False) -> None:
        self.names = names
        self.now_ms = now_ms
        self.tells_distance = tells_distance
        self._longest = sorted(names, key=lambda name: (-len(name), name))

    def of(self, value: Any) -> Hashable:
        """The shape of any plain or abstract value."""
        if isinstance(value, str):
            return "name" if value in self.names else DIGITS.sub("#", value)
        if isinstance(value, tuple):
            members = value if hasattr(value, "_fields") else value[:MANY]
            return tuple([self.of(member) for member in members])
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            if abs(value) < MOMENT:
                return max(-MANY, min(value, MANY))
            if self.tells_distance and value > self.now_ms:
                return f"ahead {(value - self.now_ms).bit_length()}"
            return "past" if value < self.now_ms else "now" if value == self.now_ms else "ahead"
        if isinstance(value, bytes):
            return self.of(value.decode("latin-1"))
        if isinstance(value, frozenset):
            return frozenset([self.of(member) for member in value])
        if is_dataclass(value) and not isinstance(value, type):
            return tuple([self.of(getattr(value, field.name)) for field in fields(value)])
        return type(value).__name__

    def of_text(self, text: str) -> str:
        """A text in which names may stand."""
        for name in self._longest:
            text = text.replace(name, "name")
        return DIGITS.sub("#", text)
