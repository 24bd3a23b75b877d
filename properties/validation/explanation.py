"""A witness told: what each step did, the keys before and after the last one, and the line of Lua that did it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.trace import Trace, step_to_json
from properties.validation.recording import Record, RecordingStore
from properties.validation.subject import Reruns
from sim.binding.results import Failed
from sim.redis.replies import ErrorReply
from sim.redis.shard import Effect, FrozenKeyspace
from sim.session_inspection import items_of
from sim.session_run import SessionRun, StepReport
from sim.session_state import Endless

REMOVING = frozenset(
    b"del unlink getdel zrem zremrangebyrank zremrangebyscore zremrangebylex hdel lrem ltrim lpop rpop srem spop "
    b"zpopmin zpopmax expire pexpire expireat pexpireat set".split()
)
"""Commands that can take something away."""
SHOWN_MAX = 300
"""Characters of one value."""
MANY = 8
"""Messages of one answer, or live ones, that are told one by one."""
ERROR_LINE = re.compile(rb"user_(?:script|function):(\d+)")
"""Where Redis says that a script failed."""


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
    path: Path | None = None
    line: int | None = None
    """Where the call stands that did it, if one can be named."""
    call: str = ""
    source: str = ""
    exhausts: bool = False
    """A script was stopped at its limit of instructions or memory."""

    @property
    def place(self) -> str:
        """``file:line``, or nothing."""
        return f"{self.path}:{self.line}" if self.path is not None and self.line is not None else ""

    def to_json(self) -> dict[str, Any]:
        """Plain values; bytes as Latin-1 text."""
        return {
            "told": list(self.told),
            "live_after": list(self.queues),
            "keys_before": shown_keyspace(self.before),
            "keys_after": shown_keyspace(self.after),
            "line": self.place,
            "call": self.call,
            "source": self.source,
        }


def explain(reruns: Reruns, trace: Trace) -> Explanation:
    """Run a witness once more and take notes; of steps on the way to where many messages have passed there are none."""
    subject = reruns.subject
    run, taken = reruns.start(trace)
    store = subject.store
    assert isinstance(store, RecordingStore)
    told = ["" for _ in range(taken)]
    queues = ["" for _ in range(taken)]
    before: FrozenKeyspace = store.backend.keyspace()
    store.is_recording = True
    report: StepReport | None = None
    exhausts = False
    for step in trace.steps[taken:]:
        before = store.backend.keyspace()
        store.records.clear()
        report = run.perform(step)
        exhausts = exhausts or isinstance(report.result, Endless)
        told.append(tell(report.result))
        queues.append(_queues(run))
    if not store.records:  # time passed: what fetch then returns is what is wrong
        store.perform("fetch", trace.clients[0], {"count": 65535, "after": 0, "epoch": 1})
    store.is_recording = False
    record = store.records[-1] if store.records else None
    guilty = _guilty(record) if record else None
    script = subject.binding.operation(record.operation).script if record else None
    lines = script.source.decode("utf-8", "replace").splitlines() if script else []
    failed = ERROR_LINE.search(report.result.error) if report and isinstance(report.result, Failed) else None
    line = int(failed[1]) if failed else guilty.line if guilty else None
    if guilty is not None and line != guilty.line:
        guilty = None  # the script failed elsewhere than in its last call
    return Explanation(
        tuple(told),
        tuple(queues),
        before,
        store.backend.keyspace(),
        script.path if script else None,
        line,
        " ".join(part[:40].decode("latin-1") for part in guilty.argv) if guilty else "",
        lines[line - 1].strip() if line and line <= len(lines) else "",
        exhausts,
    )


def _guilty(record: Record) -> Effect | None:
    """The call to look at first: one that failed, else the last that took something away, wrote, or was made."""
    calls = record.calls
    failed = [call for call in calls if isinstance(call.reply, ErrorReply)]
    removing = [call for call in calls if call.changes and call.argv[0].lower() in REMOVING]
    for choice in (failed, removing, [call for call in calls if call.changes], list(calls)):
        if choice:
            return choice[-1]
    return None


def tell(result: Any) -> str:
    """A result in a few words."""
    if result is None:
        return "nothing to do"
    name = type(result).__name__.lower()
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


def shown_keyspace(keyspace: FrozenKeyspace) -> dict[str, str]:
    """Each key with its type, value and deadline, short enough to read."""
    return {
        key[:80].decode("latin-1"): f"{kind} {_shown_value(kind, value)}" + (f" until {deadline}" if deadline else "")
        for key, (kind, value, deadline) in sorted(keyspace.items())[:40]
    }


def _shown_value(kind: str, value: Any) -> str:
    if isinstance(value, bytes):
        parts = [_shown(value)]
    elif kind in ("zset", "hash"):
        pairs = items_of(kind, value)
        pairs = sorted(pairs, key=lambda pair: (pair[1], pair[0])) if kind == "zset" else sorted(pairs)
        parts = [
            f"{_shown(name)} = {one:.17g}" if kind == "zset" else f"{_shown(name)} = {_shown(one)}"
            for name, one in pairs[:SHOWN_MAX]
        ]
    else:
        items = items_of(kind, value)
        parts = [_shown(one) for one in (items if kind == "list" else sorted(items))[:SHOWN_MAX]]
    text = ", ".join(parts)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def _shown(value: bytes) -> str:
    """Bytes as text: what cannot be printed as escapes."""
    return value.decode("latin-1").encode("unicode_escape").decode("ascii")


def step_words(trace: Trace) -> list[dict[str, Any]]:
    """The steps as JSON has them."""
    return [step_to_json(step) for step in trace.steps]
