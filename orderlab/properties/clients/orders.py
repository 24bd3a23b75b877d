"""The search over orders: depth first from the beginning each time, with sleep sets, as a stateless explorer does.

A step that was tried at a place goes to sleep there: after a step that commutes with it, it need not be tried again,
as both orders end alike (Godefroid, *Partial-Order Methods*, 1996). What a step touched is known because it was made.
So every order is visited, or one that differs from it only by steps that see nothing of each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from orderlab.properties.clients.execution import POLLS_MAX, Execution
from orderlab.properties.clients.footprints import StepFootprint
from orderlab.properties.clients.lane import Choice, Unstable
from orderlab.properties.clients.runs import FinishedRun, carried_out
from orderlab.properties.clients.scenario import Scenario

EFFORTS: Final = {"quick": 2_000, "normal": 20_000, "thorough": 400_000}
"""Executions at most."""
STEPS_EACH: Final = 100
"""So many steps of one execution count as one more: a client that asks again and again makes thousands."""
CHECKED_EVERY: Final = 100
"""In one of so many executions it is compared at each step whether the same steps can be made as before."""


@dataclass(slots=True)
class _Place:
    """A state on the path that is being followed."""

    enabled: list[Choice]
    asleep: dict[Choice, StepFootprint]
    done: dict[Choice, StepFootprint] = field(default_factory=dict)
    chosen: Choice | None = None
    last: str = ""
    """The lane that made the step before."""
    preemptions: int = 0
    """How often, until here, a lane that could go on did not."""

    def next(self) -> Choice | None:
        """A step that was not tried here and does not sleep."""
        for choice in self.enabled:
            if choice not in self.done and choice not in self.asleep:
                return choice
        return None


@dataclass
class SearchWork:
    """What a search did."""

    executions: int = 0
    orders: int = 0
    steps: int = 0
    is_exhausted: bool = False
    cuts: set[str] = field(default_factory=set)
    polls_cut: bool = False
    polls_max: int = POLLS_MAX
    late_cut: bool = False
    preemptions: int = -1
    """Up to how many every order was visited, where not every order was; -1: up to none."""

    @property
    def spent(self) -> int:
        """What the executions came to, long ones counted as several."""
        return max(self.executions, self.steps // STEPS_EACH)


class OrderSearch:
    """Every order of the steps of a scenario, or as many as the budget allows."""

    def __init__(
        self, scenario: Scenario, executions_max: int, troubles: Sequence[str] = (), budget: int = 0,
        reduction: bool = True, preemptions: int | None = None, polls_max: int = POLLS_MAX,
    ) -> None:  # fmt: skip
        """``preemptions``: at most so many; only without ``reduction``, which leaves out orders for others that may
        have more."""
        self.scenario, self.executions_max = scenario, executions_max
        self.troubles, self.budget, self.reduction = troubles, budget, reduction
        self.preemptions, self.polls_max = preemptions, polls_max
        self.work = SearchWork(polls_max=polls_max)
        self._path: list[_Place] = []
        self._depth = 0
        self._last: StepFootprint | None = None

    def runs(self) -> Iterator[FinishedRun]:
        """The executions that came to an end, each of an order that differs from the others."""
        work = self.work
        while work.spent < self.executions_max:
            prefix = [place.chosen for place in self._path[:-1] if place.chosen is not None]
            if work.executions % CHECKED_EVERY == 0:
                prefix = []  # what could be made is compared as well
            self._depth = len(prefix)
            run = carried_out(self.scenario, self._choose, self.troubles, self.budget, prefix, polls_max=self.polls_max)
            work.executions += 1
            work.steps += len(run.execution.choices)
            self._note(run)
            if run.execution.is_cut != "seen":
                work.orders += 1
                yield run
            elif run.violation is not None:
                yield run
            while self._path:
                place = self._path[-1]
                if place.next() is not None:
                    break
                self._path.pop()
            if not self._path:
                work.is_exhausted = not work.cuts
                return

    def _note(self, run: FinishedRun) -> None:
        """Keep what the last step of the path touched, and what was left out."""
        if run.execution.is_cut and run.execution.is_cut != "seen":
            self.work.cuts.add(run.execution.is_cut)
        self.work.polls_cut |= run.execution.polls_cut
        self.work.late_cut |= run.execution.late_cut
        if self._path and self._path[-1].chosen is not None:
            place, footprint = self._path[-1], run.execution.footprint
            assert place.chosen is not None
            assert footprint is not None
            place.done[place.chosen] = footprint

    def _choose(self, execution: Execution, enabled: list[Choice]) -> Choice | None:
        at, path = self._depth, self._path
        last, count = self._preempted(at)
        if self.preemptions is not None and count >= self.preemptions and enabled[0][0] == last:
            enabled = [choice for choice in enabled if choice[0] == last]
        if at < len(path):
            place = path[at]
            if place.enabled != enabled:
                raise Unstable(f"step {at + 1}: {place.enabled} became {enabled}")
            if at < len(path) - 1:
                self._depth += 1
                return place.chosen
        else:
            if at and path[at - 1].chosen is not None:
                before = path[at - 1]
                assert before.chosen is not None
                assert execution.footprint is not None
                before.done[before.chosen] = execution.footprint
            place = _Place(enabled, self._asleep(at, execution.footprint), last=last, preemptions=count)
            path.append(place)
        choice = place.next()
        place.chosen = choice
        self._depth += 1
        return choice

    def _preempted(self, at: int) -> tuple[str, int]:
        """The lane that made the step before a place, and how many preemptions there were."""
        before = self._path[at - 1] if at else None
        if before is None or before.chosen is None:
            return "", 0
        is_one = before.enabled[0][0] == before.last != before.chosen[0]
        return before.chosen[0], before.preemptions + is_one

    def _asleep(self, at: int, footprint: StepFootprint | None) -> dict[Choice, StepFootprint]:
        """What sleeps after the last step: what slept or was tried before it, and commutes with it."""
        if not at or not self.reduction or footprint is None:
            return {}
        before = self._path[at - 1]
        chosen = before.chosen
        assert chosen is not None
        kept = {}
        for choice, touched in (*before.asleep.items(), *before.done.items()):
            if choice[0] != chosen[0] and touched.commutes_with(footprint):
                kept[choice] = touched
        return kept


def switches(choices: Sequence[Choice]) -> int:
    """How often an order goes from one lane to another."""
    return sum(first[0] != second[0] for first, second in pairwise(choices))


def following(choices: Sequence[Choice]) -> Callable[[Execution, list[Choice]], Choice | None]:
    """A chooser that makes the same choices again, and then goes on as it comes."""

    def choose(execution: Execution, enabled: list[Choice]) -> Choice | None:
        at = len(execution.choices)
        wanted = choices[at] if at < len(choices) else enabled[0]
        if wanted not in enabled:
            try:
                execution.come_to(wanted)  # in an order of whole clients time goes by while others could go on
            except Unstable:
                return None
            return wanted if wanted in execution.enabled() else None
        return wanted

    return choose


def by_priorities(seed: int, steps: int, changes: int = 2) -> Callable[[Execution, list[Choice]], Choice | None]:
    """A chooser that goes on with the lane of the highest priority, and lowers it at ``changes`` steps drawn among
    ``steps`` (Burckhardt and others, *A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*, 2010)."""
    draws = random.Random(f"priorities:{seed}")
    lowered = {draws.randrange(max(steps, 1)): -number for number in range(1, changes + 1)}
    priorities: dict[str, float] = {}

    def choose(execution: Execution, enabled: list[Choice]) -> Choice | None:
        for lane, _ in enabled:
            priorities.setdefault(lane, draws.random())
        best = max(enabled, key=lambda choice: (priorities[choice[0]], not choice[1]))
        at = len(execution.choices)
        if at in lowered:
            priorities[best[0]] = lowered[at]
        mine = [choice for choice in enabled if choice[0] == best[0]]
        return draws.choice(mine) if draws.random() < 0.1 else best

    return choose


def walk(seed: int) -> Callable[[Execution, list[Choice]], Choice | None]:
    """A chooser that goes on with a lane for a while and then with another."""
    draws = random.Random(f"walk:{seed}")

    def choose(execution: Execution, enabled: list[Choice]) -> Choice | None:
        plain = [choice for choice in enabled if not choice[1]] or enabled
        if draws.random() < 0.1:
            return draws.choice(enabled)
        return plain[0] if draws.random() < 0.6 else draws.choice(plain)

    return choose
