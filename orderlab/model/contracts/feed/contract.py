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
from itertools import combinations, repeat
from operator import itemgetter
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.contracts.contract import (
    AnyOf,
    Bound,
    Call,
    Contract,
    Crowd,
    Exchange,
    Failed,
    Opening,
    Outcome,
    Reply,
    fresh_name,
    law,
    next_number,
    passes,
)

CLAIM_MS, KEPT_MS, PAGE = 1000, 3000, 2
MANY = 1000
"""What a store is asked for that is not told how many, and gives as many as it likes."""
"""What is tried in small scopes."""
MARKERS_MAX, GONE_MAX = 6, 4
"""Of what clients were told, how much the specification remembers: markers, and names of messages that went by time."""
ENUMERATED_MAX = 6
"""Messages from which on not every choice among them is told apart: which are claimed, if nobody has heard; which lapse
in one millisecond."""
READ_EVERY = 50
"""Of messages that were posted at once, which are read: those beside the multiples of it, where pieces of a round
length meet."""
FLAGS: Mapping[Reply, bool] = {0: False, "0": False, None: False, 1: True, "1": True}
"""How list says whether that is the end: nothing else is a flag, for clients compare with 1 or with 0."""
UNHEARD = "?"
"""What a reply that nobody heard tells: no marker, no token."""
START = ""
"""The marker of a reader that has seen nothing."""
BAD_MARKERS = {
    "-1": "marker_negative",
    "9" * 40: "marker_huge",
    "no marker": "marker_text",
    "999999937": "marker_foreign",
}
"""Markers that no reader was told, as they are tried -> the promise that says what a store does with such."""
BadMarker = Literal["any", "refused", "start", "end"]
"""Nothing is promised; an error; as a reader that has seen nothing; no message, and that is the end."""


class Promises(BaseModel):
    """What a feed says of itself: table ``[promises]`` of its ``store.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: Literal["store", "caller"] = "store"
    """Who chooses the token of a claim."""
    grace_ms: int = Field(0, ge=0)
    """What a claimed message is kept beyond the claim's own time, at least."""
    retention_ms: int = Field(KEPT_MS, ge=10)
    """How long a message is kept: by a store that fixes it, and whose post does not take <ttl_ms>."""
    claim_ms: int = Field(CLAIM_MS, ge=10)
    """How long a claim is: of a store that fixes it."""
    count_max: int = Field(0, ge=0)
    """list and claim refuse to be asked for more messages than this; 0: they refuse nothing, and may give fewer."""
    lists_claimed: bool = True
    """Readers see what is claimed; otherwise it is as if it were not there."""
    tells_end: bool = False
    """list replies (marker, whether that is the end, messages ...); otherwise (marker, messages ...), and an empty page
    is the end."""
    gone: Literal["lost", "ok", "any"] = "lost"
    """What delete replies of a message that is not there (any more)."""
    marker_negative: BadMarker = "any"
    """What list does with a marker below all."""
    marker_huge: BadMarker = "any"
    """With a number that fits no integer."""
    marker_text: BadMarker = "any"
    """With one that is no number."""
    marker_foreign: BadMarker = "any"
    """With the number of a message that was never posted here, as from another feed."""


class Message(NamedTuple):
    """One message that is there."""

    name: str
    serial: int
    """Its place in the order of posting."""
    until_ms: int
    """When its retention is over."""
    token: Reply = None
    """Of its last claim; None: nobody has claimed it."""
    claimed_until_ms: int = 0
    is_lapsed: bool = True
    """No claim holds it."""


class Feed(NamedTuple):
    """The messages in their order, and what clients were told."""

    messages: tuple[Message, ...] = ()
    posted: int = 0
    markers: tuple[tuple[Reply, int], ...] = ()
    """Marker -> the serial of the last message of its page; the newest last."""
    gone: tuple[str, ...] = ()
    """Messages that went by time, the newest last."""
    tokens: tuple[Reply, ...] = ()
    """Of claims that were given, the newest last."""

    def message(self, name: Reply) -> Message | None:
        """The message of that name."""
        return next((one for one in self.messages if one.name == name), None)

    def named(self, names: Iterable[Reply]) -> list[Message]:
        """Those of these names that are there."""
        there: dict[Reply, Message] = {one.name: one for one in self.messages}
        return [there[name] for name in names if name in there]

    def position(self, marker: Reply) -> int | None:
        """Where a marker stands, None if it was told to nobody."""
        return 0 if marker == START else dict(self.markers).get(marker)

    def with_messages(self, *changed: Message) -> Feed:
        """These in place of those of the same names."""
        new = {one.name: one for one in changed}
        return self._replace(messages=tuple(new.get(one.name, one) for one in self.messages))

    def without(self, *names: str) -> Feed:
        """These gone."""
        return self._replace(messages=tuple(one for one in self.messages if one.name not in names))

    def told(self, marker: Reply, serial: int) -> Feed:
        """Once a reader was told a marker."""
        if marker == UNHEARD:
            return self
        rest = tuple(one for one in self.markers if one[0] != marker)
        return self._replace(markers=(*rest, (marker, serial))[-MARKERS_MAX:])


class Page(NamedTuple):
    """What list replied."""

    marker: Reply
    is_end: bool | None
    """None: told by the page alone."""
    names: tuple[Reply, ...]
    payloads: tuple[Reply, ...]


def payload_of(name: Reply) -> str:
    """What a message of that name says."""
    return f"p{name}"


class FeedStore(Contract):
    """See the module's text. A store need not have every operation; what it lacks is not tried."""

    optional: ClassVar[Mapping[str, Sequence[str]]] = {"claim": ("token",)}
    operations: ClassVar[Mapping[str, Sequence[str]]] = {
        "post": ("posts", "ttl_ms"),
        "list": ("marker", "count"),
        "claim": ("token", "count", "ttl_ms"),
        "renew": ("token", "ttl_ms"),
        "release": ("token",),
        "delete": ("message", "token"),
        "get": ("message",),
    }
    """One of ``posts`` is (name, payload)."""
    promises_table: ClassVar[type[Promises]] = Promises
    clients: ClassVar[int] = 2
    steps_per_client: ClassVar[int] = 3

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()
        self.bound = tuple(self.operations) if bound is None else tuple(bound)
        """Operations that the store has."""
        self.kept_ms, self.claim_ms = self.promises.retention_ms, self.promises.claim_ms
        self.short_ms = self.kept_ms // 2 if passes(bound or (), "post", "ttl_ms") else self.kept_ms
        self.brief_ms = self.claim_ms // 3 if passes(bound or (), "claim", "ttl_ms") else self.claim_ms
        self.listed = PAGE if passes(bound or (), "list", "count") else MANY
        self.claims_one, self.claims_more = (1, PAGE) if passes(bound or (), "claim", "count") else (MANY, MANY)

    # -- the specification -------------------------------------------------------------------------------------

    def initial(self) -> Feed:
        return Feed()

    def elapse(self, state: Feed, now_ms: int) -> Feed:
        kept, gone = [], list(state.gone)
        for one in state.messages:
            lapsed = one.is_lapsed or now_ms > one.claimed_until_ms
            if lapsed and now_ms > one.until_ms:
                gone.append(one.name)
            else:
                kept.append(one if lapsed == one.is_lapsed else one._replace(is_lapsed=True))
        after = state._replace(messages=tuple(kept), gone=tuple(gone[-GONE_MAX:]))
        return state if after == state else after

    def deadlines_ms(self, state: Feed) -> Iterable[int]:
        return [
            at for one in state.messages for at in (one.until_ms, *([] if one.is_lapsed else [one.claimed_until_ms]))
        ]

    def size(self, state: Feed) -> int:
        return len(state.messages)

    def outcomes(self, state: Feed, call: Call, now_ms: int) -> Iterable[Outcome]:
        if call.name in ("list", "claim") and 0 < self.promises.count_max < call["count"]:
            told = f"an error (count_max is {self.promises.count_max})"
            yield AnyOf(lambda reply: isinstance(reply, Failed), Failed("too many"), told), state
            return
        for each in self._at(state, now_ms):
            yield from _OUTCOMES[call.name](self, each, call, now_ms)

    def _at(self, state: Feed, now_ms: int) -> Iterator[Feed]:
        """The state, and those in which some deadlines of this very millisecond have passed."""
        due = [one for one in state.messages if now_ms in (one.until_ms, one.claimed_until_ms)]
        for count in range(len(due) + 1) if len(due) <= ENUMERATED_MAX else (0, len(due)):
            for passed in combinations(due, count):
                found = state
                for one in passed:
                    lapsed = one.is_lapsed or now_ms >= one.claimed_until_ms
                    over = lapsed and now_ms >= one.until_ms
                    found = found.without(one.name) if over else found.with_messages(one._replace(is_lapsed=lapsed))
                yield found

    def _post(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        new = [name for name, _ in call["posts"] if state.message(name) is None]
        messages = [Message(name, state.posted + at, now_ms + call["ttl_ms"]) for at, name in enumerate(new, 1)]
        yield len(new), state._replace(messages=(*state.messages, *messages), posted=state.posted + len(new))

    def _visible(self, state: Feed) -> list[Message]:
        """What readers see."""
        return [one for one in state.messages if self.promises.lists_claimed or one.is_lapsed]

    def _after(self, state: Feed, marker: Reply) -> list[Message] | None:
        """What readers see after a marker, None for a marker that nobody was told."""
        position = state.position(marker)
        return None if position is None else [one for one in self._visible(state) if one.serial > position]

    def _list(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        after = self._after(state, call["marker"])
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
            visible = self._visible(state)
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
            return AnyOf(lambda reply: reply == example, example, f"the next of {[one.name for one in after]}")
        example = (UNHEARD, *flag, *zip(names, payloads, strict=True))
        return AnyOf(accepts, example, f"{f'the first of {list(names)}' if names else 'no message'} after the marker")

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

    def page(self, reply: Reply) -> Page | None:
        """A reply of list taken apart, None when it has another shape."""
        if reply is None or reply == ():
            return Page(None, None if not self.promises.tells_end else True, (), ())
        flags = 2 if self.promises.tells_end else 1
        if not isinstance(reply, tuple) or isinstance(reply, Failed) or len(reply) < flags:
            return None
        rows = reply[flags:]
        if not all(map(isinstance, rows, repeat(tuple))) or any(map((2).__ne__, map(len, rows))):
            return None
        is_end = None
        if self.promises.tells_end:
            if reply[1] not in FLAGS:
                return None
            is_end = FLAGS[reply[1]]
        return Page(reply[0], is_end, tuple(map(itemgetter(0), rows)), tuple(map(itemgetter(1), rows)))

    def _claim(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        free = [one for one in state.messages if one.is_lapsed]
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
        fresh = [one for one in free if one.token is None]
        count = sum(one.token is None for one in held)
        return [one for one in held if one.token is None] == fresh[:count]

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
        return AnyOf(accepts, example, f"a claim on {[one.name for one in shown]}")

    def _claiming(self, state: Feed, until_ms: int) -> Callable[[Reply], Feed]:
        kept_ms = until_ms + self.promises.grace_ms

        def after(reply: Reply) -> Feed:
            names = {row[0] for row in reply[1:]}
            held = [
                one._replace(
                    token=reply[0], claimed_until_ms=until_ms, is_lapsed=False, until_ms=max(one.until_ms, kept_ms)
                )
                for one in state.messages
                if one.name in names
            ]
            tokens = state.tokens if reply[0] == UNHEARD else (*state.tokens, reply[0])[-MARKERS_MAX:]
            return state.with_messages(*held)._replace(tokens=tokens)

        return after

    @staticmethod
    def _held(state: Feed, token: Reply) -> list[Message]:
        """What a claim holds or, once it has lapsed, may still hold."""
        return [one for one in state.messages if one.token == token and token is not None]

    def _renew(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        held = self._held(state, call["token"])
        live = [one for one in held if not one.is_lapsed]
        if not live:
            yield "lost", state
            return
        until_ms = now_ms + call["ttl_ms"]
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
            yield "lost", state
        yield "ok", freed  # releasing what has lapsed changes nothing either way
        # A message that was kept for the claim alone goes with it, sooner or later.
        over = [one.name for one in live if one.until_ms < now_ms]
        if over:
            yield "ok", freed.without(*over)

    def _delete(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        message = state.message(call["message"])
        if message is None:
            yield from ((word, state) for word in ("lost", "ok") if self.promises.gone in (word, "any"))
        elif not message.is_lapsed:
            yield ("ok", state.without(message.name)) if message.token == call["token"] else ("lost", state)
        else:
            yield "ok", state.without(message.name)
            if call["token"] is not None and call["token"] != START:
                yield "lost", state

    def _get(self, state: Feed, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield None if state.message(call["message"]) is None else payload_of(call["message"]), state

    # -- calls worth trying ------------------------------------------------------------------------------------

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        return [one for one in self._calls(client, seen) if one.name in self.bound]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        number = next_number([[name for name, _ in one.call["posts"]] for one in seen if one.call.name == "post"])
        names = [fresh_name(number + at, client) for at in range(2)]
        rows = tuple((name, payload_of(name)) for name in names)
        lists = [one for one in reversed(seen) if one.call.name == "list" and one.call["marker"] not in BAD_MARKERS]
        marker = next((page.marker for one in lists if (page := self.page(one.reply)) and page.marker), START)
        yield Call.of("post", posts=rows[:1], ttl_ms=self.kept_ms)
        yield Call.of("list", marker=marker, count=self.listed)
        claims = [
            one.reply
            for one in reversed(seen)
            if one.call.name == "claim" and isinstance(one.reply, tuple) and len(one.reply) > 1
        ][:1]
        for token, *held in claims:
            yield Call.of("delete", message=held[0][0] if isinstance(held[0], tuple) else held[0], token=token)
            yield Call.of("renew", token=token, ttl_ms=self.claim_ms)
            yield Call.of("release", token=token)
        yield Call.of("claim", token=f"t{client}.{len(seen)}", count=self.claims_one, ttl_ms=self.claim_ms)
        yield Call.of("post", posts=rows, ttl_ms=self.short_ms)
        for one in claims:
            yield Call.of("get", message=one[1][0] if isinstance(one[1], tuple) else one[1])
        yield Call.of("claim", token=f"u{client}.{len(seen)}", count=self.claims_more, ttl_ms=self.brief_ms)
        for name in _listed(self, seen)[:1]:
            yield Call.of("delete", message=name, token=START)
            yield Call.of("get", message=name)
        if client == 0 and seen:  # one at a time, so that they take little from what matters more
            yield Call.of("list", marker=list(BAD_MARKERS)[(len(seen) - 1) % len(BAD_MARKERS)], count=self.listed)

    def openings(self) -> Sequence[Opening]:
        one, two = (0, "post", {"ttl_ms": self.kept_ms}), (0, "post", {"ttl_ms": self.short_ms})
        return (
            Opening("with two messages that a reader has seen", (two, (1, "list", {}))),
            Opening(
                "with messages that were read, claimed and released",
                (two, (1, "list", {}), (0, "claim", {}), (0, "release", {})),
            ),
            Opening("with a message that is claimed", (one, (0, "claim", {"count": self.claims_one}))),
            Opening(
                "with two claims",
                (one, two, (0, "claim", {"count": self.claims_one}), (1, "claim", {"count": self.claims_more})),
            ),
            Opening(
                "with claims that have lapsed",
                (
                    one,
                    one,
                    (0, "claim", {"count": self.claims_one}),
                    (1, "claim", {"count": self.claims_one}),
                    self.claim_ms + 1,
                ),
            ),
            Opening(
                "with a claim that has passed to another", (one, (0, "claim", {}), self.claim_ms + 1, (1, "claim", {}))
            ),
            Opening(
                "with a claim beyond the retention",
                (two, self.short_ms - 1, (0, "claim", {"count": self.claims_more}), 2),
            ),
            Opening("with messages that have lapsed", (two, self.short_ms + 1)),
        )

    def crowds(self) -> Sequence[Crowd]:
        def posts(size: int, ttl_ms: int = self.kept_ms) -> Iterator[tuple[int, Call] | int]:
            rows = tuple((name, payload_of(name)) for name in (f"m{size - number}" for number in range(size)))
            yield 0, Call.of("post", posts=rows, ttl_ms=ttl_ms)

        def lapsed(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size, 1 if self.short_ms < self.kept_ms else self.kept_ms)
            yield 2 if self.short_ms < self.kept_ms else self.kept_ms + 1

        def behind(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from lapsed(size)
            yield 0, Call.of("post", posts=(("new", payload_of("new")),), ttl_ms=self.kept_ms)

        def claims(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size)
            yield from (
                (0, Call.of("claim", token=f"t{number}", count=self.claims_one, ttl_ms=self.claim_ms))
                for number in range(size)
            )
            yield self.claim_ms + 1

        def read(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size)
            asked = min(size, self.promises.count_max or size)
            if "list" in self.bound:
                yield 0, Call.of("list", marker=START, count=asked)
            around = {at + by for at in range(0, size + 1, READ_EVERY) for by in (-1, 0, 1)} & {*range(size)}
            yield from ((0, Call.of("get", message=f"m{size - at}")) for at in sorted(around) if "get" in self.bound)
            if "claim" in self.bound:
                yield 0, Call.of("claim", token="all", count=asked, ttl_ms=self.claim_ms)

        def held(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size)
            yield 0, Call.of("claim", token="all", count=min(size, self.promises.count_max or size), ttl_ms=CLAIM_MS)

        return (
            Crowd("messages", (300, 8100), posts),
            Crowd("messages that are read", (100, 1100), read, is_asked=True),
            *(
                [Crowd("messages under one claim", (20, 8100), held, is_asked=True, clients=1)]
                if {"claim", "renew"} <= {*self.bound}
                else []
            ),
            Crowd("messages that have lapsed", (300, 8100), lapsed),
            Crowd("claims that have lapsed", (150, 400), claims),
            Crowd("messages before the last that have lapsed", (300, 1500), behind),
        )

    # -- laws --------------------------------------------------------------------------------------------------

    def _listing(self, before: Feed, call: Call, reply: Reply) -> tuple[list[str], Page] | None:
        """What a reader ought to see next and what it was told."""
        page = self.page(reply) if call.name == "list" else None
        after = self._after(before, call["marker"]) if page is not None else None
        return None if page is None or after is None else ([one.name for one in after], page)

    @law("cursor-safe", "nothing becomes visible behind a marker that a reader has been told", ("list",))
    def cursor_safe(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        found = self._listing(before, call, reply)
        if found is None or not found[1].names:
            return None
        expected, page = found
        told = [name for name in page.names if name in expected]
        return not told or set(told) == set(expected[: len(told)])

    @law(
        "progress",
        "a reader that keeps asking gets every message that is visible, or is told that it is at the end",
        ("list",),
    )
    def progress(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        found = self._listing(before, call, reply)
        if found is None or not found[0]:
            return None
        page = found[1]
        if page.names:
            return not (page.is_end and len(page.names) < len(found[0]))
        return page.is_end is False and page.marker != call["marker"]

    @law("no-repeat", "a reader sees a message once, and a post that is sent again posts nothing new")
    def no_repeat(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "post" and isinstance(reply, int):
            return reply <= sum(before.message(name) is None for name, _ in call["posts"])
        found = self._listing(before, call, reply)
        if found is None or not found[1].names:
            return None
        position = before.position(call["marker"]) or 0
        seen = [one for one in before.messages if one.serial <= position and one.name in found[1].names]
        return not seen and len(set(found[1].names)) == len(found[1].names)

    @law("fifo", "messages are listed and claimed in the order in which they were posted", ("list", "claim"))
    def fifo(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        names = self._named(call, reply) if call.name in ("list", "claim") else ()
        serials = [one.serial for one in before.named(names)]
        if call.name == "claim" and serials:
            free = {
                one.serial for one in before.messages if one.is_lapsed and one.token is None and one.until_ms != now_ms
            }
            last = max(free.intersection(serials), default=0)
            if any(one < last for one in free.difference(serials)):
                return False
        return serials == sorted(serials) if len(serials) > 1 or call.name == "claim" else None

    @law(
        "exclusive-claim",
        "a message is held by one claim at a time, and only its holder renews, releases or deletes it",
        ("claim",),
    )
    def exclusive_claim(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "claim" and isinstance(reply, tuple):
            return all(
                one.is_lapsed or one.claimed_until_ms == now_ms for one in before.named(self._named(call, reply))
            )
        if call.name == "renew":
            live = [one for one in self._held(before, call["token"]) if not one.is_lapsed]
            return None if any(one.claimed_until_ms == now_ms for one in live) else (reply == "ok") == bool(live)
        if call.name == "delete" and (one := before.message(call["message"])) is not None and not one.is_lapsed:
            return None if one.claimed_until_ms == now_ms else (reply == "ok") == (one.token == call["token"])
        return None

    @law("retention", "a message is readable while its retention or a claim says so, and not after")
    def retention(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "get" and (one := before.message(call["message"])) is not None:
            return None if now_ms in (one.until_ms, one.claimed_until_ms) else reply == payload_of(one.name)
        if call.name in ("get", "list", "claim"):
            names = self._named(call, reply)
            return not any(name in before.gone and before.message(name) is None for name in names) if names else None
        return None

    @law("no-phantom", "nothing is read that was not posted, or was deleted, nor with another content")
    def no_phantom(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        names = self._named(call, reply) if call.name in ("get", "list", "claim") else ()
        if not names:
            return None
        rows = [(call["message"], reply)] if call.name == "get" else [one for one in reply if isinstance(one, tuple)]
        known = {*before.gone, *(one.name for one in before.messages)}
        return known.issuperset(names) and all(one[1] == payload_of(one[0]) for one in rows)

    def _named(self, call: Call, reply: Reply) -> tuple[Reply, ...]:
        """The messages that a reply speaks of."""
        if call.name == "get":
            return () if reply is None else (call["message"],)
        rows = [one for one in reply if isinstance(one, tuple) and len(one) == 2] if isinstance(reply, tuple) else []
        return tuple(one[0] for one in rows)


def _listed(feed: FeedStore, seen: Sequence[Exchange]) -> list[str]:
    """Messages that a client was told of, the newest first."""
    return [
        name
        for one in reversed(seen)
        if one.call.name == "list" and (page := feed.page(one.reply))
        for name in page.names
    ]


_Outcomes = Callable[[FeedStore, Feed, Call, int], Iterator[Outcome]]
_OUTCOMES: Mapping[str, _Outcomes] = {name: getattr(FeedStore, f"_{name}") for name in FeedStore.operations}
