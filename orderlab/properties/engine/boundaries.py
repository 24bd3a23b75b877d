"""Boundaries of scripts: the numbers at which they change what they do are solved for, and met by calls.

Scripts are run with marked values in the situations that a search has found (``marking``). Each condition on a number
that they meet there is solved for what it takes to be met one below, at and one above its edge: another argument,
another length of a text, another moment, a store that holds so many things or has counted so far. The first three are
tried where the condition was met; for the last the store is grown by calls (``pumps``). Only replies convict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import Begin, ClientStep, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.model.errors import InputError
from orderlab.properties.engine.marking import (
    NO_RANGE,
    Carried,
    Marks,
    Met,
    carried_out,
    is_told,
    range_of,
    with_argument,
)
from orderlab.properties.engine.number_growth import GROWING, MORE, SMALL, Growing, ahead
from orderlab.properties.engine.pumps import Probe, probe_of
from orderlab.properties.engine.run import ContractRun, RunState
from orderlab.properties.engine.search import Beginning, Search
from orderlab.properties.shadow.marked import ARGUMENT, BUILT, DATA, LENGTH, NUMBER, SIZE, TIME
from orderlab.properties.shadow.solver import NOT_INSTALLED, Solver, Target, is_installed
from orderlab.properties.validation.effort import BOUNDARY_STEPS
from orderlab.properties.validation.findings import BOUNDARIES

RUNS = 70
"""Runs with marked values, for each unit of effort."""
RUNS_MAX = 1_000
WAITS_MAX = 6
FOLLOWED_EXACT = 240
FOLLOWED = 16, 120
"""Steps after one such call: at the smallest effort, and at most."""
SILENCE_MS = 400 * 24 * 3600 * 1000
TIMES = 2
"""Situations in which the same number is tried."""
LATER = 2
"""Rounds of solving: what was met for the first time beyond a boundary is solved for as well."""
LISTED_MAX = 6
NEAR = 10**9
"""A number that a store counts to in years is worth a word."""


@dataclass
class Solved:
    """What is known at the end."""

    marks: Marks = field(default_factory=Marks)
    targets: int = 0
    met: int = 0
    outside: set[str] = field(default_factory=set)
    """Fields for which the contract says no range with what was solved for."""
    beyond: dict[str, int] = field(default_factory=dict)
    """What grows to a boundary that was not reached: words -> where that is."""


class Boundaries:
    """Meets the boundaries of one store's scripts."""

    def __init__(self, make: Callable[[], ContractRun], search: Search, effort: float) -> None:
        self.make, self.search, self.effort = make, search, effort
        self.run = make()
        self.empty = self.run.state
        self.solver = Solver()
        self.solved = Solved()
        self.calls: list[tuple[int, Call]] = []
        self.grown: dict[Probe | None, dict[int, bool]] = defaultdict(dict)
        """Number -> what it shall be, and whether a script looks for this very number; None: the size of a crowd."""
        self._tried: set[object] = set()
        self._steps_left = int(BOUNDARY_STEPS * effort)
        self._runs_left = min(int(RUNS * effort), RUNS_MAX)

    def meet(self) -> Solved:
        """All of it. Raises BudgetExceeded once what was found is noted."""
        waiting = in_turn(self._targets(self._mets()))
        for _ in range(LATER):
            later: list[Met] = []
            for met, target in waiting:
                self.solved.targets += 1
                self._note_size(target)
                if target.symbol.kind in (ARGUMENT, LENGTH, TIME):
                    later += self._try(met, target)
                elif target.symbol.kind in (DATA, SIZE, NUMBER):
                    later += self._try_history(met, target)
                self.search.budget.check()
            waiting = in_turn(self._targets(later))
        for _, target in waiting:
            self._note_size(target)
        growing = Growing(self.make, self.search, int(GROWING * self.effort**MORE))
        growing.grow(self.grown, self.calls)
        self.solved.met += growing.met
        self.solved.beyond = growing.beyond
        self.search.count_tests(self.run, 0)
        return self.solved

    def _note_size(self, target: Target) -> None:
        """Remember to where the store shall be grown."""
        probe = probe_of(target.symbol)
        if target.value > SMALL and (probe is not None or target.symbol.kind == BUILT):
            known = self.grown[probe]
            known[target.value] = known.get(target.value, False) or target.is_exact

    # -- runs with marked values ---------------------------------------------------------------------------------------

    def _mets(self) -> Iterator[Met]:
        """Every call worth trying in the situations, the first ones first."""
        beginnings = [Beginning((), self.empty), *self.search.met.situations]
        for way, state in beginnings:
            for number in range(min(2, len(state.clients))):
                self.run.go_to(state)
                for call in self.run.judge.asked.calls(number, self.run.clients[number].seen):
                    if self._runs_left <= 0:
                        return
                    self.calls.append((number, call))
                    self.run.go_to(state)
                    carried = self._marked(way, Begin(number, call))
                    yield from carried.mets if carried is not None else ()

    def _marked(self, way: tuple[ClientStep, ...], step: Begin) -> Carried | None:
        """One operation with marked values; None where nothing can follow it."""
        try:
            carried = carried_out(self.run, way, step, self._runs_left > 0)
        except (TooManyStates, InputError):
            return None
        self._runs_left -= len(carried.mets)
        for met in carried.mets:
            self.solved.marks.note(step.call, met.seen)
        if carried.report.violation is not None:
            self.search.note(carried.way, carried.report, BOUNDARIES)
            return None
        return carried

    def _targets(self, mets: Iterable[Met]) -> Iterator[tuple[Met, Target]]:
        for met in mets:
            for target in () if met.seen.why_not else self.solver.targets(met.seen.path):
                yield met, target

    # -- arguments, lengths, moments -----------------------------------------------------------------------------------

    def _try(self, met: Met, target: Target) -> list[Met]:
        """The call of ``met`` as the solver wants it, and whatever may follow. What it met is returned."""
        wait: tuple[ClientStep, ...] = ()
        step = met.step
        if target.symbol.kind == TIME:
            unit = 1000 if target.symbol.place == 1 else 0.001
            ms = int((target.value - target.given) * unit)
            if not 0 < ms <= SILENCE_MS:
                return []
            wait = (Wait(ms),)
        else:
            call, outside = with_argument(self.run, met, target.symbol, target.value)
            if call is None:
                if outside:
                    self.solved.outside.add(outside)
                return []
            step = Begin(met.step.client, call)
        return self._from(met.way, met.state, wait, step, target.is_exact)

    def _try_history(self, met: Met, target: Target) -> list[Met]:
        """The number was given by an earlier call: that call with another one, and all as before."""
        collected: list[Met] = []
        for at, step in enumerate(met.way):
            if not isinstance(step, Begin):
                continue
            for name, given in step.call.fields:
                if type(given) is not int or given != target.given or given in (0, 1):
                    continue
                call = self._altered(step.call, name, target.value)
                if call is None:
                    continue
                way = (*met.way[:at], Begin(step.client, call), *met.way[at + 1 :])
                collected += self._from((), self.empty, way, met.step, target.is_exact)
        return collected

    def _altered(self, call: Call, name: str, value: int) -> Call | None:
        if not is_told(self.run, call.name, name):
            return None
        low, high = range_of(self.run.contract, call.name, name)
        if not low <= value <= high:
            if (low, high) == NO_RANGE:
                self.solved.outside.add(f"{call.name}.{name}")
            return None
        return Call(call.name, tuple((key, value if key == name else each) for key, each in call.fields))

    def _from(
        self, way: tuple[ClientStep, ...], state: RunState, first: tuple[ClientStep, ...], step: Begin, is_exact: bool
    ) -> list[Met]:
        """Take steps and a call from a state, with marked values, and follow."""
        key = (state.key, first, step)
        if key in self._tried or self._steps_left <= 0:
            return []
        self._tried.add(key)
        run = self.run
        run.go_to(state)
        run.clients = [client._replace(begun=0) for client in run.clients]
        taken = list(way)
        try:
            for each in first:
                taken.append(each)
                report = run.perform(each)
                self._count(report.work)
                if report.violation is not None:
                    self.search.note(taken, report, BOUNDARIES)
                    return []
            if run.clients[step.client].pending is not None:
                return []
            carried = self._marked(tuple(taken), step)
            self.solved.met += 1
            if carried is None:
                return []
            self._count(len(carried.mets) + 1)
            self._follow(carried.way, is_exact)
        except (TooManyStates, InputError):
            return []
        return carried.mets

    def _count(self, work: int) -> None:
        self._steps_left -= work
        self.search.findings.work["steps"] += work

    def _follow(self, way: tuple[ClientStep, ...], is_exact: bool) -> None:
        """What clients may do when time has passed, then at once, then next but one."""
        run = self.run
        left = FOLLOWED_EXACT if is_exact else min(int(FOLLOWED[0] * self.effort), FOLLOWED[1])
        begun = run.state
        known = {begun.key}

        def after(way: tuple[ClientStep, ...], state: RunState, steps: Iterable[ClientStep]) -> Iterator[Beginning]:
            nonlocal left
            for step in steps:
                if left <= 0:
                    return
                run.go_to(state)
                carried = carried_out(run, way, step, False) if isinstance(step, Begin) else None
                report = run.perform(step) if carried is None else carried.report
                taken = (*way, step) if carried is None else carried.way
                self._count(report.work)
                left -= report.work
                if report.violation is not None:
                    self.search.note(taken, report, BOUNDARIES)
                elif report.is_over and run.state.key not in known:
                    known.add(run.state.key)
                    yield Beginning(taken, run.state)

        def steps_in(state: RunState, waits_max: int) -> list[ClientStep]:
            run.go_to(state)
            return ahead(run, waits_max)

        waits = [step for step in steps_in(begun, WAITS_MAX) if isinstance(step, Wait)]
        queue = list(after(way, begun, waits))
        queue += [later for each in [*queue] for later in after(*each, steps_in(each.state, 0))]
        queue = [*queue[len(waits) :], *after(way, begun, steps_in(begun, 0))]
        for each in queue:
            if left <= 0:
                return
            queue += after(*each, steps_in(each.state, WAITS_MAX))


def in_turn(targets: Iterable[tuple[Met, Target]]) -> list[tuple[Met, Target]]:
    """The numbers that a script looks for first, then those around them; of each place one after the other, and each
    number few times."""
    rows: list[tuple[bool, int, int, tuple[Met, Target]]] = []
    seen: Counter[object] = Counter()
    for number, (met, target) in enumerate(targets):
        path = met.seen.path
        place = (
            target.site,
            target.symbol.general,
            met.step.call.name,
            len(path.conditions),
            repr(met.seen.reply)[:40],
        )
        seen[place, target.value] += 1
        if seen[place, target.value] <= TIMES:
            seen[place] += 1
            rows.append((not target.is_exact, seen[place], number, (met, target)))
    return [row[3] for row in sorted(rows, key=lambda row: row[:3])]


def solve(make: Callable[[], ContractRun], search: Search, effort: float) -> Solved:
    """Meet the boundaries of a store's scripts, and say what was not. Raises BudgetExceeded."""
    gaps = search.findings.gaps
    if not is_installed():
        gaps.append(NOT_INSTALLED)
        return Solved()
    whole = Boundaries(make, search, effort)
    solved = whole.meet()
    for script, why in sorted(solved.marks.not_followed.items()):
        gaps.append(f"boundaries: those of {script} are not solved: {why}")
    if solved.outside:
        listed = ", ".join(sorted(solved.outside)[:LISTED_MAX])
        gaps.append(f"boundaries: no other numbers were tried for {listed}: the contract's ranges do not name them")
    left = [f"{what} to {where:,}" for what, where in sorted(solved.beyond.items()) if where <= NEAR]
    if left:
        gaps.append(
            f"boundaries: what scripts do from there on was not seen, for the store was not grown: {', '.join(left)}"
        )
    return solved
