"""A save of a store against that of the abstract session: it appends and trims, or refuses and changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement.account import (
    Account,
    Judgement,
    ObservedMessage,
    Reply,
    SaveReplyRow,
    labels_of,
    name_of,
    names_of,
)
from orderlab.model.contracts.session.refinement.actions import ObservedSave
from orderlab.model.contracts.session.refinement.listing import LOST, compare, is_missing
from orderlab.model.contracts.session.refinement.packet_ids import Assigned, judge_identifiers, judge_tokens
from orderlab.model.contracts.session.spec import Entry, Message, entry_of, kept


def judge_save(
    account: Account,
    save: ObservedSave,
    reply: Reply,
    listing: Sequence[ObservedMessage],
    store: Capabilities,
    faulted: bool = False,
) -> Judgement:
    """Append and trim, or refuse and change nothing."""
    shown = labels_of(listing)
    before = [entry.label for entry in account.queue]
    if save.is_stale or save.is_repeated:
        judged = _must_not_save(account, save, reply, listing, store)
        if not faulted:
            judged.discrepancies.extend(_declined_otherwise(save, reply, store))
        return judged
    if shown == before and _may_leave_as_before(save, reply, store, faulted):
        refused = [one.label for one in save.messages]
        # Carried out or not, it shows nothing.
        if faulted and reply.status == "error" and save.messages and _is_dead(save):
            used = _after_save(account, save, reply, listing, store)[0].last_ids
            account = account._replace(last_ids=account.last_ids | used)
        return Judgement(account.with_fates(refused, "refused"), compare(account, account.queue, listing, LOST))
    expected, found = _after_save(account, save, reply, listing, store)
    is_whole = store.trims_later and shown == [*before, *(one.label for one in save.messages)]
    if reply.status != "done" and not is_whole and shown != [entry.label for entry in expected.queue]:
        return _between(account, save, reply, listing)
    found += _compare_after_save(account, expected, save, listing)
    if store.checks_limit and not 1 <= save.limit <= store.modulus and reply.status == "done":
        text = f"a save with limit {save.limit} is carried out; the binding promises that it is declined"
        found.insert(0, Discrepancy("legal-trim", text, False))
    is_told = store.tells_each and reply.status == "done" and reply.told is not None
    if is_told and not _least_told(save, store) <= len(reply.told or ()) <= len(save.messages):
        text = f"the reply to a save of {len(save.messages)} messages tells of {len(reply.told or ())}"
        found.append(Discrepancy("packet-id", text, False))
    if reply.told_count is not None and not _may_be_told(reply.told_count, account, expected, save):
        text = (
            f"the reply to a save of {len(save.messages)} messages says {reply.told_count}; {len(expected.queue)} "
            "are live"
        )
        found.append(Discrepancy("packet-id", text, False))
    if reply.status != "done" and not faulted and not _is_questionable(save, store):
        done = "holds nothing that is to be kept, and fails" if _is_dead(save) else "is reported as failed, and was not"
        text = f"a save {done}: {reply.text}"
        found.append(Discrepancy("all-or-nothing", text, False))
    return Judgement(expected, found)


def _is_questionable(save: ObservedSave, store: Capabilities) -> bool:
    """Whether a store may refuse this save: MQTT cannot express it, or there is no identifier left.

    An interval of 0 is one of MQTT's. A save that holds nothing else may be declined by a word, for nothing is to be
    kept.
    """
    if not 1 <= save.limit <= store.modulus:
        return True
    return any(not message.lifetime.is_exact for message in save.messages)


def _is_dead(save: ObservedSave) -> bool:
    """Whether every message had expired on arrival."""
    return all(message.lifetime.longest_ms <= 0 for message in save.messages)


def _may_be_told(count: int, before: Account, after: Account, save: ObservedSave) -> bool:
    """Whether a count is that of the batch, or of the queue, before or after the trim, expired ones with it or not."""
    certain = sum(message.lifetime.shortest_ms > 0 for message in save.messages)
    longest = len(before.queue) + _ghosts(before) + len(save.messages)
    return min(certain, save.limit) <= count <= len(save.messages) or len(after.queue) <= count <= longest


def _least_told(save: ObservedSave, store: Capabilities) -> int:
    """Of how many messages the reply to a save must tell."""
    if store.tells_unkept:
        return len(save.messages)
    surely_live = sum(message.lifetime.is_exact and message.lifetime.longest_ms > 0 for message in save.messages)
    return min(surely_live, max(save.limit, 0))


def _may_leave_as_before(save: ObservedSave, reply: Reply, store: Capabilities, faulted: bool) -> bool:
    if not save.messages or ((faulted or save.is_overtaken) and reply.status != "done"):
        return True
    return (reply.status != "done" and _is_questionable(save, store)) or (reply.status == "refused" and _is_dead(save))


def _must_not_save(
    account: Account, save: ObservedSave, reply: Reply, listing: Sequence[ObservedMessage], store: Capabilities
) -> Judgement:
    """A record of a cleared session, or the repetition of a save that was carried out."""
    labels = [message.label for message in save.messages]
    shown = labels_of(listing)
    if save.is_repeated:
        found = [one for one in compare(account, account.queue, listing, ("all-or-nothing",)) if one.diverges]
        again = sorted(
            label for label in set(labels) if shown.count(label) > (account.session.entry(label) is not None)
        )
        text = f"the reply was lost and the same save came again: {names_of(again)} saved twice"
        if not again and found:
            text = f"the reply was lost, the same save came again, and it is not as after one: {found[0].text}"
        return Judgement(
            account, [Discrepancy("all-or-nothing", text)] if found else _told_otherwise(account, save, reply, store)
        )
    account = account.with_fates(labels, "cleared")
    return Judgement(account, compare(account, account.queue, listing, LOST))


def _declined_otherwise(save: ObservedSave, reply: Reply, store: Capabilities) -> list[Discrepancy]:
    """A save that must not be carried out is declined by the word that the binding promises, so that its caller knows
    not to try again; an error in its place would have it tried for ever."""
    word = store.closed_word if save.is_stale else store.older_word if save.is_older else None
    if word is None or not save.messages or _is_questionable(save, store):
        return []
    if reply.status == "refused" and reply.text == word:
        return []
    what = "a record of a session that is gone" if save.is_stale else "a batch older than its producer's last"
    said = reply.text or "as if it had been saved"
    return [Discrepancy("all-or-nothing", f"{what} is promised the word {word}, and is answered: {said}", False)]


def _told_otherwise(account: Account, save: ObservedSave, reply: Reply, store: Capabilities) -> list[Discrepancy]:
    """The reply that was lost is given again, if it tells anything: another one would have the wrong message sent.

    Of a message that is gone it may say that it is not kept. Any identifier but its own would now be another message's.
    """
    is_told = reply.status == "done" and bool(reply.told)
    if save.is_older:
        return []
    if store.answers_again and save.first and not is_told and not save.is_stale:
        text = f"the same save came again, and is not given the reply that was lost: {reply.text or 'it tells nothing'}"
        return [Discrepancy("all-or-nothing", text, False)]
    if not (store.tells_each and is_told and reply.told):
        return []
    if _least_told(save, store) <= len(reply.told) < len(save.messages):
        return []  # which of them it tells of cannot be said
    if len(reply.told) != len(save.messages):
        text = f"the same save of {len(save.messages)} messages came again, and its reply tells of {len(reply.told)}"
        return [Discrepancy("all-or-nothing", text, False)]
    firsts: Sequence[SaveReplyRow | None] = (
        save.first if len(save.first) == len(reply.told) else (None,) * len(reply.told)
    )
    for message, told, first in zip(save.messages, reply.told, firsts, strict=True):
        entry = account.session.entry(message.label)
        if entry is not None:
            wrong = _is_not(entry, told, store)
        else:
            wrong = first is not None and told not in (first, (None, None))
        if wrong:
            text = f"the same save came again, and its reply says {_in_words(told)} of {name_of(message.label)}, "
            text += "which is " + ("gone" if entry is None else f"live as {entry.packet_id} (token {entry.token})")
            text += "" if first is None else f"; the first reply said {_in_words(first)}"
            return [Discrepancy("all-or-nothing", text, False)]
    return []


def _is_not(entry: Entry, told: SaveReplyRow, store: Capabilities) -> bool:
    """Whether a reply tells a live message otherwise than it is. ``tells_ids``: then no identifier means not kept."""
    packet_id, token = told
    if packet_id is None and store.tells_ids:
        return True
    return packet_id not in (None, entry.packet_id) or (token is not None and entry.token not in (None, token))


def _in_words(told: SaveReplyRow) -> str:
    return "not kept" if told == (None, None) else f"{told[0]} (token {told[1]})"


def _after_save(
    account: Account, save: ObservedSave, reply: Reply, listing: Sequence[ObservedMessage], store: Capabilities
) -> tuple[Account, list[Discrepancy]]:
    """The account after a save that was carried out, and what was wrong with the identifiers."""
    now_ms = account.session.now_ms
    seen = {one.label: one for one in listing if one.label is not None}
    arriving = [one for one in save.messages if _arrives(one, reply, seen)]
    labels = {one.label for one in arriving}
    packet_ids: dict[int, int | None] = {one.label: None for one in save.messages}
    packet_ids |= {label: packet_id for label, packet_id, _ in reply.assigned}
    packet_ids |= {
        label: one.packet_id for label, one in seen.items() if label in packet_ids and one.packet_id is not None
    }
    limit = min(save.limit, store.modulus) if save.limit > 0 else len(account.queue) + len(arriving)
    tokens = {label: token for label, _, token in reply.assigned}
    tokens |= {label: one.token for label, one in seen.items() if one.token is not None}
    new = [entry_of(one, packet_ids[one.label] or 0, now_ms, tokens.get(one.label)) for one in arriving]
    queue = kept((*account.queue, *new), limit)
    survivors = {entry.label for entry in queue}
    staying = survivors - _pushed_out(account, queue, save, listing)
    last_ids, found = judge_identifiers(
        account.last_ids,
        [Assigned(one, given, one not in labels, one in survivors) for one, given in packet_ids.items()],
        [entry.packet_id for entry in account.queue if entry.label in staying],
        {entry.packet_id for entry in account.queue} | account.passed_ids,
        store.modulus,
    )
    last_token, backwards = judge_tokens(account.last_token, [(one, tokens.get(one)) for one in packet_ids])
    found += backwards
    for label, packet_id, _ in reply.assigned:
        if label in seen and None not in (packet_id, seen[label].packet_id) and seen[label].packet_id != packet_id:
            text = f"{name_of(label)} is returned under {seen[label].packet_id}; the reply to its save said {packet_id}"
            found.append(Discrepancy("packet-id", text, False))
    dead = [label for label in packet_ids if label not in labels]
    cut = [label for label in labels if label not in survivors]
    after = account.with_queue(tuple(e for e in queue if e.label not in labels), "trimmed")
    after = after.with_fates(dead, "expired").with_fates(cut, "trimmed")
    session = after.session._replace(queue=queue)
    return after._replace(session=session, last_ids=last_ids, last_token=last_token), found


def _arrives(message: Message, reply: Reply, seen: Mapping[int, ObservedMessage]) -> bool:
    """Whether a save that was carried out must have kept this message, for a while at least.

    What MQTT cannot express may be dropped by a save that succeeds; one that fails does all of its work or nothing.
    """
    if message.lifetime.longest_ms <= 0:
        return False
    return message.lifetime.shortest_ms > 0 or reply.status != "done" or message.label in seen


def _compare_after_save(
    before: Account, expected: Account, save: ObservedSave, listing: Sequence[ObservedMessage]
) -> list[Discrepancy]:
    """Whatever is missing after a save: was it trimmed without need, overwritten, or lost?"""
    shown = set(labels_of(listing))
    old = {entry.label: at for at, entry in enumerate(before.queue)}
    lost = [entry for entry in expected.queue if entry.label not in shown]
    if not lost:
        return compare(expected, expected.queue, listing, ())
    lost_old = [entry.label for entry in lost if entry.label in old]
    are_oldest = _are_oldest(before, lost_old, shown)
    count, ghosts = len(old) + len(save.messages), _ghosts(before)
    for_ghosts = bool(_pushed_out(before, expected.queue, save, listing))
    reused = {seen.packet_id for seen in listing if seen.label not in old}
    overwritten = not for_ghosts and any(entry.label in old and entry.packet_id in reused for entry in lost)
    missing = ["packet-id"] if overwritten else []
    if count > save.limit or for_ghosts or (are_oldest and not overwritten and count + ghosts >= save.limit):
        missing.append("legal-trim")
    trimmed = (
        f"{names_of(lost_old or [one.label for one in lost])} trimmed with {len(expected.queue)} live, limit "
        f"{save.limit}"
    )
    trimmed += ": expired messages push out live ones" if for_ghosts else ""
    return [
        one._replace(text=trimmed) if one.law == "legal-trim" and is_missing(one) else one
        for one in compare(expected, expected.queue, listing, (*missing, "no-loss"))
    ]


def _pushed_out(
    before: Account, expected: Sequence[Entry], save: ObservedSave, listing: Sequence[ObservedMessage]
) -> set[int]:
    """Messages trimmed by a store that counts expired ones: live and expired together are more than the limit.

    The identifier of what it trims is free, so that a new message may well have it.
    """
    shown = set(labels_of(listing))
    old = {entry.label for entry in before.queue}
    lost = [entry.label for entry in expected if entry.label in old and entry.label not in shown]
    count = len(old) + len(save.messages)
    is_due = count <= save.limit < count + _ghosts(before)
    return set(lost) if is_due and _are_oldest(before, lost, shown) else set()


def _are_oldest(before: Account, lost: Sequence[int], shown: Collection[int | None]) -> bool:
    """Whether nothing that is older than what is lost is left."""
    at = {entry.label: place for place, entry in enumerate(before.queue)}
    return bool(lost) and not any(at[one] < at[lost[-1]] for one in at if one in shown)


def _ghosts(account: Account) -> int:
    """Messages of the session that have expired, of which a store may not have seen that."""
    return sum(fate == "expired" for _, fate in account.fates)


def _between(account: Account, save: ObservedSave, reply: Reply, listing: Sequence[ObservedMessage]) -> Judgement:
    """A save that failed and still changed something."""
    labels = [message.label for message in save.messages]
    shown = set(labels_of(listing))
    part = [label for label in labels if label in shown]
    lost = [entry.label for entry in account.queue if entry.label not in shown]
    text = f"the save failed ({reply.text}); saved all the same: {names_of(part)}; gone: {names_of(lost)}"
    if not part and not lost and len(listing) == len(account.queue):
        return _refused_without_reason(account, reply, listing, labels)
    found = [Discrepancy("all-or-nothing", text)]
    if lost:
        found.append(Discrepancy("no-loss", f"{names_of(lost)} gone: a save failed ({reply.text})"))
    return Judgement(account, found)


def _refused_without_reason(
    account: Account, reply: Reply, listing: Sequence[ObservedMessage], labels: list[int]
) -> Judgement:
    found = compare(account, account.queue, listing, LOST)
    if not found:
        found = [Discrepancy("no-loss", f"a valid save was refused: {reply.text}")]
    return Judgement(account.with_fates(labels, "refused"), found)
