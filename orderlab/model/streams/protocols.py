"""The smaller protocols of durable streams, one specification each, with what is wrong nearby: acknowledgement and
flush, keys under several clocks, the log replayed after a crash, the replay of a session beside real time, shared
replay, and the collector of sessions (where a replay begins: `start_time`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer
from orderlab.model.streams.shared_replay import SharedReplay
from orderlab.model.streams.start_time import StartTime


class Acknowledgement(Specification):
    """When a publisher is answered: behind the flush, or (``acknowledge-first``, D9) before it."""

    name: ClassVar[str] = "streams-acknowledgement"
    messages: int = Field(2, ge=1, le=4)
    protocol: Literal["repaired", "acknowledge-first"] = "repaired"

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    def variables(self) -> Mapping[str, Domain | Array]:
        flags = Array(self.published, boolean())
        return {"buffered": flags, "stored": flags, "acknowledged": flags, "crashed": boolean()}

    def is_stored(self, s: State, m: int) -> bool:
        return bool(s.stored[m])

    def anything(self, s: State, m: int) -> bool:
        return True

    @action(actor="publisher", fair=True, m="published")
    def publish(self, s: State, m: int) -> None:
        """Again as long as there is no answer."""
        require(not s.acknowledged[m] and not s.buffered[m] and not s.stored[m])
        s.buffered[m] = True

    @action(actor="broker", fair=True)
    def flush(self, s: State) -> None:
        """One batch."""
        require(any(s.buffered[m] for m in range(self.messages)))
        for m in range(self.messages):
            if s.buffered[m]:
                s.stored[m] = True
            s.buffered[m] = False

    @action(actor="broker", fair=True, m="published")
    def acknowledge(self, s: State, m: int) -> None:
        require(not s.acknowledged[m])
        require(s.stored[m] or (self.protocol == "acknowledge-first" and s.buffered[m]))
        s.acknowledged[m] = True

    @action(actor="fault")
    def crash(self, s: State) -> None:
        require(not s.crashed)
        s.crashed = True
        for m in range(self.messages):
            s.buffered[m] = False

    @invariant(m="published")
    def at_least_once(self, s: State, m: int) -> bool:
        """What was acknowledged is stored, or will be with the next flush."""
        return bool(not s.acknowledged[m] or s.stored[m] or s.buffered[m])

    reaches_the_store: ClassVar[Any] = leads_to(
        "anything", "is_stored", "What is published is stored in the end.", m="published"
    )

    def terminal(self, s: State) -> bool:
        return all(s.acknowledged[m] for m in range(self.messages))


class Clocks(Specification):
    """Keys of one logical FIFO that two leaders write in turn, each by its own clock, and a reader that goes by keys.

    A key is a time and a unique part. Repaired: the time is not less than that of the last key in the log, which a new
    leader has, and the unique part is a sequence number. ``wall-clock``: a leader's own clock alone. ``random-part``
    (D4): what is unique is drawn. ``no-part`` (D3): nothing is unique.
    """

    name: ClassVar[str] = "streams-clocks"
    messages: int = Field(3, ge=1, le=4)
    ticks: int = Field(2, ge=1, le=4)
    leaders: int = Field(2, ge=1, le=3)
    protocol: Literal["repaired", "wall-clock", "random-part", "no-part"] = "repaired"

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def writers(self) -> IndexSet:
        return IndexSet("writer", self.leaders)

    @cached_property
    def parts(self) -> IndexSet:
        return IndexSet("part", self.messages)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "clock": Array(self.writers, integer(0, self.ticks)),
            "leader": integer(0, self.leaders - 1),
            "last": integer(0, self.messages),
            "time": Array(self.published, integer(0, self.ticks)),
            "part": Array(self.published, integer(0, self.messages)),
            "read": Array(self.published, boolean()),
            "read_time": integer(0, self.ticks),
            "read_part": integer(0, self.messages),
        }

    def sorts_before(self, s: State, m: int, o: int) -> bool:
        return bool(s.time[m] < s.time[o] or (s.time[m] == s.time[o] and s.part[m] < s.part[o]))

    @action(actor="clock {w}", w="writers")
    def tick(self, s: State, w: int) -> None:
        """Each at its own pace."""
        require(s.clock[w] < self.ticks)
        s.clock[w] += 1

    @action(actor="fault", w="writers")
    def change_leader(self, s: State, w: int) -> None:
        require(s.leader != w)
        s.leader = w

    @action(actor="leader", m="published", p="parts")
    def store(self, s: State, m: int, p: int) -> None:
        """Message m is the m-th of its publisher."""
        require(m == s.last)
        require(p == 0 if self.protocol == "no-part" else (self.protocol == "random-part" or p == m))
        require(self.protocol != "random-part" or all(o >= s.last or s.part[o] != p for o in range(self.messages)))
        now = s.clock[s.leader]
        if self.protocol != "wall-clock":
            for o in range(self.messages):
                if o < s.last:
                    now = max(now, s.time[o])
        s.time[m] = now
        s.part[m] = p
        s.last += 1

    @action(actor="reader", m="published")
    def look(self, s: State, m: int) -> None:
        """The least key behind the last that was read; the reader's place begins before all."""
        require(m < s.last and not s.read[m])
        require(
            all(not s.read[o] for o in range(self.messages))
            or s.time[m] > s.read_time or (s.time[m] == s.read_time and s.part[m] > s.read_part)
        )  # fmt: skip
        require(
            all(
                o >= s.last or s.read[o] or o == m or self.sorts_before(s, m, o) or self.is_behind(s, o)
                for o in range(self.messages)
            )
        )
        s.read[m] = True
        s.read_time = s.time[m]
        s.read_part = s.part[m]

    def is_behind(self, s: State, o: int) -> bool:
        return any(s.read[r] for r in range(self.messages)) and bool(
            s.time[o] < s.read_time or (s.time[o] == s.read_time and s.part[o] <= s.read_part)
        )

    @invariant(m="published", o="published")
    def no_loss(self, s: State, m: int, o: int) -> bool:
        """No two messages have one key."""
        return bool(m == o or m >= s.last or o >= s.last or s.time[m] != s.time[o] or s.part[m] != s.part[o])

    @invariant(m="published", o="published")
    def fifo(self, s: State, m: int, o: int) -> bool:
        """Keys sort as their publisher sent."""
        return bool(m >= o or o >= s.last or not self.sorts_before(s, o, m))

    @invariant(m="published")
    def cursor_safe(self, s: State, m: int) -> bool:
        """Nothing that was not read lies behind the place that the reader has reached."""
        return bool(m >= s.last or s.read[m] or not self.is_behind(s, m))

    @sometimes()
    def reads_all(self, s: State) -> bool:
        """All messages are read, with a slower clock leading at the end."""
        return bool(all(s.read[m] for m in range(self.messages)) and s.clock[s.leader] < s.read_time)

    def terminal(self, s: State) -> bool:
        return True


class LogReplay(Specification):
    """Two replicas apply a log of writes, some under a condition, and replay it from their last checkpoint after a
    crash.

    Entry kinds: 1 writes X, 2 writes Y if there is X, 3 removes X. What was applied survives the crash. Repaired: how
    far the log was applied is written in the batch of what it did. ``evaluate-again`` (D10): it is written now and
    then, and conditions are evaluated again on what came later. ``outcome-logged``: so too, but the log holds what the
    leader's evaluation came to.
    """

    name: ClassVar[str] = "streams-log-replay"
    entries: int = Field(3, ge=1, le=4)
    protocol: Literal["repaired", "evaluate-again", "outcome-logged"] = "repaired"

    @cached_property
    def replicas(self) -> IndexSet:
        return IndexSet("replica", 2)

    @cached_property
    def places(self) -> IndexSet:
        return IndexSet("place", self.entries)

    @cached_property
    def kinds(self) -> IndexSet:
        return IndexSet("kind", 3)

    def variables(self) -> Mapping[str, Domain | Array]:
        flags = Array(self.replicas, boolean())
        return {
            "log": Array(self.places, integer(0, 3)),
            "came_to": Array(self.places, boolean()),
            "applied": Array(self.replicas, integer(0, self.entries)),
            "checkpoint": Array(self.replicas, integer(0, self.entries)),
            "x": flags, "y": flags, "crashed": boolean(),
        }  # fmt: skip

    def x_before(self, s: State, i: int) -> bool:
        """Whether X is there before entry i, by the log."""
        there = False
        for j in range(self.entries):
            if j < i and s.log[j] == 1:
                there = True
            if j < i and s.log[j] == 3:
                there = False
        return there

    @action(actor="leader", i="places", k="kinds")
    def append(self, s: State, i: int, k: int) -> None:
        require(s.log[i] == 0 and all(j >= i or s.log[j] > 0 for j in range(self.entries)))
        s.came_to[i] = k == 1 and self.x_before(s, i)
        s.log[i] = k + 1

    @action(actor="replica {r}", r="replicas", i="places")
    def apply(self, s: State, r: int, i: int) -> None:
        require(s.applied[r] == i and s.log[i] > 0)
        if s.log[i] == 1:
            s.x[r] = True
        if s.log[i] == 3:
            s.x[r] = False
        if s.log[i] == 2 and (s.came_to[i] if self.protocol == "outcome-logged" else s.x[r]):
            s.y[r] = True
        s.applied[r] = i + 1
        if self.protocol == "repaired":
            s.checkpoint[r] = i + 1

    @action(actor="replica {r}", r="replicas")
    def write_checkpoint(self, s: State, r: int) -> None:
        require(self.protocol != "repaired" and s.checkpoint[r] != s.applied[r])
        s.checkpoint[r] = s.applied[r]

    def action_names(self) -> list[str]:
        """The repaired protocol writes its checkpoint with the entry."""
        return [name for name in super().action_names() if self.protocol != "repaired" or name != "write_checkpoint"]

    @action(actor="fault", r="replicas")
    def crash(self, s: State, r: int) -> None:
        require(not s.crashed)
        s.crashed = True
        s.applied[r] = s.checkpoint[r]

    @invariant()
    def agreement(self, s: State) -> bool:
        """Replicas that have applied the same log hold the same."""
        return bool(
            s.applied[0] != s.applied[1] or s.applied[0] < self.entries or (s.x[0] == s.x[1] and s.y[0] == s.y[1])
        )

    @sometimes()
    def applies_all(self, s: State) -> bool:
        """A replica has crashed, both have applied all, and Y is there."""
        return bool(s.crashed and s.applied[0] == self.entries and s.applied[1] == self.entries and s.y[0] and s.y[1])

    def terminal(self, s: State) -> bool:
        return True


class SessionReplay(Specification):
    """A broker sends a session what is stored, in order, at most ``window`` unacknowledged, and after a lost connection
    again what was not acknowledged.

    ``real-time-first`` (D7): after a reconnect new messages go out before the old ones have been sent again. ``modulo``
    (D13): the packet identifier is the sequence number modulo the window; repaired it is the least that is free.
    """

    name: ClassVar[str] = "streams-session"
    messages: int = Field(3, ge=1, le=4)
    window: int = Field(2, ge=1, le=3)
    protocol: Literal["repaired", "real-time-first", "modulo"] = "repaired"

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def identifiers(self) -> IndexSet:
        return IndexSet("identifier", self.window)

    def variables(self) -> Mapping[str, Domain | Array]:
        numbers = Array(self.published, integer(0, self.messages))
        flags = Array(self.published, boolean())
        return {
            "stored": integer(0, self.messages),
            "next": integer(0, self.messages),
            "link": numbers,
            "unacknowledged": flags,
            "resend": flags,
            "received": flags,
            "packet_id": Array(self.published, integer(0, self.window - 1)),
            "lost": boolean(),
            "overtaken": boolean(),
        }

    def in_store(self, s: State, m: int) -> bool:
        return bool(s.stored > m)

    def is_received(self, s: State, m: int) -> bool:
        return bool(s.received[m])

    @action(actor="publisher", fair=True)
    def publish(self, s: State) -> None:
        require(s.stored < self.messages)
        s.stored += 1

    @action(actor="broker", fair=True, m="published", p="identifiers")
    def send(self, s: State, m: int, p: int) -> None:
        """The next of the store."""
        require(m == s.next and m < s.stored and sum(s.unacknowledged[o] for o in range(self.messages)) < self.window)
        require(self.protocol == "real-time-first" or not any(s.resend[o] for o in range(self.messages)))
        if self.protocol == "modulo":
            require(p == m % self.window)
        else:
            require(all(not s.unacknowledged[o] or s.packet_id[o] != p for o in range(self.messages)))
            require(
                all(
                    q >= p or any(s.unacknowledged[o] and s.packet_id[o] == q for o in range(self.messages))
                    for q in range(self.window)
                )
            )
        s.packet_id[m] = p
        s.unacknowledged[m] = True
        s.link[m] = 1 + sum(s.link[o] > 0 for o in range(self.messages))
        s.next += 1

    @action(actor="broker", fair=True, m="published")
    def send_again(self, s: State, m: int) -> None:
        """In order, under the same identifier."""
        require(s.resend[m] and not any(o < m and s.resend[o] for o in range(self.messages)))
        s.resend[m] = False
        s.link[m] = 1 + sum(s.link[o] > 0 for o in range(self.messages))

    @action(actor="client", fair=True, m="published")
    def receive(self, s: State, m: int) -> None:
        require(s.link[m] == 1)
        if not s.received[m] and any(o < m and not s.received[o] for o in range(self.messages)):
            s.overtaken = True
        s.received[m] = True
        for o in range(self.messages):
            if s.link[o] > 1:
                s.link[o] -= 1
        s.link[m] = 0

    @action(actor="client", fair=True, m="published")
    def acknowledge(self, s: State, m: int) -> None:
        """In any order."""
        require(s.received[m] and s.unacknowledged[m] and not s.resend[m] and s.link[m] == 0)
        s.unacknowledged[m] = False

    @action(actor="fault")
    def lose_connection(self, s: State) -> None:
        """And reconnect; what was on its way is gone."""
        require(not s.lost)
        s.lost = True
        for m in range(self.messages):
            s.link[m] = 0
            s.resend[m] = s.unacknowledged[m]

    @invariant()
    def fifo(self, s: State) -> bool:
        """Messages are first received in the order of the store."""
        return not s.overtaken

    @invariant(m="published", o="published")
    def packet_id_law(self, s: State, m: int, o: int) -> bool:
        """No two messages in flight share an identifier."""
        return bool(m == o or not s.unacknowledged[m] or not s.unacknowledged[o] or s.packet_id[m] != s.packet_id[o])

    no_loss: ClassVar[Any] = leads_to(
        "in_store", "is_received", "What is stored is received in the end.", m="published"
    )

    def terminal(self, s: State) -> bool:
        return all(s.received[m] and not s.unacknowledged[m] for m in range(self.messages))


class SessionCollector(Specification):
    """A collector removes sessions whose time is over, in two steps: it looks, then it removes, and a client may come
    back between.

    Repaired: the removal is guarded by the session's version, which each connect changes. ``unguarded``: it removes
    what it has seen expired. ``check-connected``: it asks again whether a client is connected, and not whether it has
    been since.
    """

    name: ClassVar[str] = "streams-collector"
    protocol: Literal["repaired", "unguarded", "check-connected"] = "repaired"
    connects: int = Field(2, ge=1, le=4)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "there": boolean(),
            "connected": boolean(),
            "expired": boolean(),
            "version": integer(0, self.connects),
            "looking": boolean(),
            "seen": integer(0, self.connects),
            "wrong": boolean(),
        }

    def is_over(self, s: State) -> bool:
        return bool(s.there and s.expired and s.version == self.connects)

    def is_gone(self, s: State) -> bool:
        return not s.there

    @action(actor="client")
    def connect(self, s: State) -> None:
        """Without a session a new one begins."""
        require(not s.connected and s.version < self.connects)
        s.connected = True
        s.there = True
        s.expired = False
        s.version += 1

    @action(actor="client", fair=True)
    def disconnect(self, s: State) -> None:
        require(s.connected)
        s.connected = False

    @action(actor="clock", fair=True)
    def expire(self, s: State) -> None:
        require(s.there and not s.connected and not s.expired)
        s.expired = True

    @action(actor="collector", fair=True)
    def look(self, s: State) -> None:
        require(not s.looking and s.there and s.expired)
        s.looking = True
        s.seen = s.version

    @action(actor="collector", fair=True)
    def remove(self, s: State) -> None:
        require(s.looking)
        s.looking = False
        guard = (
            s.version == s.seen if self.protocol == "repaired" else (self.protocol == "unguarded" or not s.connected)
        )
        if s.there and guard:
            s.there = False
            if s.connected or not s.expired:
                s.wrong = True

    @invariant()
    def no_loss(self, s: State) -> bool:
        """No session is removed whose client is connected or has time left."""
        return not s.wrong

    collects: ClassVar[Any] = leads_to("is_over", "is_gone", "What has expired is removed in the end.")

    def terminal(self, s: State) -> bool:
        return True


SMALL_PROTOCOLS = (Acknowledgement, Clocks, LogReplay, SessionReplay, SharedReplay, SessionCollector, StartTime)
