"""The feed of a store as a sequential specification: producers post, readers list after a marker, consumers claim for a
while.

Messages have one order, in which they were posted. A reader names the marker that it was told last and gets what comes
after it; a marker is whatever the store says, and stands for the last message of its page. A consumer holds what it
claims until it deletes it, releases the claim, or the claim lapses. Messages go when they are deleted, or when their
retention is over and no claim holds them.

``specification.py`` beside it is the same feed for the explorer of specifications: its flaws, and failover, which this
one has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice
from typing import ClassVar

from orderlab.model.contracts.base import AnyOf, Call, ContractLaw, Failed, Outcome, Reply, brief
from orderlab.model.contracts.feed.identifiers import law_in_own_names, named_by_store
from orderlab.model.contracts.feed.laws import FeedLaws
from orderlab.model.contracts.feed.promises import (
    BAD_MARKERS,
    ENUMERATED_MAX,
    GONE_MAX,
    MARKERS_MAX,
    START,
    UNHEARD,
    BadMarker,
    Feed,
    Message,
    payload_of,
)
from orderlab.model.contracts.feed.workload import FeedWorkload


class FeedStore(FeedLaws, FeedWorkload):
    """See the module's text. A store need not have every operation; what it lacks is not tried."""

    optional: ClassVar[Mapping[str, Sequence[str]]] = {
        "claim": ("token",),
        "post": ("delay_ms", "client"),
        "list": ("client", "echo"),
    }

    operations: ClassVar[Mapping[str, Sequence[str]]] = {
        "post": ("posts", "ttl_ms", "delay_ms", "client"),
        "list": ("marker", "count", "client", "echo"),
        "claim": ("token", "count", "ttl_ms"),
        "renew": ("token", "ttl_ms"),
        "release": ("token",),
        "delete": ("message", "token"),
        "get": ("message",),
    }
    """One of ``posts`` is (name, payload)."""

    def initial(self) -> Feed:
        return Feed()

    def elapse(self, state: Feed, now_ms: int) -> Feed:
        if not _has_due(state, now_ms):
            return state
        kept, gone = [], list(state.gone)
        for one in state.messages:
            lapsed = one.is_lapsed or now_ms > one.claimed_until_ms
            if lapsed and now_ms > one.until_ms:
                gone.append(one.name)
                continue
            if one.delayed_until_ms and now_ms > one.delayed_until_ms:
                one = one._replace(delayed_until_ms=0)
            kept.append(one if lapsed == one.is_lapsed else one._replace(is_lapsed=True))
        emptied = tuple(one for one in state.emptied if now_ms <= one[1])
        return state._replace(messages=tuple(kept), gone=tuple(gone[-GONE_MAX:]), emptied=emptied)

    def deadlines_ms(self, state: Feed) -> Iterable[int]:
        moments_ms = [one.until_ms for one in state.messages]
        moments_ms += [one.claimed_until_ms for one in state.messages if not one.is_lapsed]
        moments_ms += [one.delayed_until_ms for one in state.messages if one.delayed_until_ms]
        return [*moments_ms, *(at for _, at in state.emptied)]

    def size(self, state: Feed) -> int:
        return len(state.messages)

    def outcomes(self, state: Feed, call: Call, now_ms: int) -> Iterable[Outcome]:
        if call.name in ("list", "claim") and 0 < self.promises.count_max < call["count"]:
            told = f"an error (count_max is {self.promises.count_max})"
            yield AnyOf(lambda reply: isinstance(reply, Failed), Failed("too many"), told), state
            return
        allowed = _OUTCOMES[call.name]
        for each in self._at(state, now_ms):
            if self.promises.names == "store":
                yield from named_by_store(partial(allowed, self), each, call, now_ms)
            else:
                yield from allowed(self, each, call, now_ms)

    @property
    def laws(self) -> tuple[ContractLaw, ...]:
        """Those of the class, whoever names messages."""
        return super().laws if self.promises.names == "caller" else tuple(map(law_in_own_names, super().laws))

    def may_repeat(self, call: Call) -> bool:
        return call.name != "post" or self.promises.names == "caller"

    def _at(self, state: Feed, now_ms: int) -> Iterator[Feed]:
        """The state, and those in which some deadlines of this very millisecond have passed."""
        due = [one for one in state.messages if now_ms in (one.until_ms, one.claimed_until_ms, one.delayed_until_ms)]
        for count in range(len(due) + 1) if len(due) <= ENUMERATED_MAX else (0, len(due)):
            for passed in combinations(due, count):
                over, changed = [], []
                for one in passed:
                    lapsed = one.is_lapsed or now_ms >= one.claimed_until_ms
                    delayed = one.delayed_until_ms if now_ms < one.delayed_until_ms else 0
                    if lapsed and now_ms >= one.until_ms:
                        over.append(one.name)
                    else:
                        changed.append(one._replace(is_lapsed=lapsed, delayed_until_ms=delayed))
                found = state.without(*over) if over else state
                yield found.with_messages(*changed) if changed else found

    def _post(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        there = state.names
        new = [name for name, _ in call["posts"] if name not in there]
        asked = dict(call.fields)
        until_ms = now_ms + asked["delay_ms"] if self.delay_ms and asked.get("delay_ms") else 0
        poster = asked.get("client", "") if self.hides_own else ""
        messages = [
            Message(
                name,
                state.posted + at,
                now_ms + call["ttl_ms"],
                delayed_until_ms=until_ms,
                was_delayed=until_ms > 0,
                poster=poster,
            )
            for at, name in enumerate(new, 1)
        ]
        yield len(new), state._replace(messages=(*state.messages, *messages), posted=state.posted + len(new))

    def _list(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        after = self._after(state, call)
        if after is None:
            yield from self._list_after_none(state, call)
            return
        yield self._pages(call["marker"], after, call["count"]), self._told(state, call["marker"], after)

    def _list_after_none(self, state: Feed, call: Call) -> Iterator[Outcome]:
        """What follows a marker that nobody was told: what the store promises of it."""
        promise = BAD_MARKERS.get(call["marker"])
        answer: BadMarker = "any" if promise is None else getattr(self.promises, promise)
        told = f"{promise} is {answer}"
        if answer == "any":
            yield AnyOf(lambda reply: True, None, "anything: nobody was told this marker"), state
        elif answer == "refused":
            yield AnyOf(lambda reply: isinstance(reply, Failed), Failed("no marker"), f"an error ({told})"), state
        elif answer == "start":
            visible = self._visible(state, call)
            yield self._pages(call["marker"], visible, call["count"]), self._told(state, START, visible)
        else:
            flag = (1,) if self.promises.tells_end else ()
            yield (
                AnyOf(
                    lambda reply: (
                        (page := self.page(reply)) is not None and not page.names and page.is_end is not False
                    ),
                    (UNHEARD, *flag),
                    f"the end ({told})",
                ),
                state,
            )

    def _pages(self, marker: Reply, after: Sequence[Message], most: int) -> AnyOf:
        """A reply with some of the next messages, at most ``most``."""
        names = tuple([one.name for one in after[:most]])
        payloads = tuple(map(payload_of, names))

        def accepts(reply: Reply) -> bool:
            page = self.page(reply)
            count = 0 if page is None else len(page.names)
            if page is None or count > len(names) or page.names != names[:count] or page.payloads != payloads[:count]:
                return False
            is_end = count == len(after)
            if page.is_end is None:
                return count > 0 or is_end
            return page.is_end <= is_end and (count > 0 or page.is_end or page.marker != marker)

        flag = (int(len(names) == len(after)),) if self.promises.tells_end else ()
        if after and not names and not self.promises.tells_end:
            example: Reply = ("?", ("?", "?"))  # no empty page is right: a reply that is never given
            return AnyOf(
                lambda reply: reply == example, example, f"the next of {brief(tuple(one.name for one in after))}"
            )
        example = (UNHEARD, *flag, *zip(names, payloads, strict=True))
        return AnyOf(accepts, example, f"{f'the first of {brief(names)}' if names else 'no message'} after the marker")

    def _told(self, state: Feed, marker: Reply, after: Sequence[Message]) -> Callable[[Reply], Feed]:
        """The state once a reader has read a page of ``after``. A page that nobody heard tells no marker, however long
        it was."""

        def heard(reply: Reply) -> Feed:
            page = self.page(reply)
            if page is None:
                return state
            return state.told(
                page.marker, after[len(page.names) - 1].serial if page.names else state.position(marker) or 0
            )

        return heard

    def _claim(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        free = [one for one in state.messages if one.is_lapsed and not one.delayed_until_ms]
        if not free:
            yield None, state
            return
        given = call["token"] if self.promises.tokens == "caller" else None
        until_ms = now_ms + call["ttl_ms"]
        if len(free) > ENUMERATED_MAX:
            yield self._claimed(state, call, free, given), self._claiming(state, until_ms)
            return
        for count in range(1, min(call["count"], len(free)) + 1):
            for held in combinations(free, count):
                if self._is_in_turn(held, free):
                    yield self._claimed(state, call, held, given, count), self._claiming(state, until_ms)

    @staticmethod
    def _is_in_turn(held: Sequence[Message], free: Sequence[Message]) -> bool:
        """Whether those that nobody has claimed before are the first of such; one whose claim has lapsed is free once
        it is found."""
        fresh = [one for one in held if one.has_place]
        return fresh == list(islice((one for one in free if one.has_place), len(fresh)))

    def _claimed(
        self, state: Feed, call: Call, free: Sequence[Message], given: Reply, count: int | None = None
    ) -> AnyOf:
        """A reply with a claim on ``count`` of these, or on any that are in their turn."""
        by_name = {one.name: one for one in free}

        def accepts(reply: Reply) -> bool:
            if not isinstance(reply, tuple) or (
                reply[0] != given if given is not None else reply[0] is None or reply[0] in state.tokens
            ):
                return False
            held = [by_name[name] for name in self._named(call, reply) if name in by_name]
            return (
                len(held) == len(reply) - 1 == len({one.name for one in held})
                and (len(held) == count if count is not None else 0 < len(held) <= call["count"])
                and all(row[1] == payload_of(row[0]) for row in reply[1:])
                and held == sorted(held, key=lambda one: one.serial)
                and self._is_in_turn(held, free)
            )

        shown = free if count is not None else free[: call["count"]]
        example = (UNHEARD if given is None else given, *((one.name, payload_of(one.name)) for one in shown))
        return AnyOf(accepts, example, f"a claim on {brief(tuple(one.name for one in shown))}")

    def _claiming(self, state: Feed, until_ms: int) -> Callable[[Reply], Feed]:
        kept_ms = until_ms + self.promises.grace_ms

        def after(reply: Reply) -> Feed:
            names = {row[0] for row in reply[1:]}
            messages = [
                one._replace(
                    token=reply[0], claimed_until_ms=until_ms, is_lapsed=False, until_ms=max(one.until_ms, kept_ms)
                )
                if one.name in names
                else one
                for one in state.messages
            ]
            tokens = state.tokens if reply[0] == UNHEARD else (*state.tokens, reply[0])[-MARKERS_MAX:]
            return state._replace(messages=tuple(messages), tokens=tokens)

        return after

    def _renew(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        held = self._held(state, call["token"])
        live = [one for one in held if not one.is_lapsed]
        until_ms = now_ms + call["ttl_ms"]
        if not live:
            yield from self._of_emptied(state, call, now_ms, state.with_emptied(call["token"], until_ms))
            return
        kept_ms = until_ms + self.promises.grace_ms
        yield (
            "ok",
            state.with_messages(
                *(one._replace(claimed_until_ms=until_ms, until_ms=max(one.until_ms, kept_ms)) for one in live)
            ),
        )

    def _release(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        live = [one for one in self._held(state, call["token"]) if not one.is_lapsed]
        freed = state.with_messages(*(one._replace(is_lapsed=True, token=None) for one in live))
        if not live:
            yield from self._of_emptied(state, call, now_ms, state.with_emptied(call["token"], None))
            if call["token"] in dict(state.emptied):
                return
        yield "ok", freed  # releasing what has lapsed changes nothing either way
        # A message that was kept for the claim alone goes with it, sooner or later.
        over = [one.name for one in live if one.until_ms < now_ms]
        if over:
            yield "ok", freed.without(*over)

    def _of_emptied(self, state: Feed, call: Call, now_ms: int, after: Feed) -> Iterator[Outcome]:
        """What renew and release do with a claim that holds nothing: ``after``, where it lives on all the same."""
        until_ms = dict(state.emptied).get(call["token"])
        lives_on = until_ms is not None and self.promises.claims != "end"
        if not lives_on or self.promises.claims == "any" or until_ms == now_ms:
            yield "lost", state
        if lives_on:
            yield "ok", after

    def _deleted(self, state: Feed, message: Message) -> Feed:
        """Without the message; its claim may go on."""
        after = state.without(message.name)
        if message.is_lapsed or self.promises.claims == "end":
            return after
        if any(not one.is_lapsed and one.token == message.token for one in after.messages):
            return after
        return after.with_emptied(message.token, message.claimed_until_ms)

    def _delete(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        message = state.message(call["message"])
        if message is None:
            yield from ((word, state) for word in ("lost", "ok") if self.promises.gone in (word, "any"))
        elif not message.is_lapsed:
            yield ("ok", self._deleted(state, message)) if message.token == call["token"] else ("lost", state)
        else:
            yield "ok", state.without(message.name)
            if call["token"] is not None and call["token"] != START:
                yield "lost", state

    def _get(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield None if state.message(call["message"]) is None else payload_of(call["message"]), state


def _has_due(state: Feed, now_ms: int) -> bool:
    """Whether a deadline has passed: with many messages, of which most are as they were, this is asked most."""
    for one in state.messages:
        if now_ms > (one.until_ms if one.is_lapsed else one.claimed_until_ms) or 0 < one.delayed_until_ms < now_ms:
            return True
    return any(now_ms > at for _, at in state.emptied)


_Outcomes = Callable[[FeedStore, Feed, Call, int], Iterator[Outcome]]
_OUTCOMES: Mapping[str, _Outcomes] = {name: getattr(FeedStore, f"_{name}") for name in FeedStore.operations}
