"""The steps of a session store's witness on any backend, and what a server cannot be brought through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.traces import Churn, Trace, Wait
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.inspection import Baseline, Inspection
from orderlab.properties.contracts.session.run import StepReport
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BoundStore, CpuBudget
from orderlab.sim.stores.trace_faults import can_be_made_on_server

SLACK_MS = 150
"""How much later than planned a real server may carry out a step."""
LONGEST_WAIT_MS = 5000
"""For which a confirmation waits; longer times pass by moving the deadlines that Redis keeps."""


@dataclass(frozen=True)
class SessionPerformer:
    """``Performer`` for session stores."""

    binding: Binding
    baselines_of: Callable[[Sequence[bytes]], list[Baseline] | None]

    def cannot(self, trace: Trace) -> str:
        """Which fault of the witness a server that runs alone cannot be brought into."""
        for step in trace.steps:
            fault = getattr(step, "fault", None)
            if isinstance(fault, Fault) and not can_be_made_on_server(fault):
                return f"the fault {fault.kind} cannot be made on a server that runs alone"
        return ""

    def broken_on(self, trace: Trace, backend: Backend, budget: CpuBudget) -> frozenset[str]:
        """The laws that the steps break there. Raises BudgetExceeded."""
        reports = steps_on(trace, self.binding, backend, self.baselines_of(trace.clients), budget=budget)
        return frozenset(one.law for report in reports for one in report.discrepancies)

    def waits(self, trace: Trace) -> bool:
        """Whether time passes in it."""
        return any(isinstance(step, Wait) for step in trace.steps)


def steps_on(
    trace: Trace,
    binding: Binding,
    backend: Backend,
    baseline: list[Baseline] | None = None,
    capabilities: Capabilities | None = None,
    budget: CpuBudget | None = None,
) -> Iterator[StepReport]:
    """Take the steps of a trace on ``backend``, each when it is asked for, judging each, until one after which nothing
    can be judged.

    The store is loaded, and its clients connected, at once. Past its ``budget`` an operation, or a wait that would
    outlast it, raises BudgetExceeded. ``baseline`` has the keys inspected as well; elsewhere than on the kernel that is
    left out where many messages pass. ``capabilities``: what was found out about the store beyond its binding.
    """
    backend.flush()
    waits_ms = sum(step.ms for step in trace.steps if isinstance(step, Wait))
    is_server = backend.clock_runs
    store = BoundStore(binding, backend, trace.default_expiry_ms, is_server and waits_ms <= LONGEST_WAIT_MS)
    store.capabilities, store.cpu_budget = capabilities or store.capabilities, budget or store.cpu_budget
    run = SessionRun(store, trace.clients, trace.producers, slack_ms=SLACK_MS if is_server else 0)
    if baseline is not None and (backend.shows_calls or not any(isinstance(step, Churn) for step in trace.steps)):
        run.inspector = Inspection(baseline)
    return _taken(run, trace)


def _taken(run: SessionRun, trace: Trace) -> Iterator[StepReport]:
    for step in trace.steps:
        report = run.perform(step)
        yield report
        if report.diverges:
            break
