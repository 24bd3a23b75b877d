"""What commands, the plugin and mutation ask of a kind of store, and the table of the kinds that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from orderlab.model.contracts.contract import AnyTrace, Terms
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding

if TYPE_CHECKING:
    from orderlab.properties.comparison.change import Comparison
    from orderlab.properties.costs.readings import CostReading
    from orderlab.properties.mutants.mutant import Result
    from orderlab.properties.profiles import Profile
    from orderlab.properties.side_by_side import Cost, Row
    from orderlab.properties.validation.law_run import LawRun
    from orderlab.properties.validation.sample import Sampled
    from orderlab.properties.validation.validation import Validation

KINDS: Mapping[str, str] = {
    "session": "orderlab.properties.contracts.session.kind:SESSION",
    "pending": "orderlab.properties.contracts.session.kind:PENDING",
    "FILE.py:Class": "orderlab.properties.contracts.sequential.kind:SEQUENTIAL",
}
"""``specification`` of a ``store.toml`` -> its kind; the last for the contracts that owners write. Looked up when it is
needed, for each brings its own engine."""
OWN = "FILE.py:Class"

Progress = Callable[[str], None]


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

    def validate(
        self,
        binding: Binding,
        effort: float,
        seed: int,
        laws: list[str] | None,
        backend: Backend | None,
        progress: Progress,
        budget_s: float | None = None,
    ) -> Validation:
        """Judge a store, in a process of its own. ``laws`` None: all of them."""
        ...

    def compare(
        self,
        old: Binding,
        new: Binding,
        effort: float,
        seed: int,
        laws: list[str] | None,
        backend: Backend | None,
        progress: Progress,
        budget_s: float | None = None,
    ) -> Comparison:
        """Judge a change of scripts, in a process of its own, capped if asked for.

        Raises InputError where the two cannot be held against each other.
        """
        ...

    def measured(self, binding: Binding, seed: int) -> tuple[Cost, dict[str, str]] | None:
        """What the kind's workload costs on a store, and what it does under each fault; None where the kind has no
        workload."""
        ...

    def readings(self, binding: Binding, now_ms: int) -> Iterator[CostReading]:
        """What each operation takes on a kernel whose clock begins at ``now_ms``, in every situation and size that the
        kind knows. Raises InputError where the store has no scripts."""
        ...

    def sampled(self, binding: Binding) -> Iterator[Sampled]:
        """One call of each operation that a client would try, carried out on the kernel, in an order in which most find
        something."""
        ...

    def replay(self, trace: AnyTrace, binding: Binding, backend: Backend) -> Iterator[dict[str, Any]]:
        """Each step when it is asked for, the store being loaded at once: what it was (``step``), what came of it
        (``result``), [law, text] of each that it broke (``broken``)."""
        ...

    def tester(
        self,
        binding: Binding,
        laws: Iterable[str],
        profile: Profile,
        seed: int,
        examples: Any,
        effort: float | None = None,
    ) -> Callable[[str], LawRun]:
        """Puts one of ``laws`` to the test at a time. ``examples``: Hypothesis's database. With ``effort`` as
        validation does."""
        ...

    def judged(
        self, binding: Binding, effort: float, seed: int, laws: Iterable[str] | None = None, only_first: bool = False
    ) -> Validation:
        """As ``validate``, in this process; with ``only_first`` each of ``laws`` needs no more than one witness."""
        ...

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

    kind = kind_of(binding)
    found = kind.validate(binding, effort, seed, None, None, progress)
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
