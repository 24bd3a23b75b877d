"""Steps of a trace in words."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.contracts.trace import (
    PRODUCERS,
    Acknowledge,
    Answer,
    Clear,
    Drain,
    Fault,
    Fetch,
    Open,
    Overlap,
    Pass,
    Publication,
    Release,
    Repeat,
    Save,
    Settle,
    Step,
    Trace,
    Wait,
)

MANY = 8
"""Messages of one batch that are told one by one."""
FAULTS = {
    "out-of-memory": "while the node is out of memory",
    "read-only": "on a read-only replica",
    "too-few-replicas": "while too few replicas are in touch",
    "disk-error": "while the node cannot save to disk",
    "disk-full": "while the append-only file cannot be written",
    "slot-migrates": "while the hash slot migrates",
}


def told_step(step: Step, trace: Trace) -> str:
    """One step as a sentence."""
    return _told(step, trace) + _told_fault(getattr(step, "fault", None))


def _told(step: Step, trace: Trace) -> str:
    several = len(trace.clients) > 1
    client = getattr(step, "client", 0)
    whose = f" for client {client + 1}" if several or len(trace.clients[0]) != len(b"client-one") else ""
    if whose and not several:
        whose = f" for client {trace.clients[0][:40].decode('latin-1')!r}"
    match step:
        case Save():
            messages = told_messages(step.messages)
            stale = ", a record from before the session was cleared" if step.stale else ""
            endless = trace.default_expiry_ms == 0 and any(one.interval_ms is None for one in step.messages)
            default = ", default interval 0: never expires" if endless else ""
            return f"{_named(step.producer, trace)} saves {messages}{whose}, limit {step.limit}{default}{stale}"
        case Repeat(older=True):
            return f"{_named(step.producer, trace)} goes back and sends the save before its last again"
        case Repeat():
            return f"the reply was lost: {_named(step.producer, trace)} sends the same save again"
        case Fetch():
            what = "everything" if step.count is None else f"a page of {step.count}"
            return f"fetch {what}{', the next page' if step.onward else ''}{whose}"
        case Acknowledge():
            return f"acknowledge the last sending of m{step.label}"
        case Release():
            return f"PUBREC for the last sending of m{step.label}: release"
        case Answer():
            return (
                f"{'PUBREC' if step.release else 'acknowledge'} {step.packet_id}, under which nothing was sent{whose}"
            )
        case Clear(stale=True):
            return f"the end of the session before this one comes late: clear{whose}"
        case Clear():
            return f"clear the session{whose}"
        case Open(again=True):
            return f"the reply was lost: the same CONNECT comes again{whose}"
        case Open(stale=True):
            return f"a CONNECT from before the session began comes late, Clean Start {int(step.clean_start)}{whose}"
        case Open():
            return f"connect with Clean Start {int(step.clean_start)}{whose}"
        case Wait():
            return f"{step.ms:,} ms pass"
        case Drain():
            return f"fetch pages of {step.count} and acknowledge until nothing comes{whose}"
        case Settle():
            return f"fetch, save and acknowledge one message more, fetch{whose}"
        case Pass():
            fate = "expire" if step.by_expiry else "are acknowledged"
            return f"{step.count:,} other messages are saved and {fate}{whose}"
        case Overlap():
            return f"{told_step(step.step, trace)}; after {step.at} of its calls: {told_step(step.during, trace)}"


def _named(producer: int, trace: Trace) -> str:
    """``producer 1``, or the name that a trace gives it."""
    if trace.producers == PRODUCERS:
        return f"producer {producer + 1}"
    return f"the producer called '{trace.producers[producer].decode('latin-1')}'"


def _told_fault(fault: Fault | None) -> str:
    if fault is None:
        return ""
    if fault.kind == "wrong-type":
        return f", while {fault.key[:60].decode('latin-1')!r} holds a {fault.found}"
    if fault.kind == "client-dies":
        return f"; the client dies after {fault.at} calls"
    if fault.kind in ("killed", "crashed"):
        return f"; {fault.kind} before call {fault.at}"
    return f", {FAULTS.get(fault.kind, fault.kind)}"


def told_messages(messages: Sequence[Publication]) -> str:
    """The messages of a batch; the middle of a long one is left out."""
    if len(messages) <= MANY:
        return ", ".join(map(told_message, messages)) or "nothing"
    first, last = told_message(messages[0]), told_message(messages[-1])
    return f"{first}, {told_message(messages[1])} ... {last} ({len(messages):,} messages)"


def told_message(message: Publication) -> str:
    """A message with what is out of the ordinary about it."""
    told = f"m{message.label}"
    if len(message.payload) < 100 and not message.payload.startswith((b"m%d" % message.label, b"<%d>" % message.label)):
        told += f" {message.payload.decode('latin-1')!r}"
    if message.qos != 1:
        told += f" QoS {message.qos}"
    if message.interval_ms is not None:
        told += f" (expires in {message.interval_ms / 1000:g} s)"
    return told
