"""What is right: marks where clients have set some; else every outcome must be that of some order one after the other.

Verified: returned values, exceptions, assertions of clients, final keys, when they end where no time went by, marks,
clients that wait for ever. Not verified: replies that a client keeps to itself; where time went by, the moments at
which keys end, and keys that have ended in one of the orders; memory that clients share in Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import redis as redis_py

from orderlab.properties.clients.execution import Execution
from orderlab.properties.clients.lane import Choice, Op
from orderlab.properties.clients.runs import Ending, FinishedRun, carried_out
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.troubles import is_condition
from orderlab.sim.redis.blocking import Waiting

ORDERS_MAX = 5_040
"""Orders of whole clients that are tried."""
_TELLING: Final = (
    *("ConnectionError", "TimeoutError", "ReadOnlyError", "OutOfMemoryError", "MovedError", "AskError"),
    *("TryAgainError", "ClusterDownError", "ClusterCrossSlotError"),
    *("RedisClusterException", "ClusterError", "SlotNotCoveredError"),
)
_TROUBLED = ("killed", *(f"raised {name}" for name in _TELLING))


@dataclass
class Serial:
    """What the clients do one after the other."""

    outcomes: set[Ending] = field(default_factory=set)
    exceptions: set[tuple[int, str]] = field(default_factory=set)
    uses_marks: bool = False
    marked: set[str] = field(default_factory=set)
    """Laws that marks have set."""
    is_stuck: bool = False
    violation: FinishedRun | None = None
    by_members: dict[tuple[int, ...], set[Ending]] = field(default_factory=dict)


def serial(scenario: Scenario) -> Serial:
    """Run the clients one after the other, in every order; the threads of each too."""
    gathered = Serial()
    numbers = range(len(scenario.clients))
    carried_out(scenario, _OneByOne(numbers))  # what modules make once and keep, no judged run differs by
    orders = [_OneByOne(each) for each in itertools.islice(itertools.permutations(numbers), ORDERS_MAX)]
    for chooser in itertools.islice(orders, ORDERS_MAX):  # which grows meanwhile
        run = carried_out(scenario, chooser)
        if not chooser.is_parted():
            _gather(gathered, scenario, run)
        if chooser.crossed:
            patient = _OneByOne(chooser.order, chooser.picks, is_patient=True)
            _gather(gathered, scenario, carried_out(scenario, patient))
        orders += chooser.next()
    return gathered


def _gather(gathered: Serial, scenario: Scenario, run: FinishedRun) -> None:
    """Add what came of one order."""
    gathered.uses_marks |= bool(run.marks.used) or scenario.finally_ is not None
    gathered.marked |= run.marks.used | ({"finally"} if scenario.finally_ is not None else set())
    if (run.violation is not None or _failed_assertion(run) is not None) and gathered.violation is None:
        gathered.violation = run
    if run.execution.is_stuck:
        gathered.is_stuck = True
    if run.outcome is None:
        return
    if not run.execution.is_stuck:
        gathered.outcomes.add(run.outcome)
    gathered.exceptions |= {(number, end) for number, end in enumerate(run.outcome.ends) if end.startswith("raised")}


class _OneByOne:
    """A chooser: a client goes on until it has ended, its sleeps included; another only where it waits for that one.

    So do the threads of one client, and the calls of its pools: another comes where one cannot go on, or before it has
    begun. ``picks``: which, each time; 0 where they end. ``is_patient``: what it awaits with a timeout does not come,
    and it goes on without it. ``crossed``: such waits, during which another client made a step.
    """

    def __init__(self, order: Sequence[int], picks: Sequence[int] = (), is_patient: bool = False) -> None:
        self.order, self.picks = order, picks
        self.widths: list[int] = []
        """How many threads there were to pick from."""
        self._known, self._has_started = (0, 0), False
        self.rank = {str(number): place for place, number in enumerate(order)}
        self.is_patient = is_patient
        self.crossed: dict[int, Op | Waiting] = {}
        self._is_in_vain = False

    def __call__(self, execution: Execution, enabled: list[Choice]) -> Choice | None:
        best = min(enabled, key=lambda choice: self.rank[choice[0].split(".")[0]])
        mine, lanes = self.rank[best[0].split(".")[0]], execution.lanes
        op = lanes[best[0]].op
        self._is_in_vain |= id(op) in self.crossed and op.ready is not None and not op.ready()
        before = [
            lane
            for lane in lanes.values()
            if not lane.is_done and self.rank[lane.client] < mine and not (lane.daemon and lanes[lane.client].is_done)
        ]
        if not before:
            return self._picked(execution, enabled, best)
        waits: list[Op | Waiting] = [lane.op for lane in before if lane.op.gives_up]
        timeout_ms = None
        if execution.shard.waits:
            waits += [each for each in execution.shard.waits.all() if not each.is_endless]
            timeout_ms = execution.shard.waits.next_timeout_ms()
        sleeps = any(lane.op.kind == "sleep" or lane.op.is_pause for lane in before)
        if not sleeps and not (waits and self.is_patient):
            self.crossed |= {id(each): each for each in waits}
            return best
        moments = [lane.op.until_us for lane in before if lane.op.until_us is not None]
        moments += [timeout_ms * 1000] if timeout_ms is not None else []
        if not moments:
            return best
        execution.go_to(min(moments))
        for lane in before:
            if lane.op.is_ready(execution.now_us):
                return lane.name, ""
        return best

    def _picked(self, execution: Execution, enabled: Sequence[Choice], best: Choice) -> Choice:
        """The thread of the client whose turn it is that makes the next step."""
        lanes, client = execution.lanes, execution.lanes[best[0]].client
        known = len(lanes), sum(lane.calls for lane in lanes.values())
        is_open = self._has_started or known != self._known or best[0] != execution.choices[-1][0]
        own = [choice for choice in enabled if not choice[1] and lanes[choice[0]].client == client]
        if is_open and len(own) > 1:
            at = len(self.widths)
            self.widths.append(len(own))
            best = own[self.picks[at]] if at < len(self.picks) else own[0]
        self._known, self._has_started = known, lanes[best[0]].op.kind == "start"
        return best

    def next(self) -> list[_OneByOne]:
        """The same order of clients with the next order of their threads; none after the last."""
        picks = [*self.picks, *[0] * (len(self.widths) - len(self.picks))]
        while picks and picks[-1] + 1 >= self.widths[len(picks) - 1]:
            picks.pop()
        return [_OneByOne(self.order, [*picks[:-1], picks[-1] + 1])] if picks else []

    def is_parted(self) -> bool:
        """Whether a wait ended in vain after another client had come between: that is no order of whole clients."""
        ended = [each for each in self.crossed.values() if isinstance(each, Waiting)]
        return self._is_in_vain or any(each.is_over and each.reply is None for each in ended)


def judged(scenario: Scenario, run: FinishedRun, expected: Serial) -> tuple[str, str] | None:
    """The law that an execution breaks and how, or None."""
    expected.marked |= run.marks.used
    if run.violation is not None:
        return run.violation.law, run.violation.what
    failed = _failed_assertion(run)
    if failed is not None:
        return failed
    outcome = run.outcome
    if outcome is None:
        return None
    troubled = {name.split(".")[0] for name, _ in run.execution.used}
    if run.execution.is_stuck and not (expected.is_stuck and not expected.outcomes):
        stuck = [f"client {at}" for at, end in enumerate(outcome.ends) if end == "stuck"]
        if stuck:
            return "no-deadlock", f"{', '.join(stuck)} {'waits' if len(stuck) == 1 else 'wait'} for ever"
    for number, end in enumerate(outcome.ends):
        if not end.startswith("raised"):
            continue
        error = run.execution.lanes[str(number)].error
        assert error is not None
        if (number, end) in expected.exceptions or (troubled and _tells_of_trouble(error)):
            continue
        return "no-foreign-exception", f"client {number} {end} ({error}); in no order one after the other does it"
    wanted = scenario.serial if scenario.serial is not None else not expected.uses_marks
    if not wanted or run.execution.is_stuck or not expected.outcomes or outcome in expected.outcomes:
        return None
    if any(outcome.ends == each.ends and outcome.leaves_the_same(each) for each in expected.outcomes):
        return None
    if troubled and _with_open_ones(
        scenario, outcome, expected, any(is_condition(name) for _, name in run.execution.used)
    ):
        return None
    return "serializable", _difference(outcome, expected)


def _failed_assertion(run: FinishedRun) -> tuple[str, str] | None:
    """The assertion that a client, or a thread of one, has died of; what is raised in one that is dying is none."""
    for name, lane in run.execution.lanes.items():
        if isinstance(lane.error, AssertionError) and not lane.kills:
            return "assertion", f"client {name}: {str(lane.error) or 'assertion failed'}"
    return None


def _tells_of_trouble(error: BaseException) -> bool:
    """Whether an exception is one that a client library raises for a fault, or was raised in answer to one."""
    causes: BaseException | None = error
    while causes is not None:
        if isinstance(causes, (redis_py.RedisError, OSError)):
            return True
        causes = causes.__cause__ or causes.__context__
    return False


def _with_open_ones(scenario: Scenario, outcome: Ending, expected: Serial, is_refused: bool) -> bool:
    """Whether the outcome is that of an order in which clients that trouble ended did all or nothing."""
    numbers = range(len(scenario.clients))
    broken = [
        number
        for number in numbers
        if outcome.ends[number] in _TROUBLED or (is_refused and "ResponseError" in outcome.ends[number])
    ]
    for count in range(len(broken) + 1):
        for left_out in itertools.combinations(broken, count):
            members = tuple(number for number in numbers if number not in left_out)
            if members not in expected.by_members:
                expected.by_members[members] = _outcomes_of(scenario, members)
            for each in expected.by_members[members]:
                same = all(outcome.ends[at] == each.ends[at] for at in numbers if at not in broken)
                if same and outcome.leaves_the_same(each):
                    return True
    return False


def _outcomes_of(scenario: Scenario, members: Sequence[int]) -> set[Ending]:
    def absent() -> None:
        return None

    clients = tuple(function if at in members else absent for at, function in enumerate(scenario.clients))
    return serial(replace(scenario, clients=clients)).outcomes


def _difference(outcome: Ending, expected: Serial) -> str:
    near = min(expected.outcomes, key=lambda each: (len(set(each.keys) ^ set(outcome.keys)), repr(each)))
    text = [f"key {key} is {value}" for key, value in outcome.keys if (key, value) not in near.keys]
    gone = {key for key, _ in near.keys} - {key for key, _ in outcome.keys} - outcome.lapsed
    text += [f"key {key} is missing" for key, _ in near.keys if key in gone]
    if outcome.ends != near.ends:  # all of them: it is their combination that no order has
        text += [
            f"client {number}: {end}"
            for number, end in enumerate(outcome.ends)
            if end != "None" or near.ends[number] != end
        ]
    also = [f"{key} is {value}" for key, value in near.keys if (key, value) not in outcome.keys]
    if not text and not outcome.leaves_the_same(near):
        rows = list(zip(outcome.keys, outcome.deadlines or (), near.deadlines or (), strict=True))
        text = [f"key {key} ends after {ms} ms" for (key, _), ms, other in rows if ms != other]
        also = [f"{key} after {other} ms" for (key, _), ms, other in rows if ms != other]
    if not text:
        text = ["the combination of what clients returned"]
    return (
        "; ".join(text[:4])
        + "; no order one after the other ends so"
        + (f" (one of them: {'; '.join(also[:2])})" if also else "")
    )
