"""The store under validation: runs on the kernel on demand, its layout's usual size, its scaled twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model.trace import Trace
from sim.binding.binding import Binding
from sim.binding.scaling import RewrittenLine, scale
from sim.redis.backends import Backend, KernelBackend
from sim.redis.backends.kernel import FIRST_MS
from sim.remembering_store import RememberingStore
from sim.session_inspection import Inspection, Usual, usual_elements
from sim.session_run import SessionRun
from sim.session_store import BoundStore, keeps_sent

DEFAULT_EXPIRY_MS = 20_000
"""Short, so that messages without an interval expire within a run as well."""
CLIENTS = (b"client-one", b"client-two")


@dataclass
class Subject:
    """One binding on the kernel. Kernels are reused: a run begins with an empty keyspace at the first moment."""

    binding: Binding
    seed: int = 0
    rewritten: list[RewrittenLine] = field(default_factory=list)
    """What scaling changed, if this is a scaled store."""
    remembers: bool = False
    """Whether what operations do is remembered: for a search that comes by the same keyspace often."""
    _store: BoundStore | None = None
    _usual: dict[bytes, Usual] = field(default_factory=dict)

    @property
    def store(self) -> BoundStore:
        """The store on its kernel."""
        if self._store is None:
            self._store = (
                RememberingStore(self.binding, DEFAULT_EXPIRY_MS)
                if self.remembers
                else BoundStore(self.binding, KernelBackend(), DEFAULT_EXPIRY_MS)
            )
            self._store.terms = self._store.terms._replace(keeps_sent=keeps_sent(self._store))
        return self._store

    def run(self, clients: Sequence[bytes] = CLIENTS, inspected: bool = True) -> SessionRun:
        """A new run on an empty keyspace."""
        usual = [self.usual(client) for client in clients] if inspected else []
        run = self._bare_run(clients)
        if inspected:
            run.inspector = Inspection(usual)
        return run

    def _bare_run(self, clients: Sequence[bytes]) -> SessionRun:
        self.store.restart(FIRST_MS)
        return SessionRun(self.store, clients)

    def usual(self, client: bytes) -> Usual:
        """What the layout holds for a client when all is well."""
        if client not in self._usual:
            self._usual[client] = usual_elements(lambda: self._bare_run((client,)))
        return self._usual[client]

    def scaled(self, modulus: int) -> Subject:
        """The same store with packet identifiers 1..``modulus``."""
        binding, rewritten = scale(self.binding, modulus)
        return Subject(binding, self.seed, rewritten, True)

    @property
    def limit(self) -> int | None:
        """The limit that the scripts fix themselves, if they do."""
        return self.binding.fixed.get("limit")

    def trace(self, steps: Sequence[object], clients: Sequence[bytes] = CLIENTS) -> Trace:
        """``steps`` as a trace of this store."""
        return Trace(
            tuple(steps),  # type: ignore[arg-type]
            tuple(clients),
            self.store.default_expiry_ms,
            self.binding.modulus,
            str(self.binding.path),
            seed=self.seed,
        )


def run_of(trace: Trace, binding: Binding, backend: Backend, slack_ms: int = 0) -> SessionRun:
    """A run on ``backend``, ready for the steps of ``trace``."""
    store = BoundStore(binding, backend, trace.default_expiry_ms)
    return SessionRun(store, trace.clients, slack_ms=slack_ms)
