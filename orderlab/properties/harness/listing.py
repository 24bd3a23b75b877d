"""From a store's words to the judge's: which message of the run is which, and under what it was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from orderlab.model.contracts.session.refinement import Account, Seen
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry, Kind, Message, lifetime
from orderlab.model.contracts.trace import Publication
from orderlab.sim.stores.binding.results import FetchedMessage, Saved
from orderlab.sim.stores.binding.results import Message as Outgoing

T = TypeVar("T")


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
) -> list[Seen]:
    """Which message of the run each fetched one is.

    By content; among equal contents by packet identifier (``told`` are those that the last save assigned), then from
    the newest back, for trimming takes the oldest. A PUBREL may have lost its payload: its identifier alone tells.
    """
    live = {entry.label: entry for entry in account.queue}
    by_id = {entry.packet_id: entry.label for entry in account.queue}
    used: set[int] = set()
    found: list[Seen] = []
    for message in reversed(messages):
        label = None
        if message.kind == "PUBREL" and not message.payload:
            label = by_id.get(message.packet_id or 0)
        if label is None:
            label = next(_candidates(message, live, account, told, client, used, publications, by_payload), None)
        if label is not None:
            used.add(label)
        altered = "" if label is None else alteration(message, publications[label][1])
        kind: Kind = "PUBREL" if message.kind == "PUBREL" else "PUBLISH"
        found.append(Seen(label, message.packet_id, kind, remaining_ms(message, now_ms), altered, message.sequence))
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
