"""Threads that increment a counter in two steps, read and write, with a lock or without.

After the examples increment and increment_lock of Stateright, which publish 13 distinct states for two threads without
a lock (8 up to symmetry) and 17 with one (9 up to symmetry). Without the lock an increment is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import ClassVar

from pydantic import Field

from orderlab.model.spec.declarations import LeadsToDeclaration, action, eventually, invariant, require
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, choice, integer


class At(IntEnum):
    """Where a thread is."""

    START = 0
    LOCKED = 1
    READ = 2
    WRITTEN = 3
    DONE = 4


class Increment(Specification):
    """Without the lock a thread begins where it would hold the lock, and is done once it has written."""

    name: ClassVar[str] = "increment"
    threads: int = Field(2, ge=1, le=6)
    lock: bool = True

    @cached_property
    def workers(self) -> IndexSet:
        return IndexSet("thread", self.threads, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "counter": integer(0, self.threads),
            "locked": boolean(),
            "at": Array(self.workers, choice(At)),
            "seen": Array(self.workers, integer(0, self.threads)),
        }

    @action(actor="thread {t}", fair=True, t="workers")
    def acquire(self, s: State, t: int) -> None:
        require(self.lock and s.at[t] == At.START and not s.locked)
        s.locked = True
        s.at[t] = At.LOCKED

    @action(actor="thread {t}", fair=True, t="workers")
    def read(self, s: State, t: int) -> None:
        if self.lock:
            require(s.at[t] == At.LOCKED)
        else:
            require(s.at[t] == At.START)
        s.seen[t] = s.counter
        s.at[t] = At.READ

    @action(actor="thread {t}", fair=True, t="workers")
    def write(self, s: State, t: int) -> None:
        require(s.at[t] == At.READ)
        s.counter = s.seen[t] + 1
        s.at[t] = At.WRITTEN

    @action(actor="thread {t}", fair=True, t="workers")
    def release(self, s: State, t: int) -> None:
        require(self.lock and s.at[t] == At.WRITTEN and s.locked)
        s.locked = False
        s.at[t] = At.DONE

    def all_written(self, s: State) -> bool:
        return all(s.at[t] >= At.WRITTEN for t in self.workers)

    @invariant()
    def no_lost_update(self, s: State) -> bool:
        """The counter is the number of threads that have written."""
        return bool(s.counter == sum(s.at[t] >= At.WRITTEN for t in self.workers))

    @invariant()
    def mutual_exclusion(self, s: State) -> bool:
        inside = sum(s.at[t] >= At.LOCKED and s.at[t] <= At.WRITTEN for t in self.workers)
        return inside <= 1 or not self.lock

    everyone_writes: ClassVar[LeadsToDeclaration] = eventually("all_written", "Every thread writes in the end.")

    def terminal(self, s: State) -> bool:
        return self.all_written(s)

    def action_names(self) -> list[str]:
        return ["acquire", "read", "write", "release"] if self.lock else ["read", "write"]
