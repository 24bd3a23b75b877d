"""What a witness of a store with a contract of its owner's is made with: reruns, plainer steps, explanation, a
server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orderlab.model.contracts.base import ALL_OR_NOTHING, Call, Contract, Discrepancy, Failed, State, brief
from orderlab.model.contracts.client_steps import (
    OWN_ERROR,
    REPLY_LOST,
    Begin,
    ClientStep,
    ContractTrace,
    Die,
    Resume,
    Wait,
    fault_of,
)
from orderlab.model.contracts.judge import TooManyStates, Violation
from orderlab.properties.engine.crowd_sizes import crowding, pages_of
from orderlab.properties.engine.marking import is_variant
from orderlab.properties.engine.reruns import TakenAgain
from orderlab.properties.engine.run import BESIDE_SERVERS, LIMIT_WORD, ClientState, ContractRun, Report
from orderlab.properties.harness.recording import LuaLine, line_to_look_at, lines_run
from orderlab.properties.witness.shortening import Broken
from orderlab.properties.witness.telling import states_told
from orderlab.properties.witness.witness import Explanation
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed as FailedCall
from orderlab.sim.stores.bound import CpuBudget
from orderlab.sim.stores.records import record_of

Steps = tuple[ClientStep, ...]
CALLS_LEFT_MAX = 4
"""Calls that an operation stopped part-way may have left; one more does nothing."""


class ContractReruns(TakenAgain):
    """Runs steps from the empty store, as often as one likes. ``Reruns`` for traces of a contract."""

    def __init__(
        self, make: Callable[[], ContractRun], also: Iterable[Call] = (), others: Iterable[Binding] = ()
    ) -> None:
        """``also``: calls that clients may make whatever they have seen, beside those of the contract. ``others``:
        the stores that it is compared with, whose pages make crowds as its own do."""
        self._run = make()
        self._start, self._skews_ms = self._run.state, self._run.skews_ms
        self._clients = len(self._run.clients)
        pages = pages_of(self._run.binding, *others)
        self._at_any_time = frozenset((*crowding(self._run.contract, pages), *also))
        self.spent = 0
        self._last: Violation | None = None
        """What the step that was taken last broke."""

    @property
    def binding(self) -> Binding:
        """The store."""
        return self._run.binding

    @property
    def run(self) -> ContractRun:
        """The run, at the empty store."""
        self._run.go_to(self._start)
        return self._run

    @contextmanager
    def clocks_of(self, trace: ContractTrace) -> Iterator[None]:
        """Have clients look at the clocks that they have in ``trace``, and as many of them as it has."""
        if (more := trace.clients - len(self._start.clients)) > 0 and not self._run.watches:
            self._start = self._start._replace(clients=(*self._start.clients, *[ClientState()] * more))
            self._run.connections = []
            self._run.go_to(self._start)
        self._run.set_clocks(trace.skews_ms)
        try:
            yield
        finally:
            self._run.set_clocks(self._skews_ms)

    def trace(self, steps: Sequence[ClientStep], law: str = "", seed: int | None = None) -> ContractTrace:
        """``steps`` as a trace of this store."""
        run = self._run
        kind = type(run.contract).__name__
        clients = max([self._clients, *(step.client + 1 for step in steps if not isinstance(step, Wait))])
        skews_ms = (*run.skews_ms[:clients], *[0] * (clients - len(run.skews_ms)))
        return ContractTrace(tuple(steps), clients, skews_ms, str(run.binding.path), kind, law, seed)

    def taken(self, trace: ContractTrace) -> Iterator[tuple[int, Report]]:
        """As far as the contract has its clients take the steps (none hands in a token that it was never told), and as
        not too much overlaps to be judged."""
        with self.clocks_of(trace):
            yield from self._taken(trace.steps)

    def _taken(self, steps: Sequence[ClientStep]) -> Iterator[tuple[int, Report]]:
        run = self.run
        with suppress(TooManyStates):
            for at, step in enumerate(steps, 1):
                self.spent += weight(step)
                if isinstance(step, Begin) and not self._is_legal(run, step):
                    return
                report = run.perform(step)
                self._last = report.violation
                yield at, report
                if report.diverges:
                    return

    def broken(self, steps: Sequence[ClientStep]) -> tuple[int, list[Discrepancy]] | None:
        """How many steps it takes until no state explains a reply, and what that breaks."""
        return next(((at, report.discrepancies) for at, report in self._taken(steps) if report.diverges), None)

    def law_broken(self, trace: ContractTrace, law: str, words: str = "") -> Broken | None:
        """As of any trace, for the reason that the law says."""
        found = super().law_broken(trace, law, words)
        if found is None:
            return None
        steps, violation = trace.steps[: found[0]], self._last
        with self.clocks_of(trace):
            if law == ALL_OR_NOTHING:
                is_reason = self.is_about_atomicity(steps)
            else:
                is_open = violation is not None and violation.is_open
                is_reason = not is_open or law in self.laws_once_known(steps, violation.laws if violation else ())
        return found if is_reason else None

    def is_another_law(self, trace: ContractTrace, law: str) -> bool:
        """Whether the trace ends with what breaks one of several laws, and it is not this one."""
        return super().law_broken(trace, law) is not None and self.law_broken(trace, law) is None

    def laws_once_known(self, steps: Steps, laws: Collection[str]) -> set[str]:
        """Which of the laws the last step breaks once it is known what became of what was stopped: a reply that was
        lost is heard, anything else is left out, or carried out whole. All of them where none is broken then."""
        part_way, broken = self._stopped_part_way(steps), set[str]()
        heard = tuple(
            replace(step, trouble=None)
            if isinstance(step, Begin | Resume) and step.trouble is not None and at not in part_way
            else step
            for at, step in enumerate(steps)
        )
        without = tuple(step for at, step in enumerate(heard) if at not in part_way)
        whole = tuple(
            replace(step, trouble=None) if at in part_way and isinstance(step, Begin | Resume) else step
            for at, step in enumerate(heard)
        )
        for variant in dict.fromkeys((without, whole)):
            run = self.run
            with suppress(TooManyStates):
                for at, step in enumerate(variant, 1):
                    self.spent += weight(step)
                    report = run.perform(step)
                    if report.diverges:
                        broken |= {each.law for each in report.discrepancies} if at == len(variant) else set()
                        break
        return broken & {*laws} or {*laws}

    def laws_at_the_end(self, trace: ContractTrace) -> tuple[str, ...]:
        """The laws that the last step breaks; none where one before it breaks any."""
        with self.clocks_of(trace):
            broken = self.broken(trace.steps)
        return tuple(one.law for one in broken[1]) if broken is not None and broken[0] == len(trace.steps) else ()

    def takes(self, trace: ContractTrace) -> bool:
        """Whether the contract has its clients take all the steps on this store, up to where one breaks a law."""
        with self.clocks_of(trace), suppress(TooManyStates):
            run = self.run
            for step in trace.steps:
                self.spent += weight(step)
                if isinstance(step, Begin) and not self._is_legal(run, step):
                    return False
                if run.perform(step).violation is not None:
                    break
        return True

    def hands_back(self, trace: ContractTrace) -> frozenset[int]:
        """The steps whose replies the last call hands back, from 0: what a token is of."""
        last = trace.steps[-1]
        if not isinstance(last, Begin):
            return frozenset()
        values = [value for _, value in last.call.fields if value is not None]
        found = set()
        with self.clocks_of(trace), suppress(TooManyStates):
            run = self.run
            for place, step in enumerate(trace.steps[:-1]):
                self.spent += weight(step)
                if run.perform(step).reply in values:
                    found.add(place)
        return frozenset(found)

    def is_about_atomicity(self, steps: Steps) -> bool:
        """Whether what was stopped part-way is to blame: the same steps with each such operation left out, and with
        each carried out whole, are explained. What was carried out whole already, its reply lost, stays in both."""
        stopped = self._stopped_part_way(steps)
        if not stopped:
            return False
        without = tuple(step for at, step in enumerate(steps) if at not in stopped)
        failing = {
            step.call
            for step in steps
            if isinstance(step, Begin) and step.trouble is not None and step.trouble.kind == OWN_ERROR
        }
        if failing:  # they are never carried out whole, whoever sends them
            return self._are_explained(
                _resumed(tuple(one for one in without if not isinstance(one, Begin) or one.call not in failing))
            )
        whole: list[ClientStep] = []
        for at, step in enumerate(steps):
            if at not in stopped or not isinstance(step, Begin | Resume) or step.trouble is None:
                whole.append(step)
            elif step.trouble.kind == REPLY_LOST:  # to one of several calls
                whole += [replace(step, trouble=None), *[Resume(step.client)] * CALLS_LEFT_MAX]
            else:
                whole.append(replace(step, trouble=replace(step.trouble, kind=REPLY_LOST)))
        return self._are_explained(_resumed(tuple(whole))) and self._are_explained(_resumed(without))

    def _stopped_part_way(self, steps: Steps) -> set[int]:
        """Which steps left an operation that may have been stopped between two of its effects."""
        run, found = self.run, set()
        for at, step in enumerate(steps):
            self.spent += weight(step)
            if run.perform(step).is_part_way:
                found.add(at)
        return found

    def _are_explained(self, steps: Steps) -> bool:
        """Whether the contract has its clients take all these steps, and every reply is one that a state explains: of
        what clients would not do there, nothing is known, and nothing where too much overlaps."""
        reports = [report for _, report in self._taken(steps)]
        return len(reports) == len(steps) and not any(report.diverges for report in reports)

    def _is_legal(self, run: ContractRun, step: Begin) -> bool:
        return step.call in self._at_any_time or is_legal(run, step)


MANY = 100
"""Things in the fields of one call that take as long as as many steps."""


def weight(step: ClientStep) -> int:
    """How much a step is to carry out: 1, and more for one with many things in its fields."""
    items = (
        sum(len(value) for _, value in step.call.fields if isinstance(value, tuple)) if isinstance(step, Begin) else 0
    )
    return items if items > MANY else 1


def is_legal(run: ContractRun, step: Begin) -> bool:
    """Whether the contract has the client make this call after what it has seen, with other values in its ranges too,
    or it is sent once more."""
    if step.call == run.repeated(step.client):
        return True
    calls = list(run.judge.asked.calls(step.client, run.clients[step.client].seen))
    return step.call in calls or any(is_variant(run.contract, step.call, each) for each in calls)


def _resumed(steps: Steps) -> Steps:
    """With every operation that was left in the middle carried on to its end in place of its client's death."""
    found: list[ClientStep] = []
    for step in steps:
        found += [Resume(step.client)] * CALLS_LEFT_MAX if isinstance(step, Die) else [step]
    return tuple(found)


class PlainerCalls:
    """``Plainer`` for traces of a contract."""

    def at_first(self, trace: ContractTrace) -> Iterator[ContractTrace]:
        """All clocks agree."""
        if any(trace.skews_ms):
            yield replace(trace, skews_ms=())

    def whole(self, trace: ContractTrace) -> Iterator[ContractTrace]:
        """Without two steps that follow each other; all of another client's steps taken by the first."""
        steps = trace.steps
        for at in range(len(steps) - 1):
            yield replace(trace, steps=steps[:at] + steps[at + 2 :])
        for client in sorted({step.client for step in steps if not isinstance(step, Wait)} - {0}):
            moved = (
                replace(step, client=0) if not isinstance(step, Wait) and step.client == client else step
                for step in steps
            )
            yield replace(trace, steps=tuple(moved))

    def at(self, trace: ContractTrace, index: int) -> Iterator[ContractTrace]:
        """One step without its trouble, by the first client; waits that are one, and rounder."""
        steps, step = trace.steps, trace.steps[index]
        instead: list[ClientStep] = []
        if isinstance(step, Wait):
            if index and isinstance(earlier := steps[index - 1], Wait):
                yield replace(trace, steps=(*steps[: index - 1], Wait(earlier.ms + step.ms), *steps[index + 1 :]))
            instead += [Wait(ms) for ms in (1, 10, 100, 1000) if ms < step.ms]
        else:
            if isinstance(step, Begin | Resume) and step.trouble is not None:
                instead.append(replace(step, trouble=None))
            if step.client:
                instead.append(replace(step, client=0))
        for plainer in instead:
            yield replace(trace, steps=(*steps[:index], plainer, *steps[index + 1 :]))

    def in_the_end(self, trace: ContractTrace) -> Iterator[ContractTrace]:
        """Nothing: clients and calls have the names that the contract gives."""
        return iter(())


def told_report(step: ClientStep, report: Report) -> str:
    """What a step did, in words."""
    if isinstance(step, Wait):
        return ""
    if report.is_idle:
        return (
            "nothing: another operation is under way"
            if isinstance(step, Begin)
            else "nothing: no operation is under way"
        )
    if report.stopped:
        return f"stopped: {report.stopped}"
    if not report.is_over:
        return "waits" if report.waits else "more calls to come"
    return f"replied {report.reply if isinstance(report.reply, Failed) else brief(report.reply)}"


TOLD_AT_ENDS = 30
"""Steps at either end of a witness whose states and keys are noted."""


def explain(reruns: ContractReruns, trace: ContractTrace) -> Explanation:
    """Run a witness once more and take notes."""
    with reruns.clocks_of(trace):
        return _explained(reruns, trace)


def _explained(reruns: ContractReruns, trace: ContractTrace) -> Explanation:
    run = reruns.run
    told: list[str] = []
    states: list[str] = []
    known: list[State] = []
    ran: list[tuple[tuple[Path, int], ...]] = []
    keyspaces: list[FrozenKeyspace | None] = []
    before: FrozenKeyspace = run.backend.keyspace()
    report, operation = Report(), ""
    pending: dict[int, str] = {}
    served, serving = dict.fromkeys(range(len(run.clients)), run.binding), run.binding
    for at, step in enumerate(trace.steps):
        is_told = min(at, len(trace.steps) - 1 - at) < TOLD_AT_ENDS
        before = run.backend.keyspace() if is_told else before
        report = run.perform(step)
        if isinstance(step, Begin):
            pending[step.client], served[step.client] = step.call.name, run.served(step.served_by)
        if isinstance(step, Begin | Resume):
            operation, serving = pending[step.client], served[step.client]
        told.append(told_report(step, report))
        ran.append(lines_run(serving, [record_of(operation, b"", report.effects)]) if report.effects else ())
        if not is_told:  # what hundreds of things look like after each of hundreds of steps nobody reads
            states.append(states[-1])
            keyspaces.append(None)
            continue
        explaining = list(run.judge.states())
        if report.violation is not None:
            states.append("none explains the reply")
        elif states and set(explaining) == set(known):
            states.append(states[-1])
        else:
            states.append(states_told(known, explaining))
        known = explaining
        keyspaces.append(run.backend.keyspace())
    failed = FailedCall(report.reply.text.encode()) if isinstance(report.reply, Failed) else None
    records = [record_of(operation, b"", report.effects)] if report.effects else []
    lua = line_to_look_at(records, serving, failed) if operation else LuaLine()
    exhausts = report.violation is not None and LIMIT_WORD in report.violation.text
    error = report.reply.text if report.violation is not None and isinstance(report.reply, Failed) else ""
    return Explanation(
        tuple(told), tuple(states), before, run.backend.keyspace(), lua, exhausts, error, tuple(keyspaces), tuple(ran)
    )


SLEPT_MS_MAX = 5_000
"""All waits of a trace together, up to which time passes on a server by waiting; what takes longer brings deadlines of
keys nearer."""


def passes_by_waiting(trace: ContractTrace, backend: Backend) -> bool:
    """Whether a replay really waits, so that scripts that read the clock see the time pass."""
    return (
        not backend.sees_virtual_time and sum(step.ms for step in trace.steps if isinstance(step, Wait)) <= SLEPT_MS_MAX
    )


@dataclass(frozen=True)
class ContractPerformer:
    """``Performer`` for stores with a contract."""

    binding: Binding
    contract: Contract

    def cannot(self, trace: ContractTrace) -> str:
        """Which trouble a server is not brought into."""
        kinds = [fault.kind for step in trace.steps if (fault := fault_of(step)) is not None]
        troubled = next((kind for kind in kinds if kind not in BESIDE_SERVERS), None)
        return "" if troubled is None else f"a server is not brought into {troubled} here"

    def broken_on(self, trace: ContractTrace, backend: Backend, budget: CpuBudget) -> frozenset[str]:
        """What the last step breaks there; nothing if an earlier one breaks a law. Raises BudgetExceeded."""
        backend.flush()
        run = ContractRun(
            self.binding,
            self.contract,
            backend,
            trace.clients,
            trace.skews_ms,
            sleeps=passes_by_waiting(trace, backend),
        )
        try:
            for number, step in enumerate(trace.steps, 1):
                budget.check()
                found = run.perform(step).discrepancies
                if found:
                    return frozenset(one.law for one in found) if number == len(trace.steps) else frozenset()
        except TooManyStates:  # so much happened while the server's clock went on that nothing can be said
            return frozenset()
        finally:
            run.hang_up()
            backend.flush()
        return frozenset()

    def waits(self, trace: ContractTrace) -> bool:
        """Whether time passes in it."""
        return any(isinstance(step, Wait) for step in trace.steps)
