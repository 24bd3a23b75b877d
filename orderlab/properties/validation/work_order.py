"""How a store is to be judged: what somebody asks of whichever kind of store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orderlab.properties.validation.effort import STANDARD
from orderlab.sim.redis.backends import Backend

Progress = Callable[[str], None]


def in_silence(text: str) -> None:
    """Tell nobody what is being done."""


@dataclass(frozen=True)
class WorkOrder:
    """What one validation is asked to do, and how hard to try."""

    effort: float = STANDARD
    """Multiplies the number of steps."""
    seed: int = 0
    laws: Sequence[str] | None = None
    """None: all that the store is held to."""
    backend: Backend | None = None
    """A real server that witnesses are replayed on, if there is one."""
    progress: Progress = in_silence
    budget_s: float | None = None
    """A cap in seconds on all of it; what it cuts off is told."""
    processes: int = 1
    """Processes that the analyses are shared among; one where it may end early. What is found is the same."""
    only_first: bool = False
    """It ends once each law has a witness, which nobody reads to its end."""
    any_law: bool = False
    """It ends once one of them has."""
    certifies: bool = False
    """A certificate is asked for, so that a scope is closed if many steps can."""

    def part(self, name: str, laws: Sequence[str] | None, budget_s: float | None) -> WorkOrder:
        """The same of one of several stores, by its name in what is told."""
        return replace(self, laws=laws, budget_s=budget_s, progress=lambda text: self.progress(f"{name}: {text}"))


USUAL = WorkOrder()
"""By every law, at the standard effort."""
