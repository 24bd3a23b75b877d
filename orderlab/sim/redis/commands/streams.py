"""Streams: adding, ranges, trimming and reading, and what a stream tells of itself (``t_stream.c``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orderlab.sim.redis.arguments import integer, option, timeout_ms_of
from orderlab.sim.redis.node_state import NEW_STREAM_BYTES, NodeState
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply, mapping
from orderlab.sim.redis.values.stream import (
    FIRST_ID,
    LAST_ID,
    PART_MAX,
    UNKNOWN_READ,
    Entry,
    Group,
    Stream,
    StreamId,
    id_before,
    next_id,
)

INVALID_ID = b"ERR Invalid stream ID specified as stream command argument"
NO_SUCH_KEY = b"ERR no such key"
_ID_MAX_BYTES: Final = 127
_UNSIGNED = re.compile(rb"[ \t\n\v\f\r]*[+-]?[0-9]+")
_APPROXIMATE_NODES: Final = 100
_LIMIT_MAX: Final = 1_000_000
_LIMIT_WITHOUT_NODES: Final = 10_000
_COUNT_WHEN_BLOCKED: Final = 1000


def c_text(text: bytes) -> bytes:
    """``text`` as an error text shows it: a C string on one line."""
    return text.split(b"\0")[0].replace(b"\r", b" ").replace(b"\n", b" ")


def _part(text: bytes) -> int | None:
    """One half of an identifier (``string2ull``): what ``strtoull`` takes, which negates, but no canonical negative
    number."""
    number = parse_integer(text)
    if number is not None:
        return number if number >= 0 else None
    if _UNSIGNED.fullmatch(text) is None:
        return None
    value = int(text)
    return value % (PART_MAX + 1) if abs(value) <= PART_MAX else None


def parse_id(text: bytes, missing_sequence: int = 0, strict: bool = True) -> StreamId:
    """An identifier; unless ``strict``, ``-`` and ``+`` are the first and the last. Raises ErrorReply."""
    found = _parse(text, missing_sequence, strict)
    if found is None:
        raise ErrorReply(INVALID_ID)
    return found


def _parse(text: bytes, missing_sequence: int, strict: bool) -> StreamId | None:
    if len(text) > _ID_MAX_BYTES:
        return None
    word = text.split(b"\0")[0]
    if word in (b"-", b"+"):
        return None if strict else FIRST_ID if word == b"-" else LAST_ID
    left, dash, right = word.partition(b"-")
    ms = _part(left)
    sequence = _part(right) if dash else missing_sequence
    return None if ms is None or sequence is None else (ms, sequence)


def strict_id_or_none(text: bytes) -> StreamId | None:
    """A strict identifier, or None."""
    return _parse(text, 0, True)


def id_text(one: StreamId) -> bytes:
    """An identifier as replies spell it."""
    return b"%d-%d" % one


def _bound(text: bytes, missing_sequence: int) -> tuple[StreamId, bool]:
    """One end of a range, and whether it is left out."""
    is_open = len(text) > 1 and text[:1] == b"("
    return parse_id(text[1:] if is_open else text, missing_sequence, strict=is_open), is_open


def start_bound(text: bytes) -> StreamId:
    """The first identifier of a range. Raises ErrorReply."""
    one, is_open = _bound(text, 0)
    found = next_id(one) if is_open else one
    if found is None:
        raise ErrorReply(b"ERR invalid start ID for the interval")
    return found


def end_bound(text: bytes) -> StreamId:
    """The last identifier of a range. Raises ErrorReply."""
    one, is_open = _bound(text, PART_MAX)
    found = id_before(one) if is_open else one
    if found is None:
        raise ErrorReply(b"ERR invalid end ID for the interval")
    return found


def shown(entry: Entry) -> Reply:
    """An entry as replies show it."""
    return [id_text(entry[0]), list(entry[1])]


# -- adding and trimming ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Trimming:
    """The options of XADD and XTRIM."""

    strategy: bytes = b""
    is_approximate: bool = False
    maxlen: int = 0
    minid: StreamId = FIRST_ID
    limit: int = 0
    creates: bool = True
    entry: StreamId | None = None
    """None: the server chooses it."""
    has_sequence: bool = True
    at: int = 0
    """Where parsing stopped: the place of XADD's identifier."""

    def apply(self, value: Stream, node: NodeState) -> int:
        """Trim; how many entries went."""
        if self.strategy == b"MAXLEN":
            return value.trim_to_length(self.maxlen, self.is_approximate, self.limit, node.undo)
        if self.strategy == b"MINID":
            return value.trim_before(self.minid, self.is_approximate, self.limit, node.undo)
        return 0


def _trimming(node: NodeState, argv: Sequence[bytes], adds: bool) -> _Trimming:
    """Read the options (``streamParseAddOrTrimArgsOrReply``)."""
    found = _Trimming(at=2)
    has_limit = False
    while found.at < len(argv):
        at, left = found.at, len(argv) - 1 - found.at
        word = option(argv[at])
        if adds and word == b"*":
            break
        if word in (b"MAXLEN", b"MINID") and left:
            if found.strategy:
                raise ErrorReply(b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
            sign = option(argv[at + 1])
            found.is_approximate = left >= 2 and sign == b"~"
            if left >= 2 and sign in (b"~", b"="):
                at += 1
            if word == b"MAXLEN":
                found.maxlen = integer(argv[at + 1])
                if found.maxlen < 0:
                    raise ErrorReply(b"ERR The MAXLEN argument must be >= 0.")
            else:
                found.minid = parse_id(argv[at + 1])
            found.strategy = word
            at += 1
        elif word == b"LIMIT" and left:
            found.limit = integer(argv[at + 1])
            if found.limit < 0:
                raise ErrorReply(b"ERR The LIMIT argument must be >= 0.")
            has_limit = True
            at += 1
        elif adds and word == b"NOMKSTREAM":
            found.creates = False
        elif adds:
            found.entry, found.has_sequence = _added_id(argv[at])
            break
        else:
            raise ErrorReply(SYNTAX_ERROR)
        found.at = at + 1
    if found.limit and not found.strategy:
        raise ErrorReply(b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy")
    if not adds and not found.strategy:
        raise ErrorReply(b"ERR syntax error, XTRIM must be called with a trimming strategy")
    if node.caller.is_master:
        found.limit = 0
    elif has_limit:
        if not found.is_approximate:
            raise ErrorReply(b"ERR syntax error, LIMIT cannot be used without the special ~ option")
    elif found.is_approximate:
        found.limit = min(_APPROXIMATE_NODES * node.config.stream_node_max_entries or _LIMIT_WITHOUT_NODES, _LIMIT_MAX)
    return found


def _added_id(text: bytes) -> tuple[StreamId, bool]:
    """The identifier given to XADD, and whether its sequence is given too (``ms-*`` leaves it open)."""
    word = text.split(b"\0")[0]
    left, dash, right = word.partition(b"-")
    if len(text) <= _ID_MAX_BYTES and dash and right == b"*":
        ms = _part(left)
        if ms is not None:
            return (ms, 0), False
    return parse_id(text), True


def _next_added(value: Stream, options: _Trimming, now_ms: int) -> StreamId | None:
    """The identifier of a new entry; None where the sequences of the given millisecond are used up."""
    last = value.last_id
    if options.entry is None:
        return (now_ms, 0) if now_ms > last[0] else next_id(last)
    if options.has_sequence or options.entry[0] != last[0]:
        return options.entry
    return (last[0], last[1] + 1) if last[1] < PART_MAX else None


@command("xadd", -5, "write denyoom fast", (1, 1, 1))
def xadd(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]."""
    options = _trimming(node, argv, adds=True)
    items = argv[options.at + 1 :]
    if len(items) < 2 or len(items) % 2:
        raise ErrorReply(b"ERR wrong number of arguments for 'xadd' command")
    if not options.has_sequence and not node.version.has((7, 0)):
        raise ErrorReply(INVALID_ID)
    if options.entry == FIRST_ID and options.has_sequence:
        raise ErrorReply(b"ERR The ID specified in XADD must be greater than 0-0")
    key = argv[1]
    value = node.lookup_as(key, Stream)
    if value is None:
        if not options.creates:
            return None
        node.grow(NEW_STREAM_BYTES)
        value = Stream()
        node.install(key, value)
    if value.last_id == LAST_ID:
        raise ErrorReply(b"ERR The stream has exhausted the last possible ID, unable to add more items")
    one = _next_added(value, options, node.now_ms)
    if one is None:  # 7.0 looks at an errno that it has not set; after an XADD of too small an identifier it says that
        raise ErrorReply(b"ERR Elements are too large to be stored")
    if one <= value.last_id:
        raise ErrorReply(b"ERR The ID specified in XADD is equal or smaller than the target stream top item")
    config = node.config
    value.append(one, tuple(items), node.undo, config.stream_node_max_bytes, config.stream_node_max_entries)
    node.modified(key)
    options.apply(value, node)
    if node.effects is not None:  # what replicas are told
        node.rewritten = (*argv[: options.at], id_text(one), *items)
    node.signal(key, Stream)
    return id_text(one)


@command("xtrim", -4, "write", (1, 1, 1))
def xtrim(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]."""
    options = _trimming(node, argv, adds=False)
    value = node.lookup_as(argv[1], Stream)
    if value is None:
        return 0
    deleted = options.apply(value, node)
    if deleted:
        node.modified(argv[1], deleted)
    return deleted


@command("xdel", -3, "write fast", (1, 1, 1))
def xdel(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XDEL key id [id ...]."""
    value = node.lookup_as(argv[1], Stream)
    if value is None:
        return 0
    ids = [parse_id(argument) for argument in argv[2:]]
    deleted = [one for one in ids if value.delete(one, node.undo)]
    if deleted:
        value.after_deletions(deleted, node.undo)
        node.modified(argv[1], len(deleted))
    return len(deleted)


@command("xsetid", -3, "write denyoom fast", (1, 1, 1))
def xsetid(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]."""
    last = parse_id(argv[2])
    entries_added: int | None = None
    max_deleted, at = FIRST_ID, 3
    while at < len(argv):
        word = option(argv[at])
        if at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        if word == b"ENTRIESADDED":
            entries_added = integer(argv[at + 1])
            if entries_added < 0:
                raise ErrorReply(b"ERR entries_added must be positive")
        elif word == b"MAXDELETEDID":
            max_deleted = parse_id(argv[at + 1])
            if last < max_deleted:
                raise ErrorReply(b"ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 2
    value = existing(node, argv[1])
    if last < value.max_deleted_id and node.version.has((7, 2)):
        raise ErrorReply(b"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if value.length:
        if last < value.top():
            raise ErrorReply(b"ERR The ID specified in XSETID is smaller than the target stream top item")
        if entries_added is not None and value.length > entries_added:
            raise ErrorReply(b"ERR The entries_added specified in XSETID is smaller than the target stream length")
    value.set_ids(last, entries_added, max_deleted, node.undo)
    node.altered(argv[1])
    return OK


# -- reading ---------------------------------------------------------------------------------------------------


@command("xlen", 2, "readonly fast", (1, 1, 1))
def xlen(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XLEN key."""
    value = node.lookup_as(argv[1], Stream)
    return 0 if value is None else len(value)


def _range(node: NodeState, argv: Sequence[bytes], is_reversed: bool) -> Reply:
    start = start_bound(argv[3 if is_reversed else 2])
    end = end_bound(argv[2 if is_reversed else 3])
    count: int | None = None
    for at in range(4, len(argv), 2):
        if option(argv[at]) != b"COUNT" or at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        count = max(integer(argv[at + 1]), 0)
    value = node.lookup_as(argv[1], Stream)
    if value is None:
        return []
    if count == 0:
        return None
    return entries_between(value, start, end, count or 0, is_reversed)


def entries_between(
    value: Stream, start: StreamId, end: StreamId, count: int, is_reversed: bool = False
) -> list[Reply]:
    """Up to ``count`` entries, all for 0."""
    found: list[Reply] = []
    if start <= end:
        for entry in value.between(start, end, is_reversed):
            found.append(shown(entry))
            if len(found) == count:
                break
    return found


@command("xrange", -4, "readonly", (1, 1, 1))
def xrange_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XRANGE key start end [COUNT count]."""
    return _range(node, argv, False)


@command("xrevrange", -4, "readonly", (1, 1, 1))
def xrevrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XREVRANGE key end start [COUNT count]."""
    return _range(node, argv, True)


def _stream_keys(argv: Sequence[bytes]) -> Sequence[bytes]:
    """The keys behind STREAMS (``xreadGetKeys``)."""
    at = 1
    while at < len(argv):
        word = option(argv[at])
        if word == b"STREAMS":
            count = len(argv) - at - 1
            return argv[at + 1 : at + 1 + count // 2] if count % 2 == 0 else ()
        if word not in (b"BLOCK", b"COUNT", b"GROUP", b"NOACK"):
            break
        at += {b"NOACK": 1, b"GROUP": 3}.get(word, 2)
    return ()


@dataclass(slots=True)
class Reading:
    """One XREAD or XREADGROUP, with its keys and from where each is read."""

    keys: Sequence[bytes]
    after: list[StreamId]
    count: int
    group: bytes | None = None
    consumer: bytes = b""
    keeps_none: bool = False
    """NOACK."""

    def deliver(self, node: NodeState, key: bytes, value: Stream, group: Group | None, after: StreamId) -> Reply:
        """The entries behind ``after``; those of a group are pending from now on."""
        start = next_id(after) or FIRST_ID
        entries: list[Reply] = []
        for one, items in value.between(start):
            if group is not None:
                self._hand_out(node, value, group, one)
            entries.append([id_text(one), list(items)])
            if len(entries) == self.count:
                break
        return entries

    def _hand_out(self, node: NodeState, value: Stream, group: Group, one: StreamId) -> None:
        undo = node.undo
        if one > group.last_id:
            read = group.entries_read
            if read != UNKNOWN_READ and not value.has_tombstones_from(one):
                read += 1
            elif value.entries_added:
                read = value.entries_up_to(one)
            group.read_to(one, read, undo)
        if not self.keeps_none:
            group.put(one, (self.consumer, node.now_ms, 1), undo)

    def history(self, node: NodeState, value: Stream, group: Group, after: StreamId) -> Reply:
        """What is pending at the consumer behind ``after``; what was deleted since is an identifier alone."""
        start = next_id(after) or FIRST_ID
        found: list[Reply] = []
        for one in list(group.consumers[self.consumer]):
            if one < start:
                continue
            items = value.entry(one)
            if items is None:
                found.append([id_text(one), None])
            else:
                _, _, deliveries = group.pending[one]
                group.put(one, (self.consumer, node.now_ms, deliveries + 1), node.undo)
                found.append([id_text(one), list(items)])
            if len(found) == self.count:
                break
        return found


def _read(node: NodeState, argv: Sequence[bytes], of_group: bool) -> Reply:
    reading, timeout_ms = _reading(node, argv, of_group)
    groups = _resolve(node, argv, reading, of_group)
    replies: list[Reply] = []
    for index, key in enumerate(reading.keys):
        value = node.lookup(key)
        if not isinstance(value, Stream):
            continue
        after, group = reading.after[index], groups[index]
        if group is None:
            if value.length and value.top() > after:
                replies.append([key, reading.deliver(node, key, value, None, after)])
            continue
        if after == LAST_ID and not (value.length and value.top() > group.last_id):
            if node.version.has((7, 2)):
                node.altered(key, int(group.see(reading.consumer, node.now_ms, node.undo)))
            continue
        node.altered(key, 1 + group.see(reading.consumer, node.now_ms, node.undo))
        if after != LAST_ID:
            replies.append([key, reading.history(node, value, group, after)])
        else:
            replies.append([key, reading.deliver(node, key, value, group, group.last_id)])
    if replies:
        return mapping(node.resp, [part for pair in replies for part in pair]) if node.resp == 3 else replies
    if timeout_ms is not None:
        reading.count = reading.count or _COUNT_WHEN_BLOCKED
        keys = reading.keys
        after_of: dict[bytes, StreamId] = {}
        for key, after in zip(keys, reading.after, strict=True):
            after_of.setdefault(key, after)
        if not of_group:  # $ means the end of the stream as it is now
            argv = (*argv[: len(argv) - len(keys)], *map(id_text, reading.after))
        return node.wait_for(
            Stream, keys, timeout_ms, lambda key: serve_reader(node, reading, key, after_of[key]), argv
        )
    return None


def serve_reader(node: NodeState, reading: Reading, key: bytes, after: StreamId) -> Reply:
    """The reply to a client that waits to read ``key``; the node's NOT_YET if there is nothing for it. Raises
    ErrorReply."""
    value = node.lookup(key)
    if not isinstance(value, Stream):
        if reading.group is None:
            return node.not_yet
        raise ErrorReply(b"UNBLOCKED the stream key no longer exists")
    group: Group | None = None
    if reading.group is not None:
        group = value.groups.get(reading.group)
        if group is None:
            raise ErrorReply(b"NOGROUP the consumer group this client was blocked on no longer exists")
        after = group.last_id
    if value.last_id <= after:
        return node.not_yet
    if group is not None:
        node.altered(key, 1 + group.see(reading.consumer, node.now_ms, node.undo))
    entries = reading.deliver(node, key, value, group, after)
    return {key: entries} if node.resp == 3 else [[key, entries]]


def _reading(node: NodeState, argv: Sequence[bytes], of_group: bool) -> tuple[Reading, int | None]:
    """Read the options; the timeout is None without BLOCK."""
    timeout_ms: int | None = None
    count, at = 0, 1
    group: bytes | None = None
    consumer, keeps_none = b"", False
    while True:
        if at >= len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        word, left = option(argv[at]), len(argv) - 1 - at
        if word == b"BLOCK" and left:
            if node.runs_script:
                raise ErrorReply(b"ERR %b command is not allowed with BLOCK option from scripts" % c_text(argv[0]))
            at += 1
            timeout_ms = timeout_ms_of(argv[at], node.now_ms, in_seconds=False)
        elif word == b"COUNT" and left:
            at += 1
            count = max(integer(argv[at]), 0)
        elif word == b"STREAMS" and left:
            break
        elif word == b"GROUP" and left >= 2:
            if not of_group:
                raise ErrorReply(b"ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.")
            group, consumer = argv[at + 1], argv[at + 2]
            at += 2
        elif word == b"NOACK":
            if not of_group:
                raise ErrorReply(b"ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.")
            keeps_none = True
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    streams = argv[at + 1 :]
    if len(streams) % 2:
        raise ErrorReply(node.version.unbalanced(of_group))
    if of_group and group is None:
        raise ErrorReply(b"ERR Missing GROUP option for XREADGROUP")
    keys = streams[: len(streams) // 2]
    return Reading(keys, [], count, group, consumer, keeps_none), timeout_ms


def _resolve(node: NodeState, argv: Sequence[bytes], reading: Reading, of_group: bool) -> list[Group | None]:
    """Read the identifiers, and find the groups."""
    groups: list[Group | None] = []
    for key, argument in zip(reading.keys, argv[len(argv) - len(reading.keys) :], strict=True):
        value = node.lookup_as(key, Stream)
        group: Group | None = None
        if reading.group is not None:
            group = None if value is None else value.groups.get(reading.group)
            if group is None:
                raise ErrorReply(
                    b"NOGROUP No such key '%b' or consumer group '%b' in XREADGROUP with GROUP option"
                    % (c_text(key), c_text(reading.group))
                )
        groups.append(group)
        word = argument.split(b"\0")[0]
        if word == b"$":
            if of_group:
                raise ErrorReply(
                    b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this "
                    b"consumer by "
                    b"specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an "
                    b"empty result set."
                )
            reading.after.append(FIRST_ID if value is None else value.last_id)
        elif word == b">":
            if not of_group:
                raise ErrorReply(
                    b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
                    b"<consumer> option."
                )
            reading.after.append(LAST_ID)
        elif word == b"+" and not of_group and node.version.has_option("XREAD", b"+"):
            reading.after.append(FIRST_ID if value is None or not value.length else id_before(value.top()) or FIRST_ID)
        else:
            reading.after.append(parse_id(argument))
    return groups


@command("xread", -4, "readonly blocking movablekeys", _stream_keys)
def xread(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]."""
    return _read(node, argv, False)


@command("xreadgroup", -7, "write blocking movablekeys", _stream_keys)
def xreadgroup(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]."""
    return _read(node, argv, True)


# -- what a stream tells of itself -----------------------------------------------------------------------------


def existing(node: NodeState, key: bytes) -> Stream:
    """The stream at ``key``. Raises ErrorReply if there is none."""
    value: Stream | None = node.lookup_as(key, Stream)
    if value is None:
        raise ErrorReply(NO_SUCH_KEY)
    return value


def wrong_subcommand(argv: Sequence[bytes]) -> ErrorReply:
    """The error of a subcommand whose arguments do not fit."""
    return ErrorReply(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try %b HELP."
        % (c_text(argv[1][:128]), c_text(argv[0].upper()))
    )
