"""Is a mutant the same as the original? Held against it in every call that a small scope can lead to.

The original is explored once, in the scopes that validate explores and in scenarios and walks beside them; every call
of a script is noted with the keyspace and the moment it came in, the trouble that the node was in, its reply, and the
keyspace that it left. A mutant that answers each of those calls alike and leaves the same keys behind leads to no other
keyspace, so by induction it is the same *within the scope*; of an error the code counts, not its words. A kill or a
crash needs no comparison: it leaves the keyspace as before the call, whatever the script is. Queues of thousands and a
full round of identifiers are compared along one long run (``long_run``). One that leaves other keys is taken beside the
original through a smaller scope, where replies alone count (``beside``). Nothing is claimed beyond that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.mutation import client_difference
from orderlab.properties.contracts.session.product import told
from orderlab.properties.contracts.session.subject import DEFAULT_EXPIRY_MS, Subject
from orderlab.properties.contracts.session.validation.exploration import MODULUS, applies, explore_scope, fitted
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.conditions import NodeCrashed, ScriptTimeout
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import scale
from orderlab.sim.stores.binding.replies import ReplyMismatch
from orderlab.sim.stores.binding.results import Call, Fetched, Fields, Message, Result, ScriptCall
from orderlab.sim.stores.bound import EVERYTHING, BoundStore, Interruption, load_scripts
from orderlab.sim.stores.memo import MemoStore
from orderlab.sim.stores.trace_faults import condition

CLIENT = b"client-one"
MANY = 6500
"""Messages at once: more than what scripts hand to one command."""
FOREVER_MS = 864_000_000


class OperationDigest(NamedTuple):
    """One operation: digests of its result, as the binding reads it, and of all keys after it."""

    operation: str
    replies: str
    keys: str


class _LongRun:
    """The run so far: numbers of batches and of messages."""

    def __init__(self, binding: Binding) -> None:
        self.store = BoundStore(binding, KernelBackend(version=binding.server), DEFAULT_EXPIRY_MS)
        self.batch = 0
        self.saved = 0
        self.last: Any = None

    def perform(self, operation: str, **fields: Any) -> Iterator[OperationDigest]:
        if operation not in self.store.operations:
            return
        self.last = self.store.perform(operation, CLIENT, {"epoch": 1, **fields})
        keys = repr(sorted(self.store.backend.keyspace().items()))
        yield OperationDigest(operation, _digest(told(self.last)), _digest(keys))

    def save(self, *intervals_ms: int | None, limit: int = 7000) -> Iterator[OperationDigest]:
        """One message for each interval, in as many calls as the store needs."""
        limit = self.store.binding.fixed.get("limit", min(limit, self.store.binding.modulus))
        at_once = self.store.largest_batch
        for start in range(0, len(intervals_ms), at_once):
            part = intervals_ms[start : start + at_once]
            messages = tuple(self._message(interval_ms) for interval_ms in part)
            self.batch += len(part)
            yield from self.perform("save", limit=limit, producer=b"p0", batch=self.batch, messages=messages)

    def _message(self, interval_ms: int | None) -> Message:
        self.saved += 1
        return Message(b"message %d" % self.saved, b"t", 1 + self.saved % 2, interval_ms, self.store.now_ms)

    def fetch(self, count: int = EVERYTHING, after: int = 0) -> Iterator[OperationDigest]:
        yield from self.perform("fetch", count=count, after=after)

    def answer(self, operation: str, position: int) -> Iterator[OperationDigest]:
        """Acknowledge or release a message of the last fetch."""
        fetched = self.last.messages if isinstance(self.last, Fetched) else ()
        if len(fetched) > position and fetched[position].packet_id is not None:
            one, page = fetched[position], self.last
            yield from self.perform(operation, packet_id=one.packet_id, sequence=one.sequence or 0)
            self.last = page


def long_run(binding: Binding) -> Iterator[OperationDigest]:
    """The operations one after the other. Single messages are few where a store takes no batches."""
    run = _LongRun(binding)
    many = MANY if run.store.largest_batch >= 100 else 40
    yield from run.perform("open", clean_start=1)
    yield from run.save(*[FOREVER_MS] * many)
    yield from run.save(None, 1000)
    yield from run.fetch(10)
    yield from run.answer("acknowledge", 0)
    yield from run.answer("release", 5)
    yield from run.answer("acknowledge", 9)
    yield from run.fetch()
    run.store.advance(1000)
    yield from run.save(*[3000] * 100, *[1000] * (many // 5), limit=many)  # trims and sends early deadlines
    run.store.advance(1000)
    yield from run.save(5000, limit=many)
    yield from run.fetch(100)
    run.store.advance(2000)
    yield from run.save(None)
    yield from run.save(*[FOREVER_MS] * 3, limit=many // 2)  # trims about half
    yield from run.fetch()
    yield from _round(run, many)
    yield from run.perform("open", epoch=2, clean_start=0)
    yield from run.fetch(3)
    yield from run.perform("open", epoch=3, clean_start=1)
    yield from run.fetch()
    yield from run.perform("save", epoch=3, limit=10, producer=b"p0", batch=1, messages=())
    yield from run.perform("clear", epoch=3)


def _round(run: _LongRun, many: int) -> Iterator[OperationDigest]:
    """Messages with a short life until the identifiers come round to those that have waited from before."""
    if many < MANY:
        return
    while run.saved < run.store.binding.modulus - MANY:
        yield from run.save(*[1000] * MANY, limit=60_000)
        run.store.advance(1000)
    yield from run.save(*[FOREVER_MS] * 600, limit=60_000)
    yield from run.save(*[FOREVER_MS] * (2 * MANY), limit=60_000)  # past the identifiers that still wait
    yield from run.fetch(100)
    yield from run.save(FOREVER_MS, limit=60_000)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


STATES_MAX = 6000
"""Of each scope of the original."""
WALKS = 150


REPLIES, LEAVES = ": replies ", ": leaves "
"""How a difference is told."""


class CallInPlace(NamedTuple):
    """One call of a script and what surrounds it."""

    keyspace: int
    now_ms: int
    fault: Fault | None
    operation: str
    script: str
    function: str | None
    read_only: bool
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]


class OriginalOutcome(NamedTuple):
    """What the original did."""

    reply: str
    keyspace: int
    fields: Fields
    """What the caller gave, for the reading of the reply."""
    told: str
    """The reply as the binding reads it."""


class NotingStore(MemoStore):
    """Notes every call of a script that it has not made before."""

    def __init__(self, binding: Binding, default_expiry_ms: int) -> None:
        self.calls: dict[CallInPlace, OriginalOutcome] = {}
        self._fields: Fields = {}
        super().__init__(binding, default_expiry_ms)

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """As on any store; what the caller gave is noted with each call."""
        self._fields = fields
        return super().perform(operation, client, fields, between)

    def run(self, call: Call) -> Reply:
        """As on any store, with a note."""
        if not isinstance(call, ScriptCall):
            return super().run(call)
        # A wrong type is in the keyspace already; other trouble is the node's.
        fault = None if self.struck_by is None or self.struck_by.kind == "wrong-type" else self.struck_by
        before = self._number_of(self.kernel.held())
        reply = super().run(call)
        after = self._number_of(self.kernel.held())
        moment = CallInPlace(
            before,
            self._now_ms,
            fault,
            call.operation,
            call.script.name,
            call.function,
            call.read_only,
            call.keys,
            call.args,
        )
        result = read(self.binding, call.operation, reply, self._fields)
        self.calls[moment] = OriginalOutcome(shown(reply), after, self._fields, result)
        return reply


@dataclass
class Table:
    """All that the original does within the scope."""

    original: Binding
    binding: Binding
    """The same, scaled."""
    calls: dict[CallInPlace, OriginalOutcome]
    keyspaces: list[FrozenKeyspace]
    long: tuple[OperationDigest, ...]
    scope: list[str] = field(default_factory=list)
    """What was explored how far, one sentence each."""


class BesideOriginal(NamedTuple):
    """A mutant beside the original."""

    calls: int
    """Compared, until the first difference."""
    difference: str = ""
    """The first one, in words; empty when there is none."""

    @property
    def is_of_keys(self) -> bool:
        """Whether the replies were alike until then, so that a client may never see the difference."""
        return LEAVES in self.difference and REPLIES not in self.difference


def tabulate(
    original: Binding,
    progress: Callable[[str], None] = lambda text: None,
    states_max: int = STATES_MAX,
    walks: int = WALKS,
    is_long: bool = True,
) -> Table:
    """Explore the original. Takes about half a minute of one core for a store of the usual size."""
    subject = Subject(original)
    small = subject.scaled(min(MODULUS, original.modulus))
    store = NotingStore(small.binding, small.store.default_expiry_ms)
    small.remember_in(store)
    store.capabilities = Subject(small.binding).store.capabilities
    findings = Findings(frozenset(STORE_LAWS))
    said: list[str] = []
    run_scenarios(small, findings)
    walk_about(small, findings, walks)
    said.append(f"{walks} random walks and every scenario of validate")
    for scope in SCOPES:
        if applies(scope, small):
            progress(f"the original: scope {scope.name}")
            done = explore_scope(small, fitted(scope, small), findings, states=states_max)
            how_far = "all of it" if done.complete else f"to depth {done.depth}"
            said.append(f"scope {scope.name}: {done.space.count:,} states, {how_far}")
    long: tuple[OperationDigest, ...] = ()
    if is_long:
        progress("the original: a long run")
        long = tuple(long_run(original))
        said.append(f"a run of {len(long)} operations on queues of thousands of messages, identifiers going round")
    if all(bound.is_atomic for bound in original.operations.values()):
        said.append(f"where the keys differ, replies alone: {WALKS} walks, {STATES_MAX:,} states of each scope")
    keyspaces = [store.frozen(at) for at in range(len(store.keyspaces))]
    return Table(original, small.binding, store.calls, keyspaces, long, said)


def compare(table: Table, mutated: Binding, script: str) -> BesideOriginal:
    """Hold ``mutated`` (unscaled; it differs in the script ``script``) against the original's table."""
    scaled, _ = scale(mutated, table.binding.modulus)
    backend = KernelBackend(version=mutated.server)
    count = 0
    try:
        load_scripts(scaled, backend)
        sources = {one.name: one for one in scaled.scripts}
        for moment, outcome in table.calls.items():
            if moment.script != script:
                continue
            count += 1
            found = _differs(backend, table, moment, outcome, sources[script].sha1)
            if found:
                return BesideOriginal(count, found)
        for at, (ours, theirs) in enumerate(_long_runs(table, mutated), 1):
            count += 1
            if ours != theirs:
                what = REPLIES if ours.replies != theirs.replies else LEAVES + "keys "
                return BesideOriginal(count, f"the long run: operation {at} ({ours.operation}){what}otherwise")
    except InputError as error:
        return BesideOriginal(count, str(error))
    return BesideOriginal(count)


def _long_runs(table: Table, mutated: Binding) -> Iterator[tuple[OperationDigest, OperationDigest]]:
    return zip(table.long, long_run(mutated) if table.long else (), strict=False)


def difference_in_replies(table: Table, mutated: Binding) -> str:
    """How a client can tell ``mutated`` from the original, whatever the keys hold; empty when it cannot in the
    scope."""
    difference = client_difference.difference_to_clients(table.original, mutated, table.binding.modulus)
    if difference:
        return difference
    for at, (ours, theirs) in enumerate(_long_runs(table, mutated), 1):
        if ours.replies != theirs.replies:
            return f"the long run: operation {at} ({ours.operation}) replies otherwise"
    return ""


def _differs(backend: KernelBackend, table: Table, moment: CallInPlace, outcome: OriginalOutcome, sha1: str) -> str:
    shard = backend.shard
    shard.load(table.keyspaces[moment.keyspace])
    shard.now_ms = moment.now_ms
    count = b"%d" % len(moment.keys)
    head = (b"FCALL", moment.function.encode()) if moment.function is not None else (b"EVALSHA", sha1.encode())
    try:
        with condition(backend, moment.fault) if moment.fault else nullcontext():
            raw = shard.execute((*head, count, *moment.keys, *moment.args))
            reply = shown(raw)
    except (ScriptTimeout, NodeCrashed) as stopped:
        return f"{_called(moment)}: {stopped}"
    if reply != outcome.reply and read(table.binding, moment.operation, raw, outcome.fields) != outcome.told:
        return f"{_called(moment)}{REPLIES}{reply[:160]}; the original {outcome.reply[:160]}"
    after, expected = shard.freeze(), table.keyspaces[outcome.keyspace]
    if after != expected:
        keys = sorted(key for key in {*after, *expected} if after.get(key) != expected.get(key))
        key = keys[0] if keys else b"the order of the keys"
        return (
            f"{_called(moment)}{LEAVES}{key.decode('latin-1')} as {_value(after.get(key))}; "
            f"the original {_value(expected.get(key))}"
        )
    return ""


def shown(reply: Reply) -> str:
    """A reply with its types, comparable; of an error the code alone, for its words are for people."""
    if isinstance(reply, ErrorReply):
        return f"error {code_of(reply.message)}"
    if isinstance(reply, list):
        return f"[{', '.join(map(shown, reply))}]"
    return f"{type(reply).__name__} {reply!r}"


def read(binding: Binding, operation: str, reply: Reply, fields: Fields) -> str:
    """A reply as a client learns it from the binding: what differs and reads alike is alike. Of an operation of several
    calls the single replies are not read."""
    bound = binding.operation(operation)
    if not bound.is_atomic:
        return shown(reply)
    try:
        return told(bound.reader.read(reply, fields, binding.modulus))
    except ReplyMismatch:
        return f"unreadable {shown(reply)}"


def code_of(error: bytes) -> str:
    """What drivers tell errors apart by: ``OOM``, ``MOVED``, ``ERR``."""
    return error.split(b" ", 1)[0].decode("latin-1")


def _called(moment: CallInPlace) -> str:
    trouble = f" while {moment.fault.kind}" if moment.fault else ""
    return f"{moment.script} {_words(moment.args)}{trouble}"


def _words(args: Sequence[bytes]) -> str:
    return " ".join(repr(one.decode("latin-1"))[:40] for one in args[:12])


def _value(entry: tuple[str, object, int | None] | None) -> str:
    return "nothing" if entry is None else repr(entry[1])[:160]
