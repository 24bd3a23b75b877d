"""The validation of a store with a contract of its owner's: every law, its verdict, its witness, what was left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.contract import ALL_OR_NOTHING, SPECIFICATION, Contract
from orderlab.model.contracts.sequential import BOUNDED, NO_RESIDUE, ONE_SLOT, SequentialTerms
from orderlab.model.contracts.steps import ClientStep, ContractTrace
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome, worst
from orderlab.properties.contracts.sequential.growth import Growth, measure
from orderlab.properties.contracts.sequential.run import LIMIT_WORD, ContractRun
from orderlab.properties.contracts.sequential.search import Found, Searched, explore, never, walk
from orderlab.properties.contracts.sequential.witness import (
    ContractWitness,
    Rerun,
    is_about_atomicity,
    shortened,
    told_report,
    witness,
)
from orderlab.properties.harness.recording import LuaLine, record_of
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.stores.binding.binding import Binding

SKEW_MS = 700
"""By how much the second client's clock is ahead of the server's, where a store asks its clients for the time."""
SEARCHING = 0.7
"""Of a cap in seconds, what the searches may take; the rest is for witnesses."""
CAUSES_MAX = 5
"""Witnesses for one law, each of another operation or line."""
STEPS = 6_000
"""Steps of the exhaustive scopes for each unit of effort (``orderlab.properties.validation.effort``)."""
WALKS, LENGTH = 30, 40
"""Random walks for each unit of effort, and how long they are."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ContractResult:
    """The verdict on one law."""

    law: str
    statement: str
    outcome: Outcome
    tested: int
    witnesses: tuple[ContractWitness, ...] = ()
    gaps: tuple[str, ...] = ()
    not_applicable: str = ""
    """Why the law says nothing about this store, if it does not."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "law": self.law,
            "statement": self.statement,
            "outcome": str(self.outcome),
            "tested": self.tested,
            "witnesses": [one.to_json() for one in self.witnesses],
            "not_covered": list(self.gaps),
            "not_applicable": self.not_applicable or None,
        }


@dataclass(frozen=True)
class ContractValidation:
    """What validation found out about one store with a contract."""

    binding: Binding
    contract: Contract
    results: tuple[ContractResult, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    work: dict[str, int]
    seed: int
    effort: float

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; laws that say nothing about this store do not count."""
        outcomes = [result.outcome for result in self.results if not result.not_applicable]
        return worst(outcomes) if outcomes else Outcome.UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """The schema is in ``notes/contracts.md``."""
        return {
            "store": str(self.binding.path),
            "name": self.binding.name,
            "contract": type(self.contract).__name__,
            "outcome": str(self.outcome),
            "seed": self.seed,
            "effort": self.effort,
            "laws": [result.to_json() for result in self.results],
            "assumptions": list(self.binding.assumptions),
            "notes": list(self.notes),
            "not_covered": list(self.gaps),
            "work": self.work,
        }


def contract_of(binding: Binding) -> Contract:
    """The contract that the binding names. Raises InputError when it is none."""
    if not isinstance(binding.contract, Contract):
        kind = type(binding.contract).__name__
        raise InputError(f"{binding.place}: specification: {kind} is no Contract; derive it from orderlab.contract.Contract")
    return binding.contract


def validate_contract(
    binding: Binding,
    effort: float = 10.0,
    seed: int = 0,
    laws: Iterable[str] | None = None,
    server: Callable[[], Backend] | None = None,
    progress: Progress = lambda text: None,
    budget_s: float | None = None,
) -> ContractValidation:
    """Judge the store of ``binding`` by its own contract. ``effort`` multiplies the number of steps; ``budget_s`` is a cap in
    seconds on all of it, and what it cuts off is told.

    Raises InputError when the scripts or the contract cannot be run at all.
    """
    contract = contract_of(binding)
    terms = SequentialTerms(contract)
    statements = terms.laws
    wanted = list(laws) if laws is not None else list(statements)
    for name in wanted:
        if name not in statements:
            raise InputError(f"--law {name}: not a law of {type(contract).__name__}; one of {', '.join(statements)}")
    searched = Searched()
    skews = (0, SKEW_MS) if asks_clients_for_time(binding) else ()

    def make(clients: int = max(3, contract.clients)) -> ContractRun:
        return ContractRun(binding, contract, KernelBackend(), clients, skews)

    began = time.monotonic()

    def is_over(share: float = SEARCHING) -> bool:
        return budget_s is not None and time.monotonic() - began >= share * budget_s

    cut = []
    for scope in terms.scopes:
        progress(scope.name)
        steps = int(STEPS * effort * scope.share)
        explore(make(scope.clients), scope, searched, steps, f"every interleaving of {scope.name}", is_over)
        cut += [scope.name] * is_over()
    progress("random walks")
    walk(make(), searched, seed, max(int(WALKS * effort), 10), LENGTH, is_over)
    if is_over():
        searched.gaps.append(f"the cap of {budget_s:g} s cut off: {'; '.join([*cut, 'random walks'])}")
    growth = Growth()
    if {NO_RESIDUE, BOUNDED} & set(wanted):
        progress("what grows")
        growth = measure(make, is_over)
    judge = _Verdicts(binding, contract, searched, Rerun(make), server, progress, seed, lambda: is_over(1.0), growth)
    results = tuple(judge.result(name, statements[name]) for name in wanted)
    notes = undeclared_notes(searched)
    return ContractValidation(binding, contract, results, notes, tuple(searched.gaps), dict(searched.work), seed, effort)


def asks_clients_for_time(binding: Binding) -> bool:
    """Whether any template passes on the client's clock."""
    return any("<now_ms" in text for text in binding.templates)


class _Verdicts:
    def __init__(
        self,
        binding: Binding,
        contract: Contract,
        searched: Searched,
        rerun: Rerun,
        server: Callable[[], Backend] | None,
        progress: Progress,
        seed: int,
        is_over: Callable[[], bool] = never,
        growth: Growth = Growth(),  # noqa: B008 - a value
    ) -> None:
        self.growth = growth
        self.seed = seed
        self.is_over = is_over
        self.binding = binding
        self.contract = contract
        self.searched = searched
        self.rerun = rerun
        self.server = server
        self.progress = progress

    def result(self, law: str, statement: str) -> ContractResult:
        """The verdict on one law."""
        self.progress(f"witness of {law}")
        if law == ONE_SLOT:
            return self._one_slot(statement)
        if law == NO_RESIDUE:
            return self._no_residue(statement)
        tested = self._tested(law)
        witnesses = self._witnesses(law)
        if law == BOUNDED and self.growth.calls:
            witnesses = (*witnesses, self._growing(law, self.growth.calls))
        if witnesses:
            return ContractResult(law, statement, Outcome.VIOLATED, max(tested, 1), witnesses)
        if not tested:
            gaps = ("vacuous: no reply put it to the test", *self.searched.gaps)
            return ContractResult(law, statement, Outcome.UNKNOWN, 0, (), gaps)
        return ContractResult(law, statement, Outcome.HOLDS, tested, (), tuple(self.searched.gaps))

    def _tested(self, law: str) -> int:
        if law in (SPECIFICATION, BOUNDED):
            return self.searched.work["steps"]
        if law == ALL_OR_NOTHING:
            return self.searched.work["stopped"]
        return self.searched.tested[law]

    def _witnesses(self, law: str) -> tuple[ContractWitness, ...]:
        told: dict[tuple[str, str], ContractWitness] = {}
        for found in sorted(self._candidates(law), key=lambda one: (len(one.steps), repr(one.steps))):
            steps = shortened(self.rerun, found.steps, self._broken_law(law, found))
            broken = self.rerun.violation(steps)
            if broken is None or not self._is_about(law, found, steps):
                continue
            made = witness(self.rerun, steps, law, found.search, self.binding, self.server, self.seed)
            told.setdefault((made.lua.place, made.text.split("(")[0]), made)
            if len(told) == CAUSES_MAX or self.is_over():  # the first is told in any case
                break
        return tuple(told.values())

    def _candidates(self, law: str) -> list[Found]:
        if law == BOUNDED:
            return [one for one in self.searched.found if LIMIT_WORD in one.violation.text]
        return [one for one in self.searched.found if law in one.violation.laws and LIMIT_WORD not in one.violation.text]

    @staticmethod
    def _broken_law(law: str, found: Found) -> str:
        return found.violation.laws[0] if law == BOUNDED else law

    def _is_about(self, law: str, found: Found, steps: tuple[ClientStep, ...]) -> bool:
        """Whether the law is the cause: what breaks without anything being stopped is not about atomicity."""
        return law != ALL_OR_NOTHING or is_about_atomicity(self.rerun, steps)

    def _no_residue(self, statement: str) -> ContractResult:
        """By what the keys hold after more and more rounds."""
        growth = self.growth
        if growth.keys:
            told = (self._growing(NO_RESIDUE, growth.keys),)
            return ContractResult(NO_RESIDUE, statement, Outcome.VIOLATED, growth.tested, told)
        if growth.tested:
            return ContractResult(NO_RESIDUE, statement, Outcome.HOLDS, growth.tested)
        why = growth.why_not if growth.is_of_contract else ""
        return ContractResult(NO_RESIDUE, statement, Outcome.UNKNOWN, 0, (), (growth.why_not,), why)

    def _growing(self, law: str, text: str) -> ContractWitness:
        """One round of what goes on; it takes many to see it, so that a replay of one breaks nothing."""
        growth, run = self.growth, self.rerun.run
        steps = tuple(one.step for one in growth.round)
        kind = type(self.contract).__name__
        trace = ContractTrace(steps, len(run.clients), tuple(run.skews_ms), str(self.binding.path), kind, law, self.seed)
        path, _, line = growth.place.rpartition(":")
        script = next((one for one in self.binding.scripts if str(one.path) == path), None)
        lua = LuaLine()
        if law == NO_RESIDUE and script is not None:
            source = script.source.decode("utf-8", "replace").splitlines()[int(line) - 1].strip()
            lua = LuaLine(script.path, int(line), "", source)
        return ContractWitness(
            law, trace, text, tuple(told_report(one.step, one.report) for one in growth.round),
            tuple(one.states for one in growth.round), growth.before, growth.after, lua, "counting; the steps are one round",
            "not confirmed: seen by counting, not in the steps", tuple(one.keyspace for one in growth.round),
        )  # fmt: skip

    def _one_slot(self, statement: str) -> ContractResult:
        """Over everything that was called: the keys of one operation in one slot."""
        for operation, effects in self.searched.effects:
            keys = record_of(operation, b"", list(effects)).used
            slots = {hash_slot(key) for key in keys}
            if len(slots) > 1:
                shown = ", ".join(f"{key.decode('latin-1')} ({hash_slot(key)})" for key in sorted(keys))
                text = f"{operation} uses keys of {len(slots)} slots: {shown}"
                return ContractResult(ONE_SLOT, statement, Outcome.VIOLATED, len(self.searched.effects), (), (text,))
        if not self.searched.effects:
            gaps = ("vacuous: no operation was seen", *self.searched.gaps)
            return ContractResult(ONE_SLOT, statement, Outcome.UNKNOWN, 0, (), gaps)
        return ContractResult(ONE_SLOT, statement, Outcome.HOLDS, len(self.searched.effects), (), tuple(self.searched.gaps))


def undeclared_notes(searched: Searched) -> tuple[str, ...]:
    """Operations that use keys which they do not declare, one line each."""
    found: dict[str, str] = {}
    for operation, effects in searched.effects:
        undeclared = record_of(operation, b"", list(effects)).undeclared
        if undeclared:
            found[operation] = sorted(undeclared)[0].decode("latin-1")
    return tuple(f"{operation} uses a key that is not in KEYS, such as {key}" for operation, key in found.items())

