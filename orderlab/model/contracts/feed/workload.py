"""What is tried with a feed: calls worth trying, where short runs begin, crowds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from orderlab.model.contracts.base import (
    DURATIONS_MS,
    Call,
    Crowd,
    Exchange,
    Opening,
    fresh_name,
    next_number,
    next_serial,
)
from orderlab.model.contracts.feed.promises import (
    BAD_MARKERS,
    CLAIM_MS,
    READ_EVERY,
    START,
    PromisedFeed,
    payload_of,
)


class FeedWorkload(PromisedFeed):
    """A store need not have every operation; what it lacks is not tried."""

    clients: ClassVar[int] = 2

    steps_per_client: ClassVar[int] = 3

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        return [one for one in self._calls(client, seen) if one.name in self.bound]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        number = next_number([[name for name, _ in one.call["posts"]] for one in seen if one.call.name == "post"])
        names = [fresh_name(number + at, client) for at in range(2)]
        rows = tuple((name, payload_of(name)) for name in names)
        lists = [one for one in reversed(seen) if one.call.name == "list" and one.call["marker"] not in BAD_MARKERS]
        marker = next((page.marker for one in lists if (page := self.page(one.reply)) and page.marker), START)
        serial = next_serial(len(seen), [one.call["token"] for one in seen if one.call.name == "claim"])
        mine, own, all_ = self._told_of(client)
        yield Call.of("post", posts=rows[:1], ttl_ms=self.kept_ms, **mine)
        yield Call.of("list", marker=marker, count=self.listed, **own)
        claims = [
            one.reply
            for one in reversed(seen)
            if one.call.name == "claim" and isinstance(one.reply, tuple) and len(one.reply) > 1
        ][:1]
        for token, *held in claims:
            yield Call.of("delete", message=held[0][0] if isinstance(held[0], tuple) else held[0], token=token)
            yield Call.of("renew", token=token, ttl_ms=self.claim_ms)
            yield Call.of("release", token=token)
        yield Call.of("claim", token=f"t{client}.{serial}", count=self.claims_one, ttl_ms=self.claim_ms)
        yield Call.of("post", posts=rows, ttl_ms=self.short_ms, **mine)
        if self.delay_ms:
            yield Call.of("post", posts=rows[:1], ttl_ms=self.kept_ms, **{**mine, "delay_ms": self.delay_ms})
        if all_:
            yield Call.of("list", marker=marker, count=self.listed, **all_)
        for one in claims:
            yield Call.of("get", message=one[1][0] if isinstance(one[1], tuple) else one[1])
        yield Call.of("claim", token=f"u{client}.{serial}", count=self.claims_more, ttl_ms=self.brief_ms)
        for name in _listed(self, seen)[:1]:
            yield Call.of("delete", message=name, token=START)
            yield Call.of("get", message=name)
        if client == 0 and seen:  # one at a time, so that they take little from what matters more
            bad = list(BAD_MARKERS)[(len(seen) - 1) % len(BAD_MARKERS)]
            yield Call.of("list", marker=bad, count=self.listed, **own)

    def _told_of(self, client: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """What a store is told beside the rest that knows of delays and of clients: in post; in list, without what the
        client has posted; in list, with it, where a client can ask for it."""
        who: dict[str, Any] = {"client": f"c{client}"} if self.hides_own else {}
        delay: dict[str, Any] = {"delay_ms": 0} if self.delay_ms else {}
        return delay | who, who | {"echo": 0} if who else {}, who | {"echo": 1} if self.echoes else {}

    def ranges(self) -> Mapping[str, tuple[int, int]]:
        return {
            "ttl_ms": DURATIONS_MS,
            "delay_ms": (0, DURATIONS_MS[1]),
            "count": (1, self.promises.count_max or 1_000),
        }

    def openings(self) -> Sequence[Opening]:
        now: dict[str, Any] = {"delay_ms": 0} if self.delay_ms else {}
        one, two = (0, "post", {"ttl_ms": self.kept_ms, **now}), (0, "post", {"ttl_ms": self.short_ms})
        late = (0, "post", {"delay_ms": self.delay_ms})
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
            *([Opening("with a message that is delayed", (late,))] if self.delay_ms else []),
        )

    def _posts_again(self, size: int, *new: str) -> tuple[int, Call]:
        """Some of a crowd's names, and new ones. Whatever the order in which a store clears what has lapsed, it comes
        to one of these last."""
        names = dict.fromkeys((*sorted(f"m{at + 1}" for at in range(size))[:-2:-1], "m1", f"m{size}", *new))
        rows = tuple((name, payload_of(name)) for name in names)
        return 0, Call.of("post", posts=rows, ttl_ms=self.kept_ms, **self._told_of(0)[0])

    def crowds(self) -> Sequence[Crowd]:
        mine, own, all_ = self._told_of(0)

        def posts(size: int, ttl_ms: int = self.kept_ms) -> Iterator[tuple[int, Call] | int]:
            rows = tuple((name, payload_of(name)) for name in (f"m{size - number}" for number in range(size)))
            yield 0, Call.of("post", posts=rows, ttl_ms=ttl_ms, **mine)

        def lapsed(size: int, *between: tuple[int, Call]) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size, 1 if self.short_ms < self.kept_ms else self.kept_ms)
            yield from between
            yield 2 if self.short_ms < self.kept_ms else self.kept_ms + 1

        def behind(size: int) -> Iterator[tuple[int, Call] | int]:
            asked = min(size, self.promises.count_max or size)
            page = Call.of("list", marker=START, count=asked, **self._told_of(1)[1])
            # One reader knows them, another does not.
            yield from lapsed(size, *([(1, page)] if "list" in self.bound else []))
            yield self._posts_again(size, "new")

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
                yield 0, Call.of("list", marker=START, count=asked, **(all_ or own))
            around = {at + by for at in range(0, size + 1, READ_EVERY) for by in (-1, 0, 1)} & {*range(size)}
            yield from ((0, Call.of("get", message=f"m{size - at}")) for at in sorted(around) if "get" in self.bound)
            if "claim" in self.bound:
                yield 0, Call.of("claim", token="all", count=asked, ttl_ms=self.claim_ms)

        def held(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size)
            yield 0, Call.of("claim", token="all", count=min(size, self.promises.count_max or size), ttl_ms=CLAIM_MS)

        def again(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from posts(size, self.short_ms)
            most = min(size, self.promises.count_max or size)
            yield from (
                (0, Call.of("claim", token=f"t{at}", count=most, ttl_ms=self.claim_ms)) for at in range(0, size, most)
            )
            yield self.short_ms + self.claim_ms + self.promises.grace_ms + 1
            yield self._posts_again(size)
            yield 0, Call.of("claim", token="again", count=self.claims_more, ttl_ms=self.claim_ms)

        return (
            Crowd("messages", (300, 8100), posts),
            Crowd("messages that are read", (100, 1100), read, is_asked=True),
            *(
                [Crowd("messages under one claim", (20, 8100), held, is_asked=True, clients=1)]
                if {"claim", "renew"} <= {*self.bound}
                else []
            ),
            Crowd("messages that have lapsed", (300, 8100), lapsed),
            *(
                [
                    Crowd("claims that have lapsed", (150, 400), claims),
                    Crowd("messages posted again after their claims lapsed", (150, 400), again),
                ]
                if "claim" in self.bound
                else []
            ),
            Crowd("messages before the last that have lapsed", (300, 1500), behind),
        )


def _listed(feed: PromisedFeed, seen: Sequence[Exchange]) -> list[str]:
    """Messages that a client was told of, the newest first."""
    return [
        name
        for one in reversed(seen)
        if one.call.name == "list" and (page := feed.page(one.reply))
        for name in page.names
    ]
