"""A law that a machine saw broken, told as `orderlab validate` tells it: numbered steps, keys, the line of Lua.

Whoever wrote the rules, and on whichever backend they ran: what a step called is seen by taking the steps again on the
kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.contract import SessionTerms
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Publication,
    Quiesce,
    Release,
    Save,
    Step,
    Trace,
    Wait,
    kind_of_step,
    told_step,
)
from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.subject import Reruns, Subject
from orderlab.properties.contracts.session.witness.explanation import explain
from orderlab.properties.machines.tally import Tally, tally_of
from orderlab.properties.validation.findings import Finding
from orderlab.properties.witness.confirmation import place_of
from orderlab.properties.witness.witness import Witness, story_lines
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.error_conditions import CONDITIONS
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.stores.bound import BudgetExceeded, SessionStore
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS, scratch


class LawViolated(AssertionError):
    """A step broke a law. The steps of ``trace`` lead there. As text it is ``story``."""

    def __init__(self, discrepancies: list[Discrepancy], trace: Trace, machine: str, store: SessionStore) -> None:
        (first, *others) = discrepancies
        self.text = "; ".join([first.text, *(f"{one.law}: {one.text}" for one in others)])
        super().__init__(f"{first.law} is violated: {self.text}")
        self.discrepancies = discrepancies
        self.trace = trace
        self.machine = machine
        self.store = store
        """What the steps were taken on."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the trace."""
        return self.trace.steps

    @cached_property
    def story(self) -> str:
        """Told when somebody reads it: shrinking raises a violation again and again, and only the last one is read."""
        finding = Finding(self.discrepancies[0].law, self.text, self.trace, f"the state machine {self.machine}")
        where = f"on {place_of(self.store.backend)}, packet identifiers 1 to {self.trace.modulus:,}"
        if not self.store.backend.shows_calls:
            where += "; keys and line are those of the kernel, which took the same steps"
        try:
            explanation = explain(Reruns(Subject(self.store.binding)), self.trace)
        except (InputError, BudgetExceeded, UnsupportedCommand) as error:
            why = "scripts do not end" if isinstance(error, BudgetExceeded) else str(error)
            return "\n".join([*self._bare(), f"  no line of Lua: the kernel cannot take the same steps: {why}"])
        return "\n".join(line for line, _ in story_lines(Witness(finding, explanation, where, SessionTerms("session"))))

    def _bare(self) -> list[str]:
        """The steps and nothing else."""
        trace = self.trace
        return [self.args[0], *(f"  {number}. {told_step(step, trace)}" for number, step in enumerate(trace.steps, 1))]

    def __str__(self) -> str:
        return self.story


WAITS_MAX_MS = 3_000_000_000_000
"""The time that may pass in one example, 95 years: even the longest interval (136 years) then ends before 2286, so that
deadlines have 13 digits, as stores take for granted."""


class StoreMachine(RuleBasedStateMachine):
    """Two clients, two producers. Override ``make_run``, or use ``on_store``."""

    make_run: ClassVar[Callable[[], SessionRun]]
    """A run at the beginning of an example: its store empty, or prepared."""
    prefix: ClassVar[tuple[Step, ...]] = ()
    """Steps that ``make_run`` has taken already; part of every witness."""
    faults: ClassVar[tuple[str, ...]] = NODE_CONDITIONS
    """Conditions that the backend can be brought into."""
    can_abort: ClassVar[bool] = True
    """Whether the backend can be stopped before a given call of a script."""
    can_wait: ClassVar[bool] = True
    limit: ClassVar[int | None] = None
    """The limit that the store fixes itself, if it does."""
    laws: ClassVar[frozenset[str] | None] = None
    """Fail for these only; None: for any."""
    raises: ClassVar[bool] = True
    found: ClassVar[Callable[..., None] | None] = None
    """Told the discrepancies and the steps that led to them."""
    has_gaps: ClassVar[bool] = False
    """Whether some operation takes several calls, so that others can come between."""
    largest_batch: ClassVar[int] = 4
    forbidden_after: ClassVar[int] = 12
    """Steps of an example after which it may give what no caller may give."""
    is_over: ClassVar[Callable[[], bool]] = lambda: False
    """Whether the time for all examples together has run out."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = type(self).is_over()
        self.steps: list[Step] = list(self.prefix)
        self.labels = 0
        self.waited_ms = 0
        self.tally = Tally(examples=1)
        if not self.ended:
            try:
                self.run = type(self).make_run()
            except BudgetExceeded:  # scripts that do not end: no failure, which Hypothesis would look into
                self._cut_off()
            else:
                self.labels = len(self.run.publications)

    # -- for rules ---------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """One step, judged. Raises LawViolated."""
        if not self.ended:
            self.take_as_it_is(self.within_limits(step))

    def take_as_it_is(self, step: Step) -> None:
        """One step, whether or not callers may take it. Raises LawViolated."""
        if self.ended:
            return
        if isinstance(step, Wait):
            if self.waited_ms + step.ms > WAITS_MAX_MS:
                return
            self.waited_ms += step.ms
        self.steps.append(step)
        try:
            report = self.perform(step)
        except BudgetExceeded:
            self._cut_off()
            return
        if report.result is None:
            self.steps.pop()
            return
        self.tally.steps[step_name(step)] += 1
        self.ended = report.diverges
        if report.discrepancies:
            trace = tuple(self.steps)
            if self.found is not None:
                self.found(report.discrepancies, trace)
            broken = [one for one in report.discrepancies if self.laws is None or one.law in self.laws]
            if self.raises and broken:
                self.ended = True  # what comes after it would be told in its place: Hypothesis tears down all the same
                raise LawViolated(broken, self._trace(trace, broken[0].law), type(self).__name__, self.run.store)

    def within_limits(self, step: Step) -> Step:
        """The step with a limit that callers may give: the one that the store fixes, or one that a queue can keep, or
        any."""
        if isinstance(step, Interleave):
            return replace(step, step=self.within_limits(step.step), during=self.within_limits(step.during))
        if not isinstance(step, Save):
            return step
        capabilities = self.run.store.capabilities
        if self.limit is None and capabilities.checks_limit and not 1 <= step.limit <= MODULUS:
            return step
        return replace(step, limit=self.limit or max(min(step.limit, capabilities.modulus), 1))

    def _trace(self, steps: tuple[Step, ...], law: str) -> Trace:
        """The steps with what it takes to go them again."""
        store = self.run.store
        binding = getattr(store, "binding", None)
        path = "" if binding is None else str(binding.path)
        return Trace(steps, tuple(self.run.clients), store.default_expiry_ms, store.capabilities.modulus, path, law)

    def _cut_off(self) -> None:
        self.ended = True
        self.tally.cut_off += 1

    def perform(self, step: Step) -> StepReport:
        """Carry out a step; a subclass may judge it by more than the run does."""
        return self.run.perform(step)

    def publication(self, body: bytes = b"", interval_ms: float | None = None, qos: int = 1) -> Publication:
        """The next message of the run, with a payload of its own."""
        self.labels += 1
        topic = b"topic/%d" % (self.labels % 3)
        return Publication(self.labels, b"<%d>payload" % self.labels + body, topic, qos, interval_ms)

    def batch(self, messages: Iterable[tuple[float | None, int]]) -> tuple[Publication, ...]:
        """Messages with these intervals (ms) and QoS, as many as the store takes at once."""
        return tuple(self.publication(b"", interval_ms, qos) for interval_ms, qos in [*messages][: self.largest_batch])

    def live(self, client: int) -> list[int]:
        """Labels of what waits for a client, in order."""
        return [] if self.ended else [entry.label for entry in self.run.state.accounts[client].queue]

    def fault(self, number: int) -> Fault:
        """One of the conditions that the backend can be brought into."""
        return Fault(self.faults[number % len(self.faults)])

    def take_on_wrong_type(
        self, step: Save | Fetch | Acknowledge | Release | Clear | Open, which: int, found: str
    ) -> None:
        """The step while one of the keys that it meets, or would make, holds a value of type ``found``."""
        try:
            keys = [] if self.ended else self._keys_touched(step)
        except BudgetExceeded:
            self._cut_off()
            return
        if keys:
            self.take(replace(step, fault=Fault("wrong-type", key=keys[which % len(keys)], found=found)))

    def _keys_touched(self, step: Step) -> list[bytes]:
        """Keys that ``step`` would use, where that can be tried and recorded; elsewhere all that there are."""
        run = self.run
        if not self.backend.shows_calls:
            return sorted(self.backend.keyspace())
        state, met, run.coverage = run.state, run.coverage, Counter()
        try:
            with scratch(self.backend), self.run.store.recording() as records:
                run.perform(self.within_limits(step))
        finally:
            run.state, run.coverage = state, met
        return sorted({key for record in records for key in record.used})

    @property
    def backend(self) -> Backend:
        """What the store runs on."""
        return self.run.store.backend

    def teardown(self) -> None:
        """Once the trouble is over, everything comes out in the end and nothing stays behind."""
        try:
            for client in range(2):
                self.take(DrainQueue(client, 1 + client))
                self.take(Quiesce(client))
        finally:
            if hasattr(self, "run"):
                self.tally.coverage.update(self.run.coverage)
            tally_of(type(self).__name__).add(self.tally)


def step_name(step: Step) -> str:
    """The kind of a step, and what befell it."""
    name = kind_of_step(step)
    fault = getattr(step, "fault", None)
    if isinstance(fault, Fault):
        return f"{name} / {fault.kind}"
    return f"{name} / stale" if isinstance(step, Save) and step.stale else name


def faults_of(backend: Backend) -> tuple[str, ...]:
    """Conditions of the node that can be made on a backend and that can strike inside a script."""
    return tuple(one.name for one in CONDITIONS if one.name in NODE_CONDITIONS and backend.can_be_in(one))


def configured(machine: type[StoreMachine], name: str, attributes: dict[str, Any]) -> type[Any]:
    """A subclass under another name, with its class attributes set."""
    body = {key: staticmethod(value) if callable(value) else value for key, value in attributes.items()}
    return type(name, (machine,), {"__module__": machine.__module__, "__qualname__": name, **body})
