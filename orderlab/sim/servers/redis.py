"""A Redis server process in time: one thread, service times from the cost model, followers that lag behind, slots that
move.

What the commands do is the kernel's business (``Shard``); what they cost follows from the commands that the kernel ran:
each operation is counted with its effects in the write in which its kind and batch size first come up, and in one of
every ``COUNT_EVERY`` uses after that; in between the last count holds. While counts come out the same they are made
half as often each time, down to one of ``COUNT_SELDOM`` uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from orderlab.sim.costs.cost_model import RedisCosts
from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.redis.database import place_of
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.memory import MemoryAccount
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace, Shard, execute_all
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.servers.requests import Commands, Request, batch_of

COUNT_EVERY, COUNT_SELDOM = 256, 4096
FILE_LAG_US = {"everysec": 1_000_000, "always": 0}
READS = frozenset(("fetch", "newest", "load", "asking"))
"""Kinds of requests after which nobody waits for a replica."""
COUNTED_ALWAYS = frozenset(("fetch",))
"""Kinds of requests of which one may cost much more than the next."""
Sync = Literal["no", "everysec", "always"]


@dataclass(slots=True)
class _Cost:
    service_us: float
    commands: int
    uses: int = 0
    every: int = COUNT_EVERY


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """When nodes of a cluster refuse to serve, by the names of ``redis.conf``; and how long a full synchronisation
    takes."""

    node_timeout_us: int = 15_000_000
    needs_full_coverage: bool = True
    min_replicas_lag_us: int | None = None
    resync_us: int = 0


FORK_US_PER_MB = 13.0
"""What a fork stops a server for: 12.8 and 13.1 ms per GB on two physical or well virtualised machines (redis.io,
"Diagnosing latency issues", fork time in different systems; published, not measured here)."""
CLUSTER_DOWN = ErrorReply(b"CLUSTERDOWN The cluster is down")
NO_REPLICAS = ErrorReply(b"NOREPLICAS Not enough good replicas to write.")
WAITED_IN_VAIN = ErrorReply(b"WAIT 0 replicas have it")
"""What a caller makes of WAIT's answer 0: the command has run, and may be lost. Not a reply of a server."""
Written = Commands | FrozenKeyspace
"""What a follower is told: commands, or keys that came from another node."""


class Follower:
    """A replica, or what the append-only file holds: the same commands, ``lag_us`` later."""

    def __init__(self, lag_us: int, sources: Sequence[bytes], lua: SharedLua, version: ServerVersion = DEFAULT) -> None:
        self.lag_us = lag_us
        self._sources = sources
        self._lua, self._version = lua, version
        self.shard = shard_with(sources, lua, version)
        self._waiting: deque[tuple[int, int, Written]] = deque()

    def note(self, begun_us: int, clock_us: int, requests: Written, now_us: int) -> None:
        """The master runs ``requests`` from ``begun_us`` on, or is handed keys, when its clock shows ``clock_us``. Now
        it is ``now_us``, which may be before that: a server that is killed with commands in its queue has not run
        them."""
        place = len(self._waiting)
        # Keys that come from another node, while requests wait for the end of a stall.
        while place and self._waiting[place - 1][0] > begun_us:
            place -= 1
        self._waiting.insert(place, (begun_us, clock_us, requests))
        self.catch_up(now_us)

    def synchronise(self, master: Shard) -> None:
        """Begin anew with what ``master`` holds."""
        self.shard = shard_with(self._sources, self._lua, self._version)
        self.shard.now_ms = master.now_ms
        self.shard.patch(master.freeze())
        self._waiting.clear()

    def catch_up(self, now_us: int) -> int:
        """Apply what is old enough; the number of commands that have run and are not."""
        while self._waiting and self._waiting[0][0] <= now_us - self.lag_us:
            _, clock_us, requests = self._waiting.popleft()
            if isinstance(requests, dict):
                self.shard.patch(requests)
            else:
                run_all(self.shard, clock_us, requests)
        return sum(len(requests) for begun_us, _, requests in self._waiting if begun_us <= now_us)


def shard_with(sources: Sequence[bytes], lua: SharedLua | None = None, version: ServerVersion = DEFAULT) -> Shard:
    """An empty shard that has ``sources`` loaded."""
    shard = Shard(lua, version)
    for source in sources:
        shard.execute((b"SCRIPT", b"LOAD", source))
    return shard


def run_all(shard: Shard, now_us: int, requests: Commands) -> list[Reply]:
    """Run ``requests`` at one instant."""
    shard.now_ms, shard.now_us = divmod(now_us, 1000)
    return execute_all(shard, batch_of(requests).argvs())


def _in_database(index: int, request: Request) -> list[Request]:
    """What a follower is told of a command in a database."""
    if not index:
        return [request]
    return [Request((b"SELECT", b"%d" % index), "select"), request, Request((b"SELECT", b"0"), "select")]


class RedisNode:
    """A master. ``replica_lag_us`` None: no replica. ``sources``: the scripts that it has loaded at the start.
    ``lua``: shared with the other nodes of the cluster, for speed alone."""

    def __init__(
        self,
        env: Clock,
        name: str,
        costs: RedisCosts,
        sources: Sequence[bytes],
        epoch_us: int = 0,
        replica_lag_us: int | None = None,
        sync: Sync = "no",
        lua: SharedLua | None = None,
        rules: ClusterRules | None = None,
        version: ServerVersion = DEFAULT,
    ) -> None:
        self.env = env
        self.name = name
        self.rules = rules or ClusterRules()
        self.uncovered = 0
        """Other masters that count as failed: while there are any, it may refuse to serve."""
        self.refusal: ErrorReply | None = None
        """What it says to every command, as it reaches too few others."""
        self.is_replica_away = False
        """Nothing reaches the replica, or it has not got everything yet: it cannot be promoted."""
        self._unreplicated = 0
        """Commands since then."""
        self.costs = costs
        self.sources = list(sources)
        self.epoch_us = epoch_us
        """What its clock shows at instant 0."""
        self.sync = sync
        self._lua, self._version = lua or SharedLua(), version
        kept = sources, self._lua, version
        self.shard = shard_with(*kept)
        self.replica = None if replica_lag_us is None else Follower(replica_lag_us, *kept)
        self.file = None if sync == "no" else Follower(FILE_LAG_US[sync], *kept)
        self.cpu: Station | None = None
        """The cores of its machine, where other processes want them too; its one thread needs one of them."""
        self.is_down = False
        self._crashed_us = 0
        """When the process died: nothing reached a follower after that."""
        self.busy_until_us = 0.0
        self.busy_us = 0.0
        self.waited_us = 0.0
        self.requests = 0
        self.commands = 0
        """As INFO counts them: those of clients and those that scripts call."""
        self.on_disconnect: list[Callable[[], None]] = []
        self.on_service: Callable[[str, float, float, int], None] | None = None
        """Told of every service: the node's name, when it began, when it ends, commands."""
        self._costs: dict[tuple[str, int], _Cost] = {}

    def preload(self, request: Request) -> None:
        """Run something that was done before the run: no time passes, nothing is counted, every follower has it."""
        at = self.epoch_us + int(self.env.now)
        run_all(self.shard, at, [request])
        for follower in (self.replica, self.file):
            if follower is not None:
                run_all(follower.shard, at, [request])

    # -- service -------------------------------------------------------------------------------------------

    def receive(self, requests: Commands, on_replies: Callable[[list[Reply]], None]) -> None:
        """A write of a client has arrived; ``on_replies`` is called when all replies leave. Never, if the node is down
        or goes down before."""
        if self.is_down:
            return
        now = self.env.now
        begun = max(self.busy_until_us, now)
        self.waited_us += (begun - now) * len(requests)
        refusal = CLUSTER_DOWN if self.uncovered else self.refusal
        if refusal is not None:
            self._occupy(
                now,
                begun,
                (self.costs.io_us * len(requests) + self.costs.syscall_us) / self.costs.speed,
                (),
                len(requests),
            )
            call_at(
                self.env, self.busy_until_us, lambda: None if self.is_down else on_replies([refusal] * len(requests))
            )
            return
        # Carried out when it arrives, with the clock of when it is served: requests are served in the order in which
        # they arrive, so nothing can come in between, and a queue needs no events.
        at = self.epoch_us + int(begun)
        if self.shard.is_calm() and self.shard.on_presence is None:
            work, replies = self.run_requests(at, requests)
            written: Written = requests
        else:
            work, replies, written = self._run_troubled(at, requests)
        self._occupy(now, begun, work, written, len(requests))
        shard = self.shard
        # Who waits for the replica waits in vain.
        if self.is_replica_away and self.replica is not None and not self.replica.lag_us:
            replies = [
                reply if type(reply) is ErrorReply or request.kind in READS else WAITED_IN_VAIN
                for request, reply in zip(requests, replies, strict=True)
            ]

        def answer() -> None:
            if self.shard is shard and not self.is_down:  # else the process that would have answered has died meanwhile
                on_replies(replies)

        call_at(self.env, self.busy_until_us, answer)

    def _occupy(self, now: float, begun: float, work: float, written: Written, count: int) -> None:
        """The thread works from ``begun`` on; followers are told."""
        if self.sync == "always":
            work += self.costs.fsync_us
        self.busy_us += work
        self.busy_until_us = begun + work
        if self.cpu is not None:
            self.busy_until_us = max(self.busy_until_us, self.cpu.serve(now, work))
        self.replicate(written, int(begun))
        if self.on_service is not None:
            self.on_service(self.name, begun, self.busy_until_us, count)

    def run_requests(self, at_us: int, requests: Commands) -> tuple[float, list[Reply]]:
        """Run ``requests`` at one instant: (their service time in us, their replies)."""
        shard, known = self.shard, self._costs
        shard.now_ms, shard.now_us = divmod(at_us, 1000)
        work, commands = 0.0, 0
        batch = batch_of(requests)
        argvs, times = batch.argvs(), batch.times()
        due = {kind for kind, uses in times.items() if not self._holds(kind, uses)}
        if due:
            replies: list[Reply] = []
            begin = 0  # behind the last one that was counted
            for place, kind in enumerate(batch.kinds()):
                if kind in due:
                    replies += execute_all(shard, argvs[begin:place])
                    before = known.get(kind)
                    reply, cost = self._count(Request(argvs[place], *kind))
                    if before is not None and (before.service_us, before.commands) == (cost.service_us, cost.commands):
                        cost.every = min(2 * before.every, COUNT_SELDOM)
                    known[kind] = cost
                    if kind[0] not in COUNTED_ALWAYS:
                        due.discard(kind)
                    replies.append(reply)
                    begin = place + 1
                work += known[kind].service_us
                commands += known[kind].commands
            replies += execute_all(shard, argvs[begin:])
        else:
            replies = execute_all(shard, argvs)
            for kind, uses in times.items():
                cost = known[kind]
                cost.uses += uses
                work += cost.service_us * uses
                commands += cost.commands * uses
        self.requests += len(argvs)
        self.commands += commands
        return (work + self.costs.syscall_us) / self.costs.speed, replies

    def _holds(self, kind: tuple[str, int], times: int) -> bool:
        """Whether the last count of what such requests cost serves ``times`` more of them."""
        cost = self._costs.get(kind)
        return cost is not None and cost.uses + times <= cost.every and kind[0] not in COUNTED_ALWAYS

    def replicate(self, written: Written, begun_us: int | None = None) -> None:
        """Tell the followers of what is written, from ``begun_us`` on or now."""
        now_us = int(self.env.now)
        begun_us = now_us if begun_us is None else begun_us
        if self.is_replica_away:
            self._unreplicated += len(written)
        for follower in (None if self.is_replica_away else self.replica, self.file):
            if follower is not None:
                follower.note(begun_us, self.epoch_us + begun_us, written, now_us)

    def _run_troubled(self, at_us: int, requests: Commands) -> tuple[float, list[Reply], list[Request]]:
        """As ``run_requests`` where commands may be refused, and scripts stopped halfway: followers are told what was
        changed, not what was asked for."""
        shard = self.shard
        replies: list[Reply] = []
        written: list[Request] = []
        shard.now_ms, shard.now_us = divmod(at_us, 1000)
        shard.evicted = []
        work, commands = 0.0, 0
        for request in requests:
            reply, cost = self._count(request, written)
            replies.append(reply)
            work += cost.service_us
            commands += cost.commands
        self.requests += len(requests)
        self.commands += commands
        shard.evicted = None
        return (work + self.costs.syscall_us) / self.costs.speed, replies, written

    def _count(self, request: Request, written: list[Request] | None = None) -> tuple[Reply, _Cost]:
        costs, shard = self.costs, self.shard
        shard.effects = []
        try:
            reply = shard.execute(request.argv)
        finally:
            effects, shard.effects = shard.effects, None
        service, commands = costs.io_us, len(effects)
        if written is not None:
            for evicted in shard.evicted or ():
                index, key = place_of(evicted)
                written += _in_database(index, Request((b"DEL", key), "del"))
            if shard.evicted:
                shard.evicted.clear()
            written += [
                request for effect in effects
                if effect.is_write and effect.changes and effect.argv[0].lower() not in SCRIPT_CALLS
                for request in _in_database(effect.database, Request(effect.argv, "effect"))
            ]  # fmt: skip
        for effect in effects:
            name = effect.argv[0].lower().decode()
            if effect.argv[0].lower() in SCRIPT_CALLS:
                service += costs.evalsha_us
                if not isinstance(effect.reply, ErrorReply) and request.kind in ("save", "fetch"):
                    service += costs.lua_per_message_us * request.messages
            else:
                service += costs.commands_us.get(name, costs.unknown_command_us)
        return reply, _Cost(service, commands)

    # -- faults --------------------------------------------------------------------------------------------

    def configure(self, name: bytes, value: bytes) -> None:
        """Send CONFIG SET to the process that runs now."""
        self.shard.execute((b"CONFIG", b"SET", name, value))

    def stall(self, until_us: float) -> None:
        """Serve nothing before ``until_us``: fork, swap, a slow command of another client."""
        self.busy_until_us = max(self.busy_until_us, until_us)

    def crash(self) -> None:
        """The process is gone, and with it the connections."""
        self.is_down = True
        self._crashed_us = int(self.env.now)
        for function in self.on_disconnect:
            function()

    def fail_over(self) -> int:
        """The replica is promoted with what it has; the number of commands that are lost. Raises ValueError without.

        The old master follows it, after a full synchronisation.
        """
        if self.replica is None:
            raise ValueError(f"{self.name} has no replica to fail over to")
        lost = self.replica.catch_up(self._crashed_us)
        self._promote(self.replica)
        return lost

    def _promote(self, replica: Follower) -> None:
        self._come_back(replica.shard)
        if self.file is not None:
            self.file.synchronise(self.shard)
        self.is_replica_away = False
        replica.synchronise(self.shard)
        if self.rules.resync_us:
            self.lose_replica(self.rules.resync_us)

    def lose_replica(self, resync_us: int) -> None:
        """The replica needs a full synchronisation: the master forks, and until all has been sent nobody could be
        promoted."""
        self.isolate()
        self.stall(max(self.busy_until_us, self.env.now) + FORK_US_PER_MB * MemoryAccount(self.shard).used() / 1e6)
        shard = self.shard

        def done() -> None:
            if self.shard is shard and not self.is_down:
                self.rejoin()
            elif self.is_replica_away:  # the transfer broke with the master: it begins anew
                call_at(self.env, self.env.now + resync_us, again)

        def again() -> None:
            if not self.is_down:
                self.rejoin()
            else:
                call_at(self.env, self.env.now + resync_us, again)

        call_at(self.env, self.env.now + resync_us, done)

    def isolate(self) -> None:
        """From now on nothing reaches the replica."""
        if self.replica is not None and not self.is_replica_away:
            self.is_replica_away = True
            self._unreplicated = self.replica.catch_up(int(self.env.now))

    def rejoin(self) -> None:
        """The replica has all again."""
        self.is_replica_away = False
        self.refusal = None
        if self.replica is not None:
            self.replica.synchronise(self.shard)

    def give_way(self) -> int:
        """The replica of a master that is cut off is promoted with what it has; the number of commands that are lost
        with the old one, which follows the new one. Clients connect anew."""
        assert self.replica is not None, "a node that can give way has a replica"
        lost = self._unreplicated
        self.refusal = None
        self.crash()
        self._promote(self.replica)
        return lost

    def restart(self) -> int | None:
        """The process starts again with what its append-only file holds; the number of commands that are lost, or None
        when everything is."""
        if self.file is None:
            self._come_back(shard_with((), self._lua, self._version))
            return None
        lost = self.file.catch_up(self._crashed_us)
        self._come_back(self.file.shard)
        self.file.synchronise(self.shard)
        return lost

    def _come_back(self, shard: Shard) -> None:
        shard.execute((b"SCRIPT", b"FLUSH"))  # the cache is in memory only
        shard.slots = self.shard.slots  # nodes.conf is on disk
        self.shard = shard
        self.busy_until_us = self.env.now
        self.is_down = False
