"""Two clients share one lock: a specification to begin with. Run it: orderlab explore THIS_FILE.py

What each part means, and what else there is: notes/specifications.md.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import ClassVar

from pydantic import Field

from orderlab.specification import (
    NOBODY,
    Array,
    Domain,
    IndexSet,
    LeadsToDeclaration,
    Specification,
    State,
    action,
    choice,
    element,
    integer,
    invariant,
    leads_to,
    require,
    set_of,
    sometimes,
    step_invariant,
)


class At(IntEnum):
    """Where a client is. The values of an enumeration are consecutive."""

    AWAY = 0
    WAITING = 1
    INSIDE = 2


class Lock(Specification):
    name: ClassVar[str] = "lock"

    # Parameters: what makes the system finite. Set them with --set clients=3.
    clients: int = Field(2, ge=1, le=5)
    broken: bool = False

    @cached_property
    def everyone(self) -> IndexSet:
        # Symmetric: actions and laws treat all clients alike, so --symmetry may be used.
        return IndexSet("client", self.clients, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "at": Array(self.everyone, choice(At)),
            "owner": element(self.everyone, optional=True),  # a client, or NOBODY
            "waiting": set_of(element(self.everyone)),  # as a value: |= and -= make a new one; also record, sequence_of
            "entries": integer(0, 3),
        }

    def initial(self, s: State) -> None:
        # Every variable starts at the low end of its domain: AWAY, NOBODY, {}, 0. Assign what does not.
        s.owner = NOBODY

    # Actions: the guard first, then assignments. One instance for each client.

    @action(actor="client {c}", c="everyone")
    def ask(self, s: State, c: int) -> None:
        require(s.at[c] == At.AWAY)
        s.at[c] = At.WAITING
        s.waiting |= {c}

    @action(actor="client {c}", fair="strong", c="everyone")
    def enter(self, s: State, c: int) -> None:
        require(s.at[c] == At.WAITING)
        require(s.owner == NOBODY or self.broken)
        s.owner = c
        s.at[c] = At.INSIDE
        s.waiting -= {c}
        s.entries = min(s.entries + 1, 3)

    @action(actor="client {c}", fair="weak", c="everyone")
    def leave(self, s: State, c: int) -> None:
        require(s.at[c] == At.INSIDE)
        s.owner = NOBODY
        s.at[c] = At.AWAY

    # Predicates: plain methods, used by laws.

    def is_waiting(self, s: State, c: int) -> bool:
        return c in s.waiting

    def is_inside(self, s: State, c: int) -> bool:
        return bool(s.at[c] == At.INSIDE)

    # Laws. The docstring is told with a witness.

    @invariant()
    def mutual_exclusion(self, s: State) -> bool:
        """At most one client is inside."""
        return bool(sum(s.at[c] == At.INSIDE for c in self.everyone) <= 1)

    @invariant(when="is_inside", c="everyone")
    def owner_is_inside(self, s: State, c: int) -> bool:
        """Who is inside owns the lock."""
        return bool(s.owner == c)

    @step_invariant()
    def entries_grow(self, before: State, after: State) -> bool:
        """The count of entries never goes back."""
        return bool(after.entries >= before.entries)

    @sometimes()
    def someone_enters(self, s: State) -> bool:
        """The lock is used at all."""
        return bool(s.entries > 0)

    no_starvation: ClassVar[LeadsToDeclaration] = leads_to(
        "is_waiting", "is_inside", "Who waits comes in.", c="everyone"
    )
