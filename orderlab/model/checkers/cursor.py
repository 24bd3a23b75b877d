"""What readers see who follow a marker: `cursor-safe`, nobody is passed over, and `no-repeat`, nothing is handed over
twice.

`cursor-safe`. The reader of a topic that was handed most tells its order. Another reader that was handed a message, but
never one that comes before it there and was published after the reader subscribed, had moved its cursor on before that
one became visible.

Complexity: O(rows) time; memory grows with the messages. Assumes that all readers of a topic follow one order, as those
of a feed do and those of MQTT with several publishers do not, so it is judged when it is asked for. It can miss what no
reader was handed (`at-least-once` has that), so let one of them list all from the start at the end. What was expired or
trimmed is not missed.

`no-repeat`. A reader was handed a message again, though its publisher had not sent it again since (or as often), and
nothing befell that reader between the two: what was sent again may be there twice, and a reader that lost its
connection or its session, or was struck by a fault, may begin where it last kept its place. Rows that name it as
subscriber say so (`OF_READER`); what strikes others, or a node, does not excuse it. Both are counted, as ``excused``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from orderlab.model.checkers.findings import VACUOUS, Finding
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.verdict import Outcome, Verdict

LAW, REPEAT = "cursor-safe", "no-repeat"
LAWS = (LAW, REPEAT)
OF_READER = (
    EventKind.CONNECT,
    EventKind.DISCONNECT,
    EventKind.CLEAR,
    EventKind.SUBSCRIBE,
    EventKind.UNSUBSCRIBE,
    EventKind.FAULT,
    EventKind.HEAL,
)
"""After these rows the subscriber that they name may go on from an earlier place."""
Message = tuple[int, int, int, int]


class _Topic:
    """What happened on one topic; instants are the numbers of rows."""

    def __init__(self) -> None:
        self.published: dict[Message, int] = {}
        self.gone: set[Message] = set()
        self.subscribed: dict[int, int] = {}
        self.handed: dict[int, dict[Message, int]] = {}
        """Per reader the event of each first delivery, in order."""
        self.sent: dict[Message, int] = {}
        """How often, where it is more than once."""
        self.again: dict[tuple[int, Message], int] = {}
        """How often a reader was handed a message, where it is more than once."""
        self.during: dict[tuple[int, Message], int] = {}
        """How many rows of the reader's own there were at the last delivery, where there were any."""
        self.repeats: list[tuple[int, int, Message]] = []
        """(event, reader, message)."""
        self.excused = 0

    def hand(self, reader: int, message: Message, event: int, befallen: int) -> None:
        """A delivery, after so many rows of the reader's own."""
        handed = self.handed.setdefault(reader, {})
        key = (reader, message)
        if message in handed:
            times = self.again[key] = self.again.get(key, 1) + 1
            if self.sent.get(message, 1) >= times or befallen > self.during.get(key, 0):
                self.excused += 1
            else:
                self.repeats.append((event, reader, message))
        else:
            handed[message] = event
        if befallen:
            self.during[key] = befallen

    def order(self) -> list[Message]:
        """The messages as the reader had them that was handed most."""
        return max((list(handed) for handed in self.handed.values()), key=len, default=[])

    def passed_over(self, order: list[Message], reader: int) -> tuple[int, list[tuple[Message, Message]]]:
        """How many messages lie before the cursor, and which of them the reader was never handed: each with the next
        that it was."""
        handed = self.handed[reader]
        places = [place for place, message in enumerate(order) if message in handed]
        if not places:
            return 0, []
        first = self.subscribed.get(reader)
        begin = 0 if first is not None else places[0]
        before = {
            message for message in order[begin : places[-1]]
            if message not in self.gone and (first is None or self.published.get(message, -1) >= first)
        }  # fmt: skip
        missed, later = [], order[places[-1]]
        for message in reversed(order[begin : places[-1]]):
            if message in handed:
                later = message
            elif message in before:
                missed.append((message, later))
        return len(before), missed


def check_cursors(batches: Iterable[EventBatch], names: Names) -> list[Verdict]:
    """The verdicts on both laws."""
    started, topics, rows, befallen = time.perf_counter(), dict[int, _Topic](), 0, dict[int, int]()
    for batch in batches:
        for row, kind, publisher, topic, qos, sequence, subscriber, event in zip(
            range(rows, rows + len(batch)),
            batch.kind.tolist(),
            batch.publisher.tolist(),
            batch.topic.tolist(),
            batch.qos.tolist(),
            batch.sequence.tolist(),
            batch.subscriber.tolist(),
            batch.event_id.tolist(),
            strict=True,
        ):
            if kind in OF_READER and subscriber >= 0:
                befallen[subscriber] = befallen.get(subscriber, 0) + 1
            if topic < 0:
                continue
            at = topics.get(topic) or topics.setdefault(topic, _Topic())
            message = (publisher, topic, qos, sequence)
            if kind == EventKind.PUBLISH:
                if at.published.setdefault(message, row) != row:
                    at.sent[message] = at.sent.get(message, 1) + 1
            elif kind == EventKind.DELIVER:
                at.hand(subscriber, message, event, befallen.get(subscriber, 0))
            elif kind == EventKind.SUBSCRIBE:
                at.subscribed.setdefault(subscriber, row)
            elif kind in (EventKind.EXPIRE, EventKind.TRIM):
                at.gone.add(message)
        rows += len(batch)
    return [_judged(topics, names, rows, started), _repeated(topics, names, rows, started)]


def _judged(topics: dict[int, _Topic], names: Names, rows: int, started: float) -> Verdict:
    met, found = 0, list[tuple[_Topic, int, Message, Message]]()
    for each in topics.values():
        order = each.order()
        for reader in each.handed:
            count, missed = each.passed_over(order, reader)
            met += count
            found += [(each, reader, *pair) for pair in missed]
    work: dict[str, Any] = {
        "antecedents": met,
        "violations": len(found),
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 6),
    }
    if found:
        each, reader, missed_one, later = min(found, key=lambda one: one[0].published.get(one[2], -1))
        return Verdict(LAW, Outcome.VIOLATED, _finding(each, reader, missed_one, later, names), work)
    return Verdict(LAW, Outcome.HOLDS if met else Outcome.UNKNOWN, None, work, () if met else (VACUOUS,))


def _repeated(topics: dict[int, _Topic], names: Names, rows: int, started: float) -> Verdict:
    found = [one for each in topics.values() for one in each.repeats]
    met = sum(len(handed) for each in topics.values() for handed in each.handed.values())
    excused = sum(each.excused for each in topics.values())
    work: dict[str, Any] = {
        "antecedents": met,
        "violations": len(found),
        "excused": excused,
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 6),
    }
    if not found:
        return Verdict(REPEAT, Outcome.HOLDS if met else Outcome.UNKNOWN, None, work, () if met else (VACUOUS,))
    event, reader, (publisher, code, qos, sequence) = min(found)
    why = f"{sequence} was handed over again, though it was not sent again, and nothing befell the reader in between"
    shown = Finding(
        why, event, names.clients.label(publisher), names.topics.label(code), qos, sequence, names.clients.label(reader)
    )
    return Verdict(REPEAT, Outcome.VIOLATED, shown, work)


def _finding(topic: _Topic, reader: int, missed: Message, later: Message, names: Names) -> Finding:
    """The message that a reader was never handed, and the event at which its cursor is beyond it."""
    publisher, code, qos, sequence = missed
    who = names.clients.label(later[0])
    return Finding(
        f"{sequence} was never handed over, though {later[3]} of {who}, which stands behind it, was",
        topic.handed[reader][later], names.clients.label(publisher), names.topics.label(code), qos, sequence,
        names.clients.label(reader), other_sequence=later[3] if later[0] == publisher else None,
    )  # fmt: skip
