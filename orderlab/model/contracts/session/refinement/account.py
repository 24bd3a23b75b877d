"""What the judge keeps and what it is shown: the account of one client, replies, discrepancies; and a listing held
against the account.

`compare` says which law each difference between a listing and the queue that it should show breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from orderlab.model.contracts.contract import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry, Kind, Session, lifetime, next_packet_id
from orderlab.model.contracts.session.steps import Answer, Interleave, Publication, Save, Step
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


class Assigned(NamedTuple):
    """One message of a batch, in its order."""

    label: int
    packet_id: int | None
    """None if nobody told."""
    is_dead: bool
    """It had expired on arrival."""
    stays: bool
    """It is still live after the save: the batch may be larger than the limit."""

    @property
    def may_need_none(self) -> bool:
        """Whether it may have used no identifier: nobody was told one, and it lives at no moment that anyone sees."""
        return self.packet_id is None and (self.is_dead or not self.stays)


def successors(last: int, may_skip: Collection[int], live: Collection[int], modulus: int) -> set[int]:
    """The identifiers that may follow ``last`` when those of ``may_skip`` and ``live`` can be passed over."""
    found: set[int] = set()
    candidate = next_packet_id(last, modulus)
    while candidate not in found:
        found.add(candidate)
        if candidate not in may_skip and candidate not in live:
            break
        candidate = next_packet_id(candidate, modulus)
    return found


def judge_identifiers(
    last_ids: frozenset[int],
    assigned: Sequence[Assigned],
    taken: Collection[int],
    may_skip: Collection[int],
    modulus: int,
) -> tuple[frozenset[int], list[Discrepancy]]:
    """Follow the counter through one batch: where it can be now, and what was wrong.

    ``taken`` are the identifiers of older messages that are still live.
    """
    possible = set(last_ids)
    live, hidden = set(taken), set(may_skip)
    found: list[Discrepancy] = []
    reachable: set[int] = set()
    fresh = set(possible)  # those whose successors are not among the reachable ones yet
    for one in assigned:
        further = set().union(*(successors(last, hidden, live, modulus) for last in fresh)) - reachable
        reachable |= further
        if one.may_need_none:
            hidden |= further
            fresh = further - possible
            possible |= fresh
            continue
        if one.packet_id is None:
            hidden |= reachable
            possible = reachable - live or reachable
        else:
            found += _judge_one(one.label, one.packet_id, possible, reachable, live, modulus)
            (live if one.stays else hidden).add(one.packet_id)
            possible = {one.packet_id}
        reachable, fresh = set(), set(possible)
    return frozenset(possible), found


def _judge_one(
    label: int, packet_id: int, possible: set[int], reachable: set[int], live: set[int], modulus: int
) -> list[Discrepancy]:
    given = f"{name_of(label)} gets packet identifier {packet_id}"
    found: list[Discrepancy] = []
    if not 1 <= packet_id <= modulus:
        return [Discrepancy("packet-id", f"{given}, which is not in 1..{modulus}")]
    if packet_id in live:
        found.append(Discrepancy("packet-id", f"{given}, which a live message has"))
    if packet_id not in reachable:
        last = "/".join(map(str, sorted(possible)))
        found.append(Discrepancy("counter", f"{given} after {last}"))
        if possible == {modulus}:
            found.append(Discrepancy("packet-id", f"{given}: after {modulus} comes 1"))
    return found


def judge_tokens(last: int, assigned: Sequence[tuple[int, int | None]]) -> tuple[int, list[Discrepancy]]:
    """Tokens of one batch, as far as they are told, must go on growing: the highest one now, and what was wrong.

    0 stands for a message that was not kept.
    """
    found: list[Discrepancy] = []
    for label, token in assigned:
        if token is None or token == 0:
            continue
        if token <= last:
            found.append(Discrepancy("counter", f"{name_of(label)} gets sequence {token} after {last}"))
        last = max(last, token)
    return last, found


LOST = ("no-loss",)
"""What a message that is not listed breaks, when nothing else is said."""

_MISSING = "gone: live, and not returned"


def is_missing(one: Discrepancy) -> bool:
    """Whether it says that a live message is not listed."""
    return one.text.endswith(_MISSING)


_RETURNED: dict[Fate, tuple[tuple[str, ...], str]] = {
    "acknowledged": (("packet-id",), "is still returned after its acknowledgement"),
    "expired": (("expiry",), "is returned at or after its deadline"),
    "trimmed": (("legal-trim",), "is returned although it was beyond the limit"),
    "cleared": (("no-phantom", "no-residue"), "is returned although its session was cleared"),
    "refused": (("all-or-nothing",), "is returned although its save failed"),
}


def compare(
    account: Account, expected: Sequence[Entry], listing: Sequence[ObservedMessage], missing: tuple[str, ...]
) -> list[Discrepancy]:
    """How ``listing`` differs from ``expected``; ``missing`` are the laws that a message which is not listed breaks."""
    found = _strangers(account, expected, listing)
    shown = {seen.label for seen in listing}
    lost = [entry.label for entry in expected if entry.label not in shown]
    if lost:
        found += [Discrepancy(law, f"{names_of(lost)} {_MISSING}") for law in missing]
    wanted = {entry.label: entry for entry in expected}
    order = [seen.label for seen in listing if seen.label in wanted]
    saved = [entry.label for entry in expected if entry.label in shown]
    if sorted(order) == sorted(saved) and order != saved:
        found.append(Discrepancy("store-order", f"saved in the order {names_of(saved)}, returned as {names_of(order)}"))
    for seen in listing:
        if seen.label in wanted:
            found += compare_one(wanted[seen.label], seen, account)
    return found


def _strangers(account: Account, expected: Sequence[Entry], listing: Sequence[ObservedMessage]) -> list[Discrepancy]:
    """Messages that should not be there, or not twice."""
    found: list[Discrepancy] = []
    wanted = {entry.label for entry in expected}
    live = {entry.label for entry in account.queue}
    counted: set[int] = set()
    for seen in listing:
        if seen.label is None:
            found.append(Discrepancy("no-phantom", "a message is returned that nobody saved, or not with this content"))
        elif seen.label in counted:
            found.append(Discrepancy("store-order", f"{name_of(seen.label)} is returned twice"))
        elif seen.label not in wanted and seen.label in live:
            found.append(Discrepancy("store-order", f"{name_of(seen.label)} is returned out of its turn"))
        elif seen.label not in wanted:
            fate = account.fate(seen.label)
            laws, words = _RETURNED[fate] if fate else (("no-phantom",), "is returned to a client that it was not for")
            found += [Discrepancy(law, f"{name_of(seen.label)} {words}") for law in laws]
        if seen.label is not None:
            counted.add(seen.label)
    return found


def compare_one(entry: Entry, seen: ObservedMessage, account: Account) -> list[Discrepancy]:
    """One live message as returned against its entry: identifier, kind, interval left, content."""
    found: list[Discrepancy] = []
    name = name_of(entry.label)
    if seen.packet_id is not None and seen.packet_id != entry.packet_id:
        text = f"{name} was saved under packet identifier {entry.packet_id} and is returned under {seen.packet_id}"
        found.append(Discrepancy("packet-id", text))
    if seen.kind != entry.kind:
        state = "released" if entry.kind == "PUBREL" else "not released"
        found.append(Discrepancy("retransmission", f"{name} is {state} and is returned as {seen.kind}"))
    if seen.altered:
        found.append(Discrepancy("no-phantom", f"{name} is returned with another {seen.altered}", False))
    wrong = interval_wrong(entry, seen, account.session.now_ms, account.slack_ms)
    if wrong:
        found.append(Discrepancy("expiry", f"{name} {wrong}", False))
    return found


def interval_wrong(entry: Entry, seen: ObservedMessage, now_ms: int, slack_ms: int = 0) -> str:
    """What is wrong with the interval that a message carries, or nothing.

    A store that counts in whole seconds may cut, round or round up; at a whole number of seconds all of them agree.
    """
    if entry.latest_ms <= now_ms:
        return ""  # its delivery had begun in time: MQTT says nothing of what is left
    told = seen.remaining_ms
    if told is None:
        is_exact = entry.earliest_ms == entry.latest_ms < FOREVER_MS
        must = is_exact and entry.carries_interval and entry.kind == "PUBLISH"
        return f"has {entry.latest_ms - now_ms} ms left and is returned without an interval" if must else ""
    if entry.latest_ms >= FOREVER_MS:
        return "" if entry.earliest_ms < FOREVER_MS else f"has no deadline and is returned with {told:g} ms left"
    low, high = entry.earliest_ms - now_ms, entry.latest_ms - now_ms
    if low == high and not slack_ms:
        right = told in (low, low // 1000 * 1000, -(-low // 1000) * 1000)
    else:
        right = low - slack_ms - 1000 < told < high + 1000
    return "" if right else f"has {high} ms left and is returned with {told:g} ms"
