"""What shows only where a store holds many things: errors of a script at length, and calls whose number grows with it.

A script that hands all there is to one call works until that is more than Lua's ``unpack`` can take; one that moves
whatever is due blocks its node for as long as that takes. Every call worth trying is tried once in each of the
contract's crowds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from orderlab.model.contracts.base import Call, Crowd, Discrepancy, Failed
from orderlab.model.contracts.client_steps import OWN_ERROR, Begin, ClientStep, Fault, Wait
from orderlab.model.contracts.sequential import BOUNDED
from orderlab.properties.engine.crowd_sizes import pages_of, sizes_of
from orderlab.properties.engine.run import ContractRun, Report, RunState
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import Shape, texts_in
from orderlab.sim.stores.records import record_of

AT_LENGTH = "counting at length"
"""Of what no single reply shows."""
CALLS_PER_THING = 0.1
"""More Redis calls than this for each further thing, and an operation is not bounded."""


def crowd(make: Callable[[], ContractRun], search: Search) -> None:
    """Try every call in every crowd of the contract, at all of its sizes. Raises BudgetExceeded."""
    pages = pages_of(make().binding)
    for one in make().contract.crowds():
        counts: list[dict[str, int]] = []
        steps: list[ClientStep] = []
        for size in sizes_of(one, pages):
            search.budget.check()
            counts.append(_tried(make(), one, size, search, steps))
        if one.is_asked:
            continue
        (small, large), (few, many) = one.sizes, counts[:2]
        for name in few.keys() & many.keys():
            if many[name] - few[name] > CALLS_PER_THING * (large - small):
                text = (
                    f"{name} makes {many[name]:,} Redis calls with {large:,} {one.name}, and {few[name]:,} with "
                    f"{small:,}"
                )
                search.findings.add([Discrepancy(BOUNDED, text)], search.reruns.trace(steps), AT_LENGTH)


def _tried(run: ContractRun, one: Crowd, size: int, search: Search, way: list[ClientStep]) -> dict[str, int]:
    """The Redis calls of each operation in a crowd of ``size``. What is wrong there, or on the ``way``, is noted."""
    steps: list[ClientStep] = []
    taken = 0

    def perform(step: ClientStep) -> Report:
        nonlocal taken
        taken += 1
        return run.carry_out(step, steps)

    for given in one.steps(size):
        before = run.state
        report = perform(Wait(given) if isinstance(given, int) else Begin(*given))
        if report.violation is not None:
            search.note(steps, report, one.name)
            _note_what_an_error_left(run, before, steps, report, search, one.name)
            return {}
    reached, way[:] = run.state, steps
    counts: dict[str, int] = {}
    for client, calls, apart in _told_apart(run, one.clients):
        for call in apart:
            run.go_to(reached)
            steps[:] = way
            report = perform(Begin(client, call))
            record = record_of(call.name, b"", report.effects)
            counts[call.name] = max(counts.get(call.name, 0), len(record.calls))
            if report.violation is not None:
                search.note(steps, report, one.name)
                if client == 0:
                    _note_what_an_error_left(run, reached, steps, report, search, one.name)
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


def _told_apart(run: ContractRun, clients: int) -> list[tuple[int, list[Call], list[Call]]]:
    """Each client with its calls, and those of them that differ from an earlier client's in more than names: a step
    among many things takes long, and a store does not know who calls."""
    asked, found, known = run.judge.asked, [], set[Hashable]()
    calls = [list(asked.calls(client, run.clients[client].seen)) for client in range(clients)]
    shape = Shape(frozenset(text for some in calls for call in some for text in texts_in(call)), run.judge.now_ms)
    for client, some in enumerate(calls):
        shapes = [
            (call.name, run.skews_ms[client], shape.of(tuple(value for _, value in call.fields))) for call in some
        ]
        found.append((client, some, [call for call, each in zip(some, shapes, strict=True) if each not in known]))
        known.update(shapes)
    return found


def _note_what_an_error_left(
    run: ContractRun, before: RunState, steps: list[ClientStep], report: Report, search: Search, name: str
) -> None:
    """Whether the store is as before or as after an operation that a script's own error ended: what every call sees of
    it."""
    last = steps[-1]
    if not isinstance(report.reply, Failed) or not isinstance(last, Begin):
        return
    stopped = Begin(last.client, last.call, Fault(OWN_ERROR))
    run.go_to(before)
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
