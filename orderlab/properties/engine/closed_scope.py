"""The steps of a closed scope: which are possible in each state, and where they lead.

Whoever explores a scope and whoever checks its certificate take the same steps, and know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Call, Exchange
from orderlab.model.contracts.client_steps import Begin, ClientStep, Resume, Wait
from orderlab.model.contracts.sequential import BOUNDED, NO_RESIDUE, ONE_SLOT, WAKE_UP, Scope
from orderlab.properties.engine.canonical import WORDS, Equivalence
from orderlab.properties.engine.run import ContractRun, Report, RunState
from orderlab.properties.engine.search import moves, troubles_of

CLIENTS = 2
LIVE_MAX = 3
"""Things that a store holds at most, where a contract counts them."""
NOT_CLOSED = frozenset((BOUNDED, NO_RESIDUE, ONE_SLOT, WAKE_UP))
"""Laws about length, or that are judged otherwise: a closed scope says nothing of them."""
SCOPE = Scope("closed", CLIENTS, 10**9, 10**9, 1)


class Bounds(NamedTuple):
    """What a closed scope is closed for, beside the number of operations."""

    clients: int = CLIENTS
    live_max: int = LIVE_MAX
    held_max: int = 1
    grid_ms: int = 1
    """Time passes to multiples of this and to a millisecond before and after each."""


class Stored(NamedTuple):
    """A state and how it was reached."""

    state: RunState
    parent: int
    step: ClientStep | None


def words_of(bounds: Bounds, states: Sequence[RunState], is_pruned: bool, used: Iterable[Equivalence]) -> str:
    """What a closed scope shows, with its bounds. ``is_pruned``: some states hold as many things as the scope may."""
    live = f"at most {bounds.live_max} live things, " if is_pruned else ""
    most = max((len(client.seen) for state in states for client in state.clients), default=0)
    last = "the last reply that matters" if bounds.held_max == 1 else f"the last {bounds.held_max} that matter"
    held = f" that go by {last}" if most >= bounds.held_max else ""
    every = f", time in steps of {bounds.grid_ms:,} ms and 1 ms beside," if bounds.grid_ms > 1 else ""
    listed = ", ".join(WORDS[item] for item in Equivalence if item in used)
    return (
        f"for any number of operations, with {live}{bounds.clients} clients{held}{every} and 1 trouble at "
        f"a time (closed: {len(states):,} states; {listed})"
    )


def note_passed(domains: dict[tuple[str, str], set[object]], step: ClientStep, counters: Container[object]) -> None:
    """Note by operation and field what a step passes, but for numbers that only grow."""
    if isinstance(step, Begin):
        for name, value in step.call.fields:
            if ("call", step.call.name, name) not in counters:
                domains.setdefault((step.call.name, name), set()).add(value)


def depends_on_more(report: Report, after: RunState) -> bool:
    """Whether clients wait or watch: what comes next depends on more than is in a state."""
    return bool(after.core.line or after.core.watches or report.waits)


class ScopeSteps:
    """The steps that are possible in each state of a scope, and what they lead to."""

    def __init__(self, run: ContractRun, bounds: Bounds) -> None:
        self.run, self.bounds = run, bounds
        self.anchor_ms = run.judge.now_ms
        self._kept: dict[Hashable, tuple[Exchange, ...]] = {}
        self.start = max(map(run.judge.asked.size, run.judge.states()))

    def ahead(self, state: RunState) -> list[ClientStep]:
        """All steps but for trouble."""
        run = self.run
        run.go_to(state)
        calls = list(moves(run, SCOPE, 0 if self.is_settled(state) else 1, None))
        return [*dict.fromkeys(calls), *map(Wait, self._waits())]

    def _waits(self) -> list[int]:
        """To the edges of what is due, as far as they lie on the steps of time, and to the first step after each."""
        now_ms, grid = self.run.judge.now_ms, self.bounds.grid_ms
        due = [at for at in self.run.deadlines_ms if at + 1 > now_ms]
        edges = {at + by for at in due for by in (-1, 0, 1)}
        if grid > 1:
            firsts = {at - (at - self.anchor_ms) % -grid + by for at in {now_ms, *due} for by in (-1, 0, 1, grid)}
            edges = {at for at in edges | firsts if due and self.phase(at) in (0, 1, grid - 1)}
        return sorted(at - now_ms for at in edges if at > now_ms)

    def phase(self, at_ms: int) -> int:
        """Where a moment lies on the steps of time."""
        return (at_ms - self.anchor_ms) % self.bounds.grid_ms

    @staticmethod
    def is_settled(state: RunState) -> bool:
        """Whether it is known how the last trouble ended."""
        judged: Any = state.core.judged
        candidates, overlapping = judged[:2]
        return len(candidates) == 1 and not any(event.kind == "stop" for event in overlapping)

    def taken(self, state: RunState, step: ClientStep) -> tuple[Report, RunState]:
        """What a step does, and where it leads once its client has forgotten what makes no difference to it. Raises
        TooManyStates."""
        run = self.run
        run.go_to(state)
        report = run.perform(step)
        if not isinstance(step, Wait):
            client = run.clients[step.client]
            client = client._replace(begun=0, seen=self._remembered(step.client, client.seen))
            again = run.repeated(step.client)
            if again is None or again in run.judge.asked.calls(step.client, client.seen):
                client = client._replace(retry=None)  # it may be called, or may not, whatever has been heard
            run.clients[step.client] = client
        return report, run.state

    def all_taken(self, state: RunState) -> Iterator[tuple[ClientStep, Report, RunState]]:
        """Every step from a state, each with all that can befall it."""
        is_settled = self.is_settled(state)
        for step in self.ahead(state):
            report, after = self.taken(state, step)
            yield step, report, after
            if is_settled and isinstance(step, Begin | Resume):
                for trouble in list(troubles_of(report.effects, report.is_over)):
                    struck = replace(step, trouble=trouble)
                    yield struck, *self.taken(state, struck)

    def is_within(self, state: RunState) -> bool:
        """Whether a state holds no more things than the scope has."""
        asked = self.run.judge.asked
        candidates = state.core.judged[0]  # type: ignore[index]
        return max(asked.size(item.state) for item in candidates) - self.start <= self.bounds.live_max

    def _remembered(self, client: int, seen: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        asked = (client, seen, self.bounds.held_max)
        if asked not in self._kept:
            self._kept[asked] = self._reduced(client, seen)
        return self._kept[asked]

    def _reduced(self, client: int, seen: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        worth = self._worth(client, seen)
        for item in seen:
            less = tuple(each for each in seen if each is not item)
            if self._worth(client, less) == worth:
                seen = less
        return seen[-self.bounds.held_max :]

    def _worth(self, client: int, seen: Sequence[Exchange]) -> frozenset[object]:
        bound = self.run.binding.operations

        def passed(call: Call) -> tuple[object, ...]:
            reads = bound[call.name].reads if call.name in bound else ()
            return call.name, *((name, value) for name, value in call.fields if name in reads)

        return frozenset(map(passed, self.run.judge.asked.calls(client, seen)))
