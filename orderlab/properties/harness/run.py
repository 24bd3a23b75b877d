"""Runs the steps of a trace on a session store and holds each one against the abstract session.

All that a run remembers is a value (``RunState``), so that the explorer can go back to any earlier moment: who was
sent what, each producer's last batch, each reader's place, and the judge's account of every client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from orderlab.model.contracts.session.refinement import (
    Account,
    Discrepancy,
    Judgement,
    Reply,
    Seen,
    judge_acknowledge,
    judge_fetch,
    judge_open,
    judge_quiet,
    judge_release,
    judge_time,
)
from orderlab.model.contracts.session.refinement.account import names_of
from orderlab.model.contracts.session.refinement.callers import ACCUSING, forbidden_in, forbidden_in_clients
from orderlab.model.contracts.session.refinement.steps import Answer as Answered
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
    Wait,
)
from orderlab.properties.harness.churn import pass_by
from orderlab.properties.harness.connecting import come_late, end_late, judge_answer, judge_ending
from orderlab.properties.harness.coverage import note
from orderlab.properties.harness.hidden import come_later
from orderlab.properties.harness.listing import assigned_to, identify, replaced
from orderlab.properties.harness.saving import save_again, save_next
from orderlab.properties.harness.state import (
    EVERYTHING,
    Batch,
    Between,
    ClientDied,
    Connection,
    Cursor,
    Endless,
    RunState,
    Sending,
    SessionStore,
)
from orderlab.sim.stores.binding.results import Answered as ContractReply
from orderlab.sim.stores.binding.results import Cleared, Failed, Fetched, FetchedMessage, Opened, Removed, Result, Saved

MOST_ROUNDS = 64
"""Pages that a drain asks for beyond what the queue needs."""


@dataclass(slots=True)
class StepReport:
    """What one step did, and which laws it broke."""

    step: Step
    result: Result | None = None
    """None: the step had no meaning where it stood, and nothing was done."""
    discrepancies: list[Discrepancy] = field(default_factory=list)
    beside: list[Discrepancy] = field(default_factory=list)
    """What is no law broken, for it took values that no caller may give (``orderlab.model.contracts.session.refinement.callers``)."""

    @property
    def diverges(self) -> bool:
        """Whether the store has left the abstract session for good."""
        return any(one.diverges for one in (*self.discrepancies, *self.beside))

    def set_aside(self) -> None:
        """Take back the accusations that forbidden values cannot carry."""
        self.beside += [one for one in self.discrepancies if one.law not in ACCUSING]
        self.discrepancies = [one for one in self.discrepancies if one.law in ACCUSING]


class Inspector(Protocol):
    """Judges a step by the keys that it leaves (``session_inspection``)."""

    def begin(self, run: SessionRun) -> None: ...

    def check(self, run: SessionRun, step: Step, before: RunState, report: StepReport) -> list[Discrepancy]: ...

    def half_done(self, run: SessionRun, before: RunState, report: StepReport) -> list[Discrepancy]: ...

    def settle(self, run: SessionRun, step: Settle) -> list[Discrepancy]: ...


class SessionRun:
    """A store, its clients, and the state of the run so far."""

    def __init__(
        self, store: SessionStore, clients: Sequence[bytes], producers: Sequence[bytes] = PRODUCERS, slack_ms: int = 0
    ) -> None:
        self.store = store
        self.clients = tuple(clients)
        self.producers = tuple(producers)
        """What they are called, for a store may keep their marks beside other things."""
        self.publications: dict[int, tuple[int, Publication]] = {}
        """Every message of the run by label, with the client it is for."""
        self._by_payload: dict[bytes, list[int]] = {}
        self.slack_ms = slack_ms
        """For a store whose clock runs by itself: its lag, and this much more, is nobody's fault."""
        empty = Account(slack_ms=slack_ms)
        account = empty._replace(session=empty.session._replace(now_ms=store.now_ms, epoch=1))
        count = len(self.clients)
        self.state = RunState(
            (account,) * count,
            (),
            (Batch(),) * len(self.producers),
            (Cursor(),) * count,
            (Connection(),) * count,
            forbidden_in_clients(self.clients),
        )
        self.met: Counter[str] = Counter()
        """How often the situations came about that the laws speak of (``session_coverage``)."""
        self._is_judging = True
        self.inspector: Inspector | None = None
        """Looks at the keys as well, where it can."""
        self._between: Between | None = None
        self.is_overtaken = False
        """Whether another step came between two calls of the operation at hand: it may decline then."""
        self.told: dict[int, int] = {}
        """Identifiers that the save at hand was told, by label."""
        if "open" in store.operations:
            for client in self.clients:
                store.perform("open", client, {"epoch": 1, "clean_start": 1})

    # -- the steps -----------------------------------------------------------------------------------------------------

    def perform(self, step: Step) -> StepReport:
        """Carry out one step, then list what every client has and judge it.

        Once something has been given that no caller may give, only what any input can break counts.
        """
        if not self.state.forbidden:
            self.state = self.state._replace(forbidden=forbidden_in(step, self.store.terms))
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
        match step:
            case Save():
                save_next(self, step, report)
            case Repeat():
                save_again(self, step, report)
            case Fetch():
                self._fetch(step, report)
            case Acknowledge() | Release():
                self._answer(step, report)
            case Answer():
                self._unknown_answer(step, report)
            case Clear() | Open():
                self._begin(step, report)
            case Wait():
                self._wait(step.ms, report)
            case Drain():
                self._drain(step, report)
            case Settle():
                self._settle(step, report)
            case Pass(by_expiry=False) if "acknowledge" not in self.store.operations:
                pass  # what is saved stays: nothing goes by
            case Pass():
                report.result, passed_ms = pass_by(self, step)
                self._time_passed(passed_ms, report)
            case Overlap():
                self._overlap(step, report)
        if isinstance(report.result, Endless):
            text = report.result.error.decode()
            report.discrepancies = [Discrepancy("bounded", text)]
        elif self.inspector is not None and report.result is not None:
            if not report.diverges:
                report.discrepancies += self.inspector.check(self, step, before, report)
            elif isinstance(step, Save) and all(one.law != "all-or-nothing" for one in report.discrepancies):
                report.discrepancies = self.inspector.half_done(self, before, report) + report.discrepancies
        if report.result is not None:
            note(self.met, before, self.state, report)
        return report

    def _fetch(self, step: Fetch, report: StepReport) -> None:
        cursor = self.state.cursors[step.client] if step.onward else Cursor()
        if step.onward and not cursor.passed:
            return
        count = EVERYTHING if step.count is None else step.count
        result = self.call(step.fault, "fetch", step.client, {"count": count, "after": cursor.sequence})
        report.result = result
        reply = self.reply_of(result)
        returned: list[Seen] = []
        if isinstance(result, Fetched):
            returned = self._identify(step.client, result.messages)
            self._note_sent(step.client, result.messages, returned)
        page = step.count if self.store.terms.has_counts else None
        faulted = step.fault is not None or self.is_overtaken

        def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
            return judge_fetch(account, page, cursor.passed, reply, returned, listing, self.store.terms, faulted)

        self.judge(report, step.client, judge)

    def _answer(self, step: Acknowledge | Release, report: StepReport) -> None:
        sending = dict(self.state.sendings).get(step.label)
        operation = "release" if isinstance(step, Release) else "acknowledge"
        if sending is None or operation not in self.store.operations:
            return
        client, _ = self.publications[step.label]
        self._carry_out_answer(step.fault, operation, client, step.label, sending, report)

    def _unknown_answer(self, step: Answer, report: StepReport) -> None:
        operation = "release" if step.release else "acknowledge"
        known = {sending.packet_id for _, sending in self.state.sendings}
        if operation not in self.store.operations or step.packet_id in known:
            return
        self._carry_out_answer(None, operation, step.client, None, Sending(step.packet_id, None), report)

    def _carry_out_answer(
        self, fault: Fault | None, operation: str, client: int, label: int | None, sending: Sending, report: StepReport
    ) -> None:
        fields: dict[str, object] = {
            "epoch": sending.epoch,
            "packet_id": sending.packet_id,
            "sequence": sending.sequence or 0,
        }
        result = self.call(fault, operation, client, fields)
        report.result = result
        reply = self.reply_of(result)
        judge_one = judge_release if operation == "release" else judge_acknowledge
        may_fail = fault is not None or self.is_overtaken
        answered = Answered(label, sending.packet_id)

        def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
            return judge_one(account, answered, reply, listing, self.store.terms, may_fail)

        self.judge(report, client, judge)

    def _begin(self, step: Clear | Open, report: StepReport) -> None:
        """CONNECT, or the end of a session. A store without ``open`` is told of a clean start by clear alone."""
        if not step.is_new:
            report.result, judge_late = end_late(self, step) if isinstance(step, Clear) else come_late(self, step)
            if judge_late is not None:
                self.judge(report, step.client, judge_late)
            return
        operation = "open" if isinstance(step, Open) else "clear"
        if operation not in self.store.operations:
            return
        connection = self.state.connections[step.client]
        account = self.state.accounts[step.client]
        ends = operation == "clear" and "open" in self.store.operations
        epoch = account.session.epoch if ends else connection.connects + 1
        clean = not isinstance(step, Open) or step.clean_start
        fields: dict[str, object] = {"epoch": epoch}
        if isinstance(step, Open):
            fields["clean_start"] = int(clean)
        fault = step.fault
        result = self.call(fault, operation, step.client, fields)
        report.result = result
        reply = self.reply_of(result)
        is_done = reply.status == "done"
        may_fail = fault is not None or self.is_overtaken
        answer = None
        if isinstance(result, Opened) and is_done:
            report.discrepancies += judge_answer(result, account, connection, epoch, clean, self.store.terms)
            epoch = epoch if result.epoch is None else result.epoch
            answer = clean, result.session_present, result.epoch
        if ends and is_done:
            report.discrepancies += judge_ending(reply, connection, self.store.terms)
        if is_done:
            cleared = max(account.session.epoch if clean else 0, connection.cleared_epoch)
            goes_on = ends or (connection.is_open and not clean)
            begun = connection.begun if goes_on else connection.connects + 1
            self.state = self.state._replace(
                connections=replaced(
                    self.state.connections,
                    step.client,
                    Connection(connection.connects + (not ends), not ends, cleared, begun, answer),
                ),
                cursors=replaced(self.state.cursors, step.client, Cursor()) if clean else self.state.cursors,
            )

        def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
            return judge_open(account, epoch, clean, reply, listing, may_fail)

        self.judge(report, step.client, judge)

    def _wait(self, ms: int, report: StepReport) -> None:
        self.store.advance(ms)
        report.result = Fetched()
        self._time_passed(ms, report)

    def _time_passed(self, ms: int, report: StepReport) -> None:
        now_ms = self.state.accounts[0].session.now_ms + ms
        deadlines_ms = frozenset(self.store.redis_deadlines_ms())

        def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
            return judge_time(account, now_ms, listing, self.store.terms, deadlines_ms)

        for client in range(len(self.clients)):
            self._judge_one(report, client, judge)

    def _drain(self, step: Drain, report: StepReport) -> None:
        """Fetch and acknowledge, page by page, until a page is empty and so is the queue."""
        rounds = len(self.state.accounts[step.client].queue) + MOST_ROUNDS
        for _ in range(rounds):
            page = self.take(Fetch(step.client, step.count))
            report.result = page.result
            report.discrepancies += page.discrepancies
            queue = self.state.accounts[step.client].queue
            if report.diverges or not queue:
                return
            for entry in queue:
                if not entry.sent:
                    break
                if entry.kind == "PUBLISH" and entry.qos == 2 and "release" in self.store.operations:
                    report.discrepancies += self.take(Release(entry.label)).discrepancies
                report.discrepancies += self.take(Acknowledge(entry.label)).discrepancies
                if report.diverges:
                    return
        text = f"{len(self.state.accounts[step.client].queue)} messages wait after {rounds} fetches, each acknowledged"
        report.discrepancies.append(Discrepancy("drain", text))

    def _settle(self, step: Settle, report: StepReport) -> None:
        is_idle = self.state.connections[step.client].is_open and not self.state.accounts[step.client].queue
        if self.inspector is not None and is_idle:
            report.result = Fetched()
            report.discrepancies += self.inspector.settle(self, step)

    # -- the other end -------------------------------------------------------------------------------------------------

    def _overlap(self, step: Overlap, report: StepReport) -> None:
        """Another step comes between two calls of an operation that takes several, which may decline then.

        Two saves of one producer do not overlap: its batches are numbered, and one follows the other.
        """
        producers = [one.producer for one in (step.step, step.during) if isinstance(one, Save | Repeat)]
        if len(producers) > len(set(producers)):
            return

        def between(calls: int) -> None:
            if calls == step.at:
                self._between = None
                report.discrepancies += self.take(step.during).discrepancies
                self.is_overtaken = True

        self._between = between
        inner = self.take(step.step)
        self._between, self.is_overtaken = None, False
        report.result = inner.result
        report.discrepancies += inner.discrepancies

    def call(self, fault: Fault | None, operation: str, client: int, fields: dict[str, object]) -> Result:
        name = self.clients[client]
        fields.setdefault("epoch", self.state.accounts[client].session.epoch)
        between, self._between = self._between, None
        if fault is not None and fault.kind == "client-dies":
            between = dying_after(fault.at)
        with self.store.under(fault, operation, name, fields) if fault else nullcontext():
            return self.store.perform(operation, name, fields, between)

    def register(self, step: Save) -> None:
        """Know the messages of a save, whether or not it is carried out here."""
        for publication in step.messages:
            if publication.label not in self.publications:
                self.publications[publication.label] = (step.client, publication)
                self._by_payload.setdefault(publication.payload, []).append(publication.label)

    def _note_sent(self, client: int, messages: Sequence[FetchedMessage], returned: Sequence[Seen]) -> None:
        sendings = dict(self.state.sendings)
        account = self.state.accounts[client]
        for message, seen in zip(messages, returned, strict=True):
            if seen.label is not None and message.packet_id is not None:
                sendings[seen.label] = Sending(message.packet_id, message.sequence, account.session.epoch)
        self.state = self.state._replace(sendings=tuple(sorted(sendings.items())))
        if messages:
            labels = [entry.label for entry in account.queue]
            last = returned[-1].label
            passed = labels[: labels.index(last) + 1] if last in labels else labels
            cursor = Cursor(messages[-1].sequence or 0, frozenset(passed))
            self.state = self.state._replace(cursors=replaced(self.state.cursors, client, cursor))

    def _identify(self, client: int, messages: Sequence[FetchedMessage]) -> list[Seen]:
        return identify(
            messages,
            self.state.accounts[client],
            self.told,
            client,
            self.publications,
            self._by_payload,
            self.store.now_ms,
        )

    def seen_in(self, client: int, result: Result) -> list[Seen]:
        """Which messages of the run a listing shows."""
        return self._identify(client, result.messages) if isinstance(result, Fetched) else []

    def reply_of(self, result: Result | None, messages: Sequence[Publication] = ()) -> Reply:
        """A result as the judge reads it."""
        if result is None:
            return Reply()
        if isinstance(result, Failed):
            return Reply("error", result.error.decode("utf-8", "replace"))
        assert not isinstance(result, ContractReply), result  # of a store with a contract of its own
        if result.refused is not None:
            return Reply("refused", result.refused)
        if isinstance(result, Saved):
            assigned = assigned_to(result, messages)
            told = tuple((one.packet_id, one.sequence) for one in result.assigned)
            return Reply(assigned=tuple(assigned), told=told, told_count=result.count)
        return Reply(removed=result.count) if isinstance(result, Removed | Cleared) else Reply()

    # -- judging -------------------------------------------------------------------------------------------------------

    def judge(self, report: StepReport, client: int, judge: Callable[[Account, Sequence[Seen]], Judgement]) -> None:
        """The client concerned by ``judge``; for all others nothing may have happened."""
        for other in range(len(self.clients)):
            self._judge_one(report, other, judge if other == client else judge_quiet)

    def stop_judging(self) -> None:
        """From here on steps are carried out and nothing else: for whoever measures a store that has gone wrong."""
        self._is_judging = False

    def compare(self) -> list[Discrepancy]:
        """How the store differs now from what the accounts say."""
        report = StepReport(Wait(0))
        self.judge(report, 0, judge_quiet)
        return report.discrepancies

    def _judge_one(
        self, report: StepReport, client: int, judge: Callable[[Account, Sequence[Seen]], Judgement]
    ) -> None:
        if not self._is_judging:
            return
        listed = self.store.listing(self.clients[client])
        if isinstance(listed, Endless):
            report.result = listed
            return
        if not isinstance(listed, Fetched) or listed.refused is not None:
            report.discrepancies.append(Discrepancy("drain", f"a fetch failed: {self.reply_of(listed).text}"))
            return
        listing = self._identify(client, listed.messages)
        account = self._with_lag(self.state.accounts[client], listing)
        judgement = judge(account, listing)
        if judgement.diverges:
            judgement = self._with_hidden(client, judge, account, listing, listed) or judgement
        self.state = self.state._replace(accounts=replaced(self.state.accounts, client, judgement.account))
        report.discrepancies += judgement.discrepancies

    def _with_hidden(
        self,
        client: int,
        judge: Callable[[Account, Sequence[Seen]], Judgement],
        account: Account,
        listing: list[Seen],
        listed: Fetched,
    ) -> Judgement | None:
        """The judgement with those messages listed that are not gone, for they come later; None when none does.

        A store without a page size may hand out as many at a time as it likes. Of any other, and when it takes
        acknowledgements or another save for a message to come, the queue does not drain.
        """
        hidden, needs_save = come_later(self, client, listed, {seen.label for seen in listing})
        if not hidden:
            return None
        judgement = judge(account, [*listing, *hidden])
        if self.store.terms.has_counts or needs_save:
            labels = [seen.label for seen in hidden if seen.label is not None]
            what = "until another one is saved" if needs_save else "until others are acknowledged"
            text = f"{names_of(labels)} not returned {what}: a page cut short"
            judgement.discrepancies.append(Discrepancy("drain", text))
        return judgement

    def _with_lag(self, account: Account, listing: Sequence[Seen]) -> Account:
        """The account on a clock that runs by itself: what was due meanwhile may be gone."""
        if not self.slack_ms:
            return account
        account = account._replace(slack_ms=self.slack_ms + self.store.lag_ms)
        return judge_time(account, account.session.now_ms, listing, self.store.terms).account


def dying_after(calls: int) -> Between:
    """The client ends after so many calls of an operation."""

    def between(made: int) -> None:
        if made == calls:
            raise ClientDied

    return between
