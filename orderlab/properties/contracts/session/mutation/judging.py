"""One mutant through the analyses of ``orderlab validate``, the quickest first, until the first law is broken.

A law that breaks in the small world counts once the witness breaks it on the unscaled mutant as well, as in validate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.contracts.session.traces import Churn, Trace
from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.mutation.equivalence import Table, compare, difference_in_replies
from orderlab.properties.contracts.session.subject import Reruns, Subject
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.footprint import measure_footprint
from orderlab.properties.contracts.session.validation.machine import run_machine
from orderlab.properties.contracts.session.validation.queue_at_limit import run_queues_at_limit, try_boundaries
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.full_scale import at_full_scale
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.mutants.mutant import Result
from orderlab.properties.validation.effort import INSTRUCTIONS, STANDARD, count
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BudgetExceeded

DEFAULT_BUDGET_S = 12.0
"""A cap for a mutant that nothing kills, in processor time of one core: what is done is counted in steps."""
FEW_STATES, MORE_STATES = 25, 300
"""Of each scope, in the first round and for what it leaves, for each unit of effort
(``orderlab.properties.validation.effort``)."""
FEW_WALKS, MORE_WALKS = 2, 15
MACHINE_ROUNDS = 0.2
WITNESS_STEPS = 3_000
"""Steps for bringing what an analysis found to full scale, for each unit of effort: what takes longer is no witness."""
SHORTENING = 400
"""Steps for making a witness shorter: it has to be read by few."""
ENDLESS = "did not end within its limit"
"""How the sandbox says that it stopped a script."""

UNSEEN = "no reply differs, the keys do"
"""Said of an equivalent mutant that leaves other keys than the original."""

Analysis = Callable[[], object]


@dataclass
class Case:
    """One store under trial."""

    subject: Subject
    small: Subject
    findings: Findings
    effort: float = STANDARD

    @classmethod
    def of(cls, binding: Binding, seed: int, effort: float = STANDARD) -> Case:
        """Raises InputError when the store cannot even be loaded."""
        subject, findings = Subject(binding, seed), Findings(frozenset(STORE_LAWS))
        return cls(subject, small_world(subject, findings), findings, effort)

    def quick(self) -> Iterator[Analysis]:
        """What finds most of it in a fraction of a second."""
        yield lambda: run_scenarios(self.small, self.findings)
        yield lambda: walk_about(self.small, self.findings, count(FEW_WALKS, self.effort))
        yield from self._scopes(count(FEW_STATES, self.effort))

    def thorough(self) -> Iterator[Analysis]:
        """The small world once more, at length."""
        yield lambda: walk_about(self.small, self.findings, count(MORE_WALKS, self.effort))
        yield from self._scopes(count(MORE_STATES, self.effort))

    def large(self) -> Iterator[Analysis]:
        """At full scale, where the small world does not reach."""
        yield lambda: run_queues_at_limit(self.subject, self.findings)
        yield lambda: measure_footprint(self.subject, self.findings)
        yield lambda: try_boundaries(self.subject, self.findings, self.effort / STANDARD)
        yield lambda: run_machine(self.subject, self.findings, count(MACHINE_ROUNDS, self.effort))

    def _scopes(self, states: int) -> Iterator[Analysis]:
        for scope in SCOPES:
            if applies(scope, self.small):
                yield lambda scope=scope: explore_scope(  # type: ignore[misc]
                    self.small, fitted(scope, self.small), self.findings, states
                )


def judge_quickly(
    binding: Binding, seed: int = 0, budget_s: float = DEFAULT_BUDGET_S, effort: float = STANDARD
) -> Result:
    """Killed, timed out, or survived for the time being."""
    return _judge(binding, seed, budget_s, effort, Case.quick)


def judge_thoroughly(
    binding: Binding,
    script: str,
    table: Table,
    seed: int = 0,
    budget_s: float = DEFAULT_BUDGET_S,
    effort: float = STANDARD,
) -> Result:
    """The same at length, for a mutant of ``script`` that survived the quick round, beside the original's ``table``.

    What is the same as the original within the small world need not be looked at there again. What leaves other keys
    and breaks no law is equivalent as well if no client can tell (``beside``); its text says where its keys differ.
    """
    beside = compare(table, binding, script)

    def analyses(case: Case) -> Iterator[Analysis]:
        if beside.difference:
            yield from case.thorough()
        yield from case.large()

    result = _judge(binding, seed, budget_s, effort, analyses)
    if result.outcome != "survived":
        return result
    began_cpu_s = time.process_time()
    seen = difference_in_replies(table, binding) if beside.is_of_keys else beside.difference
    text = seen or (f"{UNSEEN}: {beside.difference}" if beside.difference else "")
    cpu_s = round(result.cpu_s + time.process_time() - began_cpu_s, 3)
    outcome = "survived" if seen else "equivalent"
    return replace(result, outcome=outcome, text=text, compared=beside.calls, cpu_s=cpu_s)


def _judge(
    binding: Binding, seed: int, budget_s: float, effort: float, analyses: Callable[[Case], Iterator[Analysis]]
) -> Result:
    began_cpu_s = time.process_time()

    def result(outcome: str, law: str = "", text: str = "", trace: Trace | None = None, found_by: str = "") -> Result:
        return Result(outcome, law, text, trace, found_by, round(time.process_time() - began_cpu_s, 3))

    try:
        case = Case.of(binding, seed, effort)
    except InputError as error:
        return result("killed", "bounded", f"the store cannot be run: {error}", None, "loading")
    large, small = Reruns(case.subject), Reruns(case.small)
    for analysis in analyses(case):
        case.subject.cpu_budget.allow(INSTRUCTIONS)
        case.subject.cpu_budget.set(max(began_cpu_s + budget_s - time.process_time(), 0.0))
        with suppress(BudgetExceeded):  # scripts that do not end; what they did until then is known
            analysis()
        case.subject.cpu_budget.allow(INSTRUCTIONS)
        case.subject.cpu_budget.set(max(began_cpu_s + budget_s - time.process_time(), 0.25 * budget_s))
        large.allow(WITNESS_STEPS * max(effort, 1.0))
        small.allow(WITNESS_STEPS * max(effort, 1.0))
        for finding in _candidates(case.findings):
            if finding.law == "bounded" and ENDLESS in finding.text:
                return result("timed out", finding.law, finding.text, finding.trace, finding.analysis)
            shown = None
            with suppress(BudgetExceeded):  # a witness that takes longer than its mutant may is none
                shown = _reproduced(finding, small, large)
            if shown is not None:
                beside = tuple(sorted(case.findings.by_law.keys() - {shown.law}))
                return replace(result("killed", shown.law, shown.text, shown.trace, shown.analysis), beside=beside)
        case.findings.by_law.clear()
        if time.process_time() - began_cpu_s > budget_s:
            break
    return result("survived")


def _candidates(findings: Findings) -> list[Finding]:
    """What was found, the shortest trace first; one for each law."""
    return sorted((known[0] for known in findings.by_law.values() if known), key=lambda one: one.size)


def _reproduced(finding: Finding, small: Reruns, large: Reruns) -> Finding | None:
    """The finding on the scripts at full scale; None when they do not show it."""
    law, trace, modulus = finding.law, finding.trace, large.subject.binding.modulus
    if trace.modulus == modulus and law in ("one-slot", "bounded"):
        return finding  # seen by counting, not in the steps
    found = at_full_scale(trace, law, modulus, small, large)
    if found is None:
        return None
    if not any(isinstance(step, Churn) for step in found.steps):
        found = minimise(found, law, large, SHORTENING)
    broken = large.law_broken(found, law)
    return replace(finding, text=broken[1] if broken else finding.text, trace=found)
