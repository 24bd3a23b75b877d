"""Where a replay begins, when clients say so with a user property of their subscription, also as members of a group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer

CONNECTS = 2
"""Of each member; with every one it says its start time again, as clients do."""


class StartTime(Specification):
    """A group replays a shard from a start time, which is compared with the times that the shard gave its messages.

    Repaired: the first client's start time is the group's, for good, and what is older is passed over message by
    message, so that a start time to come waits for it. ``last-wins``: each member that joins sets the cursor anew.
    ``every-connect``: a member that comes back does. ``place-at-once``: a start time becomes a place in the log when
    the client subscribes; one to come then is the end of the log, and what is older than it still comes.
    """

    name: ClassVar[str] = "streams-start-time"
    messages: int = Field(3, ge=1, le=4)
    ticks: int = Field(2, ge=1, le=4)
    members: int = Field(2, ge=1, le=3)
    protocol: Literal["repaired", "last-wins", "every-connect", "place-at-once"] = "repaired"

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def group(self) -> IndexSet:
        return IndexSet("member", self.members)

    @cached_property
    def times(self) -> IndexSet:
        return IndexSet("time", self.ticks + 1)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "clock": integer(0, self.ticks),
            "stored": integer(0, self.messages),
            "time": Array(self.published, integer(0, self.ticks)),
            "connects": Array(self.group, integer(0, CONNECTS)),
            "says": Array(self.group, integer(0, self.ticks)),
            "begun": boolean(),
            "wanted": integer(0, self.ticks),
            "start": integer(0, self.ticks),
            "cursor": integer(0, self.messages),
            "read": Array(self.published, boolean()),
            "repeated": boolean(),
            "waited": boolean(),
        }

    def is_wanted(self, s: State, m: int) -> bool:
        """Whether the first client's start time selects it."""
        return bool(s.begun and m < s.stored and s.time[m] >= s.wanted)

    def is_read(self, s: State, m: int) -> bool:
        return bool(s.read[m])

    def is_next(self, s: State, m: int) -> bool:
        if self.protocol == "place-at-once":
            return bool(m == s.cursor and m < s.stored)
        return bool(
            s.cursor <= m < s.stored
            and s.time[m] >= s.start
            and all(not s.cursor <= o < m or s.time[o] < s.start for o in range(self.messages))
        )

    @action(actor="clock")
    def tick(self, s: State) -> None:
        """The shard's, which never goes back (`Clocks`)."""
        require(s.clock < self.ticks)
        s.clock += 1

    @action(actor="publisher")
    def publish(self, s: State) -> None:
        require(s.stored < self.messages)
        for m in range(self.messages):
            if m == s.stored:
                s.time[m] = s.clock
        s.stored += 1

    @action(actor="member {m}", m="group", t="times")
    def connect(self, s: State, m: int, t: int) -> None:
        """With a start time, which does not change: the application has it in its configuration."""
        require(s.connects[m] < CONNECTS and (s.connects[m] == 0 or s.says[m] == t))
        if not s.begun:
            s.wanted = t
        sets = (
            not s.begun
            or (self.protocol == "last-wins" and s.connects[m] == 0)
            or (self.protocol == "every-connect" and s.connects[m] > 0)
        )
        s.begun = True
        s.connects[m] += 1
        s.says[m] = t
        if sets:
            s.start = t
            s.waited = t > s.clock
            s.cursor = 0
            if self.protocol == "place-at-once":
                s.cursor = sum(m < s.stored and s.time[m] < t for m in range(self.messages))

    @action(actor="group", fair=True, m="published")
    def deliver(self, s: State, m: int) -> None:
        """The next, to whichever member has the stream (`SharedReplay`); the cursor goes behind it."""
        require(s.begun and self.is_next(s, m))
        if s.read[m]:
            s.repeated = True
        s.read[m] = True
        s.cursor = m + 1

    @invariant(m="published")
    def from_start(self, s: State, m: int) -> bool:
        """Nothing is read that is older than what the first client asked for."""
        return bool(not s.read[m] or s.time[m] >= s.wanted)

    @invariant(m="published")
    def cursor_safe(self, s: State, m: int) -> bool:
        """Nothing that is wanted and was not read lies behind the cursor."""
        return bool(m >= s.cursor or s.read[m] or not self.is_wanted(s, m))

    @invariant()
    def no_repeat(self, s: State) -> bool:
        """Nothing is delivered twice."""
        return not s.repeated

    no_loss: ClassVar[Any] = leads_to("is_wanted", "is_read", "What is wanted is read in the end.", m="published")

    @sometimes()
    def begins_in_time_to_come(self, s: State) -> bool:
        """The start time was still to come, older messages were passed over, and what came at its time was read."""
        return bool(s.waited and s.cursor > 1 and not s.read[0] and s.read[s.cursor - 1])

    def terminal(self, s: State) -> bool:
        return True
