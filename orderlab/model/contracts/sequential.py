"""The contract that a store's owner writes, as a sequential specification, in the nouns of every contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orderlab.model.contracts.base import ALL_OR_NOTHING, SPECIFICATION, AnyTrace, Contract, Opening, Situation
from orderlab.model.contracts.client_steps import ClientStep, ContractTrace, fault_of, told_step

ONE_SLOT, BOUNDED, NO_RESIDUE, WAKE_UP = "one-slot", "bounded", "no-residue", "wake-up"
GENERIC = {
    SPECIFICATION: "every reply is one that the specification allows",
    ALL_OR_NOTHING: "an operation that is stopped leaves the store as before or as after",
    ONE_SLOT: "all keys of one operation hash to one slot; undeclared keys are told",
    NO_RESIDUE: "what the keys hold grows no further than the contract's state does, whatever the names",
    BOUNDED: "every operation ends, within the limits of a script, makes no more calls while the contract's state is "
    "no larger, and no more calls or Lua instructions for each of the things that are there",
}
"""Laws that hold whatever the contract says."""
WOKEN = (
    "a client that waits without a timeout does not go on waiting when there is something for it and nobody else "
    "does anything"
)


SMALLEST = 2
"""Operations of two clients in every order, from every opening: where less was seen no law holds."""

AT_LENGTH = 5.0
"""From this effort on, what takes a multiple of all that comes before."""


class Scope(NamedTuple):
    """How small a world is explored."""

    name: str
    clients: int
    steps_per_client: int
    waits: int = 2
    faults: int = 1
    """On one path."""
    share: float = 1.0
    """Of all the steps that exploration may take; of none where it is always explored to its end."""
    opening: Opening | None = None
    """What happens before; None: the store is empty."""
    operations: int | None = None
    """Of all clients together; None: as many as each of them may."""
    effort_min: float = 0.0
    """Less effort than this leaves it out: it would not come to its end."""

    @property
    def is_smallest(self) -> bool:
        """Whether no law holds unless it was explored to its end."""
        return self.operations == SMALLEST and not self.faults and not self.waits

    @property
    def is_core(self) -> bool:
        """Whether no law holds unless all its runs of so few operations were seen: everything that is smaller than what
        may stop."""
        return self.is_smallest or (self.operations is not None and bool(self.faults or self.waits))

    @property
    def is_solitary(self) -> bool:
        """Whether it is one client's few operations, with trouble."""
        return self.clients == 1 and self.operations is not None and self.faults > 0

    @property
    def is_carried_on(self) -> bool:
        """Whether longer runs begin where it has led, with all the clients of these."""
        return self.is_smallest or self.is_solitary

    @property
    def present(self) -> int:
        """Clients that there are: those of the opening may do nothing more."""
        steps = self.opening.steps if self.opening is not None else ()
        return max(self.clients, *(one[0] + 1 for one in steps if not isinstance(one, int)), 1)

    @property
    def level(self) -> str:
        """How much is explored, wherever it begins."""
        each = (
            f"{self.steps_per_client} operations each" if self.operations is None else f"{self.operations} operations"
        )
        trouble = "" if not self.faults else f", {self.faults} trouble"
        if self.operations is not None and self.waits:
            trouble += ", a wait"
        return f"{self.clients} client{'s' if self.clients > 1 else ''}, {each}{trouble}"


@dataclass(frozen=True)
class SequentialTerms:
    """The terms of a contract that one class of its owner's states."""

    contract: Contract

    @property
    def name(self) -> str:
        """The name of the contract's class."""
        return type(self.contract).__name__

    @property
    def laws(self) -> Mapping[str, str]:
        """Law -> statement: the contract's own, then those that need no contract."""
        waits = {WAKE_UP: WOKEN} if type(self.contract).may_wait is not Contract.may_wait else {}
        return {one.name: one.statement for one in self.contract.laws} | waits | GENERIC

    @property
    def situations(self) -> Mapping[str, Sequence[Situation]]:
        """None: a law counts by itself the replies that test it."""
        return {}

    @property
    def scopes(self) -> Sequence[Scope]:
        """What is explored, with each one's share of the steps."""
        few, clients, openings = self.contract.steps_per_client, self.contract.clients, self.contract.openings()
        rest = 0.4 if openings else 1.0
        begins = (None, *openings)
        return (
            *(self._plain(one, SMALLEST, share=0.0) for one in begins),
            *(self._plain(one, 4, share=0.3 / len(begins)) for one in begins),
            *self._disturbed(begins),
            Scope(f"one client, {few + 1} operations", 1, few + 1, share=0.2 * rest),
            Scope(f"{clients} clients, {few} operations each", clients, few, share=0.6 * rest),
            Scope(f"{clients} clients without faults", clients, few, waits=3, faults=0, share=0.2 * rest),
            *(
                Scope(
                    f"{clients} clients, 2 operations each, {one.name}",
                    clients,
                    2,
                    share=0.6 / len(openings),
                    opening=one,
                    effort_min=AT_LENGTH,
                )
                for one in openings
            ),
        )

    def scopes_at(self, effort: float) -> list[Scope]:
        """Those that are explored at an effort."""
        return [scope for scope in self.scopes if effort >= scope.effort_min]

    @staticmethod
    def _plain(opening: Opening | None, operations: int, share: float) -> Scope:
        """Two clients whom nothing befalls, not even time."""
        where = "" if opening is None else f", {opening.name}"
        return Scope(f"2 clients, {operations} operations{where}", 2, 2, 0, 0, share, opening, operations)

    @staticmethod
    def _disturbed(begins: Sequence[Opening | None]) -> Iterator[Scope]:
        """What befalls one operation before others that may show it, from the empty store and every opening: all kinds
        of trouble under one client; with more effort under two, and time that passes."""
        for one in begins:
            where = "" if one is None else f", {one.name}"
            operations, share = (SMALLEST + 1, 2.4) if one is None else (SMALLEST, 2.4 / len(begins))
            name = f"one client, {operations} operations, a trouble{where}"
            yield Scope(name, 1, operations, 0, 1, share, one, operations)
        for one in begins:
            where = "" if one is None else f", {one.name}"
            for waits, faults, what in ((0, 1, "a trouble"), (1, 0, "a wait")):
                name = f"2 clients, 2 operations, {what}{where}"
                yield Scope(
                    name,
                    2,
                    SMALLEST,
                    waits,
                    faults,
                    1.2 / len(begins),
                    one,
                    SMALLEST,
                    0.0 if one is None else AT_LENGTH,
                )

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of this kind: it names its contract."""
        return "contract" in data

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace. Raises InputError that names what is wrong where."""
        return ContractTrace.from_json(data, place)

    def told_step(self, step: ClientStep, trace: AnyTrace) -> str:
        """One step as a sentence."""
        return told_step(step, trace.skews_ms if isinstance(trace, ContractTrace) else ())

    state_words = "the contract's state"
    states_name = "states"

    def circumstances(self, trace: AnyTrace) -> Iterator[str]:
        """What befalls the last step, if anything."""
        trouble = fault_of(trace.steps[-1]) if trace.steps else None
        if trouble is not None:
            yield str(trouble)

    def one_sided(self, law: str) -> str:
        """How a check can be wrong in one direction only: not at all, beyond what the report says."""
        return ""

    def clauses(self, law: str) -> Sequence[str]:
        """None: the contract is its owner's."""
        return ()
