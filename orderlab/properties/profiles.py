"""How hard to try: `dev` while one types, `ci` on every change, `nightly` for a stated time.

Importing this registers each with Hypothesis as ``orderlab-dev``, ``orderlab-ci`` and ``orderlab-nightly``, under names
that no other project uses; which profile is loaded stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from orderlab.model.errors import InputError

DRAWN_AT_ONCE = 20
"""Hypothesis makes most examples of a run by changing earlier ones of it: five runs of 20 meet more than one of 100."""


@dataclass(frozen=True)
class Profile:
    """Effort for one law of one store."""

    name: str
    examples: int
    """Of each machine, in one round."""
    steps: int
    """In an example."""
    seconds: float | None = None
    """Rounds go on until this time is over; None: one round."""

    def settings(self, database: ExampleDatabase | None, **others: Any) -> settings:
        """For Hypothesis. Deadlines and health checks are off: a shared machine is slow for reasons of its own."""
        return settings(
            **{
                "max_examples": self.examples,
                "stateful_step_count": self.steps,
                "deadline": None,
                "database": database,
                "derandomize": False,  # seeded; and whoever loads a profile that is has no database
                "print_blob": True,
                "suppress_health_check": list(HealthCheck),
                "phases": [Phase.reuse, Phase.generate, Phase.shrink],
                **others,
            }
        )

    def run(
        self,
        machine: type[RuleBasedStateMachine],
        number: int,
        database: ExampleDatabase | None = None,
        shrinks: bool = True,
    ) -> None:
        """One round of a machine; ``number`` is the seed. Raises what the machine does, the first failure only."""
        phases = [Phase.generate, *([Phase.shrink] if shrinks else [])]
        for drawn in range(0, self.examples, DRAWN_AT_ONCE):
            drawing = self.settings(
                database,
                phases=phases if drawn else [Phase.reuse, *phases],
                max_examples=min(DRAWN_AT_ONCE, self.examples - drawn),
                report_multiple_bugs=False,
            )
            run_state_machine_as_test(seed(number + drawn)(machine), settings=drawing)


PROFILES = {
    profile.name: profile
    for profile in (Profile("dev", 15, 20), Profile("ci", 100, 25), Profile("nightly", 60, 40, seconds=60.0))
}

for _profile in PROFILES.values():
    settings.register_profile(
        f"orderlab-{_profile.name}",
        max_examples=_profile.examples,
        stateful_step_count=_profile.steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def profile_named(name: str) -> Profile:
    """The profile called ``name``. Raises InputError."""
    if name not in PROFILES:
        raise InputError(f"profile {name!r}: unknown; one of {', '.join(PROFILES)}")
    return PROFILES[name]


def kept_examples(folder: Path) -> ExampleDatabase:
    """The failing examples of earlier runs, tried first in the next one."""
    return DirectoryBasedExampleDatabase(folder)
