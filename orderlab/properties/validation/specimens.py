"""The suite's own specimens: each flawed store must be caught by the laws that it breaks, its neighbour must pass
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding, Specimen
from orderlab.sim.stores.binding.loader import load_binding

FOLDER = Path(__file__).parents[2] / "lua" / "specimens"


@dataclass(frozen=True)
class SpecimenResult:
    """One specimen beside its nearest correct neighbour."""

    name: str
    specimen: Specimen
    caught: dict[str, str]
    """Law that it breaks -> the shortest way there, in words; only those that were found."""
    neighbour: dict[str, Outcome]
    """The same laws on the neighbour."""

    @property
    def missed(self) -> list[str]:
        """Laws that the specimen breaks and that nobody saw broken."""
        return [law for law in self.specimen.breaks if law not in self.caught]

    @property
    def accused(self) -> list[str]:
        """Laws that the neighbour is said to break, or that could not be decided on it."""
        return [law for law, outcome in self.neighbour.items() if outcome is not Outcome.HOLDS]

    @property
    def is_right(self) -> bool:
        return not self.missed and not self.accused

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "id": self.specimen.id,
            "name": self.name,
            "scenario": self.specimen.scenario,
            "breaks": list(self.specimen.breaks),
            "caught": self.caught,
            "missed": self.missed,
            "neighbour": {law: str(outcome) for law, outcome in self.neighbour.items()},
            "right": self.is_right,
        }


def find_specimens(names: Iterable[str] = (), of_sessions: bool = True) -> list[Binding]:
    """The suite's specimens, or those called ``names`` (by folder or by id). ``of_sessions``: of session stores alone.

    Raises InputError for unknown names.
    """
    found = [load_binding(path.parent, trust_adapter=True) for path in sorted(FOLDER.glob("*/store.toml"))]
    specimens = [one for one in found if one.specimen is not None and not (of_sessions and one.contract)]
    wanted = list(names)
    if not wanted:
        return specimens
    chosen = [one for one in specimens if one.name in wanted or (one.specimen and one.specimen.id in wanted)]
    known = {one.name for one in chosen} | {one.specimen.id for one in chosen if one.specimen}
    for name in wanted:
        if name not in known:
            raise InputError(f"specimens: no specimen {name!r}; known: {', '.join(one.name for one in specimens)}")
    return chosen


def judge_specimens(
    bindings: list[Binding], effort: float, seed: int = 0, progress: Callable[[str], None] = lambda text: None
) -> list[SpecimenResult]:
    """Validate each specimen by the laws that it breaks, until each has a witness, and each neighbour once by all of
    those."""
    neighbours: dict[Path, dict[str, Outcome]] = {}
    results = []
    for binding in bindings:
        specimen = binding.specimen
        assert specimen is not None
        progress(binding.name)
        kind = kind_of(binding)
        caught = kind.judged(binding, WorkOrder(effort, seed, specimen.breaks, only_first=True)).caught
        home = specimen.neighbour.resolve()
        if home not in neighbours:
            progress(f"neighbour {home.name}")
            neighbours[home] = kind.judged(load_binding(home, trust_adapter=True), WorkOrder(effort, seed)).outcomes
        outcomes = neighbours[home]
        results.append(SpecimenResult(binding.name, specimen, caught, {law: outcomes[law] for law in specimen.breaks}))
    return results
