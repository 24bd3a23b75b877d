"""Closed scopes: a store's states explored until nothing new appears, so that a law holds for any number of operations.

Two clients call whatever the contract finds worth trying, time passes to each deadline and a millisecond to either
side, and one operation after the other may meet with trouble once it is known how the last trouble ended. States are
concrete, reached by real steps from the empty store; their canonical form (``orderlab.properties.engine.canonical``)
only decides whether one was met before.

Each equivalence of that form is tested on the scripts (``orderlab.properties.engine.equivalence_tests``). One that
fails is told and taken back, and the exploration begins anew without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from orderlab.model.contracts.client_steps import ClientStep
from orderlab.model.contracts.judge import TooManyStates
from orderlab.properties.engine.canonical import WORDS, Equivalence, Form, Path
from orderlab.properties.engine.closed_scope import Bounds, ScopeSteps, Stored, depends_on_more, note_passed, words_of
from orderlab.properties.engine.equivalence_tests import PAIRS, Checked, EquivalenceTests, Refuted, Seen, drawn_for
from orderlab.properties.engine.run import ContractRun, Report, RunState
from orderlab.properties.engine.search import Search
from orderlab.properties.validation.effort import CLOSING_STEPS, CLOSING_STEPS_CERTIFIED
from orderlab.properties.validation.work_order import WorkOrder

EFFORT_MIN = 10.0
"""Below which nothing is closed, for a judgement on every save must be quick."""


@dataclass
class Closed:
    """What came of closing a store's scope."""

    bounds: Bounds
    equivalences: tuple[Equivalence, ...] = ()
    counters: frozenset[Path] = frozenset()
    stored: list[Stored] = field(default_factory=list)
    forms: dict[Hashable, int] = field(default_factory=dict)
    checked: dict[Equivalence, Checked] = field(default_factory=dict)
    steps: int = 0
    domains: dict[tuple[str, str], set[object]] = field(default_factory=dict)
    """By operation and field: what was passed, but for numbers that only grow."""
    endless: str = ""
    """A field of a call in which clients go on giving new names."""
    is_closed: bool = False
    is_pruned: bool = False
    """Some states hold as many things as a scope may."""

    @property
    def form(self) -> Form:
        """The canonical form that is left."""
        has_counters = Equivalence.COUNTERS in self.equivalences
        return Form(frozenset(self.equivalences), self.counters if has_counters else frozenset())

    @property
    def words(self) -> str:
        """The line of a verdict."""
        return words_of(self.bounds, [item.state for item in self.stored], self.is_pruned, self.equivalences)

    @property
    def gap(self) -> str:
        """Why nothing is closed."""
        if self.endless:
            return f"no scope was closed: clients go on giving new names ({self.endless})"
        listed = "".join(
            f"; {WORDS[which]}: taken back, {item.refuted}" for which, item in self.checked.items() if item.refuted
        )
        return f"no scope was closed: {self.steps:,} steps ran out after {len(self.stored):,} states{listed}"


class Closing:
    """The exploration of one store's scope under the equivalences that are left."""

    def __init__(self, run: ContractRun, search: Search, seed: int, steps_max: int) -> None:
        self.run, self.search, self.steps_max = run, search, steps_max
        self.first = run.state
        self.world = ScopeSteps(run, Bounds())
        self.draw = drawn_for(seed)
        self.tests = EquivalenceTests(self.world, self.draw)
        self.closed = Closed(self.world.bounds)
        self.is_broken = False
        self._forms: dict[Hashable, Hashable] = {}

    def close(self) -> Closed:
        """Explore until nothing new appears, by clients that go by more and more; what was closed last."""
        seen = Seen(self.world, self.draw)
        seen.walk(self.first)
        left = seen.equivalences()
        checked = self.tests.checked = {item: Checked() for item in left}
        steps, best = len(seen.states), self.closed
        if seen.endless:
            self.closed.endless, self.closed.steps = seen.endless, steps
            return self.closed
        for bounds in seen.bounds():
            self.world.bounds = bounds
            is_over = False
            while Equivalence.INSTANTS in left and not is_over:
                self.closed = Closed(self.world.bounds, tuple(left), seen.grown, checked=checked, steps=steps)
                self.tests.form, self._forms = self.closed.form, {}
                try:
                    self.tests.change_all(seen.states)
                    self._explore()
                    if self.closed.is_closed:
                        self.tests.change_each([item.state for item in self.closed.stored])
                    is_over = True
                except Refuted as refuted:
                    checked[refuted.which].refuted = refuted.words
                    left.remove(refuted.which)
                    self.closed.is_closed = False
                    best = Closed(self.world.bounds)  # what was closed by it is not
                    self.tests.tried.clear()
                steps = self.closed.steps
            if not self.closed.is_closed:
                break
            best = self.closed
            forgot = any(len(client.seen) >= bounds.held_max for item in best.stored for client in item.state.clients)
            if not forgot and bounds.grid_ms == seen.bounds()[-1].grid_ms:
                break  # no client has anything more to go by
        best = best if best.is_closed else self.closed
        best.steps = steps + self.tests.steps
        return best

    # -- exploring -----------------------------------------------------------------------------------------

    def _form_of(self, state: RunState) -> Hashable:
        key = state.key
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = self.tests.formed(state)
        return known

    def _explore(self) -> None:
        closed, queue, tests = self.closed, deque([0]), self.tests
        tests.pairs_left = PAIRS
        closed.stored.append(Stored(self.first, -1, None))
        closed.forms[self._form_of(self.first)] = 0
        is_cut = False
        while (
            queue and closed.steps + tests.steps < self.steps_max and not (self.search.budget.is_past or self.is_broken)
        ):
            at = queue.popleft()
            try:
                for step, report, after in self.world.all_taken(closed.stored[at].state):
                    self._arrive(at, step, report, after, queue)
            except TooManyStates:
                is_cut = True
        closed.is_closed = not (queue or is_cut or self.is_broken)

    def _arrive(self, at: int, step: ClientStep, report: Report, after: RunState, queue: deque[int]) -> None:
        closed = self.closed
        closed.steps += report.work
        note_passed(closed.domains, step, closed.counters)
        if report.violation is not None:
            self.is_broken = True
            self.search.note(self._path(at, step), report, "closing")
            return
        if depends_on_more(report, after):
            self.is_broken = True
            return
        if not self.world.is_within(after):
            closed.is_pruned = True
            return
        formed = self._form_of(after)
        known = closed.forms.get(formed)
        if known is None:
            closed.forms[formed] = len(closed.stored)
            queue.append(len(closed.stored))
            closed.stored.append(Stored(after, at, step))
        else:
            self.tests.meet(closed.stored[known].state, after)

    def _path(self, at: int, *more: ClientStep) -> tuple[ClientStep, ...]:
        back: list[ClientStep] = []
        while at > 0:
            item = self.closed.stored[at]
            assert item.step is not None
            back.append(item.step)
            at = item.parent
        return (*reversed(back), *more)


def close(run: ContractRun, search: Search, order: WorkOrder) -> Closed | None:
    """Close a store's scope, as far as the effort goes; None where that is not asked for. Why nothing is closed is
    told. Raises BudgetExceeded."""
    if order.effort < EFFORT_MIN and not order.certifies:
        return None
    steps_max = max(int(CLOSING_STEPS * order.effort), CLOSING_STEPS_CERTIFIED if order.certifies else 0)
    closing = Closing(run, search, order.seed, steps_max)
    closed = closing.close()
    search.count_tests(run, closed.steps)
    if not closed.is_closed:
        search.findings.gaps.append(closed.gap)
    search.budget.check()
    return closed
