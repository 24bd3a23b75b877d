"""A state machine over any store with a contract, for Hypothesis: clients that call, wait, die and meet trouble, judged
at every step.

What clients may call is the contract's (``calls``), so one machine walks through a lock, a feed, a job queue and a
contract of its owner's. It runs on the kernel: there time, trouble and waiting clients are whatever the machine makes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from orderlab.model.contracts.base import Call, Discrepancy, Reply
from orderlab.model.contracts.client_steps import Begin, ClientStep, ContractTrace, Die, Fault, Resume, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.model.contracts.sequential import Scope, SequentialTerms
from orderlab.properties.engine.run import ContractRun, Report
from orderlab.properties.engine.search import moments, moves, troubles_of
from orderlab.properties.engine.validation import laws_of, run_of
from orderlab.properties.engine.witness import ContractReruns, PlainerCalls, explain
from orderlab.properties.machines.tally import Tally, initialize, rule, tally_of
from orderlab.properties.validation.findings import Finding
from orderlab.properties.witness.shortening import shortened
from orderlab.properties.witness.witness import Witness, story_lines
from orderlab.sim.stores.binding.binding import Binding

CLIENTS = st.sampled_from((0, 1, 0, 1, 2))
WHICH = st.one_of(st.integers(0, 3), st.integers(0, 40))
"""Of what is offered: the first are what is most worth trying."""
TROUBLE = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 9))
CALLS_MAX = 50
"""Calls of one operation that a user's own rule carries out; one more and it is left to others."""
FREELY = Scope("a machine", 1 << 30, 1 << 30, 1 << 30, 1 << 30)


class ContractViolated(AssertionError):
    """A step broke a law of the store's contract. The steps of ``trace`` lead there. As text it is ``story``."""

    def __init__(
        self, broken: Discrepancy, trace: ContractTrace, machine: str, make: Callable[[], ContractRun]
    ) -> None:
        super().__init__(f"{broken.law} is violated: {broken.text}")
        self.discrepancy, self.machine = broken, machine
        self._taken, self._make = trace, make

    @property
    def is_broken(self) -> bool:
        """Whether the steps break the law for the reason that it says."""
        return self._reruns.law_broken(self._taken, self._taken.law) is not None

    @cached_property
    def trace(self) -> ContractTrace:
        """The steps, made short as a witness is: steps that were drawn by number shrink badly."""
        return shortened(self._taken, self._taken.law, self._reruns, PlainerCalls())

    @property
    def _reruns(self) -> ContractReruns:
        return ContractReruns(self._make, [step.call for step in self._taken.steps if isinstance(step, Begin)])

    @cached_property
    def story(self) -> str:
        """As ``orderlab validate`` tells it; told when somebody reads it, for shrinking raises it again and again."""
        reruns, law = self._reruns, self._taken.law
        broken = reruns.law_broken(self.trace, law)
        text = self.discrepancy.text if broken is None else broken[1]
        finding = Finding(law, text, self.trace, f"the state machine {self.machine}")
        witness = Witness(finding, explain(reruns, self.trace), "on the kernel", SequentialTerms(reruns.run.contract))
        return "\n".join(line for line, _ in story_lines(witness))

    def __str__(self) -> str:
        return self.story


class ContractMachine(RuleBasedStateMachine):
    """Three clients of one store. Use ``contract_machine``; a subclass adds rules of its own, with ``call`` and
    ``take``."""

    make_run: ClassVar[Callable[[], ContractRun]]
    """A run at the empty store."""
    laws: ClassVar[frozenset[str] | None] = None
    """Fail for these only; None: for any."""

    def __init__(self) -> None:
        super().__init__()
        self.run = type(self).make_run()
        self.run.judge.tested = dict.fromkeys(self.run.judge.tested, 0)
        self.steps: list[ClientStep] = []
        self.ended = False
        self.tally = Tally(examples=1)

    # -- for rules ---------------------------------------------------------------------------------------------------

    def take(self, step: ClientStep) -> Report:
        """One step, judged. Raises ContractViolated."""
        if self.ended:
            return Report(is_idle=True)
        try:
            report = self.run.perform(step)
        except TooManyStates:  # operations have overlapped for so long that nothing can be said
            self._cut_off()
            return Report(is_idle=True)
        if report.is_idle:
            return report
        self.steps.append(step)
        trouble = getattr(step, "trouble", None)
        name = step.call.name if isinstance(step, Begin) else type(step).__name__.lower()
        self.tally.steps[f"{name} / {trouble.kind}" if trouble is not None else name] += 1
        found = report.discrepancies
        if found:
            self.ended = True  # no state explains what comes after it
            self._count()
            self._raise([one for one in found if self.laws is None or one.law in self.laws])
        return report

    def _raise(self, found: Sequence[Discrepancy]) -> None:
        binding, contract = self.run.binding, type(self.run.contract).__name__
        for one in found:
            trace = ContractTrace(
                tuple(self.steps), len(self.run.clients), tuple(self.run.skews_ms), str(binding.path), contract, one.law
            )
            violation = ContractViolated(one, trace, type(self).__name__, type(self).make_run)
            if violation.is_broken:  # where what was stopped is not to blame, all-or-nothing is not
                raise violation

    def call(self, client: int, operation: str, **fields: Any) -> Reply:
        """A whole operation of one client, and its reply; None as well where the client is in the middle of another, or
        now waits."""
        return self.carry_out(client, Call.of(operation, **fields))

    def carry_out(self, client: int, call: Call) -> Reply:
        """As ``call``."""
        report = self.take(Begin(client, call))
        for _ in range(CALLS_MAX):
            if report.is_over or self.ended or self.run.clients[client].waits is not None:
                break
            report = self.take(Resume(client))
        return report.reply

    def offered(self, client: int) -> list[ClientStep]:
        """What the contract has this client do next, or the next call of what it has begun."""
        if self.ended:
            return []
        try:
            return [
                step
                for step in moves(self.run, FREELY, FREELY.faults, None)
                if not isinstance(step, Wait) and step.client == client
            ]
        except TooManyStates:
            self._cut_off()
            return []

    # -- rules -------------------------------------------------------------------------------------------------------

    @initialize(which=st.integers(0, 99))
    def begin_at(self, which: int) -> None:
        """An empty store, or one of the situations that the contract names, where the store gets there."""
        openings = [None, *self.run.contract.openings()]
        opening = openings[which % len(openings)]
        for one in opening.steps if opening is not None else ():
            if isinstance(one, int):
                self.take(Wait(one))
                continue
            client, operation, fields = one
            calls = [step.call for step in self.offered(client) if isinstance(step, Begin)]
            call = next(
                (
                    each
                    for each in calls
                    if each.name == operation and all(each[name] == value for name, value in fields.items())
                ),
                None,
            )
            if call is None:
                break
            self.carry_out(client, call)

    @rule(client=CLIENTS, which=WHICH, trouble=TROUBLE)
    def go_on(self, client: int, which: int, trouble: int | None) -> None:
        """One client's next call; now and then something befalls it that can befall a server in the middle of what it
        calls."""
        offered = self.offered(client)
        if not offered:
            return
        step = offered[which % len(offered)]
        troubles = [] if trouble is None else self._troubles(step)
        assert isinstance(step, Begin | Resume)
        self.take(replace(step, trouble=troubles[(trouble or 0) % len(troubles)]) if troubles else step)

    def _troubles(self, step: ClientStep) -> list[Fault]:
        before = self.run.state
        try:
            untroubled = self.run.perform(step)
        except TooManyStates:
            return []
        finally:
            self.run.go_to(before)
        return [] if untroubled.is_idle else list(troubles_of(untroubled.effects, untroubled.is_over))

    @precondition(lambda self: any(client.pending is not None for client in self.run.clients))
    @rule(which=st.integers(0, 2))
    def die(self, which: int) -> None:
        """A client dies in the middle of its operation."""
        midway = [number for number, client in enumerate(self.run.clients) if client.pending is not None]
        self.take(Die(midway[which % len(midway)]))

    @rule(which=st.integers(0, 11))
    def wait(self, which: int) -> None:
        """To just before, at or just after what time alone changes; for a second where it changes nothing."""
        if not self.ended:
            waits = moments(self.run) or [1, 1000]
            self.take(Wait(waits[which % len(waits)]))

    def _cut_off(self) -> None:
        self._count()
        self.ended, self.tally.cut_off = True, 1

    def _count(self) -> None:
        self.tally.coverage.update({name: count for name, count in self.run.judge.tested.items() if count})

    def teardown(self) -> None:
        """Count."""
        if not self.ended:
            self._count()
        tally_of(type(self).__name__).add(self.tally)


def contract_machine(
    binding: Binding,
    machine: type[ContractMachine] = ContractMachine,
    name: str = "",
    laws: Sequence[str] | None = None,
) -> type[ContractMachine]:
    """``machine`` on the store of ``binding``, each example from the empty store on. Raises InputError where it has no
    contract, or its contract lacks one of ``laws``."""
    first = run_of(binding)
    terms = SequentialTerms(first.contract)
    wanted = None if laws is None else frozenset(laws_of(terms, laws))
    start = first.state

    def make() -> ContractRun:
        first.go_to(start)
        return first

    body: dict[str, Any] = {"make_run": staticmethod(make), "laws": wanted, "__module__": machine.__module__}
    return type(name or f"{machine.__name__}_{binding.name}".replace("-", "_"), (machine,), body)
