"""MULTI, EXEC and WATCH."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.execution import carry_out, found, leave_transaction
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, ErrorReply, Reply


@command("multi", 1, "noscript loading stale fast allow_busy")
def multi(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """MULTI."""
    if shard.caller.queue is not None:
        raise ErrorReply(b"ERR MULTI calls can not be nested")
    shard.caller.queue = []
    return OK


@command("discard", 1, "noscript loading stale fast allow_busy")
def discard(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """DISCARD: forgets the watched keys too."""
    if shard.caller.queue is None:
        raise ErrorReply(b"ERR DISCARD without MULTI")
    leave_transaction(shard, shard.caller)
    return OK


@command("exec", 1, "noscript loading stale skip_slowlog")
def exec_(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXEC: an error of one command is an element of the reply, and the others run."""
    client = shard.caller
    if client.queue is None:
        raise ErrorReply(b"ERR EXEC without MULTI")
    queue, is_aborted, is_broken = client.queue, client.is_aborted, shard.watches.is_broken(client)
    leave_transaction(shard, client)
    if is_aborted:
        raise ErrorReply(b"EXECABORT Transaction discarded because of previous errors.")
    if is_broken:
        return None
    replies: list[Reply] = []
    for arguments in queue:
        shard.resp = client.resp
        try:
            replies.append(carry_out(shard, found(arguments), arguments))
        except ErrorReply as error:
            replies.append(error)
    return replies


@command("watch", -2, "noscript loading stale fast allow_busy", (1, -1, 1))
def watch(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """WATCH key [key ...]."""
    client = shard.caller
    if client.queue is not None:
        raise ErrorReply(b"ERR WATCH inside MULTI is not allowed")
    if not client.is_dirty:  # EXEC is bound to fail already
        for key in argv[1:]:
            shard.watches.add(client, key)
        shard.observe_changes()
    return OK


@command("unwatch", 1, "noscript loading stale fast allow_busy")
def unwatch(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """UNWATCH."""
    shard.watches.drop(shard.caller)
    shard.caller.is_dirty = False
    shard.observe_changes()
    return OK
