"""Commands on keys, whatever they hold, on databases, and on how a value is kept (OBJECT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orderlab.sim.redis.arguments import integer_between, option
from orderlab.sim.redis.commands.sets import GROWTH_PER_MEMBER
from orderlab.sim.redis.database import KeyUse
from orderlab.sim.redis.keyspace import TYPE_NAMES
from orderlab.sim.redis.memory import track_use
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.random_draws import draw
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply, Status
from orderlab.sim.redis.scanning import glob, page_of, parse_cursor, parse_options
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.values import List, Set
from orderlab.sim.redis.values.hash_order import in_hash_order

NO_SUCH_KEY = b"ERR no such key"
SAME_OBJECT = b"ERR source and destination objects are the same"
OUT_OF_RANGE = b"ERR DB index is out of range"
_TYPE_STATUS = {kind: Status(name.encode()) for kind, name in TYPE_NAMES.items()}
_NONE = Status(b"none")


@command("del", -2, "write", (1, -1, 1))
def del_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DEL key [key ...]."""
    removed = 0
    for key in argv[1:]:
        if node.is_expired(key) and not node.is_replica:
            node.expire(key)  # it does not count; on a replica, which only hides it, it does
        if node.remove(key):
            node.modified(key)
            removed += 1
    return removed


@command("unlink", -2, "write fast", (1, -1, 1))
def unlink(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """UNLINK key [key ...]."""
    return del_(node, argv)


@command("exists", -2, "readonly fast", (1, -1, 1))
def exists(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXISTS key [key ...]: a key given twice counts twice."""
    return sum(node.peek(key) is not None for key in argv[1:])


@command("touch", -2, "readonly fast", (1, -1, 1))
def touch(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """TOUCH key [key ...]: a use, CLIENT NO-TOUCH or not; called by a script, from Redis 8.0 and Valkey 8 on."""
    caller, version = node.caller, node.version
    was_untouching = caller.is_untouching
    caller.is_untouching = was_untouching and node.runs_script and not (version.has((8, 0)) or version.is_valkey)
    count = sum(node.lookup(key) is not None for key in argv[1:])
    caller.is_untouching = was_untouching
    return count


@command("type", 2, "readonly fast", (1, 1, 1))
def type_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """TYPE key."""
    return _TYPE_STATUS.get(type(node.peek(argv[1])), _NONE)


@command("dbsize", 1, "readonly fast")
def dbsize(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DBSIZE: keys past their deadline count until they are removed."""
    return len(node.data)


@command("keys", 2, "readonly")
def keys(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """KEYS pattern, in hash order."""
    found = node.live_keys()
    if argv[1] != b"*":
        found = list(filter(glob(argv[1]), found))
    return in_hash_order(found)


@command("scan", -2, "readonly")
def scan(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]. A key that stays from start to end is always returned."""
    cursor = parse_cursor(argv[1], node.version.has((7, 2)))
    options = parse_options(argv, 2, with_type=True)
    following, found = page_of(in_hash_order(node.data), False, cursor, options)
    values = [node.peek(key) for key in found]  # removes what has expired, of whatever type
    if options.type_name is None:
        return [following, [key for key, value in zip(found, values, strict=True) if value is not None]]
    name = options.type_name.lower().split(b"\0")[0].decode("latin1")
    if node.version.is_valkey and name not in TYPE_NAMES.values():
        raise ErrorReply(b"ERR unknown type name '%b'" % options.type_name.split(b"\0")[0])
    if name == "none":  # so is the type of a key that has just expired: the server returns it
        return [following, [key for key in found if key not in node.data]]
    return [following, [key for key, value in zip(found, values, strict=True) if TYPE_NAMES.get(type(value)) == name]]


@command("randomkey", 1, "readonly")
def randomkey(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RANDOMKEY: a live key, all equally likely. Keys past their deadline that are drawn first are removed."""
    order = in_hash_order(node.data if node.removes_expired else node.live_keys())
    while order:
        key = order.pop(draw(node, len(order)))
        if node.peek(key) is not None:
            return key
    return None


def _rename(node: NodeState, source: bytes, target: bytes, replaces: bool) -> bool:
    value = node.lookup(source)
    if value is None:
        raise ErrorReply(NO_SUCH_KEY)
    if source == target:
        return replaces
    deadline_ms, encoding = node.deadlines_ms.get(source), node.string_encodings.get(source)
    if node.lookup(target) is not None:
        if not replaces:
            return False
        node.remove(target)
    node.remove(source)
    _put(node, target, value, deadline_ms, encoding)
    node.modified(source, 0)
    node.modified(target)
    return True


def _put(node: NodeState, key: bytes, value: object, deadline_ms: int | None, encoding: bytes | None) -> None:
    """Put a value, with all that belongs to it, where no key is."""
    node.install(key, value)  # type: ignore[arg-type]
    if deadline_ms is not None:
        node.set_deadline(key, deadline_ms)
    if encoding is not None:
        node.set_string_encoding(key, encoding)


@command("rename", 3, "write", (1, 2, 1))
def rename(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RENAME key newkey."""
    _rename(node, argv[1], argv[2], replaces=True)
    return OK


@command("renamenx", 3, "write fast", (1, 2, 1))
def renamenx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RENAMENX key newkey."""
    return int(_rename(node, argv[1], argv[2], replaces=False))


@command("copy", -3, "write denyoom", (1, 2, 1))
def copy(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COPY source destination [DB index] [REPLACE]."""
    source, target = argv[1], argv[2]
    here = database = node.database
    replaces, at = False, 3
    while at < len(argv):
        word = option(argv[at])
        if word == b"REPLACE":
            replaces = True
        elif word == b"DB" and at + 1 < len(argv):
            at += 1
            database = _database(node, argv[at])
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    if node.slots is not None and database:
        raise ErrorReply(b"ERR Copying to another database is not allowed in cluster mode")
    if source == target and database == here:
        raise ErrorReply(SAME_OBJECT)
    value = node.lookup(source)
    if value is None:
        return 0
    deadline_ms, encoding = node.deadlines_ms.get(source), node.string_encodings.get(source)
    if database != here:
        node.reach(database, target)
    try:
        if node.lookup(target) is not None:
            if not replaces:
                return 0
            node.remove(target)
        duplicate = value if isinstance(value, bytes) else value.copy()
        if not isinstance(value, bytes):
            node.grow(GROWTH_PER_MEMBER * len(value))
        _put(node, target, duplicate, deadline_ms, encoding)
        node.modified(target)
    finally:
        node.use(here)
    return 1


@command("move", 3, "write fast", (1, 1, 1))
def move(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MOVE key index: with its deadline, unless the key is there."""
    if node.slots is not None:
        raise ErrorReply(b"ERR MOVE is not allowed in cluster mode")
    key, here, there = argv[1], node.database, _database(node, argv[2])
    if here == there:
        raise ErrorReply(SAME_OBJECT)
    value = node.lookup(key)
    if value is None:
        return 0
    deadline_ms, encoding = node.deadlines_ms.get(key), node.string_encodings.get(key)
    node.reach(there, key)
    is_free = node.lookup(key) is None
    if is_free:
        _put(node, key, value, deadline_ms, encoding)
        node.modified(key)
    node.use(here)
    if is_free:
        node.remove(key)
        node.modified(key, 0)
    return int(is_free)


def _database(node: NodeState, argument: bytes) -> int:
    """The index of a database that the node has."""
    index = integer_between(argument, -(1 << 31), (1 << 31) - 1)
    if not 0 <= index < node.config.databases:
        raise ErrorReply(OUT_OF_RANGE)
    return index


@command("select", 2, "loading stale fast")
def select(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SELECT index: for the connection, or, called by a script, for what is left of the script."""
    if node.slots is not None and integer_between(argv[1], -(1 << 31), (1 << 31) - 1) != 0:
        raise ErrorReply(b"ERR SELECT is not allowed in cluster mode")
    index = _database(node, argv[1])
    node.use(index)
    if not node.runs_script:
        node.caller.database = index
    return OK


@command("swapdb", 3, "write fast")
def swapdb(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SWAPDB index index: the keys of two databases change places, connections stay where they are."""
    if node.slots is not None:
        raise ErrorReply(b"ERR SWAPDB is not allowed in cluster mode")
    low, high = -(1 << 31), (1 << 31) - 1
    first = integer_between(argv[1], low, high, b"ERR invalid first DB index")
    second = integer_between(argv[2], low, high, b"ERR invalid second DB index")
    if not all(0 <= index < node.config.databases for index in (first, second)):
        raise ErrorReply(OUT_OF_RANGE)
    node.swap_databases(first, second)
    return OK


def _check_flush_options(argv: Sequence[bytes]) -> None:
    if len(argv) > 2 or (len(argv) == 2 and option(argv[1]) not in (b"SYNC", b"ASYNC")):
        raise ErrorReply(SYNTAX_ERROR)


def _flush(node: NodeState) -> bool:
    """Empty the selected database; whether it held anything."""
    emptied = node.data
    node.clear()
    for key in emptied:
        node.modified(key)
    return bool(emptied)


@command("flushall", -1, "write")
def flushall(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FLUSHALL [ASYNC | SYNC]."""
    _check_flush_options(argv)
    here = node.database
    held_any = False
    for index in node.databases():
        node.use(index)
        held_any = _flush(node) or held_any
    node.use(here)
    if not held_any:
        node.dirty += 1
    return OK


@command("flushdb", -1, "write")
def flushdb(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FLUSHDB [ASYNC | SYNC]."""
    _check_flush_options(argv)
    if not _flush(node):
        node.dirty += 1
    return OK


_EMBEDDED_MAX: Final = 44
_SHARED_INTEGERS: Final = 10_000
_SHARED_REFCOUNT: Final = (1 << 31) - 1
_SWITCHING = (
    b"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
_SET_LISTPACK_ENTRIES: Final = 128
_SET_LISTPACK_VALUE: Final = 64
_LIST_LISTPACK_BYTES: Final = 8192
"""Limits of Redis 7.2 (set-max-listpack-entries, set-max-listpack-value, list-max-listpack-size)."""
_LISTPACK_OVERHEAD: Final = 2
_NOT_LFU = b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. " + _SWITCHING
_LFU = b"ERR An LFU maxmemory policy is selected, idle time not tracked. " + _SWITCHING


def _encoding_in(node: NodeState, value: Any) -> bytes:
    """The encoding of a collection by the name that the server has for it. From Redis 7.2 on small sets and short lists
    are listpacks; whether one was larger before is not known here."""
    name: bytes = value.encoding
    if not node.version.has((7, 0)):
        return b"ziplist" if name == b"listpack" else name
    if node.version.has((7, 2)):
        if isinstance(value, Set) and name == b"hashtable" and len(value) <= _SET_LISTPACK_ENTRIES:
            return b"listpack" if max(map(len, value.members)) <= _SET_LISTPACK_VALUE else name
        if isinstance(value, List) and sum(len(item) + _LISTPACK_OVERHEAD for item in value) <= _LIST_LISTPACK_BYTES:
            return b"listpack"
    return name


def encoding_of(node: NodeState, key: bytes) -> bytes | None:
    """The encoding of the value at ``key`` as OBJECT ENCODING names it; None if there is no key."""
    value = node.peek(key)
    if value is None:
        return None
    if not isinstance(value, bytes):
        return _encoding_in(node, value)
    special = node.string_encodings.get(key)
    if special is not None:
        return special
    if len(value) <= 20 and parse_integer(value) is not None:
        return b"int"
    return b"embstr" if len(value) <= _EMBEDDED_MAX else b"raw"


@command("object|encoding", 3, "readonly", (2, 2, 1))
def object_encoding(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT ENCODING key."""
    return encoding_of(node, argv[2])


@command("object|refcount", 3, "readonly", (2, 2, 1))
def object_refcount(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT REFCOUNT key: 1, but for the small integers that all keys share unless use is tracked."""
    key = argv[2]
    value = node.peek(key)
    if value is None:
        return None
    config = node.config
    tracks_use = config.maxmemory != 0 and config.maxmemory_policy.endswith(("lru", "lfu"))
    if isinstance(value, bytes) and encoding_of(node, key) == b"int" and not tracks_use:
        return _SHARED_REFCOUNT if 0 <= int(value) < _SHARED_INTEGERS else 1
    return 1


@command("object|freq", 3, "readonly", (2, 2, 1))
def object_freq(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT FREQ key."""
    if node.peek(argv[2]) is None:
        return None
    if not node.config.maxmemory_policy.endswith("lfu"):
        raise ErrorReply(_NOT_LFU)
    return _use(node, "FREQ").frequency(argv[2])


@command("object|idletime", 3, "readonly", (2, 2, 1))
def object_idletime(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """OBJECT IDLETIME key, in seconds."""
    if node.peek(argv[2]) is None:
        return None
    if node.config.maxmemory_policy.endswith("lfu"):
        raise ErrorReply(_LFU)
    return _use(node, "IDLETIME").idle_ms(argv[2]) // 1000


def _use(node: NodeState, what: str) -> KeyUse:
    if node.access is None:
        raise UnsupportedCommand(
            f"OBJECT {what} without a maxmemory limit or clients (the kernel tracks use only under one, or served)"
        )
    track_use(node)  # by another policy, counting begins anew
    return node.access
