"""A listing held against the account: which law each difference from the queue that it should show breaks."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.refinement.account import Account, Fate, ObservedMessage, name_of, names_of
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry

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
