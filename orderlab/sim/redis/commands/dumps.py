"""DUMP and RESTORE of keys, and of function libraries."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis import rdb, rdb_streams
from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.lua.host import host_of
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.values import ExpiringHash, Stream, Value

_WRONG_SEAL = b"ERR DUMP payload version or checksum are wrong"
_BAD_FORMAT = b"ERR Bad data format"


def _opened(node: NodeState, payload: bytes) -> bytes:
    node.spend(2 * len(payload))
    body = rdb.opened(payload)
    if body is None:
        raise ErrorReply(_WRONG_SEAL)
    return body


@command("dump", 2, "readonly", (1, 1, 1))
def dump(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DUMP key: in the plainest encodings, which a server restores in its own."""
    value = node.lookup(argv[1])
    if value is None:
        return None
    node.spend(20 * len(value))
    body = _encoded(value)
    if isinstance(value, ExpiringHash) and value.deadlines_ms:
        raise UnsupportedCommand("DUMP of a hash whose fields have deadlines")
    node.grow(len(body))
    node.spend(2 * len(body))
    return rdb.sealed(body)


def _encoded(value: Value) -> bytes:
    if isinstance(value, Stream):
        try:
            return rdb_streams.encoded(value)
        except rdb_streams.ForgottenEntries:
            raise UnsupportedCommand("DUMP of a stream whose deleted entries a search has forgotten") from None
    body = rdb.encoded(value)
    assert body is not None, "of any other value"
    return body


def _decoded(node: NodeState, body: bytes) -> Value:
    node.spend(20 * len(body))
    try:
        if body[:1] and body[0] in (rdb_streams.BEFORE_7_0, rdb_streams.SINCE_7_0):
            return rdb_streams.decoded(body, node.grow)
        value = rdb.decoded(body, node.encoding_limits, node.grow)
    except rdb.BadFormat:
        raise ErrorReply(_BAD_FORMAT) from None
    if value is None:
        raise UnsupportedCommand("RESTORE of an encoding from before Redis 7.0")
    return value


def _is_replacing(argv: Sequence[bytes]) -> tuple[bool, bool]:
    """REPLACE and ABSTTL. How long a key was unused is read and forgotten."""
    replaces = is_absolute = False
    chosen = b""
    at = 4
    while at < len(argv):
        word, left = option(argv[at]), len(argv) - 1 - at
        if word == b"REPLACE":
            replaces = True
        elif word == b"ABSTTL":
            is_absolute = True
        elif word in (b"IDLETIME", b"FREQ") and left >= 1 and chosen in (b"", word):
            at += 1
            value = integer(argv[at])
            if value < 0 and word == b"IDLETIME":
                raise ErrorReply(b"ERR Invalid IDLETIME value, must be >= 0")
            if not 0 <= value <= 255 and word == b"FREQ":
                raise ErrorReply(b"ERR Invalid FREQ value, must be >= 0 and <= 255")
            chosen = word
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    return replaces, is_absolute


def _restore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]."""
    key = argv[1]
    replaces, is_absolute = _is_replacing(argv)
    if not replaces and node.lookup(key) is not None:
        raise ErrorReply(b"BUSYKEY Target key name already exists.")
    ttl_ms = integer(argv[2])
    if ttl_ms < 0:
        raise ErrorReply(b"ERR Invalid TTL value, must be >= 0")
    body = _opened(node, argv[3])
    value = _decoded(node, body)
    node.grow(len(body))
    was_there = replaces and node.remove(key)
    deadline_ms = ttl_ms if is_absolute else node.now_ms + ttl_ms
    if ttl_ms and deadline_ms <= node.now_ms:
        if was_there:
            node.modified(key)
        return OK
    node.install(key, value)
    if ttl_ms:
        node.set_deadline(key, deadline_ms)
    node.modified(key)
    return OK


command("restore", -4, "write denyoom", (1, 1, 1))(_restore)
command("restore-asking", -4, "write denyoom asking", (1, 1, 1))(_restore)


@command("function|dump", 2, "noscript")
def function_dump(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION DUMP."""
    libraries = host_of(node).functions.libraries.values()
    return rdb.sealed(b"".join(rdb.function_body(library.code) for library in libraries))


@command("function|restore", -3, "write denyoom noscript")
def function_restore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION RESTORE serialized-value [FLUSH | APPEND | REPLACE]: all libraries or none."""
    policy = option(argv[3]) if len(argv) == 4 else b"APPEND"
    if len(argv) > 4:
        raise ErrorReply(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try FUNCTION HELP."
            % argv[1].split(b"\0")[0][:128]
        )
    if policy not in (b"FLUSH", b"APPEND", b"REPLACE"):
        raise ErrorReply(b"ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    reader, codes = rdb.PayloadReader(_opened(node, argv[2]), node.grow), []
    try:
        while not reader.is_over():
            if reader.byte() != rdb.FUNCTION:
                raise ErrorReply(b"ERR given type is not a function")
            codes.append(reader.string())
    except rdb.BadFormat:
        raise ErrorReply(b"ERR Failed loading library data") from None
    functions = host_of(node).functions
    before = dict(functions.libraries)
    if policy == b"FLUSH":
        functions.flush()
    try:
        for code in codes:
            functions.load(code, policy == b"REPLACE")
    except ErrorReply as error:
        functions.flush()
        for library in before.values():
            functions.load(library.code, True)
        if error.message.endswith(b"already exists"):
            raise ErrorReply(error.message.replace(b"'", b"")) from None  # worded apart where libraries are joined
        raise
    node.dirty += 1
    return OK
