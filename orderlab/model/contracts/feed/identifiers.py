"""Feeds whose store names the messages: what replies say, told in the names that the specification goes by.

What is posted says its own name in its payload, which is another each time. An identifier is learned from the reply of
post or, where nobody heard that, from the first row in which the message comes; from then on it must stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from orderlab.model.contracts.base import AnyOf, Call, ContractLaw, Outcome, Reply
from orderlab.model.contracts.feed.promises import UNHEARD, Feed, Message, payload_of


def in_own_names(state: Feed, call: Call) -> Call:
    """The call with the names of the specification in place of identifiers; one that nobody was told stays."""
    named = {one.ident: one.name for one in state.messages if one.ident is not None}
    return replace(
        call,
        fields=tuple((field, named.get(value, value) if field == "message" else value) for field, value in call.fields),
    )


def read(state: Feed, call: Call, reply: Reply) -> Reply:
    """The reply likewise: rows by names, of post how many identifiers there are. Rows that do not fit stay."""
    if call.name == "post":
        new = _identifiers(reply)
        known = {one.ident for one in state.messages}
        return len(new) if len(set(new)) == len(new) and not known.intersection(new) - {None} else reply
    if call.name not in ("list", "claim") or not isinstance(reply, tuple) or hasattr(reply, "text"):
        return reply
    known_as = {one.ident: one for one in state.messages if one.ident is not None}
    by_payload = {payload_of(one.name): one for one in state.messages}
    return tuple(_row(row, known_as, by_payload) for row in reply)


def _row(row: Reply, known_as: dict[Reply, Message], by_payload: dict[str, Message]) -> Reply:
    if not isinstance(row, tuple) or len(row) != 2 or (message := by_payload.get(row[1])) is None:
        return row
    fits = row[0] == message.ident if message.ident is not None else row[0] is not None and row[0] not in known_as
    return (message.name, row[1]) if fits else row


def _identifiers(reply: Reply) -> tuple[Reply, ...]:
    """What post says: one for each message, or one alone."""
    return reply if isinstance(reply, tuple) else () if reply is None else (reply,)


def learned(state: Feed, after: Feed, call: Call, reply: Reply) -> Feed:
    """``after``, with the identifiers that the reply tells of messages that had none."""
    idents: dict[str, Reply] = {}
    if call.name == "post":
        idents = dict(zip((name for name, _ in call["posts"]), _identifiers(reply), strict=False))
    elif isinstance(reply, tuple):
        rows = [row for row in reply if isinstance(row, tuple) and len(row) == 2]
        names = {payload_of(one.name): one.name for one in state.messages}
        idents = {names[row[1]]: row[0] for row in rows if row[1] in names}
    new = [
        one._replace(ident=idents[one.name])
        for one in after.messages
        if one.ident is None and one.name in idents and not _is_made_up(idents[one.name], one.name)
    ]
    return after.with_messages(*new) if new else after


def _is_made_up(ident: Reply, name: str) -> bool:
    """Whether it stands in a reply that nobody heard."""
    return ident == name or (isinstance(ident, str) and ident.startswith(UNHEARD))


def law_in_own_names(one: ContractLaw) -> ContractLaw:
    """The law, which hears calls and replies in the names of the specification."""

    def check(contract: Any, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        return one.check(contract, before, in_own_names(before, call), read(before, call, reply), now_ms)

    return replace(one, check=check)


def named_by_store(
    outcomes: Callable[[Feed, Call, int], Iterable[Outcome]], state: Feed, call: Call, now_ms: int
) -> Iterator[Outcome]:
    """What is allowed, of a store that chooses the identifiers."""
    for allowed, after in outcomes(state, in_own_names(state, call), now_ms):
        yield _allowed(state, call, allowed), _after(state, call, after)


def _allowed(state: Feed, call: Call, allowed: Reply) -> Reply:
    if call.name == "post":
        example = tuple(f"{UNHEARD}{at}" for at in range(allowed))
        return AnyOf(lambda reply: read(state, call, reply) == allowed, example, f"{allowed} new identifiers")
    if not isinstance(allowed, AnyOf):
        return allowed
    return replace(allowed, accepts=lambda reply: allowed.accepts(read(state, call, reply)))


def _after(state: Feed, call: Call, after: Feed | Callable[[Reply], Feed]) -> Callable[[Reply], Feed]:
    def heard(reply: Reply) -> Feed:
        there = after(read(state, call, reply)) if callable(after) else after
        return learned(state, there, call, reply)

    return heard
