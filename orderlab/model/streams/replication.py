"""Replication of a stream's log on three nodes, whose leader may die for ever, and two readers of it.

The leader appends what it is sent, the others copy its log entry by entry; an entry is committed once two nodes have it. When the leader dies,
one of those that are left with the longest log takes over. ``read-uncommitted`` (D12): readers are given what only the leader has.
``acknowledge-early`` (D9's like): a publisher is told before two nodes have it. ``any-successor``: a node with a shorter log may take over.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarative import Specification, State, action, invariant, require, sometimes
from orderlab.model.spec.variables import Array, Domain, IndexSet, boolean, integer

NODES = 3


class Replication(Specification):
    """Entries are messages by number; 0 is none."""

    name: ClassVar[str] = "streams-replication"
    messages: int = Field(2, ge=1, le=4)
    protocol: Literal["repaired", "read-uncommitted", "acknowledge-early", "any-successor"] = "repaired"

    @cached_property
    def nodes(self) -> IndexSet:
        return IndexSet("node", NODES)

    @cached_property
    def readers(self) -> IndexSet:
        return IndexSet("reader", 2)

    @cached_property
    def published(self) -> IndexSet:
        return IndexSet("message", self.messages)

    @cached_property
    def places(self) -> IndexSet:
        return IndexSet("place", self.messages)

    def variables(self) -> Mapping[str, Domain | Array]:
        entry = Array(self.places, integer(0, self.messages))
        return {
            "log": Array(self.nodes, entry),
            "seen": Array(self.readers, entry),
            "leader": integer(0, NODES - 1),
            "dead": Array(self.nodes, boolean()),
            "sent": Array(self.published, boolean()),
            "acknowledged": Array(self.published, boolean()),
        }

    def is_committed(self, s: State, i: int) -> bool:
        """Two nodes have the leader's entry; of dead ones too, for they had it when they counted."""
        return bool(sum(s.log[n][i] == s.log[s.leader][i] for n in range(NODES)) >= 2)

    def length(self, s: State, n: int) -> int:
        return sum(s.log[n][i] > 0 for i in range(self.messages))

    @action(actor="publisher", m="published", i="places")
    def append(self, s: State, m: int, i: int) -> None:
        require(not s.sent[m] and not s.dead[s.leader] and i == self.length(s, s.leader))
        s.sent[m] = True
        s.log[s.leader][i] = m + 1

    @action(actor="node {n}", n="nodes", i="places")
    def copy_entry(self, s: State, n: int, i: int) -> None:
        require(n != s.leader and not s.dead[n] and not s.dead[s.leader])
        require(s.log[s.leader][i] > 0 and i == self.length(s, n))
        s.log[n][i] = s.log[s.leader][i]

    @action(actor="leader", m="published", i="places")
    def acknowledge(self, s: State, m: int, i: int) -> None:
        require(not s.acknowledged[m] and not s.dead[s.leader] and s.log[s.leader][i] == m + 1)
        require(self.protocol == "acknowledge-early" or self.is_committed(s, i))
        s.acknowledged[m] = True

    @action(actor="reader {r}", r="readers", i="places")
    def read(self, s: State, r: int, i: int) -> None:
        require(not s.dead[s.leader] and s.seen[r][i] == 0 and s.log[s.leader][i] > 0)
        require(i == 0 or s.seen[r][max(i - 1, 0)] > 0)
        require(self.protocol == "read-uncommitted" or self.is_committed(s, i))
        s.seen[r][i] = s.log[s.leader][i]

    @action(actor="fault")
    def die(self, s: State) -> None:
        require(not any(s.dead[n] for n in range(NODES)))
        s.dead[s.leader] = True

    @action(actor="node {n}", n="nodes")
    def take_over(self, s: State, n: int) -> None:
        require(s.dead[s.leader] and not s.dead[n])
        require(
            self.protocol == "any-successor"
            or all(s.dead[o] or self.length(s, o) <= self.length(s, n) for o in range(NODES))
        )
        s.leader = n
        for o in range(NODES):
            if o != n and not s.dead[o]:
                for i in range(self.messages):
                    if s.log[o][i] != s.log[n][i]:
                        s.log[o][i] = 0

    @invariant(i="places")
    def agreement(self, s: State, i: int) -> bool:
        """What both readers have seen at a place is one message."""
        return bool(s.seen[0][i] == 0 or s.seen[1][i] == 0 or s.seen[0][i] == s.seen[1][i])

    @invariant(r="readers", i="places")
    def remains(self, s: State, r: int, i: int) -> bool:
        """What a reader has seen is in the log of whoever leads, for the others to see."""
        return bool(s.seen[r][i] == 0 or s.dead[s.leader] or s.log[s.leader][i] == s.seen[r][i])

    @invariant(m="published")
    def at_least_once(self, s: State, m: int) -> bool:
        """What was acknowledged is in the log of whoever leads."""
        return bool(not s.acknowledged[m] or s.dead[s.leader] or any(s.log[s.leader][i] == m + 1 for i in range(self.messages)))

    @sometimes()
    def survives(self, s: State) -> bool:
        """A message that was appended before the leader died is read from its successor by both."""
        return bool(s.leader != 0 and s.seen[0][0] == 1 and s.seen[1][0] == 1)

    def terminal(self, s: State) -> bool:
        return True
