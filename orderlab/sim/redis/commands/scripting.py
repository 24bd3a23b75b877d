"""Scripting commands: EVAL and its kin, SCRIPT."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import SMALL_INTEGERS, integer, option
from orderlab.sim.redis.lua.host import NO_SCRIPT, host_of
from orderlab.sim.redis.lua.run import ScriptFlags
from orderlab.sim.redis.lua.shebang import parse_shebang
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import CallFlags, command, numbered_keys
from orderlab.sim.redis.replies import NOT_AN_INTEGER, OK, ErrorReply, Reply

TOO_MANY_KEYS = b"ERR Number of keys can't be greater than number of args"
NEGATIVE_KEYS = b"ERR Number of keys can't be negative"
NOT_BUSY = b"NOTBUSY No scripts in execution right now."


def count_keys(argv: Sequence[bytes], bad_count: bytes = NOT_AN_INTEGER) -> int:
    """The number of keys, which stands at ``argv[2]``. Raises ErrorReply."""
    count = integer(argv[2], bad_count)
    if count > len(argv) - 3:
        raise ErrorReply(TOO_MANY_KEYS)
    if count < 0:
        raise ErrorReply(NEGATIVE_KEYS)
    return count


def call_flags(flags: ScriptFlags) -> CallFlags:
    """What a script with these flags may do (``scriptFlagsToCmdFlags``)."""
    return CallFlags(
        is_write=not flags.no_writes,
        denies_oom=not (flags.allow_oom or flags.no_writes),
        runs_stale=flags.allow_stale,
    )


def _flags_of_eval(shard: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    try:
        flags = parse_shebang(argv[1]).flags
    except ErrorReply:
        return None
    return None if flags is None else call_flags(flags)


def _flags_of_evalsha(shard: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    script = None if shard.lua_host is None else shard.lua_host.scripts.get(argv[1].lower())
    return None if script is None or script.flags is None else call_flags(script.flags)


def _eval(shard: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    key_count = count_keys(argv)
    host = host_of(shard)
    return host.run(host.load(argv[1]), key_count, argv[3:], read_only)


def _evalsha(shard: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    host = host_of(shard)
    script = host.scripts.get(argv[1])
    key_count = SMALL_INTEGERS.get(argv[2], -1)
    if script is None or not 0 <= key_count <= len(argv) - 3:  # by their turns, as the server complains
        if len(argv[1]) != 40:
            raise ErrorReply(NO_SCRIPT)
        key_count = count_keys(argv)
        script = host.find(argv[1])
    return host.run(script, key_count, argv[3:], read_only)


EVAL_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys"


@command("eval", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_eval)
def eval_(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVAL script numkeys [key ...] [arg ...]."""
    return _eval(shard, argv, read_only=False)


@command("evalsha", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_evalsha)
def evalsha(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVALSHA sha1 numkeys [key ...] [arg ...]."""
    return _evalsha(shard, argv, read_only=False)


@command("eval_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_eval)
def eval_ro(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVAL_RO script numkeys [key ...] [arg ...]."""
    return _eval(shard, argv, read_only=True)


@command("evalsha_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_evalsha)
def evalsha_ro(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVALSHA_RO sha1 numkeys [key ...] [arg ...]."""
    return _evalsha(shard, argv, read_only=True)


@command("script|load", 3, "noscript stale")
def script_load(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT LOAD script."""
    return host_of(shard).load(argv[2]).sha


@command("script|exists", -3, "noscript")
def script_exists(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT EXISTS sha1 [sha1 ...]. As the server's dictionary of scripts does, it ignores case."""
    scripts = {} if shard.lua_host is None else shard.lua_host.scripts
    return [int(sha.lower() in scripts) for sha in argv[2:]]


@command("script|flush", -2, "noscript")
def script_flush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT FLUSH [ASYNC | SYNC]."""
    if len(argv) > 3 or (len(argv) == 3 and option(argv[2]) not in (b"SYNC", b"ASYNC")):
        raise ErrorReply(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    if shard.lua_host is not None:
        shard.lua_host.flush()
    return OK


@command("script|kill", 2, "noscript allow_busy")
def script_kill(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT KILL. No script runs while a command of another connection does: see ``Abort.KILL`` for a kill."""
    raise ErrorReply(NOT_BUSY)


@command("script|debug", 3, "noscript")
def script_debug(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT DEBUG YES | SYNC | NO. The kernel has no debugger: NO alone is accepted."""
    if option(argv[2]) == b"NO":
        return OK
    raise ErrorReply(b"ERR Use SCRIPT DEBUG YES/SYNC/NO")
