"""One operation of a store against the action of the abstract session that it claims to be.

Each function takes the account before, the operation, the reply and the listing after it, and gives the account after
with the laws that the step broke. A faulted step may end as before or as after; an unfaulted one must do its work.
The save, which appends and trims, is in `saves.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement.account import (
    Account,
    Judgement,
    ObservedMessage,
    Reply,
    SaveReplyRow,
    labels_of,
)
from orderlab.model.contracts.session.refinement.listing import LOST, compare
from orderlab.model.contracts.session.spec import Entry, Message


def judge_quiet(account: Account, listing: Sequence[ObservedMessage], missing: tuple[str, ...] = LOST) -> Judgement:
    """A step that does not concern this client: its listing must be what it was."""
    return Judgement(account, compare(account, account.queue, listing, missing))


def judge_time(
    account: Account,
    now_ms: int,
    listing: Sequence[ObservedMessage],
    store: Capabilities,
    redis_deadlines_ms: frozenset[int] = frozenset(),
) -> Judgement:
    """Time has passed: what is past its deadline is gone, everything else is as it was.

    ``redis_deadlines_ms`` are deadlines that Redis keeps for the store: such a key is still readable in the very
    millisecond of its deadline.
    """
    shown = set(labels_of(listing))
    staying: list[Entry] = []
    for entry in account.queue:
        may_stay = now_ms < entry.latest_ms + account.slack_ms or (entry.sent and store.keeps_sent)
        may_stay = may_stay or (entry.latest_ms == now_ms and now_ms in redis_deadlines_ms)
        must_stay = now_ms < entry.earliest_ms - account.slack_ms
        if must_stay or (may_stay and entry.label in shown):
            staying.append(entry)
    passed = {entry.packet_id for entry in account.queue} - {entry.packet_id for entry in staying}
    account = account._replace(session=account.session._replace(now_ms=now_ms), passed_ids=account.passed_ids | passed)
    account = account.with_queue(tuple(staying), "expired")
    return Judgement(account, compare(account, account.queue, listing, ("expiry", "no-loss")))


# -- fetch, acknowledge, release -------------------------------------------------------------------------------------


def judge_fetch(
    account: Account,
    count: int | None,
    passed: Collection[int],
    reply: Reply,
    returned: Sequence[ObservedMessage],
    listing: Sequence[ObservedMessage],
    store: Capabilities,
    faulted: bool = False,
) -> Judgement:
    """Return the ``count`` oldest live messages that earlier pages (``passed``) have not, and remove nothing."""
    found = compare(account, account.queue, listing, _missing(reply, LOST))
    if reply.status != "done":
        if not faulted and (count is None or count > 0):
            found.append(Discrepancy("drain", f"a fetch failed: {reply.text}"))
        return Judgement(account, found)
    rest = account.queue
    if passed and store.has_pages:
        rest = tuple(entry for entry in rest if entry.label not in passed)
    found += compare(account, rest[: len(returned)], returned, ("store-order",))
    if count is not None and len(returned) > count:
        found.append(Discrepancy("bounded", f"a page of {count} holds {len(returned)} messages", False))
    due = len(rest) if count is None else min(count, len(rest))
    if returned and not store.has_counts:
        due = len(returned)  # nobody said how many at a time; what never comes is missing in the listing
    if len(returned) < due and (not account.passed_ids or not returned):  # expired ones may take up a part of a page
        size = "any size" if count is None else count
        text = f"a page of {size} holds {len(returned)} of the {len(rest)} messages that wait"
        found.append(Discrepancy("drain", text, False))
    sent = set(labels_of(returned))
    queue = tuple(entry._replace(sent=True) if entry.label in sent else entry for entry in account.queue)
    whole = not passed and (count is None or len(returned) < count)
    account = account._replace(
        session=account.session._replace(queue=queue), passed_ids=frozenset() if whole else account.passed_ids
    )
    return Judgement(account, found)


def _missing(reply: Reply, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The laws that a message breaks which is not listed any more: after an error, that of being whole comes first."""
    return ("all-or-nothing", "no-loss") if reply.status == "error" else usual


class ObservedAnswer(NamedTuple):
    """An acknowledgement or a PUBREC on its way in: for which sending, under which identifier."""

    label: int | None
    """The message as last sent under that identifier; None when nothing ever was."""
    packet_id: int


def _targets(account: Account, answer: ObservedAnswer, store: Capabilities) -> tuple[Entry | None, bool]:
    """The message that an answer is for, and whether the store may take it for that one."""
    if answer.label is not None:
        entry = account.session.entry(answer.label)
        if entry is not None:
            return (entry, True) if entry.packet_id == answer.packet_id else (None, False)
    if store.has_tokens:
        return None, False
    other = next((entry for entry in account.queue if entry.packet_id == answer.packet_id and entry.sent), None)
    return other, False


def judge_acknowledge(
    account: Account,
    answer: ObservedAnswer,
    reply: Reply,
    listing: Sequence[ObservedMessage],
    store: Capabilities,
    faulted: bool = False,
) -> Judgement:
    """Remove the very message that the acknowledgement is for, and no other, however late it comes."""
    target, is_certain = _targets(account, answer, store)
    shown = labels_of(listing)
    gone = target is not None and target.label not in shown
    if target is None or (not gone and not is_certain):
        found = compare(account, account.queue, listing, _missing(reply, ("packet-id", "no-loss")))
        if not _may_have_remains(account, answer, "acknowledge", store):
            found += _wrong_count(reply, 0, found)
        if not faulted:
            found += _told_nothing(reply, answer, "acknowledge", store, found)
        return Judgement(account, found)
    must = (target.qos == 1 or target.kind == "PUBREL") and not (faulted and reply.status != "done")
    if not gone and not must:
        return Judgement(account, compare(account, account.queue, listing, _missing(reply, ("packet-id", "no-loss"))))
    queue = tuple(entry for entry in account.queue if entry.label != target.label)
    account = account.with_queue(queue, "acknowledged")
    found = compare(account, queue, listing, _missing(reply, ("packet-id", "no-loss")))
    if reply.status == "error" and not faulted:
        found.append(Discrepancy("packet-id", f"an acknowledgement failed: {reply.text}", False))
    return Judgement(account, found + _wrong_count(reply, 1, found))


def _may_have_remains(account: Account, answer: ObservedAnswer, operation: str, store: Capabilities) -> bool:
    """Whether a message that has expired may count: its remains may be there to act upon, unless the store promises to
    count the live alone. On a clock that runs by itself it may have expired just after the operation."""
    is_expired = answer.label is not None and account.fate(answer.label) == "expired"
    return is_expired and (operation not in store.tells_found or account.slack_ms > 0)


def _told_nothing(
    reply: Reply, answer: ObservedAnswer, operation: str, store: Capabilities, found: list[Discrepancy]
) -> list[Discrepancy]:
    """An error, or nothing, where it is promised to be told whether a message was there; of an identifier that MQTT
    has."""
    is_told = reply.status == "refused" or (reply.status == "done" and reply.removed is not None)
    if found or is_told or operation not in store.tells_found or not 1 <= answer.packet_id <= store.modulus:
        return []
    law = "packet-id" if operation == "acknowledge" else "retransmission"
    text = f"the reply to {operation} is promised to tell whether a message was there: {reply.text or 'it does not'}"
    return [Discrepancy(law, text, False)]


def _wrong_count(reply: Reply, removed: int, found: list[Discrepancy]) -> list[Discrepancy]:
    if found or reply.status != "done" or reply.removed is None or (reply.removed > 0) == (removed > 0):
        return []
    text = f"the reply says that {reply.removed} messages were removed; it was {removed}"
    return [Discrepancy("packet-id", text, False)]


def judge_release(
    account: Account,
    answer: ObservedAnswer,
    reply: Reply,
    listing: Sequence[ObservedMessage],
    store: Capabilities,
    faulted: bool = False,
) -> Judgement:
    """PUBLISH becomes PUBREL, in place, under the same identifier and deadline."""
    target, is_certain = _targets(account, answer, store)
    was_live: bool | None = target is not None
    is_second = target is not None and target.kind == "PUBREL" and "release" not in store.tells_found
    if target is not None and (not is_certain or target.qos != 2 or is_second):
        was_live = None  # a second PUBREC: a store may count it or not
    seen = {one.label: one for one in listing}
    if target is not None and (target.qos == 2 or target.label in seen):
        turned = target.label in seen and seen[target.label].kind == "PUBREL"
        must = is_certain and target.qos == 2 and not (faulted and reply.status != "done")
        if turned or must:
            queue = tuple(e._replace(kind="PUBREL") if e.label == target.label else e for e in account.queue)
            account = account._replace(session=account.session._replace(queue=queue))
    laws: tuple[str, ...] = ("retransmission", "no-loss")
    if faulted and reply.status != "done":
        laws = ("all-or-nothing", *laws)  # it failed, and the message is gone all the same
    found = compare(account, account.queue, listing, laws)
    if was_live is False and _may_have_remains(account, answer, "release", store):
        was_live = None
    if not faulted:
        found += _told_nothing(reply, answer, "release", store, found)
    return Judgement(account, found + _wrong_release(reply, was_live, found))


def _wrong_release(reply: Reply, was_live: bool | None, found: list[Discrepancy]) -> list[Discrepancy]:
    """A broker sends PUBREL when the reply says that there is something to send it for."""
    if found or was_live is None or reply.status != "done" or reply.removed is None or (reply.removed > 0) == was_live:
        return []
    text = f"the reply to a release says {reply.removed}; the message is {'live' if was_live else 'gone'}"
    return [Discrepancy("retransmission", text, False)]


# -- clear and open --------------------------------------------------------------------------------------------------


def judge_clear(
    account: Account, epoch: int, reply: Reply, listing: Sequence[ObservedMessage], faulted: bool = False
) -> Judgement:
    """Judge a clear: nothing of the session remains. Where the counter goes on from is the store's choice."""
    if faulted and reply.status != "done" and labels_of(listing) == [entry.label for entry in account.queue]:
        return judge_quiet(account, listing)
    cleared = account.with_queue((), "cleared")
    session = cleared.session._replace(epoch=max(epoch, cleared.session.epoch))
    cleared = cleared._replace(session=session, last_ids=cleared.last_ids | {0}, passed_ids=frozenset(), last_token=0)
    if reply.status != "done":
        kept_all = labels_of(listing) == [entry.label for entry in account.queue]
        law, words = ("no-residue", "failed") if kept_all else ("all-or-nothing", "failed halfway")
        return Judgement(account, [Discrepancy(law, f"a clear {words}: {reply.text}")])
    return Judgement(cleared, compare(cleared, (), listing, ()))


def judge_stale_clear(
    account: Account, reply: Reply, listing: Sequence[ObservedMessage], store: Capabilities
) -> Judgement:
    """The end of an earlier session, after another has begun: it changes nothing, and finds nothing to end."""
    found = compare(account, account.queue, listing, LOST)
    if not found and "clear" in store.tells_found and reply.status != "refused" and reply.removed != 0:
        said = reply.text or ("it is told nothing" if reply.removed is None else "it is told that it ended this one")
        found.append(Discrepancy("no-loss", f"the end of an earlier session finds nothing to end: {said}", False))
    return Judgement(account, found)


def judge_open(
    account: Account,
    epoch: int,
    clean_start: bool,
    reply: Reply,
    listing: Sequence[ObservedMessage],
    faulted: bool = False,
) -> Judgement:
    """CONNECT: with Clean Start a new session, otherwise the old one as it was."""
    if clean_start:
        return judge_clear(account, epoch, reply, listing, faulted)
    if reply.status == "done":
        account = account._replace(session=account.session._replace(epoch=max(epoch, account.session.epoch)))
    judged = judge_quiet(account, listing)
    if reply.status == "done" or faulted or judged.discrepancies:
        return judged
    return Judgement(account, [Discrepancy("no-loss", f"the session cannot be gone on with: {reply.text}", False)])


def judge_open_again(account: Account, reply: Reply, is_same: bool, listing: Sequence[ObservedMessage]) -> Judgement:
    """The very CONNECT that was carried out last, once more: the session as it is, and the first answer."""
    found = compare(account, account.queue, listing, ("all-or-nothing", "no-loss"))
    if not found and not is_same:
        said = "another answer than the first" if reply.status == "done" else reply.text
        found.append(Discrepancy("all-or-nothing", f"the reply was lost, the same CONNECT came again: {said}", False))
    return Judgement(account, found)


def judge_stale_open(account: Account, reply: Reply, listing: Sequence[ObservedMessage]) -> Judgement:
    """A CONNECT that the one that began the session has overtaken: it changes nothing and is told so."""
    found = compare(account, account.queue, listing, LOST)
    if not found and reply.status == "done":
        text = "a CONNECT from before the session began is told that it has it"
        found.append(Discrepancy("no-phantom", text, False))
    return Judgement(account, found)


class ObservedSave(NamedTuple):
    """A save as the judge sees it."""

    messages: tuple[Message, ...]
    limit: int
    is_stale: bool = False
    """The record belongs to a session that has been cleared."""
    is_repeated: bool = False
    """The very same call has been carried out before; its reply was lost."""
    is_older: bool = False
    """Its producer has saved a later batch since, and goes back."""
    first: tuple[SaveReplyRow, ...] = ()
    """What the reply told that was lost; nothing where that is not known."""
    is_overtaken: bool = False
    """Something else was done between two of its calls: a store that notices may decline, as one that compares and
    sets."""
