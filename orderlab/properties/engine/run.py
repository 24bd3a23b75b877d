"""Steps of several clients on a store, carried out on a backend and judged by the store's contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from orderlab.model.contracts.asking import types_of
from orderlab.model.contracts.base import Call, Contract, Discrepancy, Exchange, Failed, Reply
from orderlab.model.contracts.client_steps import OWN_ERROR, REPLY_LOST, Begin, ClientStep, Die, Fault, Resume, Wait
from orderlab.model.contracts.judge import Judge, Violation
from orderlab.model.contracts.sequential import BOUNDED, WAKE_UP
from orderlab.model.errors import InputError
from orderlab.properties.engine.memory import Memory
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.backends.backend import Watched
from orderlab.sim.redis.backends.server import ServerWait
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.conditions import NodeCrashed, ScriptTimeout
from orderlab.sim.redis.error_conditions import CONDITIONS, WRONG_TYPE_FOUND
from orderlab.sim.redis.registry import find, load_commands
from orderlab.sim.redis.shard import Effect, FrozenKeyspace, GrowthLimit
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.replies import UNREADABLE, ReplyMismatch
from orderlab.sim.stores.binding.results import ContractReply, GivenUp, TransactionCall
from orderlab.sim.stores.binding.results import Failed as FailedCall
from orderlab.sim.stores.bound import load_scripts
from orderlab.sim.stores.memo import members_of

BY_NAME = {condition.name: condition for condition in CONDITIONS}
BESIDE_SERVERS = (REPLY_LOST, OWN_ERROR)
"""Trouble that no condition of a server makes."""
LATE_MS_MAX = 50
"""Of a call that took a server no longer than this every millisecond is one at which it may have taken effect."""
LIMIT_WORD = "stopped at the limits of a script: "
LIMIT_WORK = 200
"""Steps that a script costs which is stopped at its limits, so that a search through many such calls comes to its
end."""


class ClientState(NamedTuple):
    """One client: what it has seen, and the operation that it is in the middle of."""

    seen: tuple[Exchange, ...] = ()
    pending: Call | None = None
    replies: tuple[Any, ...] = ()
    """Of the calls of ``pending`` so far."""
    begun: int = 0
    """Operations so far."""
    retry: Call | None = None
    """The last operation, if its client did not hear how it ended."""
    waits: tuple[tuple[bytes, ...], int] | None = None
    """The blocking command that ``pending`` waits in, and since when."""
    served_by: str = ""
    """The version of the scripts that ``pending`` is carried out with, during a rolling upgrade."""


class Core:
    """A store and its judge at a moment: all that the next step depends on, but for the clients. A value, which is
    hashed once, for the same ones are looked up again and again."""

    __slots__ = ("_hash", "is_large", "judged", "keyspace", "line", "now_ms", "watches")

    def __init__(
        self,
        keyspace: FrozenKeyspace,
        now_ms: int,
        judged: Hashable,
        line: tuple[int, ...] = (),
        watches: tuple[Watched, ...] = (),
    ) -> None:
        self.keyspace, self.now_ms, self.judged = keyspace, now_ms, judged
        self.line = line
        """Clients that wait, the longest first."""
        self.watches = watches
        """Of each client's connection the watched keys, and whether one of them has changed; nothing where no client
        ever watches."""
        self.is_large = sum(map(members_of, keyspace.values())) > SMALL
        """Its keys hold so much that to look at them after every step takes longer than to take it anew."""
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            keys = frozenset(self.keyspace.items())
            self._hash = hash((keys, self.now_ms, self.judged, self.line, self.watches))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Core) and self.parts == other.parts)

    @property
    def parts(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        return self.now_ms, self.judged, self.line, self.watches, self.keyspace


SMALL = 500
"""Things in all keys together."""
REMEMBERED_MAX = 4_000
"""Effects of steps that are kept. A feed's searches take 5 % more steps anew than with five times as many, and a sixth
less memory."""


class RunState(NamedTuple):
    """Everything that a run's future depends on. A value."""

    core: Core
    clients: tuple[ClientState, ...]

    @property
    def key(self) -> Hashable:
        """The same for states with the same future."""
        clients = tuple(one._replace(replies=_hashable(one.replies)) if one.replies else one for one in self.clients)
        return self.core, clients

    @property
    def beside_clients(self) -> object:
        """Everything but what they know."""
        return self.core


def _hashable(reply: Any) -> Any:
    """A reply, or several, as a value: what a call replied with may be an array, or arrays within one."""
    return tuple(map(_hashable, reply)) if isinstance(reply, list | tuple) else reply


@dataclass
class Report:
    """What one step did."""

    reply: Reply = None
    is_over: bool = True
    """The operation has ended; otherwise calls of it are left."""
    stopped: str = ""
    """How the operation was stopped, if it was."""
    is_part_way: bool = False
    """It may have been stopped between two of its effects."""
    waits: bool = False
    """Its client waits in a blocking command."""
    is_idle: bool = False
    """The step had no meaning: there is no operation to resume, or another is under way."""
    violation: Violation | None = None
    effects: list[Effect] = field(default_factory=list)
    """What was called, on the kernel."""
    work: int = 1
    """Steps of an ordinary length that would have taken as long."""

    @property
    def discrepancies(self) -> list[Discrepancy]:
        """What it broke. A script that was stopped at its limits breaks ``bounded`` and says nothing of other laws."""
        broken = self.violation
        if broken is None:
            return []
        laws = (BOUNDED,) if LIMIT_WORD in broken.text else broken.laws
        return [Discrepancy(law, broken.text) for law in laws]

    @property
    def diverges(self) -> bool:
        """Whether nothing after it can be judged: no state explains what it did."""
        return self.violation is not None


class Remembered(NamedTuple):
    """What a step did where it was taken once."""

    report: Report
    core: Core
    """Where it led."""
    client: ClientState
    """Its client after it."""
    seen: tuple[Exchange, ...]
    """What its client has seen since, and nobody before."""
    begun: int
    """Operations that its client has begun with it."""
    tested: tuple[tuple[str, int], ...]
    """How often each law was tested by it."""
    explained: int


class ContractRun:
    """A store under several clients. Scripts are loaded when it is made.

    ``skews_ms`` are the clients' clocks less the server's (field ``now_ms`` of a binding). On a real server, whose
    clock goes on, each call is judged at any moment between its sending and its reply; ``sleeps``: time passes there by
    waiting, so that scripts that ask for the time see it.
    """

    def __init__(
        self,
        binding: Binding,
        contract: Contract,
        backend: Backend,
        clients: int,
        skews_ms: Sequence[int] = (),
        sleeps: bool = False,
    ) -> None:
        self.binding = binding
        self.versions = binding.versions
        self.contract = contract
        self.backend = backend
        self.sleeps = sleeps
        self.skews_ms = (*skews_ms, *[0] * (clients - len(skews_ms)))
        self.judge = Judge(contract, backend.now_ms)
        self.clients = [ClientState() for _ in range(clients)]
        self.watches = any(version.needs_connections for version in self.versions.values())
        """Whether clients watch keys, so that each must keep to its own connection."""
        self.connections: list[Any] = []
        """One a client, for its blocking commands and its transactions."""
        if self.watches:
            self.connections = [backend.connect(b"client %d" % (number + 1)) for number in range(clients)]
        self.waiting: dict[int, Waiting | ServerWait] = {}
        """Clients that wait, or whose wait has ended with this step."""
        self.effects: Memory[Core, Remembered] = Memory(REMEMBERED_MAX)
        """What a step did, by all that this depends on: the core, the step, and how far its client is."""
        self._effects_under: dict[tuple[int, ...], Memory[Core, Remembered]] = {}
        self._called_ms: tuple[int, int] | None = None
        """The server's clock before and after the last call."""
        self._core: Core | None = None
        """Where the run is, where that is known without looking."""
        self.waits_seen = 0
        """How often somebody waited without a timeout while nobody did anything."""
        load_commands()  # which tell what blocks
        load_scripts(binding, backend)

    def set_clocks(self, skews_ms: Sequence[int]) -> None:
        """Let the clients' clocks be ahead of the server's by this. What is remembered of steps is remembered under
        those clocks."""
        skews = (*skews_ms, *[0] * (len(self.clients) - len(skews_ms)))
        if skews != self.skews_ms:
            self._effects_under[self.skews_ms] = self.effects
            self.skews_ms, self.effects = skews, self._effects_under.get(skews, Memory(REMEMBERED_MAX))

    # -- states --------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        """Where the run is; on the kernel alone."""
        return RunState(self.core, tuple(self.clients))

    @property
    def core(self) -> Core:
        """The state without the clients."""
        if self._core is None:
            watches = tuple(self.backend.watched(one) for one in self.connections) if self.watches else ()
            core = Core(self.backend.keyspace(), self.backend.now_ms, self.judge.frozen, self.line, watches)
            self._core = core if core.is_large else self.effects.first(core)
        return self._core

    def go_to(self, state: RunState) -> None:
        """Be in ``state``; on the kernel alone."""
        self.hang_up()
        core = state.core
        self._go_to(core)
        self.clients = list(state.clients)
        for number in core.line:  # there is nothing for them, or they would not wait: so they wait again
            waits = state.clients[number].waits
            assert waits is not None
            argv, now_ms = waits
            self.backend.set_now(now_ms)
            again = self.backend.execute_as(self.connections[number], *argv)
            assert isinstance(again, Waiting)
            self.waiting[number] = again
        self.backend.set_now(core.now_ms)
        if core.watches:
            self.backend.watch_again(list(zip(self.connections, core.watches, strict=True)))

    def _go_to(self, core: Core) -> None:
        self.backend.set_now(core.now_ms)
        self.backend.load(core.keyspace)
        self.judge.thaw(core.judged, core.now_ms)
        self._core = core

    @property
    def line(self) -> tuple[int, ...]:
        """Clients that wait, the longest first."""
        if not self.waiting:
            return ()
        numbers: dict[int, int] = {id(waiting): number for number, waiting in self.waiting.items()}
        return tuple(numbers[id(one)] for one in self.backend.waiting())

    # -- steps ---------------------------------------------------------------------------------------------

    def perform(self, step: ClientStep) -> Report:
        """Carry out one step, or do what it is known to do here. A step without a meaning here (no operation to
        resume) does nothing."""
        asked = self._asked(step)
        known = self.effects.get(asked) if asked is not None else None
        if known is not None and not isinstance(step, Wait):
            return self._done_again(step.client, known)
        number = 0 if isinstance(step, Wait) else step.client
        before, tested, explained = self.clients[number], dict(self.judge.tested), self.judge.explained
        self._core = None
        self._follow_the_clock()
        report = self._carried_out(step)
        if self.waiting:
            self._look_at_waits(report)
        elif asked is not None:
            after = self.clients[number]
            counted = tuple((law, count - tested[law]) for law, count in self.judge.tested.items())
            self.effects.keep(
                asked,
                Remembered(
                    replace(report, effects=list(report.effects)),
                    self.core,
                    after,
                    after.seen[len(before.seen) :],
                    after.begun - before.begun,
                    tuple(one for one in counted if one[1]),
                    self.judge.explained - explained,
                ),
            )
        return report

    def carry_out(
        self, step: ClientStep, taken: list[ClientStep] | None = None, perform: Callable[..., Report] | None = None
    ) -> Report:
        """A step, and of an operation that it begins the rest, up to where its client waits: the last report, with the
        effects and the work of all calls. ``taken`` gets the steps; ``perform`` takes each, if not the run itself."""
        perform, taken = perform or self.perform, [] if taken is None else taken
        taken.append(step)
        report = perform(step)
        while not report.is_over and isinstance(step, Begin) and self.clients[step.client].waits is None:
            effects, work = report.effects, report.work
            taken.append(Resume(step.client))
            report = perform(taken[-1])
            report.effects, report.work = [*effects, *report.effects], report.work + work
        return report

    def _asked(self, step: ClientStep) -> Hashable:
        """All that the effect of a step depends on; None where it is not remembered: on a server, where the run has
        come to where it is without anybody looking, where a client waits or watches."""
        if self._core is None or self.waiting or self.watches or not isinstance(step, Begin | Resume | Die):
            return None
        if self._core.is_large:
            return None
        client = self.clients[step.client]
        call = step.call if isinstance(step, Begin) else client.pending
        return (
            self._core,
            step,
            types_of(call) if call else (),
            client.pending,
            _hashable(client.replies),
            client.served_by,
        )

    def _done_again(self, number: int, known: Remembered) -> Report:
        client = self.clients[number]
        self._go_to(known.core)
        self.clients[number] = known.client._replace(seen=(*client.seen, *known.seen), begun=client.begun + known.begun)
        for law, count in known.tested:
            self.judge.tested[law] += count
        self.judge.explained += known.explained
        return replace(known.report, effects=list(known.report.effects))

    def _carried_out(self, step: ClientStep) -> Report:
        if isinstance(step, Wait):
            if self.sleeps:
                time.sleep(step.ms / 1000)
            else:
                self.backend.advance(step.ms)
            if self.backend.clock_runs:
                self._follow_the_clock()
            else:
                self.judge.at(self.judge.now_ms + step.ms)
            return Report()
        client = self.clients[step.client]
        if isinstance(step, Die):
            return self._stopped(step.client, Report(), "its client died between two calls", part_way=True)
        if isinstance(step, Begin):
            if client.pending is not None:
                return Report(is_idle=True)
            client = ClientState(client.seen, step.call, (), client.begun + 1, served_by=step.served_by)
        elif client.pending is None or client.waits is not None:
            return Report(is_idle=True)
        self.clients[step.client] = client
        return self._call(step.client, step.trouble)

    def _follow_the_clock(self) -> None:
        """On a real server: it is as late there as it is."""
        if self.backend.clock_runs:
            self.judge.at(max(self.backend.now_ms, self.judge.now_ms))

    def _has_called(self, number: int) -> None:
        """A call of the client's operation was carried out, which has begun by now; on a real server at any moment
        since it had read the call. One that waits has done nothing yet, and begins when it is woken."""
        judge = self.judge
        (sent_ms, now_ms), self._called_ms = self._called_ms or (judge.now_ms, self.backend.now_ms), None
        judge.at(max(sent_ms, judge.now_ms))
        if number not in judge.under_way and (call := self.clients[number].pending):
            judge.begin(number, call)
        for ms in range(judge.now_ms + 1, now_ms + 1) if now_ms - judge.now_ms <= LATE_MS_MAX else (now_ms,):
            judge.at(ms)

    def hang_up(self) -> None:
        """Nobody waits any longer: what the clients are in the middle of is left as it is."""
        for number in list(self.waiting):
            self._disconnect(number)

    def _disconnect(self, number: int) -> None:
        self._core = None
        waiting = self.waiting.pop(number)
        if self.backend.hang_up(waiting):
            self.connections[number] = self.backend.connect(b"client %d" % (number + 1))

    def _look_at_waits(self, report: Report) -> None:
        """Hand out the replies of waits that are over, and look whether somebody waits in vain."""
        self.backend.look_at(list(self.waiting.values()))
        for number, waiting in list(self.waiting.items()):
            if waiting.is_over:
                del self.waiting[number]
                client = self.clients[number]
                assert client.pending is not None
                if number not in self.judge.under_way:
                    self.judge.begin(number, client.pending)
                self.clients[number] = client._replace(waits=None, replies=(*client.replies, waiting.reply))
        endless = {
            number: call
            for number, waiting in self.waiting.items()
            if waiting.is_endless and (call := self.clients[number].pending)
        }
        is_busy = any(client.pending is not None and client.waits is None for client in self.clients)
        if not endless or is_busy or report.violation is not None:
            return
        self.waits_seen += 1
        overlooked = self.judge.overlooked(endless)
        if overlooked:
            text = (
                f"{endless[overlooked[0]]} of client {overlooked[0] + 1} goes on waiting, and nobody else does anything"
            )
            report.violation = Violation((WAKE_UP,), text)

    def _call(self, number: int, trouble: Fault | None) -> Report:
        """The next call of what a client has begun, and the end of the operation if that was its last."""
        client, report = self.clients[number], Report()
        assert client.pending is not None
        answer = self._next(number, client)
        if isinstance(answer, tuple):  # nothing to call for these fields
            self._has_called(number)
            return self._over(number, report, answer[0])
        try:
            with self.backend.noting(report.effects), self._under(trouble):
                reply = self._send(number, answer)
        except NodeCrashed:
            self._has_called(number)
            for other in self.line:
                self._stopped(other, Report(), "the node crashed while it waited", part_way=False)
            # Drivers do not watch again by themselves: they tell of a conflict.
            for connection in self.connections if self.watches else ():
                has_watched = connection.is_dirty or bool(connection.watched)
                self.backend.disconnect(connection)
                connection.is_dirty = has_watched
            return self._stopped(number, report, "the node crashed", part_way=True)
        except (ScriptTimeout, GrowthLimit) as stopped:
            report.work = LIMIT_WORK
            self._has_called(number)
            return self._over(number, report, Failed(f"{LIMIT_WORD}{stopped}"))
        if isinstance(reply, Waiting | ServerWait):
            self.waiting[number] = reply
            self.clients[number] = client._replace(waits=(reply.argv, self.backend.now_ms))
            report.is_over, report.waits = False, True
            return report
        self._has_called(number)
        client = client._replace(replies=(*client.replies, reply))
        self.clients[number] = client
        after = self._next(number, client)
        if isinstance(after, GivenUp):
            return self._stopped(number, report, after.error.decode(), part_way=True)
        if not isinstance(after, tuple):
            if trouble is not None and trouble.kind == REPLY_LOST:
                return self._stopped(number, report, "the reply to one of its calls was lost", part_way=True)
            report.is_over = False
            return report
        if trouble is not None and trouble.kind == REPLY_LOST:
            return self._stopped(number, report, "its reply was lost", part_way=False)
        if trouble is not None and (isinstance(after[0], Failed) or trouble.kind == WRONG_TYPE_FOUND.name):
            # What it read under a foreign value says nothing about the store.
            report.reply = after[0]
            return self._stopped(number, report, f"{after[0]} ({trouble})", True, trouble.kind == WRONG_TYPE_FOUND.name)
        return self._over(number, report, after[0])

    def _next(self, number: int, client: ClientState) -> Any:
        """The next call of a client's operation, or a tuple of the reply that it ends with, or that it is given up."""
        assert client.pending is not None
        fields = {"now_ms": self.backend.now_ms + self.skews_ms[number], **dict(client.pending.fields)}
        try:
            answer = self.served(client.served_by).step(client.pending.name, fields, client.replies)
        except ReplyMismatch as mismatch:
            return (Failed(f"{UNREADABLE}: {mismatch}"),)
        if isinstance(answer, FailedCall) and not isinstance(answer, GivenUp):
            return (Failed(answer.error.decode("utf-8", "replace")),)
        return (answer.reply,) if isinstance(answer, ContractReply) else answer

    def served(self, by: str) -> Binding:
        """The version of that name; the store's own where none is named."""
        return self.versions.get(by, self.binding)

    def repeated(self, number: int) -> Call | None:
        """What a client that did not hear how its last operation ended may send once more."""
        call = self.clients[number].retry
        return call if call is not None and self.contract.may_repeat(call) else None

    @property
    def deadlines_ms(self) -> set[int]:
        """What time alone may change next: of the keys, and of the contract's states."""
        found = set(self.backend.deadlines_ms())
        for state in self.judge.states():
            found.update(self.judge.asked.deadlines_ms(state))
        return found

    def _send(self, number: int, call: Any) -> Any:
        """The reply, or a Waiting."""
        if isinstance(call, TransactionCall):
            if isinstance(begun := self._execute(number, b"MULTI"), Exception):
                return begun
            for argv in call.queued:
                self._execute(number, *argv)  # an error makes EXEC one
            return self._execute(number, *call.argv)
        command = find(call.argv)
        if command is not None and "blocking" in command.flags:
            if not (self.connections or self.backend.has_connections):
                name = call.argv[0].decode()
                raise InputError(f"{name}: clients that wait are carried out on the kernel or a server; replay there")
            if not self.connections:
                self.connections = [self.backend.connect(b"client %d" % (one + 1)) for one in range(len(self.clients))]
            return self.backend.block_as(self.connections[number], *call.argv)
        connection = self.connections[number] if self.watches else None
        reply, self._called_ms = self.backend.timed(connection, *call.argv)
        if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
            load_scripts(self.binding, self.backend)
            reply, self._called_ms = self.backend.timed(connection, *call.argv)
        return reply

    def _execute(self, number: int, *argv: bytes) -> Any:
        return self.backend.execute_as(self.connections[number], *argv) if self.watches else self.backend.execute(*argv)

    def _unwatch(self, number: int) -> None:
        """The client's operation is over: it watches nothing any more, as its driver sees to."""
        if self.watches:
            self._execute(number, b"UNWATCH")

    def _over(self, number: int, report: Report, reply: Reply) -> Report:
        client = self.clients[number]
        assert client.pending is not None
        self._unwatch(number)
        report.reply = reply
        report.violation = self.judge.finish(number, reply)
        seen = (*client.seen, Exchange(client.pending, reply))
        self.clients[number] = ClientState(seen, None, (), client.begun)
        return report

    def _stopped(self, number: int, report: Report, how: str, part_way: bool, is_foreign: bool = False) -> Report:
        client = self.clients[number]
        if client.pending is None:
            return Report(is_idle=True)
        self._unwatch(number)
        if client.waits is not None:
            self._disconnect(number)
        if number in self.judge.under_way:
            report.stopped, report.is_part_way = how, part_way
            self.judge.stop(number, f"{client.pending}: {how}", part_way, is_foreign)
        seen = client.seen
        if not self.contract.may_repeat(client.pending):  # nor may it call a thing of its own by the same name
            seen = (*seen, Exchange(client.pending, None))
        self.clients[number] = ClientState(seen, None, (), client.begun, client.pending)
        return report

    def replayed(self, steps: Sequence[ClientStep]) -> Iterator[Report]:
        """What each step does. Raises InputError for a call that the contract or the store does not have, and for
        trouble that only the kernel can be brought into."""
        for number, step in enumerate(steps, 1):
            trouble = getattr(step, "trouble", None)
            if trouble is not None and trouble.kind not in BESIDE_SERVERS:
                if trouble.kind not in BY_NAME:
                    raise InputError(
                        f"step {number}: unknown trouble {trouble.kind!r}; one of "
                        f"{', '.join([*BESIDE_SERVERS, *BY_NAME])}"
                    )
                if not self.backend.aborts_scripts:
                    raise InputError(
                        f"step {number}: {self.backend.describe()} is not brought into {trouble.kind}; replay on "
                        "the kernel"
                    )
            if isinstance(step, Begin):
                if step.served_by and step.served_by not in self.versions:
                    raise InputError(f"step {number}: the {step.served_by} scripts serve it; name them with --base")
                self.judge.asked.check_call(step.call, part=f"step {number}")
                self.binding.operation(step.call.name)
            yield self.perform(step)

    @contextmanager
    def _under(self, trouble: Fault | None) -> Iterator[None]:
        if trouble is None or trouble.kind in BESIDE_SERVERS:
            yield
            return
        with self.backend.imposed(BY_NAME[trouble.kind], trouble.key, trouble.at, trouble.found):
            yield
