"""What the judge keeps and what it is shown: the account of one client, replies, discrepancies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.spec import Entry, Kind, Session, lifetime
from orderlab.model.contracts.session.traces import Answer, Interleave, Publication, Save, Step
from orderlab.model.history.topics import LONGEST

Fate = Literal["acknowledged", "expired", "trimmed", "cleared", "refused"]


class ObservedMessage(NamedTuple):
    """One message as a fetch returned it."""

    label: int | None
    """Which message of the run it is; None when no message of the run has this content."""
    packet_id: int | None = None
    kind: Kind = "PUBLISH"
    remaining_ms: float | None = None
    altered: str = ""
    """What of it is not as it was saved (topic, QoS), or empty."""
    token: int | None = None


SaveReplyRow = tuple[int | None, int | None]
"""Packet identifier and token of one message; (None, None) of one that was not kept."""


class Reply(NamedTuple):
    """What the caller was told."""

    status: Literal["done", "refused", "error"] = "done"
    text: str = ""
    assigned: tuple[tuple[int, int | None, int | None], ...] = ()
    """(label, packet identifier, token), as far as the reply to a save tells."""
    removed: int | None = None
    """Messages removed, if the reply to an acknowledgement tells; released, if that to a release does; sessions
    ended."""
    told_count: int | None = None
    """How many messages the reply to a save says that were saved, or that are now held; None: it does not say."""
    told: tuple[SaveReplyRow, ...] | None = None
    """What the reply to a save tells of its messages, one after the other; None: it tells nothing."""


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


def labels_of(listing: Sequence[ObservedMessage]) -> list[int | None]:
    return [seen.label for seen in listing]


ACCUSING = frozenset(("all-or-nothing", "bounded"))
"""Laws that any input can break."""


def forbidden_in(step: Step, store: Capabilities) -> str:
    """What of a step no caller may give, in words; empty when there is nothing."""
    match step:
        case Save(messages=()):
            return "a batch without messages"
        case Save(limit=limit) if not 1 <= limit <= store.modulus and not store.checks_limit:
            return f"limit {limit}"
        case Save(messages=messages):
            return next(filter(None, map(_forbidden_in_message, messages)), "")
        case Answer(packet_id=packet_id) if not 1 <= packet_id <= store.modulus:
            return f"packet identifier {packet_id}"
        case Interleave(step=inner, during=during):
            return forbidden_in(inner, store) or forbidden_in(during, store)
    return ""


def forbidden_in_clients(clients: Sequence[bytes]) -> str:
    """Which client identifier no session can have; the empty one is replaced before there is a session (3.1.3.1)."""
    wrong = next((one for one in clients if not one or _is_no_string(one)), None)
    return "" if wrong is None else f"client identifier {wrong[:20].decode('latin-1')!r}"


def _forbidden_in_message(message: Publication) -> str:
    if not is_interval(message.interval_ms):
        assert message.interval_ms is not None
        return f"an interval of {message.interval_ms / 1000:g} s ({name_of(message.label)})"
    if message.qos not in (0, 1, 2):
        return f"QoS {message.qos}"
    if not message.topic or _is_no_string(message.topic) or any(one in message.topic for one in b"#+"):
        return f"topic {message.topic[:20].decode('latin-1')!r}"
    return ""


def is_interval(interval_ms: object) -> bool:
    """Whether it is a Message Expiry Interval: none, or whole seconds in four bytes (3.3.2.3.3), 0 included."""
    return interval_ms is None or lifetime(interval_ms, 0).is_exact


def _is_no_string(text: bytes) -> bool:
    """Whether MQTT has no such string: no UTF-8, too long, or with a NUL in it (1.5.4)."""
    try:
        return "\0" in text.decode() or len(text) > LONGEST
    except UnicodeDecodeError:
        return True


class Sending(NamedTuple):
    """Under what a message was last sent to the subscriber."""

    packet_id: int
    sequence: int | None
    epoch: int = 1


class Batch(NamedTuple):
    """A producer's last save."""

    number: int = 0
    step: Save | None = None
    epoch: int = 1
    was_done: bool = False
    told: tuple[SaveReplyRow, ...] = ()
    """What the first reply told of its messages, as far as one has come."""
    earlier: Batch | None = None
    """The one that was done before it; that one's is left out."""


class Cursor(NamedTuple):
    """Where a reader is: the token of the last message of its last page, and everything up to that message."""

    sequence: int = 0
    passed: frozenset[int] = frozenset()


class Connection(NamedTuple):
    """Where a client stands with its session."""

    connects: int = 1
    """Number of its last CONNECT."""
    is_open: bool = True
    """Whether it has a session: a store with ``open`` has none between a clear and the next CONNECT."""
    cleared_epoch: int = 0
    """Epoch of its last session that was cleared; 0 before the first."""
    begun: int = 1
    """Number of the CONNECT that began its session: those that go on with a session do not begin one."""
    answer: tuple[bool, bool | None, int | None] | None = None
    """Clean Start of its last CONNECT, and the session present and epoch that were the reply; None: not kept."""


class RunState(NamedTuple):
    """Everything that a run remembers beside the store's own keys."""

    accounts: tuple[Account, ...]
    sendings: tuple[tuple[int, Sending], ...] = ()
    batches: tuple[Batch, ...] = ()
    cursors: tuple[Cursor, ...] = ()
    connections: tuple[Connection, ...] = ()
    forbidden: str = ""
    """What has been given so far that no caller may give, the first of it
    (``orderlab.model.contracts.session.refinement.account``)."""
