"""Commands about the connection itself: protocol and name, MULTI, EXEC and WATCH."""

from __future__ import annotations

import time
from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer, integer_between, option
from orderlab.sim.redis.blocking import UNBLOCKED
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.execution import carry_out, found, leave_transaction
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply, Status, mapping
from orderlab.sim.redis.unsupported import UnsupportedCommand

_PONG = Status(b"PONG")
_BAD_NAME = b"ERR Client names cannot contain spaces, newlines or special characters."


@command("ping", -1, "fast")
def ping(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PING [message]."""
    if len(argv) > 2:
        raise ErrorReply(b"ERR wrong number of arguments for 'ping' command")
    if node.caller.subscriptions and node.resp == 2:
        return [b"pong", argv[1] if len(argv) == 2 else b""]
    return _PONG if len(argv) == 1 else argv[1]


@command("echo", 2, "loading stale fast")
def echo(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ECHO message."""
    return argv[1]


@command("quit", -1, "noscript loading stale fast no_auth allow_busy")
def quit_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """QUIT: the connection forgets all it knew, as a new one would."""
    _forget(node, node.caller)
    return OK


@command("reset", 1, "noscript loading stale fast no_auth allow_busy")
def reset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RESET."""
    _forget(node, node.caller)
    if node.server is not None:
        node.server.reset(node.caller)
    return Status(b"RESET")


def _forget(node: NodeState, client: Client) -> None:
    leave_transaction(node, client)
    node.subscribers.drop(client)
    client.resp, client.name, client.asking, client.reads_replicas = 2, b"", False, False
    client.is_untouching = False
    client.is_kept = client.is_kept and not node.version.has((7, 2))
    client.database = 0
    node.use(0)
    node.resp = 2


@command("hello", -1, "noscript loading stale fast no_auth allow_busy")
def hello(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HELLO [protover [AUTH user password] [SETNAME name]]."""
    client, server = node.caller, node.server
    version, name, credentials = client.resp, None, None
    if len(argv) > 1:
        bad_version = b"ERR Protocol version is not an integer or out of range"
        version = integer_between(argv[1], -(1 << 63), (1 << 63) - 1, bad_version)
        if version not in (2, 3):
            raise ErrorReply(b"NOPROTO unsupported protocol version")
    at = 2
    while at < len(argv):
        word, left = option(argv[at]), len(argv) - 1 - at
        if word == b"AUTH" and left >= 2:
            credentials = (argv[at + 1], argv[at + 2])
            at += 3
            continue
        if word != b"SETNAME" or left < 1:
            raise ErrorReply(b"ERR Syntax error in HELLO option '%b'" % argv[at].split(b"\0")[0])
        name = _client_name(argv[at + 1])
        at += 2
    if credentials is not None:
        if server is None:
            raise UnsupportedCommand("HELLO with AUTH")
        server.authenticate(client, *credentials, argv[0])
    if server is not None:
        server.insist_on_identity(client)
    if name is not None:
        client.name = name
    client.resp = node.resp = version
    facts: list[Reply] = [
        *(b"server", node.version.product.encode(), b"version", node.version.number, b"proto", version),
        *(b"id", client.id),
        *(b"mode", b"cluster" if node.slots is not None else b"standalone"),
        *(b"role", b"replica" if node.is_replica else b"master", b"modules", []),
    ]
    return mapping(node.resp, facts)


def _client_name(name: bytes) -> bytes:
    if not _is_plain(name):
        raise ErrorReply(_BAD_NAME)
    return name


def _is_plain(text: bytes) -> bool:
    return all(33 <= byte <= 126 for byte in text)


@command("client|id", 2, "noscript loading stale")
def client_id(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT ID."""
    return node.caller.id


@command("client|getname", 2, "noscript loading stale")
def client_getname(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT GETNAME."""
    return node.caller.name or None


@command("client|setname", 3, "noscript loading stale")
def client_setname(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT SETNAME name; the empty name takes it away."""
    node.caller.name = _client_name(argv[2])
    return OK


@command("client|setinfo", 4, "noscript loading stale")
def client_setinfo(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT SETINFO LIB-NAME name | LIB-VER version."""
    what = argv[2].lower()
    if what not in node.caller.library:
        raise ErrorReply(b"ERR Unrecognized option '%b'" % argv[2].split(b"\0")[0])
    if not _is_plain(argv[3]):
        raise ErrorReply(b"ERR %b cannot contain spaces, newlines or special characters." % argv[2].split(b"\0")[0])
    node.caller.library[what] = argv[3]
    return OK


def _is_on(word: bytes) -> bool:
    """Whether a switch is put on. Raises ErrorReply for a word that is neither ON nor OFF."""
    if option(word) not in (b"ON", b"OFF"):
        raise ErrorReply(SYNTAX_ERROR)
    return option(word) == b"ON"


@command("client|no-touch", 3, "noscript loading stale")
def client_no_touch(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT NO-TOUCH ON | OFF."""
    node.caller.is_untouching = _is_on(argv[2])
    return OK


@command("client|unblock", -3, "admin noscript loading stale")
def client_unblock(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT UNBLOCK client-id [TIMEOUT | ERROR]: whether that client was waiting."""
    if len(argv) > 4:
        raise ErrorReply(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try CLIENT HELP."
            % argv[1].split(b"\0")[0][:128]
        )
    how = option(argv[3]) if len(argv) == 4 else b"TIMEOUT"
    if how not in (b"TIMEOUT", b"ERROR"):
        raise ErrorReply(b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    identifier = integer(argv[2])
    waiting = next((one for one in node.waits.all() if one.client.id == identifier), None)
    if waiting is None:
        return 0
    node.waits.end(waiting, UNBLOCKED if how == b"ERROR" else None)
    return 1


@command("client|no-evict", 3, "admin noscript loading stale")
def client_no_evict(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CLIENT NO-EVICT ON | OFF."""
    node.caller.is_kept = _is_on(argv[2])
    return OK


@command("wait", 3, "noscript")
def wait(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """WAIT numreplicas timeout: replies at once with the replicas in touch."""
    if node.is_replica:
        raise ErrorReply(
            b"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is "
            b"configured to be writable (which is not the default) writes to replicas are just local and are not "
            b"propagated."
        )
    out_of_range = b"ERR value is not an integer or out of range"
    integer_between(argv[1], -(1 << 63), (1 << 63) - 1, out_of_range)
    timeout_ms = integer_between(argv[2], -(1 << 63), (1 << 63) - 1, b"ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise ErrorReply(b"ERR timeout is negative")
    return node.good_replicas


@command("multi", 1, "noscript loading stale fast allow_busy")
def multi(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MULTI."""
    if node.caller.queue is not None:
        raise ErrorReply(b"ERR MULTI calls can not be nested")
    node.caller.queue = []
    return OK


@command("discard", 1, "noscript loading stale fast allow_busy")
def discard(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DISCARD: forgets the watched keys too."""
    if node.caller.queue is None:
        raise ErrorReply(b"ERR DISCARD without MULTI")
    leave_transaction(node, node.caller)
    return OK


@command("exec", 1, "noscript loading stale skip_slowlog")
def exec_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EXEC: an error of one command is an element of the reply, and the others run."""
    client = node.caller
    if client.queue is None:
        raise ErrorReply(b"ERR EXEC without MULTI")
    queue, is_aborted, is_broken = client.queue, client.is_aborted, node.watches.is_broken(client)
    leave_transaction(node, client)
    if is_aborted:
        raise ErrorReply(b"EXECABORT Transaction discarded because of previous errors.")
    if is_broken:
        return None
    replies: list[Reply] = []
    if node.server is not None:
        node.server.queued_ns.clear()
    node.in_transaction = True
    try:
        for arguments in queue:
            node.resp = client.resp
            refused = None if client.guard is None else client.guard.refusal(client, arguments, b"multi")
            if refused is not None:
                replies.append(ErrorReply(refused.to_exec()))
                node.server.queued_ns.append(0)
                continue
            begun_ns, begun_ms = time.perf_counter_ns(), node.now_ms
            try:
                replies.append(carry_out(node, found(node, arguments), arguments))
            except ErrorReply as error:
                replies.append(error)
            if node.server is not None:
                is_virtual = node.server.settings.virtual_clock
                took_ns = 0 if is_virtual else time.perf_counter_ns() - begun_ns
                node.server.queued_ns.append(took_ns + (node.now_ms - begun_ms) * 1_000_000)
    finally:
        node.in_transaction = False
    return replies


@command("watch", -2, "noscript loading stale fast allow_busy", (1, -1, 1))
def watch(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """WATCH key [key ...]."""
    client = node.caller
    if client.queue is not None:
        raise ErrorReply(b"ERR WATCH inside MULTI is not allowed")
    if not client.is_dirty:  # EXEC is bound to fail already
        for key in argv[1:]:
            node.watches.add(client, key)
        node.observe_changes()
    return OK


@command("unwatch", 1, "noscript loading stale fast allow_busy")
def unwatch(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """UNWATCH."""
    node.watches.drop(node.caller)
    node.caller.is_dirty = False
    node.observe_changes()
    return OK
