"""Consumer groups of streams: XGROUP, acknowledging, what is pending, and taking it over (``t_stream.c``)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.arguments import integer, integer_between, option
from orderlab.sim.redis.commands.streams import (
    c_text,
    end_bound,
    id_text,
    parse_id,
    shown,
    start_bound,
    strict_id_or_none,
    wrong_subcommand,
)
from orderlab.sim.redis.node_state import NEW_STREAM_BYTES, NEW_VALUE_BYTES, NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply
from orderlab.sim.redis.values.stream import FIRST_ID, UNKNOWN_READ, Group, Stream, StreamId

_CLAIMED_AT_MOST: Final = 100
_LOOKED_AT_PER_CLAIM: Final = 10
_COUNT_MAX: Final = ((1 << 63) - 1) // 16


def _found_group(node: NodeState, key: bytes, name: bytes) -> tuple[Stream, Group]:
    """The group that a command works on. Raises ErrorReply."""
    value = node.lookup_as(key, Stream)
    group = None if value is None else value.groups.get(name)
    if value is None or group is None:
        raise ErrorReply(b"NOGROUP No such key '%b' or consumer group '%b'" % (c_text(key), c_text(name)))
    return value, group


# -- XGROUP ----------------------------------------------------------------------------------------------------


def _subject(node: NodeState, argv: Sequence[bytes], makes_stream: bool = False) -> Stream | None:
    """The stream that a subcommand of XGROUP works on; None only if it may be made. Raises ErrorReply."""
    value: Stream | None = node.lookup_as(argv[2], Stream)
    if value is None and not makes_stream:
        raise ErrorReply(
            b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the "
            b"MKSTREAM option to "
            b"create an empty stream automatically."
        )
    return value


def _subject_group(node: NodeState, argv: Sequence[bytes]) -> tuple[Stream, Group]:
    value = _subject(node, argv)
    assert value is not None, "an error without MKSTREAM"
    group = value.groups.get(argv[3])
    if group is None:
        raise ErrorReply(b"NOGROUP No such consumer group '%b' for key name '%b'" % (c_text(argv[3]), c_text(argv[2])))
    return value, group


def _options(argv: Sequence[bytes], creates: bool) -> tuple[bool, int]:
    """Whether MKSTREAM is given, and ENTRIESREAD."""
    makes_stream, read, at = False, UNKNOWN_READ, 5
    while at < len(argv):
        word = option(argv[at])
        if creates and word == b"MKSTREAM":
            makes_stream = True
            at += 1
        elif word == b"ENTRIESREAD" and at + 1 < len(argv):
            read = integer(argv[at + 1])
            if read < 0 and read != UNKNOWN_READ:
                raise ErrorReply(b"ERR value for ENTRIESREAD must be positive or -1")
            at += 2
        else:
            raise wrong_subcommand(argv)
    return makes_stream, read


def _only_makes_stream(argv: Sequence[bytes]) -> bool:
    """Before Redis 7.0 MKSTREAM was the one option, and the last word."""
    return len(argv) == 6 and option(argv[5]) == b"MKSTREAM"


@command("xgroup|create", -5, "write denyoom", (2, 2, 1))
def xgroup_create(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]."""
    makes_stream, read = _options(argv, True) if node.version.has((7, 0)) else (_only_makes_stream(argv), UNKNOWN_READ)
    value = _subject(node, argv, makes_stream)
    if len(argv) > 8 or (len(argv) > 5 and not makes_stream and not node.version.has((7, 0))):
        raise wrong_subcommand(argv)
    takes_all = argv[4].split(b"\0")[0] == b"$"
    last = parse_id(argv[4]) if not takes_all else FIRST_ID if value is None else value.last_id
    if value is None:
        node.grow(NEW_STREAM_BYTES)
        value = Stream()
        node.install(argv[2], value)
        node.modified(argv[2], 0)
    if argv[3] in value.groups:
        raise ErrorReply(b"BUSYGROUP Consumer Group name already exists")
    node.grow(NEW_VALUE_BYTES)
    if node.version.has((8, 0)):
        read = min(read, value.entries_added)
    value.set_group(argv[3], Group(last, read), node.undo)
    node.altered(argv[2])
    return OK


@command("xgroup|setid", -5, "write", (2, 2, 1))
def xgroup_setid(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XGROUP SETID key group id|$ [ENTRIESREAD entries-read]."""
    _, read = _options(argv, False)
    value, group = _subject_group(node, argv)
    if len(argv) not in (5, 7) or (len(argv) == 7 and not node.version.has((7, 0))):
        raise wrong_subcommand(argv)
    last = value.last_id if argv[4].split(b"\0")[0] == b"$" else parse_id(argv[4], strict=False)
    if node.version.has((8, 0)):
        read = min(read, value.entries_added)
    group.read_to(last, read, node.undo)
    node.altered(argv[2])
    return OK


@command("xgroup|destroy", 4, "write", (2, 2, 1))
def xgroup_destroy(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XGROUP DESTROY key group."""
    value = _subject(node, argv)
    assert value is not None, "an error without MKSTREAM"
    if argv[3] not in value.groups:
        return 0
    value.set_group(argv[3], None, node.undo)
    node.altered(argv[2])
    node.signal(argv[2], Stream)
    return 1


@command("xgroup|createconsumer", 5, "write denyoom", (2, 2, 1))
def xgroup_createconsumer(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XGROUP CREATECONSUMER key group consumer."""
    _, group = _subject_group(node, argv)
    if argv[4] in group.consumers:
        return 0
    group.see(argv[4], node.now_ms, node.undo)
    node.altered(argv[2])
    return 1


@command("xgroup|delconsumer", 5, "write", (2, 2, 1))
def xgroup_delconsumer(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XGROUP DELCONSUMER key group consumer: how much was pending there."""
    _, group = _subject_group(node, argv)
    if argv[4] not in group.consumers:
        return 0
    pending = group.forget(argv[4], node.undo)
    node.altered(argv[2])
    return pending


# -- what is pending -------------------------------------------------------------------------------------------


@command("xack", -4, "write fast", (1, 1, 1))
def xack(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XACK key group id [id ...]."""
    value = node.lookup_as(argv[1], Stream)
    group = None if value is None else value.groups.get(argv[2])
    if group is None:
        return 0
    acknowledged = 0
    for one in [parse_id(argument) for argument in argv[3:]]:
        if one in group.pending:
            group.put(one, None, node.undo)
            acknowledged += 1
    if acknowledged:
        node.altered(argv[1], acknowledged)
    return acknowledged


@command("xpending", -3, "readonly", (1, 1, 1))
def xpending(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XPENDING key group [[IDLE min-idle-time] start end count [consumer]]."""
    if len(argv) == 3:
        return _pending_summary(_found_group(node, argv[1], argv[2])[1])
    if not 6 <= len(argv) <= 9:
        raise ErrorReply(SYNTAX_ERROR)
    at, idle_ms = 3, 0
    if option(argv[3]) == b"IDLE":
        idle_ms = integer(argv[4])
        if len(argv) < 8:
            raise ErrorReply(SYNTAX_ERROR)
        at = 5
    count = max(integer(argv[at + 2]), 0)
    start, end = start_bound(argv[at]), end_bound(argv[at + 1])
    consumer = argv[at + 3] if at + 3 < len(argv) else None
    _, group = _found_group(node, argv[1], argv[2])
    ids = group.ids if consumer is None else group.consumers.get(consumer, [])
    found: list[Reply] = []
    for one in ids[bisect_left(ids, start) : bisect_right(ids, end)]:
        if len(found) == count:
            break
        owner, delivered_ms, deliveries = group.pending[one]
        elapsed_ms = node.now_ms - delivered_ms
        if not idle_ms or elapsed_ms >= idle_ms:
            found.append([id_text(one), owner, max(elapsed_ms, 0), deliveries])
    return found


def _pending_summary(group: Group) -> Reply:
    if not group.ids:
        return [0, None, None, None]
    consumers = [[name, b"%d" % len(ids)] for name, ids in sorted(group.consumers.items()) if ids]
    return [len(group.ids), id_text(group.ids[0]), id_text(group.ids[-1]), consumers]


@command("xclaim", -6, "write fast", (1, 1, 1))
def xclaim(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-ms] [RETRYCOUNT count] [FORCE] [JUSTID]
    [LASTID id]."""
    value, group = _found_group(node, argv[1], argv[2])
    idle_ms = max(integer(argv[4], b"ERR Invalid min-idle-time argument for XCLAIM"), 0)
    ids: list[StreamId] = []
    for argument in argv[5:]:
        one = strict_id_or_none(argument)
        if one is None:
            break
        ids.append(one)
    now_ms, at = node.now_ms, 5 + len(ids)
    delivered_ms, deliveries = -1, -1
    forces = only_ids = False
    last = FIRST_ID
    while at < len(argv):
        word, has_more = option(argv[at]), at + 1 < len(argv)
        if word == b"FORCE":
            forces = True
        elif word == b"JUSTID":
            only_ids = True
        elif word in (b"IDLE", b"TIME", b"RETRYCOUNT") and has_more:
            at += 1
            number = integer(argv[at], b"ERR Invalid %b option argument for XCLAIM" % word)
            if word == b"RETRYCOUNT":
                deliveries = number
            else:
                delivered_ms = now_ms - number if word == b"IDLE" else number
        elif word == b"LASTID" and has_more:
            at += 1
            last = parse_id(argv[at])
        else:
            raise ErrorReply(b"ERR Unrecognized XCLAIM option '%b'" % c_text(argv[at]))
        at += 1
    changes = 0
    has_read_on = last > group.last_id
    if has_read_on:
        group.read_to(last, group.entries_read, node.undo)
    if not 0 <= delivered_ms <= now_ms:
        delivered_ms = now_ms
    consumer = argv[3]
    if node.version.has((7, 2)):
        changes += group.see(consumer, now_ms, node.undo)
    claimed: list[Reply] = []
    forgets = node.version.has((7, 0))
    for one in ids:
        pending = group.pending.get(one)
        items = value.entry(one)
        if items is None and forgets:
            if pending is not None:
                group.put(one, None, node.undo)
                changes += 1
                has_read_on = False
            continue
        if pending is None and (not forces or items is None):
            continue
        if pending is not None and idle_ms and now_ms - pending[1] < idle_ms:
            continue
        before = 1 if pending is None else pending[2]
        times = deliveries if deliveries >= 0 else before if only_ids else before + 1
        changes += 1 + (not claimed and group.see(consumer, now_ms, node.undo))
        group.put(one, (consumer, delivered_ms, times), node.undo)
        has_read_on = False
        claimed.append(id_text(one) if only_ids else None if items is None else shown((one, items)))
    changes += has_read_on
    node.altered(argv[1], changes)
    return claimed


@command("xautoclaim", -6, "write fast", (1, 1, 1))
def xautoclaim(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]."""
    idle_ms = max(integer(argv[4], b"ERR Invalid min-idle-time argument for XAUTOCLAIM"), 0)
    start = start_bound(argv[5])
    count, only_ids, at = _CLAIMED_AT_MOST, False, 6
    while at < len(argv):
        word = option(argv[at])
        if word == b"COUNT" and at + 1 < len(argv):
            count = integer_between(argv[at + 1], 1, _COUNT_MAX, b"ERR COUNT must be > 0")
            at += 1
        elif word == b"JUSTID":
            only_ids = True
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    value, group = _found_group(node, argv[1], argv[2])
    consumer, now_ms = argv[3], node.now_ms
    changes = int(group.see(consumer, now_ms, node.undo)) if node.version.has((7, 2)) else 0
    ids = group.ids[bisect_left(group.ids, start) :]
    claimed: list[Reply] = []
    deleted: list[Reply] = []
    looked_at = 0
    for one in ids:
        if looked_at == count * _LOOKED_AT_PER_CLAIM or len(claimed) + len(deleted) == count:
            break
        looked_at += 1
        _, delivered_ms, deliveries = group.pending[one]
        items = value.entry(one)
        if items is None and node.version.has((7, 0)):
            group.put(one, None, node.undo)
            deleted.append(id_text(one))
            changes += 1
            continue
        if idle_ms and now_ms - delivered_ms < idle_ms:
            continue
        changes += not claimed and group.see(consumer, now_ms, node.undo)
        group.put(one, (consumer, now_ms, deliveries if only_ids else deliveries + 1), node.undo)
        claimed.append(id_text(one) if only_ids else None if items is None else shown((one, items)))
        changes += 1
    node.altered(argv[1], changes)
    cursor = ids[looked_at] if looked_at < len(ids) else FIRST_ID
    return [id_text(cursor), claimed, deleted] if node.version.has((7, 0)) else [id_text(cursor), claimed]
