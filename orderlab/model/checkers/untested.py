"""Why a history does not test a law: rows or columns that the law needs are not there, or what it speaks of
never happened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.history.events import COLUMNS, EventBatch, EventKind
from orderlab.model.verdict import Verdict

_D, _P, _S, _C = EventKind.DELIVER, EventKind.PUBLISH, EventKind.SUBSCRIBE, EventKind.CONNECT
_ACKNOWLEDGED, _PUBREC, _PUBREL, _DONE = (
    EventKind.PUBLISH_ACKNOWLEDGED,
    EventKind.RECEIVE,
    EventKind.RELEASE,
    EventKind.ACKNOWLEDGE,
)


class Need(NamedTuple):
    """Rows of some of the kinds, with a value in the column if one is named."""

    kinds: tuple[EventKind, ...]
    column: str = ""

    def __str__(self) -> str:
        kinds = " or ".join(kind.label for kind in self.kinds)
        return f'{kinds} rows with "{self.column}"' if self.column else f"{kinds} rows"


class Antecedent(NamedTuple):
    """What tests a law: the rows that it takes, and what has to happen in them."""

    needs: tuple[Need, ...]
    happens: str


ANTECEDENTS = {
    "fifo": Antecedent(
        (Need((_D,)),), "a second message of one publisher, topic and QoS is delivered to one subscriber"
    ),
    "at-least-once": Antecedent(
        (Need((_ACKNOWLEDGED,)),),
        "a message with QoS 1 or 2 is acknowledged to its publisher while somebody has a subscription to its topic, "
        "is not pending at the end and not past its deadline",
    ),
    "exactly-once": Antecedent((Need((_D,)),), "a message with QoS 2 is delivered with QoS 2"),
    "no-phantom": Antecedent((Need((_P,)), Need((_D,))), "a message is delivered"),
    "agreement": Antecedent((Need((_D,)),), "a message with QoS 1 or 2 reaches one of several subscribers"),
    "drain": Antecedent(
        (Need((_P,)), Need((_D, _ACKNOWLEDGED))),
        "a message waits when the faults have healed and its subscriber has connected",
    ),
    "retransmission": Antecedent(
        (Need((_D,), "packet_id"), Need((_C,))),
        "a subscriber connects again while a message with QoS 1 or 2 is unacknowledged",
    ),
    "expiry": Antecedent(
        (Need((_P,), "expiry_interval_us"),), "a message with an expiry interval is delivered or expires"
    ),
    "packet-id": Antecedent(
        (Need((_D,), "packet_id"),), "a message with QoS 1 or 2 is sent while another one is unacknowledged"
    ),
    "receive-maximum": Antecedent(
        (Need((_D,), "packet_id"), Need((_C,), "receive_maximum")),
        "a message with QoS 1 or 2 is sent on a connection with a Receive Maximum (or --receive-maximum)",
    ),
    "handshake": Antecedent(
        (Need((_D,), "packet_id"), Need((_PUBREC, _PUBREL, _DONE), "packet_id")),
        "a PUBREC, PUBREL or PUBCOMP answers a message with QoS 2",
    ),
    "subscribed": Antecedent((Need((_S,)), Need((_D,))), "a message is delivered"),
    "granted-qos": Antecedent(
        (Need((_S,), "qos"), Need((_D,))), "a message with QoS 1 or 2 is delivered for a subscription"
    ),
    "will": Antecedent((Need((_C,), "will_delay_us"),), "a connection with a Will Message ends"),
    "causal": Antecedent(
        (Need((_P,)), Need((_D,))), "a client publishes after it has received, and another one receives both"
    ),
    "cursor-safe": Antecedent((Need((_D,)),), "two readers follow one topic"),
    "no-repeat": Antecedent((Need((_D,)),), "a reader is handed a message"),
    "linearizability": Antecedent((), "an operation completes with a result"),
    "no-lost-element": Antecedent((), "an element is enqueued, and the queue found empty later"),
    "no-unexpected-element": Antecedent((), "an element is dequeued"),
    "no-duplicate-element": Antecedent((), "an element is dequeued"),
    "consistent-offsets": Antecedent((), "a send or a poll tells an offset"),
    "no-duplicate": Antecedent((), "a send or a poll tells an offset"),
    "no-lost-write": Antecedent((), "a send is acknowledged with an offset at or below one that was polled"),
    "no-G1a": Antecedent((), "a poll returns what was sent"),
    "no-precommitted-read": Antecedent((), "a transaction that sends polls a value"),
    "no-int-poll-skip": Antecedent((), "an operation polls two offsets of a key that go up"),
    "no-int-nonmonotonic-poll": Antecedent((), "an operation polls two offsets of a key"),
    "no-poll-skip": Antecedent((), "a process that keeps its assignment polls a key in two operations"),
    "no-nonmonotonic-poll": Antecedent((), "a process that keeps its assignment polls a key in two operations"),
    "no-int-send-skip": Antecedent((), "an operation sends twice to a key, at offsets that are known"),
    "no-int-nonmonotonic-send": Antecedent((), "an operation sends twice to a key, at offsets that are known"),
    "no-nonmonotonic-send": Antecedent((), "a process sends to a key in two operations, at offsets that are known"),
    "no-wr-cycle": Antecedent((), "an operation polls what another one sent"),
    "no-G0": Antecedent((), "two operations write to a key, at offsets that are known"),
    "no-G1c": Antecedent((), "an operation polls what another one sent, or writes after it"),
}
"""Of each law that a history is judged by. ``no-phantom`` of a log of offsets is met by whatever is polled."""
_COLUMNS = tuple(dict.fromkeys(need.column for one in ANTECEDENTS.values() for need in one.needs if need.column))


@dataclass
class RowsSeen:
    """Which kinds of rows a history has, and which of their columns are filled. Parts of a history join with ``|``."""

    kinds: set[int] = field(default_factory=set)
    filled: set[tuple[int, str]] = field(default_factory=set)

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        here = np.flatnonzero(np.bincount(batch.kind, minlength=len(EventKind))).tolist()
        self.kinds.update(here)
        for column in _COLUMNS:
            missing = [kind for kind in here if (kind, column) not in self.filled]
            if not missing:
                continue
            values = getattr(batch, column)
            if int(values.max(initial=-1)) >= 0:
                found = np.unique(batch.kind[values >= 0]).tolist()
                self.filled.update((kind, column) for kind in found)

    def __or__(self, other: RowsSeen) -> RowsSeen:
        return RowsSeen(self.kinds | other.kinds, self.filled | other.filled)

    def has(self, need: Need) -> bool:
        """Whether there are such rows."""
        return any((kind, need.column) in self.filled if need.column else kind in self.kinds for kind in need.kinds)


def with_reasons(verdicts: Iterable[Verdict], seen: RowsSeen | None = None) -> list[Verdict]:
    """The verdicts, where a law was not tested with the reason. ``seen``: of histories with rows; None: of
    logs of operations."""
    return [
        replace(one, not_covered=tuple(_because(one, seen) if note == VACUOUS else note for note in one.not_covered))
        for one in verdicts
    ]


def _because(verdict: Verdict, seen: RowsSeen | None) -> str:
    antecedent = ANTECEDENTS[verdict.law]
    lacking = [] if seen is None else [need for need in antecedent.needs if not seen.has(need)]
    if lacking:
        return f"{VACUOUS}: it has no {', and no '.join(map(str, lacking))}"
    happens = "a poll returns a value" if verdict.law == "no-phantom" and seen is None else antecedent.happens
    return f"{VACUOUS}: its antecedent was met 0 times ({happens})"


assert set(_COLUMNS) <= set(COLUMNS)
