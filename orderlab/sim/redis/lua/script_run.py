"""One run of a script: what it may do, what it has done, and the checks before each of its calls.

Follows ``scriptPrepareForRun`` and ``scriptCall`` of Redis 7.0.15, in their order and with their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis import conditions
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import Abort, NodeCrashed, ScriptKilled
from orderlab.sim.redis.execution import carry_out, miscounted, unknown
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import Command, find
from orderlab.sim.redis.replies import ErrorReply, RefusedCall, Reply
from orderlab.sim.redis.unsupported import UnsupportedCommand, check_lacking, refused_to_scripts
from orderlab.sim.redis.versions import came_later

UNKNOWN_COMMAND = b"ERR Unknown Redis command called from script"
WRONG_ARGUMENT_COUNT = b"ERR Wrong number of args calling Redis command from script"
NOT_FROM_SCRIPT = b"ERR This Redis command is not allowed from script"
STALE = b"ERR Can not execute the command on a stale replica"
READ_ONLY_SCRIPT = b"ERR Write commands are not allowed from read-only scripts."
CROSS_SLOT = b"ERR Script attempted to access keys that do not hash to the same slot"
NO_CLUSTER = b"ERR Can not run script on cluster, 'no-cluster' flag is set."
STALE_SCRIPT = (
    b"MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set "
    b"on the script."
)
READ_ONLY_REPLICA = b"READONLY Can not run script with write flag on readonly replica"
WRITES_IN_RO = b"ERR Can not execute a script with write flag using *_ro command."
OUT_OF_MEMORY = b"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'"

_REFUSED_WHOLE = frozenset((b"client", b"config", b"script"))
"""Redis 6.2 refuses these to scripts whatever their subcommand."""
NEVER_NESTED = frozenset(
    (
        b"eval",
        b"evalsha",
        b"eval_ro",
        b"evalsha_ro",
        b"fcall",
        b"fcall_ro",
        b"function",
        b"script",
        b"multi",
        b"exec",
        b"discard",
        b"watch",
        b"reset",
        b"quit",
        b"hello",
    )
)
"""Where DEBUG SET-DISABLE-DENY-SCRIPTS lets a script call anything, these break a server, or speak for a client that is
none."""


@dataclass(frozen=True, slots=True)
class ScriptFlags:
    """The flags that a shebang or ``register_function`` declares. A script without either has none: see ``begin``."""

    no_writes: bool = False
    allow_oom: bool = False
    allow_stale: bool = False
    no_cluster: bool = False
    allow_cross_slot_keys: bool = False


class ScriptRun:
    """A script that is running on ``node``. ``call`` is ``redis.call`` without Lua around it."""

    allow_oom = False
    allow_cross_slot = True
    slot: int | None = None
    """The hash slot that the run is bound to, once a key has been named."""
    calls = 0
    """Calls made so far, refused ones included; counted where abort points are asked."""
    wrote = False
    """A write command got past its checks: from here on no condition of the node stops the script, and it cannot be
    killed. True even if the command then failed or changed nothing."""

    def __init__(self, node: NodeState, read_only: bool) -> None:
        self.node = node
        self.client = node.caller
        self.read_only = read_only
        self.watched = node.interrupt is not None or node.slots is not None or node.caller.guard is not None
        """Whether a call needs more than the plain checks."""

    @classmethod
    def begin(
        cls, node: NodeState, flags: ScriptFlags | None, read_only: bool, keys: Sequence[bytes] = ()
    ) -> ScriptRun:
        """Check that the script may run at all. ``flags`` is None for a script without a shebang; ``read_only`` is
        True for EVAL_RO and its kin; ``keys`` are the declared ones.

        Raises ErrorReply.
        """
        run = cls(node, read_only)
        if flags is None and node.slots is None and not node.master_link_down:  # by far the most frequent
            return run
        is_stale = node.is_stale()
        if flags is None:
            if is_stale:
                raise ErrorReply(conditions.MASTER_DOWN)
        else:
            if flags.no_cluster and node.slots is not None:
                raise ErrorReply(NO_CLUSTER)
            if is_stale and not flags.allow_stale:
                raise ErrorReply(STALE_SCRIPT)
            if not flags.no_writes:
                cls._check_writes(node, run.client, read_only)
            if node.is_out_of_memory and not (flags.allow_oom or flags.no_writes):
                raise ErrorReply(OUT_OF_MEMORY)
            run.read_only = read_only or flags.no_writes
            run.allow_oom = flags.allow_oom
            run.allow_cross_slot = flags.allow_cross_slot_keys
        if node.slots is not None and keys:
            run.slot = hash_slot(keys[0])
        return run

    @staticmethod
    def _check_writes(node: NodeState, client: Client, read_only: bool) -> None:
        if node.is_read_only_replica() and not client.is_master:
            raise ErrorReply(READ_ONLY_REPLICA)
        disk_error = node.write_disk_error()
        if disk_error is not None and not client.is_master:
            raise ErrorReply(disk_error.of_script())
        if read_only:
            raise ErrorReply(WRITES_IN_RO)
        if node.lacks_replicas():
            raise ErrorReply(conditions.NO_REPLICAS)

    def call(self, argv: Sequence[bytes]) -> Reply:
        """Run one command of the script, ``len(argv)`` >= 1.

        Raises ErrorReply (the message a script sees, without the place that Lua adds), UnsupportedCommand,
        ScriptKilled, NodeCrashed; the last three are not for the script to catch.
        """
        node = self.node
        if self.watched:
            return self._call_watched(argv)
        command: Command | None = node.spellings.get(argv[0])
        if command is None or command.special_in_script:
            command = self._resolve(argv)
        if command.arity != len(argv) and not 0 < -command.arity <= len(argv):
            raise self._miscount(command, argv)
        if command.is_write:
            if not self.wrote:
                self._check_first_write(command)
        elif node.master_link_down:
            self._check_stale(command)
        if node.effects is None:
            return command.handler(node, argv)
        return carry_out(node, command, argv)

    def _call_watched(self, argv: Sequence[bytes]) -> Reply:
        """The same with an abort point before, and with the checks of a cluster node and of a user who may not do all.

        ``call`` repeats what both need, in the same order, so that a run of a plain node pays for neither in each of
        its calls.
        """
        node, index = self.node, self.calls
        self.calls += 1
        if node.interrupt is not None:
            verdict = node.interrupt(index, argv)
            if verdict is Abort.CRASH:
                raise NodeCrashed
            if verdict is Abort.KILL and not self.wrote:  # SCRIPT KILL is refused to a script that has written
                raise ScriptKilled
            if isinstance(verdict, ErrorReply):
                raise verdict
        command = self._resolve(argv)
        if not command.admits(len(argv)):
            raise self._miscount(command, argv)
        if self.client.guard is not None:
            refused = self.client.guard.refusal(self.client, argv, b"lua")
            if refused is not None:
                raise ErrorReply(refused.to_script(node.version))
        if command.is_write:
            if not self.wrote:
                self._check_first_write(command)
        elif node.master_link_down:
            self._check_stale(command)
        if node.slots is not None and not self.client.is_master:
            self._check_slot(command, argv)
        return carry_out(node, command, argv)

    def _miscount(self, command: Command, argv: Sequence[bytes]) -> ErrorReply:
        """The error of a call with a wrong number of arguments. Before Redis 7.0 a subcommand was an argument."""
        if b"|" in command.name and not self.node.version.has((7, 0)):
            return ErrorReply(miscounted(self.node, command, argv))
        return self._refusal(WRONG_ARGUMENT_COUNT)

    def _refusal(self, text: bytes) -> ErrorReply:
        """The error of a call that the server does not carry out."""
        return RefusedCall(self.node.version.text(text))

    def _resolve(self, argv: Sequence[bytes]) -> Command:
        """The command behind ``argv``, if a script may call it."""
        node = self.node
        command = find(argv, node.spellings)
        if command is None and not node.version.has((7, 0)) and argv[0].lower() in node.spellings:
            refused = argv[0].lower() in _REFUSED_WHOLE
            raise self._refusal(NOT_FROM_SCRIPT) if refused else ErrorReply(unknown(node, argv))
        if command is None:
            arity = None if node.scripts_may_call_all else refused_to_scripts(argv)
            if arity is not None and not came_later(argv[0].lower(), node.version):
                fits = len(argv) == arity or len(argv) >= -arity > 0
                raise self._refusal(NOT_FROM_SCRIPT if fits else WRONG_ARGUMENT_COUNT)
            check_lacking(argv, node.version)
            raise self._refusal(UNKNOWN_COMMAND)
        if command.special_in_script:
            if not command.admits(len(argv)):
                raise self._miscount(command, argv)
            if "noscript" in command.flags:
                if not self.node.scripts_may_call_all:
                    raise self._refusal(NOT_FROM_SCRIPT)
                if command.name.partition(b"|")[0] in NEVER_NESTED:
                    raise UnsupportedCommand(f"{command.name.decode().upper()} within a script")
            if command.may_replicate and self.read_only:
                raise self._refusal(READ_ONLY_SCRIPT)
        return command

    def _check_stale(self, command: Command) -> None:
        if self.node.is_stale() and "stale" not in command.flags:
            raise self._refusal(STALE)

    def _check_first_write(self, command: Command) -> None:
        node = self.node
        # ``wrote`` is set even if the command then fails or changes nothing: ``scriptCall`` notes a write before it
        # calls it, and no condition is asked from then on, lest a script be stopped in the middle of its writes.
        if node.is_calm() and not self.read_only:
            self.wrote = True
            return
        self._check_stale(command)
        if self.read_only:
            raise self._refusal(READ_ONLY_SCRIPT)
        is_master = self.client.is_master
        if node.is_read_only_replica() and not is_master:
            raise ErrorReply(conditions.READ_ONLY)
        refusal = node.persistence_refusal()
        if refusal is not None:
            raise ErrorReply(refusal)
        if node.is_out_of_memory and command.denies_oom and not self.allow_oom and not is_master:
            raise ErrorReply(conditions.OUT_OF_MEMORY)
        self.wrote = True

    def _check_slot(self, command: Command, argv: Sequence[bytes]) -> None:
        slots = self.node.slots
        assert slots is not None
        keys = command.find_keys(argv)
        if not keys:
            return
        refusal = slots.refusal(self.node, keys, self.client.asking)
        if refusal is not None:
            raise ErrorReply(refusal.to_script())
        if not self.allow_cross_slot:
            slot = hash_slot(keys[0])
            if self.slot is None:
                self.slot = slot
            elif self.slot != slot:
                raise ErrorReply(CROSS_SLOT)
