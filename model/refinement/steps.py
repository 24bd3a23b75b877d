"""One operation of a store against the action of the abstract session that it claims to be.

Each function takes the account before, the operation, the reply and the listing after it, and gives the account after
with the laws that the step broke. A faulted step may end as before or as after; an unfaulted one must do its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.refinement.account import Account, Discrepancy, Reply, Seen, Store, name_of, names_of
from model.refinement.identifiers import judge_identifiers
from model.refinement.listing import compare
from model.session import Entry, Message, entry_of, kept

LOST = ("no-loss",)


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


def judge_quiet(account: Account, listing: Sequence[Seen], missing: tuple[str, ...] = LOST) -> Judgement:
    """A step that does not concern this client: its listing must be what it was."""
    return Judgement(account, compare(account, account.queue, listing, missing))


def judge_time(
    account: Account,
    now_ms: int,
    listing: Sequence[Seen],
    store: Store,
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


# -- save --------------------------------------------------------------------------------------------------------------


class Save(NamedTuple):
    """A save as the judge sees it."""

    messages: tuple[Message, ...]
    limit: int
    is_stale: bool = False
    """The record belongs to a session that has been cleared."""
    is_repeated: bool = False
    """The very same call has been carried out before; its reply was lost."""


def judge_save(
    account: Account, save: Save, reply: Reply, listing: Sequence[Seen], store: Store, faulted: bool = False
) -> Judgement:
    """Append and trim, or refuse and change nothing."""
    shown = labels_of(listing)
    before = [entry.label for entry in account.queue]
    if shown == before and _may_leave_as_before(save, reply, account, store, faulted):
        return _refused(account, save, listing)
    if save.is_stale or save.is_repeated:
        return _must_not_save(account, save, listing)
    after, expected = _after_save(account, save, reply, listing, store)
    if reply.status != "done" and shown != [entry.label for entry in expected.queue]:
        return _between(account, save, reply, listing)
    found = after.discrepancies + _compare_after_save(account, expected, save, listing)
    if reply.status != "done" and not faulted and not _is_questionable(save, account, store):
        found.append(
            Discrepancy("all-or-nothing", f"a save was carried out and is reported as failed: {reply.text}", False)
        )
    return Judgement(after.account, found)


def _is_questionable(save: Save, account: Account, store: Store) -> bool:
    """Whether a store may refuse this save: MQTT cannot express it, or there is no identifier left."""
    if not 1 <= save.limit <= store.modulus:
        return True
    return any(not message.lifetime.is_exact or message.lifetime.longest_ms <= 0 for message in save.messages)


def _may_leave_as_before(save: Save, reply: Reply, account: Account, store: Store, faulted: bool) -> bool:
    if save.is_stale or save.is_repeated or not save.messages or (faulted and reply.status != "done"):
        return True
    return reply.status != "done" and _is_questionable(save, account, store)


def _refused(account: Account, save: Save, listing: Sequence[Seen]) -> Judgement:
    """Nothing was saved, rightly."""
    labels = [message.label for message in save.messages if account.session.entry(message.label) is None]
    if save.is_repeated:
        account = account.with_fates([label for label in labels if account.fate(label) is None], "refused")
    elif not save.is_stale:
        account = account.with_fates(labels, "refused")
    else:
        account = account.with_fates(labels, "cleared")
    return Judgement(account, compare(account, account.queue, listing, LOST))


def _must_not_save(account: Account, save: Save, listing: Sequence[Seen]) -> Judgement:
    """A record of a cleared session, or the repetition of a save that was carried out."""
    labels = [message.label for message in save.messages]
    shown = labels_of(listing)
    if save.is_repeated:
        twice = sorted({label for label in labels if shown.count(label) > 1})
        again = [label for label in labels if label in shown and account.session.entry(label) is None]
        if twice or again:
            text = f"the reply was lost and the same save came again: {names_of(twice or again)} saved twice"
            return Judgement(account, [Discrepancy("all-or-nothing", text)])
        return Judgement(account, compare(account, account.queue, listing, ("all-or-nothing", "no-loss")))
    account = account.with_fates(labels, "cleared")
    return Judgement(account, compare(account, account.queue, listing, LOST))


def _after_save(
    account: Account, save: Save, reply: Reply, listing: Sequence[Seen], store: Store
) -> tuple[Judgement, Account]:
    """The account after a save that was carried out, and what was wrong with the identifiers."""
    now_ms = account.session.now_ms
    seen = {one.label: one for one in listing}
    told = dict(reply.assigned)
    arriving: list[Message] = []
    for message in save.messages:
        certain = message.lifetime.shortest_ms > 0
        if certain or (message.lifetime.longest_ms > 0 and message.label in seen):
            arriving.append(message)
    limit = min(save.limit, store.modulus) if save.limit > 0 else len(account.queue) + len(arriving)
    labels = {message.label for message in arriving}
    assigned: list[tuple[int, int | None, bool]] = []
    for message in save.messages:
        shown = seen.get(message.label)
        packet_id = shown.packet_id if shown is not None else None
        assigned.append(
            (message.label, told.get(message.label) if packet_id is None else packet_id, message.label not in labels)
        )
    tokens = {one.label: one.token for one in listing}
    new = [entry_of(one, _given(assigned, one.label), now_ms, tokens.get(one.label)) for one in arriving]
    queue = kept((*account.queue, *new), limit)
    survivors = {entry.label for entry in queue}
    taken = [entry.packet_id for entry in account.queue if entry.label in survivors]
    may_skip = {entry.packet_id for entry in account.queue} | account.passed_ids
    last_ids, found = judge_identifiers(account.last_ids, assigned, taken, may_skip, store.modulus)
    for label, packet_id in reply.assigned:
        if label in seen and seen[label].packet_id not in (None, packet_id):
            text = f"{name_of(label)} is returned under {seen[label].packet_id}; the reply to its save said {packet_id}"
            found.append(Discrepancy("packet-id", text, False))
    dead = [message.label for message in save.messages if message.label not in labels]
    cut = [message.label for message in arriving if message.label not in survivors]
    expected = account.with_queue(tuple(e for e in queue if account.session.entry(e.label)), "trimmed")
    expected = expected.with_fates(dead, "expired").with_fates(cut, "trimmed")
    expected = expected._replace(session=expected.session._replace(queue=queue), last_ids=last_ids)
    return Judgement(expected, found), expected


def _given(assigned: Sequence[tuple[int, int | None, bool]], label: int) -> int:
    return next((packet_id or 0 for one, packet_id, _ in assigned if one == label), 0)


def _compare_after_save(before: Account, expected: Account, save: Save, listing: Sequence[Seen]) -> list[Discrepancy]:
    """Whatever is missing after a save: was it trimmed without need, overwritten, or lost?"""
    shown = set(labels_of(listing))
    old = [entry.label for entry in before.queue]
    lost = [entry for entry in expected.queue if entry.label not in shown]
    missing: list[str] = []
    if lost:
        staying = [label for label in old if label in shown]
        lost_old = [entry.label for entry in lost if entry.label in old]
        due = len(old) + len(save.messages) > save.limit
        are_oldest = bool(lost_old) and not any(old.index(label) < old.index(lost_old[-1]) for label in staying)
        reused = {seen.packet_id for seen in listing if seen.label not in old}
        overwritten = any(entry.label in old and entry.packet_id in reused for entry in lost)
        if overwritten:
            missing.append("packet-id")
        if due or (are_oldest and not overwritten):
            missing.append("legal-trim")
        missing.append("no-loss")
    return compare(expected, expected.queue, listing, tuple(missing))


def _between(account: Account, save: Save, reply: Reply, listing: Sequence[Seen]) -> Judgement:
    """A save that failed and still changed something."""
    labels = [message.label for message in save.messages]
    shown = labels_of(listing)
    part = [label for label in labels if label in shown]
    lost = [entry.label for entry in account.queue if entry.label not in shown]
    text = f"the save failed ({reply.text}); saved all the same: {names_of(part)}; gone: {names_of(lost)}"
    if not part and not lost and len(shown) == len(account.queue):
        return _refused_without_reason(account, reply, listing, labels)
    found = [Discrepancy("all-or-nothing", text)]
    if lost:
        found.append(Discrepancy("no-loss", f"{names_of(lost)} gone: a save failed ({reply.text})"))
    return Judgement(account, found)


def _refused_without_reason(account: Account, reply: Reply, listing: Sequence[Seen], labels: list[int]) -> Judgement:
    found = compare(account, account.queue, listing, LOST)
    if not found:
        found = [Discrepancy("no-loss", f"a valid save was refused: {reply.text}")]
    return Judgement(account.with_fates(labels, "refused"), found)


# -- fetch, acknowledge, release -------------------------------------------------------------------------------------


def judge_fetch(
    account: Account,
    count: int | None,
    after: int | None,
    reply: Reply,
    returned: Sequence[Seen],
    listing: Sequence[Seen],
    store: Store,
    faulted: bool = False,
) -> Judgement:
    """Return the oldest ``count`` live messages behind the message ``after``, and remove nothing."""
    found = compare(account, account.queue, listing, LOST)
    if reply.status != "done":
        if not faulted:
            found.append(Discrepancy("drain", f"a fetch failed: {reply.text}"))
        return Judgement(account, found)
    rest = _behind(account, after) if store.has_pages else account.queue
    found += compare(account, rest[: len(returned)], returned, ("store-order",))
    if count is not None and len(returned) > count:
        found.append(Discrepancy("bounded", f"a page of {count} holds {len(returned)} messages", False))
    due = len(rest) if count is None else min(count, len(rest))
    if len(returned) < due and (not account.passed_ids or (not returned and not rest)):
        size = "any size" if count is None else count
        text = f"a page of {size} holds {len(returned)} of the {len(rest)} messages that wait"
        found.append(Discrepancy("drain", text, False))
    sent = set(labels_of(returned))
    queue = tuple(entry._replace(sent=True) if entry.label in sent else entry for entry in account.queue)
    whole = after is None and (count is None or len(returned) < count)
    account = account._replace(
        session=account.session._replace(queue=queue), passed_ids=frozenset() if whole else account.passed_ids
    )
    return Judgement(account, found)


def _behind(account: Account, after: int | None) -> tuple[Entry, ...]:
    """The queue behind a message that a page ended with; that message may be gone by now."""
    if after is None:
        return account.queue
    queue = account.queue
    labels = [entry.label for entry in queue]
    return queue[labels.index(after) + 1 :] if after in labels else tuple(e for e in queue if not e.sent)


class Answer(NamedTuple):
    """An acknowledgement or a PUBREC on its way in: for which sending, under which identifier."""

    label: int | None
    """The message as last sent under that identifier; None when nothing ever was."""
    packet_id: int


def _targets(account: Account, answer: Answer, store: Store) -> tuple[Entry | None, bool]:
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
    account: Account, answer: Answer, reply: Reply, listing: Sequence[Seen], store: Store, faulted: bool = False
) -> Judgement:
    """Remove the very message that the acknowledgement is for, and no other, however late it comes."""
    target, is_certain = _targets(account, answer, store)
    shown = labels_of(listing)
    gone = target is not None and target.label not in shown
    if target is None or (not gone and not is_certain):
        found = compare(account, account.queue, listing, ("packet-id", "no-loss"))
        if answer.label is None or account.fate(answer.label) != "expired":  # its remains may still be there to remove
            found += _wrong_count(reply, 0, found)
        return Judgement(account, found)
    must = (target.qos == 1 or target.kind == "PUBREL") and not (faulted and reply.status != "done")
    if not gone and not must:
        return Judgement(account, compare(account, account.queue, listing, ("packet-id", "no-loss")))
    queue = tuple(entry for entry in account.queue if entry.label != target.label)
    account = account.with_queue(queue, "acknowledged")
    found = compare(account, queue, listing, ("packet-id", "no-loss"))
    if reply.status == "error" and not faulted:
        found.append(Discrepancy("packet-id", f"an acknowledgement failed: {reply.text}", False))
    return Judgement(account, found + _wrong_count(reply, 1, found))


def _wrong_count(reply: Reply, removed: int, found: list[Discrepancy]) -> list[Discrepancy]:
    if found or reply.status != "done" or reply.removed is None or (reply.removed > 0) == (removed > 0):
        return []
    text = f"the reply says that {reply.removed} messages were removed; it was {removed}"
    return [Discrepancy("packet-id", text, False)]


def judge_release(
    account: Account, answer: Answer, reply: Reply, listing: Sequence[Seen], store: Store, faulted: bool = False
) -> Judgement:
    """PUBLISH becomes PUBREL, in place, under the same identifier and deadline."""
    target, is_certain = _targets(account, answer, store)
    seen = {one.label: one for one in listing}
    if target is not None and (target.qos == 2 or target.label in seen):
        turned = target.label in seen and seen[target.label].kind == "PUBREL"
        must = is_certain and target.qos == 2 and not (faulted and reply.status != "done")
        if turned or must:
            queue = tuple(e._replace(kind="PUBREL") if e.label == target.label else e for e in account.queue)
            account = account._replace(session=account.session._replace(queue=queue))
    return Judgement(account, compare(account, account.queue, listing, ("retransmission", "no-loss")))


# -- clear and open --------------------------------------------------------------------------------------------------


def judge_clear(
    account: Account, epoch: int, reply: Reply, listing: Sequence[Seen], faulted: bool = False
) -> Judgement:
    """Nothing of the session remains. Where the counter goes on from is the store's choice."""
    if faulted and reply.status != "done" and labels_of(listing) == [entry.label for entry in account.queue]:
        return judge_quiet(account, listing)
    cleared = account.with_queue((), "cleared")
    session = cleared.session._replace(epoch=max(epoch, cleared.session.epoch))
    cleared = cleared._replace(session=session, last_ids=cleared.last_ids | {0}, passed_ids=frozenset())
    if reply.status != "done":
        kept_all = labels_of(listing) == [entry.label for entry in account.queue]
        law, words = ("no-residue", "failed") if kept_all else ("all-or-nothing", "failed halfway")
        return Judgement(account, [Discrepancy(law, f"a clear {words}: {reply.text}")])
    return Judgement(cleared, compare(cleared, (), listing, ()))


def judge_open(
    account: Account, epoch: int, clean_start: bool, reply: Reply, listing: Sequence[Seen], faulted: bool = False
) -> Judgement:
    """CONNECT: with Clean Start a new session, otherwise the old one as it was."""
    if clean_start:
        return judge_clear(account, epoch, reply, listing, faulted)
    if reply.status == "done":
        account = account._replace(session=account.session._replace(epoch=max(epoch, account.session.epoch)))
    return judge_quiet(account, listing)
