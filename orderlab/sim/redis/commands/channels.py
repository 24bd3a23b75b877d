"""Channels: publishing, subscribing, and who is there (PUBSUB)."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.commands.streams import wrong_subcommand
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.scanning import glob
from orderlab.sim.redis.subscriptions import CHANNEL, PATTERN, SHARD_CHANNEL
from orderlab.sim.redis.unsupported import UnsupportedCommand


@command("publish", 3, "pubsub loading stale fast", may_replicate=True)
def publish(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBLISH channel message: how many received it."""
    return node.subscribers.publish(argv[1], argv[2])


@command("spublish", 3, "pubsub loading stale fast", (1, 1, 1), may_replicate=True)
def spublish(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SPUBLISH shardchannel message."""
    return node.subscribers.publish(argv[1], argv[2], is_sharded=True)


def _change(node: NodeState, argv: Sequence[bytes], kind: bytes, begins: bool) -> Reply:
    """Subscribe or unsubscribe the caller, whose confirmations are pushed: there is no reply."""
    if node.in_transaction and begins and kind == SHARD_CHANNEL:
        raise ErrorReply(b"ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
    if node.in_transaction:
        raise UnsupportedCommand(f"{argv[0].decode().upper()} within MULTI")
    table = node.subscribers
    (table.subscribe if begins else table.unsubscribe)(node.caller, kind, argv[1:])
    return None


@command("subscribe", -2, "pubsub noscript loading stale")
def subscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUBSCRIBE channel [channel ...]."""
    return _change(node, argv, CHANNEL, True)


@command("unsubscribe", -1, "pubsub noscript loading stale")
def unsubscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """UNSUBSCRIBE [channel ...]."""
    return _change(node, argv, CHANNEL, False)


@command("psubscribe", -2, "pubsub noscript loading stale")
def psubscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PSUBSCRIBE pattern [pattern ...]."""
    return _change(node, argv, PATTERN, True)


@command("punsubscribe", -1, "pubsub noscript loading stale")
def punsubscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUNSUBSCRIBE [pattern ...]."""
    return _change(node, argv, PATTERN, False)


@command("ssubscribe", -2, "pubsub noscript loading stale", (1, -1, 1))
def ssubscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SSUBSCRIBE shardchannel [shardchannel ...]."""
    return _change(node, argv, SHARD_CHANNEL, True)


@command("sunsubscribe", -1, "pubsub noscript loading stale", (1, -1, 1))
def sunsubscribe(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUNSUBSCRIBE [shardchannel ...]."""
    return _change(node, argv, SHARD_CHANNEL, False)


def _channels(node: NodeState, argv: Sequence[bytes], kind: bytes) -> Reply:
    if len(argv) > 3:
        raise wrong_subcommand(argv)
    names = node.subscribers.names(kind)
    return list(filter(glob(argv[2]), names)) if len(argv) == 3 else names


@command("pubsub|channels", -2, "pubsub loading stale")
def pubsub_channels(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBSUB CHANNELS [pattern], in the order of the first subscriptions."""
    return _channels(node, argv, CHANNEL)


@command("pubsub|shardchannels", -2, "pubsub loading stale")
def pubsub_shardchannels(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBSUB SHARDCHANNELS [pattern]."""
    return _channels(node, argv, SHARD_CHANNEL)


def _numbers(node: NodeState, argv: Sequence[bytes], kind: bytes) -> Reply:
    """Flat under RESP3 too."""
    return [part for name in argv[2:] for part in (name, node.subscribers.count(kind, name))]


@command("pubsub|numsub", -2, "pubsub loading stale")
def pubsub_numsub(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBSUB NUMSUB [channel ...]."""
    return _numbers(node, argv, CHANNEL)


@command("pubsub|shardnumsub", -2, "pubsub loading stale")
def pubsub_shardnumsub(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBSUB SHARDNUMSUB [shardchannel ...]."""
    return _numbers(node, argv, SHARD_CHANNEL)


@command("pubsub|numpat", 2, "pubsub loading stale")
def pubsub_numpat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PUBSUB NUMPAT: how many patterns, not how many subscribers."""
    return len(node.subscribers.names(PATTERN))
