"""A shared subscription that replays: members of a group read shards, and hand them over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, leads_to, require
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer


class SharedReplay(Specification):
    """Streams of a group that two members replay: the group's leader grants them, members deliver and commit, an idle
    member takes work from a busy one.

    A stream is granted again from its checkpoint when its member is dead, or has missed its pings and its lease, by the
    member's own clock, has run out; work is stolen by asking: the busy member commits and gives up. ``grant-twice``
    (D11): missed pings are enough, while the member still delivers. ``steal-at-once``: the thief begins at the
    checkpoint, nobody is asked. ``unfenced``: a member whose stream was taken may commit still. ``no-redispatch``: a
    dead member keeps its streams.
    """

    name: ClassVar[str] = "streams-shared"
    streams: int = Field(2, ge=1, le=3)
    length: int = Field(2, ge=1, le=3)
    protocol: Literal["repaired", "grant-twice", "steal-at-once", "unfenced", "no-redispatch"] = "repaired"

    @cached_property
    def members(self) -> IndexSet:
        return IndexSet("member", 2)

    @cached_property
    def shared(self) -> IndexSet:
        return IndexSet("stream", self.streams)

    def variables(self) -> Mapping[str, Domain | Array]:
        places = Array(self.shared, integer(0, self.length))
        return {
            "granted": Array(self.shared, integer(0, 2)),
            "holds": Array(self.members, Array(self.shared, boolean())),
            "position": Array(self.members, places),
            "checkpoint": places,
            "delivered": places,
            "repeats": Array(self.shared, boolean()),
            "receding": boolean(),
            "from_place": places,
            "dead": Array(self.members, boolean()),
            "silent": Array(self.members, boolean()),
        }

    def unread(self, s: State, t: int) -> bool:
        return bool(s.delivered[t] < self.length)

    def is_read(self, s: State, t: int) -> bool:
        return bool(s.delivered[t] == self.length)

    def works(self, s: State, m: int) -> int:
        return sum(s.granted[t] == m + 1 and s.checkpoint[t] < self.length for t in range(self.streams))

    @action(actor="leader", fair=True, m="members", t="shared")
    def grant(self, s: State, m: int, t: int) -> None:
        """First client wins: what nobody has goes to whoever asks."""
        require(s.granted[t] == 0 and not s.dead[m] and not s.silent[m])
        s.granted[t] = m + 1
        s.holds[m][t] = True
        s.position[m][t] = s.checkpoint[t]
        s.from_place[t] = s.checkpoint[t]

    @action(actor="member {m}", fair=True, m="members", t="shared")
    def deliver(self, s: State, m: int, t: int) -> None:
        require(s.holds[m][t] and not s.dead[m] and s.position[m][t] < self.length)
        if s.position[m][t] < s.from_place[t]:
            s.repeats[t] = True
        s.position[m][t] += 1
        s.from_place[t] = max(s.from_place[t], s.position[m][t])
        s.delivered[t] = max(s.delivered[t], s.position[m][t])

    @action(actor="member {m}", fair=True, m="members", t="shared")
    def commit(self, s: State, m: int, t: int) -> None:
        """What was delivered. The leader refuses a member that does not have the stream."""
        require(not s.dead[m] and s.position[m][t] != s.checkpoint[t])
        require(self.protocol == "unfenced" or (s.holds[m][t] and s.granted[t] == m + 1 and not s.silent[m]))
        require(s.holds[m][t] or s.position[m][t] > 0)
        if s.position[m][t] < s.checkpoint[t]:
            s.receding = True
        s.checkpoint[t] = s.position[m][t]

    @action(actor="member {m}", m="members", o="members", t="shared")
    def steal(self, s: State, m: int, o: int, t: int) -> None:
        """Member o has two streams to read, member m none."""
        require(m != o and not s.dead[m] and not s.silent[m] and not s.dead[o] and not s.silent[o])
        require(
            s.granted[t] == o + 1 and self.works(s, m) == 0 and self.works(s, o) >= 2 and s.checkpoint[t] < self.length
        )
        if self.protocol != "steal-at-once":
            require(s.holds[o][t])
            s.checkpoint[t] = s.position[o][t]
            s.holds[o][t] = False
        s.granted[t] = m + 1
        s.holds[m][t] = True
        s.position[m][t] = s.checkpoint[t]
        s.from_place[t] = max(s.checkpoint[t], s.from_place[t]) if self.protocol == "steal-at-once" else s.checkpoint[t]

    @action(actor="member {m}", fair=True, m="members")
    def lapse(self, s: State, m: int) -> None:
        """A member that has heard nothing for its lease gives up what it has, by its own clock."""
        require(s.silent[m] and not s.dead[m] and any(s.holds[m][t] for t in range(self.streams)))
        for t in range(self.streams):
            s.holds[m][t] = False

    @action(actor="leader", fair=True, m="members", t="shared")
    def take_back(self, s: State, m: int, t: int) -> None:
        """From a member that is dead, or silent for longer than its lease and the skew of clocks."""
        require(self.protocol != "no-redispatch" or not s.dead[m])
        require(s.granted[t] == m + 1 and (s.dead[m] or s.silent[m]))
        require(s.dead[m] or not s.holds[m][t] or self.protocol == "grant-twice")
        s.granted[t] = 0

    @action(actor="fault", m="members")
    def die(self, s: State, m: int) -> None:
        require(not any(s.dead[o] or s.silent[o] for o in range(2)))
        s.dead[m] = True
        for t in range(self.streams):
            s.holds[m][t] = False

    @action(actor="fault", m="members")
    def fall_silent(self, s: State, m: int) -> None:
        """Its pings do not arrive; it still delivers."""
        require(not any(s.dead[o] or s.silent[o] for o in range(2)))
        s.silent[m] = True

    @invariant(t="shared")
    def exclusive_claim(self, s: State, t: int) -> bool:
        """One member delivers a stream."""
        return not (s.holds[0][t] and s.holds[1][t])

    @invariant(t="shared")
    def no_repeat(self, s: State, t: int) -> bool:
        """Since the stream was granted last, nothing was delivered twice."""
        return not s.repeats[t]

    @invariant()
    def cursor_safe(self, s: State) -> bool:
        """The group's checkpoint never goes back."""
        return not s.receding

    no_loss: ClassVar[Any] = leads_to("unread", "is_read", "Each stream is read to its end.", t="shared")

    def terminal(self, s: State) -> bool:
        return all(s.checkpoint[t] == self.length for t in range(self.streams))
