"""The report of scripts that were judged without a contract."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from orderlab.model.verdict import Outcome
from orderlab.properties.draft.contractless import LAWS, Breach, FirstVerdict, ProbeStep
from orderlab.properties.draft.probing import ProbeCall
from orderlab.properties.draft.rerun import answer_of, witness_of
from orderlab.properties.draft.unbound import Unbound
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.recording import shown_bytes
from orderlab.report.report import Change, Finding, JudgedLaw, Line, LintMention, Subject, fingerprint_of
from orderlab.report.report import Step as ReportStep
from orderlab.report.words import counted

NOT_JUDGED = "what the scripts reply and keep (order, loss, exclusion, expiry, counts)"
KIND = "scripts"
"""Of the subject."""


def subject_of_scripts(
    what: Unbound,
    verdict: FirstVerdict,
    laws: Collection[str] = (),
    lint: Sequence[LintMention] = (),
    before: FirstVerdict | None = None,
    is_strict: bool = False,
) -> Subject:
    """The subject for scripts without a contract. ``laws``: those asked for; ``before``: of the old scripts."""
    known = {_identity(probe) for probe in before.violations} if before is not None else set()
    findings, judged = [], []
    for violation in verdict.violations:
        if laws and violation.law not in laws:
            continue
        change = Change.NONE if before is None else Change.SAME if _identity(violation) in known else Change.NEW
        findings.append(_finding(violation, what, verdict, change))
    broken = {probe.law for probe in findings if probe.change is not Change.SAME or is_strict}
    for law in LAWS:
        if laws and law not in laws:
            continue
        outcome = verdict.outcome_of(law)
        if outcome is Outcome.VIOLATED and law not in broken:
            outcome = Outcome.UNKNOWN
        judged.append(_judged(law, outcome, verdict))
    return Subject(
        name=what.name,
        path=str(what.path),
        kind=KIND,
        outcome=Outcome.VIOLATED if broken else Outcome.UNKNOWN,
        assumptions=verdict.version.assumed(),
        laws=tuple(judged),
        findings=tuple(findings),
        notes=(*verdict.remarks, *(f"not read: {line}" for line in what.not_read), f"next: {what.gap}"),
        not_covered=tuple(f"{probe.facts.label} was not run: {probe.why_not}" for probe in verdict.not_run),
        scope=(f"{counted(verdict.runs, 'call')} that were tried, from {counted(verdict.states, 'state')}",),
        verdict=_answer(sorted(broken), [probe for probe in judged if probe.is_applicable], verdict),
        lint=tuple(lint),
    )


def _answer(broken: Sequence[str], judged: Sequence[JudgedLaw], verdict: FirstVerdict) -> str:
    scripts = counted(len(verdict.probes), "script")
    if broken:
        phrase = f"{', '.join(broken)} violated, {len(broken)} of {counted(len(judged), 'law')} that need no contract"
    elif verdict.not_run:
        phrase = f"{len(verdict.not_run)} of {scripts} could not be run; nothing found in the others"
    else:
        phrase = f"no law that needs no contract is violated ({scripts})"
    return f"{phrase}; not judged for want of a contract: {NOT_JUDGED}"


def _judged(law: str, outcome: Outcome, verdict: FirstVerdict) -> JudgedLaw:
    tested = verdict.tested[law]
    because = ""
    if outcome is Outcome.UNKNOWN:
        names = [probe.facts.label for probe in verdict.not_run]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        because = f"{', '.join(names[:3])}{more} could not be run" if names else "vacuous: no call tested it"
    return JudgedLaw(
        law=law, statement=LAWS[law], outcome=outcome, tested=tested, because=because,
        is_applicable=outcome is not Outcome.UNKNOWN or bool(tested),
    )  # fmt: skip


def _identity(violation: Breach) -> tuple[str, str, str]:
    source = violation.run.call.script.text_of(violation.effect.line or 0) if violation.effect is not None else ""
    return violation.law, violation.run.call.name, source


def _finding(violation: Breach, what: Unbound, verdict: FirstVerdict, change: Change) -> Finding:
    run, effect = violation.run, violation.effect
    script = run.call.script
    line = None
    if effect is not None and effect.line is not None:
        _, path, number = script.place_of(effect.line)
        line = Line(path=str(path), line=number, source=script.text_of(effect.line))
    steps = [ReportStep(lane="client", action=_told(probe)) for probe in violation.calls]
    steps[-1] = ReportStep(
        lane="client",
        action=_told(violation.calls[-1]),
        answer=answer_of(run.reply, run.error),
        fault=f"{shown_bytes(violation.foreign.key)} holds a {violation.foreign.type}" if violation.foreign else "",
    )
    return Finding(
        law=violation.law,
        headline=violation.headline,
        cause="\0".join((violation.law, run.call.name, str(effect.line if effect is not None else ""))),
        fingerprint=fingerprint_of(what.name, *_identity(violation)),
        steps=tuple(steps),
        before=shown_keyspace(run.before),
        after=shown_keyspace(run.after),
        line=line,
        call=" ".join(map(shown_bytes, effect.argv))[:200] if effect is not None else "",
        found_by="calls with arguments that were tried",
        confirmation=violation.confirmation,
        change=change,
        witness=witness_of(violation, str(what.path), verdict.version.name, run.call.name in what.read_only),
    )


def _told(step: ProbeStep) -> str:
    if isinstance(step, ProbeCall):
        return step.told
    return f"{step:,} ms pass" if isinstance(step, int) else " ".join(map(shown_bytes, step))
