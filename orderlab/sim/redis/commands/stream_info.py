"""XINFO: what a stream tells of itself, its groups and their consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.streams import c_text, entries_between, existing, id_text, shown, wrong_subcommand
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import ErrorReply, Reply, mapping
from orderlab.sim.redis.values.stream import (
    FIRST_ID,
    LAST_ID,
    UNKNOWN_READ,
    Group,
    Stream,
    radix_counts,
)

_SHOWN_ENTRIES: Final = 10


@command("xinfo|stream", -3, "readonly", (2, 2, 1))
def xinfo_stream(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XINFO STREAM key [FULL [COUNT count]]."""
    value = existing(node, argv[2])
    is_full, count = len(argv) > 3, _SHOWN_ENTRIES
    if is_full:
        if len(argv) not in (4, 6) or option(argv[3]) != b"FULL" or (len(argv) == 6 and option(argv[4]) != b"COUNT"):
            raise wrong_subcommand(argv)
        if len(argv) == 6:
            count = integer(argv[5])
            if count < 0:
                count = _SHOWN_ENTRIES
    keys, nodes = radix_counts(value)
    facts: list[Reply] = [
        *(b"length", len(value), b"radix-tree-keys", keys, b"radix-tree-nodes", nodes),
        *(b"last-generated-id", id_text(value.last_id)),
    ]
    if node.version.has((7, 0)):
        facts += (b"max-deleted-entry-id", id_text(value.max_deleted_id))
        facts += (b"entries-added", value.entries_added, b"recorded-first-entry-id", id_text(value.first_id))
    if is_full:
        facts += (b"entries", entries_between(value, FIRST_ID, LAST_ID, count))
        facts += (b"groups", [_whole_group(node, value, name, count) for name in sorted(value.groups)])
    else:
        ends = [next(map(shown, value.between(is_reversed=is_reversed)), None) for is_reversed in (False, True)]
        facts += (b"groups", len(value.groups), b"first-entry", ends[0], b"last-entry", ends[1])
    return mapping(node.resp, facts)


def _whole_group(node: NodeState, value: Stream, name: bytes, count: int) -> Reply:
    group = value.groups[name]
    pending = [[id_text(one), *group.pending[one]] for one in group.ids[: count or None]]
    consumers = [
        mapping(
            node.resp,
            [
                *(b"name", consumer, b"seen-time", group.seen_ms[consumer]),
                *((b"active-time", group.seen_ms[consumer]) if node.version.has((7, 2)) else ()),
                *(b"pel-count", len(ids)),
                *(b"pending", [[id_text(one), *group.pending[one][1:]] for one in ids[: count or None]]),
            ],
        )
        for consumer, ids in sorted(group.consumers.items())
    ]
    return mapping(
        node.resp,
        [
            *(b"name", name, b"last-delivered-id", id_text(group.last_id)),
            *(_reading(value, group) if node.version.has((7, 0)) else ()),
            *(b"pel-count", len(group.ids), b"pending", pending, b"consumers", consumers),
        ],
    )


@command("xinfo|groups", 3, "readonly", (2, 2, 1))
def xinfo_groups(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XINFO GROUPS key."""
    value = existing(node, argv[2])
    return [
        mapping(
            node.resp,
            [
                *(b"name", name, b"consumers", len(group.consumers), b"pending", len(group.ids)),
                *(b"last-delivered-id", id_text(group.last_id)),
                *(_reading(value, group) if node.version.has((7, 0)) else ()),
            ],
        )
        for name, group in sorted(value.groups.items())
    ]


def _reading(value: Stream, group: Group) -> list[Reply]:
    read = None if group.entries_read == UNKNOWN_READ else group.entries_read
    return [b"entries-read", read, b"lag", value.lag_of(group)]


@command("xinfo|consumers", 4, "readonly", (2, 2, 1))
def xinfo_consumers(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XINFO CONSUMERS key group."""
    value = existing(node, argv[2])
    group = value.groups.get(argv[3])
    if group is None:
        raise ErrorReply(b"NOGROUP No such consumer group '%b' for key name '%b'" % (c_text(argv[3]), c_text(argv[2])))
    return [
        mapping(node.resp, [b"name", name, b"pending", len(ids), *_ages(node, group.seen_ms[name])])
        for name, ids in sorted(group.consumers.items())
    ]


def _ages(node: NodeState, seen_ms: int) -> list[Reply]:
    """How long ago a consumer was seen. Redis 7.2 tells from it when it last was given something; here that is one."""
    idle_ms = max(node.now_ms - seen_ms, 0)
    return [b"idle", idle_ms, b"inactive", idle_ms] if node.version.has((7, 2)) else [b"idle", idle_ms]
