"""Commands on function libraries: FCALL, FUNCTION."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import option
from orderlab.sim.redis.commands.scripting import EVAL_FLAGS, call_flags, count_keys
from orderlab.sim.redis.glob import glob
from orderlab.sim.redis.lua.function_libraries import Function, Library
from orderlab.sim.redis.lua.host import host_of
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import CallFlags, command, numbered_keys
from orderlab.sim.redis.replies import OK, ErrorReply, Reply, Status, mapping

NOT_BUSY = b"NOTBUSY No scripts in execution right now."


def _find(shard: NodeState, name: bytes) -> Function | None:
    return None if shard.lua_host is None else host_of(shard).functions.functions.get(name.lower())


def _flags_of_fcall(shard: NodeState, argv: Sequence[bytes]) -> CallFlags | None:
    function = _find(shard, argv[1])
    return None if function is None else call_flags(function.flags)


def _fcall(shard: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    function = _find(shard, argv[1])
    if function is None:
        raise ErrorReply(b"ERR Function not found")
    key_count = count_keys(argv, b"ERR Bad number of keys provided")
    return host_of(shard).functions.call(function, key_count, argv[3:], read_only)


@command("fcall", -3, EVAL_FLAGS, numbered_keys(2), may_replicate=True, flags_of_call=_flags_of_fcall)
def fcall(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FCALL function numkeys [key ...] [arg ...]."""
    return _fcall(shard, argv, read_only=False)


@command("fcall_ro", -3, "readonly " + EVAL_FLAGS, numbered_keys(2), flags_of_call=_flags_of_fcall)
def fcall_ro(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FCALL_RO function numkeys [key ...] [arg ...]."""
    return _fcall(shard, argv, read_only=True)


@command("function|load", -3, "write denyoom noscript")
def function_load(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION LOAD [REPLACE] code."""
    replace = False
    for word in argv[2:-1]:
        if option(word) != b"REPLACE":
            raise ErrorReply(b"ERR Unknown option given: " + word.split(b"\0")[0])
        replace = True
    name = host_of(shard).functions.load(argv[-1], replace)
    shard.dirty += 1
    return name


@command("function|delete", 3, "write noscript")
def function_delete(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION DELETE library."""
    if not host_of(shard).functions.delete(argv[2]):
        raise ErrorReply(b"ERR Library not found")
    shard.dirty += 1
    return OK


@command("function|flush", -2, "write noscript")
def function_flush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION FLUSH [ASYNC | SYNC]."""
    if len(argv) > 3:
        raise ErrorReply(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try FUNCTION HELP." % argv[1][:128]
        )
    if len(argv) == 3 and option(argv[2]) not in (b"SYNC", b"ASYNC"):
        raise ErrorReply(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    host_of(shard).functions.flush()
    shard.dirty += 1
    return OK


@command("function|list", -2, "noscript")
def function_list(shard: NodeState, argv: Sequence[bytes]) -> Reply:
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
    libraries = host_of(shard).functions.libraries.values()
    matches = glob(b"*" if pattern is None else pattern.lower())
    chosen = [one for one in libraries if matches(one.name.lower())]
    return [_describe(shard, library, with_code) for library in chosen]


def _describe(shard: NodeState, library: Library, with_code: bool) -> Reply:
    functions = [
        mapping(shard.resp, [b"name", one.name, b"description", one.description, b"flags", _flag_set(shard, one)])
        for one in library.functions
    ]
    flat = [b"library_name", library.name, b"engine", b"LUA", b"functions", functions]
    return mapping(shard.resp, [*flat, b"library_code", library.code] if with_code else flat)


def _flag_set(shard: NodeState, function: Function) -> Reply:
    flags = [Status(name) for name in function.flag_names]
    return set(flags) if shard.resp == 3 else flags


@command("function|stats", 2, "noscript allow_busy")
def function_stats(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION STATS."""
    functions = host_of(shard).functions
    counts = [b"libraries_count", len(functions.libraries), b"functions_count", len(functions.functions)]
    engines = mapping(shard.resp, [b"LUA", mapping(shard.resp, counts)])
    return mapping(shard.resp, [b"running_script", None, b"engines", engines])


@command("function|kill", 2, "noscript allow_busy")
def function_kill(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """FUNCTION KILL. No function runs while a command of another connection does: see ``Abort.KILL`` for a kill."""
    raise ErrorReply(NOT_BUSY)
