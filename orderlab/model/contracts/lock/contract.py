"""The lock as a sequential specification: leases on one thing, at most so many at once.

A lease ends when it is released, or lapses. In its last millisecond it lives or has lapsed, both are right. What has
lapsed may still lie there until somebody looks, so that a late release of it may be told anything; it ends nothing.
What locks settle differently (who chooses the token, how many hold it, whether a holder may come in again) are their
``Promises``. ``lua/lock/lease.py`` is the same for one holder and tokens of the store, as an owner would write it.

Verified: who holds a lease, tokens, refusals, renewals, releases. Not verified: that waiting clients are served in any
order, and how soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.contracts.base import (
    DURATIONS_MS,
    AnyOf,
    Bound,
    Call,
    Clocks,
    Contract,
    ContractLaw,
    Exchange,
    Opening,
    Outcome,
    Reply,
    above,
    law,
    next_serial,
)

TTL_MS, LONG_TTL_MS = 1000, 3000
"""Leases that are tried, unless the store fixes how long one is."""
LAPSED_KEPT = 8
"""More than the leases that clients of a scope come back to."""


class Promises(BaseModel):
    """What a lock says of itself: table ``[promises]`` of its ``store.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: Literal["store", "caller"] = "store"
    """Who chooses the token of a lease. Those of a store are replies of acquire, each greater than all before."""
    holders: int = Field(1, ge=1, le=3)
    """Leases that may live at once: more than one of a semaphore."""
    reentrant: Literal["no", "extends", "counts"] = "no"
    """What acquire does for a caller whose own lease lives: refuse it; begin the lease anew; that, and count, so that
    it takes as many releases."""
    clocks: Clocks = "any"
    """Whether the clocks of clients may differ from the server's."""
    lapsed: Literal["over", "renewable"] = "over"
    """What renew does with a lease that has lapsed; "renewable": it may live again, as long as nobody needs its
    place."""
    ttl_ms: int | None = Field(None, ge=10)
    """How long a lease is: of a store that fixes it, and does not take <ttl_ms>."""


class Lease(NamedTuple):
    """One lease that lives."""

    token: Reply
    until_ms: int
    holds: int = 1
    """Times that its holder came in and did not leave."""


class LockState(NamedTuple):
    """The leases that live, the oldest first, and the newest token that the store ever gave."""

    leases: tuple[Lease, ...] = ()
    last: int = 0
    lapsed: tuple[Reply, ...] = ()
    """Tokens of leases that lapsed, the newest of them: their holders may not know yet."""

    def lease(self, token: Reply) -> Lease | None:
        """The lease of that token."""
        return next((one for one in self.leases if one.token == token), None)

    def with_lease(self, lease: Lease) -> LockState:
        """The lease in place of the one of its token."""
        return self._replace(leases=tuple(lease if one.token == lease.token else one for one in self.leases))

    def without(self, token: Reply) -> LockState:
        """The lease of that token gone."""
        return self._replace(leases=tuple(one for one in self.leases if one.token != token))

    def revived(self, lease: Lease) -> LockState:
        """A lease that had lapsed lives again."""
        left = tuple(one for one in self.lapsed if one != lease.token)
        return self._replace(leases=(*self.leases, lease), lapsed=left)

    def with_lapsed(self, *tokens: Reply) -> LockState:
        """The lock once these leases have lapsed."""
        left = tuple(one for one in self.leases if one.token not in tokens)
        return self._replace(leases=left, lapsed=(*self.lapsed, *tokens)[-LAPSED_KEPT:])


def is_refusal(reply: Reply) -> bool:
    """Whether a reply says no: 0, as a number or as text, or nothing."""
    return reply is None or reply in (0, "0")


REFUSED = AnyOf(is_refusal, 0, "0 or nothing")
ANYTHING = AnyOf(lambda reply: True, 0, "anything")
GRANTED = AnyOf(lambda reply: not is_refusal(reply), 1, "anything but 0 and nothing")


class LockStore(Contract):
    """See the module's text. A store need not have ``renew`` or ``release``; what it lacks is not tried."""

    operations: ClassVar = {"acquire": ("token", "ttl_ms"), "renew": ("token", "ttl_ms"), "release": ("token",)}
    optional: ClassVar = {"acquire": ("token", "ttl_ms"), "renew": ("ttl_ms",)}
    promises_table: ClassVar[type[Promises]] = Promises

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()
        self.bound = tuple(self.operations) if bound is None else tuple(bound)
        self.clients = min(self.promises.holders + 1, 3)  # type: ignore[misc]

    # -- the specification -------------------------------------------------------------------------------------

    def initial(self) -> LockState:
        return LockState()

    def elapse(self, state: LockState, now_ms: int) -> LockState:
        lapsed = [one.token for one in state.leases if now_ms > one.until_ms]
        return state.with_lapsed(*lapsed) if lapsed else state

    def deadlines_ms(self, state: LockState) -> Iterable[int]:
        return [one.until_ms for one in state.leases]

    def size(self, state: LockState) -> int:
        return len(state.leases)

    def outcomes(self, state: LockState, call: Call, now_ms: int) -> Iterable[Outcome]:
        for each in _at(state, now_ms):
            if call.name == "acquire":
                yield from self._acquire(each, call, now_ms)
            elif (lease := each.lease(call["token"])) is None:
                may_lie_there = call.name == "release" and call["token"] in each.lapsed
                yield ANYTHING if may_lie_there else REFUSED, each
                if call.name == "renew" and self._may_live_again(each, call["token"]):
                    yield GRANTED, each.revived(Lease(call["token"], now_ms + self._ttl_ms(call)))
            elif call.name == "renew":
                yield GRANTED, each.with_lease(lease._replace(until_ms=now_ms + self._ttl_ms(call)))
            elif lease.holds > 1:
                left = lease._replace(holds=lease.holds - 1)
                yield ANYTHING, each.with_lease(left)
                if self.promises.ttl_ms is not None:  # a release that is not the last one may begin the lease anew
                    yield ANYTHING, each.with_lease(left._replace(until_ms=now_ms + self.promises.ttl_ms))
            else:
                yield self._released, each.without(lease.token)

    def _may_live_again(self, state: LockState, token: Reply) -> bool:
        """Whether renew may bring a lease back that has lapsed."""
        renewable = self.promises.lapsed == "renewable" and token in state.lapsed
        return renewable and len(state.leases) < self.promises.holders

    @property
    def _released(self) -> AnyOf:
        """What tells of the last release: of a store that counts it may be how often it is held now, which is 0."""
        return GRANTED if self.promises.reentrant != "counts" else AnyOf(lambda reply: reply is not None, 1, "a reply")

    def _acquire(self, state: LockState, call: Call, now_ms: int) -> Iterator[Outcome]:
        until_ms = now_ms + self._ttl_ms(call)
        lease = state.lease(call["token"]) if self.promises.tokens == "caller" else None
        if lease is not None and self.promises.reentrant != "no":
            holds = lease.holds + 1 if self.promises.reentrant == "counts" else 1
            yield GRANTED, state.with_lease(Lease(lease.token, until_ms, holds))
        elif lease is not None or len(state.leases) >= self.promises.holders:
            yield REFUSED, state
        elif self.promises.tokens == "caller":
            yield GRANTED, state._replace(leases=(*state.leases, Lease(call["token"], until_ms)))
        else:
            leases = state.leases
            yield above(state.last), lambda token: state._replace(leases=(*leases, Lease(token, until_ms)), last=token)

    def _ttl_ms(self, call: Call) -> int:
        return self.promises.ttl_ms or int(call["ttl_ms"])

    # -- what is tried -----------------------------------------------------------------------------------------

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        return [one for one in self._calls(client, seen) if one.name in self.bound]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        acquired = [one for one in seen if one.call.name == "acquire"]
        number = next_serial(0, [one.call["token"] for one in acquired if self.promises.reentrant == "no"])
        token = f"t{client}" if self.promises.reentrant != "no" else f"t{client}.{number}"
        yield Call.of("acquire", token=token, ttl_ms=TTL_MS)
        granted = [one for one in reversed(acquired) if not is_refusal(one.reply)]
        for held in dict.fromkeys(self._token(one) for one in granted[:2]):
            yield Call.of("release", token=held)
            yield Call.of("renew", token=held, ttl_ms=TTL_MS)
        yield Call.of("acquire", token=token, ttl_ms=LONG_TTL_MS)
        if self.promises.tokens == "caller" and acquired and is_refusal(acquired[-1].reply):
            yield Call.of("release", token=self._token(acquired[-1]))  # as a `finally` does that asks nobody

    def _token(self, acquired: Exchange) -> Reply:
        return acquired.call["token"] if self.promises.tokens == "caller" else acquired.reply

    def ranges(self) -> Mapping[str, tuple[int, int]]:
        return {"ttl_ms": DURATIONS_MS}

    def openings(self) -> Sequence[Opening]:
        take = {"ttl_ms": TTL_MS}
        every = tuple((client, "acquire", take) for client in range(self.promises.holders))
        again = ((0, "acquire", take), TTL_MS + 1, (1, "acquire", take))
        opened = [Opening("as many leases as may live", every), Opening("a lease has lapsed, another lives", again)]
        if self.promises.reentrant != "no":
            opened.append(Opening("its holder came in twice", ((0, "acquire", take), (0, "acquire", take))))
        return opened

    # -- laws --------------------------------------------------------------------------------------------------

    @property
    def laws(self) -> tuple[ContractLaw, ...]:
        """Those of the class; of tokens that callers choose none grows."""
        return tuple(one for one in super().laws if one.name != "fencing" or self.promises.tokens == "store")

    @law("mutual-exclusion", "no more leases live at once than may, and none that has lapsed is renewed", ["acquire"])
    def mutual_exclusion(self, before: LockState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        mine = before.lease(call["token"]) if self.promises.tokens == "caller" or call.name != "acquire" else None
        if call.name == "acquire" and len(before.leases) >= self.promises.holders and mine is None:
            return is_refusal(reply)
        if call.name != "renew" or mine is not None or self._may_live_again(before, call["token"]):
            return None
        return is_refusal(reply)

    @law("fencing", "each token is greater than every earlier one", ["acquire"])
    def fencing(self, before: LockState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        return reply > before.last if call.name == "acquire" and type(reply) is int and reply else None

    @law("own-release", "nobody ends the lease of another", ["release"])
    def own_release(self, before: LockState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        known = before.lease(call["token"]) is not None or call["token"] in before.lapsed
        return is_refusal(reply) if call.name == "release" and not known else None

    @law("lease-kept", "a lease lives until its holder releases it or its time is over", ["renew", "release"])
    def lease_kept(self, before: LockState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        mine = before.lease(call["token"]) if call.name in ("renew", "release") else None
        if mine is None or mine.until_ms == now_ms or (call.name == "release" and self.promises.reentrant == "counts"):
            return None
        return not is_refusal(reply)

    @law("recovery", "a lock that may be had is granted", ["acquire"])
    def recovery(self, before: LockState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "acquire" or len(before.leases) >= self.promises.holders:
            return None
        mine = before.lease(call["token"]) if self.promises.tokens == "caller" else None
        return not is_refusal(reply) if mine is None else None


def _at(state: LockState, now_ms: int) -> Iterator[LockState]:
    """The state, and those in which leases that end in this very millisecond have lapsed."""
    due = [one.token for one in state.leases if one.until_ms == now_ms]
    for count in range(len(due) + 1):
        for lapsed in combinations(due, count):
            yield state.with_lapsed(*lapsed) if lapsed else state
