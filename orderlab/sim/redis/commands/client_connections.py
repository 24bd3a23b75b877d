"""Commands about the connections of a served node: AUTH, MONITOR, and CLIENT beyond what a connection knows of itself.

``node.server`` is what serves the node (``wire.served_node``); a node that nobody serves refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orderlab.sim.redis.arguments import integer, integer_between, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply, Verbatim, mapping
from orderlab.sim.redis.unsupported import UnsupportedCommand

_TYPES = (b"normal", b"slave", b"replica", b"pubsub", b"master")
_LONG_MAX = (1 << 63) - 1


def _server(node: NodeState, what: str) -> Any:
    if node.server is None:
        raise UnsupportedCommand(f"{what} where nobody serves the node to clients")
    return node.server


@command("auth", -2, "noscript loading stale fast no_auth allow_busy")
def auth(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """AUTH [user] password."""
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    server = _server(node, "AUTH")
    if len(argv) == 2 and server.permissions.default.takes_any_password:
        raise ErrorReply(
            b"ERR AUTH <password> called without any password configured for the default user. "
            b"Are you sure your configuration is correct?"
        )
    server.authenticate(node.caller, b"default" if len(argv) == 2 else argv[1], argv[-1], argv[0])
    return OK


@command("monitor", 1, "admin noscript loading stale")
def monitor(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MONITOR."""
    if node.in_transaction:
        raise ErrorReply(b"ERR MONITOR isn't allowed for DENY BLOCKING client")
    _server(node, "MONITOR").monitor(node.caller)
    return OK


@command("client|trackinginfo", 2, "noscript loading stale")
def client_trackinginfo(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT TRACKINGINFO: of a client that tracks nothing, as TRACKING is lacking."""
    flags: Reply = {b"off"} if node.resp == 3 else [b"off"]
    return mapping(node.resp, [b"flags", flags, b"redirect", -1, b"prefixes", []])


@command("client|getredir", 2, "noscript loading stale")
def client_getredir(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT GETREDIR: that of a client that tracks nothing."""
    return -1


@command("client|info", 2, "noscript loading stale")
def client_info(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT INFO; of a client that no socket leads to, what it knows of itself and an address for its number."""
    client = node.caller
    if node.server is None:
        facts = (client.id, 0x7FFF + client.id, client.name, client.database, client.resp)
        return Verbatim(b"id=%d addr=127.0.0.1:%d laddr=127.0.0.1:6379 name=%b db=%d resp=%d\n" % facts)
    return Verbatim(node.server.connection_of(client).describe())


@command("client|list", -2, "admin noscript loading stale")
def client_list(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT LIST [TYPE type | ID id ...]."""
    connections = _server(node, "CLIENT LIST").by_age()
    if len(argv) > 2:
        word = option(argv[2])
        if word == b"TYPE" and len(argv) == 4:
            kind = _type(argv[3])
            connections = [each for each in connections if each.kind == kind]
        elif word == b"ID" and len(argv) > 3:
            wanted = [integer(each, b"ERR Invalid client ID") for each in argv[3:]]
            by_id = {each.client.id: each for each in connections}
            connections = [by_id[each] for each in wanted if each in by_id]
        else:
            raise ErrorReply(SYNTAX_ERROR)
    return Verbatim(b"".join(each.describe() for each in connections))


def _type(word: bytes) -> bytes:
    name = word.lower()
    if name not in _TYPES:
        raise ErrorReply(b"ERR Unknown client type '%b'" % word)
    return b"slave" if name == b"replica" else name


@command("client|kill", -3, "admin noscript loading stale")
def client_kill(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT KILL address | filter value ...: ID, ADDR, LADDR, TYPE, USER, SKIPME."""
    server = _server(node, "CLIENT KILL")
    if len(argv) == 3:
        chosen = [each for each in server.by_age() if each.address == argv[2]]
        if not chosen:
            raise ErrorReply(b"ERR No such client")
        server.kill(chosen, node.caller)
        return OK
    if len(argv) % 2:
        raise ErrorReply(SYNTAX_ERROR)
    chosen, skips_me = server.by_age(), True
    for word, value in zip(argv[2::2], argv[3::2], strict=True):
        name = option(word)
        if name == b"SKIPME":
            if option(value) not in (b"YES", b"NO"):
                raise ErrorReply(SYNTAX_ERROR)
            skips_me = option(value) == b"YES"
            continue
        is_meant = _filter(server, name, value)
        chosen = [each for each in chosen if is_meant(each)]
    chosen = [each for each in chosen if not skips_me or each.client is not node.caller]
    server.kill(chosen, node.caller)
    return len(chosen)


def _filter(server: Any, name: bytes, value: bytes) -> Callable[[Any], bool]:
    if name == b"ID":
        identifier = integer_between(value, 1, _LONG_MAX, b"ERR client-id should be greater than 0")
        return lambda each: bool(each.client.id == identifier)
    if name == b"TYPE":
        kind = _type(value)
        return lambda each: bool(each.kind == kind)
    if name == b"USER":
        user = server.permissions.users.get(value)
        if user is None:
            raise ErrorReply(b"ERR No such user '%b'" % value)
        return lambda each: bool(each.client.user is user)
    if name == b"ADDR":
        return lambda each: bool(each.address == value)
    if name == b"LADDR":
        return lambda each: bool(each.local_address == value)
    raise ErrorReply(SYNTAX_ERROR)


@command("client|reply", 3, "noscript loading stale")
def client_reply(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT REPLY ON | OFF | SKIP."""
    word = option(argv[2])
    if word not in (b"ON", b"OFF", b"SKIP"):
        raise ErrorReply(SYNTAX_ERROR)
    _server(node, "CLIENT REPLY").connection_of(node.caller).want_replies(word)
    return OK


@command("client|pause", -3, "admin noscript loading stale")
def client_pause(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT PAUSE milliseconds [WRITE | ALL]."""
    if len(argv) > 4:
        raise ErrorReply(SYNTAX_ERROR)
    how = option(argv[3]) if len(argv) == 4 else b"ALL"
    if how not in (b"WRITE", b"ALL"):
        raise ErrorReply(b"ERR CLIENT PAUSE mode must be WRITE or ALL")
    out_of_range = b"ERR timeout is not an integer or out of range"
    timeout_ms = integer_between(argv[2], -(1 << 63), _LONG_MAX, out_of_range)
    if timeout_ms < 0:
        raise ErrorReply(b"ERR timeout is negative")
    _server(node, "CLIENT PAUSE").pause(timeout_ms, how == b"ALL")
    return OK


@command("client|unpause", 2, "admin noscript loading stale")
def client_unpause(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT UNPAUSE."""
    _server(node, "CLIENT UNPAUSE").unpause()
    return OK
