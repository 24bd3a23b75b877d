"""What a feed is, what a store promises of it, and what its replies tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import itemgetter
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.contracts.base import Bound, Call, Clocks, Contract, Failed, Reply, passes, tells

CLAIM_MS, KEPT_MS, PAGE = 1000, 3000, 2
"""What is tried in small scopes."""
MANY = 1000
"""What a store is asked for that is not told how many, and gives as many as it likes."""
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
    claims: Literal["any", "end", "outlive"] = "any"
    """What renew replies of a claim whose last message was deleted: "end": lost; "outlive": ok, until it lapses as
    any, and so does release; "any": either."""
    names: Literal["caller", "store"] = "caller"
    """Who names a message; "store": post replies with an identifier for each message, in their order, and rows begin
    with it."""
    lists_delayed: bool = False
    """Readers see what is delayed; otherwise it is as if it were not there."""
    lists_claimed: bool = True
    """Readers see what is claimed; otherwise it is as if it were not there."""
    tells_end: bool = False
    """list replies (marker, whether that is the end, messages ...); otherwise (marker, messages ...), and an empty page
    is the end."""
    clocks: Clocks = "any"
    """Whether the clocks of clients may differ from the server's."""
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
    delayed_until_ms: int = 0
    """Until when nobody claims it; 0: it is not delayed, or no more."""
    was_delayed: bool = False
    poster: str = ""
    """Whose it is, of a feed that hides a reader's own."""
    ident: Reply = None
    """What the store calls it, once somebody was told."""

    @property
    def has_place(self) -> bool:
        """Whether claims come to it in its turn: it was neither claimed before nor delayed."""
        return self.token is None and not self.was_delayed


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
    emptied: tuple[tuple[Reply, int], ...] = ()
    """Claims whose last message was deleted, with the end of their time; the newest last."""

    @property
    def names(self) -> set[Reply]:
        """Of all messages."""
        return {one.name for one in self.messages}

    def message(self, name: Reply) -> Message | None:
        """The message of that name."""
        return next((one for one in self.messages if one.name == name), None)

    def named(self, names: Iterable[Reply]) -> list[Message]:
        """Those of these names that are there."""
        asked = [*names]
        wanted = {*asked}
        there: dict[Reply, Message] = {one.name: one for one in self.messages if one.name in wanted}
        return [there[name] for name in asked if name in there]

    def with_emptied(self, token: Reply, until_ms: int | None) -> Feed:
        """That claim without messages until then; None: no more."""
        rest = tuple(one for one in self.emptied if one[0] != token)
        return self._replace(emptied=rest if until_ms is None else (*rest, (token, until_ms))[-MARKERS_MAX:])

    def position(self, marker: Reply) -> int | None:
        """Where a marker stands, None if it was told to nobody."""
        return 0 if marker == START else dict(self.markers).get(marker)

    def with_messages(self, *changed: Message) -> Feed:
        """These in place of those of the same names."""
        new = {one.name: one for one in changed}
        return self._replace(messages=tuple([new.get(one.name, one) for one in self.messages]))

    def without(self, *names: str) -> Feed:
        """The feed without these messages."""
        left = {*names}
        return self._replace(messages=tuple([one for one in self.messages if one.name not in left]))

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


class PromisedFeed(Contract):
    """Reads states and replies by the promises."""

    promises_table: ClassVar[type[Promises]] = Promises

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()
        self.bound = tuple(self.operations) if bound is None else tuple(bound)
        """Operations that the store has."""
        self.kept_ms, self.claim_ms = self.promises.retention_ms, self.promises.claim_ms
        self.short_ms = self.kept_ms // 2 if passes(bound or (), "post", "ttl_ms") else self.kept_ms
        self.brief_ms = self.claim_ms // 3 if passes(bound or (), "claim", "ttl_ms") else self.claim_ms
        self.delay_ms = self.claim_ms // 2 if tells(bound, "post", "delay_ms") else 0
        """What a message may be delayed by, in what is tried; 0 of a store that delays none."""
        self.hides_own = tells(bound, "list", "client")
        """Whether readers say who they are, so as not to see what they have posted."""
        self.echoes = self.hides_own and tells(bound, "list", "echo")
        """And may ask for them all the same."""
        self.listed = PAGE if passes(bound or (), "list", "count") else MANY
        self.claims_one, self.claims_more = (1, PAGE) if passes(bound or (), "claim", "count") else (MANY, MANY)

    def _visible(self, state: Feed, call: Call) -> list[Message]:
        """What the reader sees that makes this call."""
        visible = state.messages
        if not self.promises.lists_claimed:
            visible = tuple(one for one in visible if one.is_lapsed)
        if self.delay_ms and not self.promises.lists_delayed:
            visible = tuple(one for one in visible if not one.delayed_until_ms)
        asked = dict(call.fields) if self.hides_own else {}
        if asked.get("client") and not asked.get("echo"):
            visible = tuple(one for one in visible if one.poster != asked["client"])
        return list(visible)

    def _after(self, state: Feed, call: Call) -> list[Message] | None:
        """What the reader sees after its marker, None for a marker that nobody was told."""
        position = state.position(call["marker"])
        return None if position is None else [one for one in self._visible(state, call) if one.serial > position]

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

    @staticmethod
    def _held(state: Feed, token: Reply) -> list[Message]:
        """What a claim holds or, once it has lapsed, may still hold."""
        return [one for one in state.messages if one.token == token and token is not None]
