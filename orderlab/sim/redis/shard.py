"""One Redis shard as a state machine: ``execute(command) -> reply`` on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from orderlab.model.errors import InputError
from orderlab.sim.redis import admission
from orderlab.sim.redis.abort import Interrupt, NodeCrashed
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import Busy, DiskError
from orderlab.sim.redis.config import Config
from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.eviction import EvictionPool, make_room
from orderlab.sim.redis.expire_cycle import ExpireCycle
from orderlab.sim.redis.keyspace import FrozenKeyspace, Keyspace
from orderlab.sim.redis.lua.random import LuaRandom
from orderlab.sim.redis.lua.run import ScriptFlags, ScriptRun
from orderlab.sim.redis.registry import Command, load_commands
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.watch import WatchTable
from orderlab.sim.redis.work import UNCOUNTED, ScriptTimeout, charge_commands

if TYPE_CHECKING:
    from orderlab.sim.redis.cluster.slot_map import SlotMap
    from orderlab.sim.redis.lua.host import LuaHost
    from orderlab.sim.redis.lua.shared import SharedLua

__all__ = ["Effect", "FrozenKeyspace", "Shard"]


GROWTH_MAX_BYTES = 128 << 20
"""What one command of a client, with all that its script calls, may add to the keyspace beyond its arguments."""


class GrowthLimit(InputError):
    """One command built more bytes out of nothing than the kernel is willing to hold. No script can catch it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One command that ran, called by a client, by EXEC or by a script: what it touched and what it changed."""

    argv: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    """The keys that its arguments name: all that it may read or write. One of another database than 0 is a ``DatabaseKey``."""
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


@cache
def _prepare_commands() -> None:
    load_commands()
    charge_commands()


class Shard(Keyspace):
    """A single-threaded Redis node. Not thread-safe; time moves only when ``now_ms`` is assigned.

    The conditions of the node are plain attributes: assign them, and the errors that follow come out by themselves.
    """

    def __init__(self, shared_lua: SharedLua | None = None) -> None:
        """``shared_lua``: for scripts, with other shards of the thread."""
        super().__init__()
        _prepare_commands()
        self.config = Config()
        self.encoding_limits = self.config
        self.now_us = 0
        """Microseconds, 0..999, within the millisecond ``now_ms``. Only TIME shows them."""
        self.client = Client()
        """The connection that ``execute`` uses when it is given none."""
        self.caller = self.client
        """The connection whose command is being carried out."""
        self.watches = WatchTable(self)
        self.expire_cycle = ExpireCycle(self)
        self.effects: list[Effect] | None = None
        """When a list, every command appends its Effect (footprints); None costs nothing."""
        self._changed: list[bytes] | None = None
        self._reached: list[bytes] = []
        self.interrupt: Interrupt | None = None
        """Asked before every call of a script (``abort``)."""
        self.lua_host: LuaHost | None = None
        """Runs scripts; started by the first one (``lua_host.host_of``)."""
        self.shared_lua = shared_lua
        self.lua_random = LuaRandom(self)
        self.script_line: int | None = None
        """The line of the running script that calls a command, while ``effects`` is a list."""
        self.charged = 0
        """Millions of Lua instructions that scripts have taken, and of units of work that their commands have; of each run whole
        millions count."""

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
        """What scripts have handed to commands, and what long commands have done, so far, in the units of ``work``: the same on every
        machine. Instructions of Lua are in ``charged``."""
        self.work_max = UNCOUNTED
        """Where ``work`` ends the script that runs."""
        self.is_out_of_memory = False
        """Whether, when the current command of a client began, eviction could not get below ``maxmemory``."""

    # -- commands ------------------------------------------------------------------------------------------

    def execute(self, argv: Sequence[bytes], client: Client | None = None) -> Reply:
        """Run one command from a client. An error comes back as an ``ErrorReply`` value.

        Raises UnsupportedCommand for what a server has and the kernel lacks, GrowthLimit, whatever its script host
        raises at a limit, and NodeCrashed if an abort point of a script says so (its effects are taken back first).
        """
        caller = self.caller = client or self.client
        self.growth_left = GROWTH_MAX_BYTES
        self.resp = caller.resp
        self.sees_expired = caller.is_master
        if caller.database:
            self.use(caller.database)
        try:
            command = admission.admit(self, argv, caller)
            if caller.queue is not None and command.name not in admission.NOT_QUEUED:
                return admission.enqueue(caller, command, argv)
            if self.interrupt is not None:
                return self._run_interruptible(command, argv)
            return command.handler(self, argv) if self.effects is None else self.run(command, argv)
        except ErrorReply as error:
            return error
        finally:
            if caller.asking and caller.queue is None and argv[0].lower() != b"asking":
                caller.asking = False
            if self.database:
                self.use(0)

    def run(self, command: Command, argv: Sequence[bytes]) -> Reply:
        """Carry out ``command`` after the checks of its caller (client, EXEC or script). Raises ErrorReply."""
        if self.effects is None:
            return command.handler(self, argv)
        outer, self._changed = self._changed, []
        reached, self._reached = self._reached, []
        self.observe_changes()
        before, database = self.dirty, self.database
        reply: Reply = None
        try:
            reply = command.handler(self, argv)
        except ErrorReply as error:
            reply = error
            raise
        finally:
            keys = (*[name_in(database, key) for key in command.find_keys(argv)], *self._reached)
            self._reached = reached
            changed = tuple(dict.fromkeys(self._changed))
            self._changed = outer
            if outer is not None:
                outer.extend(changed)
            else:
                self.observe_changes()
            line, changes = self.script_line, self.dirty - before
            self.effects.append(Effect(tuple(argv), keys, changed, command.is_write, changes, reply, line, database))
        return reply

    def reach(self, index: int, key: bytes) -> None:
        """Select a database on the way of a command that reads and writes ``key`` there, beside what its arguments name in its own."""
        self.use(index)
        if self._changed is not None:
            self._reached.append(name_in(index, key))

    def swap_databases(self, first: int, second: int) -> None:
        """Let the keys of two databases change places; tell who wants to know."""
        if first != second:
            self.watches.touch_swapped(first, second)
            self.watches.touch_swapped(second, first)
            if self._changed is not None:
                concerned = [one for index, one in self.databases().items() if index in (first, second)]
                self._changed += [name_in(index, key) for one in concerned for key in one.data for index in (first, second)]
            self.swap(first, second)
        self.dirty += 1

    @property
    def runs_script(self) -> bool:
        """Whether the command that is being carried out was called by a script."""
        return self.work_max != UNCOUNTED

    def begin_script(self, flags: ScriptFlags | None, read_only: bool = False, keys: Sequence[bytes] = ()) -> ScriptRun:
        """See ``ScriptRun.begin``."""
        return ScriptRun.begin(self, flags, read_only, keys)

    def _run_interruptible(self, command: Command, argv: Sequence[bytes]) -> Reply:
        journaling = self.undo is not None
        mark = self.snapshot()
        try:
            return self.run(command, argv)
        except NodeCrashed:
            self.rollback(mark)
            raise
        finally:
            if not journaling:
                self.forget_snapshots()

    # -- conditions ----------------------------------------------------------------------------------------

    @property
    def removes_expired(self) -> bool:
        """False on a replica, unless it is writable: there the server removes what a write command finds expired."""
        return not self.is_replica or not self.config.replica_read_only

    def make_room(self) -> bool:
        """Evict keys until the estimate of used memory is within ``maxmemory``; whether that was achieved."""
        return make_room(self)

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

    # -- who wants to know of changes ----------------------------------------------------------------------

    def observe_changes(self) -> None:
        """Listen to changes if there is anyone to tell: nobody pays for it otherwise."""
        wanted = self._changed is not None or bool(self.watches) or self.memory is not None
        self.on_modified = self._note_change if wanted else None
        self.on_vanished = self._note_loss if wanted else None

    def _note_change(self, key: bytes) -> None:
        if self._changed is not None:
            self._changed.append(name_in(self.database, key))
        self._note_loss(key)

    def _note_loss(self, key: bytes) -> None:
        name = name_in(self.database, key)
        self.watches.touch(name)
        if self.memory is not None:
            self.memory.forget(name)
