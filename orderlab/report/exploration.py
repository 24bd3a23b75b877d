"""An exploration as text: verdicts, the witness as a numbered story, coverage, and the work done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orderlab.model.explorer.exploration import Exploration
from orderlab.model.explorer.search import Progress
from orderlab.model.explorer.witness import Behaviour, story
from orderlab.model.verdict import Outcome, Verdict
from orderlab.report.report import Subject
from orderlab.report.terminal import summary
from orderlab.report.words import counted


def exploration_lines(found: Exploration, subject: Subject) -> list[str]:
    """The answer, the witnesses, then the work."""
    rewritten = dict(found.parameters).get("rewritten", [])
    lines = [line for line, _ in summary(subject)]
    for verdict in found.verdicts:
        lines += witness_lines(verdict)
    lines += [f"with fewer identifiers: {line}" for line in rewritten]
    for verdict in found.verdicts:
        if verdict.outcome is not Outcome.UNKNOWN:
            lines += [f"not covered: {verdict.law}: {gap}" for gap in verdict.not_covered]
    if found.outcome is Outcome.VIOLATED and not found.complete and found.stopped_by is None:
        lines.append("unfinished: ended at the first violation; --continue goes on, to every law")
    elif found.stopped_by is not None and not found.complete:
        lines.append(f"unfinished: stopped by {found.stopped_by}; a larger one, or none, goes on to the end")
    fired = ", ".join(f"{name} {times:,}" for name, times in found.actions.items())
    lines.append(f"actions: {fired}")
    if found.antecedents:
        lines.append("antecedents met: " + ", ".join(f"{name} {times:,}" for name, times in found.antecedents.items()))
    whole = "complete" if found.complete else "not complete"
    lines.append(
        f"{found.distinct_states:,} distinct states, {found.transitions:,} transitions, depth {found.depth}, {whole}"
    )
    lines += [f"note: {note}" for note in found.notes]
    if found.outcome is Outcome.UNKNOWN and (untested := [one.law for one in found.verdicts if one.vacuous]):
        lines.append(
            f"vacuous, not tested: {', '.join(untested)}; so the outcome is unknown (exit code 3),"
            " and --allow-vacuous leaves it out of account"
        )
    run = found.run
    lines.append(
        f"{run['seconds']} s, {run['states_per_s']:,} states/s, {run['transitions_per_s']:,} transitions/s, "
        f"{run['engine']} engine"
    )
    return lines


def witness_lines(verdict: Verdict) -> list[str]:
    """The steps to a violation; nothing of another verdict."""
    if verdict.outcome is not Outcome.VIOLATED:
        return []
    lines = ["", f"{verdict.law} is violated"]
    if isinstance(verdict.witness, Behaviour):
        switches = verdict.witness.switches
        if verdict.witness.statement:
            lines.append(f"    law: {' '.join(verdict.witness.statement.split())}")
        lines.append(f"    why: {verdict.witness.why}")
        lines.append(
            f"    witness: {counted(len(verdict.witness.steps), 'step')}, {switches} switches between processes"
        )
        return [*lines, *("    " + line for line in story(verdict.witness)), ""]
    told = [f"    {name.replace('_', ' ')}: {_listed(value)}" for name, value in verdict.witness.items() if value]
    return [*lines, *told, ""]


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def progress_line(progress: Progress) -> str:
    if progress.doing:
        return f"{progress.doing}; {progress.states:,} states so far" if progress.states else progress.doing
    rate = progress.states / progress.seconds if progress.seconds > 0 else 0.0
    return f"{progress.states:,} states, {rate:,.0f} states/s, queue {progress.queue:,}, depth {progress.depth}"


def catalogue_lines(entries: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[str]:
    lines = []
    for name, (about, parameters) in entries.items():
        lines.append(f"{name}: {about}")
        for parameter, schema in parameters.items():
            kind = ", ".join(map(str, schema["enum"])) if "enum" in schema else schema.get("type", "value")
            limits = [
                f"{word} {schema[key]}"
                for key, word in (("minimum", "at least"), ("maximum", "at most"))
                if key in schema
            ]
            lines.append(f"    {parameter} = {schema.get('default')}  ({', '.join([kind, *limits])})")
    return lines
