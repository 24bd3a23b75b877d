"""What a session store does in the steps of a witness: what each answered, what is live after it, the line to look
at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orderlab.model.contracts.session.traces import Answer, Release, Serve, Step, Trace, Wait
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.subject import Reruns
from orderlab.properties.harness.recording import line_to_look_at, lines_run
from orderlab.properties.validation.findings import was_stopped
from orderlab.properties.witness.witness import Explanation
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.results import Failed, Removed
from orderlab.sim.stores.bound import TimedOut
from orderlab.sim.stores.records import Record

MANY = 8
"""Messages of one answer, or live ones, that are told one by one."""


def explain(reruns: Reruns, trace: Trace) -> Explanation:
    """Run a witness once more and take notes; of steps on the way to where many messages have passed there are none."""
    subject = reruns.subject
    run, taken = reruns.start(trace)
    store = subject.store
    told = ["" for _ in range(taken)]
    states = ["" for _ in range(taken)]
    keyspaces: list[FrozenKeyspace | None] = [None] * taken
    ran: list[tuple[tuple[Path, int], ...]] = [()] * taken
    before: FrozenKeyspace = store.backend.visible()
    report: StepReport | None = None
    records: Sequence[Record] = ()
    exhausts = False
    for step in trace.steps[taken:]:
        before = store.backend.visible()
        with store.recording() as called:
            report = run.perform(step)
        records = called
        exhausts = exhausts or isinstance(report.result, TimedOut)
        exhausts = exhausts or any(was_stopped(one.law, one.text) for one in report.discrepancies)  # within a drain
        told.append(tell(report.result, step))
        states.append(_live(run))
        ran.append(lines_run(store.versions[store.serving], records))
        keyspaces.append(store.backend.visible())
    if not records:  # time passed: what fetch then returns is what is wrong
        with store.recording() as called:
            store.perform("fetch", trace.clients[0], {"count": MODULUS, "after": 0, "epoch": 1})
        records = called
    lua = line_to_look_at(records, store.versions[store.serving], None if report is None else report.result)
    failed = report is not None and isinstance(report.result, Failed)
    error = tell(report.result) if report is not None and failed else ""
    after = store.backend.visible()
    noted = tuple(keyspaces), tuple(ran)
    return Explanation(tuple(told), tuple(states), before, after, lua, exhausts, error, *noted)


def tell(result: Any, step: Step | None = None) -> str:
    """A result in a few words; ``step`` says what was asked for. Where nothing was asked of the store, none."""
    if isinstance(step, (Serve, Wait)) and not isinstance(result, Failed):
        return ""
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


def _live(run: SessionRun) -> str:
    """What is live, for each client that has anything."""
    parts = []
    for client, account in enumerate(run.state.accounts):
        entries = ", ".join(f"m{entry.label} as {entry.packet_id}" for entry in account.queue[:MANY])
        more = f" and {len(account.queue) - MANY:,} more" if len(account.queue) > MANY else ""
        parts.append(f"client {client + 1}: {entries or 'nothing'}{more}")
    return "; ".join(parts) if len(parts) > 1 else parts[0].split(": ", 1)[1]
