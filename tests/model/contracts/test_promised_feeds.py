"""What the contract of feeds allows of delays, a reader's own messages, the store's identifiers and emptied claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orderlab.model.contracts.base import AnyOf, Call, Reply
from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.contracts.feed.promises import Feed, Promises
from orderlab.model.contracts.judge import is_same

BOUND = {
    "post": ("posts", "delay_ms", "client"),
    "list": ("marker", "client", "echo"),
    "claim": (),
    "renew": ("token",),
    "release": ("token",),
    "delete": ("message", "token"),
    "get": ("message",),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "post": {"ttl_ms": 3000, "delay_ms": 0, "client": "c0"},
    "list": {"marker": "", "count": 9, "client": "c1", "echo": 0},
    "claim": {"token": "", "count": 9, "ttl_ms": 1000},
    "renew": {"ttl_ms": 1000},
}


def feed(**promises: Any) -> FeedStore:
    return FeedStore(Promises.model_validate(promises), BOUND)


def after(contract: FeedStore, state: Feed, at_ms: int, name: str, reply: Reply, **fields: Any) -> list[Feed]:
    """The states after this reply; none where it is not allowed. The laws of the contract agree with that."""
    call = Call.of(name, **{**DEFAULTS.get(name, {}), **fields})
    state = contract.elapse(state, at_ms)
    found = []
    for allowed, then in contract.outcomes(state, call, at_ms):
        if allowed.accepts(reply) if isinstance(allowed, AnyOf) else is_same(allowed, reply):
            found.append(then(reply) if callable(then) else then)
    if found:
        assert False not in [one.check(contract, state, call, reply, at_ms) for one in contract.laws]
    return found


def one_after(contract: FeedStore, *steps: tuple[int, str, Reply, Mapping[str, Any]]) -> Feed:
    state = contract.initial()
    for at_ms, name, reply, fields in steps:
        (state,) = after(contract, state, at_ms, name, reply, **fields)
    return state


def test_a_delayed_message_is_neither_claimed_nor_listed_before_its_time() -> None:
    contract = feed()
    state = one_after(contract, (0, "post", 1, {"posts": (("a", "pa"),), "delay_ms": 500}))
    claimed = ("t", ("a", "pa"))
    assert after(contract, state, 499, "claim", None)
    assert not after(contract, state, 499, "claim", claimed)
    assert after(contract, state, 500, "claim", None)  # in that very millisecond both are right
    assert after(contract, state, 500, "claim", claimed)
    assert after(contract, state, 501, "claim", claimed)
    assert not after(contract, state, 501, "claim", None)
    assert not after(contract, state, 499, "list", ("1", ("a", "pa")))
    assert after(contract, state, 501, "list", ("1", ("a", "pa")))
    assert after(feed(lists_delayed=True), state, 499, "list", ("1", ("a", "pa")))
    assert after(contract, state, 499, "get", "pa", message="a")


def test_a_reader_sees_its_own_messages_where_it_asks_for_them() -> None:
    contract = feed()
    state = one_after(contract, (0, "post", 1, {"posts": (("a", "pa"),)}))
    assert after(contract, state, 1, "list", ("1", ("a", "pa")))
    assert not after(contract, state, 1, "list", ("1", ("a", "pa")), client="c0")
    assert after(contract, state, 1, "list", None, client="c0")
    assert after(contract, state, 1, "list", ("1", ("a", "pa")), client="c0", echo=1)


def test_the_store_names_messages_and_keeps_to_it() -> None:
    contract = feed(names="store")
    posts = (("a", "pa"), ("b", "pb"))
    assert not after(contract, contract.initial(), 0, "post", ("7",), posts=posts)
    assert not after(contract, contract.initial(), 0, "post", ("7", "7"), posts=posts)
    state = one_after(contract, (0, "post", ("7", "8"), {"posts": posts}))
    assert after(contract, state, 1, "list", ("8", ("7", "pa"), ("8", "pb")))
    assert not after(contract, state, 1, "list", ("8", ("7", "pa"), ("9", "pb")))
    assert not after(contract, state, 1, "list", ("8", ("8", "pa"), ("7", "pb")))
    assert not after(contract, state, 1, "post", "8", posts=(("c", "pc"),))
    assert after(contract, state, 1, "post", "9", posts=(("c", "pc"),))
    (left,) = after(contract, state, 1, "delete", "ok", message="7", token="")
    assert after(contract, left, 1, "get", None, message="7")
    assert after(contract, left, 1, "get", "pb", message="8")
    assert not contract.may_repeat(Call.of("post", posts=posts))


def test_an_identifier_is_learned_from_a_row_where_nobody_heard_it() -> None:
    contract = feed(names="store")
    call = Call.of("post", **{**DEFAULTS["post"], "posts": (("a", "pa"), ("b", "pb"))})
    ((allowed, then),) = contract.outcomes(contract.initial(), call, 0)
    unheard = then(allowed.example)
    assert [one.ident for one in unheard.messages] == [None, None]
    (state,) = after(contract, unheard, 1, "list", ("m", ("7", "pa"), ("8", "pb")))
    assert [one.ident for one in state.messages] == ["7", "8"]
    assert not after(contract, state, 1, "claim", ("t", ("6", "pa")))
    assert after(contract, state, 1, "claim", ("t", ("7", "pa")))


@pytest.mark.parametrize(("promise", "replies"), [("any", {"ok", "lost"}), ("end", {"lost"}), ("outlive", {"ok"})])
def test_a_claim_whose_only_message_was_deleted(promise: str, replies: set[str]) -> None:
    contract = feed(claims=promise)
    state = one_after(
        contract,
        (0, "post", 1, {"posts": (("a", "pa"),)}),
        (1, "claim", ("t", ("a", "pa")), {}),
        (2, "delete", "ok", {"message": "a", "token": "t"}),
    )
    released = {"ok", "lost"} if promise == "end" else replies  # releasing what is over may be told either
    for name, told in (("renew", replies), ("release", released)):
        assert {one for one in ("ok", "lost") if after(contract, state, 3, name, one, token="t")} == told
    assert not after(contract, state, 1002, "renew", "ok", token="t")  # it has lapsed
    assert after(contract, state, 1002, "renew", "lost", token="t")
    assert not after(contract, state, 3, "renew", "ok", token="u")
