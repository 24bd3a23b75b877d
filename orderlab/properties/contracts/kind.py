"""What commands, the plugin and mutation ask of a kind of store, and the table of the kinds that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from orderlab.model.contracts.base import AnyTrace, Call, Terms
from orderlab.model.errors import InputError
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding

if TYPE_CHECKING:
    from orderlab.model.verdict import Outcome
    from orderlab.properties.comparison.differences import Comparison
    from orderlab.properties.costs.readings import CostReading
    from orderlab.properties.mutants.mutant import Result
    from orderlab.properties.profiles import Profile
    from orderlab.properties.side_by_side import Cost, Row
    from orderlab.properties.validation.law_run import LawRun
    from orderlab.properties.validation.sample import Sampled
    from orderlab.properties.validation.validation import Validation
    from orderlab.properties.validation.verdicts import LawResult
    from orderlab.properties.validation.work_order import Progress, WorkOrder

KINDS: Mapping[str, str] = {
    "session": "orderlab.properties.contracts.session.kind:SESSION",
    "pending": "orderlab.properties.contracts.session.kind:PENDING",
    "FILE.py:Class": "orderlab.properties.contracts.sequential.kind:SEQUENTIAL",
}
"""``specification`` of a ``store.toml`` -> its kind; the last for the contracts that owners write. Looked up when it is
needed, for each brings its own engine."""
OWN = "FILE.py:Class"


class Kind(Protocol):
    """A contract with what trying its stores takes. Everything above the contracts goes through here."""

    def terms(self, binding: Binding) -> Terms:
        """The contract of a store. Raises InputError when what it names is none."""
        ...

    def check_law(self, binding: Binding, name: str) -> str:
        """The law's full name. Raises InputError for one that the store is not held to."""
        ...

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of this kind."""
        ...

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace. Raises InputError that names what is wrong where."""
        ...

    def laws_of(self, binding: Binding, asked: Sequence[str] | None = None) -> list[str]:
        """The laws that a store is held to, or those that are asked for. Raises InputError for one that it is not held
        to."""
        ...

    def worlds_of(self, binding: Binding) -> list[Binding]:
        """The store as it is, and in every smaller world that it is tried in."""
        ...

    def judged(self, binding: Binding, order: WorkOrder) -> Validation:
        """Judge a store. Raises InputError when it cannot be run at all."""
        ...

    def unjudged(self, binding: Binding, results: tuple[LawResult, ...], gap: str, order: WorkOrder) -> Validation:
        """What is told of a store one of whose scripts had to be ended together with its process."""
        ...

    def compared(self, old: Binding, new: Binding, order: WorkOrder) -> Comparison:
        """Judge a change of scripts. Raises InputError where the two cannot be held against each other."""
        ...

    def certified(self, binding: Binding, content: Mapping[str, Any], place: str) -> tuple[Outcome, str]:
        """Whether a certificate of a closed scope shows what it says of a store, and that, or why not. Raises
        InputError where it is none."""
        raise InputError(f"{place}: {binding.name} is of a kind that has no certificates; see notes/proved-scopes.md")

    def validate(self, binding: Binding, order: WorkOrder) -> Validation:
        """As ``judged``, in a process of its own. A script that cannot be ended otherwise breaks the law
        ``bounded``."""
        from orderlab.properties.validation.isolated import Runaway, isolated, unjudged

        found = isolated(
            binding, lambda: self.judged(binding, order), lambda: self.worlds_of(binding), budget_s=order.budget_s
        )
        if not isinstance(found, Runaway):
            return found
        wanted = {*self.laws_of(binding, order.laws), "bounded"}
        return self.unjudged(
            binding, *unjudged(found, [law for law in self.terms(binding).laws if law in wanted]), order
        )

    def compare(self, old: Binding, new: Binding, order: WorkOrder) -> Comparison:
        """As ``compared``, in a process of its own."""
        from orderlab.properties.comparison.differences import compare_isolated

        return compare_isolated(old, new, lambda: self.compared(old, new, order), order.budget_s)

    def measured(self, binding: Binding, seed: int) -> tuple[Cost, dict[str, str]] | None:
        """What the kind's workload costs on a store, and what it does under each fault; None where the kind has no
        workload."""
        ...

    def readings(self, binding: Binding, now_ms: int) -> Iterator[CostReading]:
        """What each operation takes on a kernel whose clock begins at ``now_ms``, in every situation and size that the
        kind knows. Raises InputError where the store has no scripts."""
        ...

    def sampled(self, binding: Binding, asked: Sequence[Call] = ()) -> Iterator[Sampled]:
        """One call of each operation that a client would try, carried out on the kernel, in an order in which most find
        something. ``asked``: of a store with a contract these calls instead."""
        ...

    def replay(self, trace: AnyTrace, binding: Binding, backend: Backend) -> Iterator[dict[str, Any]]:
        """Each step when it is asked for, the store being loaded at once: what it was (``step``), what came of it
        (``result``), [law, text] of each that it broke (``broken``)."""
        ...

    def tester(self, binding: Binding, profile: Profile, order: WorkOrder, examples: Any) -> Callable[[str], LawRun]:
        """Tests one of the laws at a time, as far as the profile goes. ``examples``: Hypothesis's
        database."""
        ...

    def tester_at_effort(self, binding: Binding, order: WorkOrder) -> Callable[[str], LawRun]:
        """The same as validation does: all laws are judged in one go, the first time that one is asked for."""
        from orderlab.properties.validation.law_run import LawsTogether

        return LawsTogether(lambda: self.validate(binding, order), order.seed)

    def judge_original(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """The judgement on what mutants are made of. Runs in a process of its own, as all three do."""
        ...

    def judge_quickly(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """The judgement on a mutant in the first round."""
        ...

    def tabulate(self, binding: Binding) -> Any:
        """What the mutants of the second round are compared with: a value with ``scope``, or None."""
        ...

    def judge_thoroughly(
        self, binding: Binding, script: str, table: Any, seed: int, budget_s: float, effort: float
    ) -> Result:
        """The judgement on a mutant of ``script`` that survived the first round."""
        ...


def kind_named(name: str) -> Kind:
    """The kind of that ``specification``."""
    module, _, attribute = KINDS[name if name in KINDS else OWN].partition(":")
    found: Kind = getattr(import_module(module), attribute)
    return found


def kind_of(binding: Binding) -> Kind:
    """The kind of a store."""
    return kind_named(binding.specification)


def row_of(name: str, binding: Binding, effort: float, seed: int, progress: Progress) -> Row:
    """The row of a store in `orderlab compare`. Of a kind that has no workload it has the laws alone."""
    from orderlab.properties.side_by_side import Row
    from orderlab.properties.validation.work_order import WorkOrder

    kind = kind_of(binding)
    found = kind.validate(binding, WorkOrder(effort, seed, progress=progress))
    laws = {result.law: str(result.outcome) for result in found.results if not result.not_applicable}
    measured = kind.measured(binding, seed)
    cost, faults = (None, {}) if measured is None else measured
    return Row(name, binding.specification.rpartition(":")[2], laws, cost, faults)


def kind_of_trace(data: Any) -> Kind:
    """The kind that a trace in JSON is of; what is no trace of any is for the first to refuse."""
    given = data if isinstance(data, Mapping) else {}
    kinds = [kind_named(name) for name in KINDS]
    return next((kind for kind in kinds if kind.reads(given)), kinds[0])


def trace_from_json(data: Any, place: str) -> AnyTrace:
    """A trace of whichever kind. Raises InputError that names what is wrong where."""
    return kind_of_trace(data).trace_from_json(data, place)
