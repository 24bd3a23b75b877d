"""COMMAND: what a client can learn about commands. INFO and DOCS tell more than the kernel knows, and are lacking."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import option
from orderlab.sim.redis.glob import glob
from orderlab.sim.redis.lacking import SERVER_COMMANDS, SERVER_SUBCOMMANDS, UnsupportedCommand, check_lacking
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command, find
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply


@command("command", -1, "loading stale")
def command_(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND."""
    raise UnsupportedCommand("COMMAND")


@command("command|count", 2, "loading stale")
def command_count(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND COUNT: of the server's commands, those that the kernel lacks included."""
    return len(SERVER_COMMANDS)


@command("command|list", -2, "loading stale")
def command_list(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND LIST [FILTERBY PATTERN pattern], sorted."""
    subcommands = {b"%b|%b" % (name, sub) for name, subs in SERVER_SUBCOMMANDS.items() for sub in subs}
    names = sorted(SERVER_COMMANDS | subcommands)
    if len(argv) == 2:
        return names
    if len(argv) != 5 or option(argv[2]) != b"FILTERBY" or option(argv[3]) not in (b"PATTERN", b"MODULE", b"ACLCAT"):
        raise ErrorReply(SYNTAX_ERROR)
    if option(argv[3]) == b"ACLCAT":
        raise UnsupportedCommand("COMMAND LIST FILTERBY ACLCAT")
    if option(argv[3]) == b"MODULE":
        return []
    return list(filter(glob(argv[4].lower()), names))


@command("command|getkeys", -4, "loading stale")
def command_getkeys(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND GETKEYS command [argument ...]."""
    called = argv[2:]
    found = find(called)
    if found is None:
        check_lacking(called)
        raise ErrorReply(b"ERR Invalid command specified")
    if not found.has_keys:
        raise ErrorReply(b"ERR The command has no key arguments")
    if not found.admits(len(called)):
        raise ErrorReply(b"ERR Invalid number of arguments specified for command")
    keys = list(found.find_keys(called))
    if not keys and "no_mandatory_keys" not in found.flags:
        raise ErrorReply(b"ERR Invalid arguments specified for command")
    return keys
