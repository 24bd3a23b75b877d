"""One Redis shard as a state machine: ``execute(command) -> reply`` on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.redis.keyspace import Keyspace
from sim.redis.registry import COMMANDS, Command
from sim.redis.replies import ErrorReply, Reply

FrozenKeyspace = dict[bytes, tuple[str, Any, int | None]]
"""key -> (type name as TYPE says, frozen value, deadline in ms or None): plain hashable values inside."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One inner or outer command that ran: what it touched and whether it changed anything."""

    argv: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    is_write: bool
    changes: int
    reply: Reply


class Shard(Keyspace):
    """A single-threaded Redis node. Not thread-safe; time moves only when ``now_ms`` is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[Effect] | None = None
        """When a list, every command appends its Effect (footprints); None costs nothing."""

    def execute(self, argv: Sequence[bytes]) -> Reply:
        """Run one command from a client; errors come back as ``ErrorReply`` values, never raised."""
        found = COMMANDS.get(argv[0].lower())
        if found is None:
            return ErrorReply(b"ERR unknown command")
        try:
            return self.run(found, argv)
        except ErrorReply as error:
            return error

    def run(self, command: Command, argv: Sequence[bytes]) -> Reply:
        """Carry out ``command`` after the checks of its caller (client, EXEC or script)."""
        if self.effects is None:
            return command.handler(self, argv)
        before = self.dirty
        reply: Reply = None
        try:
            reply = command.handler(self, argv)
        except ErrorReply as error:
            reply = error
            raise
        finally:
            keys = tuple(command.find_keys(argv))
            self.effects.append(Effect(tuple(argv), keys, command.is_write, self.dirty - before, reply))
        return reply
