"""An exploration as text: verdicts, the witness as a numbered story, coverage, and the work done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orderlab.model.explorer.exploration import Exploration
from orderlab.model.explorer.search import Progress
from orderlab.model.explorer.witness import Behaviour, story
from orderlab.model.verdict import Outcome, Verdict


def exploration_lines(found: Exploration) -> list[str]:
    parameters = dict(found.parameters)
    rewritten = parameters.pop("rewritten", [])
    scope = ", ".join(f"{name}={value}" for name, value in parameters.items())
    lines = [f"{found.specification}({scope}): {found.outcome}"]
    lines += [f"  with fewer identifiers: {line}" for line in rewritten]
    for verdict in found.verdicts:
        lines += verdict_lines(verdict)
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
            f"vacuous, not put to the test: {', '.join(untested)}; so the outcome is unknown (exit code 3),"
            " and --allow-vacuous leaves it out of account"
        )
    run = found.run
    lines.append(
        f"{run['seconds']} s, {run['states_per_s']:,} states/s, {run['transitions_per_s']:,} transitions/s, {run['engine']} engine"
    )
    return lines


def verdict_lines(verdict: Verdict) -> list[str]:
    lines = [f"  {verdict.outcome:<9}{verdict.law}"]
    lines += [f"           {gap}" for gap in verdict.not_covered]
    if verdict.outcome is not Outcome.VIOLATED:
        return lines
    if isinstance(verdict.witness, Behaviour):
        switches = verdict.witness.switches
        if verdict.witness.statement:
            lines.append(f"    law: {' '.join(verdict.witness.statement.split())}")
        lines.append(f"    why: {verdict.witness.why}")
        lines.append(f"    witness: {len(verdict.witness.steps)} steps, {switches} switches between processes")
        return lines + ["    " + line for line in story(verdict.witness)]
    return lines + [
        f"    {name.replace('_', ' ')}: {_listed(value)}" for name, value in verdict.witness.items() if value
    ]


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def progress_line(progress: Progress) -> str:
    if progress.doing:
        return f"{progress.doing}; {progress.states:,} states so far" if progress.states else progress.doing
    rate = progress.states / progress.seconds if progress.seconds > 0 else 0.0
    return f"{progress.states:,} states, {rate:,.0f} states/s, queue {progress.queue:,}, depth {progress.depth}"


def catalogue_lines(entries: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[str]:
    lines = []
    for name, (summary, parameters) in entries.items():
        lines.append(f"{name}: {summary}")
        for parameter, schema in parameters.items():
            about = ", ".join(map(str, schema["enum"])) if "enum" in schema else schema.get("type", "value")
            limits = [
                f"{word} {schema[key]}"
                for key, word in (("minimum", "at least"), ("maximum", "at most"))
                if key in schema
            ]
            lines.append(f"    {parameter} = {schema.get('default')}  ({', '.join([about, *limits])})")
    return lines
