"""Stores with a contract of their owner's, old against new: the product of both, and both on the same data.

The product is a run on two stores: every step is taken on both, and what differs is reported as the violation of a law
that is called ``reply``, ``keys``, ``values`` or ``ttl``, so that search and shortening are those of any contract. In
the rolling upgrade each call of a client may be served by either version, on one store, and the contract judges the
replies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from orderlab.model.contracts.base import AnyTrace, Contract, Failed
from orderlab.model.contracts.client_steps import (
    Begin,
    ClientStep,
    ContractTrace,
    Die,
    Fault,
    Resume,
    Wait,
    fault_of,
    told_step,
)
from orderlab.model.contracts.judge import Violation
from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.properties.comparison.differences import (
    KINDS,
    PRODUCT_BY,
    REPLY,
    ROLLING_BY,
    Cap,
    Change,
    Comparison,
    Difference,
    RollingUpgrade,
    first_difference,
    has_library,
)
from orderlab.properties.engine.crowds import crowd
from orderlab.properties.engine.run import ClientState, ContractRun, Report, RunState
from orderlab.properties.engine.search import Search, explore, operation_of, walk
from orderlab.properties.engine.situations import AFTER_TROUBLE, ONE_BY_ONE, situate
from orderlab.properties.engine.validation import (
    LENGTH,
    SKEW_MS,
    WALKS,
    asks_clients_for_time,
    contract_of,
    is_counted,
    validate_contract,
)
from orderlab.properties.engine.versions import (
    ONE_LIBRARY,
    InTheMix,
    change_of,
    compare_versions,
    dearer_or_cheaper,
    difference_of,
    first_of_each,
    in_the_mix,
    not_searched,
)
from orderlab.properties.engine.witness import ContractPerformer, ContractReruns, PlainerCalls, explain
from orderlab.properties.validation.findings import Finding, Findings, wording
from orderlab.properties.validation.validation import Validation
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.properties.witness.shortening import shortened
from orderlab.properties.witness.witness import Explanation
from orderlab.sim.costs.cost_model import estimate_us
from orderlab.sim.redis.error_conditions import CRASHED, KILLED
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.stores.binding.binding import NEW, Binding
from orderlab.sim.stores.bound import CpuBudget, kernel_of

CALLS_OF_ONE = 16
"""Calls of one operation after which the other side is not waited for any more."""
TRIED_MAX = 40
"""Traces in which a law fell in the mix that are tried on either version alone, for each law."""


class Pair(NamedTuple):
    """Where both runs are."""

    new: RunState
    old: RunState

    @property
    def key(self) -> object:
        """The same for pairs with the same future."""
        return self.new.key, self.old.key

    @property
    def clients(self) -> tuple[ClientState, ...]:
        """Both have seen the same so far."""
        return self.new.clients

    @property
    def beside_clients(self) -> object:
        """Everything but what they know."""
        return self.new.beside_clients, self.old.beside_clients


@dataclass
class Spent:
    """What one operation took, on either side, where both replied alike."""

    calls: int = 0
    commands: list[int] = field(default_factory=lambda: [0, 0])
    us: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Of a server, by the cost model; the old one first."""


class PairedRun(ContractRun):
    """The new store under several clients, with the old one beside it on data of its own."""

    def __init__(
        self, old: Binding, new: Binding, contract: Contract, clients: int, skews_ms: Sequence[int] = ()
    ) -> None:
        super().__init__(new, contract, kernel_of(new), clients, skews_ms)
        self.other = ContractRun(old, contract, kernel_of(old), clients, skews_ms)
        self.spent: dict[str, Spent] = defaultdict(Spent)

    def set_clocks(self, skews_ms: Sequence[int]) -> None:
        """Of both."""
        super().set_clocks(skews_ms)
        self.other.set_clocks(skews_ms)

    @property
    def state(self) -> Any:
        """Where both are."""
        return Pair(super().state, self.other.state)

    def go_to(self, state: Any) -> None:
        """Be in ``state``, both."""
        super().go_to(state.new)
        self.other.go_to(state.old)

    @property
    def deadlines_ms(self) -> set[int]:
        """Of both."""
        return super().deadlines_ms | self.other.deadlines_ms

    def perform(self, step: ClientStep) -> Report:
        """Take the step on both. What stops a script at one of its calls is no step here: the two need not make the
        same calls."""
        trouble = getattr(step, "trouble", None)
        if trouble is not None and trouble.kind in (CRASHED.name, KILLED.name):
            return Report(is_idle=True)
        were_alike = self._apart() is None
        mine, theirs = super().perform(step), self.other.perform(step)
        if isinstance(step, Wait | Die) or mine.is_idle:
            return mine
        if mine.is_over or theirs.is_over:  # one that takes more calls ends before others come in between
            _carry_on(mine, step.client, super().perform)
            _carry_on(theirs, step.client, self.other.perform)
        mine.work = max(mine.work, theirs.work)
        operation = (step.call if isinstance(step, Begin) else self._under_way(step.client)).name
        mine.violation = (
            self._told_apart(operation, mine, theirs, were_alike, trouble) or mine.violation or theirs.violation
        )
        if not (mine.stopped or theirs.stopped or trouble) and mine.is_over and mine.work == 1:
            self._count(operation, mine, theirs)
        return mine

    def _under_way(self, client: int) -> Any:
        """The operation that a client has begun, or has just ended."""
        state = self.clients[client]
        return state.pending or state.retry or state.seen[-1].call

    def _told_apart(
        self, operation: str, mine: Report, theirs: Report, were_alike: bool, trouble: Fault | None
    ) -> Violation | None:
        words = f" ({trouble.kind})" if trouble else ""
        if mine.is_over and _heard(mine) != _heard(theirs):
            return Violation((REPLY,), f"{operation}{words} replies {_heard(mine)}; the old one {_heard(theirs)}")
        if not were_alike or (found := self._apart()) is None:
            return None
        kind, text = found
        return Violation((kind,), f"{operation}{words} leaves {text}")

    def _apart(self) -> tuple[str, str] | None:
        return first_difference(self.backend.keyspace(), self.other.backend.keyspace())

    def _count(self, operation: str, mine: Report, theirs: Report) -> None:
        spent = self.spent[operation]
        spent.calls += 1
        for side, report in enumerate((theirs, mine)):
            inner = [one for one in report.effects if one.argv[0].lower() not in SCRIPT_CALLS]
            spent.commands[side] += len(inner)
            spent.us[side] += estimate_us(tuple(inner))


class PairedReplies(PairedRun):
    """Both, with nothing said of the keys, so that it goes on where they differ."""

    def _apart(self) -> tuple[str, str] | None:
        return None


def _carry_on(report: Report, client: int, perform: Callable[[ClientStep], Report]) -> None:
    """Carry an operation on to its end, and tell it as one step."""
    for _ in range(CALLS_OF_ONE):
        if report.is_over:
            return
        more = perform(Resume(client))
        report.effects += more.effects
        report.reply, report.is_over, report.stopped, report.violation = (
            more.reply,
            more.is_over,
            more.stopped,
            more.violation,
        )
        report.work = max(report.work, more.work)


def _heard(report: Report) -> str:
    """What its client hears of an operation; of an error the code, for its words are for people."""
    if isinstance(report.reply, Failed):
        return f"error {report.reply.text.split(' ', 1)[0]}"
    return "nothing" if report.stopped else repr(report.reply)


class MixReruns(InTheMix, ContractReruns):
    """Steps of which either version serves some, beside each version alone."""

    def __init__(self, make: Callable[[], ContractRun], alone: Iterable[ContractReruns]) -> None:
        super().__init__(make)
        self.alone = tuple(alone)

    def by_one(self, trace: ContractTrace) -> ContractTrace:
        """Without who serves which call."""
        steps = (replace(one, served_by="") if isinstance(one, Begin) else one for one in trace.steps)
        return replace(trace, steps=tuple(steps))

    def is_taken_alone(self, trace: ContractTrace) -> bool:
        """Whether clients could take the steps on each version alone, which then breaks no law by them."""
        return all(one.takes(self.by_one(trace)) for one in self.alone)


def compare_contracts(old: Binding, new: Binding, order: WorkOrder) -> Comparison:
    """Judge the change from ``old`` to ``new``. Raises InputError where the two cannot be held against each other."""

    def search_of(old_common: Binding, new_common: Binding, cap: Cap) -> ProductSearch:
        search = ProductSearch(old_common, new_common, order, cap)
        if _contract_text(old) != _contract_text(new):
            search.gaps.append(
                "the contract differs as well: each version was judged by its own, both together by the new one"
            )
        return search

    return compare_versions(old, new, order, validate_contract, _laws_of, is_counted, search_of)


def _laws_of(binding: Binding) -> Collection[str]:
    return SequentialTerms(contract_of(binding)).laws


def _contract_text(binding: Binding) -> bytes:
    file = binding.path / binding.specification.partition(":")[0]
    return file.read_bytes() if file.is_file() else b""


class ProductSearch:
    """The product of both stores, and both on the same data."""

    def __init__(self, old: Binding, new: Binding, order: WorkOrder, cap: Cap | None = None) -> None:
        self.cap = cap or Cap(None)
        self.old, self.new, self.order, self.progress = old, new, order, order.progress
        self.contract = contract_of(new)
        self.terms = SequentialTerms(self.contract)
        asks = asks_clients_for_time(old) or asks_clients_for_time(new)
        self.skews = (0, SKEW_MS) if asks and not self.contract.clocks_agree else ()
        self.clients = max(3, self.contract.clients)
        self.scope: list[str] = []
        self.gaps: list[str] = []
        self.work: dict[str, float] = {}
        self.spent: list[dict[str, Spent]] = []
        self.alone = tuple(self._reruns(one, contract_of(one)) for one in (old, new))
        """Each version, by its own contract."""

    def _single(self, binding: Binding, contract: Contract, clients: int = 0) -> ContractRun:
        return ContractRun(binding, contract, kernel_of(binding), clients or self.clients, self.skews)

    def first_difference(self, replies_only: bool = False) -> tuple[str, int]:
        """The plainest difference in words, empty if there is none, and the steps that were taken on both.
        ``replies_only``: what a client hears, whatever the keys hold."""
        make = self._pair_of_replies if replies_only else self._pair
        findings = self._searched(make, ContractReruns(make), KINDS, "both", is_at_length=True)
        found = sorted((one for each in findings.by_law.values() for one in each), key=lambda one: one.size)
        return (found[0].text if found else ""), findings.work["steps"]

    def _pair_of_replies(self, clients: int = 0) -> PairedRun:
        return PairedReplies(self.old, self.new, self.contract, clients or self.clients, self.skews)

    def _reruns(self, binding: Binding, contract: Contract) -> ContractReruns:
        return ContractReruns(lambda: self._single(binding, contract), others=(self.old, self.new))

    def _pair(self, clients: int = 0) -> PairedRun:
        run = PairedRun(self.old, self.new, self.contract, clients or self.clients, self.skews)
        self.spent.append(run.spent)
        return run

    def _searched(
        self,
        make: Callable[[int], ContractRun],
        reruns: ContractReruns,
        laws: Iterable[str],
        what: str,
        is_at_length: bool = False,
        until: float = PRODUCT_BY,
    ) -> Findings:
        """What is found, as far as the time goes."""
        findings = Findings(frozenset(laws))
        with self.cap.within(what):
            self._search(make, Search(reruns, findings, self.cap.limit(CpuBudget(), until)), what, is_at_length)
        return findings

    def _search(self, make: Callable[[int], ContractRun], search: Search, what: str, is_at_length: bool) -> None:
        for scope in self.terms.scopes_at(self.order.effort):
            self.progress(f"{what}: {scope.name}")
            explore(make(scope.present), scope, search, self.order.effort)
        for name in (ONE_BY_ONE, AFTER_TROUBLE):
            self.progress(f"{what}: {name}")
            situate(make(0), search, self.order.effort, name)
        self.progress(f"{what}: random walks")
        walk(make(0), search, self.order.seed, max(int(WALKS * self.order.effort), 10), LENGTH)
        if is_at_length:
            self.progress(f"{what}: many things")
            crowd(lambda: make(0), search)

    def differences(self, newly: Sequence[Change] = ()) -> tuple[Difference, ...]:
        """The shortest one for each kind and operation. What trouble leaves behind of an operation that breaks a law
        without any is the same change once more."""
        reruns = ContractReruns(self._pair)
        findings = self._searched(self._pair, reruns, KINDS, "both", is_at_length=True)
        self.gaps += [f"compared: {gap}" for gap in findings.gaps]
        work = findings.work
        self.scope.append(
            f"every scope on both: {work['steps']:,} steps, {work['states']:,} pairs of states, {work['walks']:,} "
            "random walks"
        )
        broken_by = {operation_of(one.witness.finding.trace.steps) for one in newly if one.witness is not None}
        found = first_of_each(
            findings,
            lambda one: (_is_troubled(one.trace), one.size),
            lambda one: operation_of(one.trace.steps),
            lambda one: self._difference(reruns, one),
        )
        return tuple(
            one for one in found if not (_is_troubled(one.trace) and operation_of(one.trace.steps) in broken_by)
        )

    def _difference(self, reruns: ContractReruns, found: Finding) -> Difference:
        self.progress(f"both: a witness of {found.law}")
        trace: ContractTrace = shortened(found.trace, found.law, reruns, PlainerCalls())
        broken = reruns.law_broken(trace, found.law)
        trace = replace(trace, law="", store=str(self.new.path), seed=self.order.seed)
        old, new = self.alone
        text = broken[1] if broken else found.text
        return difference_of(found.law, text, trace, (new, old), told_step, explain)

    def costs(self, before: Validation | None = None, after: Validation | None = None) -> Iterator[str]:
        """Operations that took more or fewer commands, or more or less of a server's time, where both replied alike."""
        whole: dict[str, Spent] = defaultdict(Spent)
        for part in self.spent:
            for name, one in part.items():
                whole[name].calls += one.calls
                for side in (0, 1):
                    whole[name].commands[side] += one.commands[side]
                    whole[name].us[side] += one.us[side]
        for name, one in sorted(whole.items()):
            (then, now), (us_then, us_now) = one.commands, one.us
            word = dearer_or_cheaper((us_then, then), (us_now, now))
            if word:
                yield (
                    f"{word}: {name}: {now / one.calls:.2f} commands and {us_now / one.calls / 1000:.3f} ms a call, "
                    f"before {then / one.calls:.2f} and {us_then / one.calls / 1000:.3f} ms, over {one.calls:,} calls"
                )

    def rolling_upgrade(self, laws: Sequence[str], seen: Set[tuple[str, str]] = frozenset()) -> RollingUpgrade:
        """Both versions on the same data: what neither breaks alone, with its shortest steps.

        ``seen``: law and wording of what one of them was seen to break. Where the two tell other tokens, no client can
        take the same steps on either alone, and then that is what is seen again.
        """
        if has_library(self.old) or has_library(self.new):
            return not_searched(ONE_LIBRARY)
        mixed = replace(self.new, base=self.old)

        def make(clients: int = 0) -> ContractRun:
            return self._single(mixed, self.contract, clients)

        reruns = MixReruns(make, [self._reruns(one, self.contract) for one in (self.old, self.new)])
        findings = self._searched(make, reruns, laws, "rolling upgrade", until=ROLLING_BY)
        confirmer = Confirmer(self.order.backend, ContractPerformer(mixed, self.contract), CpuBudget())

        broken = in_the_mix(
            laws,
            findings,
            _upgrades_first,
            TRIED_MAX,
            lambda one: self._in_the_mix(mixed, reruns, one, confirmer, seen),
        )
        work = findings.work
        scope = (
            f"rolling upgrade, each call served by either version: {work['steps']:,} steps, {work['states']:,} "
            f"states, {work['walks']:,} random walks"
        )
        return RollingUpgrade(broken, (scope,), tuple(f"rolling upgrade: {gap}" for gap in findings.gaps))

    def _in_the_mix(
        self, mixed: Binding, reruns: MixReruns, found: Finding, confirmer: Confirmer, seen: Set[tuple[str, str]]
    ) -> Change | None:
        """The finding with its shortest steps; None if it does not stand."""
        law = found.law
        if reruns.law_broken(found.trace, law) is None:
            return None
        if (law, wording(found.text)) in seen and not reruns.is_taken_alone(found.trace):
            return None
        self.progress(f"rolling upgrade: a witness of {law}")
        trace: ContractTrace = shortened(found.trace, law, reruns, PlainerCalls())

        def confirmed(trace: ContractTrace, explanation: Explanation) -> str:
            return confirmer.words(trace, law, explanation.exhausts)

        return change_of(
            found, trace, mixed, reruns, lambda one: explain(reruns, one), confirmed, self.order, self.terms
        )


def _is_troubled(trace: AnyTrace) -> bool:
    return any(fault_of(step) is not None for step in trace.steps)


def _upgrades_first(one: Finding) -> tuple[int, list[bool], str]:
    """Shorter ones before longer ones, what an upgrade breaks before what a rollback does."""
    steps = one.trace.steps
    return len(steps), [getattr(step, "served_by", "") == NEW for step in steps], repr(steps)
