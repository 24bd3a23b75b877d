"""What a checker found: partial results that merge, and the witness with the events that show it."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from orderlab.model.checkers.delivery.missing import matches, unshared
from orderlab.model.history.decoding import Extent
from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable, describe_event
from orderlab.model.verdict import Outcome, Verdict

Label = str | int | None


class OutOfBudget(Exception):
    """The seconds that a checker may take are over."""


class TimeBudget:
    """Seconds from now on, None for as many as it takes; a look at the clock costs, so one check in many takes it."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._checks = 0

    def is_over(self) -> bool:
        """Whether the seconds are over."""
        return self._ends is not None and time.monotonic() >= self._ends

    def check(self, weight: int = 1) -> None:
        """Raises OutOfBudget once they are. `weight`: after how much work, in steps of about a microsecond."""
        self._checks += weight
        if self._checks >= 1024 and self._ends is not None:
            self._checks = 0
            if self.is_over():
                raise OutOfBudget


EVENTS_SHOWN = 12
FAULTS_SHOWN = 3
VACUOUS = "vacuous: nothing in this history tests the law"


class Shows(Enum):
    """Which rows of the subscriber show a finding, beside those of its message and its session."""

    NONE = "none"
    SUBSCRIPTIONS = "subscriptions to the message's topic"
    OWED = "subscriptions to the message's topic, and the first and last deliveries of its logical FIFO"
    ANSWERS = "PUBREC, PUBREL and PUBCOMP of the packet identifier"


@dataclass(frozen=True)
class Finding:
    """One violation: the message by its logical FIFO and sequence, the subscriber, and what is wrong.

    `event_id` is the event at which the law breaks; None if it breaks by something that never happened. `events` are
    the rows about the message (and `other_sequence`), and the faults that may be to blame, filled in by `tell`.
    `where`: what became of the message, as a system that can be asked tells it (`orderlab.sim.systems.blame`).
    """

    why: str
    event_id: int | None = None
    publisher: Label = None
    topic: Label = None
    qos: int | None = None
    sequence: int | None = None
    subscriber: Label = None
    other_event_id: int | None = None
    other_sequence: int | None = None
    events: tuple[Mapping[str, Any], ...] = ()
    where: Mapping[str, Any] | None = None
    packet_id: int | None = None
    other_subscriber: Label = None
    """Another one whom the message reached, where that is what the law speaks of."""
    shows: Shows = Shows.NONE
    since_event_id: int | None = None
    """Of ANSWERS, the PUBLISH that began the exchange: what the identifier was used for before says nothing of it."""

    def order(self) -> tuple[Any, ...]:
        """Findings in the order in which they are reported: by event, what never happened last, then by name."""
        return (
            self.event_id is None,
            self.event_id or 0,
            *(str(part) for part in (self.publisher, self.topic, self.qos, self.subscriber)),
            -1 if self.sequence is None else self.sequence,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        named = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("events", "shows", "since_event_id")
        }
        shown = {name: value for name, value in named.items() if value is not None}
        return shown | ({"events": [dict(event) for event in self.events]} if self.events else {})


@dataclass(frozen=True)
class Partial:
    """What one part of a history says about some laws: sums and first findings. Merging is associative and commutative.

    Parts must not share a logical FIFO (for checkers that follow whole sessions: a subscriber), and rows without a
    logical FIFO (subscribe, connect, clear, heal, ...) belong to every part.
    """

    antecedents: Mapping[str, int]
    violations: Mapping[str, int]
    findings: Mapping[str, Finding]
    counts: Mapping[str, int]

    def merge(self, other: Partial) -> Partial:
        """The result for both parts together."""
        findings = dict(self.findings)
        for law, finding in other.findings.items():
            mine = findings.get(law)
            findings[law] = finding if mine is None or finding.order() < mine.order() else mine
        return Partial(
            _summed(self.antecedents, other.antecedents),
            _summed(self.violations, other.violations),
            findings,
            _summed(self.counts, other.counts),
        )


def _summed(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Numbers of times add up; of instants (`latest_...`) the last one counts."""
    return {
        name: max(left.get(name, -1), right.get(name, -1))
        if name.startswith("latest_")
        else left.get(name, 0) + right.get(name, 0)
        for name in {**left, **right}
    }


@dataclass
class LawTally:
    """Collects a Partial while a pass runs."""

    antecedents: dict[str, int] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def meets(self, law: str, times: int = 1) -> None:
        """The law's antecedent was met."""
        self.antecedents[law] = self.antecedents.get(law, 0) + times

    def breaks(self, law: str, finding: Finding, times: int = 1) -> None:
        """The law was broken; the first finding is kept."""
        self.violations[law] = self.violations.get(law, 0) + times
        mine = self.findings.get(law)
        if mine is None or finding.order() < mine.order():
            self.findings[law] = finding

    def partial(self) -> Partial:
        """The result so far."""
        return Partial(dict(self.antecedents), dict(self.violations), dict(self.findings), dict(self.counts))


def verdict_of(partial: Partial, law: str, undecided: int, work: Mapping[str, float], notes: Iterable[str]) -> Verdict:
    """The verdict on one law. `undecided` counts what might still be a violation where the recording ends."""
    met, broken = partial.antecedents.get(law, 0), partial.violations.get(law, 0)
    work = {"antecedents": met, "violations": broken, **work}
    notes = tuple(notes)
    if broken:
        return Verdict(law, Outcome.VIOLATED, partial.findings[law], work, notes)
    if met == 0:
        return Verdict(law, Outcome.UNKNOWN, None, work, (VACUOUS, *notes))
    return Verdict(law, Outcome.UNKNOWN if undecided else Outcome.HOLDS, None, work, notes)


_MESSAGE_KINDS = (EventKind.PUBLISH, EventKind.PUBLISH_ACKNOWLEDGED)
_SESSION_KINDS = (EventKind.CLEAR, EventKind.CONNECT, EventKind.DISCONNECT)
_SUBSCRIPTION_KINDS = (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE)
_OF_SESSION = frozenset(kind.label for kind in (*_SESSION_KINDS, *_SUBSCRIPTION_KINDS))
_CONNECTIONS = frozenset(kind.label for kind in (EventKind.CONNECT, EventKind.DISCONNECT))
_PUBLISHES = frozenset(kind.label for kind in _MESSAGE_KINDS)
_PUBLISH = EventKind.PUBLISH.label
_ANSWERS = (EventKind.RECEIVE, EventKind.RELEASE, EventKind.ACKNOWLEDGE)


class Parts(Protocol):
    """Batches of a history that can be read one by one."""

    @property
    def extents(self) -> Sequence[Extent]:
        """What lies in each."""

    def part(self, number: int) -> EventBatch:
        """The part with that number."""


def tell(
    verdicts: Iterable[Verdict], batches: Iterable[EventBatch], names: Names, parts: Parts | None = None
) -> list[Verdict]:
    """The verdicts, their findings completed with the rows that show them; one more pass over the history, or over
    those of its parts that may have some."""
    verdicts = list(verdicts)
    findings = {at: one.witness for at, one in enumerate(verdicts) if isinstance(one.witness, Finding)}
    if not findings:
        return verdicts
    rows = _RowsOf(findings, names)
    if parts is None:
        for batch in batches:
            rows.take(batch)
    else:
        rows.take_from(parts)
    for index, finding in findings.items():
        events = sorted(rows.events[index], key=_place)
        kept = _shortened(events, finding)
        if rows.published is not None and _lacks_publishes(finding, kept, rows.published):
            kept = (rows.published, *kept)
        shown = (*kept, *_struck(rows.faults, rows.healed, events, finding))
        verdicts[index] = replace(verdicts[index], witness=replace(finding, events=tuple(sorted(shown, key=_place))))
    return verdicts


class _RowsOf:
    """Gathers the rows that show findings."""

    def __init__(self, findings: Mapping[int, Finding], names: Names) -> None:
        self._findings, self._names = findings, names
        self.events: dict[int, list[Mapping[str, Any]]] = {index: [] for index in findings}
        self.faults: list[Mapping[str, Any]] = []
        self.healed: list[int] = []
        """Faults so far, and where in between all of them had healed."""
        self.published: Mapping[str, Any] | None = None

    def take(self, batch: EventBatch) -> None:
        """Look at the rows of the next batch."""
        names = self._names
        if self.published is None:
            self.published = next((describe_event(batch, row, names) for row in first_publish(batch)), None)
        for row in np.flatnonzero(are_of_faults(batch)).tolist():
            if batch.kind[row] == EventKind.FAULT:
                self.faults.append(describe_event(batch, row, names))
            else:
                self.healed.append(len(self.faults))
        for index, finding in self._findings.items():
            about = np.flatnonzero(is_about(finding, batch, names)).tolist()
            self.events[index] += [describe_event(batch, row, names) for row in about]

    def take_from(self, parts: Parts) -> None:
        """What may show a finding, in order; then the ends of logical FIFOs, from both sides."""
        extents = parts.extents
        publishes = [number for number, one in enumerate(extents) if one.has((EventKind.PUBLISH,))][:1]
        taken = {
            number
            for number, one in enumerate(extents)
            if number in publishes
            or one.has((EventKind.FAULT, EventKind.HEAL))
            or any(_may_show(finding, one) for finding in self._findings.values())
        }
        for number in sorted(taken):
            self.take(parts.part(number))
        for index, finding in self._findings.items():
            until = math.inf if finding.event_id is None else finding.event_id
            came = [at for at, one in enumerate(extents) if one.has((EventKind.DELIVER,)) and one.first_id <= until]
            for numbers in (came, came[::-1]) if finding.shows is Shows.OWED else ():
                for number in numbers:
                    if number not in taken:
                        taken.add(number)
                        self.take(parts.part(number))
                    if self._came(index, extents[number], until):
                        break

    def _came(self, index: int, extent: Extent, until: float) -> bool:
        """Whether a delivery of the finding's logical FIFO is known there."""
        who = self._findings[index].subscriber
        return any(
            extent.first_id <= event["event_id"] <= min(extent.last_id, until)
            and event["kind"] == EventKind.DELIVER.label
            and event["subscriber"] == who
            for event in self.events[index]
        )


def _may_show(finding: Finding, extent: Extent) -> bool:
    """Whether `is_about` may choose a row there, the ends of a logical FIFO left aside."""
    kinds: tuple[EventKind, ...] = _SESSION_KINDS
    if finding.shows is Shows.ANSWERS:
        kinds += _ANSWERS
    if finding.shows in (Shows.SUBSCRIPTIONS, Shows.OWED) or finding.other_subscriber is not None:
        kinds += _SUBSCRIPTION_KINDS
    numbers = () if finding.sequence is None else (finding.sequence, finding.other_sequence)
    return (
        extent.has(kinds)
        or any(number is not None and extent.lowest <= number <= extent.highest for number in numbers)
        or any(
            event is not None and extent.first_id <= event <= extent.last_id
            for event in (finding.event_id, finding.other_event_id)
        )
    )


def first_publish(batch: EventBatch) -> list[int]:
    """The first PUBLISH row, if there is one."""
    found: list[int] = np.flatnonzero(batch.kind == EventKind.PUBLISH)[:1].tolist()
    return found


def _lacks_publishes(finding: Finding, kept: Iterable[Mapping[str, Any]], published: Mapping[str, Any]) -> bool:
    """Whether nothing shows that publishes were recorded: that of a message none is told says something only then."""
    is_before = finding.event_id is None or published["event_id"] < finding.event_id
    return finding.sequence is not None and is_before and all(one["kind"] != _PUBLISH for one in kept)


def _struck(
    faults: Sequence[Mapping[str, Any]], healed: Sequence[int], events: Iterable[Mapping[str, Any]], finding: Finding
) -> Sequence[Mapping[str, Any]]:
    """The faults that may have to do with it: from the first publish of the message to the break, the first few; else
    the last one before, for what it has left may be found late. `healed`: how many had struck when none was open any
    more."""
    ids = [int(fault["event_id"]) for fault in faults]
    end = bisect_right(ids, math.inf if finding.event_id is None else finding.event_id)
    published = min((event["event_id"] for event in events if event["kind"] == EventKind.PUBLISH.label), default=0)
    begin = bisect_right(ids, published)
    if begin > 0 and begin not in healed:
        begin -= 1  # one was open still
    first = begin if begin < end else max(end - 1, 0)
    return faults[first : min(end, first + FAULTS_SHOWN)]


def are_of_faults(batch: EventBatch) -> Any:
    """A mask of the rows that tell when faults struck, and when all had healed."""
    return (batch.kind == EventKind.FAULT) | (batch.kind == EventKind.HEAL)


def is_about(finding: Finding, batch: EventBatch, names: Names) -> Any:
    """A mask of the rows that show a finding: about its message, and of its session. Most rows are looked at in one
    column only."""
    about = np.zeros(len(batch), np.bool_)
    for event in (finding.event_id, finding.other_event_id):
        place = len(batch) if event is None else int(np.searchsorted(batch.event_id, event))
        if place < len(batch) and batch.event_id[place] == event:
            about[place] = True
    mine = np.flatnonzero(batch.subscriber == _code(finding.subscriber, names.clients))
    kinds = batch.kind[mine]
    about[mine[np.isin(kinds, _SESSION_KINDS)]] = True
    if finding.sequence is not None:
        for number in (finding.sequence, finding.other_sequence):
            rows = (
                _of_fifo(finding, batch, names, np.flatnonzero(batch.sequence == number))
                if number is not None
                else mine[:0]
            )
            is_shown = (batch.subscriber[rows] == _code(finding.subscriber, names.clients)) | np.isin(
                batch.kind[rows], _MESSAGE_KINDS
            )
            about[rows[is_shown]] = True
    if finding.shows is Shows.ANSWERS:
        about[mine[np.isin(kinds, _ANSWERS) & (batch.packet_id[mine] == finding.packet_id)]] = True
    elif finding.shows in (Shows.SUBSCRIPTIONS, Shows.OWED):
        some = mine[np.isin(kinds, _SUBSCRIPTION_KINDS)]
        about[some[_filters_match(batch.topic[some], finding.topic, names)]] = True
    if finding.shows is Shows.OWED:
        came = _of_fifo(finding, batch, names, mine[kinds == EventKind.DELIVER])
        about[came[:1]] = about[came[-1:]] = True
    if finding.other_subscriber is not None:
        theirs = np.flatnonzero(batch.subscriber == _code(finding.other_subscriber, names.clients))
        came = _of_fifo(finding, batch, names, theirs[batch.sequence[theirs] == finding.sequence])
        some = theirs[np.isin(batch.kind[theirs], _SUBSCRIPTION_KINDS)]
        about[came] = True
        about[some[_filters_match(batch.topic[some], finding.topic, names)]] = True
    return about


def _of_fifo(finding: Finding, batch: EventBatch, names: Names, rows: Any) -> Any:
    """Of some rows those of the message's logical FIFO."""
    publisher, topic = _code(finding.publisher, names.clients), _code(finding.topic, names.topics)
    return rows[(batch.publisher[rows] == publisher) & (batch.topic[rows] == topic) & (batch.qos[rows] == finding.qos)]


def _filters_match(filters: Any, topic: Label, names: Names) -> Any:
    """A mask of the filters, by code, that match a topic."""
    labels = {code: unshared(names.topics.label(code)) for code in np.unique(filters).tolist()}
    return np.isin(
        filters, [code for code, label in labels.items() if label == topic or matches(str(label), str(topic))]
    )


def _code(label: Label, table: NameTable) -> int:
    if label is None:
        return -2
    return label if isinstance(label, int) else table.code_of.get(label, -2)


def _shortened(events: list[Mapping[str, Any]], finding: Finding) -> tuple[Mapping[str, Any], ...]:
    """At most EVENTS_SHOWN rows: those about the message first, of the session's the last ones before the break."""
    if finding.event_id is not None:
        until = finding.event_id
        if finding.shows is Shows.SUBSCRIPTIONS and finding.other_event_id is not None:
            # A SUBSCRIBE that comes later explains nothing, for what lies in between.
            until = max(until, finding.other_event_id)
        events = [
            event for event in events if event["event_id"] <= until or event["event_id"] == finding.other_event_id
        ]
    other = [] if finding.other_subscriber is None else _of_other(events, finding)
    events = [event for event in events if event not in other]
    session = [event for event in events if event["kind"] in _OF_SESSION]
    message = [event for event in events if event["kind"] not in _OF_SESSION]
    if finding.shows is Shows.ANSWERS:
        return _exchange(message, session, finding)
    if finding.shows is Shows.OWED:
        message, session = _owed(message, session, finding)
    message = message[:4] + message[4:][-(EVENTS_SHOWN - 8) :]
    kept = message + session[-(EVENTS_SHOWN - len(message)) :]
    return tuple(sorted((*kept, *other[:1], *(other[-1:] if len(other) > 1 else ())), key=_place))


def _of_other(events: list[Mapping[str, Any]], finding: Finding) -> list[Mapping[str, Any]]:
    """The rows of the other subscriber, up to the first delivery of the message."""
    theirs = [event for event in events if event.get("subscriber") == finding.other_subscriber]
    came = [at for at, event in enumerate(theirs) if event["kind"] == EventKind.DELIVER.label]
    return theirs[: came[0] + 1] if came else theirs


def _owed(
    message: list[Mapping[str, Any]], session: list[Mapping[str, Any]], finding: Finding
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Of a message that never came: its publish rows, the first and last delivery of its logical FIFO; of the session
    what it had subscribed to when the message was published (from the last CLEAR on), what ended that, and the last
    connect and disconnect."""
    mine = [event for event in message if event.get("sequence") in (finding.sequence, finding.other_sequence)]
    came = [event for event in message if event["kind"] == EventKind.DELIVER.label]
    begun = min((event["event_id"] for event in mine if event["kind"] == EventKind.PUBLISH.label), default=-1)
    changes = [event for event in session if event["kind"] not in _CONNECTIONS]
    cleared = max(
        (
            event["event_id"]
            for event in changes
            if event["kind"] == EventKind.CLEAR.label and event["event_id"] < begun
        ),
        default=-1,
    )
    before = [event for event in changes if cleared <= event["event_id"] < begun]
    after = [event for event in changes if event["event_id"] > begun]
    connections = [events[-1] for events in _by_kind([event for event in session if event["kind"] in _CONNECTIONS])]
    kept = {event["event_id"]: event for event in (*before[:1], *before[-3:], *after[:2], *connections)}
    shown = {event["event_id"]: event for event in (*(events[0] for events in _by_kind(mine)), *came[:1], *came[-1:])}
    return sorted(shown.values(), key=_place), sorted(kept.values(), key=_place)


def _place(event: Mapping[str, Any]) -> int:
    return int(event["event_id"])


def _exchange(
    message: list[Mapping[str, Any]], session: list[Mapping[str, Any]], finding: Finding
) -> tuple[Mapping[str, Any], ...]:
    """Of an exchange the rows that decide its stage: of each kind the first since its PUBLISH and the last before
    the break; and the session's last CLEAR, connect and disconnect."""
    since = finding.since_event_id if finding.since_event_id is not None else -1
    broken = (finding.event_id, finding.other_event_id)
    of_exchange = [
        event
        for event in message
        if (event["event_id"] >= since or event["kind"] in _PUBLISHES) and event["event_id"] != finding.event_id
    ]
    ends = {end["event_id"]: end for events in _by_kind(of_exchange) for end in (events[0], events[-1])}
    shown = [event for event in message if event["event_id"] in broken or event["event_id"] in ends]
    last = {events[-1]["event_id"] for events in _by_kind(session)}
    decisive = [event for event in session if event["event_id"] in last]
    others = [event for event in session if event["event_id"] not in last]
    room = max(0, EVENTS_SHOWN - len(shown) - len(decisive))
    return tuple(
        sorted(
            (*shown, *decisive, *others[len(others) - min(room, len(others)) :]),
            key=lambda event: int(event["event_id"]),
        )
    )


def _by_kind(events: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        found.setdefault(event["kind"], []).append(event)
    return found.values()
