"""A law that a machine saw broken, told as `orderlab validate` tells it: numbered steps, keys, the line of Lua.

Whoever wrote the rules, and on whichever backend they ran: what a step called is seen by taking the steps again on the
kernel.
"""

from __future__ import annotations

from functools import cached_property

from orderlab.model.contracts.session.refinement import Discrepancy
from orderlab.model.contracts.session.steps import Step, Trace, told_step
from orderlab.model.errors import InputError
from orderlab.properties.validation.findings import Finding
from orderlab.properties.validation.subject import Reruns, Subject
from orderlab.properties.witness.confirmation import place_of
from orderlab.properties.witness.explanation import explain
from orderlab.properties.witness.story import story_lines
from orderlab.properties.witness.witness import Witness
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.lacking import UnsupportedCommand
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.cpu_budget import BudgetExceeded


class LawViolated(AssertionError):
    """A step broke a law. The steps of ``trace`` lead there. As text it is ``story``."""

    def __init__(self, discrepancies: list[Discrepancy], trace: Trace, machine: str, store: object) -> None:
        (first, *others) = discrepancies
        self.text = "; ".join([first.text, *(f"{one.law}: {one.text}" for one in others)])
        super().__init__(f"{first.law} is violated: {self.text}")
        self.discrepancies = discrepancies
        self.trace = trace
        self.machine = machine
        self.store = store
        """What the steps were taken on. One with a binding can be run again."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the trace."""
        return self.trace.steps

    @cached_property
    def story(self) -> str:
        """Told when somebody reads it: shrinking raises a violation again and again, and only the last one is read."""
        if not isinstance(self.store, BoundStore):
            return "\n".join(self._bare())
        finding = Finding(self.discrepancies[0].law, self.text, self.trace, f"the state machine {self.machine}")
        where = f"on {place_of(self.store.backend)}, packet identifiers 1 to {self.trace.modulus:,}"
        if not isinstance(self.store.backend, KernelBackend):
            where += "; keys and line are those of the kernel, which took the same steps"
        try:
            explanation = explain(Reruns(Subject(self.store.binding)), self.trace)
        except (InputError, BudgetExceeded, UnsupportedCommand) as error:
            why = "scripts do not end" if isinstance(error, BudgetExceeded) else str(error)
            return "\n".join([*self._bare(), f"  no line of Lua: the kernel cannot take the same steps: {why}"])
        return "\n".join(line for line, _ in story_lines(finding.law, Witness(finding, explanation, where)))

    def _bare(self) -> list[str]:
        """The steps and nothing else."""
        trace = self.trace
        return [self.args[0], *(f"  {number}. {told_step(step, trace)}" for number, step in enumerate(trace.steps, 1))]

    def __str__(self) -> str:
        return self.story
