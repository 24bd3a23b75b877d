"""Making a witness short: steps are left out, then what is left is made plainer, as long as the same law is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from orderlab.model.contracts.session.steps import (
    Acknowledge,
    Answer,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Publication,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Trace,
    Wait,
)
from orderlab.properties.contracts.session.validation.subject import Reruns, Subject
from orderlab.properties.validation.effort import SHORTENING_STEPS


class Law(NamedTuple):
    """What a shorter trace must break, and in which words if that matters."""

    name: str
    wording: str = ""


MANY = 64
"""Messages in a batch from which on it is not made plain message by message."""


def minimise(trace: Trace, law: str, reruns: Reruns, steps: int = SHORTENING_STEPS, wording: str = "") -> Trace:
    """A trace that breaks the same law and from which no single step can be left out, if so many ``steps`` of reruns suffice.

    With a ``wording`` only what breaks the law in these words counts, so that one defect does not turn into another.
    """
    until = reruns.spent + steps
    broken_law = Law(law, wording)
    best = _cut(trace, broken_law, reruns) or trace
    if any(isinstance(step, Churn) for step in best.steps):
        without = tuple(step for step in best.steps if not isinstance(step, Churn))
        best = _cut(replace(best, steps=without), broken_law, reruns) or best
    improved = True
    while improved and reruns.spent < until:
        before = best
        best = _without_steps(best, broken_law, reruns, until)
        best = _with_plainer_steps(best, broken_law, reruns, until)
        improved = best != before
    return _renumbered(best, broken_law, reruns)


def _cut(trace: Trace, law: Law, reruns: Reruns) -> Trace | None:
    """The trace up to the step that breaks the law, or None."""
    broken = reruns.law_broken(trace, law.name, law.wording)
    return None if broken is None else replace(trace, steps=trace.steps[: broken[0]])


def _without_steps(trace: Trace, law: Law, reruns: Reruns, until: int) -> Trace:
    """Leave out runs of steps, half of them at first and single ones in the end (delta debugging)."""
    best = trace
    size = max(len(best.steps) // 2, 1)
    while size >= 1:
        start = 0
        while start < len(best.steps) and reruns.spent < until:
            shorter = _cut(replace(best, steps=best.steps[:start] + best.steps[start + size :]), law, reruns)
            if shorter is None:
                start += size
            else:
                best = shorter
        size //= 2
    return best


def _with_plainer_steps(trace: Trace, law: Law, reruns: Reruns, until: int) -> Trace:
    """One client instead of two, then each step plainer, as far as it goes."""
    best = trace
    if len(best.clients) > 1:
        alone = tuple(step for step in best.steps if getattr(step, "client", 0) == 0)
        moved = tuple(_moved(step) for step in best.steps)
        for steps in (alone, moved):
            found = _cut(replace(best, steps=steps, clients=best.clients[:1]), law, reruns)
            if found is not None:
                best = found
                break
    at = 0
    while at < len(best.steps) and reruns.spent < until:
        for plainer in _plainer(best.steps[at], plain_limits(reruns.subject)):
            if reruns.spent >= until:
                return best
            found = _cut(replace(best, steps=(*best.steps[:at], plainer, *best.steps[at + 1 :])), law, reruns)
            if found is not None:
                best = found
                break
        else:
            at += 1
    return best


def _moved(step: Step) -> Step:
    """The step with the first client in place of another."""
    if isinstance(step, Save | Fetch | Clear | Open | DrainQueue | Quiesce | Churn | Answer) and step.client:
        return replace(step, client=0)
    return step


def plain_limits(subject: Subject) -> tuple[int, ...]:
    """Limits that a plain save has, the plainest first; none where the scripts fix their own.

    Never more than there are identifiers: a queue of that length would be trimmed for want of identifiers.
    """
    if subject.limit is not None:
        return ()
    modulus = subject.binding.modulus
    return tuple(dict.fromkeys(min(limit, modulus) for limit in (100, 3, 2, 1)))


def _plainer(step: Step, limits: tuple[int, ...]) -> Iterator[Step]:
    """The same kind of step with less to it."""
    match step:
        case Save():
            yield from _plainer_saves(step, limits)
        case Retry(producer=producer) if producer:
            yield replace(step, producer=0)
        case Fetch():
            yield from _unless_same(step, fault=None)
            yield from _unless_same(step, count=None)
            yield from _unless_same(step, onward=False)
        case Acknowledge() | Release() | Clear() | Open():
            yield from _unless_same(step, fault=None)
        case Wait(ms=ms):
            for fewer in (1, 1000, ms // 2 // 1000 * 1000, ms // 1000 * 1000, ms - 1000, ms - 1):
                if 0 < fewer < ms:
                    yield Wait(fewer)
        case Interleave(step=inner, during=during, at=at):
            yield from (Interleave(plainer, during, at) for plainer in _plainer(inner, limits))
            yield from (Interleave(inner, plainer, at) for plainer in _plainer(during, limits))


def _plainer_saves(step: Save, limits: tuple[int, ...]) -> Iterator[Step]:
    messages = step.messages
    for size in _powers_below(len(messages)):
        for at in range(0, len(messages), size):
            if len(messages) > size:
                yield replace(step, messages=messages[:at] + messages[at + size :])
    yield from _unless_same(step, fault=None)
    yield from _unless_same(step, stale=False)
    if step.producer:
        yield replace(step, producer=0)
    if limits and step.limit not in limits:
        yield from (replace(step, limit=limit) for limit in limits)
    elif limits and step.limit != limits[0]:
        yield replace(step, limit=limits[0])
    if len(messages) > MANY:  # one by one would take too long: all of them, or none
        yield from _unless_same(step, messages=tuple(replace(one, qos=1, interval_ms=None) for one in messages))
        return
    for at, message in enumerate(messages):
        for plainer in _plainer_messages(message):
            yield replace(step, messages=(*messages[:at], plainer, *messages[at + 1 :]))


def _powers_below(count: int) -> Iterator[int]:
    """Sizes of what is left out of a batch: half of it, a quarter ... and 1, unless the batch is a large one."""
    size = 1 << max(count.bit_length() - 1, 0)
    while size >= (1 if count <= MANY else count // 16):
        yield size
        size //= 2


def _plainer_messages(message: Publication) -> Iterator[Publication]:
    if message.qos != 1:
        yield replace(message, qos=1)
    if message.topic != b"t":
        yield replace(message, topic=b"t")
    if message.payload != b"m%d" % message.label:
        yield replace(message, payload=b"m%d" % message.label)
    if message.interval_ms is not None:
        yield replace(message, interval_ms=None)
        if message.interval_ms not in (0, 1000):
            yield replace(message, interval_ms=1000)
        if message.interval_ms > 1000:
            yield replace(message, interval_ms=0)


def _unless_same(step: Step, **given: object) -> Iterator[Step]:
    (name, value), *_ = given.items()
    if getattr(step, name) != value:
        yield replace(step, **given)  # type: ignore[arg-type]


def renumbered(trace: Trace) -> Trace:
    """Labels from 1 in the order of appearance."""
    labels = {message.label: None for step in trace.steps for message in _messages_of(step)}
    number = {label: at for at, label in enumerate(labels, 1)}

    def renamed(step: Step) -> Step:
        match step:
            case Save(messages=messages):
                return replace(step, messages=tuple(replace(one, label=number[one.label]) for one in messages))
            case Acknowledge(label=label) | Release(label=label) if label in number:
                return replace(step, label=number[label])
            case Interleave(step=inner, during=during):
                return replace(step, step=renamed(inner), during=renamed(during))
        return step

    return replace(trace, steps=tuple(map(renamed, trace.steps)))


def _renumbered(trace: Trace, law: Law, reruns: Reruns) -> Trace:
    """Renumbered, and payloads after the labels, if the law is broken all the same."""
    candidate = _cut(renumbered(trace), law, reruns)
    if candidate is None:
        return trace
    return _cut(with_plain_payloads(candidate), law, reruns) or candidate


def with_plain_payloads(trace: Trace) -> Trace:
    """Each message's payload is its label."""

    def plain(step: Step) -> Step:
        if isinstance(step, Save):
            return replace(step, messages=tuple(replace(one, payload=b"m%d" % one.label) for one in step.messages))
        return step

    return replace(trace, steps=tuple(map(plain, trace.steps)))


def _messages_of(step: Step) -> Sequence[Publication]:
    if isinstance(step, Save):
        return step.messages
    if isinstance(step, Interleave):
        return [*_messages_of(step.step), *_messages_of(step.during)]
    return ()
