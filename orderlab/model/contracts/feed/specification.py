"""The abstract feed: producers post, a reader lists after its marker, consumers claim for a while (Zaqar's model).

Ranks are taken from one counter. The reader keeps the rank of the last message it received; a consumer holds a message
until its claim lapses or it deletes the message. Messages leave when they are deleted, or when their retention is over
and nobody holds them. ``flaw`` exchanges one step for one that real feeds have had; each breaks the law it is named
for in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer

Flaw = Literal[
    "none",
    "reserve-then-write",
    "watch-after-read",
    "positional-cursor",
    "claim-first-n",
    "expire-while-claimed",
    "post-again",
    "rank-rolls-back",
]


class Feed(Specification):
    """Each producer posts one message, so messages and producers are one set. Ranks start at 1; 0 means none."""

    name: ClassVar[str] = "feed"
    messages: int = Field(3, ge=1, le=64)
    consumers: int = Field(2, ge=0, le=4)
    retention_ends_somewhere: bool = True
    flaw: Flaw = "none"

    @cached_property
    def posts(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def claimants(self) -> IndexSet:
        return IndexSet("consumer", self.consumers)

    def variables(self) -> Mapping[str, Domain | Array]:
        ranks = integer(0, self.messages + 1)
        found: dict[str, Domain | Array] = {
            "counter": ranks,
            "taken": Array(self.posts, ranks),
            "watched": Array(self.posts, ranks),
            "rank": Array(self.posts, ranks),
            "posted_again": boolean(),
            "gone": Array(self.posts, boolean()),
            "over": Array(self.posts, boolean()),
            "marker": ranks,
            "place": integer(0, self.messages),
            "looking": boolean(),
            "received": Array(self.posts, integer(0, 2)),
            "failed_over": boolean(),
        }
        if self.consumers:
            found["holds"] = Array(self.claimants, Array(self.posts, boolean()))
        return found

    def action_names(self) -> Sequence[str]:
        """The actions of this variant: a flaw brings its own and leaves out those that they replace."""
        two_steps = self.flaw in ("reserve-then-write", "watch-after-read")
        present = {
            "post": not two_steps,
            "take_rank": two_steps,
            "write": two_steps,
            "watch": self.flaw == "watch-after-read",
            "post_again": self.flaw == "post-again",
            "failover": self.flaw == "rank-rolls-back",
            "receive": self.flaw != "positional-cursor",
            "find_place": self.flaw == "positional-cursor",
            "receive_at_place": self.flaw == "positional-cursor",
            "find_nothing": self.flaw == "positional-cursor" and self.consumers > 0,
            "claim": self.consumers > 0 and self.flaw != "claim-first-n",
            "claim_up_to": self.consumers > 0 and self.flaw == "claim-first-n",
            "lapse": self.consumers > 0,
            "delete": self.consumers > 0,
            "retention_ends": self.retention_ends_somewhere,
            "sweep": self.retention_ends_somewhere,
        }
        return [name for name in super().action_names() if present[name]]

    # -- predicates ----------------------------------------------------------------------------------------

    def stored(self, s: State, m: int) -> bool:
        """The message is in the feed and readable."""
        return s.rank[m] > 0 and not s.gone[m]

    def held(self, s: State, m: int) -> bool:
        return any(s.holds[c][m] for c in range(self.consumers))

    def visible(self, s: State, m: int) -> bool:
        """Stored, and either within its retention or held by a claim."""
        return self.stored(s, m) and (not s.over[m] or self.held(s, m))

    # -- producers -----------------------------------------------------------------------------------------

    @action(actor="producer {m}", m="posts")
    def post(self, s: State, m: int) -> None:
        """Take the next rank and store the message under it, in one step."""
        require(self.flaw not in ("reserve-then-write", "watch-after-read"))
        require(s.rank[m] == 0 and s.counter < self.messages + 1)
        s.counter += 1
        s.rank[m] = s.counter

    @action(actor="producer {m}", m="posts")
    def take_rank(self, s: State, m: int) -> None:
        """Two round trips. Either the rank is reserved (INCR) and written later, or the counter is only read (GET)."""
        require(self.flaw in ("reserve-then-write", "watch-after-read"))
        require(s.rank[m] == 0 and s.taken[m] == 0)
        s.taken[m] = s.counter + 1
        if self.flaw == "reserve-then-write":
            s.counter += 1

    @action(actor="producer {m}", m="posts")
    def watch(self, s: State, m: int) -> None:
        """WATCH after GET: what happened between the two goes unnoticed."""
        require(self.flaw == "watch-after-read" and s.taken[m] > 0 and s.watched[m] == 0 and s.rank[m] == 0)
        s.watched[m] = s.counter + 1

    @action(actor="producer {m}", m="posts")
    def write(self, s: State, m: int) -> None:
        """Store the message under the rank taken before; with WATCH, only if the counter has not moved since."""
        require(s.taken[m] > 0 and s.rank[m] == 0)
        if self.flaw == "watch-after-read":
            require(s.watched[m] == s.counter + 1)
            s.counter += 1
        s.rank[m] = s.taken[m]

    @action(actor="producer {m}", m="posts")
    def post_again(self, s: State, m: int) -> None:
        """The reply was lost and the producer posts once more, under a new identifier and rank."""
        require(self.flaw == "post-again" and not s.posted_again and s.rank[m] > 0 and s.counter < self.messages + 1)
        s.posted_again = True
        s.counter += 1
        s.rank[m] = s.counter

    # -- reader --------------------------------------------------------------------------------------------

    @action(actor="reader", fair=True, m="posts")
    def receive(self, s: State, m: int) -> None:
        """The visible message with the lowest rank after the marker."""
        require(self.flaw != "positional-cursor")
        require(self.visible(s, m) and s.rank[m] > s.marker)
        require(not any(self.visible(s, o) and s.marker < s.rank[o] < s.rank[m] for o in range(self.messages)))
        s.marker = s.rank[m]
        s.received[m] = min(s.received[m] + 1, 2)

    @action(actor="reader", fair=True)
    def find_place(self, s: State) -> None:
        """First round trip: how many messages stand at or before the marker."""
        require(self.flaw == "positional-cursor" and not s.looking)
        require(any(self.visible(s, o) and s.rank[o] > s.marker for o in range(self.messages)))
        s.place = sum(self.visible(s, o) and s.rank[o] <= s.marker for o in range(self.messages))
        s.looking = True

    @action(actor="reader", fair=True, m="posts")
    def receive_at_place(self, s: State, m: int) -> None:
        """Second round trip: the message at that place, whatever has been deleted since."""
        require(self.flaw == "positional-cursor" and s.looking and self.visible(s, m))
        require(sum(self.visible(s, o) and s.rank[o] < s.rank[m] for o in range(self.messages)) == s.place)
        s.looking = False
        s.place = 0
        s.marker = s.rank[m]
        s.received[m] = min(s.received[m] + 1, 2)

    @action(actor="reader", fair=True)
    def find_nothing(self, s: State) -> None:
        """Nothing stands at the place any more."""
        require(s.looking)
        require(sum(self.visible(s, o) for o in range(self.messages)) <= s.place)
        s.looking = False
        s.place = 0

    # -- consumers -----------------------------------------------------------------------------------------

    @action(actor="consumer {c}", c="claimants", m="posts")
    def claim(self, s: State, c: int, m: int) -> None:
        """A visible message that nobody holds."""
        require(self.flaw != "claim-first-n")
        require(self.visible(s, m) and not self.held(s, m))
        s.holds[c][m] = True

    @action(actor="consumer {c}", c="claimants", m="posts")
    def claim_up_to(self, s: State, c: int, m: int) -> None:
        """All messages up to ``m``, because the first of them is free."""
        require(self.flaw == "claim-first-n" and self.visible(s, m))
        require(
            any(
                self.visible(s, o)
                and not self.held(s, o)
                and not any(self.visible(s, e) and s.rank[e] < s.rank[o] for e in range(self.messages))
                for o in range(self.messages)
            )
        )
        for o in range(self.messages):
            if self.visible(s, o) and s.rank[o] <= s.rank[m]:
                s.holds[c][o] = True

    @action(actor="clock", c="claimants", m="posts")
    def lapse(self, s: State, c: int, m: int) -> None:
        """The time of a claim is over."""
        require(s.holds[c][m])
        s.holds[c][m] = False

    @action(actor="consumer {c}", c="claimants", m="posts")
    def delete(self, s: State, c: int, m: int) -> None:
        """Who holds a message may delete it."""
        require(s.holds[c][m] and not s.gone[m])
        s.gone[m] = True
        s.holds[c][m] = False

    # -- time and failures ---------------------------------------------------------------------------------

    @action(actor="clock", m="posts")
    def retention_ends(self, s: State, m: int) -> None:
        """The message's own interval is over; a claim keeps it."""
        require(self.retention_ends_somewhere and self.stored(s, m) and not s.over[m])
        s.over[m] = True

    @action(actor="clock", m="posts")
    def sweep(self, s: State, m: int) -> None:
        """The store removes what is over, and what nobody holds."""
        require(self.stored(s, m) and s.over[m])
        require(self.flaw == "expire-while-claimed" or not self.held(s, m))
        s.gone[m] = True

    @action(actor="fault", m="posts")
    def failover(self, s: State, m: int) -> None:
        """A replica without the last post takes over: the message and its rank are forgotten."""
        require(self.flaw == "rank-rolls-back" and not s.failed_over)
        require(self.stored(s, m) and s.rank[m] == s.counter)
        s.failed_over = True
        s.counter -= 1
        s.gone[m] = True
        for c in range(self.consumers):
            s.holds[c][m] = False

    def terminal(self, s: State) -> bool:
        return True

    # -- laws ----------------------------------------------------------------------------------------------

    def reader_has_moved(self, s: State) -> bool:
        return bool(s.marker > 0)

    @invariant(when="reader_has_moved")
    def cursor_safe(self, s: State) -> bool:
        """Nothing unread and readable stands at or behind the marker."""
        return not any(
            self.visible(s, m) and s.rank[m] <= s.marker and s.received[m] == 0 for m in range(self.messages)
        )

    def something_received(self, s: State) -> bool:
        return any(s.received[m] > 0 for m in range(self.messages))

    @invariant(when="something_received")
    def no_repeat(self, s: State) -> bool:
        """The reader receives a message once."""
        return all(s.received[m] <= 1 for m in range(self.messages))

    def something_held(self, s: State) -> bool:
        return any(self.held(s, m) for m in range(self.messages))

    @invariant(when="something_held")
    def exclusive_claim(self, s: State) -> bool:
        """A message is held by at most one claim."""
        return all(sum(s.holds[c][m] for c in range(self.consumers)) <= 1 for m in range(self.messages))

    @invariant(when="something_held")
    def retention(self, s: State) -> bool:
        """What somebody holds is still there."""
        return not any(self.held(s, m) and s.gone[m] for m in range(self.messages))

    def readable(self, s: State, m: int) -> bool:
        return self.visible(s, m)

    def received_or_gone(self, s: State, m: int) -> bool:
        return s.received[m] > 0 or not self.visible(s, m)

    progress: ClassVar[Any] = leads_to(
        "readable", "received_or_gone", "A visible message is received, or is gone.", m="posts"
    )

    @sometimes()
    def everything_received(self, s: State) -> bool:
        return all(s.received[m] > 0 for m in range(self.messages))
