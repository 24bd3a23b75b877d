"""Scripts and function libraries: EVAL, SCRIPT, FCALL, FUNCTION and their kin."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import SMALL_INTEGERS, integer, option
from orderlab.sim.redis.lua.host import NO_SCRIPT, Function, Library, host_of, parse_shebang
from orderlab.sim.redis.lua.script_run import ScriptFlags
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import CallFlags, command, numbered_keys
from orderlab.sim.redis.replies import NOT_AN_INTEGER, OK, ErrorReply, Reply, Status, mapping
from orderlab.sim.redis.scanning import glob

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


def _flags_of_eval(node: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    try:
        flags = parse_shebang(argv[1], node.version).flags
    except ErrorReply:
        return None
    return None if flags is None else call_flags(flags)


def _flags_of_evalsha(node: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    script = None if node.lua_host is None else node.lua_host.scripts.get(argv[1].lower())
    return None if script is None or script.flags is None else call_flags(script.flags)


def _eval(node: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    key_count = count_keys(argv)
    host = host_of(node)
    return host.run(host.load(argv[1]), key_count, argv[3:], read_only)


def _evalsha(node: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    host = host_of(node)
    script = host.scripts.get(argv[1])
    key_count = SMALL_INTEGERS.get(argv[2], -1)
    if script is None or not 0 <= key_count <= len(argv) - 3:  # by their turns, as the server complains
        if len(argv[1]) != 40:
            raise ErrorReply(node.version.text(NO_SCRIPT))
        key_count = count_keys(argv)
        script = host.find(argv[1])
    return host.run(script, key_count, argv[3:], read_only)


EVAL_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys"


@command("eval", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_eval)
def eval_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVAL script numkeys [key ...] [arg ...]."""
    return _eval(node, argv, read_only=False)


@command("evalsha", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_evalsha)
def evalsha(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVALSHA sha1 numkeys [key ...] [arg ...]."""
    return _evalsha(node, argv, read_only=False)


@command("eval_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_eval)
def eval_ro(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVAL_RO script numkeys [key ...] [arg ...]."""
    return _eval(node, argv, read_only=True)


@command("evalsha_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_evalsha)
def evalsha_ro(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """EVALSHA_RO sha1 numkeys [key ...] [arg ...]."""
    return _evalsha(node, argv, read_only=True)


@command("script|load", 3, "noscript stale")
def script_load(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT LOAD script."""
    return host_of(node).load(argv[2]).sha


@command("script|exists", -3, "noscript")
def script_exists(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT EXISTS sha1 [sha1 ...]. As the server's dictionary of scripts does, it ignores case."""
    scripts = {} if node.lua_host is None else node.lua_host.scripts
    return [int(sha.lower() in scripts) for sha in argv[2:]]


@command("script|flush", -2, "noscript")
def script_flush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT FLUSH [ASYNC | SYNC]."""
    if len(argv) > 3 or (len(argv) == 3 and option(argv[2]) not in (b"SYNC", b"ASYNC")):
        raise ErrorReply(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    if node.lua_host is not None:
        node.lua_host.flush()
    return OK


@command("script|kill", 2, "noscript allow_busy")
def script_kill(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT KILL. No script runs while a command of another connection does: see ``Abort.KILL`` for a kill."""
    raise ErrorReply(NOT_BUSY)


@command("script|debug", 3, "noscript")
def script_debug(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCRIPT DEBUG YES | SYNC | NO. The kernel has no debugger: NO alone is accepted."""
    if option(argv[2]) == b"NO":
        return OK
    raise ErrorReply(b"ERR Use SCRIPT DEBUG YES/SYNC/NO")


def _find(node: NodeState, name: bytes) -> Function | None:
    return None if node.lua_host is None else host_of(node).functions.functions.get(name.lower())


def _flags_of_fcall(node: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    function = _find(node, argv[1])
    return None if function is None else call_flags(function.flags)


def _fcall(node: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    function = _find(node, argv[1])
    if function is None:
        raise ErrorReply(b"ERR Function not found")
    key_count = count_keys(argv, b"ERR Bad number of keys provided")
    return host_of(node).functions.call(function, key_count, argv[3:], read_only)


@command("fcall", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_fcall)
def fcall(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FCALL function numkeys [key ...] [arg ...]."""
    return _fcall(node, argv, read_only=False)


@command("fcall_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_fcall)
def fcall_ro(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FCALL_RO function numkeys [key ...] [arg ...]."""
    return _fcall(node, argv, read_only=True)


@command("function|load", -3, "write denyoom noscript")
def function_load(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION LOAD [REPLACE] code."""
    replace = False
    for word in argv[2:-1]:
        if option(word) != b"REPLACE":
            raise ErrorReply(b"ERR Unknown option given: " + word.split(b"\0")[0])
        replace = True
    name = host_of(node).functions.load(argv[-1], replace)
    node.dirty += 1
    return name


@command("function|delete", 3, "write noscript")
def function_delete(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION DELETE library."""
    if not host_of(node).functions.delete(argv[2]):
        raise ErrorReply(b"ERR Library not found")
    node.dirty += 1
    return OK


@command("function|flush", -2, "write noscript")
def function_flush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION FLUSH [ASYNC | SYNC]."""
    if len(argv) > 3:
        raise ErrorReply(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try FUNCTION HELP." % argv[1][:128]
        )
    if len(argv) == 3 and option(argv[2]) not in (b"SYNC", b"ASYNC"):
        raise ErrorReply(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    host_of(node).functions.flush()
    node.dirty += 1
    return OK


@command("function|list", -2, "noscript")
def function_list(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]. In the order of loading; the server's order is that of a hash."""
    pattern: bytes | None = None
    with_code = False
    at = 2
    while at < len(argv):
        word = option(argv[at])
        at += 1
        if word == b"WITHCODE" and not with_code:
            with_code = True
        elif word == b"LIBRARYNAME" and pattern is None:
            if at == len(argv):
                raise ErrorReply(b"ERR library name argument was not given")
            pattern = argv[at]
            at += 1
        else:
            raise ErrorReply(b"ERR Unknown argument " + argv[at - 1].split(b"\0")[0])
    libraries = host_of(node).functions.libraries.values()
    matches = glob(b"*" if pattern is None else pattern.lower())
    chosen = [one for one in libraries if matches(one.name.lower())]
    return [_describe(node, library, with_code) for library in chosen]


def _describe(node: NodeState, library: Library, with_code: bool) -> Reply:
    functions = [
        mapping(node.resp, [b"name", one.name, b"description", one.description, b"flags", _flag_set(node, one)])
        for one in library.functions
    ]
    flat = [b"library_name", library.name, b"engine", b"LUA", b"functions", functions]
    return mapping(node.resp, [*flat, b"library_code", library.code] if with_code else flat)


def _flag_set(node: NodeState, function: Function) -> Reply:
    flags = [Status(name) for name in function.flag_names]
    return set(flags) if node.resp == 3 else flags


@command("function|stats", 2, "noscript allow_busy")
def function_stats(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION STATS."""
    functions = host_of(node).functions
    counts = [b"libraries_count", len(functions.libraries), b"functions_count", len(functions.functions)]
    engines = mapping(node.resp, [b"LUA", mapping(node.resp, counts)])
    return mapping(node.resp, [b"running_script", None, b"engines", engines])


@command("function|kill", 2, "noscript allow_busy")
def function_kill(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION KILL. No function runs while a command of another connection does: see ``Abort.KILL`` for a kill."""
    raise ErrorReply(NOT_BUSY)
