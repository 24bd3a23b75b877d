"""How a command is carried out: what a node checks before a client's (``processCommand`` of Redis 7.0.15, in its
order), and the one place where a command that has passed the checks of its caller runs.

The fast paths repeat a part of this, each for its reason: ``LuaEngine._perform`` carries out what a script of a calm
node calls without a call of ``ScriptRun.call`` between, several times a save; ``shard.execute_all`` checks once for a
pipeline what no script in it can change; ``Shard.execute`` calls the handler itself while nobody records effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis import conditions
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.memory import make_room
from orderlab.sim.redis.node_state import Effect, NodeState
from orderlab.sim.redis.registry import CallFlags, Command, find
from orderlab.sim.redis.replies import QUEUED, ErrorReply, Reply
from orderlab.sim.redis.unsupported import NOT_IN_TRANSACTIONS, check_lacking
from orderlab.sim.redis.versions import ServerVersion

NOT_QUEUED = frozenset((b"exec", b"discard", b"multi", b"watch", b"quit", b"reset"))
"""What MULTI does not queue."""
_ROOM_FREE = frozenset((b"exec", b"discard", b"quit", b"reset"))
"""What a transaction may still call when memory is out; all else would lengthen its queue."""
WHILE_SUBSCRIBED: Final = frozenset(
    (
        b"subscribe",
        b"unsubscribe",
        b"psubscribe",
        b"punsubscribe",
        b"ssubscribe",
        b"sunsubscribe",
        b"ping",
        b"quit",
        b"reset",
    )
)
"""What a subscriber may still call under RESP2."""
_REDIRECTIONS = (b"MOVED", b"ASK ", b"TRYAGAIN", b"CROSSSLOT", b"CLUSTERDOWN")
NOT_IN_TRANSACTION: Final = b"ERR Command not allowed inside a transaction"
_SHOWN_MAX: Final = 128


def admit(node: NodeState, argv: Sequence[bytes], client: Client) -> Command:
    """The command that ``argv`` calls, if the node would carry it out (or queue it) now.

    Raises ErrorReply, after it has marked the client's transaction as the server does; UnsupportedCommand.
    """
    command: Command | None = node.spellings.get(argv[0])
    if command is None or command.subcommands:
        command = find(argv, node.spellings)
    try:
        if command is None:
            if client.queue is not None and argv[0].lower() in NOT_IN_TRANSACTIONS:
                raise ErrorReply(NOT_IN_TRANSACTION)
            raise ErrorReply(unknown(node, argv))
        if command.arity != len(argv) and not 0 < -command.arity <= len(argv):
            raise ErrorReply(miscounted(node, command, argv))
        if client.queue is None and not client.subscriptions and client.guard is None and node.is_calm():
            node.is_out_of_memory = False
            return command
        # From here on in the order of ``processCommand``: of several reasons the client is told the first, and a
        # command whose keys another node has makes no room here. A calm node has none of these reasons, hence the short
        # way above.
        if client.queue is not None and "no_multi" in command.flags:
            raise ErrorReply(NOT_IN_TRANSACTION)
        if client.guard is not None:
            refused = client.guard.refusal(client, argv)
            if refused is not None:
                raise ErrorReply(refused.to_client(node.version))
        if node.slots is not None and not client.is_master:
            _check_slot(node, command, argv, client)
        flags = _flags_of_call(node, command, argv, client)
        _check_memory(node, command, flags, client)
        _check_conditions(node, command, flags, client)
    except ErrorReply as error:
        if command is not None and command.name == b"exec":
            leave_transaction(node, client)
            if not error.message.startswith(_REDIRECTIONS):
                why = error.message.removeprefix(b"ERR ")
                raise ErrorReply(b"EXECABORT Transaction discarded because of: " + why) from None
        elif client.queue is not None:
            client.is_aborted = True
        raise
    return command


def enqueue(client: Client, argv: Sequence[bytes]) -> Reply:
    """Put a command into the queue of the client's transaction."""
    assert client.queue is not None
    # The server stops remembering commands once EXEC is bound to fail, so that a doomed queue takes no memory.
    if not client.is_aborted and not client.is_dirty:
        client.queue.append(argv)
    return QUEUED


def found(node: NodeState, argv: Sequence[bytes]) -> Command:
    """The command of a line that was queued."""
    command = find(argv, node.spellings)
    assert command is not None, "only a known command is queued"
    return command


def leave_transaction(node: NodeState, client: Client) -> None:
    """Forget the queue, the watched keys and what had been noted against EXEC."""
    client.queue = None
    client.is_aborted = client.is_dirty = False
    node.watches.drop(client)
    node.observe_changes()


def unknown(node: NodeState, argv: Sequence[bytes]) -> bytes:
    """The text for a command, or subcommand, that the node's server does not have. C strings end at a NUL byte. Raises
    UnsupportedCommand for one that it has."""
    version = node.version
    check_lacking(argv, version)
    name = argv[0].split(b"\0")[0][:_SHOWN_MAX]
    if argv[0].lower() in node.spellings:
        text = _unknown_subcommand(version, argv)
    else:
        quoted = b"'%b' " if version.has((7, 0)) else b"`%b`, "
        shown = b""
        for argument in argv[1:]:
            if len(shown) >= _SHOWN_MAX:
                break
            shown += quoted % argument.split(b"\0")[0][: _SHOWN_MAX - len(shown)]
        text = b"ERR unknown command %b, with args beginning with: %b" % (quoted.rstrip(b", ") % name, shown)
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _unknown_subcommand(version: ServerVersion, argv: Sequence[bytes]) -> bytes:
    subcommand = argv[1].split(b"\0")[0][:_SHOWN_MAX]
    if version.has((7, 0)):
        return b"ERR unknown subcommand '%b'. Try %b HELP." % (subcommand, argv[0].upper())
    text = b"ERR Unknown subcommand or wrong number of arguments for '%b'. Try %b HELP."
    return text % (subcommand, argv[0].upper())


def miscounted(node: NodeState, command: Command, argv: Sequence[bytes]) -> bytes:
    """The text for a wrong number of arguments. Before Redis 7.0 a subcommand was no command of its own."""
    if b"|" in command.name and not node.version.has((7, 0)):
        return _unknown_subcommand(node.version, argv)
    return b"ERR wrong number of arguments for '%b' command" % command.name


def _flags_of_call(node: NodeState, command: Command, argv: Sequence[bytes], client: Client) -> CallFlags:
    if command.flags_of_call is not None:
        flags = command.flags_of_call(node, argv)
        if flags is not None:
            return flags
    if client.queue and command.name == b"exec":
        queued = [_flags_of_call(node, found(node, arguments), arguments, client) for arguments in client.queue]
        return CallFlags(any(one.is_write for one in queued), any(one.denies_oom for one in queued), True)
    return CallFlags(command.is_write, command.denies_oom, "stale" in command.flags)


def _check_slot(node: NodeState, command: Command, argv: Sequence[bytes], client: Client) -> None:
    assert node.slots is not None
    asking = client.asking or "asking" in command.flags
    if command.name == b"exec":
        keys = [key for arguments in client.queue or () for key in found(node, arguments).find_keys(arguments)]
    else:
        keys = list(command.find_keys(argv))
    refusal = node.slots.refusal(node, keys, asking)
    if refusal is not None:
        raise ErrorReply(refusal.to_client())


def _check_memory(node: NodeState, command: Command, flags: CallFlags, client: Client) -> None:
    if not node.config.maxmemory:
        node.is_out_of_memory = False
        return
    node.is_out_of_memory = not make_room(node)  # by evicting, also for a command that only reads: so does the server
    if not node.is_out_of_memory or client.is_master:
        return
    if flags.denies_oom or (client.queue is not None and command.name not in _ROOM_FREE):
        raise ErrorReply(conditions.OUT_OF_MEMORY)


def _check_conditions(node: NodeState, command: Command, flags: CallFlags, client: Client) -> None:
    if (flags.is_write or command.name == b"ping") and not client.is_master:
        disk_error = node.write_disk_error()
        if disk_error is not None:
            raise ErrorReply(disk_error.of_command())
    if flags.is_write:
        if node.lacks_replicas():
            raise ErrorReply(conditions.NO_REPLICAS)
        if node.is_read_only_replica() and not client.is_master:
            raise ErrorReply(conditions.READ_ONLY)
    if client.subscriptions and client.resp == 2 and command.name not in WHILE_SUBSCRIBED:
        raise ErrorReply(
            b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
            b"this context" % command.name
        )
    if not flags.runs_stale and node.is_stale():
        raise ErrorReply(conditions.MASTER_DOWN)
    if node.busy is not None and "allow_busy" not in command.flags:
        raise ErrorReply(node.busy.value)


def carry_out(node: NodeState, command: Command, argv: Sequence[bytes]) -> Reply:
    """Carry out ``command`` after the checks of its caller (client, EXEC or script). Raises ErrorReply."""
    effects = node.effects
    if effects is None:
        return command.handler(node, argv)
    # EVAL and EXEC carry commands out within themselves: what the inner ones changed counts for the outer one too.
    outer, node.changed = node.changed, []
    reached, node.reached = node.reached, []
    node.observe_changes()
    before, database = node.dirty, node.database
    notifier = node.notifier
    noted = None if notifier is None else notifier.begin(command, argv)
    reply: Reply = None
    try:
        reply = command.handler(node, argv)
    except ErrorReply as error:
        reply = error
        raise
    finally:
        keys = (*[name_in(database, key) for key in command.find_keys(argv)], *node.reached)
        node.reached = reached
        every, changed = node.changed, tuple(dict.fromkeys(node.changed))
        node.changed = outer
        if outer is not None:
            outer.extend(changed)
        else:
            node.observe_changes()
        line, changes = node.script_line, node.dirty - before
        told, node.rewritten = node.rewritten or tuple(argv), None
        if notifier is None or effects is not notifier.unkept:
            effects.append(Effect(told, keys, changed, command.is_write, changes, reply, line, database))
        if notifier is not None and noted is not None:
            notifier.end(command, argv, noted, every, reply)
    return reply
