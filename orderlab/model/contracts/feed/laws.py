"""The laws of a feed: what each says of a call, its reply and the state before it."""

from __future__ import annotations

from orderlab.model.contracts.base import Call, Reply, law
from orderlab.model.contracts.feed.promises import Feed, Page, PromisedFeed, payload_of


class FeedLaws(PromisedFeed):
    """None where a reply does not test the law."""

    def _listing(self, before: Feed, call: Call, reply: Reply) -> tuple[list[str], Page] | None:
        """What a reader ought to see next and what it was told."""
        page = self.page(reply) if call.name == "list" else None
        after = self._after(before, call) if page is not None else None
        return None if page is None or after is None else ([one.name for one in after], page)

    @law("cursor-safe", "nothing becomes visible behind a marker that a reader has been told", ("list",))
    def cursor_safe(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        found = self._listing(before, call, reply)
        if found is None or not found[1].names:
            return None
        expected, page = found
        ought = {*expected}
        told = [name for name in page.names if name in ought]
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
            there = before.names
            return reply <= sum(name not in there for name, _ in call["posts"])
        found = self._listing(before, call, reply)
        if found is None or not found[1].names:
            return None
        position = before.position(call["marker"]) or 0
        names = {*found[1].names}
        seen = any(one.serial <= position and one.name in names for one in before.messages)
        return not seen and len(names) == len(found[1].names)

    @law("fifo", "messages are listed and claimed in the order in which they were posted", ("list", "claim"))
    def fifo(self, before: Feed, call: Call, reply: Reply, now_ms: int) -> bool | None:
        names = self._named(call, reply) if call.name in ("list", "claim") else ()
        serials = [one.serial for one in before.named(names)]
        if call.name == "claim" and serials:
            free = {one.serial for one in before.messages if one.is_lapsed and one.has_place and one.until_ms != now_ms}
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
            names = self._named(call, reply)
            return len(set(names)) == len(names) and all(
                one.is_lapsed or one.claimed_until_ms == now_ms for one in before.named(names)
            )
        if call.name == "renew":
            live = [one for one in self._held(before, call["token"]) if not one.is_lapsed]
            if not live and call["token"] in dict(before.emptied):
                return reply == "ok" if self.promises.claims == "outlive" else None
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
        known = before.names.union(before.gone)
        return known.issuperset(names) and all(one[1] == payload_of(one[0]) for one in rows)

    def _named(self, call: Call, reply: Reply) -> tuple[Reply, ...]:
        """The messages that a reply speaks of."""
        if call.name == "get":
            return () if reply is None else (call["message"],)
        rows = [one for one in reply if isinstance(one, tuple) and len(one) == 2] if isinstance(reply, tuple) else []
        return tuple(one[0] for one in rows)
