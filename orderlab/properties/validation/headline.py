"""The headline of a witness: the cause (what call, at which line, under what circumstances) before the symptom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from orderlab.model.contracts.session.steps import FAULTS, Churn, Interleave, Open, Retry, Save, Step, Trace, Wait
from orderlab.properties.contracts.session.witness.explanation import Explanation
from orderlab.properties.validation.findings import Finding, wording

_WHERE = re.compile(r" ?script: (?:[0-9a-f]{40}|\S+), on @?\S+:\d+\.?$|^ERR ")
SMALL_LIMIT = 5
"""A limit that is worth a word: the witness would have a plain one otherwise."""
INTERVALS = 3
"""Intervals that are named."""


class Cause(NamedTuple):
    """What makes two witnesses of one law tell of the same defect: the lines, the error, the kind of divergence."""

    place: str
    written: str
    error: str
    wording: str


def cause_of(finding: Finding, explanation: Explanation) -> Cause:
    """Errors that are injected are all alike: what matters is the line that they strike, and what was written before."""
    if finding.law == "one-slot":
        return Cause("", "", "", finding.kind.wording)
    lua = explanation.lua
    error = "a fault" if _fault_of(finding.trace) else wording(_short(explanation.error))
    return Cause(lua.place, lua.written.split(": ")[0], error if explanation.error else "", wording(finding.text))


def headline(finding: Finding, explanation: Explanation) -> str:
    """``cause: symptom``; the symptom alone where no line of a script can be named."""
    lua = explanation.lua
    around = ", ".join(circumstances(finding.trace))
    if not lua.place or finding.law in ("one-slot", "bounded"):
        return finding.text
    command = lua.call.split(" ", 1)[0].upper()
    place = lua.place.rpartition("/")[2]
    if explanation.error:
        cause = f"{command or 'the script'} fails at {place} ({_short(explanation.error)})"
        if lua.written:
            written = lua.written.split(": ")
            cause += f" after {written[1].split(' ', 1)[0].upper()} at {written[0].rpartition('/')[2]} has written"
    else:
        cause = f"{command} at {place}" if command else place
    symptom = finding.text if explanation.error not in finding.text or not explanation.error else _without_error(finding, explanation)
    return f"{cause}{f' ({around})' if around else ''}: {symptom}"


def circumstances(trace: Trace) -> Iterator[str]:
    """What is out of the ordinary in a short trace: without it the law would have held."""
    if not trace.steps:
        return
    last = trace.steps[-1]
    inner = last.step if isinstance(last, Interleave) else last
    fault = _fault_of(trace)
    if fault is not None:
        yield FAULTS.get(fault, fault)
    if isinstance(last, Interleave):
        yield "another save comes between its calls"
    if isinstance(inner, Save):
        yield from _of_save(inner)
    elif isinstance(inner, Wait):
        yield f"after {inner.ms:,} ms"
    elif isinstance(inner, Retry):
        yield "the save before the last comes again" if inner.older else "the same save comes again"
    elif isinstance(inner, Open) and inner.again:
        yield "the same CONNECT comes again"
    if getattr(inner, "stale", False):
        yield "it comes late, from an earlier session"
    if any(isinstance(step, Churn) for step in trace.steps):
        yield "identifiers have come round"


def _of_save(step: Save) -> Iterator[str]:
    if not step.messages:
        yield "an empty batch"
    intervals = dict.fromkeys(one.interval_ms for one in step.messages if one.interval_ms is not None)
    yield from (f"expiry {ms / 1000:g}" for ms in list(intervals)[:INTERVALS])
    if step.limit <= SMALL_LIMIT:
        yield f"limit {step.limit}"


def _fault_of(trace: Trace) -> str | None:
    last: Step | None = trace.steps[-1] if trace.steps else None
    fault = getattr(last.step if isinstance(last, Interleave) else last, "fault", None)
    return None if fault is None else str(fault.kind)


def _short(error: str) -> str:
    return _WHERE.sub("", _WHERE.sub("", error)).strip()


def _without_error(finding: Finding, explanation: Explanation) -> str:
    """The symptom without the error that the cause has told."""
    text = finding.text.replace(f" ({explanation.error})", "")
    return text.replace(explanation.error, "").rstrip(": ,")
