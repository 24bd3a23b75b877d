"""Stores grown by rounds of calls, or as a crowd of the contract, to where a number stands at a boundary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from orderlab.model.contracts.base import Call, Crowd
from orderlab.model.contracts.client_steps import Begin, ClientStep, Wait
from orderlab.model.errors import InputError
from orderlab.properties.engine.pumps import SEEN_MAX, Cycle, Probe, Walker, crowd_slopes, cycles_of
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.search import Search, moments
from orderlab.properties.validation.findings import BOUNDARIES

GROWING, MORE = 2_200, 1.6
"""Steps of rounds that grow a store at the smallest effort, and by which power of the effort there are more: in a large
store a step takes longer, and counts more."""
SIZE_MAX = 20_000
"""Things in a crowd."""
LARGE = 400
SMALL = 8
"""Sizes up to which the search in small scopes has been."""
BULK = 40
"""Steps that make a crowd which is taken for made at once."""
WAITS_MAX = 3
CALLS_AROUND = 40
"""About as many calls are tried in a state that is looked around in."""


class Growing:
    """Grows one store. ``left``: the steps that it may take."""

    def __init__(self, make: Callable[[], ContractRun], search: Search, left: int) -> None:
        self.make, self.search, self.left = make, search, left
        self._kept = 2 * left // 3
        self.met = 0
        """Boundaries that were reached."""
        self.beyond: dict[str, int] = {}
        """What was not grown to a boundary -> the nearest."""

    def grow(self, wanted: Mapping[Probe | None, Mapping[int, bool]], calls: Sequence[tuple[int, Call]]) -> None:
        """To every number that is wanted, the nearest first; where a script looks for this very number (True), at more
        expense. Raises BudgetExceeded."""
        probes = [probe for probe in wanted if probe is not None]
        cycles, work = cycles_of(self.make, probes, calls) if probes else ({}, 0)
        self.search.findings.work["steps"] += work
        stops: dict[Cycle, dict[int, bool]] = defaultdict(dict)
        names: dict[Cycle, str] = {}
        for probe, cycle in cycles.items():
            cycle = next((known for known in stops if known.letters == cycle.letters), cycle)
            names.setdefault(cycle, b" ".join(probe.argv).decode("latin-1"))
            _add(stops[cycle], {cycles[probe].rounds_to(at): exact for at, exact in wanted[probe].items()})
        walkers: dict[Cycle, tuple[Walker, int]] = {}
        tasks = [(at, number, exact) for number, rounds in enumerate(stops.values()) for at, exact in rounds.items()]
        known = list(stops)
        for at, number, exact in sorted(task for task in tasks if task[0] > 0):
            self._go_on(walkers, known[number], at, exact, names[known[number]])
        for size, crowd, exact in self._crowds(probes, wanted):
            self._make(crowd, size, exact)

    def _crowds(
        self, probes: Sequence[Probe], wanted: Mapping[Probe | None, Mapping[int, bool]]
    ) -> list[tuple[int, Crowd, bool]]:
        """The crowds that are worth making: of sizes in a row the largest, where the others are passed on the way or
        nobody looks for them."""
        collected: list[tuple[int, Crowd, bool]] = []
        for crowd in self.make().contract.crowds():
            is_bulk = sum(1 for _ in crowd.steps(BULK)) < BULK // 2
            sizes = dict(wanted.get(None, {}))
            if is_bulk:
                for probe, (slope, start) in crowd_slopes(self.make, crowd, probes).items():
                    _add(sizes, {-(-(at - start) // slope): exact for at, exact in wanted[probe].items()})
            for size, exact in sizes.items():
                is_passed = size + 1 in sizes and (not is_bulk or (size > LARGE and not exact))
                if not is_passed and SMALL < size <= SIZE_MAX:
                    collected.append((size, crowd, exact))
        return sorted(collected, key=lambda each: each[0])

    def _afford(self, cost: int, exact: bool) -> bool:
        """Whether so many steps are left: a part is kept for numbers that a script looks for."""
        kept = 0 if exact else self._kept
        if cost > self.left - kept:
            return False
        self.left -= cost
        return True

    def _make(self, crowd: Crowd, size: int, exact: bool) -> None:
        self.search.budget.check()
        steps = list(islice(crowd.steps(size), self.left + 1))
        each = 1 + size // LARGE
        if not self._afford(len(steps) * (each if len(steps) > BULK else 1) + CALLS_AROUND * each, exact):
            self._leave(crowd.name, size)
            return
        walker = Walker(self.make())
        for given in steps:
            report = walker.take(Wait(given) if isinstance(given, int) else Begin(*given))
            if report.violation is not None:
                self.search.note(walker.steps, report, crowd.name)
                return
        self.met += 1
        self._look_around(walker)
        self.search.findings.work["steps"] += walker.work

    def _go_on(
        self, walkers: dict[Cycle, tuple[Walker, int]], cycle: Cycle, rounds: int, exact: bool, name: str
    ) -> None:
        self.search.budget.check()
        walker, done = walkers.get(cycle, (None, 0))
        if walker is not None and walker.is_over:
            return
        each = len(cycle.letters) * (1 + (rounds // LARGE if cycle.grows else 0))
        if not self._afford((rounds - done) * each + CALLS_AROUND, exact):
            self._leave(name, cycle.start + rounds * cycle.slope)
            return
        walker = walker if walker is not None else Walker(self.make())
        before = walker.work
        for _ in range(rounds - done):
            report = walker.round(cycle.letters)
            if report is None or report.violation is not None:
                walker.is_over = True
                if report is not None:
                    self.search.note(walker.steps, report, BOUNDARIES)
                else:
                    self._leave(name, cycle.start + rounds * cycle.slope)
                break
        walkers[cycle] = walker, rounds
        if not walker.is_over:
            self.met += 1
            self._look_around(walker)
        self.search.findings.work["steps"] += walker.work - before

    def _leave(self, what: str, target: int) -> None:
        self.beyond[what] = min(target, self.beyond.get(what, target))

    def _look_around(self, walker: Walker) -> None:
        """Every call, and whoever asks again; then as before."""
        run, steps = walker.run, list(walker.steps)
        if any(client.pending is not None for client in run.clients):
            return
        run.clients = [client._replace(seen=client.seen[-SEEN_MAX:], begun=0) for client in run.clients]
        state = run.state
        try:
            for step in ahead(run, WAITS_MAX if walker.size <= LARGE else 0):
                run.go_to(state)
                walker.steps = list(steps)
                report = walker.take(step)
                for _ in range(2):
                    if report.violation is not None or not report.is_over:
                        break
                    again = next((each for each in ahead(run, 0) if _is_alike(each, step)), None)
                    if again is None:
                        break
                    report = walker.take(again)
                if report.violation is not None:
                    self.search.note(walker.steps, report, BOUNDARIES)
        except InputError:  # too many states, or more answers than a contract may give
            walker.is_over = True
        run.go_to(state)
        walker.steps = steps


def ahead(run: ContractRun, waits_max: int) -> list[ClientStep]:
    """The moments at which time changes something, and the calls of two clients."""
    steps: list[ClientStep] = [Wait(ms) for ms in moments(run)[:waits_max]] if waits_max else []
    for number in range(min(2, len(run.clients))):
        if run.clients[number].pending is None:
            steps += [Begin(number, call) for call in run.judge.asked.calls(number, run.clients[number].seen)]
    return steps


def _add(numbers: dict[int, bool], more: Mapping[int, bool]) -> None:
    for number, exact in more.items():
        numbers[number] = numbers.get(number, False) or exact


def _is_alike(step: ClientStep, other: ClientStep) -> bool:
    """Whether a step asks again, on from what the reply told; after time has passed, whatever comes first."""
    if isinstance(other, Wait):
        return isinstance(step, Begin)
    return isinstance(step, Begin) and isinstance(other, Begin) and step.call.name == other.call.name
