"""A binding on a backend: operations in, results out, and a listing that leaves no trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from orderlab.child import asked_to_end
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.conditions import NodeCrashed, ScriptTimeout
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Effect, GrowthLimit
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.operations import scope_of
from orderlab.sim.stores.binding.replies import ROW_SHAPES, UNREADABLE, ReplyMismatch
from orderlab.sim.stores.binding.results import Call, Failed, Fetched, Fields, Message, Result, ScriptCall
from orderlab.sim.stores.binding.session import Store as StoreTables
from orderlab.sim.stores.records import Record, record_of
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS, condition, is_expected_type, scratch

CHARGED = 1_000_000
"""Instructions of one script are counted in whole millions: what ends sooner is counted by its steps."""


class BudgetExceeded(Exception):
    """The work, or the time, that was set for it has run out."""


@dataclass
class CpuBudget:
    """Shared by all stores of one piece of work."""

    at_s: float = inf
    clock: Callable[[], float] = time.process_time
    instructions_left: float = inf
    is_interruptible: bool = False
    """Whether the time has run out as well when this process is asked to end (``orderlab.child.asked_to_end``)."""
    charged: int = 0
    """How often ``CHARGED`` instructions were taken, in all."""

    def set(self, seconds: float, clock: Callable[[], float] = time.process_time) -> None:
        """Let the work go on for so many seconds from now: of this process, unless ``clock`` is another."""
        self.clock = clock
        self.at_s = clock() + seconds

    def lift(self) -> None:
        """No limit any more."""
        self.at_s = self.instructions_left = inf
        self.is_interruptible = False

    def allow(self, instructions: float) -> None:
        """Let scripts take so many instructions from now."""
        self.instructions_left = instructions

    def charge(self, times: int) -> None:
        """Scripts have taken ``CHARGED`` instructions so many times."""
        self.charged += times
        self.instructions_left -= CHARGED * times

    @property
    def left_s(self) -> float:
        """Seconds that are left; infinite without a cap."""
        return self.at_s - self.clock() if self.at_s < inf else inf

    @property
    def is_past(self) -> bool:
        """Whether the time has run out."""
        return (self.at_s < inf and self.clock() >= self.at_s) or (self.is_interruptible and bool(asked_to_end))

    def check(self) -> None:
        """Raises BudgetExceeded when the time or the instructions have run out."""
        if self.instructions_left <= 0 or self.is_past:
            raise BudgetExceeded


EVERYTHING = MODULUS
"""A page size that no queue exceeds."""

Interruption = Callable[[int], None]
"""Told after each call of an operation but the last how many there were."""


class TimedOut(Failed):
    """An operation whose script was stopped at its limit; what it had done until then stays."""


class ClientDied(Exception):
    """The client is gone between two calls of one operation."""


class SessionStore(Protocol):
    """A session store as its callers see it: operations in, results out, on a clock."""

    binding: Binding
    backend: Backend
    """What carries the operations out."""
    capabilities: Capabilities
    operations: frozenset[str]
    default_expiry_ms: int
    largest_batch: int
    limit: int
    """A limit that the store takes, where it does not matter which."""
    limit_max: int
    """The highest that callers may give."""
    fetch_is_read_only: bool
    """Fetch is declared to write nothing: leftovers have to wait for the next save."""
    conditions: tuple[str, ...]
    """Kinds of fault that may befall any operation."""
    upkeep: tuple[str, ...]
    """What the store does by itself now and then."""

    @property
    def now_ms(self) -> int: ...

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """Carry out one operation. ``between`` is told after each of its calls but the last how many there were."""
        ...

    def acknowledge_all(self, client: bytes, fields: Sequence[Fields]) -> None:
        """Many acknowledgements, one after the other; nobody looks at the replies."""
        ...

    def listing(self, client: bytes) -> Result:
        """A fetch of everything that leaves no trace in the store."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Whatever is done within leaves no trace."""
        ...

    def listing_later(self, client: bytes, ms: int) -> Result:
        """A listing ``ms`` from now, after which it is now again; empty where nobody can say."""
        ...

    def advance(self, ms: int) -> None: ...

    def recording(self) -> AbstractContextManager[list[Record]]:
        """What operations call within, one record for each."""
        ...

    def keep_up(self, what: str) -> None:
        """Have the store do one thing of its ``upkeep``."""
        ...

    @property
    def lag_ms(self) -> int:
        """Milliseconds by which the callers' clock is behind that of the node, which goes on while they work."""
        ...

    def serve(self, version: str) -> bool:
        """Have that version of the scripts serve. False where there is none of this name, or it serves already."""
        ...

    def redis_deadlines_ms(self) -> Iterable[int]:
        """Deadlines that Redis itself keeps for the store's keys."""
        ...

    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> AbstractContextManager[None]:
        """Have the operation that is about to come, within this context, meet ``fault``."""
        ...


def kernel_of(binding: Binding, now_ms: int = FIRST_MS) -> Backend:
    """What carries a store's operations out in virtual time."""
    if binding.tables is None:
        return KernelBackend(now_ms, binding.server)
    from orderlab.sim.stores.tables import TablesBackend  # it takes a simulation with it

    return TablesBackend(binding, now_ms)


CRASHED = Failed(b"the node crashed")
CLIENT_DIED = Failed(b"the client died")
NO_MEMORY = b"not enough memory"
"""What Lua says at the sandbox's limit; a server has none, and would go on taking memory."""
ENDLESS_MAX = 3
"""Operations that had to be stopped, after which BudgetExceeded is raised: each takes its whole limit."""
STOPPED = 20
"""Millions of instructions that a script which had to be stopped counts for: one that fills the memory takes few."""
IN_PIPELINE = 50
"""Acknowledgements sent at once."""
SAMPLE = Message(b"sample", b"t", 1, 1000, 0)


class BoundStore:
    """A store to run steps on. Scripts are loaded when it is made.

    Raises InputError when a script does not compile on the backend, or calls what the backend lacks.
    """

    def __init__(
        self, binding: Binding, backend: Backend, default_expiry_ms: int = 20_000, sleeps: bool = False
    ) -> None:
        self.binding = binding
        self.versions = binding.versions
        self.serving = next(iter(self.versions))
        """Which of them serves."""
        self.backend = backend
        self.cpu_budget = CpuBudget()
        """For whoever runs scripts that may be slow: past it every operation raises BudgetExceeded."""
        self.sleeps = sleeps
        """Time passes by waiting for it: for a server whose scripts ask it for the time."""
        self.operations = frozenset(binding.operations)
        self.takes_default = "default_expiry_ms" not in binding.fixed and uses(
            binding, "save", "default_expiry_ms", 1000, 2000
        )
        self.set_default_expiry(default_expiry_ms)
        self.largest_batch = binding.operation("save").batch_max or 10_000
        self.limit = binding.fixed.get("limit", min(100, binding.modulus))
        """A limit that the store takes: its own, or one that does not matter."""
        self.limit_max = binding.fixed.get("limit", binding.modulus)
        self.endless_max = ENDLESS_MAX
        self._endless_count = 0
        self.fetch_is_read_only = binding.operation("fetch").read_only
        self.conditions = backend.trouble or NODE_CONDITIONS
        self.upkeep = backend.upkeep
        self.capabilities = capabilities_of(binding)
        self._now_ms = backend.now_ms
        self._records: list[Record] | None = None
        """While it is a list, operations are written down in it."""
        load_scripts(binding, backend)

    def set_default_expiry(self, ms: int) -> None:
        """How long a message without an interval lives, unless the scripts fix that themselves."""
        self.default_expiry_ms = self.binding.fixed.get("default_expiry_ms", ms if self.takes_default else 0)

    @property
    def now_ms(self) -> int:
        """The clock of the callers: that of the backend, without the time that a real server spends between calls."""
        return self._now_ms

    @property
    def lag_ms(self) -> int:
        """Milliseconds by which ``now_ms`` is behind the clock of the backend: a real server's goes on while it
        works."""
        return max(self.backend.now_ms - self._now_ms, 0)

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass."""
        if self.sleeps:
            if ms / 1000 > self.cpu_budget.left_s:
                raise BudgetExceeded
            time.sleep(ms / 1000)
        else:
            self.backend.advance(ms)
        self._now_ms += ms

    def restart(self, now_ms: int) -> None:
        """An empty keyspace at the moment ``now_ms``. On the kernel alone, where time can go back."""
        self.serving = next(iter(self.versions))
        self.set_now(now_ms)
        self.backend.flush()

    def snapshot(self) -> Any:
        """What the store holds, to come back to."""
        return self.backend.keyspace(), self.serving

    def go_back(self, snapshot: Any) -> None:
        """Hold what it held then."""
        keyspace, self.serving = snapshot
        self.backend.load(keyspace)

    def keep_up(self, what: str) -> None:
        """Have the store do one thing of its ``upkeep``."""
        self.backend.keep_up(what)

    def serve(self, version: str) -> bool:
        """Have that version of the scripts serve. False where there is none of this name, or it serves already."""
        if version not in self.versions or version == self.serving:
            return False
        self.serving = version
        return True

    def set_now(self, now_ms: int) -> None:
        """Go to another moment; on the kernel alone."""
        self.backend.set_now(now_ms)
        self._now_ms = now_ms

    def redis_deadlines_ms(self) -> Collection[int]:
        """Deadlines that Redis itself keeps for keys."""
        return self.backend.deadlines_ms()

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """Carry out one operation, all its calls. ``between`` hears after each call but the last how many there were.

        A reply that the binding cannot read is a failure of the operation: its scripts may be anybody's.
        """
        if self._records is None:
            return self._perform(operation, client, fields, between)
        effects: list[Effect] = []
        try:
            with self.backend.noting(effects):
                return self._perform(operation, client, fields, between)
        finally:
            self._records.append(record_of(operation, client, effects))

    @contextmanager
    def recording(self) -> Iterator[list[Record]]:
        """Within it each operation is written down, where the backend shows what is called (``shows_calls``). Listings
        and what is done aside are not: the judge does it, not the store."""
        with self._recording_in([]) as records:
            assert records is not None
            yield records

    @contextmanager
    def _recording_in(self, records: list[Record] | None) -> Iterator[list[Record] | None]:
        before, self._records = self._records, records
        try:
            yield records
        finally:
            self._records = before

    def _perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None) -> Result:
        self.cpu_budget.check()
        if self._endless_count >= self.endless_max:
            raise BudgetExceeded
        given = {"now_ms": self._now_ms, "client": client, **fields}
        replies: list[Reply] = []
        try:
            while True:
                answer = self.versions[self.serving].step(operation, given, replies)
                if isinstance(answer, Failed) and NO_MEMORY in answer.error:
                    return self._stopped(operation, "the script ran out of memory")
                if isinstance(answer, Result):
                    return answer
                if replies and between is not None:
                    between(len(replies))
                replies.append(self.run(answer))
                self.cpu_budget.charge(self.backend.charge())
        except NodeCrashed:
            return CRASHED
        except ClientDied:
            return CLIENT_DIED
        except (ScriptTimeout, GrowthLimit) as stopped:
            self.cpu_budget.charge(self.backend.charge())
            if self.cpu_budget.is_past:
                raise BudgetExceeded from None
            return self._stopped(operation, str(stopped))
        except ReplyMismatch as mismatch:
            return Failed(f"{UNREADABLE}: {mismatch}".encode())

    def run_again(self) -> None:
        """Go on although some scripts had to be stopped: for whoever repeats few steps, and looks at the time."""
        self._endless_count = 0

    def _stopped(self, operation: str, why: str) -> TimedOut:
        self._endless_count += 1
        self.cpu_budget.charge(STOPPED)
        return TimedOut(f"{operation}: {why}".encode())

    def acknowledge_all(self, client: bytes, fields: Sequence[Fields]) -> None:
        """Many acknowledgements in one pipeline; an operation of several calls is carried out call by call."""
        binding = self.versions[self.serving]
        if not binding.operation("acknowledge").is_atomic:
            for one in fields:
                self.perform("acknowledge", client, one)
            return
        calls = [binding.step("acknowledge", {"client": client, "now_ms": self._now_ms, **one}) for one in fields]
        for start in range(0, len(calls), IN_PIPELINE):
            self.cpu_budget.check()
            part = calls[start : start + IN_PIPELINE]
            self.backend.pipeline([call.argv for call in part if not isinstance(call, Result)])

    def run(self, call: Call) -> Reply:
        """One call on the backend; a script that the server has forgotten is loaded again, as drivers do."""
        reply = self.backend.execute(*call.argv)
        if isinstance(call, ScriptCall) and isinstance(reply, ErrorReply) and reply.message.startswith(b"NOSCRIPT"):
            load_scripts(self.binding, self.backend)
            reply = self.backend.execute(*call.argv)
        return reply

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which the store is as it was."""
        with self._recording_in(None), scratch(self.backend):
            return self.perform("fetch", client, {"count": EVERYTHING, "after": 0})

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is done within leaves no trace, in the keys or in the records."""
        with self._recording_in(None), scratch(self.backend):
            yield

    def listing_later(self, client: bytes, ms: int) -> Result:
        """A listing ``ms`` from now, after which it is now again. On a server the keys' deadlines are brought nearer;
        where its scripts ask for the time nobody can say, and it is empty."""
        if self.backend.clock_runs or not self.backend.sees_virtual_time:
            return Fetched() if self._asks_for_the_time else self._listing_with_nearer_deadlines(client, ms)
        now_ms = self._now_ms
        self.set_now(now_ms + ms)
        try:
            return self.listing(client)
        finally:
            self.set_now(now_ms)

    @property
    def _asks_for_the_time(self) -> bool:
        """Whether a script may know another time than that of the keys' deadlines."""
        return any(b"TIME" in script.source.upper() for one in self.versions.values() for script in one.scripts)

    def _listing_with_nearer_deadlines(self, client: bytes, ms: int) -> Result:
        """What is listed once all keys' deadlines are ``ms`` nearer; then the server holds what it held."""
        held, now_ms = self.backend.keyspace(), self._now_ms
        self.backend.advance(ms)
        self._now_ms += ms
        try:
            return self.listing(client)
        finally:
            self.backend.advance(-ms)
            self.backend.load(held)
            self._now_ms = now_ms

    @contextmanager
    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> Iterator[None]:
        """Have the node, or the client, be as ``fault`` says within this context."""
        if (
            fault.kind == "wrong-type"
            and not self.backend.trouble
            and is_expected_type(self.backend, fault, lambda: BoundStore.perform(self, operation, client, fields))
        ):
            yield
            return
        with condition(self.backend, fault):
            yield


def load_scripts(binding: Binding, backend: Backend) -> None:
    """Load every script and library of a binding, of both versions where there are two. Raises InputError naming the
    script that the backend refuses."""
    if binding.base is not None:
        load_scripts(binding.base, backend)
    for script in binding.scripts:
        is_library = script.source.startswith(b"#!") and b"name=" in script.source.split(b"\n", 1)[0]
        command = (b"FUNCTION", b"LOAD", b"REPLACE") if is_library else (b"SCRIPT", b"LOAD")
        reply = backend.execute(*command, script.source)
        if isinstance(reply, ErrorReply):
            cure = "fix the script"
            if script.source.startswith(b"#!") and not binding.server.has((7, 0)):
                cure = f"name a newer server: a first line #! came with Redis 7.0, and this is {binding.server}"
            raise InputError(f"{script.path}: {reply.message.decode('utf-8', 'replace')}; {cure}")


def capabilities_of(binding: Binding) -> Capabilities:
    """What the judge must know of the store, read off the fields that its binding passes on."""
    assert isinstance(binding.store, StoreTables)
    found = frozenset(name for name, bound in binding.operations.items() if bound.reader.table.means == "found")
    return Capabilities(
        modulus=binding.modulus,
        has_tokens="acknowledge" not in binding.operations or uses(binding, "acknowledge", "sequence", 1, 2),
        has_pages=uses(binding, "fetch", "after", 1, 2),
        has_counts=uses(binding, "fetch", "count", 1, 2),
        tells_each=binding.operation("save").reader.table.shape in ROW_SHAPES,
        tells_unkept=binding.operation("save").reader.table.shape in ("pairs", "records"),
        tells_ids=binding.operation("save").reader.tells("packet_id"),
        answers_again=binding.operation("save").reader.table.answers_again,
        closed_word=binding.operation("save").reader.table.closed,
        older_word=binding.operation("save").reader.table.older,
        tells_found=found,
        tells_presence="open" in binding.operations and binding.operation("open").reader.tells("session_present"),
        checks_limit=binding.store.callers.limit == "any",
        tells_ends=_tells_ends(binding),
        tells_connects=uses(binding, "open", "epoch", 1, 2) and bool(binding.operation("open").reader.table.refused),
        trims_later=binding.tables is not None,
    )


def _tells_ends(binding: Binding) -> bool:
    """Whether a clear knows which session it is for, and can say that it ended none."""
    if "open" not in binding.operations or not uses(binding, "clear", "epoch", 1, 2):
        return False
    table = binding.operation("clear").reader.table
    return bool(table.refused) or table.means in ("count", "flag", "found")


def uses(binding: Binding, operation: str, field: str, one: object, other: object) -> bool:
    """Whether any call of an operation depends on a field: whether ``one`` and ``other`` make different calls."""
    if operation not in binding.operations:
        return False
    return calls_for(binding, operation, {field: one}) != calls_for(binding, operation, {field: other})


def calls_for(binding: Binding, operation: str, fields: Fields) -> list[tuple[bytes, ...]]:
    """The calls that an operation would make if every reply in between were a list of one item."""
    bound = binding.operation(operation)
    given: dict[str, object] = {"messages": (SAMPLE,)} if operation == "save" else {}
    scope = scope_of(bound, given | dict(fields), binding.bases[operation])
    calls: list[tuple[bytes, ...]] = []
    for step in bound.steps:
        calls += [step.build(inner).argv for inner in step.scopes(scope)]
        if step.capture is not None:
            scope[step.capture] = [b"1"]
    return calls


def keeps_sent(store: BoundStore) -> bool:
    """Whether a message that a fetch has returned stays past its deadline (MQTT allows either): asked of the store."""
    client, epoch = b"keeps-sent", {"epoch": 1}
    if "open" in store.operations:
        store.perform("open", client, {"epoch": 1, "clean_start": 1})
    save = {"limit": 10, "producer": b"p0", "batch": 1, "messages": (SAMPLE,), "default_expiry_ms": 20_000}
    store.perform("save", client, epoch | save)
    store.perform("fetch", client, epoch | {"count": 10, "after": 0})
    store.advance(2000)
    left = store.perform("fetch", client, epoch | {"count": 10, "after": 0})
    return isinstance(left, Fetched) and bool(left.messages)
