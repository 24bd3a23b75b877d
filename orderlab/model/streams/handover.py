"""Hand-over of a wildcard reader from replay to real time, as the proposal for durable streams sketches it and
repaired.

Publishers store a message (one step: it takes the next sequence number and is visible), then dispatch it to who is
subscribed in real time: two steps, so that others come between. The reader walks the store topic by topic; where a
topic ends, it subscribes to its real-time flow, which is buffered, looks into the store again, and then lives from the
flow. It commits how far it has come after it has delivered; after a crash it begins at what was committed, with its
buffer gone.

Repaired, the flow only wakes the reader: every message is read from the store, behind the cursor. As published the
buffered messages are delivered themselves, and each way to do that has its flaw: ``as-published`` sends what the second
look has found once more; ``no-second-look`` misses what was stored between; ``buffer-first`` overtakes it;
``drop-behind-cursor`` removes doubles by comparing with the cursor, and with them what another publisher dispatched
late; ``commit-first`` loses what was committed and not delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, choice, integer

Protocol = Literal["repaired", "as-published", "no-second-look", "buffer-first", "drop-behind-cursor", "commit-first"]


class Phase(IntEnum):
    """How far the reader is with a topic."""

    REPLAY = 0
    ENDED = 1
    SECOND_LOOK = 2
    REAL_TIME = 3


class Handover(Specification):
    """Message m is the publisher m mod ``publishers``'s next; its topic is chosen when it is stored. Sequence numbers
    start at 1."""

    name: ClassVar[str] = "streams-handover"
    messages: int = Field(3, ge=1, le=6)
    publishers: int = Field(2, ge=1, le=3)
    topic_count: int = Field(2, ge=1, le=3)
    crashes: bool = True
    protocol: Protocol = "repaired"

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def topics(self) -> IndexSet:
        return IndexSet("topic", self.topic_count)

    def variables(self) -> Mapping[str, Domain | Array]:
        numbers = integer(0, self.messages)
        return {
            "last": numbers,
            "sequence": Array(self.published, numbers),
            "topic": Array(self.published, integer(0, self.topic_count - 1)),
            "dispatched": Array(self.published, boolean()),
            "phase": Array(self.topics, choice(Phase)),
            "cursor": Array(self.topics, numbers),
            "committed": Array(self.topics, numbers),
            "buffered": Array(self.published, numbers),
            "woken": Array(self.topics, boolean()),
            "received": Array(self.published, integer(0, 3)),
            "crashed": boolean(),
            "overtaken": boolean(),
        }

    @property
    def wakes(self) -> bool:
        """Whether the flow only says that there is something to read."""
        return self.protocol in ("repaired", "commit-first")

    @property
    def commits_first(self) -> bool:
        return self.protocol == "commit-first"

    def action_names(self) -> Sequence[str]:
        """The actions of this variant."""
        absent = {
            "wake": not self.wakes,
            "look": not self.wakes or self.commits_first,
            "sleep": not self.wakes,
            "deliver_buffered": self.wakes,
            "commit_next": not self.commits_first,
            "deliver_committed": not self.commits_first,
            "commit": self.commits_first,
            "replay": self.commits_first,
            "look_again": self.commits_first or self.protocol == "no-second-look",
            "finish_look": self.protocol == "no-second-look",
            "crash": not self.crashes,
        }
        return [name for name in super().action_names() if not absent.get(name, False)]

    # -- predicates ----------------------------------------------------------------------------------------

    def stored(self, s: State, m: int) -> bool:
        return bool(s.sequence[m] > 0)

    def is_received(self, s: State, m: int) -> bool:
        return bool(s.received[m] > 0)

    def is_next(self, s: State, t: int, m: int) -> bool:
        """The message is the first of its topic behind the cursor."""
        behind = s.sequence[m] > s.cursor[t] and s.topic[m] == t
        return behind and not any(
            s.topic[o] == t and s.cursor[t] < s.sequence[o] < s.sequence[m] for o in range(self.messages)
        )

    def has_next(self, s: State, t: int) -> bool:
        return any(s.sequence[o] > s.cursor[t] and s.topic[o] == t for o in range(self.messages))

    def is_overtaking(self, s: State, m: int) -> bool:
        """An earlier message of its logical FIFO (publisher and topic) has not been received."""
        return any(
            o % self.publishers == m % self.publishers
            and s.topic[o] == s.topic[m]
            and s.sequence[o] > 0
            and s.sequence[o] < s.sequence[m]
            and s.received[o] == 0
            for o in range(self.messages)
        )

    # -- publishers ----------------------------------------------------------------------------------------

    @action(actor="publisher of message {m}", fair=True, m="published", t="topics")
    def store(self, s: State, m: int, t: int) -> None:
        """Its publisher has dispatched all that it stored before."""
        require(s.sequence[m] == 0)
        require(all(s.dispatched[o] for o in range(m) if o % self.publishers == m % self.publishers))
        s.last += 1
        s.sequence[m] = s.last
        s.topic[m] = t

    @action(actor="publisher of message {m}", fair=True, m="published")
    def dispatch(self, s: State, m: int) -> None:
        require(s.sequence[m] > 0 and not s.dispatched[m])
        s.dispatched[m] = True
        if s.phase[s.topic[m]] >= Phase.SECOND_LOOK:
            s.buffered[m] = 1 + sum(s.buffered[o] > 0 for o in range(self.messages))

    # -- the reader ----------------------------------------------------------------------------------------

    @action(actor="reader", fair=True, m="published", t="topics")
    def replay(self, s: State, m: int, t: int) -> None:
        """The next key; topics before it are over."""
        require(
            not self.commits_first and s.phase[t] == Phase.REPLAY and all(s.phase[o] != Phase.REPLAY for o in range(t))
        )
        require(self.is_next(s, t, m))
        if s.received[m] == 0 and self.is_overtaking(s, m):
            s.overtaken = True
        s.received[m] = min(s.received[m] + 1, 3)
        s.cursor[t] = s.sequence[m]

    @action(actor="reader", fair=True, t="topics")
    def end_replay(self, s: State, t: int) -> None:
        require(s.phase[t] == Phase.REPLAY and all(s.phase[o] != Phase.REPLAY for o in range(t)))
        require(not self.has_next(s, t))
        s.phase[t] = Phase.ENDED

    @action(actor="reader", fair=True, t="topics")
    def subscribe(self, s: State, t: int) -> None:
        require(s.phase[t] == Phase.ENDED)
        s.phase[t] = Phase.REAL_TIME if self.protocol == "no-second-look" else Phase.SECOND_LOOK

    @action(actor="reader", fair=True, m="published", t="topics")
    def look_again(self, s: State, m: int, t: int) -> None:
        """What was stored between the end of the replay and the subscription."""
        require(not self.commits_first and s.phase[t] == Phase.SECOND_LOOK and self.is_next(s, t, m))
        if s.received[m] == 0 and self.is_overtaking(s, m):
            s.overtaken = True
        s.received[m] = min(s.received[m] + 1, 3)
        s.cursor[t] = s.sequence[m]

    @action(actor="reader", fair=True, t="topics")
    def finish_look(self, s: State, t: int) -> None:
        require(s.phase[t] == Phase.SECOND_LOOK and not self.has_next(s, t))
        s.phase[t] = Phase.REAL_TIME

    @action(actor="reader", fair=True, m="published")
    def wake(self, s: State, m: int) -> None:
        require(self.wakes and s.buffered[m] == 1 and s.phase[s.topic[m]] == Phase.REAL_TIME)
        s.woken[s.topic[m]] = True
        for o in range(self.messages):
            if s.buffered[o] > 1:
                s.buffered[o] -= 1
        s.buffered[m] = 0

    @action(actor="reader", fair=True, m="published", t="topics")
    def look(self, s: State, m: int, t: int) -> None:
        """Read the store because something has come."""
        require(not self.commits_first and s.woken[t] and self.is_next(s, t, m))
        if s.received[m] == 0 and self.is_overtaking(s, m):
            s.overtaken = True
        s.received[m] = min(s.received[m] + 1, 3)
        s.cursor[t] = s.sequence[m]

    @action(actor="reader", fair=True, t="topics")
    def sleep(self, s: State, t: int) -> None:
        require(s.woken[t] and not self.has_next(s, t))
        s.woken[t] = False

    @action(actor="reader", fair=True, m="published")
    def deliver_buffered(self, s: State, m: int) -> None:
        """The flow's own copy."""
        require(not self.wakes and s.buffered[m] == 1)
        at_once = self.protocol == "buffer-first"
        require(s.phase[s.topic[m]] == Phase.REAL_TIME or (at_once and s.phase[s.topic[m]] == Phase.SECOND_LOOK))
        if self.protocol != "drop-behind-cursor" or s.sequence[m] > s.cursor[s.topic[m]]:
            if s.received[m] == 0 and self.is_overtaking(s, m):
                s.overtaken = True
            s.received[m] = min(s.received[m] + 1, 3)
            if s.phase[s.topic[m]] == Phase.REAL_TIME:
                s.cursor[s.topic[m]] = max(s.cursor[s.topic[m]], s.sequence[m])
        for o in range(self.messages):
            if s.buffered[o] > 1:
                s.buffered[o] -= 1
        s.buffered[m] = 0

    @action(actor="reader", fair=True, t="topics")
    def commit(self, s: State, t: int) -> None:
        require(not self.commits_first and s.committed[t] < s.cursor[t])
        s.committed[t] = s.cursor[t]

    @action(actor="reader", fair=True, m="published", t="topics")
    def commit_next(self, s: State, m: int, t: int) -> None:
        """In any phase that reads."""
        require(self.commits_first and s.committed[t] == s.cursor[t] and self.is_next(s, t, m))
        require(
            s.phase[t] == Phase.SECOND_LOOK
            or s.woken[t]
            or (s.phase[t] == Phase.REPLAY and all(s.phase[o] != Phase.REPLAY for o in range(t)))
        )
        s.committed[t] = s.sequence[m]

    @action(actor="reader", fair=True, m="published", t="topics")
    def deliver_committed(self, s: State, m: int, t: int) -> None:
        require(
            self.commits_first and s.committed[t] > s.cursor[t] and s.sequence[m] == s.committed[t] and s.topic[m] == t
        )
        if s.received[m] == 0 and self.is_overtaking(s, m):
            s.overtaken = True
        s.received[m] = min(s.received[m] + 1, 3)
        s.cursor[t] = s.committed[t]

    @action(actor="reader")
    def crash(self, s: State) -> None:
        """What is not committed is forgotten; the reader comes back."""
        require(self.crashes and not s.crashed)
        s.crashed = True
        for t in range(self.topic_count):
            s.phase[t] = Phase.REPLAY
            s.cursor[t] = s.committed[t]
            s.woken[t] = False
        for m in range(self.messages):
            s.buffered[m] = 0

    # -- laws ----------------------------------------------------------------------------------------------

    @invariant(m="published")
    def cursor_safe(self, s: State, m: int) -> bool:
        """What lies behind the cursor has been received."""
        return bool(s.sequence[m] == 0 or s.sequence[m] > s.cursor[s.topic[m]] or s.received[m] > 0)

    @invariant(m="published")
    def no_repeat(self, s: State, m: int) -> bool:
        """A message is received once; once more where a crash came before the commit."""
        return bool(s.received[m] <= (2 if s.crashed else 1))

    @invariant()
    def fifo(self, s: State) -> bool:
        """First deliveries of a logical FIFO come in the order in which it was published."""
        return not s.overtaken

    agreement: ClassVar[Any] = leads_to(
        "stored", "is_received", "What is stored is received in the end.", m="published"
    )

    @sometimes()
    def lives_from_the_flow(self, s: State) -> bool:
        """The hand-over comes to its end with messages received on both sides of it."""
        return all(s.phase[t] == Phase.REAL_TIME for t in range(self.topic_count)) and all(
            s.received[m] > 0 for m in range(self.messages)
        )

    def terminal(self, s: State) -> bool:
        return all(s.dispatched[m] and s.received[m] > 0 and s.buffered[m] == 0 for m in range(self.messages))
