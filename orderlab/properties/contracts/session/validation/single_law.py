"""One law of one store as a test: scenarios, then Hypothesis machines, and for a violation the shortest story.

The machines run on the store with few packet identifiers, where a handful of saves goes round, and from ``ci`` on also
on the scripts as they are. What breaks the law in the small world counts when it can be reproduced on the scripts as
they are; `validate` explores and searches longer, and both share machines, judge and witness.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis.database import ExampleDatabase

from orderlab.properties.contracts.session.machines.on_store import FOOTPRINT_LAWS, machines_for, on_kernel
from orderlab.properties.contracts.session.machines.store import LawViolated, StoreMachine
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import small_world
from orderlab.properties.contracts.session.validation.footprint import measure_footprint
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.validation import SessionJudge
from orderlab.properties.machines.tally import TALLIES, Tally
from orderlab.properties.profiles import Profile
from orderlab.properties.validation.effort import QUICK
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.law_run import LawRun
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import BudgetExceeded


def run_law(
    binding: Binding, law: str, profile: Profile, number: int, database: ExampleDatabase | None = None
) -> LawRun:
    """Test one law of a store. ``number`` is the seed. Raises InputError for a store that cannot be run."""
    began = time.monotonic()
    found = LawRun(str(binding.path), law, number)
    subject, findings = Subject(binding, number), Findings(frozenset([law]))
    small = small_world(subject, findings)
    before = {name: tally.copy() for name, tally in TALLIES.items()}
    try:
        run_scenarios(small, findings)
    except BudgetExceeded:
        findings.gaps.append("scenarios: not finished, scripts did not end")
    if law in FOOTPRINT_LAWS and not findings.is_settled:
        measure_footprint(subject, findings)
    for machine, world in _searches(subject, small, law, profile, began):
        if findings.is_settled:
            break
        drawn = zlib.crc32(f"{number} {law} {machine.__name__} {world.rounds}".encode())
        violation = search(machine, profile, drawn, database)
        if violation is not None:
            error, found.blob = violation
            found.machine = machine.__name__
            trace = world.subject.trace(error.steps)
            findings.add(error.discrepancies, trace, f"the state machine {machine.__name__}")
    found.tallies = {name: tally.since(before.get(name, Tally())) for name, tally in TALLIES.items()}
    for name, tally in found.tallies.items():
        findings.coverage.update(tally.coverage)
        if tally.cut_off:
            findings.gaps.append(
                f"{name}: {tally.cut_off:,} of {tally.examples:,} examples were cut off, scripts did not end"
            )
    judge = SessionJudge(subject, small, findings, WorkOrder(seed=number))
    judge.consider(QUICK)
    found.report(judge.result(law))
    found.seconds = time.monotonic() - began
    return found


@dataclass
class _World:
    """A store to search, and in which round."""

    subject: Subject
    rounds: int = 0


def _searches(
    subject: Subject, small: Subject, law: str, profile: Profile, began: float
) -> Iterator[tuple[type[StoreMachine], _World]]:
    """Machines in the order in which they run: all of them once, then again until the time is over. Past it, examples
    end before their first step."""
    worlds = [small] if profile.name == "dev" else [small, subject]
    rounds = 0

    def is_over() -> bool:
        return profile.seconds is not None and time.monotonic() - began > profile.seconds

    while True:
        for world in worlds:
            for kind in machines_for(law):
                if is_over():
                    return
                name = f"Small{kind.__name__}" if world is small else kind.__name__
                world.store.run_again()  # whatever did not end before
                yield on_kernel(kind, world, name, laws=frozenset([law]), is_over=is_over), _World(world, rounds)
        rounds += 1
        if profile.seconds is None:
            return


def search(
    machine: type[StoreMachine], profile: Profile, number: int, database: ExampleDatabase | None, shrinks: bool = True
) -> tuple[LawViolated, str] | None:
    """Run a machine; the violation after shrinking, with the line that reproduces it, or None."""
    try:
        profile.run(machine, number, database, shrinks)
    except LawViolated as violation:
        notes = getattr(violation, "__notes__", [])
        blobs = [line.strip() for note in notes for line in note.splitlines() if "@reproduce_failure" in line]
        return violation, blobs[0][blobs[0].index("@") :].split(" as a ")[0] if blobs else ""
    return None
