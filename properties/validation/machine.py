"""Analysis (b): the Hypothesis machine on the scripts as they are, with all 65,535 packet identifiers.

Half of the examples begin with an empty store; the other half just before the wrap, with old messages still waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from model.refinement import Discrepancy
from model.trace import Acknowledge, Fetch, Pass, Publication, Release, Save, Settle, Step
from properties.machines.session import SessionMachine
from properties.machines.tally import tally_of
from properties.validation.findings import Findings
from properties.validation.subject import CLIENTS, Prepared, Subject
from properties.validation.taking_steps import fitted_step, take_steps
from sim.binding.results import Failed
from sim.deadline import OutOfTime
from sim.session_run import SessionRun

STEPS_PER_EXAMPLE = 30
EXAMPLES_AT_ONCE = 10
"""Examples between two looks at the clock."""
SMALLEST_PASSING = 50
"""Messages in a save below which it takes too long to have all identifiers pass."""
WAITING = tuple(Publication(label, b"<%d>waiting" % label, b"t", 1 + label % 2, 864_000_000) for label in (1, 2, 3))


def near_the_wrap(subject: Subject) -> tuple[Step, ...]:
    """Three messages wait, one of them sent, while nearly all other identifiers pass."""
    passing = subject.binding.modulus - len(WAITING) - 3
    return (Save(WAITING, limit=subject.store.limit), Fetch(count=1), Pass(passing, by_expiry=True))


ACROSS_THE_WRAP: tuple[Step, ...] = (
    *(Save((Publication(label, b"<%d>across" % label, qos=1 + label % 2),), limit=100) for label in range(11, 15)),
    *(Fetch(), Release(11), Acknowledge(12), Acknowledge(1), Fetch(count=2)),
    Save(tuple(Publication(label, b"<%d>across" % label) for label in range(15, 19)), limit=100),
    *(Fetch(), Acknowledge(14), Save((Publication(19, b"<19>across"),), limit=3), Fetch()),
)
"""Steps from near the wrap that take the counter round, past messages that wait."""


COME_AND_GO: tuple[Step, ...] = (Save((Publication(1, b"<1>payload"),), limit=100), Fetch(), Acknowledge(1), Settle())
"""What grows with each message shows at full scale only: a small world has no more identifiers than a handful."""


def cross_the_wrap(place: Prepared, findings: Findings) -> None:
    """Once, whatever the time: no example has to come by."""
    _take_once(place, ACROSS_THE_WRAP, findings, "the way across the wrap")


def _take_once(place: Prepared, steps: tuple[Step, ...], findings: Findings, name: str) -> None:
    run, subject = place.run(), place.subject
    run.met = findings.met
    largest = subject.store.largest_batch
    possible = (step for step in steps if not isinstance(step, Save) or len(step.messages) <= largest)
    take_steps(subject, run, (fitted_step(step, subject) for step in possible), findings, name, place.prefix)


def run_machine(subject: Subject, findings: Findings, seconds: float) -> None:
    """Run examples until the time is up. What is found goes to ``findings``."""
    _take_once(Prepared(subject, ()), COME_AND_GO, findings, "a message that comes and goes")
    rounds = _examples_from(Prepared(subject, ()), findings, seconds / 2, 0)
    if subject.store.largest_batch < SMALLEST_PASSING:
        findings.gaps.append("the state machine did not go near the wrap: the store saves too few messages at a time")
        findings.work["examples"] += rounds * EXAMPLES_AT_ONCE
        return
    place = Prepared(subject, near_the_wrap(subject))
    for taken, report in enumerate(place.reports, 1):
        findings.add(report.discrepancies, subject.trace(place.prefix[:taken]), "the way to the wrap")
    if not any(report.diverges or isinstance(report.result, Failed) for report in place.reports):
        cross_the_wrap(place, findings)
        rounds += _examples_from(place, findings, seconds / 2, rounds)
    findings.work["examples"] += rounds * EXAMPLES_AT_ONCE


def _examples_from(place: Prepared, findings: Findings, seconds: float, number: int) -> int:
    """Examples from one place until the time is up; how many rounds there were. Raises OutOfTime."""
    began = time.monotonic()
    rounds = 0
    machine = machine_for(place, findings, lambda: time.monotonic() - began >= seconds)
    cut_off = tally_of(machine.__name__).cut_off
    while not findings.is_settled and (rounds == 0 or time.monotonic() - began < seconds):
        run_examples(machine, place.subject.seed + number + rounds)
        rounds += 1
        if tally_of(machine.__name__).cut_off > cut_off:
            raise OutOfTime
    return rounds


def machine_for(place: Prepared, findings: Findings, is_over: Callable[[], bool]) -> type[SessionMachine]:
    """The machine for one store, beginning at one place."""
    subject = place.subject
    clients = CLIENTS

    def make_run() -> SessionRun:
        run = place.run()
        run.met = findings.met
        return run

    def found(discrepancies: list[Discrepancy], steps: tuple[Step, ...]) -> None:
        findings.add(discrepancies, subject.trace(steps, clients), "the state machine")

    def count_steps(machine: SessionMachine) -> None:
        findings.work["steps"] += len(machine.steps) - len(place.prefix)

    class Machine(SessionMachine):
        def teardown(self) -> None:
            super().teardown()
            count_steps(self)

    attributes: dict[str, Any] = {
        "make_run": staticmethod(make_run),
        "found": staticmethod(found),
        "is_over": staticmethod(is_over),
        "prefix": place.prefix,
        "raises": False,
        "limit": subject.limit,
        "has_gaps": any(not bound.is_atomic for bound in subject.binding.operations.values()),
        "largest_batch": min(subject.store.largest_batch, 4),
    }
    for name, value in attributes.items():
        setattr(Machine, name, value)
    return Machine


def run_examples(machine: type[SessionMachine], number: int) -> None:
    """A few examples of a machine; the same number gives the same examples."""
    quiet = settings(
        max_examples=EXAMPLES_AT_ONCE,
        stateful_step_count=STEPS_PER_EXAMPLE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=quiet)
