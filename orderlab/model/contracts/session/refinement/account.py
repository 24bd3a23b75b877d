"""What the judge keeps and what it is shown: the account of one client, replies, listings, discrepancies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from orderlab.model.contracts.session.spec import MODULUS, Entry, Kind, Session

Fate = Literal["acknowledged", "expired", "trimmed", "cleared", "refused"]


class Store(NamedTuple):
    """What the judge must know of the kind of store before it: its terms, not its mechanism."""

    modulus: int = MODULUS
    has_tokens: bool = True
    """Acknowledge and release carry the token that came with the message, beside the packet identifier."""
    keeps_sent: bool = False
    """A message whose delivery has begun stays past its deadline (MQTT allows either)."""
    has_pages: bool = True
    """Fetch can go on behind the last message of the previous page."""
    has_counts: bool = True
    """Fetch takes a page size."""
    tells_each: bool = False
    """The reply to a save tells of each of its messages that is kept."""
    tells_unkept: bool = True
    """It also has a row for each that is not."""
    tells_ids: bool = False
    """It tells the packet identifier of each."""
    answers_again: bool = False
    """A save that comes again is promised the reply that was lost."""
    tells_presence: bool = False
    """The reply to an open tells whether a session waited (3.2.2.1.1)."""
    closed_word: str | None = None
    """The word that a record of a session that is gone is promised; None: none is."""
    older_word: str | None = None
    """The word that a batch older than its producer's last is promised."""
    tells_found: frozenset[str] = frozenset()
    """Operations whose reply is promised to be 1 exactly when what they are for was there, live."""
    tells_connects: bool = False
    """Open is given the number of the CONNECT and has a word to refuse one that comes too late."""
    checks_limit: bool = False
    """Callers may give any limit: a save with one outside 1..modulus is promised to be declined."""
    tells_ends: bool = False
    """Clear is given the number of the session's CONNECT, and can say that it ended none."""


class Seen(NamedTuple):
    """One message as a fetch returned it."""

    label: int | None
    """Which message of the run it is; None when no message of the run has this content."""
    packet_id: int | None = None
    kind: Kind = "PUBLISH"
    remaining_ms: float | None = None
    altered: str = ""
    """What of it is not as it was saved (topic, QoS), or empty."""
    token: int | None = None


Told = tuple[int | None, int | None]
"""Packet identifier and token of one message; (None, None) of one that was not kept."""


class Reply(NamedTuple):
    """What the caller was told."""

    status: Literal["done", "refused", "error"] = "done"
    text: str = ""
    assigned: tuple[tuple[int, int | None, int | None], ...] = ()
    """(label, packet identifier, token), as far as the reply to a save tells."""
    removed: int | None = None
    """Messages removed, if the reply to an acknowledgement tells; released, if that to a release does; sessions ended."""
    told_count: int | None = None
    """How many messages the reply to a save says that were saved, or that are now held; None: it does not say."""
    told: tuple[Told, ...] | None = None
    """What the reply to a save tells of its messages, one after the other; None: it tells nothing."""


class Discrepancy(NamedTuple):
    """One law broken by one step."""

    law: str
    text: str
    diverges: bool = True
    """Whether the store has left the abstract session for good, so that nothing after this step can be judged."""


class Account(NamedTuple):
    """The abstract session of one client, and what the judge remembers to tell one wrong from another."""

    session: Session = Session()
    last_ids: frozenset[int] = frozenset((0,))
    """Where the identifier counter can be. More than one when a message was dead on arrival or trimmed at once: it may
    have used one."""
    passed_ids: frozenset[int] = frozenset()
    """Identifiers of messages that expired since the last whole fetch: a store may not know yet that they are free."""
    last_token: int = 0
    """The highest token that was given out."""
    fates: tuple[tuple[int, Fate], ...] = ()
    """What became of every message that is not live, by label."""
    expired_as_pubrel: frozenset[int] = frozenset()
    """Messages that expired after their PUBREC: a store may have dropped their content then, which was no clean-up."""
    slack_ms: int = 0
    """By how much the clock of the store may run ahead of the judge's: 0 in virtual time."""

    @property
    def queue(self) -> tuple[Entry, ...]:
        return self.session.queue

    def fate(self, label: int) -> Fate | None:
        """What became of a message, None if it is live or was never saved."""
        return dict(self.fates).get(label)

    def with_queue(self, queue: tuple[Entry, ...], fate: Fate) -> Account:
        """The account after everything that is not in ``queue`` met ``fate``."""
        labels = {entry.label for entry in queue}
        gone = {entry.label: fate for entry in self.queue if entry.label not in labels}
        fates = self.fates if not gone else tuple(sorted({**dict(self.fates), **gone}.items()))
        released = {entry.label for entry in self.queue if entry.label in gone and entry.kind == "PUBREL"}
        bare = self.expired_as_pubrel | released if fate == "expired" and released else self.expired_as_pubrel
        return self._replace(session=self.session._replace(queue=queue), fates=fates, expired_as_pubrel=bare)

    def with_fates(self, labels: list[int], fate: Fate) -> Account:
        """The account with ``fate`` written down for messages that never were in the queue."""
        if not labels:
            return self
        return self._replace(fates=tuple(sorted({**dict(self.fates), **dict.fromkeys(labels, fate)}.items())))


PROBE = 1_000_000
"""Labels from here on are of messages that a check of its own has sent after the others."""


def name_of(label: int) -> str:
    """A message in a report: ``m3``."""
    return f"m{label}" if label < PROBE else "a further message"


def names_of(labels: list[int]) -> str:
    """Messages in a report: ``m1, m3``."""
    told = [name_of(label) for label in labels]
    if len(told) > 8:
        told[5:] = [f"and {len(labels) - 5:,} more"]
    return ", ".join(told) if told else "nothing"


class Judgement(NamedTuple):
    """The account after a step, and the laws that the step broke."""

    account: Account
    discrepancies: list[Discrepancy]

    @property
    def diverges(self) -> bool:
        """Whether nothing after this step can be judged."""
        return any(one.diverges for one in self.discrepancies)


def labels_of(listing: Sequence[Seen]) -> list[int | None]:
    return [seen.label for seen in listing]
