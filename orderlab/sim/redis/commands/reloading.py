"""What DEBUG tells of a key, and what it does to all of them: OBJECT and RELOAD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from orderlab.sim.redis import rdb
from orderlab.sim.redis.arguments import option
from orderlab.sim.redis.commands.keys import encoding_of, object_refcount
from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import OK, ErrorReply, Reply, Status
from orderlab.sim.redis.unsupported import UnsupportedCommand

_CLOCK_MAX: Final = 1 << 24
_ADDRESS: Final = 0x7F00_0000_0000


def describe_object(node: NodeState, key: bytes) -> Reply:
    """DEBUG OBJECT: the length is that of the plainest encoding (of a server's own, for a short string), the address
    none, and nothing is idle unless use is tracked. A list has no facts of its nodes."""
    value = node.peek(key)
    if value is None:
        raise ErrorReply(b"ERR no such key")
    body = rdb.encoded(value)
    if body is None:
        raise UnsupportedCommand("DEBUG OBJECT of a stream")
    idle_s = 0 if node.access is None else node.access.idle_ms(key) // 1000
    address = _ADDRESS + 16 * hash_slot(name_in(node.database, key))
    refcount = cast(int, object_refcount(node, (b"object", b"refcount", key)))
    encoding = cast(bytes, encoding_of(node, key)).decode()
    return Status(
        f"Value at:0x{address:x} refcount:{refcount} encoding:{encoding} serializedlength:{len(body) - 1} "
        f"lru:{(node.now_ms // 1000 - idle_s) % _CLOCK_MAX} lru_seconds_idle:{idle_s}".encode()
    )


def reload(node: NodeState, words: Sequence[bytes]) -> Reply:
    """DEBUG RELOAD: every value is written and read again (as DUMP and RESTORE do), so that it has the encoding that
    its size asks for; what has lapsed is dropped, WATCH is broken, deadlines, scripts and functions stay. Streams,
    which the kernel does not write, stay as they are."""
    for word in map(option, words):
        if word not in (b"MERGE", b"NOFLUSH", b"NOSAVE"):
            raise ErrorReply(b"ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
        raise UnsupportedCommand(f"DEBUG RELOAD {word.decode()}")
    selected = node.database
    for index in list(node.databases()):
        node.use(index)
        for key in list(node.data):
            if node.is_expired(key):
                node.expire(key)
                continue
            body = rdb.encoded(node.data[key])
            value = None if body is None else rdb.decoded(body, node.encoding_limits, lambda size: None)
            if value is not None:
                node.install(key, value)
            node.modified(key, 0)
    node.use(selected)
    return OK
