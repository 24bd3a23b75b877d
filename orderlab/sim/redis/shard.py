"""One Redis shard as a state machine: ``execute(command) -> reply`` on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from orderlab.sim.redis.blocking import Waiting, served_command
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import NodeCrashed
from orderlab.sim.redis.execution import NOT_QUEUED, admit, carry_out, enqueue, leave_transaction
from orderlab.sim.redis.keyspace import FrozenKeyspace
from orderlab.sim.redis.node_state import GROWTH_MAX_BYTES, Effect, GrowthLimit, LuaStates, NodeState
from orderlab.sim.redis.numbers import double_text, shortest_text
from orderlab.sim.redis.registry import Command, find, load_commands, spellings_of
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.redis.work import charge_commands

__all__ = ["Effect", "FrozenKeyspace", "GrowthLimit", "Shard", "execute_all"]


@cache
def _prepare_commands() -> None:
    load_commands()
    charge_commands()


class Shard(NodeState):
    """A single-threaded Redis node. Not thread-safe; time moves only when ``now_ms`` is assigned."""

    def __init__(self, shared_lua: LuaStates | None = None, version: ServerVersion = DEFAULT) -> None:
        """``shared_lua``: for scripts, with other shards of the thread."""
        super().__init__(shared_lua)
        _prepare_commands()
        self.version = version
        self.spellings = spellings_of(version)
        self.double_text = shortest_text if version.has((7, 2)) else double_text

    def execute(self, argv: Sequence[bytes], client: Client | None = None) -> Reply:
        """Run one command from a client. An error comes back as an ``ErrorReply`` value.

        Raises UnsupportedCommand for what a server has and the kernel lacks, GrowthLimit, whatever its script host
        raises at a limit, and NodeCrashed if an abort point of a script says so (its effects are taken back first).
        """
        caller = self.caller = client or self.client
        assert caller.waiting is None, "a client that waits sends nothing before it has its reply"
        self.growth_left = GROWTH_MAX_BYTES
        self.resp = caller.resp
        self.sees_expired = caller.is_master
        if caller.database:
            self.use(caller.database)
        try:
            command = admit(self, argv, caller)
            if caller.queue is not None and command.name not in NOT_QUEUED:
                return enqueue(caller, argv)
            if self.interrupt is not None:
                return self._run_interruptible(command, argv)
            return command.handler(self, argv) if self.effects is None else carry_out(self, command, argv)
        except ErrorReply as error:
            return error
        finally:
            if self.slept_ms:
                self.slept_ms = 0
            if self.waits.ready:
                self._serve_waits()
            if caller.asking and caller.queue is None and argv[0].lower() != b"asking":
                caller.asking = False
            if self.database:
                self.use(0)

    def _serve_waits(self) -> None:
        """Serve clients that wait for keys, each as the caller."""
        caller, resp = self.caller, self.resp
        try:
            self.waits.serve(self._serve_waiting)
        finally:
            self.caller, self.resp = caller, resp

    def _serve_waiting(self, waiting: Waiting, key: bytes) -> Reply:
        """Carry out the rest of a waiting client's command: its effect stands after those of the command that made the
        key ready."""
        self.caller, self.resp = waiting.client, waiting.client.resp
        if self.effects is None:
            return waiting.serve(key)
        command = find(waiting.argv, self.spellings)
        assert command is not None, "a client waits by a known command"
        return carry_out(self, served_command(command, waiting.serve, key), waiting.argv)

    def disconnect(self, client: Client) -> None:
        """The connection is gone: it waits, watches, queues and is subscribed no longer."""
        if client.waiting is not None:
            self.waits.cancel(client.waiting)
        self.subscribers.drop(client)
        leave_transaction(self, client)

    def _run_interruptible(self, command: Command, argv: Sequence[bytes]) -> Reply:
        journaling = self.undo is not None
        mark = self.snapshot()
        try:
            return carry_out(self, command, argv)
        except NodeCrashed:
            self.rollback(mark)
            self.waits.ready.clear()
            raise
        finally:
            if not journaling:
                self.forget_snapshots()


_KEY_COUNTS = {b"%d" % count: count for count in range(10)}


def execute_all(shard: Shard, commands: Sequence[Sequence[bytes]]) -> list[Reply]:
    """Run ``commands`` from the shard's own client. Raises as ``Shard.execute``.

    Calls of loaded scripts are carried out directly while nothing can refuse them: they cannot change that themselves.
    From the first other command on each command is checked for itself.
    """
    host, client = shard.lua_host, shard.client
    replies: list[Reply] = []
    is_plain = client.queue is None and not client.database and shard.interrupt is None and shard.effects is None
    if host is not None and is_plain and shard.on_presence is None and shard.is_calm():
        shard.caller, shard.resp, shard.sees_expired = client, client.resp, client.is_master
        shard.is_out_of_memory = False
        replies = host.run_calls(commands)
        scripts, run = host.scripts, host.run
        for argv in commands[len(replies) :]:
            if argv[0] != b"EVALSHA" or len(argv) < 3:
                break
            script, key_count = scripts.get(argv[1]), _KEY_COUNTS.get(argv[2])
            if script is None or key_count is None or key_count > len(argv) - 3:
                break
            shard.growth_left = GROWTH_MAX_BYTES
            try:
                replies.append(run(script, key_count, argv[3:], False))
            except ErrorReply as error:
                replies.append(error)
    return replies + [shard.execute(argv) for argv in commands[len(replies) :]]
