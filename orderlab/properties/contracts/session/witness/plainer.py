"""What is plainer than a trace of a session store: fewer clients and messages, no fault, round numbers, plain names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orderlab.model.contracts.session.traces import (
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
from orderlab.properties.contracts.session.subject import Reruns, Subject
from orderlab.properties.validation.effort import SHORTENING_STEPS
from orderlab.properties.witness.shortening import shortened

MANY = 64
"""Messages in a batch from which on it is not made plain message by message."""


def minimise(trace: Trace, law: str, reruns: Reruns, steps: int = SHORTENING_STEPS, wording: str = "") -> Trace:
    """A trace that breaks the same law and from which no single step can be left out, if so many ``steps`` of reruns
    suffice.

    With a ``wording`` only what breaks the law in these words counts, so that one defect does not turn into another.
    """
    return shortened(trace, law, reruns, PlainerSessions(plain_limits(reruns.subject)), steps, wording)


@dataclass(frozen=True)
class PlainerSessions:
    """``Plainer`` for traces of session stores."""

    limits: tuple[int, ...]

    def at_first(self, trace: Trace) -> Iterator[Trace]:
        """Without the messages that must pass."""
        without = tuple(step for step in trace.steps if not isinstance(step, Churn))
        if without != trace.steps:
            yield replace(trace, steps=without)

    def whole(self, trace: Trace) -> Iterator[Trace]:
        """One client instead of two."""
        if len(trace.clients) > 1:
            for steps in (tuple(one for one in trace.steps if _is_of_first(one)), tuple(map(_moved, trace.steps))):
                yield replace(trace, steps=steps, clients=trace.clients[:1])

    def at(self, trace: Trace, index: int) -> Iterator[Trace]:
        """The same kind of step with less to it."""
        for plainer in _plainer(trace.steps[index], self.limits):
            yield replace(trace, steps=(*trace.steps[:index], plainer, *trace.steps[index + 1 :]))

    def in_the_end(self, trace: Trace) -> Iterator[Trace]:
        """Renumbered, and payloads after the labels."""
        yield renumbered(trace)
        yield with_plain_payloads(renumbered(trace))


def _is_of_first(step: Step) -> bool:
    """Whether no other client takes part in it."""
    parts = (step.step, step.during) if isinstance(step, Interleave) else (step,)
    return all(getattr(one, "client", 0) == 0 for one in parts)


def _moved(step: Step) -> Step:
    """The step with the first client in place of another."""
    if isinstance(step, Interleave):
        return replace(step, step=_moved(step.step), during=_moved(step.during))
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
