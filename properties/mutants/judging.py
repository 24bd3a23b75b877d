"""One mutant through the analyses of ``orderlab validate``, the quickest first, until the first law is broken.

A law that breaks in the small world counts once the witness breaks it on the unscaled mutant as well, as in validate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from model.errors import InputError
from model.laws import STORE_LAWS
from model.trace import Pass, Trace
from properties.mutants.result import Result
from properties.validation.exploration import SCOPES, applies, explore_scope, fitted, small_world
from properties.validation.findings import Finding, Findings
from properties.validation.footprint import measure_footprint
from properties.validation.full_scale import at_full_scale
from properties.validation.machine import run_machine
from properties.validation.minimisation import minimise
from properties.validation.scenarios import run_scenarios
from properties.validation.subject import Reruns, Subject
from properties.validation.walks import walk_about
from sim.binding.binding import Binding

DEFAULT_BUDGET_S = 15.0
"""For a mutant that nothing kills; processor time of one core."""
FEW_STATES, MORE_STATES = 250, 4000
"""Of each scope, in the first and in the second round."""
SHORTENING_S = 0.3
"""For making a witness shorter: it has to be read by few."""

ENDLESS = "did not end within its limit"
"""How the sandbox says that it stopped a script."""

Analysis = Callable[[], object]


@dataclass
class _Case:
    """One store under trial."""

    subject: Subject
    small: Subject
    findings: Findings

    def analyses(self, budget_s: float) -> Iterator[Analysis]:
        """What is tried, the cheapest and most telling first."""
        small, found = self.small, self.findings
        yield lambda: run_scenarios(small, found)
        yield lambda: walk_about(small, found, budget_s, 20)
        for scope in SCOPES:
            if applies(scope, small):
                yield lambda scope=scope: explore_scope(small, fitted(scope, small), found, budget_s / 8, FEW_STATES)
        yield lambda: walk_about(small, found, budget_s / 8, 100)
        yield lambda: measure_footprint(self.subject, found, budget_s / 8)
        yield lambda: run_machine(self.subject, found, budget_s / 8)
        for scope in SCOPES:
            if applies(scope, small):
                yield lambda scope=scope: explore_scope(small, fitted(scope, small), found, budget_s / 16, MORE_STATES)
        yield lambda: walk_about(small, found, budget_s / 8)


def judge(binding: Binding, seed: int = 0, budget_s: float = DEFAULT_BUDGET_S) -> Result:
    """Killed by the first law that is seen broken, timed out, or survived."""
    began_cpu_s, until = time.process_time(), time.monotonic() + 2 * budget_s

    def result(outcome: str, law: str = "", text: str = "", trace: Trace | None = None, found_by: str = "") -> Result:
        return Result(outcome, law, text, trace, found_by, round(time.process_time() - began_cpu_s, 3))

    try:
        subject = Subject(binding, seed)
        findings = Findings(frozenset(STORE_LAWS))
        case = _Case(subject, small_world(subject, findings), findings)
    except InputError as error:
        return result("killed", "loading", str(error))
    large, small = Reruns(subject), Reruns(case.small)
    for analysis in case.analyses(budget_s):
        analysis()
        for finding in _candidates(findings):
            if _is_endless(finding):
                return result("timed out", finding.law, finding.text, finding.trace, finding.analysis)
            shown = _reproduced(finding, small, large)
            if shown is not None:
                return result("killed", shown.law, shown.text, shown.trace, shown.analysis)
        findings.by_law.clear()
        if time.process_time() - began_cpu_s > budget_s or time.monotonic() > until:
            break
    return result("survived")


def _candidates(findings: Findings) -> list[Finding]:
    """What was found, the shortest trace first; one for each law."""
    return sorted((known[0] for known in findings.by_law.values() if known), key=lambda one: one.size)


def _is_endless(finding: Finding) -> bool:
    return finding.law == "bounded" and ENDLESS in finding.text


def _reproduced(finding: Finding, small: Reruns, large: Reruns) -> Finding | None:
    """The finding on the scripts at full scale; None when they do not show it."""
    law, trace, modulus = finding.law, finding.trace, large.subject.binding.modulus
    if trace.modulus == modulus and law in ("one-slot", "bounded"):
        return finding  # seen by counting, not in the steps
    found = at_full_scale(trace, law, modulus, small, large)
    if found is None:
        return None
    if not any(isinstance(step, Pass) for step in found.steps):
        found = minimise(found, law, large, SHORTENING_S)
    broken = large.law_broken(found, law)
    return replace(finding, text=broken[1] if broken else finding.text, trace=found)
