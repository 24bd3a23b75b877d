"""Tests of what a canonical form leaves out, on the scripts, in two ways. Of pairs of states that were merged some are
drawn, and a step that is drawn is taken from both. And states are changed as an equivalence allows (all moments shifted
by days, numbers that only grow made greater by every number that stands in the scripts, by powers of ten) and each step
of theirs is taken as well. Reply and successor must be the same in canonical form.

What it does not see: a step that behaves otherwise only for numbers or moments that nobody drew.

Who explores a scope and who checks its certificate run the same tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

from orderlab.model.contracts.base import Call, Exchange
from orderlab.model.contracts.client_steps import Begin, ClientStep, Die, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.properties.engine.canonical import (
    Equivalence,
    Form,
    Mapped,
    Path,
    Put,
    Ranks,
    canonical,
    changed,
    is_moment,
    is_quiet,
    together,
)
from orderlab.properties.engine.closed_scope import Bounds, ScopeSteps
from orderlab.properties.engine.run import RunState
from orderlab.properties.engine.search import troubles_of

HELD_MAX = 3
"""Exchanges that a client goes by at most: the oldest of more are forgotten. One is tried first."""
STEP_MS_MIN = 50
"""Where all deadlines lie on steps of so much, time passes in such steps, then in halves of them."""
WALK = 150
"""Steps of the run in which it is seen what only grows."""
NAMES_MAX = 12
"""Different texts in one field of a call, beyond which clients go on giving new names, so that nothing closes."""
GROWS_FROM = 6
"""Different numbers in one place, each greater than all before, that make it a counter."""
PAIRS = 600
"""Merged pairs that are tested for one exploration."""
MET = 0.2
"""Of the pairs that come up, those that are tested."""
DRAWN, FEW = 12, 3
"""States that each change is tried on; the second where there are many changes."""
NUMBER = re.compile(rb"(?<![\w.])(\d{1,15})(?![\w.])")
COUNTERS_MAX = 10**12
"""As far as numbers that only grow are followed: well below 2^53, where Lua loses their last digit, and below 10^14,
where it writes them otherwise."""
TROUBLED = 0.3
"""Of the steps that are drawn, those that meet with trouble."""
DAY_MS = 86_400_000


@dataclass
class Checked:
    """How one equivalence was tested."""

    pairs: int = 0
    """Pairs of merged states from which a step was taken."""
    changes: int = 0
    """Steps taken from a state that was changed."""
    refuted: str = ""
    """Where scripts could tell, in words."""


class Refuted(Exception):
    """Scripts can tell what an equivalence leaves out."""

    def __init__(self, which: Equivalence, words: str) -> None:
        super().__init__(words)
        self.which, self.words = which, words


def drawn_for(seed: int) -> random.Random:
    """What draws the first run and the tests."""
    return random.Random(f"{seed}:closing")


class EquivalenceTests:
    """Tests the equivalences of ``form`` by steps of a scope. Each raises Refuted."""

    def __init__(self, world: ScopeSteps, draw: random.Random) -> None:
        self.world, self.draw = world, draw
        self.form = Form(frozenset(), frozenset())
        self.checked: dict[Equivalence, Checked] = {}
        self.steps = 0
        self.pairs_left = PAIRS
        self.tried: set[Equivalence] = set()
        """Equivalences that every change was tried under."""

    def formed(self, state: RunState, form: Form | None = None) -> Hashable:
        """The canonical form of a state."""
        return canonical(state, self.form if form is None else form, self.world.phase(state.core.now_ms))

    def _told_apart(self, item: RunState, other: RunState, is_shifted: bool = False, is_swapped: bool = False) -> str:
        """How a step that is drawn shows which of two states it is taken in; "" where it does not. ``is_shifted``: the
        other is at another moment, so that the steps of time are not the same; ``is_swapped``: clients have changed
        places."""
        steps, others = self.world.ahead(item), self.world.ahead(other)
        if is_swapped:
            same = [step if isinstance(step, Wait) else replace(step, client=1 - step.client) for step in steps]
            if set(same) != set(others):
                return "other calls are worth trying for one client than for another"
            others = same
        elif is_shifted:
            waits = [step for step in steps if isinstance(step, Wait)]
            others = [*(step for step in others if not isinstance(step, Wait)), *waits]
        if len(steps) != len(others):
            return f"{len(steps)} steps are possible, and {len(others)}"
        if not steps:
            return ""
        at = self.draw.randrange(len(steps))
        return self._differ(item, steps[at], other, others[at])

    def _differ(self, item: RunState, step: ClientStep, other: RunState, same: ClientStep) -> str:
        """How a step differs from the same in another state."""
        try:
            report, after = self.world.taken(item, step)
            if isinstance(step, Begin) and isinstance(same, Begin) and self.world.is_settled(item):
                troubles = list(troubles_of(report.effects, report.is_over))
                if troubles and self.draw.random() < TROUBLED:
                    trouble = self.draw.choice(troubles)
                    step, same = replace(step, trouble=trouble), replace(same, trouble=trouble)
                    report, after = self.world.taken(item, step)
            again, elsewhere = self.world.taken(other, same)
        except TooManyStates:
            return ""
        self.steps += 2
        if report.violation is not None and again.violation is not None:
            return ""
        replied = [Exchange(_call_of(item, step), report.reply), Exchange(_call_of(other, same), again.reply)]
        phase = self.world.phase(after.core.now_ms)
        left = canonical(after, self.form, phase, replied[0])
        if (report.violation is None) == (again.violation is None) and left == canonical(
            elsewhere, self.form, phase, replied[1]
        ):
            return ""
        return f"{_named(step)} replied {report.reply!r:.40}, and {_named(same)} {again.reply!r:.40}"

    def meet(self, item: RunState, other: RunState) -> None:
        """Compare some of the states that are merged."""
        if self.pairs_left and self.draw.random() < MET and item.key != other.key:
            self._compare_pair(item, other)

    def _compare_pair(self, item: RunState, other: RunState) -> None:
        """Take one step from two states that were merged; what they need to be merged by is held responsible."""
        self.pairs_left -= 1
        counters, past = self.form.counters, Equivalence.PAST
        which = Equivalence.INSTANTS
        for less, form in (
            (Equivalence.COUNTERS, Form(self.form.used, frozenset())),
            (past, Form(self.form.used - {past}, counters)),
        ):
            if less in self.form.used and self.formed(item, form) != self.formed(other, form):
                which = less
        if Equivalence.CLIENTS in self.form.used and is_quiet(item):
            form = Form(self.form.used - {Equivalence.CLIENTS}, counters)
            if self.formed(item, form) != self.formed(other, form):
                which, other = Equivalence.CLIENTS, other._replace(clients=other.clients[::-1])
        self.checked[which].pairs += 1
        words = self._told_apart(item, other)
        if words:
            raise Refuted(which, words)

    def change_all(self, states: Sequence[RunState]) -> None:
        """Take steps from states that are changed in every way that each equivalence allows."""
        for which in self._used():
            if which in self.tried:
                continue
            for change in self._changes(which):
                for state in self.draw.choices(states, k=FEW if which is Equivalence.COUNTERS else DRAWN):
                    self._change(which, change, state)
        self.tried.update(self.form.used)

    def change_each(self, states: Sequence[RunState]) -> None:
        """Change each state that was reached in one way that is drawn."""
        for which in self._used():
            changes = list(self._changes(which))
            for state in states:
                self._change(which, self.draw.choice(changes), state)

    def _used(self) -> list[Equivalence]:
        return [which for which in Equivalence if which in self.form.used]

    def _change(self, which: Equivalence, change: _Shift, state: RunState) -> None:
        self.checked[which].changes += 1
        if which is Equivalence.CLIENTS:
            words = ""
            if is_quiet(state):
                swapped = state._replace(clients=state.clients[::-1])
                words = self._told_apart(state, swapped, is_swapped=True)
        else:
            words = self._told_apart(state, changed(state, change(state)), is_shifted=True)
        if words:
            raise Refuted(which, words)

    def _changes(self, which: Equivalence) -> Iterator[_Shift]:
        if which is Equivalence.INSTANTS:
            for by in (1, 7, 10, 999, 60_000, DAY_MS, *(self.draw.randrange(3_000 * DAY_MS) for _ in range(20))):
                yield _Shift(moment=by)
        elif which is Equivalence.PAST:
            for by in (1, 500, 5_000, *(self.draw.randrange(1, 100 * DAY_MS) for _ in range(5))):
                yield _Shift(past=by)
        elif which is Equivalence.CLIENTS:
            yield from (_Shift() for _ in range(DRAWN))
        else:
            for by in (*range(1, 130), *(self.draw.randrange(10**5) for _ in range(40))):
                yield _Shift(counter=by, counters=self.form.counters)
            for to in sorted(self._literals()):
                yield _Shift(to=to, counters=self.form.counters)

    def _literals(self) -> set[int]:
        """Numbers that stand in the scripts, those around them, and powers of two and ten."""
        result = {int(item) for script in self.world.run.binding.scripts for item in NUMBER.findall(script.source)}
        result |= {10**power for power in range(2, 13)} | {2**power for power in range(7, 40)}
        return {number + by for number in result for by in (-1, 0) if 0 < number + by <= COUNTERS_MAX}


class Seen:
    """What one run shows of a store: where numbers stand that only grow, and on which steps deadlines lie."""

    def __init__(self, world: ScopeSteps, draw: random.Random) -> None:
        self.world, self.draw = world, draw
        self.states: list[RunState] = []
        self.grown: frozenset[Path] = frozenset()
        self.step_ms = 0
        self._seen: dict[Path, list[float]] = {}
        self._falls: set[Path] = set()
        self._given: dict[Path, set[float]] = {}
        self._texts: dict[str, set[object]] = {}
        self.endless = ""
        """A field of a call in which clients go on giving new names."""

    def walk(self, state: RunState) -> None:
        """Take steps that are drawn; time passes to deadlines only."""
        run, anchor_ms, step_ms = self.world.run, self.world.anchor_ms, 0
        visited = Mapped(lambda path, number: self._see(path, number, state), together)
        offered = Mapped(lambda path, number: self._offer(path, number, state), together)
        self.states.append(state)
        for _ in range(WALK):
            steps: list[ClientStep] = [item for item in self.world.ahead(state) if not isinstance(item, Wait)]
            due = [at for at in run.deadlines_ms if at > run.judge.now_ms]
            step_ms = gcd(step_ms, *(at - anchor_ms for at in due))
            calls = [item.call for item in steps if isinstance(item, Begin)]
            offered.value(calls, ())
            self._name(calls)
            steps += [Wait(at - run.judge.now_ms) for at in due]
            if not steps:
                break
            report, after = self.world.taken(state, self.draw.choice(steps))
            if report.violation is not None or not self.world.is_within(after):
                continue
            state = after
            visited.state(state)
            self.states.append(state)
        self.step_ms = step_ms
        many = {at for at, known in self._seen.items() if len(known) >= GROWS_FROM and at not in self._falls}
        whole = {number for at in many for number in self._seen[at]}
        handed_back = {at for at, known in self._given.items() if len(known) >= GROWS_FROM and known <= whole}
        self.grown = frozenset(many | handed_back)

    def _name(self, calls: Sequence[Call]) -> None:
        for call in calls:
            for name, value in call.fields:
                if not isinstance(value, int | float) and not str(value).isdecimal():
                    known = self._texts.setdefault(f"{call.name}.{name}", set())
                    known.add(value)
                    if len(known) > NAMES_MAX and not self.endless:
                        self.endless = f"{call.name}.{name}"

    def equivalences(self) -> list[Equivalence]:
        """Those that may be tried."""
        left = [Equivalence.INSTANTS, Equivalence.PAST, *([Equivalence.COUNTERS] if self.grown else [])]
        return [*left, *([Equivalence.CLIENTS] if len(set(self.world.run.skews_ms)) == 1 else [])]

    def bounds(self) -> list[Bounds]:
        """Wider and wider ones."""
        steps = (self.step_ms, self.step_ms // 2) if self.step_ms >= STEP_MS_MIN else (1,)
        first = [Bounds(grid_ms=step) for step in steps]
        return [*first, *(first[-1]._replace(held_max=held) for held in range(2, HELD_MAX + 1))]

    def _see(self, path: Path, number: float, state: RunState) -> float:
        known = self._seen.setdefault(path, [])
        if number > 0 and number not in known and not is_moment(number, state.core.now_ms):
            if known and number < known[-1]:
                self._falls.add(path)
            known.append(number)
        return number

    def _offer(self, path: Path, number: float, state: RunState) -> float:
        if number > 0 and not is_moment(number, state.core.now_ms):
            self._given.setdefault(path, set()).add(number)
        return number


class _Shift(NamedTuple):
    """What is put in the place of each number of a state."""

    moment: int = 0
    """So much later is every moment."""
    past: int = 0
    """So much longer ago is what is over."""
    counter: int = 0
    """So much greater is what only grows."""
    to: int = 0
    """The greatest of those numbers becomes this."""
    counters: frozenset[Path] = frozenset()

    def __call__(self, state: RunState) -> Put:
        now_ms = state.core.now_ms
        more = self.counter
        if self.to:
            ranks = Ranks(Form(frozenset(), self.counters), now_ms)
            Mapped(ranks.see, together).state(state)
            more = max(self.to - int(max(ranks.grown, default=0)), 0)

        def put(path: Path, number: float) -> float:
            if is_moment(number, now_ms):
                return number + self.moment - (self.past if number < now_ms else 0)
            return number + more if number > 0 and path in self.counters else number

        return put


def _call_of(state: RunState, step: ClientStep) -> Call:
    """The call that a step carries on."""
    call = (
        step.call if isinstance(step, Begin) else None if isinstance(step, Wait) else state.clients[step.client].pending
    )
    return call or Call("")


def _named(step: ClientStep) -> str:
    if isinstance(step, Begin):
        return f"{step.call}{f' under {step.trouble}' if step.trouble else ''}"
    return f"{step.ms:,} ms" if isinstance(step, Wait) else "a death" if isinstance(step, Die) else "a call"
