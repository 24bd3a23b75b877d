"""Calls the operations of a session store and holds each one against the abstract session.

All that a run remembers is a value (``RunState``), so that the explorer can go back to any earlier moment: who was
sent what, each producer's last batch, each reader's place, and the judge's account of every client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.refinement import (
    Account,
    Judgement,
    ObservedMessage,
    Reply,
    judge_quiet,
    judge_time,
)
from orderlab.model.contracts.session.refinement.account import (
    ACCUSING,
    Batch,
    Connection,
    Cursor,
    RunState,
    Sending,
    forbidden_in_clients,
    names_of,
)
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry, Kind, Message, lifetime
from orderlab.model.contracts.session.traces import PRODUCERS, Publication, Save, Step, Wait
from orderlab.sim.stores.binding.results import (
    Cleared,
    ContractReply,
    Failed,
    Fetched,
    FetchedMessage,
    Removed,
    Result,
    Saved,
)
from orderlab.sim.stores.binding.results import Message as Outgoing
from orderlab.sim.stores.bound import EVERYTHING, ClientDied, Interruption, SessionStore, TimedOut

T = TypeVar("T")

Judge = Callable[[Account, Sequence[ObservedMessage]], Judgement]
"""Judges one client's account by the listing after a step."""


@dataclass(slots=True)
class StepReport:
    """What one step did, and which laws it broke."""

    step: Step
    result: Result | None = None
    """None: the step had no meaning where it stood, and nothing was done."""
    discrepancies: list[Discrepancy] = field(default_factory=list)
    beside: list[Discrepancy] = field(default_factory=list)
    """What is no law broken, for it took values that no caller may give
    (``orderlab.model.contracts.session.refinement.account``)."""

    @property
    def diverges(self) -> bool:
        """Whether the store has left the abstract session for good."""
        return any(one.diverges for one in (*self.discrepancies, *self.beside))

    def set_aside(self) -> None:
        """Take back the accusations that forbidden values cannot carry."""
        self.beside += [one for one in self.discrepancies if one.law not in ACCUSING]
        self.discrepancies = [one for one in self.discrepancies if one.law in ACCUSING]


class Run:
    """A store, its clients, and the state of the run so far: operations are called, and held against the abstract
    session."""

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
        self.coverage: Counter[str] = Counter()
        """How often the situations came about that the laws speak of
        (``orderlab.model.contracts.session.contract``)."""
        self._is_judging = True
        self.interruption: Interruption | None = None
        """What comes between two calls of the operation that is called next."""
        self.is_overtaken = False
        """Whether another step came between two calls of the operation at hand: it may decline then."""
        self.told: dict[int, int] = {}
        """Identifiers that the save at hand was told, by label."""
        if "open" in store.operations:
            for client in self.clients:
                store.perform("open", client, {"epoch": 1, "clean_start": 1})

    # -- the other end -------------------------------------------------------------------------------------------------

    def call(self, fault: Fault | None, operation: str, client: int, fields: dict[str, object]) -> Result:
        """Carry out one operation for a client, under ``fault``."""
        name = self.clients[client]
        fields.setdefault("epoch", self.state.accounts[client].session.epoch)
        between, self.interruption = self.interruption, None
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

    def note_sent(self, client: int, messages: Sequence[FetchedMessage], returned: Sequence[ObservedMessage]) -> None:
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

    def identify_in(self, client: int, messages: Sequence[FetchedMessage]) -> list[ObservedMessage]:
        return identify(
            messages,
            self.state.accounts[client],
            self.told,
            client,
            self.publications,
            self._by_payload,
            self.store.now_ms,
        )

    def seen_in(self, client: int, result: Result) -> list[ObservedMessage]:
        """Which messages of the run a listing shows."""
        return self.identify_in(client, result.messages) if isinstance(result, Fetched) else []

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

    def judge(self, report: StepReport, client: int, judge: Judge) -> None:
        """The client concerned by ``judge``; for all others nothing may have happened."""
        for other in range(len(self.clients)):
            self._judge_one(report, other, judge if other == client else judge_quiet)

    def time_passed(self, ms: int, report: StepReport) -> None:
        """Have what time alone does judged, for every client."""
        now_ms = self.state.accounts[0].session.now_ms + ms
        deadlines_ms = frozenset(self.store.redis_deadlines_ms())

        def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
            return judge_time(account, now_ms, listing, self.store.capabilities, deadlines_ms)

        for client in range(len(self.clients)):
            self._judge_one(report, client, judge)

    def stop_judging(self) -> None:
        """From here on steps are carried out and nothing else: for whoever measures a store that has gone wrong."""
        self._is_judging = False

    def compare(self) -> list[Discrepancy]:
        """How the store differs now from what the accounts say."""
        report = StepReport(Wait(0))
        self.judge(report, 0, judge_quiet)
        return report.discrepancies

    def _judge_one(self, report: StepReport, client: int, judge: Judge) -> None:
        if not self._is_judging:
            return
        listed = self.store.listing(self.clients[client])
        if isinstance(listed, TimedOut):
            report.result = listed
            return
        if not isinstance(listed, Fetched) or listed.refused is not None:
            report.discrepancies.append(Discrepancy("drain", f"a fetch failed: {self.reply_of(listed).text}"))
            return
        listing = self.identify_in(client, listed.messages)
        account = self._with_lag(self.state.accounts[client], listing)
        judgement = judge(account, listing)
        if judgement.diverges:
            judgement = self._with_hidden(client, judge, account, listing, listed) or judgement
        self.state = self.state._replace(accounts=replaced(self.state.accounts, client, judgement.account))
        report.discrepancies += judgement.discrepancies

    def _with_hidden(
        self,
        client: int,
        judge: Judge,
        account: Account,
        listing: list[ObservedMessage],
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
        if self.store.capabilities.has_counts or needs_save:
            labels = [seen.label for seen in hidden if seen.label is not None]
            what = "until another one is saved" if needs_save else "until others are acknowledged"
            text = f"{names_of(labels)} not returned {what}: a page cut short"
            judgement.discrepancies.append(Discrepancy("drain", text))
        return judgement

    def _with_lag(self, account: Account, listing: Sequence[ObservedMessage]) -> Account:
        """The account on a clock that runs by itself: what was due meanwhile may be gone."""
        if not self.slack_ms:
            return account
        account = account._replace(slack_ms=self.slack_ms + self.store.lag_ms)
        return judge_time(account, account.session.now_ms, listing, self.store.capabilities).account


def dying_after(calls: int) -> Interruption:
    """The client ends after so many calls of an operation."""

    def between(made: int) -> None:
        if made == calls:
            raise ClientDied

    return between


# -- messages that a listing does not show and that are not gone
# -------------------------------------------------------------

FURTHER = Outgoing(b"a message to see what comes with it", b"t", 1, None, 0)


def come_later(run: Run, client: int, listed: Fetched, shown: set[int | None]) -> tuple[list[ObservedMessage], bool]:
    """Which live messages come in later pages, each page acknowledged, and whether it takes another save for one.

    Tried, and taken back.
    """
    live = {entry.label for entry in run.state.accounts[client].queue} | {
        label for label, (whose, _) in run.publications.items() if whose == client
    }
    live -= {label for label, fate in run.state.accounts[client].fates if fate != "refused"}  # it may have come again
    if live <= shown:
        return [], False
    with run.store.aside():
        hidden = _page_by_page(run, client, listed, set(shown))
        if live <= shown | {seen.label for seen in hidden}:
            return hidden, False
        _save_one(run, client)
        known = {*shown, *(seen.label for seen in hidden)}
        more = _page_by_page(run, client, _whole_page(run, client), known)
        return [*hidden, *more], bool(more)


def _page_by_page(run: Run, client: int, page: Fetched, known: set[int | None]) -> list[ObservedMessage]:
    """What ``page`` shows that is not known, and the pages that come when it is acknowledged."""
    found: list[ObservedMessage] = []
    is_first = True
    while page.messages:
        fresh = [one for one in run.seen_in(client, page) if one.label is not None and one.label not in known]
        if not fresh and not is_first:
            break
        is_first = False
        found += fresh
        known |= {one.label for one in fresh}
        for message in page.messages if "acknowledge" in run.store.operations else ():
            _answer_one(run, client, message)
        page = _whole_page(run, client)
    return found


def _whole_page(run: Run, client: int) -> Fetched:
    found = run.store.perform("fetch", run.clients[client], {**_epoch(run, client), "count": EVERYTHING, "after": 0})
    return found if isinstance(found, Fetched) else Fetched()


def _answer_one(run: Run, client: int, message: FetchedMessage) -> None:
    fields = {**_epoch(run, client), "packet_id": message.packet_id or 0, "sequence": message.sequence or 0}
    for operation in ("release", "acknowledge"):
        if operation in run.store.operations and (operation == "acknowledge" or message.kind == "PUBLISH"):
            run.store.perform(operation, run.clients[client], fields)


def _save_one(run: Run, client: int) -> None:
    fields: dict[str, object] = {
        **_epoch(run, client),
        "limit": run.store.limit_max,
        "default_expiry_ms": run.store.default_expiry_ms,
        "producer": run.producers[0],
        "batch": run.state.batches[0].number + 1,
        "messages": (FURTHER,),
    }
    run.store.perform("save", run.clients[client], fields)


def _epoch(run: Run, client: int) -> dict[str, object]:
    return {"epoch": run.state.accounts[client].session.epoch}


# -- from a store's words to the judge's
# -----------------------------------------------------------------------------------


def replaced(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    """``items`` with ``item`` at place ``at``."""
    return (*items[:at], item, *items[at + 1 :])


def outgoing(publication: Publication, now_ms: int) -> Outgoing:
    """A publication as a store takes it."""
    return Outgoing(publication.payload, publication.topic, publication.qos, publication.interval_ms, now_ms)


def incoming(publication: Publication, default_expiry_ms: int) -> Message:
    """A publication as the judge sees it."""
    life = lifetime(publication.interval_ms, default_expiry_ms)
    return Message(publication.label, life, publication.qos, publication.interval_ms is not None)


def assigned_to(result: Saved, messages: Sequence[Publication]) -> list[tuple[int, int | None, int | None]]:
    """(label, packet identifier, sequence) for each message of which the reply to its save tells.

    A reply that numbers the batch by one of its ends says nothing certain when a message of it may not have been kept.
    """
    if len(result.assigned) != len(messages) or not all(map(is_certain, messages)):
        return []
    return [
        (message.label, one.packet_id, one.sequence) for message, one in zip(messages, result.assigned, strict=True)
    ]


def identify(
    messages: Sequence[FetchedMessage],
    account: Account,
    told: Mapping[int, int],
    client: int,
    publications: Mapping[int, tuple[int, Publication]],
    by_payload: Mapping[bytes, Sequence[int]],
    now_ms: int,
) -> list[ObservedMessage]:
    """Which message of the run each fetched one is.

    By content; among equal contents by packet identifier (``told`` are those that the last save assigned), then from
    the newest back, for trimming takes the oldest. A PUBREL may have lost its payload: its identifier tells, and its
    token, where two have the same.
    """
    live = {entry.label: entry for entry in account.queue}
    by_id = {entry.packet_id: entry.label for entry in account.queue}
    used: set[int] = set()
    found: list[ObservedMessage] = []
    for message in reversed(messages):
        label = None
        if message.kind == "PUBREL" and not message.payload:
            with_token = [one.label for one in account.queue if one.token is not None and one.token == message.sequence]
            label = with_token[0] if with_token else by_id.get(message.packet_id or 0)
        if label is None:
            label = next(_candidates(message, live, account, told, client, used, publications, by_payload), None)
        if label is not None:
            used.add(label)
        altered = "" if label is None else alteration(message, publications[label][1])
        kind: Kind = "PUBREL" if message.kind == "PUBREL" else "PUBLISH"
        found.append(
            ObservedMessage(label, message.packet_id, kind, remaining_ms(message, now_ms), altered, message.sequence)
        )
    found.reverse()
    return found


def _candidates(
    message: FetchedMessage,
    live: Mapping[int, Entry],
    account: Account,
    told: Mapping[int, int],
    client: int,
    used: set[int],
    publications: Mapping[int, tuple[int, Publication]],
    by_payload: Mapping[bytes, Sequence[int]],
) -> Iterator[int]:
    """Labels with this content, the likeliest first."""
    labels = by_payload.get(message.payload or b"", ())
    if len(labels) > 1:
        fates = dict(account.fates)

        def unlikeliness(label: int) -> tuple[bool, bool, int, int]:
            if label in live:
                entry = live[label]
                is_it = entry.packet_id == message.packet_id and entry.token in (None, message.sequence)
                rank = 0 if is_it else 3
            else:
                rank = 4 if label in fates else 1 + (not is_certain(publications[label][1]))
                rank = 0 if told.get(label) == message.packet_id else rank
            return label in used, publications[label][0] != client, rank, -label

        labels = sorted(labels, key=unlikeliness)
    yield from labels


def is_certain(publication: Publication) -> bool:
    """Whether a store must keep this message, for a while at least."""
    return lifetime(publication.interval_ms, FOREVER_MS).shortest_ms > 0


def alteration(message: FetchedMessage, publication: Publication) -> str:
    """What the store returns otherwise than it was saved; nothing when all is well or the store does not tell."""
    if message.kind == "PUBREL":
        return ""
    if message.topic is not None and message.topic != publication.topic:
        return "topic"
    if message.qos is not None and message.qos != publication.qos:
        return "QoS"
    return ""


def remaining_ms(message: FetchedMessage, now_ms: int) -> float | None:
    """The interval that a fetched message has left, told as an interval or as a deadline."""
    if message.remaining_ms is not None:
        return message.remaining_ms
    return None if message.deadline_ms is None else message.deadline_ms - now_ms
