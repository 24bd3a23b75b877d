"""HELP of every container of subcommands, as Redis 7.0.15 words it (`server_facts.help_pages`)."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.commands.cluster import DISABLED
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.server_facts import help_pages


def _register(container: str) -> None:
    @command(f"{container}|help", 2, "loading stale")
    def help_(node: NodeState, argv: Sequence[bytes]) -> Reply:
        """CONTAINER HELP."""
        if container == "cluster" and node.slots is None:
            raise ErrorReply(DISABLED)
        return help_pages()[container]


for _name in [
    "acl",
    "client",
    "cluster",
    "command",
    "config",
    "function",
    "latency",
    "memory",
    "object",
    "pubsub",
    "script",
    "slowlog",
    "xgroup",
    "xinfo",
]:
    _register(_name)
