"""Partial-order reduction from recorded footprints: of steps that commute, only one order is followed.

At each state the steps of one process alone are followed if that is safe (an ample set): nobody else, now or later,
touches what these steps or the guards of this process touch; no law looks at what they write; and one of them leads to
a state that has still to be expanded. What "later" touches is not known in advance, so footprints are collected while
exploring, and a run during which a collected footprint grew is repeated with the larger ones until none grows. The
argument why the last run is then sound for invariants, goals and deadlocks is in notes/explorer-reductions.md. Under
symmetry a representative stands for states in which other processes did the same: what one was seen to touch counts
for all that a renaming makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orderlab.model.spec.transition_system import (
    Invariant,
    Label,
    Law,
    LeadsTo,
    Place,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)


class Reduction:
    """`grew` tells that a footprint went beyond those that choices were based on: the run does not count."""

    def __init__(self, system: TransitionSystem[Any], laws: Sequence[Law] | None = None, symmetry: bool = False):
        self._system = system
        self._exchanges = system.exchanges_of_footprints() if symmetry else ()
        laws = system.laws() if laws is None else laws
        self._lookers = [law.reads for law in laws if isinstance(law, Invariant | Sometimes) and law.reads is not None]
        blind = [law for law in laws if isinstance(law, Invariant | Sometimes) and law.reads is None]
        whole = [law for law in laws if isinstance(law, StepInvariant | LeadsTo)]
        self.refused_by: tuple[str, ...] = tuple(law.name for law in [*blind, *whole])
        self._reads: dict[str, set[Place]] = {}
        self._writes: dict[str, set[Place]] = {}
        self._watched: dict[str, set[Place]] = {"": set()}
        """The places that laws look at, under the name of nobody."""
        self.grew = False
        self.reduced_states = 0
        self.seen_before: dict[str, list[Any]] = {}
        """What earlier rounds have found, and the states on the way there: a violation of any round is a real one."""

    def saw_state(self, state: Any) -> None:
        for reads in self._lookers:
            self._extend(self._watched, "", reads(state))

    def choose(self, state: Any, is_open: Callable[[Any], bool]) -> Sequence[tuple[Label, Any]]:
        """The steps to follow from a state: an ample set, or all."""
        steps, waiting = self._system.expansion(state)
        for actor, places in waiting.items():
            self._extend(self._reads, actor, places)
        by_actor: dict[str, list[tuple[Label, Any]]] = {}
        for label, after in steps:
            assert label.footprint is not None
            self._extend(self._reads, label.actor, label.footprint.reads)
            self._extend(self._writes, label.actor, label.footprint.writes)
            by_actor.setdefault(label.actor, []).append((label, after))
        if self.refused_by or len(by_actor) < 2:
            return steps
        for actor, own in by_actor.items():
            if self._is_ample(actor, own, waiting) and any(is_open(after) for _, after in own):
                self.reduced_states += 1
                return own
        return steps

    def _extend(self, known: dict[str, set[Place]], actor: str, more: frozenset[Place]) -> None:
        """Enter the places that a process touches, and under symmetry all that renaming makes of it: what is known is
        closed under renaming."""
        waiting = [] if more <= known.setdefault(actor, set()) else [(actor, more)]
        while waiting:
            who, places = waiting.pop()
            of_one = known.setdefault(who, set())
            if places <= of_one:
                continue
            of_one |= places
            self.grew = True
            waiting += [exchange(who, places) for exchange in self._exchanges]

    def _is_ample(self, actor: str, own: list[tuple[Label, Any]], waiting: Mapping[str, frozenset[Place]]) -> bool:
        writes: set[Place] = set()
        reads: set[Place] = set(waiting.get(actor, frozenset()))
        for label, _ in own:
            assert label.footprint is not None
            writes |= label.footprint.writes
            reads |= label.footprint.reads
        if not writes.isdisjoint(self._watched[""]):
            return False
        for other in self._reads.keys() | self._writes.keys():
            if other == actor:
                continue
            theirs = self._writes.get(other, set())
            if not (theirs.isdisjoint(reads) and theirs.isdisjoint(writes)):
                return False
            if not writes.isdisjoint(self._reads.get(other, set())):
                return False
        return True

    @property
    def must_repeat(self) -> bool:
        """Whether choices were based on footprints that turned out too small. Where nothing was left out, none were."""
        return self.grew and self.reduced_states > 0

    def snapshot(self) -> dict[str, Any]:
        return {
            "reads": self._reads, "writes": self._writes, "watched": self._watched, "grew": self.grew,
            "reduced_states": self.reduced_states, "seen_before": self.seen_before,
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._reads, self._writes = dict(saved["reads"]), dict(saved["writes"])
        self._watched, self.grew = dict(saved["watched"]), saved["grew"]
        self.reduced_states = saved["reduced_states"]
        self.seen_before = dict(saved["seen_before"])

    def next_round(self, found: Mapping[str, list[Any]]) -> None:
        """Keep what was collected and begin a run that counts if nothing is added."""
        self.seen_before = {**found, **self.seen_before}
        self.grew = False
        self.reduced_states = 0
