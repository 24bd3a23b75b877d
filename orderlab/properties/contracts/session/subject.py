"""The store under validation: runs on the kernel on demand, the baseline of its layout, its scaled twin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from orderlab.model.contracts.client_steps import fault_of
from orderlab.model.contracts.session.traces import PRODUCERS, Churn, Save, Step, Trace
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.inspection import Baseline, Inspection, measure_baseline
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.engine.reruns import TakenAgain
from orderlab.properties.validation.findings import Findings, wording
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine, scale
from orderlab.sim.stores.bound import BoundStore, BudgetExceeded, CpuBudget, keeps_sent, kernel_of
from orderlab.sim.stores.memo import MemoStore
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS

DEFAULT_EXPIRY_MS = 20_000
"""Short, so that messages without an interval expire within a run as well."""
CLIENTS = (b"client-one", b"client-two")
SMALL_LIMITS = Limits(instructions_max=5_000_000)
"""Where a handful of identifiers is all there is. A script that does not end is stopped soon, for it is run often."""
REHEARSAL_MODULUS = 61
"""Packet identifiers in the world where it is tried what must pass before a witness shows at full scale."""


Bound = TypeVar("Bound", bound=BoundStore)


@dataclass
class Subject:
    """One binding on the kernel. Kernels are reused: a run begins with an empty keyspace at the first moment."""

    binding: Binding
    seed: int = 0
    rewritten: list[RewrittenLine] = field(default_factory=list)
    """What scaling changed, if this is a scaled store."""
    remembers: bool = False
    """Whether what operations do is remembered: for a search that comes by the same keyspace often."""
    cpu_budget: CpuBudget = field(default_factory=CpuBudget)
    """When to give up, however slow the scripts are; shared with every twin."""
    _store: BoundStore | None = None
    _memo: MemoStore | None = None
    _baseline: dict[tuple[bytes, tuple[bytes, ...]], Baseline | None] = field(default_factory=dict)
    _producers: tuple[bytes, ...] = PRODUCERS
    """Of the last run that was begun."""

    @property
    def store(self) -> BoundStore:
        """The store on its kernel."""
        if self.remembers:
            return self.memo
        if self._store is None:
            self._store = self._ready(BoundStore(self.binding, kernel_of(self.binding), DEFAULT_EXPIRY_MS))
        return self._store

    @property
    def memo(self) -> MemoStore:
        """The store that remembers: ``store`` of a subject that does."""
        if self._memo is None:
            limits = SMALL_LIMITS if self.rewritten else None
            self._memo = self._ready(MemoStore(self.binding, DEFAULT_EXPIRY_MS, limits))
        return self._memo

    def remember_in(self, store: MemoStore) -> None:
        """Have ``store`` be the one that remembers."""
        self._memo = store

    def _ready(self, store: Bound) -> Bound:
        """The store under the budget, known for what it keeps."""
        store.cpu_budget = self.cpu_budget
        store.capabilities = store.capabilities._replace(keeps_sent=keeps_sent(store))
        return store

    def another_store(self) -> BoundStore:
        """The store on a kernel of its own, under the same budget."""
        store = BoundStore(self.binding, kernel_of(self.binding), DEFAULT_EXPIRY_MS)
        store.capabilities, store.cpu_budget = self.store.capabilities, self.cpu_budget
        return store

    def run(
        self,
        clients: Sequence[bytes] = CLIENTS,
        default_expiry_ms: int = DEFAULT_EXPIRY_MS,
        producers: tuple[bytes, ...] = PRODUCERS,
    ) -> SessionRun:
        """A new run on an empty keyspace, its keys inspected."""
        baseline = self.baselines_of(clients, producers)
        self.store.set_default_expiry(default_expiry_ms)
        self._producers = producers
        run = self.bare_run(clients, producers)
        run.inspector = Inspection(baseline) if baseline else None
        return run

    def bare_run(self, clients: Sequence[bytes], producers: tuple[bytes, ...] = PRODUCERS) -> SessionRun:
        """The same with no look at the keys."""
        self.store.restart(FIRST_MS)
        return SessionRun(self.store, clients, producers)

    def baselines_of(self, clients: Sequence[bytes], producers: tuple[bytes, ...] = PRODUCERS) -> list[Baseline] | None:
        """That of several clients, if it is known of all."""
        known = [baseline for client in clients if (baseline := self.baseline(client, producers)) is not None]
        return known if len(known) == len(clients) else None

    def baseline(self, client: bytes, producers: tuple[bytes, ...] = PRODUCERS) -> Baseline | None:
        """What the layout holds for a client when all is well; None when a script does not end even then."""
        if self.binding.base is not None:
            return None  # two layouts on the same keys: what stays behind is not known
        asked = client, producers
        if asked not in self._baseline:
            try:
                self._baseline[asked] = measure_baseline(lambda: self.bare_run((client,), producers))
            except BudgetExceeded:  # too many scripts that do not end: what the steps to come will show
                self.cpu_budget.check()
                self._baseline[asked] = None
            self.store.run_again()
        return self._baseline[asked]

    def scaled(self, modulus: int, remembers: bool = True) -> Subject:
        """The same store with packet identifiers 1..``modulus``."""
        binding, rewritten = scale(self.binding, modulus)
        if self.binding.base is not None:
            old, more = scale(self.binding.base, modulus)
            binding, rewritten = replace(binding, base=old), [*more, *rewritten]
        return Subject(binding, self.seed, rewritten, remembers, self.cpu_budget)

    def recording(self) -> Subject:
        """The same store on a kernel that can write down what is called."""
        return replace(self, remembers=False, _store=None, _memo=None, _baseline={})

    @property
    def may_have_no_default(self) -> bool:
        """Whether callers may give a default interval of 0: messages without one of their own never expire."""
        return self.store.takes_default and self.binding.callers.default_expiry_ms == "any"

    @property
    def limit(self) -> int | None:
        """The limit that the scripts fix themselves, if they do."""
        return self.binding.fixed.get("limit")

    def trace(self, steps: Sequence[Step], clients: Sequence[bytes] = CLIENTS) -> Trace:
        """``steps`` as a trace of this store."""
        return Trace(
            tuple(steps),
            tuple(clients),
            self.store.default_expiry_ms,
            self.binding.modulus,
            str(self.binding.path),
            seed=self.seed,
            producers=self._producers,
        )


@dataclass
class Prepared:
    """A run that has been brought somewhere once, and can be taken back there as often as wanted."""

    subject: Subject
    prefix: tuple[Step, ...]
    clients: tuple[bytes, ...] = CLIENTS
    default_expiry_ms: int = DEFAULT_EXPIRY_MS
    producers: tuple[bytes, ...] = PRODUCERS

    def __post_init__(self) -> None:
        run = self.subject.run(self.clients, self.default_expiry_ms, self.producers)
        self.reports = [run.perform(step) for step in self.prefix]
        self.held = self.subject.store.snapshot()
        self.state = run.state
        self.now_ms = self.subject.store.now_ms

    def run(self) -> SessionRun:
        """A run in that place."""
        run = self.subject.run(self.clients, self.default_expiry_ms, self.producers)
        for step in self.prefix:
            if isinstance(step, Save):
                run.register(step)
        self.subject.store.set_now(self.now_ms)
        self.subject.store.go_back(self.held)
        run.state = self.state
        return run


Asked = tuple[str, tuple[Step, ...], tuple[bytes, ...], int, tuple[bytes, ...]]


def _asked(trace: Trace, law: str) -> Asked:
    return law, trace.steps, trace.clients, trace.default_expiry_ms, trace.producers


class Reruns(TakenAgain):
    """Runs traces of one store again and again. Where many messages pass, the way there is gone only once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.spent = 0
        """Work so far: one for each step, and more for those of many messages. The same on every machine."""
        self.allowed = inf
        """Work beyond which BudgetExceeded is raised."""
        self._places: dict[tuple[tuple[Step, ...], tuple[bytes, ...], int, tuple[bytes, ...]], Prepared] = {}
        self._rehearsal: Reruns | None = None
        self._known: dict[Asked, tuple[int, str] | None] = {}
        """Where traces of many messages break a law: they are asked about several times on the way to a witness."""

    @property
    def rehearsal(self) -> Reruns | None:
        """The same on a twin with few identifiers, yet more than any scope saves; None when there is no such twin."""
        subject, modulus = self.subject, max(REHEARSAL_MODULUS, 2 * (self.subject.limit or 0))
        if self._rehearsal is None and modulus < subject.binding.modulus:
            twin = subject.scaled(modulus, remembers=False)
            self._rehearsal = Reruns(twin) if twin.rewritten else None
        return self._rehearsal

    def allow(self, steps: float) -> None:
        """Let the work go on for so many steps from now, and as many in rehearsal; beyond it BudgetExceeded is
        raised."""
        self.allowed = self.spent + steps
        if self.rehearsal is not None:
            self.rehearsal.allow(steps)

    def _spend(self, steps: int) -> None:
        self.spent += steps
        if self.spent > self.allowed:
            raise BudgetExceeded

    def start(self, trace: Trace) -> tuple[SessionRun, int]:
        """A run ready for ``trace``, and how many of its steps it has taken already."""
        self.subject.store.run_again()
        passes = [at for at, step in enumerate(trace.steps, 1) if isinstance(step, Churn)]
        for length in passes[:1]:
            way = trace.steps[:length], trace.clients, trace.default_expiry_ms, trace.producers
            if way not in self._places:
                self._spend(sum(map(weight, way[0])))
                self._places[way] = Prepared(self.subject, *way)
            place = self._places[way]
            if not any(report.discrepancies for report in place.reports):
                return place.run(), length
        return self.subject.run(trace.clients, trace.default_expiry_ms, trace.producers), 0

    def law_broken(self, trace: Trace, law: str, words: str = "") -> tuple[int, str] | None:
        """How many steps it takes to break ``law`` and what is then said; None when the trace does not break it.

        With ``words`` it must be broken in this wording (``findings.wording``).
        """
        if heaviness(trace) < HEAVY:
            return super().law_broken(trace, law, words)
        asked = _asked(trace, law)
        if asked not in self._known and not words:
            self._known[asked] = found = super().law_broken(trace, law)
            if found is not None:  # cut there it is broken there as well
                self._known[_asked(replace(trace, steps=trace.steps[: found[0]]), law)] = found
        known = self._known.get(asked, ())
        if known is None or (known and (not words or wording(known[1]) == words)):
            return known
        return super().law_broken(trace, law, words)

    def taken(self, trace: Trace) -> Iterator[tuple[int, StepReport]]:
        """The steps behind the way to where many messages have passed. Raises BudgetExceeded."""
        run, taken = self.start(trace)
        held, charged = 0, self.subject.cpu_budget.charged
        for at, step in enumerate(trace.steps[taken:], taken + 1):
            report = run.perform(step)
            held += weight(step) if isinstance(step, Save) else 0
            self._spend(weight(step) + held // 4 + CHARGED_STEPS * (self.subject.cpu_budget.charged - charged))
            charged = self.subject.cpu_budget.charged
            yield at, report
            if report.diverges:
                return


HEAVY = 1_000
"""Work (``heaviness``) of a trace of thousands of messages: it is run as seldom as possible."""
CHARGED_STEPS = 20
"""Steps that take as long as a million instructions of Lua."""
MESSAGES_A_STEP = 20
"""Messages of a batch that take about as long as a step of few."""


def weight(step: Step) -> int:
    """What a step costs beside others, by what it says."""
    match step:
        case Churn(count=messages, by_expiry=True):
            return 1 + messages // MESSAGES_A_STEP
        case Churn(count=messages):
            return 1 + 3 * messages // MESSAGES_A_STEP
        case Save(messages=batch):
            return 1 + len(batch) // MESSAGES_A_STEP
    return 1


def heaviness(trace: Trace) -> int:
    """What all the steps of a trace cost: where many messages wait, each step has to do with all of them."""
    total = held = 0
    for step in trace.steps:
        held += weight(step) if isinstance(step, Save) else 0
        total += weight(step) + held // 4
    return total


def take_steps(
    subject: Subject,
    run: SessionRun,
    steps: Iterable[Step],
    findings: Findings,
    analysis: str,
    prefix: tuple[Step, ...] = (),
) -> None:
    """Take ``steps`` until they end or nothing can be judged any more; what they break goes to ``findings``.

    ``run`` is one of ``subject`` and has taken ``prefix`` before. Each step is asked for when the one before it has
    been taken, so that it may depend on what the run has come to. Raises BudgetExceeded.
    """
    taken = list(prefix)
    for step in steps:
        report = run.perform(step)
        if report.result is None:  # it had no meaning where it stood
            continue
        taken.append(step)
        findings.work["steps"] += 1
        if report.discrepancies:
            findings.add(report.discrepancies, subject.trace(taken, run.clients), analysis)
        if report.diverges:
            return


def fitted_step(step: Step, subject: Subject) -> Step:
    """With the limit that the scripts fix, if they do, and otherwise no more than there are identifiers; with a fault
    that can befall the store in place of one that cannot."""
    if isinstance(step, Save):
        step = replace(step, limit=subject.limit or min(step.limit, subject.binding.modulus))
    fault, conditions = fault_of(step), subject.store.conditions
    if fault is None or fault.kind in conditions or fault.kind not in NODE_CONDITIONS:
        return step
    kind = conditions[NODE_CONDITIONS.index(fault.kind) % len(conditions)]
    return replace(step, fault=replace(fault, kind=kind))  # type: ignore[arg-type]
