"""Session stores, and pending sets, as a kind: what commands, the plugin and mutation ask of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.base import AnyTrace, Call
from orderlab.model.contracts.session import traces
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.contract import SessionTerms
from orderlab.model.contracts.session.traces import Churn, Trace
from orderlab.model.errors import InputError
from orderlab.model.laws import law_named
from orderlab.properties.contracts.kind import Kind
from orderlab.properties.contracts.session.inspection import Baseline
from orderlab.properties.contracts.session.mutation import judging
from orderlab.properties.contracts.session.mutation.equivalence import Table, tabulate
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation import validation
from orderlab.properties.contracts.session.validation.single_law import run_law
from orderlab.properties.contracts.session.validation.validation import SessionValidation
from orderlab.properties.contracts.session.witness import confirmation
from orderlab.properties.contracts.session.witness.explanation import tell
from orderlab.properties.mutants.mutant import Result
from orderlab.properties.profiles import Profile
from orderlab.properties.validation.isolated import Runaway, isolated
from orderlab.properties.validation.law_run import LawRun
from orderlab.properties.validation.sample import Sampled
from orderlab.properties.validation.verdicts import LawResult
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.shard import Effect
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.replies import UNREADABLE
from orderlab.sim.stores.binding.results import Failed
from orderlab.sim.stores.bound import SAMPLE, BoundStore, TimedOut, kernel_of

if TYPE_CHECKING:
    from orderlab.properties.comparison.differences import Comparison
    from orderlab.properties.costs.readings import CostReading
    from orderlab.properties.side_by_side import Cost


@dataclass(frozen=True)
class SessionKind(Kind):
    """``orderlab.properties.contracts.kind.Kind`` for stores whose judge is the abstract session."""

    of: SessionTerms

    def terms(self, binding: Binding) -> SessionTerms:
        """The contract of sessions."""
        return self.of

    def check_law(self, binding: Binding, name: str) -> str:
        """The law's full name. Raises InputError for one that no session store is held to."""
        found, laws = law_named(name).name, validation.laws_of(binding)
        if found not in laws:
            raise InputError(f"--law {name}: not a law of this store; one of {', '.join(laws)}")
        return found

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of sessions."""
        return self.of.reads(data)

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace."""
        return self.of.trace_from_json(data, place)

    def laws_of(self, binding: Binding, asked: Sequence[str] | None = None) -> list[str]:
        """The laws that a store is held to, or those that are asked for."""
        return validation.laws_of(binding) if asked is None else list(asked)

    def worlds_of(self, binding: Binding) -> list[Binding]:
        """The store as it is, and with few packet identifiers."""
        return validation.worlds_of(binding)

    def judged(self, binding: Binding, order: WorkOrder) -> SessionValidation:
        """Judge a store, in this process."""
        return validation.validate(binding, order)

    def unjudged(
        self, binding: Binding, results: tuple[LawResult, ...], gap: str, order: WorkOrder
    ) -> SessionValidation:
        """Of a script that had to be ended together with its process."""
        return SessionValidation(binding, self.of, results, (), (gap,), {}, order.seed, order.effort)

    def compared(self, old: Binding, new: Binding, order: WorkOrder) -> Comparison:
        """Judge a change of scripts, in this process."""
        from orderlab.properties.contracts.session.comparison.comparison import compare

        return compare(old, new, order)

    def measured(self, binding: Binding, seed: int) -> tuple[Cost, dict[str, str]]:
        """The workload of one client on the kernel, and saves under each fault."""
        from orderlab.properties.contracts.session.side_by_side import faults, measured

        return measured(binding), faults(binding, seed)

    def readings(self, binding: Binding, now_ms: int) -> Iterator[CostReading]:
        """Every operation on a long queue."""
        from orderlab.properties.contracts.session.queue_readings import readings

        return readings(binding, now_ms)

    def sampled(self, binding: Binding, asked: Sequence[Call] = ()) -> Iterator[Sampled]:
        """One client's session, from its CONNECT to its end."""
        store = BoundStore(binding, kernel_of(binding))
        answered = {"packet_id": 1, "sequence": 1}
        bounds = {"limit": store.limit, "default_expiry_ms": 20_000}
        saved = {**bounds, "producer": b"p0", "batch": 1, "messages": (SAMPLE,)}
        series: Mapping[str, Mapping[str, Any]] = {
            "open": {"clean_start": 1}, "save": saved, "fetch": {**bounds, "count": 10, "after": 0},
            "release": answered, "acknowledge": answered, "clear": {},
        }  # fmt: skip
        for name, given in series.items():
            if name not in binding.operations:
                continue
            effects: list[Effect] = []
            fields = {"epoch": 1, **given}
            with store.backend.noting(effects):
                result = store.perform(name, b"c1", fields)
            error = result.error.decode("utf-8", "replace") if isinstance(result, Failed) else ""
            is_wrong = isinstance(result, TimedOut) or error.startswith(UNREADABLE)
            shown = {"client": b"c1", "now_ms": store.now_ms, **fields}
            yield Sampled(name, shown, effects, error or result, error if is_wrong else "")

    def replay(self, trace: AnyTrace, binding: Binding, backend: Backend) -> Iterator[dict[str, Any]]:
        """Each step, up to one after which nothing can be judged."""
        assert isinstance(trace, Trace)
        backend = backend if binding.tables is None else kernel_of(binding)
        reports = confirmation.steps_on(trace, binding, backend, *_known(trace, binding))
        return (
            {
                "step": traces.told_step(report.step, trace),
                "result": "" if isinstance(report.step, Churn) else tell(report.result, report.step),
                "broken": [[one.law, one.text] for one in report.discrepancies],
            }
            for report in reports
        )

    def tester(self, binding: Binding, profile: Profile, order: WorkOrder, examples: Any) -> Callable[[str], LawRun]:
        """Scenarios and machines for one law at a time, in a process of their own: a script that hangs must not hang
        the run."""
        seed = order.seed

        def test(law: str) -> LawRun:
            found = isolated(
                binding, lambda: run_law(binding, law, profile, seed, examples), lambda: self.worlds_of(binding)
            )
            return _unfinished(binding, law, seed, found) if isinstance(found, Runaway) else found

        return test

    def judge_original(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """As a mutant in the first round."""
        return judging.judge_quickly(binding, seed, budget_s, effort)

    def judge_quickly(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """A mutant in the first round."""
        return judging.judge_quickly(binding, seed, budget_s, effort)

    def tabulate(self, binding: Binding) -> Table:
        """What the original replies in its small scope."""
        return tabulate(binding)

    def judge_thoroughly(
        self, binding: Binding, script: str, table: Any, seed: int, budget_s: float, effort: float
    ) -> Result:
        """A mutant in the second round, beside the original."""
        return judging.judge_thoroughly(binding, script, table, seed, budget_s, effort)


def _known(trace: Trace, binding: Binding) -> tuple[list[Baseline] | None, Capabilities | None]:
    """What validation knows of a store's keys, and of what it does; nothing of one that the kernel cannot run."""
    subject = Subject(binding, trace.seed or 0)
    try:
        return subject.baselines_of(trace.clients, trace.producers), subject.store.capabilities
    except (InputError, UnsupportedCommand):
        return None, None


def _unfinished(binding: Binding, law: str, seed: int, runaway: Runaway) -> LawRun:
    """A script that had to be ended together with its process breaks ``bounded``; no other law could be judged."""
    outcome = "violated" if law == "bounded" else "unknown"
    story = [f"{law} is {outcome}: {runaway.text}", f"  KEYS: {', '.join(map(repr, runaway.keys)) or 'none'}"]
    story.append(f"  ARGV: {', '.join(map(repr, runaway.args)) or 'none'}")
    return LawRun(str(binding.path), law, seed, outcome, runaway.text, story)


SESSION = SessionKind(SessionTerms("session"))
PENDING = SessionKind(SessionTerms("pending"))
