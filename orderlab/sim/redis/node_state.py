"""What one Redis node is: its keys, clock, settings, connections and conditions. Whatever carries commands out works on
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from orderlab.model.errors import InputError
from orderlab.sim.redis.blocking import NOT_YET, NotYet, Waiting, WaitTable
from orderlab.sim.redis.client import Client, WatchTable
from orderlab.sim.redis.conditions import NO_REPLICAS, Busy, DiskError, Interrupt, ScriptTimeout
from orderlab.sim.redis.config import Config
from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.keyspace import ExpireCycle, Keyspace
from orderlab.sim.redis.random_draws import LuaRandom
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.slot_map import SlotMap
from orderlab.sim.redis.subscriptions import Subscribers
from orderlab.sim.redis.versions import ServerVersion

UNCOUNTED: Final = 1 << 61
"""For ``NodeState.work_max`` while no script runs: a client's command is carried through."""
NEW_VALUE_BYTES: Final = 600
"""What a list, set, hash, sorted set or consumer group takes before it holds anything, for ``grow``."""
NEW_STREAM_BYTES: Final = 2500
"""The same of a stream with its first node."""
GROWTH_MAX_BYTES: Final = 128 << 20
"""What one command of a client, with all that its script calls, may add to the keyspace beyond its arguments."""


class GrowthLimit(InputError):
    """One command built more bytes out of nothing than the kernel is willing to hold. No script can catch it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One command that ran, called by a client, by EXEC or by a script: what it touched and what it changed."""

    argv: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    """The keys that its arguments name: all that it may read or write. One of another database than 0 is a
    ``DatabaseKey``."""
    changed: tuple[bytes, ...]
    """The keys that it did change, in order; a key that lapsed on the way is not among them."""
    is_write: bool
    changes: int
    """By how much it moved the server's ``dirty`` counter."""
    reply: Reply
    line: int | None = None
    """The line of the script that called it."""
    database: int = 0
    """The one that was selected when it was called."""

    def __reduce__(self) -> tuple[type[Effect], tuple[object, ...]]:
        # Machine code refuses the assignments with which a frozen class of slots is read back from another process.
        return Effect, (
            self.argv,
            self.keys,
            self.changed,
            self.is_write,
            self.changes,
            self.reply,
            self.line,
            self.database,
        )


class ScriptHost(Protocol):
    """What a node knows of who runs its scripts (``lua.host``)."""

    @property
    def scripts(self) -> dict[bytes, Any]:
        """The loaded ones, by their SHA1."""
        ...

    def flush(self) -> None:
        """Forget all scripts."""
        ...

    def run(self, script: Any, key_count: int, values: Sequence[bytes], read_only: bool) -> Reply:
        """Run a script of this host on ``values``, the keys before the arguments."""
        ...

    def run_calls(self, commands: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Run the calls of loaded scripts that ``commands`` begin with, up to the first that is not usual."""
        ...


class LuaStates(Protocol):
    """Lua states for the scripts of several nodes (``lua.shared``)."""

    def state(self, node: NodeState) -> Any:
        """A Lua state for the scripts of a node."""
        ...


class Notifies(Protocol):
    """What a node knows of who publishes what happens to its keys (``notifications``)."""

    unkept: list[Effect]

    def begin(self, command: Any, argv: Sequence[bytes]) -> Any:
        """Before a command that is carried out; None for one that carries others out."""
        ...

    def end(self, command: Any, argv: Sequence[bytes], before: Any, changed: Sequence[bytes], reply: Reply) -> None:
        """After that command; ``before`` is what ``begin`` said."""
        ...

    def lost(self, name: bytes, is_evicted: bool) -> None:
        """A key has lapsed, or was evicted."""
        ...

    def want(self, flags: str) -> None:
        """Publish these classes from now on."""
        ...


class EvictionPool:
    """The best candidates for eviction seen so far, best last, by their names among the keys of all databases."""

    def __init__(self) -> None:
        self.candidates: list[tuple[int, bytes]] = []
        self.next_database = 0
        """Where the next random eviction begins to look."""


class NodeState(Keyspace):
    """The conditions of the node are plain attributes: assign them, and the errors that follow come out by
    themselves."""

    version: ServerVersion
    """The server that it is."""
    spellings: dict[bytes, Any]
    """Its commands (``registry.spellings_of``)."""
    double_text: Callable[[float], bytes]
    """How it spells doubles under RESP2, and what a script hands to it."""

    def __init__(self, shared_lua: LuaStates | None = None) -> None:
        """``shared_lua``: for scripts, with other nodes of the thread."""
        super().__init__()
        self.config = Config()
        self.encoding_limits = self.config
        self.now_us = 0
        """Microseconds, 0..999, within the millisecond ``now_ms``. Only TIME shows them."""
        self.client = Client()
        """The connection that ``execute`` uses when it is given none."""
        self.caller = self.client
        """The connection whose command is being carried out."""
        self.watches = WatchTable(self)
        self.waits = WaitTable(self)
        self.not_yet: NotYet = NOT_YET
        self.in_transaction = False
        """EXEC carries its queue out: nothing waits."""
        self.subscribers = Subscribers()
        self.expire_cycle = ExpireCycle(self)
        self.effects: list[Effect] | None = None
        """When a list, every command appends its Effect (footprints); None costs nothing."""
        self.changed: list[bytes] | None = None
        """While a command's effect is recorded, the names of the keys that it has changed."""
        self.reached: list[bytes] = []
        """The same for keys of other databases that it reads or writes."""
        self.rewritten: tuple[bytes, ...] | None = None
        """While effects are recorded, what a command tells replicas instead of its own line (the identifier that XADD
        chose)."""
        self.notifier: Notifies | None = None
        """Publishes what happens to keys (``notifications``), while somebody has asked for it."""
        self.interrupt: Interrupt | None = None
        """Asked before every call of a script (``abort``)."""
        self.lua_host: ScriptHost | None = None
        """Runs scripts; started by the first one (``lua.host.host_of``)."""
        self.shared_lua = shared_lua
        self.lua_random = LuaRandom(self)
        self.script_line: int | None = None
        """The line of the running script that calls a command, while ``effects`` is a list."""
        self.charged = 0
        """Millions of Lua instructions that scripts have taken, and of units of work that their commands have; of each
        run whole millions count."""

        self.is_replica = False
        """The node follows a master: it hides what has expired, and by default refuses the writes of clients."""
        self.master_link_down = False
        """A replica has lost its master."""
        self.good_replicas = 0
        """Replicas of this master that are in touch (``min-replicas-to-write``)."""
        self.disk_error: DiskError | None = None
        self.busy: Busy | None = None
        """A script of another connection has been running for too long."""
        self.slots: SlotMap | None = None
        """This node's view of the hash slots; None outside of a cluster."""
        self.server: Any = None
        """What serves the node to clients (``wire.served_node``): knows its connections. None: nobody is connected."""
        self.started_ms = 0
        """When the node was started, for LASTSAVE."""
        self.eviction_pool = EvictionPool()
        self.evicted_keys = 0
        self.evicted: list[bytes] | None = None
        """When a list, every key that is evicted: what the server tells its replicas."""
        self.growth_left = GROWTH_MAX_BYTES
        self.scripts_may_call_all = False
        """DEBUG SET-DISABLE-DENY-SCRIPTS: commands with the flag ``noscript`` are not refused to scripts."""
        self.work = 0
        """What scripts have handed to commands, and what long commands have done, so far, in the units of ``work``: the
        same on every machine. Instructions of Lua are in ``charged``."""
        self.work_max = UNCOUNTED
        """Where ``work`` ends the script that runs."""
        self.is_out_of_memory = False
        """Whether, when the current command of a client began, eviction could not get below ``maxmemory``."""

    # -- conditions ----------------------------------------------------------------------------------------

    def is_calm(self) -> bool:
        """Whether no condition of the node, and no cluster, can refuse anything: the usual case, made quick."""
        config = self.config
        return (
            config.maxmemory == 0
            and config.min_replicas_to_write == 0
            and self.slots is None
            and self.disk_error is None
            and self.busy is None
            and not self.is_replica
            and not self.scripts_may_call_all
        )

    def write_disk_error(self) -> DiskError | None:
        """The disk error that stops writes, if one does."""
        if self.disk_error is DiskError.SNAPSHOT and not self.config.stop_writes_on_bgsave_error:
            return None
        return self.disk_error

    def is_read_only_replica(self) -> bool:
        """Whether the node is a replica that refuses writes of clients."""
        return self.is_replica and self.config.replica_read_only

    def is_stale(self) -> bool:
        """Whether the node is a replica that has lost its master and is told not to serve old data."""
        return self.is_replica and self.master_link_down and not self.config.replica_serve_stale_data

    def lacks_replicas(self) -> bool:
        """Whether fewer replicas than ``min-replicas-to-write`` are in touch. Only a master asks."""
        config = self.config
        return (
            not self.is_replica
            and config.min_replicas_to_write > 0
            and config.min_replicas_max_lag > 0
            and self.good_replicas < config.min_replicas_to_write
        )

    def persistence_refusal(self) -> bytes | None:
        """The error of a write that the disk or the lack of replicas stops, in the server's order."""
        disk_error = self.write_disk_error()
        if disk_error is not None:
            return disk_error.of_command()
        return NO_REPLICAS if self.lacks_replicas() else None

    @property
    def removes_expired(self) -> bool:
        """False on a replica, unless it is writable: there the server removes what a write command finds expired."""
        return not self.is_replica or not self.config.replica_read_only

    def grow(self, added_bytes: int) -> None:
        """A command is about to build more bytes than it was given. Raises GrowthLimit beyond GROWTH_MAX_BYTES."""
        if added_bytes > 0:
            self.growth_left -= added_bytes
            if self.growth_left < 0:
                raise GrowthLimit(
                    f"a command or script made the keyspace grow by more than {GROWTH_MAX_BYTES >> 20} MiB at once; "
                    "check its offsets, or use --backend redis://HOST:PORT"
                )

    def spend(self, units: int) -> None:
        """Count work that is about to be done. Raises ScriptTimeout where a script has done too much."""
        self.work += units
        if self.work > self.work_max:
            raise ScriptTimeout("work of its commands")

    # -- clients that wait ---------------------------------------------------------------------------------

    def wait_for(
        self,
        kind: type,
        keys: Sequence[bytes],
        deadline_ms: int,
        serve: Callable[[bytes], Reply],
        argv: Sequence[bytes],
    ) -> Reply:
        """Let the caller wait until one of ``keys`` holds a value of the type ``kind`` that serves it (0: without a
        timeout), or reply as at a timeout where nothing may wait."""
        caller = self.caller
        if not caller.may_wait or self.runs_script or self.in_transaction:
            return None
        waiting = Waiting(caller, tuple(argv), self.database, kind, tuple(keys), deadline_ms, serve)
        self.waits.add(waiting)
        return waiting

    def signal(self, key: bytes, kind: type) -> None:
        """Something of this type has happened at ``key`` that a client may wait for."""
        if self.on_presence is not None:
            self.waits.signal(name_in(self.database, key), kind)

    # -- databases -----------------------------------------------------------------------------------------

    def reach(self, index: int, key: bytes) -> None:
        """Select a database on the way of a command that reads and writes ``key`` there, beside what its arguments name
        in its own."""
        self.use(index)
        if self.changed is not None:
            self.reached.append(name_in(index, key))

    def swap_databases(self, first: int, second: int) -> None:
        """Let the keys of two databases change places; tell who wants to know."""
        if first != second:
            self.watches.touch_swapped(first, second)
            self.watches.touch_swapped(second, first)
            if self.changed is not None:
                concerned = [one for index, one in self.databases().items() if index in (first, second)]
                self.changed += [
                    name_in(index, key) for one in concerned for key in one.data for index in (first, second)
                ]
            held = self.waits.held((first, second)) if self.waits else {}
            self.swap(first, second)
            self.waits.signal_changed(held)
        self.dirty += 1

    @property
    def runs_script(self) -> bool:
        """Whether the command that is being carried out was called by a script."""
        return self.work_max != UNCOUNTED

    # -- who wants to know of changes ----------------------------------------------------------------------

    def observe_changes(self) -> None:
        """Listen to changes if there is anyone to tell: nobody pays for it otherwise."""
        wanted = self.changed is not None or bool(self.watches) or self.memory is not None or self.notifier is not None
        self.on_modified = self._note_change if wanted else None
        self.on_vanished = self._note_lapse if wanted else None

    def altered(self, key: bytes, changes: int = 1) -> None:
        """As ``modified`` where the server does not break WATCH (what XACK and its kin change)."""
        self.dirty += changes
        if self.changed is not None:
            self.changed.append(name_in(self.database, key))
        if self.memory is not None:
            self.memory.forget(name_in(self.database, key))

    def _note_change(self, key: bytes) -> None:
        if self.changed is not None:
            self.changed.append(name_in(self.database, key))
        self._note_loss(key)

    def _note_lapse(self, key: bytes) -> None:
        self._note_loss(key)
        if self.notifier is not None:
            self.notifier.lost(name_in(self.database, key), False)

    def note_eviction(self, key: bytes) -> None:
        """A key of the selected database was given up."""
        self._note_loss(key)
        if self.notifier is not None:
            self.notifier.lost(name_in(self.database, key), True)

    def _note_loss(self, key: bytes) -> None:
        name = name_in(self.database, key)
        self.watches.touch(name)
        if self.memory is not None:
            self.memory.forget(name)
