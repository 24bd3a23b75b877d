"""Replication of a stream's log on three nodes, whose leader may fall silent, for ever or for a while, and two readers
of it.

A leader appends what it is sent, the others copy its log entry by entry, and an entry of its term is committed once two
nodes have it. Any node may stand for leader in a new term, with the vote of one other whose log is not ahead of its
own; who led before goes on leading until it hears of the new term (a *stale leader*), and one that is never heard of
again is a dead one.

``read-uncommitted`` (D12): readers are given what only the leader has. ``acknowledge-early``: a publisher is told
before two nodes have it. ``any-successor``: votes do not compare logs. ``no-terms``: a follower copies from a stale
leader too. ``older-terms``: an entry of an older term counts as committed once two nodes have it, with no entry of the
leader's own term behind it (needs three terms and two messages).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer

NODES = 3


class Replication(Specification):
    """Entries are messages by number; 0 is none. Node 0 leads in term 1, the first."""

    name: ClassVar[str] = "streams-replication"
    messages: int = Field(2, ge=1, le=3)
    terms: int = Field(2, ge=1, le=4)
    protocol: Literal[
        "repaired", "read-uncommitted", "acknowledge-early", "any-successor", "no-terms", "older-terms"
    ] = "repaired"

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
            "written": Array(self.nodes, Array(self.places, integer(0, self.terms))),
            "term": Array(self.nodes, integer(0, self.terms)),
            "led": Array(self.nodes, integer(0, self.terms)),
            "seen": Array(self.readers, entry),
            "sent": Array(self.published, boolean()),
            "acknowledged": Array(self.published, boolean()),
        }

    def leads(self, s: State, n: int) -> bool:
        """As far as it knows; node 0 from the start, in term 0."""
        return bool(s.led[n] == s.term[n] and (n == 0 or s.led[n] > 0))

    def length(self, s: State, n: int) -> int:
        return sum(s.log[n][i] > 0 for i in range(self.messages))

    def last_term(self, s: State, n: int) -> int:
        return int(max(s.written[n][i] for i in range(self.messages)))

    def has_two(self, s: State, n: int, i: int) -> bool:
        """Two nodes have the leader's entry and all before it."""
        return bool(
            sum(
                all(
                    j > i or (s.log[o][j] == s.log[n][j] and s.written[o][j] == s.written[n][j])
                    for j in range(self.messages)
                )
                for o in range(NODES)
            )
            >= 2
        )

    def is_committed(self, s: State, n: int, i: int) -> bool:
        """As a leader may say: its own term's entry, or what lies before one."""
        if self.protocol == "older-terms":
            return self.has_two(s, n, i)
        return any(
            j >= i and s.log[n][j] > 0 and s.written[n][j] == s.term[n] and self.has_two(s, n, j)
            for j in range(self.messages)
        )

    def is_latest(self, s: State, n: int) -> bool:
        return self.leads(s, n) and all(s.term[o] <= s.term[n] for o in range(NODES))

    @action(actor="leader {n}", n="nodes", m="published", i="places")
    def append(self, s: State, n: int, m: int, i: int) -> None:
        require(self.leads(s, n) and not s.sent[m] and i == self.length(s, n))
        s.sent[m] = True
        s.log[n][i] = m + 1
        s.written[n][i] = s.term[n]

    @action(actor="node {n}", n="nodes", o="nodes", i="places")
    def copy_entry(self, s: State, n: int, o: int, i: int) -> None:
        """Node n copies from leader o the first entry in which they differ, and forgets what it had behind it."""
        require(n != o and self.leads(s, o) and s.log[o][i] > 0)
        require(s.term[n] <= s.term[o] or self.protocol == "no-terms")
        require(
            all(
                j >= i or (s.log[n][j] == s.log[o][j] and s.written[n][j] == s.written[o][j])
                for j in range(self.messages)
            )
        )
        require(s.log[n][i] != s.log[o][i] or s.written[n][i] != s.written[o][i])
        if s.term[n] <= s.term[o]:
            s.term[n] = s.term[o]
            if self.leads(s, n):
                s.led[n] = 0
        for j in range(self.messages):
            if j > i:
                s.log[n][j] = 0
                s.written[n][j] = 0
        s.log[n][i] = s.log[o][i]
        s.written[n][i] = s.written[o][i]

    @action(actor="node {n}", n="nodes", o="nodes")
    def take_over(self, s: State, n: int, o: int) -> None:
        """In a new term, by the vote of node o, which knows of none as new."""
        require(n != o and not self.leads(s, n) and s.term[n] < self.terms and s.term[o] <= s.term[n])
        require(
            self.protocol == "any-successor"
            or self.last_term(s, n) > self.last_term(s, o)
            or (self.last_term(s, n) == self.last_term(s, o) and self.length(s, n) >= self.length(s, o))
        )
        s.term[n] += 1
        s.led[n] = s.term[n]
        s.term[o] = s.term[n]

    @action(actor="node {n}", n="nodes", o="nodes")
    def hear(self, s: State, n: int, o: int) -> None:
        """Of a newer term, from a node that was asked for its vote or its copy; a stale leader follows from then on,
        and may stand again."""
        require(s.term[n] < s.term[o])
        s.term[n] = s.term[o]

    @action(actor="leader {n}", n="nodes", m="published", i="places")
    def acknowledge(self, s: State, n: int, m: int, i: int) -> None:
        require(self.leads(s, n) and not s.acknowledged[m] and s.log[n][i] == m + 1)
        require(self.protocol == "acknowledge-early" or self.is_committed(s, n, i))
        s.acknowledged[m] = True

    @action(actor="reader {r}", r="readers", n="nodes", i="places")
    def read(self, s: State, r: int, n: int, i: int) -> None:
        """Of any that leads as far as it knows."""
        require(self.leads(s, n) and s.seen[r][i] == 0 and s.log[n][i] > 0)
        require(i == 0 or s.seen[r][max(i - 1, 0)] > 0)
        require(self.protocol == "read-uncommitted" or self.is_committed(s, n, i))
        s.seen[r][i] = s.log[n][i]

    @invariant(i="places")
    def agreement(self, s: State, i: int) -> bool:
        """What both readers have seen at a place is one message."""
        return bool(s.seen[0][i] == 0 or s.seen[1][i] == 0 or s.seen[0][i] == s.seen[1][i])

    @invariant(r="readers", n="nodes", i="places")
    def remains(self, s: State, r: int, n: int, i: int) -> bool:
        """What a reader has seen is in the log of who leads in the newest term, for the others to see."""
        return bool(s.seen[r][i] == 0 or not self.is_latest(s, n) or s.log[n][i] == s.seen[r][i])

    @invariant(m="published", n="nodes")
    def at_least_once(self, s: State, m: int, n: int) -> bool:
        """What was acknowledged is in the log of who leads in the newest term."""
        return bool(
            not s.acknowledged[m] or not self.is_latest(s, n) or any(s.log[n][i] == m + 1 for i in range(self.messages))
        )

    @sometimes()
    def survives(self, s: State) -> bool:
        """A message of the first leader is read by both after another has taken over."""
        return bool(s.written[0][0] == 0 and s.seen[0][0] > 0 and s.seen[1][0] > 0 and not self.is_latest(s, 0))

    def terminal(self, s: State) -> bool:
        return True
