"""Function libraries of one shard (``FUNCTION LOAD``, ``FCALL``): Lua code that registers functions by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orderlab.sim.redis.abort import ScriptTimeout
from orderlab.sim.redis.lua.engine import LuaEngine
from orderlab.sim.redis.lua.replies import error_line
from orderlab.sim.redis.lua.run import ScriptFlags, ScriptRun
from orderlab.sim.redis.lua.sandbox import FUNCTION_FILES, Limits
from orderlab.sim.redis.lua.shebang import FLAGS, split_arguments
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import ErrorReply, Reply

BAD_NAME = (
    b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
)


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function."""

    name: bytes
    description: bytes | None
    flag_names: tuple[bytes, ...]
    """As ``FUNCTION LIST`` shows them, in the order of ``lua_shebang.FLAGS``."""
    flags: ScriptFlags
    callback: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library with the functions that it registered."""

    name: bytes
    code: bytes
    functions: tuple[Function, ...]


class FunctionLibraries:
    """The libraries by name, and their functions by name in lower case.

    Two functions of a library may not differ in case alone: a 7.0.15 server takes them and dies when it drops them.
    """

    def __init__(self, shard: NodeState, limits: Limits) -> None:
        self._shard = shard
        self._engine = LuaEngine(shard, limits, FUNCTION_FILES)
        self.libraries: dict[bytes, Library] = {}
        self.functions: dict[bytes, Function] = {}

    def load(self, code: bytes, replace: bool) -> bytes:
        """Load a library; its name. With ``replace`` it may take the place of one of that name. Raises ErrorReply."""
        name, body = _parse_metadata(code)
        old = self.libraries.get(name)
        if old is not None and not replace:
            raise ErrorReply(error_line(b"ERR Library '%b' already exists" % name))
        functions = self._register(body)
        if not functions:
            raise ErrorReply(b"ERR No functions registered")
        replaced = {function.name.lower() for function in old.functions} if old else set()
        for function in functions:
            if function.name.lower() in self.functions.keys() - replaced:
                raise ErrorReply(b"ERR Function %b already exists" % function.name)
        if old is not None:
            self.delete(name)
        self.libraries[name] = Library(name, code, functions)
        self.functions |= {function.name.lower(): function for function in functions}
        return name

    def _register(self, body: bytes) -> tuple[Function, ...]:
        try:
            compiled = self._engine.compile(body, b"@user_function")
        except ErrorReply as error:
            raise ErrorReply(error_line(b"ERR Error compiling function: " + error.message)) from None
        try:
            registered = self._engine.register(compiled)
        except ScriptTimeout:
            registered = ErrorReply(b"ERR FUNCTION LOAD timeout")
        if isinstance(registered, ErrorReply):
            raise ErrorReply(error_line(b"ERR Error registering functions: " + registered.message))
        return tuple(_function(*registered[i : i + 4]) for i in range(0, len(registered), 4))

    def delete(self, name: bytes) -> bool:
        """Forget a library; whether there was one."""
        library = self.libraries.pop(name, None)
        for function in library.functions if library else ():
            del self.functions[function.name.lower()]
        return library is not None

    def flush(self) -> None:
        """Forget all libraries. What they changed in the Lua state itself (settings of cjson) stays."""
        self.libraries.clear()
        self.functions.clear()

    def call(self, function: Function, key_count: int, values: Sequence[bytes], read_only: bool) -> Reply:
        """Run a function on ``values``, the keys before the arguments. Raises as ``LuaHost.evalsha``."""
        run = ScriptRun.begin(self._shard, function.flags, read_only, values[:key_count])
        return self._engine.run(run, function.name, "function", function.callback, key_count, values)


def _function(name: bytes, callback: Any, description: bytes | bool, flags: bytes) -> Function:
    given = set(flags.split(b","))
    names = tuple(flag for flag in FLAGS if flag in given)
    fields = {FLAGS[flag]: True for flag in names}
    return Function(name, description or None, names, ScriptFlags(**fields), callback)  # type: ignore[arg-type]


def _parse_metadata(code: bytes) -> tuple[bytes, bytes]:
    """The name of a library, and its code without the words of the first line (``functionExtractLibMetaData``)."""
    if not code.startswith(b"#!"):
        raise ErrorReply(b"ERR Missing library metadata")
    end = code.split(b"\0")[0].find(b"\n")
    words = split_arguments(code[:end]) if end >= 0 else None
    if not words:
        raise ErrorReply(b"ERR Invalid library metadata")
    name: bytes | None = None
    for word in words[1:]:
        if word[:5].lower() != b"name=":
            raise ErrorReply(error_line(b"ERR Invalid metadata value given: " + word))
        if name is not None:
            raise ErrorReply(b"ERR Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if name is None:
        raise ErrorReply(b"ERR Library name was not given")
    if not re.fullmatch(rb"[A-Za-z0-9_]+", name):
        raise ErrorReply(BAD_NAME)
    engine = words[0][2:]
    if engine.lower() != b"lua":
        raise ErrorReply(error_line(b"ERR Engine '%b' not found" % engine))
    return name, code[end:]
