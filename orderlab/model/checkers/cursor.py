"""`cursor-safe`, seen from outside: nobody is passed over by a reader that follows a marker.

The reader of a topic that was handed most tells its order. Another reader that was handed a message, but never one that comes before it
there and was published after the reader subscribed, had moved its cursor on before that one became visible.

Complexity: O(rows) time; memory grows with the messages. Assumes that all readers of a topic follow one order, as those of a feed do and those of
MQTT with several publishers do not, so it is judged when it is asked for. It can miss what no reader was handed (`at-least-once` has that),
so let one of them list all from the start at the end. What was expired or trimmed is not missed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from orderlab.model.checkers.findings import VACUOUS, Finding
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.verdict import Outcome, Verdict

LAW = "cursor-safe"
Message = tuple[int, int, int, int]


class _Topic:
    """What happened on one topic; instants are the numbers of rows."""

    def __init__(self) -> None:
        self.published: dict[Message, int] = {}
        self.gone: set[Message] = set()
        self.subscribed: dict[int, int] = {}
        self.handed: dict[int, dict[Message, int]] = {}
        """Per reader the event of each first delivery, in order."""

    def order(self) -> list[Message]:
        """The messages as the reader had them that was handed most."""
        return max((list(handed) for handed in self.handed.values()), key=len, default=[])

    def passed_over(self, order: list[Message], reader: int) -> tuple[int, list[tuple[Message, Message]]]:
        """How many messages lie before the cursor, and which of them the reader was never handed: each with the next that it was."""
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


def check_cursors(batches: Iterable[EventBatch], names: Names) -> Verdict:
    """The verdict on `cursor-safe`."""
    started, topics, rows = time.perf_counter(), dict[int, _Topic](), 0
    for batch in batches:
        for row, kind, publisher, topic, qos, sequence, subscriber, event in zip(
            range(rows, rows + len(batch)), batch.kind.tolist(), batch.publisher.tolist(), batch.topic.tolist(), batch.qos.tolist(),
            batch.sequence.tolist(), batch.subscriber.tolist(), batch.event_id.tolist(), strict=True,
        ):  # fmt: skip
            if topic < 0:
                continue
            at = topics.get(topic) or topics.setdefault(topic, _Topic())
            message = (publisher, topic, qos, sequence)
            if kind == EventKind.PUBLISH:
                at.published.setdefault(message, row)
            elif kind == EventKind.DELIVER:
                at.handed.setdefault(subscriber, {}).setdefault(message, event)
            elif kind == EventKind.SUBSCRIBE:
                at.subscribed.setdefault(subscriber, row)
            elif kind in (EventKind.EXPIRE, EventKind.TRIM):
                at.gone.add(message)
        rows += len(batch)
    return _judged(topics, names, rows, started)


def _judged(topics: dict[int, _Topic], names: Names, rows: int, started: float) -> Verdict:
    met, found = 0, list[tuple[_Topic, int, Message, Message]]()
    for each in topics.values():
        order = each.order()
        for reader in each.handed:
            count, missed = each.passed_over(order, reader)
            met += count
            found += [(each, reader, *pair) for pair in missed]
    work: dict[str, Any] = {"antecedents": met, "violations": len(found), "rows": rows, "seconds": round(time.perf_counter() - started, 6)}
    if found:
        each, reader, missed_one, later = min(found, key=lambda one: one[0].published.get(one[2], -1))
        return Verdict(LAW, Outcome.VIOLATED, _finding(each, reader, missed_one, later, names), work)
    return Verdict(LAW, Outcome.HOLDS if met else Outcome.UNKNOWN, None, work, () if met else (VACUOUS,))


def _finding(topic: _Topic, reader: int, missed: Message, later: Message, names: Names) -> Finding:
    """The message that a reader was never handed, and the event at which its cursor is beyond it."""
    publisher, code, qos, sequence = missed
    who = names.clients.label(later[0])
    return Finding(
        f"{sequence} was never handed over, though {later[3]} of {who}, which stands behind it, was",
        topic.handed[reader][later], names.clients.label(publisher), names.topics.label(code), qos, sequence,
        names.clients.label(reader), other_sequence=later[3] if later[0] == publisher else None,
    )  # fmt: skip
