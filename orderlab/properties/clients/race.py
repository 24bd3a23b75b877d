"""A scenario judged: serial orders, then every order of steps, then those with trouble; a witness made short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orderlab.model.contracts.base import SPECIFICATION
from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.verdict import Outcome as Decision
from orderlab.properties.clients.execution import POLLS_MAX
from orderlab.properties.clients.lane import Choice, LaneStep, Unstable
from orderlab.properties.clients.oracle import Serial, judged, serial
from orderlab.properties.clients.orders import (
    CHECKED_EVERY,
    EFFORTS,
    OrderSearch,
    SearchWork,
    by_priorities,
    following,
    switches,
    walk,
)
from orderlab.properties.clients.runs import FinishedRun, carried_out, controlled, state_of
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.troubles import ALL_TROUBLES, LATE, LATE_MAX, TROUBLES
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.versions import DEFAULT, ServerVersion

Faults = tuple[str, ...]
MORE_POLLS: Final = (24, 96)
"""How often a client may ask the same before another moves, where asking ``POLLS_MAX`` times was not all that it did:
one that gives up after some tries has other orders than one that asks for ever."""
PREEMPTIONS: Final = (1, 2, 3)
"""Bounds that are tried where not every order can be."""


@dataclass(frozen=True)
class RaceVerdict:
    """What was decided about one scenario. ``how_far``: what was exhausted, and what was not, in one line."""

    scenario: str
    outcome: Decision
    law: str
    what: str
    how_far: str
    steps: tuple[LaneStep, ...]
    choices: tuple[Choice, ...]
    executions: int
    orders: int
    laws: tuple[str, ...] = ()
    """Those that were judged."""
    statements: Mapping[str, str] = field(default_factory=dict)
    """Those of a contract, in words."""
    server: ServerVersion = DEFAULT
    """The server that clients called."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "scenario": self.scenario,
            "server": self.server.name,
            "outcome": str(self.outcome),
            "law": self.law,
            "what": self.what,
            "how_far": self.how_far,
            "executions": self.executions,
            "orders": self.orders,
            "schedule": [list(choice) for choice in self.choices],
            "steps": [
                {
                    "client": step.lane,
                    "trouble": step.trouble,
                    "does": told_step(step),
                    "reply": told_reply(step),
                    "ms": step.now_ms,
                    "line": step.line,
                    "beneath": step.beneath,
                    "before": shown_keyspace(step.before),
                    "after": shown_keyspace(step.after),
                }
                for step in self.steps
            ],
        }


IDLE_SHOWN: Final = 4
"""Of the steps in a row that change nothing before an execution is given up: how many of each client are shown."""
REPLY_SHOWN: Final = 160
"""Characters of a reply that a schedule shows."""
STATEMENTS: Final = {
    "serializable": "what clients return and leave behind is that of some order of whole clients, one after the other",
    "no-deadlock": "no client waits for ever",
    "no-foreign-exception": "no client dies of an exception that it raises in no order one after the other",
    "assertion": "no assertion of a client fails",
    "at-most-once": "what may be done once is not done twice",
    "no-loss": "what was produced is consumed",
    "finally": "what is asked at the end is so",
    SPECIFICATION: "every reply is one that the contract allows",
    "always": "what is asked after every step is so",
}
"""Laws of client code, in words."""


def statement_of(law: str, known: Mapping[str, str]) -> str:
    """A law in words; ``at-most-2`` is one of a section that marks name."""
    return known.get(law) or STATEMENTS.get(
        law, f"{law.replace('-', ' ')} clients are within a section that marks name"
    )


def _laws_of(scenario: Scenario, expected: Serial) -> tuple[str, ...]:
    wanted = scenario.serial if scenario.serial is not None else not expected.uses_marks
    return (*(["serializable"] if wanted else []), "no-deadlock", "no-foreign-exception", *sorted(expected.marked))


def told_step(step: LaneStep) -> str:
    """What a step does, in the words of redis-cli."""
    if step.kind == "command":
        commands = step.what if step.what and isinstance(step.what[0], tuple) else (step.what,)
        return "; ".join(" ".join(_word(argument) for argument in command) for command in commands)
    if step.what == LATE:
        return "comes late"
    return (
        f"sleeps {step.what:g} s" if isinstance(step.what, (int, float)) else f"{step.kind} {step.what or ''}".strip()
    )


def told_reply(step: LaneStep) -> str:
    """What a command was answered; of one that waits, that it does."""
    if step.kind != "command":
        return ""
    text = "waits" if isinstance(step.reply, Waiting) else repr(step.reply)
    return text if len(text) <= REPLY_SHOWN else f"{text[:REPLY_SHOWN]}..."


def lines_of(verdict: RaceVerdict, with_keys: bool = False) -> Iterator[str]:
    """What is told of a verdict: the law, how far the search went, the schedule; the keys after each step if wanted."""
    yield f"{verdict.scenario}: {verdict.outcome}" + (f" ({verdict.law})" if verdict.law else "")
    if verdict.law:
        yield f"  {verdict.what}"
    yield f"  {verdict.how_far}"
    yield from (f"  assumed: {each}" for each in verdict.server.assumed())
    for number, step in enumerate(shown_steps(verdict), 1):
        trouble = f" [{step.trouble}]" if step.trouble else ""
        reply = f" -> {told_reply(step)}" if step.kind == "command" else ""
        place = step.line and Path(step.line).name
        yield f"  {number:3}. client {step.lane}{trouble}: {told_step(step)}{reply}   {place}"
        if with_keys and step.before != step.after:
            for key, value in shown_keyspace(step.after).items():
                yield f"       {key} = {value}"


def shown_steps(verdict: RaceVerdict) -> list[LaneStep]:
    """The steps of its schedule that are told, numbered from 1."""
    return [step for step in verdict.steps if step.kind != "start" and step.trouble != LATE]


def schedule_of(verdict: RaceVerdict) -> str:
    """Its steps as ``--schedule`` takes them."""
    return ",".join(lane + (f"!{fault}" if fault else "") for lane, fault in verdict.choices)


def _word(argument: bytes) -> str:
    text = argument.decode(errors="replace").replace("\n", "\\n")
    text = text if len(text) <= 60 else text[:57] + "..."
    return text if text and " " not in text else f"'{text}'"


def race(
    scenario: Scenario, effort: str = "normal", trouble: int = 0, seed: int = 0, faults: Sequence[str] = ()
) -> RaceVerdict:
    """Judge one scenario. ``faults``: those that may strike; empty: the usual ones. Raises InputError."""
    for fault in faults:
        if fault not in ALL_TROUBLES:
            raise InputError(f"fault {fault}: unknown; {did_you_mean(fault, tuple(ALL_TROUBLES))}")
    with controlled():
        verdict = _race(scenario, EFFORTS[effort], trouble, seed, tuple(faults or TROUBLES))
    verdict = replace(verdict, server=scenario.server or DEFAULT)
    if scenario.contract is None:
        return verdict
    return replace(verdict, statements={law.name: law.statement for law in scenario.contract.laws})


def replayed(scenario: Scenario, schedule: str) -> RaceVerdict:
    """Make the steps of a schedule again, and judge what comes of it.

    ``schedule``: names of lanes between commas, a fault behind an exclamation mark: ``0,1,0.1!reply-lost``. Steps after
    its last one are made as they come. Raises InputError where a step cannot be made.
    """
    choices: list[Choice] = []
    for word in schedule.split(",") if schedule else ():
        name, _, fault = word.strip().partition("!")
        if not name or (fault and fault not in (*ALL_TROUBLES, LATE)):
            known = did_you_mean(fault, tuple(ALL_TROUBLES)) if fault else "write 0,1,0!reply-lost"
            raise InputError(f"--schedule: {word!r} is no step; {known}")
        if name.partition(".")[0] not in map(str, range(len(scenario.clients))):
            clients = f"its clients are 0 to {len(scenario.clients) - 1}"
            raise InputError(f"--schedule: {word!r} is no step of {scenario.name}; {clients}")
        choices.append((name, fault))
    budget = sum(bool(fault) for _, fault in choices)
    with controlled():
        expected = serial(scenario)
        try:
            run = carried_out(
                scenario, lambda _, enabled: enabled[0], tuple(ALL_TROUBLES), budget, choices, recording=True
            )
        except Unstable as error:
            raise InputError(
                f"{scenario.name}: --schedule: {error}; the scenario or what is beneath it has changed"
            ) from None
        law = judged(scenario, run, expected)
    return RaceVerdict(
        scenario.name, Decision.VIOLATED if law else Decision.HOLDS, *(law or ("", "")), "one schedule, made again",
        _without_idle_ones(run), tuple(run.execution.choices), 1, 1, _laws_of(scenario, expected),
        server=scenario.server or DEFAULT,
    )  # fmt: skip


def _race(scenario: Scenario, executions_max: int, trouble: int, seed: int, faults: Faults) -> RaceVerdict:
    expected = serial(scenario)
    if expected.violation is not None:
        return _violated(scenario, expected.violation, expected, SearchWork(), 0, faults)
    _check_usable(scenario, expected)
    works: list[tuple[int, SearchWork]] = []
    for budget in range(trouble + 1):
        for search in _searches(scenario, executions_max, faults, budget):
            if len(works) == budget:
                works.append((budget, search.work))
            try:
                for run in search.runs():
                    if judged(scenario, run, expected) is not None:
                        _check_twice(scenario, run, budget, faults)
                        return _violated(scenario, run, expected, search.work, budget, faults)
                    if search.work.executions % CHECKED_EVERY == 1:
                        _run_again(scenario, run, budget, faults)
            except Unstable as error:
                return _undecided(
                    scenario, expected, works, f"uncontrolled: the same order went otherwise when run again ({error})"
                )
            if search.work.is_exhausted:
                works[budget] = budget, search.work
        work = works[budget][1]
        if not work.is_exhausted:
            for run in _sampled(scenario, work, executions_max, budget, seed, faults):
                if judged(scenario, run, expected) is not None:
                    return _violated(scenario, run, expected, work, budget, faults)
            return _undecided(scenario, expected, works, "")
    works_told = _how_far(scenario, works)
    if not any(work.steps for _, work in works):
        raise InputError(
            f"{scenario.name}: no client asks Redis anything, sleeps or waits; call, await or iterate what it makes"
        )
    if not (expected.uses_marks or expected.outcomes):
        return _undecided(scenario, expected, works, "no order one after the other comes to an end, and no mark is set")
    return RaceVerdict(
        scenario.name, Decision.HOLDS, "", "", works_told, (), (), *_counted(works), _laws_of(scenario, expected)
    )


def _searches(scenario: Scenario, executions_max: int, faults: Faults, budget: int) -> Iterator[OrderSearch]:
    """A search of all orders, and further ones while a client that asks the same was cut off in the one before."""
    left = executions_max
    for polls_max in (POLLS_MAX, *MORE_POLLS):
        search = OrderSearch(scenario, left, faults, budget, polls_max=polls_max)
        yield search
        left -= search.work.spent
        if not (search.work.is_exhausted and search.work.polls_cut and left > 0):
            return


def _sampled(
    scenario: Scenario, work: SearchWork, executions_max: int, budget: int, seed: int, faults: Faults
) -> Iterator[FinishedRun]:
    """Of orders that are too many: all with few preemptions, as far as that goes; then some by draws."""
    for bound in PREEMPTIONS:
        search = OrderSearch(scenario, executions_max // 4, faults, budget, reduction=False, preemptions=bound)
        for run in search.runs():
            work.executions += 1
            yield run
        if not search.work.is_exhausted:
            break
        work.preemptions = bound
    length = max(work.steps // max(work.executions, 1), 1)
    draws = SearchWork()
    while draws.spent < executions_max // 10:
        number = draws.executions
        drawn = seed * 1_000_003 + number
        run = carried_out(scenario, by_priorities(drawn, length) if number % 2 else walk(drawn), faults, budget)
        draws.executions += 1
        draws.steps += len(run.execution.choices)
        work.executions += 1
        yield run


def _check_usable(scenario: Scenario, expected: Serial) -> None:
    if scenario.contract is not None and SPECIFICATION not in expected.marked:
        kind = type(scenario.contract).__name__
        raise InputError(f"{scenario.name}: oracle: no client calls an operation of {kind}; call it by at.does")
    if expected.outcomes and all(all(end.startswith("raised") for end in each.ends) for each in expected.outcomes):
        run = carried_out(scenario, lambda _, enabled: enabled[0])
        errors = [lane.error for lane in run.execution.lanes.values() if lane.error is not None]
        text = f"{type(errors[0]).__name__}: {errors[0]}" if errors else "an exception"
        raise InputError(f"{scenario.name}: every client dies, one after the other too ({text}); correct the scenario")


def _again(scenario: Scenario, run: FinishedRun, budget: int, faults: Faults, recording: bool = False) -> FinishedRun:
    chooser, polls_max = following(run.execution.choices), run.execution.polls_max
    return carried_out(scenario, chooser, faults, budget, recording=recording, polls_max=polls_max)


def _run_again(scenario: Scenario, run: FinishedRun, budget: int, faults: Faults) -> None:
    """Check determinism. Raises Unstable."""
    again = _again(scenario, run, budget, faults)
    if again.outcome != run.outcome or again.execution.choices != run.execution.choices:
        pairs = zip(run.execution.choices, again.execution.choices, strict=False)
        at = next((at for at, (first, second) in enumerate(pairs) if first != second), len(again.execution.choices))
        raise Unstable(f"step {at + 1} differs")


def _check_twice(scenario: Scenario, run: FinishedRun, budget: int, faults: Faults) -> None:
    """See that a run which breaks a law breaks it again, beside serial orders that are made anew. Raises Unstable."""
    again = _again(scenario, run, budget, faults)
    if judged(scenario, again, serial(scenario)) is None:
        raise Unstable("a law was broken, and was not when the clients were run again")


def _violated(
    scenario: Scenario, run: FinishedRun, expected: Serial, work: SearchWork, budget: int, faults: Faults
) -> RaceVerdict:
    law = judged(scenario, run, expected)
    assert law is not None
    best = run
    if work.executions:
        best = _shorter(scenario, run, expected, law[0], budget, faults)
    shown = _again(scenario, best, budget, faults, recording=True)
    text = judged(scenario, shown, expected) or law
    return RaceVerdict(
        scenario.name, Decision.VIOLATED, *text,
        f"found in {work.executions:,} executions" if work.executions else "one client after the other",
        _without_idle_ones(shown), tuple(shown.execution.choices), work.executions, work.orders,
        _laws_of(scenario, expected),
    )  # fmt: skip


def _without_idle_ones(run: FinishedRun) -> tuple[LaneStep, ...]:
    """Its steps; where no client got on at the end, only the first in which each asks in vain."""
    steps = tuple(run.execution.steps)
    if not run.execution.is_stuck:
        return steps
    last = max((at for at, step in enumerate(steps) if step.before != step.after or step.trouble), default=-1)
    shown: Counter[str] = Counter()
    kept = []
    for step in steps[last + 1 :]:
        shown[step.lane] += 1
        kept += [step] if shown[step.lane] <= IDLE_SHOWN else []
    return (*steps[: last + 1], *kept)


def _shorter(
    scenario: Scenario, run: FinishedRun, expected: Serial, law: str, budget: int, faults: Faults
) -> FinishedRun:
    """The run with the fewest changes of lanes that breaks the same law, among those that a small search meets."""
    best = run
    search = OrderSearch(scenario, 500, faults, budget)
    for other in search.runs():
        gathered = judged(scenario, other, expected)
        if gathered is not None and gathered[0] == law and _length(other) < _length(best):
            best = other
    return best


def _length(run: FinishedRun) -> tuple[int, int, int]:
    choices: Sequence[Choice] = run.execution.choices
    return sum(bool(trouble) for _, trouble in choices), switches(choices), len(choices)


def _undecided(scenario: Scenario, expected: Serial, works: Sequence[tuple[int, SearchWork]], why: str) -> RaceVerdict:
    text = _how_far(scenario, works) + (f"; {why}" if why else "")
    return RaceVerdict(
        scenario.name, Decision.UNKNOWN, "", why, text, (), (), *_counted(works), _laws_of(scenario, expected)
    )


def _counted(works: Sequence[tuple[int, SearchWork]]) -> tuple[int, int]:
    return sum(work.executions for _, work in works), sum(work.orders for _, work in works)


def _how_far(scenario: Scenario, works: Sequence[tuple[int, SearchWork]]) -> str:
    clients = f"{len(scenario.clients)} clients" if len(scenario.clients) > 1 else "1 client"
    parts = []
    for budget, work in works:
        trouble = f", {budget} trouble" if budget else ""
        if work.is_exhausted:
            parts.append(f"all {work.orders:,} orders that differ of {clients}{trouble}")
        else:
            cut = f" (cut off: {', '.join(sorted(work.cuts))})" if work.cuts else ""
            bound = f", and all with at most {work.preemptions} preemptions" if work.preemptions >= 0 else ""
            parts.append(f"not exhausted: {work.orders:,} orders of {clients}{trouble}{cut}{bound}")
        if work.polls_cut:
            often = f"more than {work.polls_max} times before another moves"
            parts.append(f"not visited: orders in which a client asks the same {often}")
        if work.late_cut:
            parts.append(f"not visited: orders in which a client begins after {LATE_MAX + 1} or more pauses of others")
    state = state_of(scenario)
    state.put_back()
    if state.changed and len(scenario.clients) > 1:
        parts.append(f"clients share {', '.join(sorted(state.changed)[:3])}, as threads do and processes do not")
    return "; ".join(parts)
