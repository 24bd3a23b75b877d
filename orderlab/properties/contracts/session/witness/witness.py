"""A law broken by a store: what was found, what it looks like from within, and who else saw it."""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from orderlab.model.contracts.session.steps import (
    FAULTS,
    Answer,
    Churn,
    Interleave,
    Open,
    Release,
    Retry,
    Save,
    Step,
    Trace,
    Wait,
    step_to_json,
    told_step,
)
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.steps import SessionRun
from orderlab.properties.contracts.session.validation.subject import Reruns
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.recording import LuaLine, RecordingStore, line_to_look_at
from orderlab.properties.validation.findings import Finding, was_stopped, wording
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.results import Failed, Removed
from orderlab.sim.stores.bound import TimedOut

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


MANY = 8
"""Messages of one answer, or live ones, that are told one by one."""


@dataclass(frozen=True)
class Explanation:
    """A witness, ready to be shown."""

    told: tuple[str, ...]
    """What each step answered."""
    queues: tuple[str, ...]
    """What was live after each step, as the abstract session has it."""
    before: FrozenKeyspace
    after: FrozenKeyspace
    """The keys around the last step."""
    lua: LuaLine
    """Where the call stands that did it."""
    exhausts: bool
    """A script was stopped at its limit of instructions or memory."""
    error: str = ""
    """What the last step failed with, if it did."""
    keyspaces: tuple[FrozenKeyspace | None, ...] = ()
    """The keys after each step; None on the way to where many messages have passed."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; bytes as Latin-1 text."""
        return {
            "told": list(self.told),
            "live_after": list(self.queues),
            "keys_before": shown_keyspace(self.before),
            "keys_after": shown_keyspace(self.after),
            "line": self.lua.place,
            "call": self.lua.call,
            "source": self.lua.source,
        }


def explain(reruns: Reruns, trace: Trace) -> Explanation:
    """Run a witness once more and take notes; of steps on the way to where many messages have passed there are none."""
    subject = reruns.subject
    run, taken = reruns.start(trace)
    store = subject.store
    assert isinstance(store, RecordingStore)
    told = ["" for _ in range(taken)]
    queues = ["" for _ in range(taken)]
    keyspaces: list[FrozenKeyspace | None] = [None] * taken
    before: FrozenKeyspace = store.backend.keyspace()
    store.is_recording = True
    report: StepReport | None = None
    exhausts = False
    for step in trace.steps[taken:]:
        before = store.backend.keyspace()
        store.records.clear()
        report = run.perform(step)
        exhausts = exhausts or isinstance(report.result, TimedOut)
        exhausts = exhausts or any(was_stopped(one.law, one.text) for one in report.discrepancies)  # within a drain
        told.append(tell(report.result, step))
        queues.append(_queues(run))
        keyspaces.append(store.backend.keyspace())
    if not store.records:  # time passed: what fetch then returns is what is wrong
        store.perform("fetch", trace.clients[0], {"count": 65535, "after": 0, "epoch": 1})
    store.is_recording = False
    lua = line_to_look_at(store.records, subject.binding, None if report is None else report.result)
    failed = report is not None and isinstance(report.result, Failed)
    error = tell(report.result) if report is not None and failed else ""
    after = store.backend.keyspace()
    return Explanation(tuple(told), tuple(queues), before, after, lua, exhausts, error, tuple(keyspaces))


def tell(result: Any, step: Step | None = None) -> str:
    """A result in a few words; ``step`` says what was asked for."""
    if result is None:
        return "nothing to do"
    is_release = isinstance(step, Release) or (isinstance(step, Answer) and step.release)
    name = "released" if is_release and isinstance(result, Removed) else type(result).__name__.lower()
    if isinstance(result, Failed):
        return str(result.error.decode("utf-8", "replace"))
    if result.refused is not None:
        return f"refused: {result.refused}"
    if name == "saved":
        return f"saved {_some(list(map(_assigned, result.assigned[: MANY + 1])), len(result.assigned))}".rstrip()
    if name == "fetched":
        return f"fetched {_some(list(map(_fetched, result.messages[: MANY + 1])), len(result.messages)) or 'nothing'}"
    count = getattr(result, "count", None)
    return name if count is None else f"{name} {count}"


def _some(told: list[str], count: int) -> str:
    """The first of them, and how many there are more."""
    return ", ".join(told if count <= MANY else [*told[: MANY - 1], f"and {count - MANY + 1:,} more"])


def _assigned(one: Any) -> str:
    token = "" if one.sequence is None else f" (token {one.sequence})"
    return f"as {one.packet_id}{token}"


def _fetched(one: Any) -> str:
    payload = "-" if one.payload is None else one.payload[:24].decode("latin-1")
    left = "" if one.remaining_ms is None else f" {one.remaining_ms:g} ms left"
    return f"{one.kind} {payload} as {one.packet_id}{left}"


def _queues(run: SessionRun) -> str:
    """What is live, for each client that has anything."""
    parts = []
    for client, account in enumerate(run.state.accounts):
        entries = ", ".join(f"m{entry.label} as {entry.packet_id}" for entry in account.queue[:MANY])
        more = f" and {len(account.queue) - MANY:,} more" if len(account.queue) > MANY else ""
        parts.append(f"client {client + 1}: {entries or 'nothing'}{more}")
    return "; ".join(parts) if len(parts) > 1 else parts[0].split(": ", 1)[1]


def step_words(trace: Trace) -> list[dict[str, Any]]:
    """The steps as JSON has them."""
    return [step_to_json(step) for step in trace.steps]


@dataclass(frozen=True)
class Witness:
    """A law broken: the shortest trace that is known, on the scripts as they are."""

    finding: Finding
    explanation: Explanation
    confirmation: str
    round: int = 0
    """In which round of the validation it was found."""

    @property
    def headline(self) -> str:
        """The cause, then what is seen of it."""
        return headline(self.finding, self.explanation)

    @property
    def cause(self) -> Cause:
        """What tells it from other witnesses of its law."""
        return cause_of(self.finding, self.explanation)

    def to_json(self) -> dict[str, Any]:
        """The trace, what it did, and who confirmed it."""
        return {
            "headline": self.headline,
            "text": self.finding.text,
            "found_by": self.finding.analysis,
            "trace": self.finding.trace.to_json(),
            "confirmation": self.confirmation,
            **self.explanation.to_json(),
        }


KEYS_SHOWN = 8
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What would move a terminal's cursor or colour it, if a script put it into an error or a comment."""


def without_controls(text: str) -> str:
    """The text with escapes for what is no character to be read."""
    return text.translate(_CONTROLS)


def story_lines(law: str, witness: Witness) -> Iterator[tuple[str, str]]:
    """Lines with the style that a terminal gives them: the steps, the keys around the last one, the Lua line."""
    return ((without_controls(line), style) for line, style in _story_lines(law, witness))


def _story_lines(law: str, witness: Witness) -> Iterator[tuple[str, str]]:
    trace, explanation = witness.finding.trace, witness.explanation
    yield f"{law} is violated: {witness.headline}", "bold"
    for number, step in enumerate(trace.steps, 1):
        yield f"  {number}. {told_step(step, trace)}", ""
        if explanation.told[number - 1]:
            yield f"     {explanation.told[number - 1]}", "dim"
            yield f"     the specification has live: {explanation.queues[number - 1]}", "dim"
    changed = {key for key in {*explanation.before, *explanation.after} if explanation.before.get(key) != explanation.after.get(key)}
    for name, keyspace in (("before", explanation.before), ("after", explanation.after)):
        yield f"  the store's keys {name} the last step:", ""
        yield from _keys(keyspace, changed)
    yield from lua_lines(explanation.lua)
    yield f"  found by {witness.finding.analysis}; {witness.confirmation}", ""


def _keys(keyspace: FrozenKeyspace, changed: set[bytes]) -> Iterator[tuple[str, str]]:
    """The keys that the last step changed, then others, as many as can be read."""
    first = sorted(key for key in keyspace if key in changed)[:KEYS_SHOWN]
    first += sorted(key for key in keyspace if key not in changed)[: max(KEYS_SHOWN - len(first), 0)]
    for key, value in shown_keyspace({key: keyspace[key] for key in first}).items():
        yield f"     {key} = {value}", "dim"
    if len(keyspace) > len(first):
        yield f"     and {len(keyspace) - len(first):,} more keys", "dim"
    if not keyspace:
        yield "     none", "dim"


def lua_lines(lua: LuaLine) -> Iterator[tuple[str, str]]:
    """The line and its call; nothing where none can be named."""
    if lua.place:
        yield f"  {lua.place}: {lua.source}", ""
        if lua.call:
            yield f"     redis.call: {lua.call}", "dim"
        if lua.written:
            yield f"  written before it failed: {lua.written}", ""
    elif lua.call:
        yield f"  called by no script: {lua.call}", ""
