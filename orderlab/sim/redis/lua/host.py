"""The scripts and function libraries of a node: loaded, kept by their SHA1 or name, run; the Lua states that nodes
share.

Every server has a Lua state of its own, but what a script leaves behind in it for the next one is little: the settings
of cjson and of the collector. So shards that one thread uses share a state until a script changes a setting. From then
on that state is the node's alone whose script did so, and the others go on in a new one. What it saves are the caches
of the processor: the nodes of a simulated cluster take turns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from orderlab.platform import kept_whole
from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.lua.engine import CompiledScript, LuaEngine
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.lua.replies import error_line
from orderlab.sim.redis.lua.sandbox import FUNCTION_FILES, SCRIPT_FILES
from orderlab.sim.redis.lua.script_run import ScriptFlags, ScriptRun
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.versions import DEFAULT, ServerVersion

FLAGS = {
    b"no-writes": "no_writes",
    b"allow-oom": "allow_oom",
    b"allow-stale": "allow_stale",
    b"no-cluster": "no_cluster",
    b"allow-cross-slot-keys": "allow_cross_slot_keys",
}
_ESCAPES = {0x6E: b"\n", 0x72: b"\r", 0x74: b"\t", 0x62: b"\b", 0x61: b"\a"}
_BLANKS = b" \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Shebang:
    """``flags`` is None when the text has no such line; ``body`` is the rest, its line break included."""

    flags: ScriptFlags | None
    body: bytes


def split_arguments(line: bytes) -> list[bytes] | None:
    """Words of a line, quoted or not (``sdssplitargs``); None if the quotes do not balance."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at >= len(line) or line[at] == 0:
            return words
        word = bytearray()
        while at < len(line) and line[at] not in _BLANKS and line[at] != 0:
            if line[at] in b"\"'":
                quoted = _quoted(line, at, word)
                if quoted is None:
                    return None
                at = quoted
                break
            word.append(line[at])
            at += 1
        words.append(bytes(word))


def _quoted(line: bytes, at: int, word: bytearray) -> int | None:
    """Append the quoted text that begins at ``at``; the position after it, or None."""
    quote = line[at]
    at += 1
    while at < len(line) and line[at] != 0:
        char = line[at]
        if quote == 0x22 and char == 0x5C and line[at + 1 : at + 2] == b"x" and _is_hex(line[at + 2 : at + 4]):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 4
        elif char == 0x5C and at + 1 < len(line) and (quote == 0x22 or line[at + 1] == 0x27):
            word += _ESCAPES.get(line[at + 1], line[at + 1 : at + 2]) if quote == 0x22 else b"'"
            at += 2
        elif char == quote:
            after = line[at + 1 : at + 2]
            return at + 1 if after in (b"", b"\0") or after in _BLANKS else None
        else:
            word.append(char)
            at += 1
    return None


def _is_hex(text: bytes) -> bool:
    return len(text) == 2 and all(char in b"0123456789abcdefABCDEF" for char in text)


def parse_shebang(source: bytes, version: ServerVersion = DEFAULT) -> Shebang:
    """The flags of an EVAL script (``evalExtractShebangFlags``). Raises ErrorReply."""
    if not source.startswith(b"#!") or not version.has((7, 0)):
        return Shebang(None, source)
    end = source.split(b"\0")[0].find(b"\n")
    if end < 0:
        raise ErrorReply(b"ERR Invalid script shebang")
    words = split_arguments(source[:end])
    if not words:
        raise ErrorReply(b"ERR Invalid engine in script shebang")
    if words[0] != b"#!lua":
        if version.is_valkey:
            raise ErrorReply(b"ERR Could not find scripting engine '%b'" % words[0][2:])
        raise ErrorReply(b"ERR Unexpected engine in script shebang: " + words[0])
    chosen: set[str] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise ErrorReply(b"ERR Unknown lua shebang option: " + word)
        for flag in word[6:].split(b",") if word[6:] else ():
            if flag not in FLAGS:
                raise ErrorReply(b"ERR Unexpected flag in script shebang: " + flag)
            chosen.add(FLAGS[flag])
    return Shebang(ScriptFlags(**dict.fromkeys(chosen, True)), source[end:])


class SharedLua:
    """Hands out Lua states with the settings of a new one. No script of a node may run within a script of another that
    shares."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._states: dict[str, LuaEngine] = {}

    def state(self, node: NodeState) -> LuaEngine:
        """A state in which no script has changed a setting yet, for ``node`` among others of its version."""
        state = self._states.get(node.version.name)
        if state is None or state.owner is not None:
            state = self._states[node.version.name] = LuaEngine(node, self.limits, SCRIPT_FILES)
        return state


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

    def __init__(self, node: NodeState, limits: Limits) -> None:
        self._shard = node
        self._engine = LuaEngine(node, limits, FUNCTION_FILES)
        self.sandbox = self._engine.sandbox
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


NO_SCRIPT = b"NOSCRIPT No matching script. Please use EVAL."


@dataclass(slots=True)
class Script:
    """A compiled script."""

    sha: bytes
    """SHA1 of its source in hexadecimal, lower case."""
    source: bytes
    flags: ScriptFlags | None
    """What its shebang declares; None without one."""
    compiled: CompiledScript = field(repr=False)


class LuaHost:
    """Runs scripts and functions on ``node``; its scripts in a state of ``lua``, by default one that no other node
    uses."""

    def __init__(self, node: NodeState, limits: Limits | None = None, lua: SharedLua | None = None) -> None:
        self.node = node
        self.scripts: dict[bytes, Script] = {}
        self._numbers: dict[bytes, int] = {}
        """Of those without flags, as the state knows them."""
        self._lua = lua or SharedLua(limits)
        self._engine = self._lua.state(node)
        self._functions: FunctionLibraries | None = None

    @property
    def functions(self) -> FunctionLibraries:
        """The function libraries; their Lua state is made when it is first needed."""
        if self._functions is None:
            self._functions = FunctionLibraries(self.node, self._lua.limits)
        return self._functions

    def load(self, source: bytes) -> Script:
        """Compile ``source``, or find it compiled. Raises ErrorReply."""
        sha = hashlib.sha1(source).hexdigest().encode()
        script = self.scripts.get(sha)
        if script is None:
            shebang = parse_shebang(source, self.node.version)
            self._settle()
            try:
                compiled = self._engine.compile_script(sha, shebang.body)
            except ErrorReply as error:
                text = b"ERR Error compiling script (new function): " + error.message
                raise ErrorReply(error_line(text)) from None
            script = self.scripts[sha] = Script(sha, source, shebang.flags, compiled)
            if shebang.flags is None:
                self._numbers[sha] = compiled.number
        return script

    def flush(self) -> None:
        """Forget all scripts, with the settings that they changed in the Lua state (those of cjson)."""
        self.scripts.clear()
        self._numbers.clear()
        self._engine.compiled.clear()
        self._engine = self._lua.state(self.node)

    def _settle(self) -> None:
        """Leave the Lua state if it has become another node's."""
        if self._engine.owner is not None and self._engine.owner is not self.node:
            self._engine = self._lua.state(self.node)
            for script in self.scripts.values():
                body = parse_shebang(script.source, self.node.version).body
                script.compiled = self._engine.compile_script(script.sha, body)
                if script.flags is None:
                    self._numbers[script.sha] = script.compiled.number

    @contextmanager
    def measuring(self) -> Iterator[Callable[[], int]]:
        """Within it instructions of scripts and functions are counted, none of their libraries; past 10,000 of one run
        a sample. What it gives tells how many there were. Runs take several times as long."""
        engines = [self._engine.sandbox, self.functions.sandbox]
        for each in engines:
            each.function("measure")(0)
        try:
            yield lambda: sum(int(each.function("measured")()) for each in engines)
        finally:
            for each in engines:
                each.function("measure")(None)

    def evalsha(self, sha: bytes, keys: Sequence[bytes], args: Sequence[bytes], read_only: bool = False) -> Reply:
        """Run a loaded script, without the checks that a client's command has to pass first.

        Raises ErrorReply (NOSCRIPT too), ScriptTimeout, UnsupportedCommand, NodeCrashed.
        """
        return self.run(self.find(sha), len(keys), (*keys, *args), read_only)

    def eval(self, source: bytes, keys: Sequence[bytes], args: Sequence[bytes], read_only: bool = False) -> Reply:
        """Load a script and run it. Raises as ``evalsha``."""
        return self.run(self.load(source), len(keys), (*keys, *args), read_only)

    def find(self, sha: bytes) -> Script:
        """A loaded script. Raises ErrorReply (NOSCRIPT)."""
        script = self.scripts.get(sha) or self.scripts.get(sha.lower())
        if script is None:
            raise ErrorReply(self.node.version.text(NO_SCRIPT))
        return script

    def run(self, script: Script, key_count: int, values: Sequence[bytes], read_only: bool) -> Reply:
        """Run a script of this host on ``values``, the keys before the arguments. Raises as ``evalsha``."""
        node = self.node
        if self._engine.owner is not None:
            self._settle()
        run = ScriptRun.begin(node, script.flags, read_only, values[:key_count] if node.slots is not None else ())
        compiled = script.compiled
        return self._engine.run(run, script.sha, "script", compiled.function, key_count, values, compiled.number)

    def run_calls(self, commands: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Run the calls of loaded scripts that ``commands`` begin with, for a calm node of which no effects are
        recorded; up to the first that is not usual. What each replies, an ErrorReply too. Raises as ``evalsha``."""
        node = self.node
        if self._engine.owner is not None:
            self._settle()
        replies: list[Reply] = []
        if not node.master_link_down:
            self._engine.run_calls(ScriptRun(node, False), self._numbers, commands, replies)
        return replies


def host_of(node: NodeState) -> LuaHost:
    """The host of ``node``, started when it is first needed."""
    host = node.lua_host
    if host is None:
        host = node.lua_host = LuaHost(node, lua=cast("SharedLua | None", node.shared_lua))
    return cast(LuaHost, host)


for _runs_a_script in (FunctionLibraries.call, LuaHost.run, LuaHost.run_calls):
    kept_whole(_runs_a_script)
