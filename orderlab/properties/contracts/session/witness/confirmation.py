"""A witness on a real server: the same steps, judged the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.steps import Churn, Trace, Wait
from orderlab.model.contracts.steps import Fault
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.inspection import Baseline, Inspection
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.steps import SessionRun
from orderlab.sim.redis.backends import Backend, KernelBackend, ServerBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.faults import can_be_made_on_server

SLACK_MS = 150
"""How much later than planned a real server may carry out a step."""
LONGEST_WAIT_MS = 5000
"""For which a confirmation waits; longer times pass by moving the deadlines that Redis keeps."""
NOT_BY_RUNNING = {
    "one-slot": "a single server knows no slots",
    "bounded": "an estimate, not a behaviour",
}


@dataclass(frozen=True)
class Confirmation:
    """What a real server said of a trace."""

    place: str
    broken: frozenset[str] = frozenset()
    """Laws that the trace broke there."""
    cannot: str = ""
    """Why it was not run there, or why its end says little."""

    def words(self, law: str) -> str:
        """``confirmed on ...``, or why not."""
        if law in self.broken:
            return f"confirmed on {self.place}"
        reason = NOT_BY_RUNNING.get(law) or self.cannot or "the same steps did not break the law there"
        return f"not confirmed on {self.place}: {reason}"


def place_of(backend: Backend) -> str:
    """The backend's name and version."""
    return backend.describe().split(" at ")[0]


def refuse_company(backend: Backend) -> None:
    """Raises InputError when a user's server holds other databases: a script can reach them all (SELECT, FLUSHALL)."""
    facts = backend.execute(b"INFO", b"keyspace") if isinstance(backend, ServerBackend) else b""
    held = [line.split(b":")[0].decode() for line in facts.splitlines() if line.startswith(b"db")]
    if held:
        raise InputError(
            f"--backend {backend.describe().split(' at ')[-1]}: {', '.join(held)} of this server hold keys that scripts "
            "could reach (SELECT, FLUSHALL); give a server that holds nothing, or use --backend auto"
        )


def confirm(trace: Trace, binding: Binding, backend: Backend, baseline: list[Baseline] | None) -> Confirmation:
    """Run a witness on ``backend`` and say which laws it breaks there."""
    place = place_of(backend)
    cannot = _cannot(trace, backend)
    if cannot:
        return Confirmation(place, cannot=cannot)
    reports = run_on(trace, binding, backend, baseline)
    broken = frozenset(one.law for report in reports for one in report.discrepancies)
    waits = any(isinstance(step, Wait) for step in trace.steps)
    return Confirmation(place, broken, "there, time cannot be set to the millisecond" if waits else "")


def run_on(trace: Trace, binding: Binding, backend: Backend, baseline: list[Baseline] | None = None) -> list[StepReport]:
    """Take the steps of a trace on ``backend``, judging each, until one after which nothing can be judged."""
    return list(steps_on(trace, binding, backend, baseline))


def steps_on(
    trace: Trace,
    binding: Binding,
    backend: Backend,
    baseline: list[Baseline] | None = None,
    capabilities: Capabilities | None = None,
) -> Iterator[StepReport]:
    """As ``run_on``, each step when it is asked for; the store is loaded, and its clients connected, at once.

    ``baseline`` has the keys inspected as well; elsewhere than on the kernel that is left out where many messages pass.
    ``capabilities``: what was found out about the store beyond its binding.
    """
    backend.flush()
    waits_ms = sum(step.ms for step in trace.steps if isinstance(step, Wait))
    is_server = isinstance(backend, ServerBackend)
    store = BoundStore(binding, backend, trace.default_expiry_ms, is_server and waits_ms <= LONGEST_WAIT_MS)
    store.capabilities = capabilities or store.capabilities
    run = SessionRun(store, trace.clients, trace.producers, slack_ms=SLACK_MS if is_server else 0)
    is_kernel = isinstance(backend, KernelBackend)
    if baseline is not None and (is_kernel or not any(isinstance(step, Churn) for step in trace.steps)):
        run.inspector = Inspection(baseline)
    return _taken(run, trace)


def _taken(run: SessionRun, trace: Trace) -> Iterator[StepReport]:
    for step in trace.steps:
        report = run.perform(step)
        yield report
        if report.diverges:
            break


def _cannot(trace: Trace, backend: Backend) -> str:
    """Which fault of the witness a server that runs alone cannot be brought into."""
    for step in trace.steps:
        fault = getattr(step, "fault", None)
        if isinstance(fault, Fault) and not can_be_made_on_server(fault):
            return f"the fault {fault.kind} cannot be made on a server that runs alone"
    return ""
