"""Stores with a contract of their owner's as a kind: what commands, the plugin and mutation ask of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.base import AnyTrace, Call, Failed
from orderlab.model.contracts.client_steps import Begin, ContractTrace, told_step
from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.kind import Kind
from orderlab.properties.engine.run import LIMIT_WORD, ContractRun
from orderlab.properties.engine.validation import (
    ContractValidation,
    contract_of,
    laws_of,
    run_of,
    validate_contract,
)
from orderlab.properties.engine.witness import passes_by_waiting, told_report
from orderlab.properties.mutants.mutant import Result
from orderlab.properties.profiles import Profile
from orderlab.properties.validation.effort import QUICK, STANDARD, THOROUGH
from orderlab.properties.validation.findings import was_stopped
from orderlab.properties.validation.law_run import LawRun
from orderlab.properties.validation.sample import Sampled
from orderlab.properties.validation.verdicts import BROKEN_SMALL, LawResult
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.replies import UNREADABLE
from orderlab.sim.stores.bound import kernel_of

if TYPE_CHECKING:
    from orderlab.properties.comparison.differences import Comparison
    from orderlab.properties.costs.readings import CostReading
    from orderlab.properties.side_by_side import Cost

EFFORTS = {"dev": QUICK, "ci": STANDARD, "nightly": THOROUGH}
"""By profile of the plugin."""
RUNS_AT_ALL, FEW_EFFORT, MORE_EFFORT = 0.01, 0.04, 0.2
"""For mutation: the original once, so that a mistake of the contract is told as such; for each unit of effort the
two rounds of mutants."""
UNSEEN = "no reply differs, the keys do"
"""Said of an equivalent mutant that leaves other keys than the original."""


@dataclass(frozen=True)
class SequentialKind(Kind):
    """``orderlab.properties.contracts.kind.Kind`` for stores whose judge keeps the states that explain all replies."""

    def terms(self, binding: Binding) -> SequentialTerms:
        """The contract that the store names. Raises InputError when it is none."""
        return SequentialTerms(contract_of(binding))

    def check_law(self, binding: Binding, name: str) -> str:
        """The law. Raises InputError for one that the store is not held to."""
        return laws_of(self.terms(binding), [name])[0]

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of such a store: it names its contract."""
        return "contract" in data

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace."""
        return ContractTrace.from_json(data, place)

    def laws_of(self, binding: Binding, asked: Sequence[str] | None = None) -> list[str]:
        """Those that were asked for, or all."""
        return laws_of(self.terms(binding), asked)

    def worlds_of(self, binding: Binding) -> list[Binding]:
        """The store as it is."""
        return [binding]

    def judged(self, binding: Binding, order: WorkOrder) -> ContractValidation:
        """Judge a store, in this process."""
        return validate_contract(binding, order)

    def unjudged(
        self, binding: Binding, results: tuple[LawResult, ...], gap: str, order: WorkOrder
    ) -> ContractValidation:
        """Of a script that had to be ended together with its process."""
        return ContractValidation(binding, self.terms(binding), results, (), (gap,), {}, order.seed, order.effort)

    def certified(self, binding: Binding, content: Mapping[str, Any], place: str) -> tuple[Outcome, str]:
        """Checked step by step."""
        from orderlab.properties.engine.certificate import Refused, check_certificate
        from orderlab.properties.engine.closed_scope import CLIENTS

        try:
            shown = check_certificate(content, run_of(binding, CLIENTS), self.laws_of(binding), place)
        except Refused as refused:
            return Outcome.VIOLATED, str(refused)
        return Outcome.HOLDS, shown

    def compared(self, old: Binding, new: Binding, order: WorkOrder) -> Comparison:
        """Judge a change of scripts, in this process."""
        from orderlab.properties.engine.comparison import compare_contracts

        return compare_contracts(old, new, order)

    def measured(self, binding: Binding, seed: int) -> tuple[Cost, dict[str, str]] | None:
        """The workload of a feed or of a job queue; none of a contract of the owner's, who alone knows what one is."""
        from orderlab.properties.contracts.sequential import side_by_side

        contract = contract_of(binding)
        workload = side_by_side.workload_of(contract, binding)
        return (
            None
            if workload is None
            else (side_by_side.measured(binding, contract, workload), side_by_side.faults(binding, contract, workload))
        )

    def readings(self, binding: Binding, now_ms: int) -> Iterator[CostReading]:
        """Every call worth trying, where the store holds much."""
        from orderlab.properties.contracts.sequential.call_readings import readings

        return readings(binding, contract_of(binding), now_ms)

    def sampled(self, binding: Binding, asked: Sequence[Call] = ()) -> Iterator[Sampled]:
        """What one client would try, one operation after the other, or is asked for."""
        contract = contract_of(binding)
        run = ContractRun(binding, contract, kernel_of(binding), contract.clients)
        left, wanted = set(binding.operations), list(asked)
        while call := (
            next(iter(wanted), None)
            if asked
            else next((one for one in contract.calls(0, run.clients[0].seen) if one.name in left), None)
        ):
            wanted = wanted[1:]
            left.discard(call.name)
            before, now_ms = run.judge.frozen, run.backend.now_ms
            report = run.carry_out(Begin(0, call))
            if report.violation is not None:  # nothing explains it: what comes next is tried all the same
                run.judge.thaw(before, run.judge.now_ms)
            ended = report.reply.text if isinstance(report.reply, Failed) else report.stopped
            waits = "it waits in a blocking command" if report.waits else ""
            is_wrong = ended.startswith((UNREADABLE, LIMIT_WORD))
            yield Sampled(
                call.name, {"now_ms": now_ms, **dict(call.fields)}, report.effects,
                ended or report.reply, ended if is_wrong else "", waits,
            )  # fmt: skip
            if report.waits:
                return

    def replay(self, trace: AnyTrace, binding: Binding, backend: Backend) -> Iterator[dict[str, Any]]:
        """Each step up to the first that breaks a law: no state explains what comes after."""
        assert isinstance(trace, ContractTrace)
        backend.flush()
        sleeps = passes_by_waiting(trace, backend)
        return _retold(
            ContractRun(binding, contract_of(binding), backend, trace.clients, trace.skews_ms, sleeps), trace
        )

    def tester(self, binding: Binding, profile: Profile, order: WorkOrder, examples: Any) -> Callable[[str], LawRun]:
        """As at an effort, the profile's."""
        return self.tester_at_effort(binding, replace(order, effort=EFFORTS[profile.name]))

    def judge_original(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """As a mutant in the second round."""
        validate_contract(binding, WorkOrder(RUNS_AT_ALL, seed))
        return judge_mutant(binding, seed, MORE_EFFORT * effort)

    def judge_quickly(self, binding: Binding, seed: int, budget_s: float, effort: float) -> Result:
        """A mutant in the first round."""
        return judge_mutant(binding, seed, FEW_EFFORT * effort)

    def tabulate(self, binding: Binding) -> Original:
        """The store itself: mutants of the second round are carried through the same steps beside it."""
        return Original(binding)

    def judge_thoroughly(
        self, binding: Binding, script: str, table: Any, seed: int, budget_s: float, effort: float
    ) -> Result:
        """A mutant in the second round, beside the original: see ``notes/mutants.md``."""
        return judge_beside(table.binding, binding, seed, MORE_EFFORT * effort)


def _retold(run: ContractRun, trace: ContractTrace) -> Iterator[dict[str, Any]]:
    try:
        for step, report in zip(trace.steps, run.replayed(trace.steps), strict=False):
            broken = [[one.law, one.text] for one in report.discrepancies]
            yield {"step": told_step(step), "result": told_report(step, report), "broken": broken}
            if broken:
                break
    finally:
        run.hang_up()


@dataclass(frozen=True)
class Original:
    """What mutants of the second round are compared with."""

    binding: Binding
    scope: tuple[str, ...] = (
        "original and mutant side by side through every scope, random walk and crowd of validate, as far as the "
        "steps of the effort go",
    )


def judge_mutant(binding: Binding, seed: int = 0, effort: float = 1.0) -> Result:
    """The judgement on a mutant: killed by the first law that it breaks."""
    began_cpu_s = time.process_time()
    try:
        found = validate_contract(binding, WorkOrder(effort, seed, any_law=True))
    except InputError as error:
        return Result("killed", "bounded", f"the store cannot be run: {error}", None, "loading")
    cpu_s = round(time.process_time() - began_cpu_s, 3)
    broken = [one for one in found.results if one.witnesses]
    if not broken:
        return Result("survived", text="no law notices it", cpu_s=cpu_s)
    first = broken[0]
    shown = first.witnesses[0].finding
    is_endless = was_stopped(first.law, shown.text)
    beside = tuple(
        sorted(one.law for one in found.results if one is not first and BROKEN_SMALL in one.verdict.not_covered)
    )
    return Result(
        "timed out" if is_endless else "killed", first.law, shown.text, shown.trace, shown.analysis, cpu_s, None, beside
    )


def judge_beside(original: Binding, mutated: Binding, seed: int, effort: float) -> Result:
    """The judgement on a mutant that survived the first round: equivalent where it replies and leaves what the original
    does, or where it breaks no law and no client hears another reply, in the same steps of either. Outside of these
    steps nothing is claimed."""
    from orderlab.properties.engine.comparison import ProductSearch

    began_cpu_s = time.process_time()
    search = ProductSearch(original, mutated, WorkOrder(effort, seed))
    seen, steps = search.first_difference()
    result = judge_mutant(mutated, seed, effort) if seen else Result("equivalent")
    if result.outcome == "survived":
        told, more = search.first_difference(replies_only=True)
        result = replace(result, outcome="survived" if told else "equivalent", text=told or f"{UNSEEN}: {seen}")
        steps += more
    return replace(result, compared=steps, cpu_s=round(time.process_time() - began_cpu_s, 3))


SEQUENTIAL = SequentialKind()
