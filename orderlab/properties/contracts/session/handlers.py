"""The steps of a trace carried out on a session store: a handler for each kind, judged as it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.contract import situations
from orderlab.model.contracts.session.refinement import (
    Account,
    Judgement,
    ObservedMessage,
    judge_acknowledge,
    judge_fetch,
    judge_quiet,
    judge_release,
)
from orderlab.model.contracts.session.refinement.account import Cursor, RunState, Sending, forbidden_in
from orderlab.model.contracts.session.refinement.actions import ObservedAnswer
from orderlab.model.contracts.session.spec import Entry
from orderlab.model.contracts.session.traces import (
    PRODUCERS,
    Acknowledge,
    Answer,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Quiesce,
    Release,
    Retry,
    Save,
    Serve,
    Step,
    Upkeep,
    Wait,
)
from orderlab.properties.contracts.session.connecting import begin
from orderlab.properties.contracts.session.run import Run, StepReport
from orderlab.properties.contracts.session.saving import pass_by, save_again, save_next
from orderlab.sim.stores.binding.results import Failed, Fetched
from orderlab.sim.stores.bound import EVERYTHING, SessionStore, TimedOut

MOST_ROUNDS = 64
"""Pages that a drain asks for beyond what the queue needs."""
IDLE_ROUNDS = 3
"""Times that one page comes again, all of it acknowledged and nothing gone, after which the queue does not drain."""


class Inspector(Protocol):
    """Judges a step by the keys that it leaves (``orderlab.properties.contracts.session.inspection``)."""

    def begin(self, run: SessionRun) -> None: ...

    def check(self, run: SessionRun, step: Step, before: RunState, report: StepReport) -> list[Discrepancy]: ...

    def half_done(self, run: SessionRun, before: RunState, report: StepReport) -> list[Discrepancy]: ...

    def settle(self, run: SessionRun, step: Quiesce) -> list[Discrepancy]: ...


class SessionRun(Run):
    """A run that takes the steps of a trace."""

    def __init__(
        self, store: SessionStore, clients: Sequence[bytes], producers: Sequence[bytes] = PRODUCERS, slack_ms: int = 0
    ) -> None:
        super().__init__(store, clients, producers, slack_ms)
        self.inspector: Inspector | None = None
        """Looks at the keys as well, where it can."""

    def perform(self, step: Step) -> StepReport:
        """Carry out one step, then list what every client has and judge it.

        Once something has been given that no caller may give, only what any input can break counts.
        """
        if not self.state.forbidden:
            self.state = self.state._replace(forbidden=forbidden_in(step, self.store.capabilities))
        report = self.take(step)
        if self.state.forbidden:
            report.set_aside()
        return report

    def take(self, step: Step) -> StepReport:
        """As ``perform``, by every law whatever has been given: for the parts of a larger step."""
        report = StepReport(step)
        before = self.state
        if self.inspector is not None:
            self.inspector.begin(self)
        HANDLERS[type(step)](self, step, report)
        if isinstance(report.result, TimedOut):
            text = report.result.error.decode()
            report.discrepancies = [Discrepancy("bounded", text)]
        elif self.inspector is not None and report.result is not None:
            if not report.diverges:
                report.discrepancies += self.inspector.check(self, step, before, report)
            elif isinstance(step, Save) and all(one.law != "all-or-nothing" for one in report.discrepancies):
                report.discrepancies = self.inspector.half_done(self, before, report) + report.discrepancies
        if report.result is not None:
            self.coverage.update(situations(before, self.state, step, isinstance(report.result, Failed)))
        return report


def fetch(run: SessionRun, step: Fetch, report: StepReport) -> None:
    cursor = run.state.cursors[step.client] if step.onward else Cursor()
    if step.onward and not cursor.passed:
        return
    count = EVERYTHING if step.count is None else step.count
    result = run.call(step.fault, "fetch", step.client, {"count": count, "after": cursor.sequence})
    report.result = result
    reply = run.reply_of(result)
    returned: list[ObservedMessage] = []
    if isinstance(result, Fetched):
        returned = run.identify_in(step.client, result.messages)
        run.note_sent(step.client, result.messages, returned)
    page = step.count if run.store.capabilities.has_counts else None
    faulted = step.fault is not None or run.is_overtaken

    def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
        return judge_fetch(account, page, cursor.passed, reply, returned, listing, run.store.capabilities, faulted)

    run.judge(report, step.client, judge)


def answer(run: SessionRun, step: Acknowledge | Release, report: StepReport) -> None:
    operation = "release" if isinstance(step, Release) else "acknowledge"
    if operation not in run.store.operations:
        return
    sending = next((one for label, one in run.state.sendings if label == step.label), None)
    if sending is None:
        return
    client, _ = run.publications[step.label]
    _carry_out_answer(run, step.fault, operation, client, step.label, sending, report)


def answer_unknown(run: SessionRun, step: Answer, report: StepReport) -> None:
    operation = "release" if step.release else "acknowledge"
    known = {sending.packet_id for _, sending in run.state.sendings}
    if operation not in run.store.operations or step.packet_id in known:
        return
    _carry_out_answer(run, None, operation, step.client, None, Sending(step.packet_id, None), report)


def _carry_out_answer(
    run: SessionRun,
    fault: Fault | None,
    operation: str,
    client: int,
    label: int | None,
    sending: Sending,
    report: StepReport,
) -> None:
    fields: dict[str, object] = {
        "epoch": sending.epoch,
        "packet_id": sending.packet_id,
        "sequence": sending.sequence or 0,
    }
    result = run.call(fault, operation, client, fields)
    report.result = result
    reply = run.reply_of(result)
    judge_one = judge_release if operation == "release" else judge_acknowledge
    may_fail = fault is not None or run.is_overtaken
    answered = ObservedAnswer(label, sending.packet_id)

    def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
        return judge_one(account, answered, reply, listing, run.store.capabilities, may_fail)

    run.judge(report, client, judge)


def wait(run: SessionRun, step: Wait, report: StepReport) -> None:
    run.store.advance(step.ms)
    report.result = Fetched()
    run.time_passed(step.ms, report)


def serve(run: SessionRun, step: Serve, report: StepReport) -> None:
    """Another version of the scripts finds what is there: it must show what the one before it did."""
    if run.store.serve(step.scripts):
        report.result = Fetched()
        run.time_passed(0, report)


def keep_up(run: SessionRun, step: Upkeep, report: StepReport) -> None:
    """What the store does by itself: nobody may notice it."""
    if step.what in run.store.upkeep:
        run.store.keep_up(step.what)
        report.result = Fetched()
        run.judge(report, 0, judge_quiet)


def drain(run: SessionRun, step: DrainQueue, report: StepReport) -> None:
    """Fetch and acknowledge, page by page, until a page is empty and so is the queue, or the same comes for ever."""
    rounds = len(run.state.accounts[step.client].queue) + MOST_ROUNDS
    seen: object = None
    asked = idle = 0
    while asked < rounds:
        asked += 1
        page = run.take(Fetch(step.client, step.count))
        report.result = page.result
        report.discrepancies += page.discrepancies
        queue = run.state.accounts[step.client].queue
        if page.diverges or not queue or not _acknowledge_sent(run, queue, report):
            return
        shown = [(one.packet_id, one.payload) for one in getattr(page.result, "messages", ())]
        now = shown, run.state.accounts[step.client].queue
        idle = idle + 1 if shown and now == seen else 0
        if idle == IDLE_ROUNDS:
            break
        seen = now
    text = f"{len(run.state.accounts[step.client].queue)} messages wait after {asked} fetches, each acknowledged"
    report.discrepancies.append(Discrepancy("drain", text))


def _acknowledge_sent(run: SessionRun, queue: Sequence[Entry], report: StepReport) -> bool:
    """Answer what was sent of a queue, from its front; False once nothing can be judged any more."""
    for entry in queue if "acknowledge" in run.store.operations else ():
        if not entry.sent:
            break
        steps: list[Step] = [Acknowledge(entry.label)]
        if entry.kind == "PUBLISH" and entry.qos == 2 and "release" in run.store.operations:
            steps.insert(0, Release(entry.label))
        for step in steps:
            found = run.take(step)
            report.discrepancies += found.discrepancies
            if found.diverges:
                return False
    return True


def settle(run: SessionRun, step: Quiesce, report: StepReport) -> None:
    is_idle = run.state.connections[step.client].is_open and not run.state.accounts[step.client].queue
    if run.inspector is not None and is_idle:
        report.result = Fetched()
        report.discrepancies += run.inspector.settle(run, step)


def overlap(run: SessionRun, step: Interleave, report: StepReport) -> None:
    """Another step comes between two calls of an operation that takes several, which may decline then.

    Two saves of one producer do not overlap: its batches are numbered, and one follows the other.
    """
    producers = [one.producer for one in (step.step, step.during) if isinstance(one, Save | Retry)]
    if len(producers) > len(set(producers)):
        return

    def between(calls: int) -> None:
        if calls == step.at:
            run.interruption = None
            report.discrepancies += run.take(step.during).discrepancies
            run.is_overtaken = True

    run.interruption = between
    inner = run.take(step.step)
    run.interruption, run.is_overtaken = None, False
    report.result = inner.result
    report.discrepancies += inner.discrepancies


def go_by(run: SessionRun, step: Churn, report: StepReport) -> None:
    if not step.by_expiry and "acknowledge" not in run.store.operations:
        return  # what is saved stays: nothing goes by
    report.result, passed_ms = pass_by(run, step)
    run.time_passed(passed_ms, report)


HANDLERS: Mapping[type[Any], Callable[[SessionRun, Any, StepReport], None]] = {
    Save: save_next,
    Retry: save_again,
    Fetch: fetch,
    Acknowledge: answer,
    Release: answer,
    Answer: answer_unknown,
    Clear: begin,
    Open: begin,
    Wait: wait,
    Serve: serve,
    Upkeep: keep_up,
    DrainQueue: drain,
    Quiesce: settle,
    Churn: go_by,
    Interleave: overlap,
}
"""What carries out each kind of step."""
