"""Analysis (b): the Hypothesis machine on the scripts as they are, with all 65,535 packet identifiers.

Half of the examples begin with an empty store; the other half just before the wrap, with old messages still waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import run_state_machine_as_test

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import Acknowledge, Churn, Fetch, Publication, Quiesce, Release, Save, Step
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.machines.session import KeptUpMachine, SessionMachine
from orderlab.properties.contracts.session.subject import CLIENTS, Prepared, Subject, fitted_step, take_steps
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.validation.effort import EXAMPLES
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.results import Failed
from orderlab.sim.stores.bound import BudgetExceeded

STEPS_PER_EXAMPLE = 30
EXAMPLES_AT_ONCE = EXAMPLES
"""Of one run of Hypothesis; each run has a seed of its own."""
SMALLEST_PASSING = 50
"""Messages in a save below which it takes too long to have all identifiers pass."""
WAITING = tuple(Publication(label, b"<%d>waiting" % label, b"t", 1 + label % 2, 864_000_000) for label in (1, 2, 3))


def near_the_wrap(subject: Subject) -> tuple[Step, ...]:
    """Three messages wait, one of them sent, while nearly all other identifiers pass."""
    passing = subject.binding.modulus - len(WAITING) - 3
    return (Save(WAITING, limit=subject.store.limit), Fetch(count=1), Churn(passing, by_expiry=True))


ACROSS_THE_WRAP: tuple[Step, ...] = (
    *(Save((Publication(label, b"<%d>across" % label, qos=1 + label % 2),), limit=100) for label in range(11, 15)),
    *(Fetch(), Release(11), Acknowledge(12), Acknowledge(1), Fetch(count=2)),
    Save(tuple(Publication(label, b"<%d>across" % label) for label in range(15, 19)), limit=100),
    *(Fetch(), Acknowledge(14), Save((Publication(19, b"<19>across"),), limit=3), Fetch()),
)
"""Steps from near the wrap that take the counter round, past messages that wait."""


COME_AND_GO: tuple[Step, ...] = (Save((Publication(1, b"<1>payload"),), limit=100), Fetch(), Acknowledge(1), Quiesce())
"""What grows with each message shows at full scale only: a small world has no more identifiers than a handful."""


def cross_the_wrap(place: Prepared, findings: Findings) -> None:
    """Once, whatever the time: no example has to come by."""
    _take_once(place, ACROSS_THE_WRAP, findings, "the way across the wrap")


def _take_once(place: Prepared, steps: tuple[Step, ...], findings: Findings, name: str) -> None:
    run, subject = place.run(), place.subject
    run.coverage = findings.coverage
    largest = subject.store.largest_batch
    possible = (step for step in steps if not isinstance(step, Save) or len(step.messages) <= largest)
    take_steps(subject, run, (fitted_step(step, subject) for step in possible), findings, name, place.prefix)


def run_machine(
    subject: Subject, findings: Findings, rounds: int, first: int = 0, crosses_the_wrap: bool = True
) -> None:
    """So many rounds of examples from each of the two places, from round ``first`` on; what is found goes to
    ``findings``."""
    start = Prepared(subject, ())
    if first == 0:
        _take_once(start, COME_AND_GO, findings, "a message that comes and goes")
    _examples_from(start, findings, rounds, 2 * first)
    if not crosses_the_wrap:
        return
    if subject.store.largest_batch < SMALLEST_PASSING:
        if first == 0:
            findings.gaps.append(
                "the state machine did not go near the wrap: the store saves too few messages at a time"
            )
        return
    place = Prepared(subject, near_the_wrap(subject))
    for taken, report in enumerate(place.reports, 1):
        findings.add(report.discrepancies, subject.trace(place.prefix[:taken]), "the way to the wrap")
    if not any(report.diverges or isinstance(report.result, Failed) for report in place.reports):
        if first == 0:
            cross_the_wrap(place, findings)
        _examples_from(place, findings, rounds, 2 * first + 1)


def _examples_from(place: Prepared, findings: Findings, rounds: int, number: int) -> None:
    """Rounds of examples from one place. Raises BudgetExceeded."""
    machine = machine_for(place, findings, lambda: False)
    cut_off = tally_of(machine.__name__).cut_off
    for one in range(rounds):
        run_examples(machine, 1_000_003 * place.subject.seed + number + 2 * one)
        findings.work["examples"] += EXAMPLES_AT_ONCE
        if tally_of(machine.__name__).cut_off > cut_off:
            raise BudgetExceeded


def machine_for(place: Prepared, findings: Findings, is_over: Callable[[], bool]) -> type[SessionMachine]:
    """The machine for one store, beginning at one place."""
    subject = place.subject
    clients = CLIENTS

    def make_run() -> SessionRun:
        run = place.run()
        run.coverage = findings.coverage
        return run

    def found(discrepancies: list[Discrepancy], steps: tuple[Step, ...]) -> None:
        findings.add(discrepancies, subject.trace(steps, clients), "the state machine")

    def count_steps(machine: SessionMachine) -> None:
        findings.work["steps"] += len(machine.steps) - len(place.prefix)

    class Machine(KeptUpMachine if subject.store.upkeep else SessionMachine):  # type: ignore[misc]
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
        "faults": subject.store.conditions,
        "can_abort": not subject.store.backend.trouble,
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
    with _without_constants():
        run_state_machine_as_test(seed(number)(machine), settings=quiet)


@contextmanager
def _without_constants() -> Iterator[None]:
    """Have Hypothesis draw no number or text because it stands in some module that happens to be imported."""
    provider: Any = getattr(providers, "HypothesisProvider", None)
    drawing = getattr(provider, "_maybe_draw_constant", None)
    if drawing is None:  # other versions of Hypothesis have no such pool
        yield
        return
    provider._maybe_draw_constant = lambda self, *given, **options: None
    try:
        yield
    finally:
        provider._maybe_draw_constant = drawing
