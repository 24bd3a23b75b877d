"""A witness from a scaled store on the store itself: the scripts unmodified, 65,535 packet identifiers.

Where the small world goes round after a few saves, the large one has tens of thousands of other messages pass first.
They pass at one point of the cycle; which point reproduces the behaviour is found by trying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from model.trace import Overlap, Pass, Save, Step, Trace
from properties.validation.subject import Reruns

LONG_MS = 604_800_000
"""A default interval that outlasts whatever passes."""


def at_full_scale(trace: Trace, law: str, modulus: int, small: Reruns, large: Reruns) -> Trace | None:
    """The trace with the messages that must pass so that it breaks ``law`` on the unscaled store; None: it does not."""
    for candidate in _candidates(trace, modulus, small):
        broken = large.law_broken(candidate, law)
        if broken is not None:
            return _acknowledged(replace(candidate, steps=candidate.steps[: broken[0]]), law, large)
    return None


def _acknowledged(trace: Trace, law: str, large: Reruns) -> Trace:
    """The same with what passes acknowledged instead of expired, if that breaks the law too: no time has to pass."""
    steps = tuple(replace(step, by_expiry=False) if isinstance(step, Pass) else step for step in trace.steps)
    if steps == trace.steps:
        return trace
    candidate = replace(trace, steps=steps)
    return candidate if large.law_broken(candidate, law) else trace


def _candidates(trace: Trace, modulus: int, small: Reruns) -> Iterator[Trace]:
    yield replace(trace, modulus=modulus)
    highest = tuple(
        replace(step, limit=modulus) if isinstance(step, Save) and step.limit == trace.modulus else step
        for step in trace.steps
    )
    if highest != trace.steps:  # a limit of as many messages as there are identifiers
        yield replace(trace, steps=highest, modulus=modulus)
    if trace.modulus != modulus:
        yield from _with_passing(trace, modulus, small)


def _with_passing(trace: Trace, modulus: int, small: Reruns) -> Iterator[Trace]:
    """The trace with ``modulus`` - small messages passing whenever the counter stands at one point of its cycle."""
    at_step = _counters(trace, small)
    by_expiry = _lives_long(trace) and small.subject.store.largest_batch > 1
    if by_expiry:
        trace = replace(trace, default_expiry_ms=LONG_MS)
    for point in range(trace.modulus, -1, -1):  # 0: before the first save, for a batch that goes round by itself
        if point not in at_step:
            continue
        steps: list[Step] = []
        for step, counter in zip(trace.steps, at_step, strict=True):
            if counter == point and isinstance(step, Save | Overlap):
                client = step.client if isinstance(step, Save) else 0
                steps.append(Pass(modulus - trace.modulus, client, by_expiry=by_expiry))
            steps.append(step)
        if len(steps) > len(trace.steps):
            yield replace(trace, steps=tuple(steps), modulus=modulus)


def _lives_long(trace: Trace) -> bool:
    """Whether no message of the witness has an interval, so that time may pass."""
    return not any(
        one.interval_ms is not None for step in trace.steps if isinstance(step, Save) for one in step.messages
    )


def _counters(trace: Trace, small: Reruns) -> list[int]:
    """Where the identifier counter of the client concerned stands before each step."""
    run, _ = small.start(trace)
    counters: list[int] = []
    for step in trace.steps:
        client = getattr(step, "client", 0)
        counters.append(max(run.state.accounts[client].last_ids))
        run.perform(step)
    return counters
