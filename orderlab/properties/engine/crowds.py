"""What shows only where a store holds many things: errors of a script at length, calls and instructions whose number
grows with it.

A script that hands all there is to one call works until that is more than Lua's ``unpack`` can take; one that moves
whatever is due blocks its node for as long as that takes. Every call worth trying is tried once in each of the
contract's crowds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Set
from contextlib import nullcontext
from itertools import pairwise
from typing import NamedTuple

from orderlab.model.contracts.base import Call, Crowd, Discrepancy, Failed, Reply
from orderlab.model.contracts.client_steps import OWN_ERROR, Begin, ClientStep, Fault, Wait
from orderlab.model.contracts.judge import Judge, Violation
from orderlab.model.contracts.sequential import BOUNDED
from orderlab.properties.engine.crowd_sizes import pages_of, sizes_of
from orderlab.properties.engine.run import ContractRun, Report, RunState
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import Shape, texts_in, texts_of
from orderlab.sim.stores.records import record_of

AT_LENGTH = "counting at length"
"""Of what no single reply shows."""
CALLS_PER_THING = 0.1
"""More Redis calls than this for each further thing, and an operation is not bounded."""
INSTRUCTIONS_PER_THING = 2
"""Of Lua: what a loop takes at least for each thing that it goes through; and half as many for each further thing as
there were for each of the few. What ends after so many pages would look like growth where there are not many more."""
UNPACKED_MAX = 8_100
"""More things than Lua's ``unpack`` can hand to one call."""
MANY_MORE = 10
"""Times as many things, from which on instructions are compared."""


class WorkDone(NamedTuple):
    """The most that a call of one operation did."""

    calls: int = 0
    arguments: int = 0
    """Of the call of a script that has most."""
    instructions: int = 0
    """Of Lua; 0 where its script was not run anew."""
    told: int = 0
    """Length of the reply in words: what is told of each thing takes its instructions."""

    def most(self, other: WorkDone) -> WorkDone:
        """The larger of each."""
        return WorkDone(*map(max, self, other))


class Credulous(Judge):
    """Takes every reply for right, and the contract's state for what it was: a state of so many things takes longer
    than the store itself."""

    def begin(self, number: int, call: Call) -> None:
        pass

    def finish(self, number: int, reply: Reply) -> Violation | None:
        return None


def crowd(make: Callable[[], ContractRun], search: Search, counts_lua: bool = False) -> None:
    """Try every call in every crowd of the contract, at all of its sizes; ``counts_lua``: and count the instructions
    of scripts, which takes as long again. Raises BudgetExceeded."""
    pages, failed = pages_of(make().binding), set[str]()
    for one in make().contract.crowds():
        counts: list[dict[str, WorkDone]] = []
        steps: list[ClientStep] = []
        sizes = sizes_of(one, pages)
        for size in sizes:
            search.budget.check()
            counts.append(_tried(make(), one, size, search, steps, counts_lua))
        if one.is_asked:
            continue
        common = counts[0].keys() & counts[1].keys()
        further = one.sizes[1] - one.sizes[0]
        growing = {name for name in common if counts[1][name].arguments - counts[0][name].arguments >= further}
        if growing - failed and max(sizes) < UNPACKED_MAX:
            for name, text in _failing(make(), one, growing - failed):
                failed.add(name)
                search.findings.add([Discrepancy(BOUNDED, text)], search.reruns.trace(steps), AT_LENGTH)
        for name in common:
            if text := _growth(one.name, sizes, [each[name] for each in counts if name in each]):
                found = [Discrepancy(BOUNDED, f"{name} {text}")]
                search.findings.add(found, search.reruns.trace(steps), AT_LENGTH)


def _growth(name: str, sizes: tuple[int, ...], work: list[WorkDone]) -> str:
    """What grows with the size of a crowd, in words. What Lua does has to grow past the largest page, too."""
    (small, large, *_), (few, many, *_) = sizes, work
    if many.calls - few.calls > CALLS_PER_THING * (large - small):
        return f"makes {many.calls:,} Redis calls with {large:,} {name}, and {few.calls:,} with {small:,}"
    each = max(INSTRUCTIONS_PER_THING, few.instructions / small / 2)
    is_growing = few.instructions and large >= MANY_MORE * small and len(work) == len(sizes)
    if is_growing and all(
        more.instructions - less.instructions >= each * (further - size) and more.told - less.told < further - size
        for (size, less), (further, more) in pairwise(zip(sizes, work, strict=True))
    ):
        most = f"takes {many.instructions:,} Lua instructions with {large:,} {name}"
        return f"{most}, and {few.instructions:,} with {small:,}"
    return ""


def _tried(
    run: ContractRun, one: Crowd, size: int, search: Search, way: list[ClientStep], counts_lua: bool
) -> dict[str, WorkDone]:
    """The work of each operation in a crowd of ``size``. What is wrong there, or on the ``way``, is noted."""
    steps: list[ClientStep] = []
    start, taken = run.state, 0

    def perform(step: ClientStep) -> Report:
        nonlocal taken
        taken += 1
        return run.carry_out(step, steps)

    for given in one.steps(size):
        report = perform(Wait(given) if isinstance(given, int) else Begin(*given))
        if report.violation is not None:
            search.note(steps, report, one.name)
            # Gone to again from the start: to keep where it was before each of so many steps takes longer.
            _note_what_an_error_left(run, lambda: _after(run, start, steps[:-1]), steps, report, search, one.name)
            return {}
    reached, way[:] = run.state, steps
    counts: dict[str, WorkDone] = {}
    for client, calls, apart in _told_apart(run, one.clients):
        for call in apart:
            run.go_to(reached)
            steps[:] = way
            with run.backend.measuring() if counts_lua else nullcontext(lambda: (0, 0)) as work:
                report = perform(Begin(client, call))
                instructions, _ = work()
            if instructions > INSTRUCTIONS_PER_THING * size:
                instructions = _once_more(run, Begin(client, call)) or instructions
            inner = record_of(call.name, b"", report.effects).calls
            most = max((len(effect.argv) for effect in inner if effect.line is not None), default=0)
            made = WorkDone(len(inner), most, instructions, len(repr(report.reply)))
            counts[call.name] = made.most(counts.get(call.name, WorkDone()))
            if report.violation is not None:
                search.note(steps, report, one.name)
                if client == 0:
                    _note_what_an_error_left(run, lambda: reached, steps, report, search, one.name)
                continue
            # Whoever asks again asks on from what the reply told: a reader after its new marker.
            asked_on = (each for each in run.judge.asked.calls(client, run.clients[client].seen) if each not in calls)
            again = next((each for each in asked_on if each.name == call.name), None)
            if again is not None and report.is_over:
                report = perform(Begin(client, again))
                if report.violation is not None:
                    search.note(steps, report, one.name)
    search.count_tests(run, taken)
    return counts


def _failing(run: ContractRun, one: Crowd, names: Set[str]) -> Iterator[tuple[str, str]]:
    """Which of these operations, that hand each thing to one call, fail where there are more than a call can take."""
    run.judge = Credulous(run.contract, run.backend.now_ms)
    for given in one.steps(UNPACKED_MAX):
        run.carry_out(Wait(given) if isinstance(given, int) else Begin(*given))
    reached = run.state
    for call in run.judge.asked.calls(0, run.clients[0].seen):
        if call.name in names:
            run.go_to(reached)
            reply = run.carry_out(Begin(0, call)).reply
            if isinstance(reply, Failed):
                yield call.name, f"{call.name} fails with {UNPACKED_MAX:,} {one.name}: {reply}"


def _once_more(run: ContractRun, step: Begin) -> int:
    """The instructions of the same call made again: what it has cleared on its way is paid once. 0 where it changed
    nothing, so that its script is not run anew."""
    after = run.state
    with run.backend.measuring() as work:
        run.perform(step)
        instructions, _ = work()
    run.go_to(after)
    return instructions


def _told_apart(run: ContractRun, clients: int) -> list[tuple[int, list[Call], list[Call]]]:
    """Each client with its calls, and those of them that differ from an earlier client's in more than names: a step
    among many things takes long, and a store does not know who calls. What a client was told is no name that it made
    up."""
    asked, found, known = run.judge.asked, [], set[Hashable]()
    calls = [list(asked.calls(client, run.clients[client].seen)) for client in range(clients)]
    shape = Shape(frozenset(text for some in calls for call in some for text in texts_in(call)), run.judge.now_ms)
    for client, some in enumerate(calls):
        heard = {text for exchange in run.clients[client].seen for text in texts_of(exchange.reply)}
        shapes = [
            (
                call.name,
                run.skews_ms[client],
                shape.of(tuple(value for _, value in call.fields)),
                tuple(text in heard for text in texts_in(call)),
            )
            for call in some
        ]
        found.append((client, some, [call for call, each in zip(some, shapes, strict=True) if each not in known]))
        known.update(shapes)
    return found


def _after(run: ContractRun, start: RunState, steps: list[ClientStep]) -> RunState:
    """Where the steps lead from ``start``."""
    run.go_to(start)
    for step in steps:
        run.perform(step)
    return run.state


def _note_what_an_error_left(
    run: ContractRun,
    before: Callable[[], RunState],
    steps: list[ClientStep],
    report: Report,
    search: Search,
    name: str,
) -> None:
    """Whether the store is as before or as after an operation that a script's own error ended: what every call sees of
    it."""
    last = steps[-1]
    if not isinstance(report.reply, Failed) or not isinstance(last, Begin):
        return
    stopped = Begin(last.client, last.call, Fault(OWN_ERROR))
    run.go_to(before())
    if not run.perform(stopped).stopped:
        return
    again = Begin(last.client, last.call)
    ways: list[tuple[ClientStep, ...]] = [(*steps[:-1], stopped)]
    states = [run.state]
    if not isinstance(run.perform(again).reply, Failed):  # sent once more, as its client may
        ways.append((*ways[0], again))
        states.append(run.state)
    for way, after in zip(ways, states, strict=True):
        for client in range(2):
            run.go_to(after)
            for call in run.judge.asked.calls(client, run.clients[client].seen):
                run.go_to(after)
                found = run.perform(Begin(client, call))
                if found.violation is not None:
                    search.note((*way, Begin(client, call)), found, name)
