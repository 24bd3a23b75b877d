"""A witness on a real server: the same steps, judged the same way."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from orderlab.model.errors import InputError
from orderlab.sim.redis.backends import Backend
from orderlab.sim.stores.bound import BudgetExceeded, CpuBudget

NOT_BY_RUNNING = {
    "one-slot": "a single server knows no slots",
    "bounded": "an estimate, not a behaviour",
}


@dataclass(frozen=True)
class Confirmation:
    """What a real server said of a trace."""

    place: str
    broken: frozenset[str] = frozenset()
    """Laws that the trace broke there."""
    cannot: str = ""
    """Why it was not run there, or why its end says little."""

    def words(self, law: str) -> str:
        """``confirmed on ...``, or why not."""
        if law in self.broken:
            return f"confirmed on {self.place}"
        reason = NOT_BY_RUNNING.get(law) or self.cannot or "the same steps did not break the law there"
        return f"not confirmed on {self.place}: {reason}"


def place_of(backend: Backend) -> str:
    """The backend's name and version."""
    return backend.describe().split(" at ")[0]


def refuse_company(backend: Backend) -> None:
    """Raises InputError when a user's server holds other databases: a script can reach them all (SELECT, FLUSHALL)."""
    facts = backend.execute(b"INFO", b"keyspace") if backend.clock_runs else b""
    held = [line.split(b":")[0].decode() for line in facts.splitlines() if line.startswith(b"db")]
    if held:
        raise InputError(
            f"--backend {backend.describe().split(' at ')[-1]}: {', '.join(held)} of this server hold keys that "
            "scripts "
            "could reach (SELECT, FLUSHALL); give a server that holds nothing, or use --backend auto"
        )


class Performer(Protocol):
    """What a kind of store brings: a trace on a server."""

    def cannot(self, trace: Any) -> str:
        """Why a server that runs alone cannot be brought through these steps, if it cannot."""
        ...

    def broken_on(self, trace: Any, backend: Backend, budget: CpuBudget) -> frozenset[str]:
        """The laws that the steps break there. Raises InputError when the server goes away, BudgetExceeded where the
        steps take longer than is left."""
        ...

    def waits(self, trace: Any) -> bool:
        """Whether time passes in it."""
        ...


class Confirmer:
    """Asks one server about witnesses, about the same steps once. A server that goes away takes no verdict with it."""

    def __init__(self, backend: Backend | None, performer: Performer, budget: CpuBudget) -> None:
        self.backend = backend
        self.performer = performer
        self.budget = budget
        self.lost = ""
        """What became of the server, if it went away."""
        self._known: dict[Hashable, Confirmation] = {}

    def words(self, trace: Any, law: str, exhausts: bool) -> str:
        """What the server says of ``law``. ``exhausts``: a script was stopped at its limits here."""
        if self.backend is None:
            return "not confirmed: no real server"
        if self.lost:
            return f"not confirmed: {self.lost}"
        if law in NOT_BY_RUNNING:
            return Confirmation(place_of(self.backend)).words(law)
        steps = trace.clients, trace.steps
        if steps not in self._known:
            try:
                self.budget.check()
                self._known[steps] = self._confirmed(self.backend, trace, exhausts)
            except BudgetExceeded:
                return "not confirmed: the cap on the time was reached"
            except InputError as error:
                self.lost = str(error)
                return f"not confirmed: {self.lost}"
        return self._known[steps].words(law)

    def _confirmed(self, backend: Backend, trace: Any, exhausts: bool) -> Confirmation:
        place = place_of(backend)
        if exhausts:
            return Confirmation(
                place, cannot="a script that was stopped at its limits here is not let loose on a server"
            )
        cannot = self.performer.cannot(trace)
        if cannot:
            return Confirmation(place, cannot=cannot)
        broken = self.performer.broken_on(trace, backend, self.budget)
        return Confirmation(
            place, broken, "there, time cannot be set to the millisecond" if self.performer.waits(trace) else ""
        )
