"""Steps taken one after the other on the kernel, each judged against the specification, and what they break noted.

Scenarios, walks, queues at the limit and the ways that a machine begins with differ in where their steps come from, in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orderlab.model.contracts.session.steps import Save, Step
from orderlab.properties.contracts.session.steps import SessionRun
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.subject import Subject


def take_steps(
    subject: Subject,
    run: SessionRun,
    steps: Iterable[Step],
    findings: Findings,
    analysis: str,
    prefix: tuple[Step, ...] = (),
) -> None:
    """Take ``steps`` until they end or nothing can be judged any more; what they break goes to ``findings``.

    ``run`` is one of ``subject`` and has taken ``prefix`` before. Each step is asked for when the one before it has been
    taken, so that it may depend on what the run has come to. Raises BudgetExceeded.
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
    """With the limit that the scripts fix, if they do, and otherwise no more than there are identifiers."""
    if isinstance(step, Save):
        return replace(step, limit=subject.limit or min(step.limit, subject.binding.modulus))
    return step
