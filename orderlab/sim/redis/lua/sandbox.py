"""A Lua runtime that leads nowhere: no Python object, file, process or network can be reached.

The runtime is built from the files in ``libraries``. Python functions are known to those files alone, as C closures
in upvalues; what scripts see are Lua functions and read-only stand-ins of tables. Afterwards the global table of the
runtime is emptied (``python``, ``debug``, ``io``, ``os``, ``package`` and all) and scripts get an environment of their
own.

Compiled chunks are made fit for this host. ``redis.call`` is a C function on the server and a Lua function here. A tail
call of a C function keeps the caller's frame; that of a Lua function replaces it, and with it the line number that
error replies show. So a tail call that may reach a host function becomes a plain call. Tail calls of the script's own
functions stay: recursion through them is unbounded. And Lua 5.1 reserves too little stack for a function with fixed
parameters and ``...`` (CVE-2014-5461): such a function declares a larger stack here. The layout is that of ``ldump.c``
and ``lopcodes.h`` of Lua 5.1.5 on a 64-bit little-endian machine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import lupa.lua51 as lupa

from orderlab.sim.native.choose import lua_library
from orderlab.sim.redis.lua.limits import Limits

LIBRARIES = Path(__file__).with_name("libraries")
SCRIPT_FILES = (
    "protection",
    "limits",
    "errors",
    "coroutines",
    "loading",
    "arguments",
    "tables",
    "strings",
    "environment",
    "tree",
    "random",
    "bit",
    "struct",
    "cjson",
    "cmsgpack",
    "redis",
    "run",
)
FUNCTION_FILES = (*SCRIPT_FILES, "functions")
"""On a server, scripts and functions live in Lua states of their own."""
RESERVE_BYTES: Final = 32 << 20
"""Memory between the scripts' limit and the runtime's: replies on their way to Lua must never find memory full."""
CALL_BYTES: Final = 100
"""For a call of redis.call, beside its arguments."""
FEW_ARGUMENTS: Final = 8
ARGUMENT_BYTES: Final = 64
"""For each argument of a call beyond the first few: a short one takes more as a value than as bytes."""
REFERENCES: Final = 1024
"""References from Python to Lua objects for which room is made beforehand, for the same reason."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A function that Lua calls without lupa where there is machine code for it (``call.c``)."""

    function: Callable[[tuple[bytes, ...], int], Any]
    """What it is given are the arguments and their bytes in all."""
    slot: list[Any]
    """Has one item: what the last call gave."""


class FastPath(NamedTuple):
    """The functions of ``call.c``: scripts into Lua, and their calls to the commands, without lupa."""

    run: Callable[[Any, int, int, int, Sequence[bytes], bool], Any]
    """The node, the script's number, the time in us or -1, the number of keys, keys and arguments, whether nothing can
    refuse writes -> what ``run.lua`` returns, with the list of an array of texts and whole numbers; NotImplemented if
    lupa has to run it. Raises lupa.LuaError."""
    call_script: Callable[[Any, Sequence[bytes], dict[bytes, int], int], Any]
    """The node, a line EVALSHA ..., numbers of scripts by their SHA1, the time -> the same, where nothing can refuse
    writes. The bytes that its calls have taken of ``argument_bytes_max`` are told by ``take_units`` unless ``_spend``
    of LuaEngine was told of some."""
    take_units: Callable[[], int]
    has_written: Callable[[], bool]
    """Whether the script that runs this way has written; LuaEngine is told when it ends or needs a closer look."""
    equip: Callable[..., None]
    set_recording: Callable[[bool], None]
    set_resp: Callable[[int], None]


OPEN = b"""
local json, call, f, slot, f_address, slot_address = ...
local loadlib, as_function = package.loadlib, python.as_function
local host = {python = {}, redis_constants = {}, open_json = json and loadlib(json, "orderlab_json")}
local open_call = call and loadlib(call, "orderlab_call")
if open_call then
  host.direct_call, host.keep, host.gate, host.run_in_c, host.walker, host.count_pattern, host.open_count =
    open_call(f, f_address, slot, slot_address)
end
return host, function(name, f) host.python[name] = as_function(f) end,
  function(name, value) host.redis_constants[name] = value end
"""


@cache
def _host_chunk(path: Path) -> bytes:
    """One of the host's files, compiled and made fit: the same in every runtime, and most of what a runtime costs."""
    lua: Any = lupa.LuaRuntime(encoding=None)
    chunk = lua.eval(b"string.dump")(lua.compile(path.read_bytes(), name=b"=host"))
    return prepare_chunk(chunk, None).changed or chunk


def _deny(target: object, name: object, is_setting: bool) -> object:
    raise AttributeError("denied")


class Sandbox:
    """A Lua runtime for scripts. ``host`` gives the trusted Lua functions by name."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._runtime: Any = lupa.LuaRuntime(
            encoding=None,
            unpack_returned_tuples=True,
            register_eval=False,
            register_builtins=False,
            attribute_filter=_deny,
            max_memory=limits.memory_bytes_max + RESERVE_BYTES,
        )
        self.memory_used: Callable[[], int] = self._runtime.get_memory_used
        """Bytes that the runtime holds now, garbage included."""
        self.fast_path: FastPath | None = None
        """Where there is machine code."""
        self.host_names: frozenset[bytes] = frozenset()
        """Names under which scripts find Lua functions where the server has C functions."""

    def install(
        self,
        files: Sequence[str],
        callables: Mapping[str, Callable[..., Any]],
        constants: Mapping[str, Any],
        direct: Direct | None,
    ) -> None:
        """Load the trusted ``files``, once. They may call ``callables``, which must not raise, and ``direct``;
        ``constants`` become fields of the table ``redis``. From here on nothing else can be put in."""
        function, slot = (direct.function, direct.slot) if direct else (None, [None])
        call = lua_library("call.c") if direct else None
        host, add_callable, add_constant = self._runtime.execute(
            OPEN, lua_library("json.c"), call, function, slot, id(function), id(slot)
        )
        if slot[0] is not None:
            self.fast_path, slot[0] = FastPath(*slot[0]), None
        for name, function in callables.items():
            add_callable(name.encode(), function)
        for name, value in constants.items():
            add_constant(name.encode(), value)
        for name in files:
            self._runtime.compile(_host_chunk(LIBRARIES / f"{name}.lua"))(host)
        limits = self.limits
        memory_max = limits.memory_bytes_max + RESERVE_BYTES
        host[b"set_limits"](limits.instructions_max, limits.seconds_max, memory_max, limits.argument_bytes_max)
        self._host = host
        self.host_names = frozenset(host[b"finish"]().split())
        self._runtime.execute(b"local G, next = _G, next for name in next, G do G[name] = nil end")
        references = [self._runtime.table() for _ in range(REFERENCES)]
        del references

    def function(self, name: str) -> Any:
        """A trusted Lua function of ``libraries``."""
        return self._host[name.encode()]

    def marks(self) -> dict[str, Any]:
        """The marks of containers in the flat lists of ``tree.lua``."""
        return {name.decode(): mark for name, mark in self._host[b"marks"].items()}

    def table(self) -> Any:
        """A new, empty Lua table."""
        return self._runtime.table()

    def collect(self) -> None:
        """Collect garbage completely, in the middle of a run too."""
        self._runtime.gccollect()

    def clean(self) -> None:
        """Drop all that the last run may have left behind, and collect garbage. Only between runs."""
        self._runtime.gccollect()
        self.allow_more(RESERVE_BYTES)
        self._host[b"clean"]()
        self.allow_more(0)
        self._runtime.gccollect()

    def allow_more(self, added_bytes: int) -> None:
        """Raise the memory limit of the runtime by so many bytes, for arguments on their way in; 0 restores it."""
        self._runtime.set_max_memory(self.limits.memory_bytes_max + RESERVE_BYTES + added_bytes)


HEADER = b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00"
STACK_SLOTS_MAX = 250
CHUNK_BYTES_MAX = 4 << 20
KEPT_BYTES_MAX = 1 << 15
"""Chunks up to so long are remembered as they were prepared."""

OP_MOVE, OP_GETUPVAL, OP_GETGLOBAL, OP_GETTABLE, OP_SETGLOBAL, OP_SELF = 0, 4, 5, 6, 7, 11
OP_CALL, OP_TAILCALL, OP_CLOSURE = 28, 29, 36
_CONSTANT = 1 << 8
_VARARG_IS = 2


class BytecodeError(Exception):
    """The chunk is too large, or a function in it needs more stack slots than a function can have."""


@dataclass
class _Function:
    """What of one function prototype the changes need. Offsets are into the whole chunk."""

    parameters: int
    is_vararg: bool
    stack_at: int
    code_at: int
    code: Sequence[int]
    constants: list[bytes | None] = field(default_factory=list)
    inner: list[_Function] = field(default_factory=list)
    parent: _Function | None = None
    captures: list[tuple[bool, int]] = field(default_factory=list)
    """For each upvalue: (it is a register of the parent, its index there)."""


class _Reader:
    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.at = len(HEADER)
        self.debug: list[tuple[int, int]] = []
        """Where names, lines and locals stand."""

    def unpack(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self.chunk, self.at)
        self.at += struct.calcsize(layout)
        return int(value)

    def string(self) -> bytes | None:
        size = self.unpack("<Q")
        text = self.chunk[self.at : self.at + size - 1] if size else None
        self.at += size
        return text

    def function(self, parent: _Function | None = None) -> _Function:
        begun = self.at
        self.string()
        self.at += 8  # first and last line
        self.debug.append((begun, self.at))
        _, parameters, vararg, _ = struct.unpack_from("<4B", self.chunk, self.at)
        stack_at = self.at + 3
        self.at += 4
        count = self.unpack("<i")
        code = struct.unpack_from(f"<{count}I", self.chunk, self.at)
        found = _Function(parameters, bool(vararg & _VARARG_IS), stack_at, self.at, code, parent=parent)
        self.at += 4 * count
        for _ in range(self.unpack("<i")):
            found.constants.append(self._constant())
        for _ in range(self.unpack("<i")):
            found.inner.append(self.function(found))
        self._skip_debug()
        return found

    def _constant(self) -> bytes | None:
        kind = self.unpack("<B")
        if kind == 4:
            return self.string()
        self.at += {0: 0, 1: 1, 3: 8}[kind]
        return None

    def _skip_debug(self) -> None:
        begun = self.at
        lines = self.unpack("<i")
        self.at += 4 * lines
        for _ in range(self.unpack("<i")):
            self.string()
            self.at += 8
        for _ in range(self.unpack("<i")):
            self.string()
        self.debug.append((begun, self.at))


def _all(function: _Function) -> Iterator[_Function]:
    yield function
    for inner in function.inner:
        yield from _all(inner)


def code_of(source: bytes) -> bytes:
    """What a text compiles to, without what only its errors tell: lines, and names of locals. Raises LuaError."""
    lua: Any = lupa.LuaRuntime(encoding=None)
    chunk: bytes = lua.eval(b"string.dump")(lua.compile(source, name=b"="))
    reader = _Reader(chunk)
    reader.function()
    ends = [0, *(end for _, end in sorted(reader.debug))]
    return b"".join(chunk[end:begin] for end, (begin, _) in zip(ends, sorted(reader.debug), strict=False))


def functions_of(chunk: bytes) -> list[_Function]:
    """The functions of a compiled chunk, its main function first."""
    return list(_all(_Reader(chunk).function()))


def _fields(instruction: int) -> tuple[int, int, int, int]:
    return instruction & 63, instruction >> 6 & 255, instruction >> 23, instruction >> 14 & 511


def _note_captures(function: _Function) -> None:
    """After CLOSURE one pseudo-instruction for each upvalue says where it comes from."""
    for at, instruction in enumerate(function.code):
        if instruction & 63 == OP_CLOSURE:
            inner = function.inner[instruction >> 14]
            for follower in function.code[at + 1 :]:
                operation, _, source, _ = _fields(follower)
                if operation not in (OP_MOVE, OP_GETUPVAL):
                    break
                inner.captures.append((operation == OP_MOVE, source))


def _holds_closure(function: _Function, register: int) -> bool:
    """Whether some instruction puts a function that is written in the script itself into the register."""
    return any(one & 63 == OP_CLOSURE and one >> 6 & 255 == register for one in function.code)


def _upvalue_holds_closure(function: _Function, index: int) -> bool:
    while function.parent is not None and index < len(function.captures):
        is_register, index = function.captures[index]
        function = function.parent
        if is_register:
            return _holds_closure(function, index)
    return False


def _may_be_host(function: _Function, call_at: int, host_names: frozenset[bytes]) -> bool:
    """Whether the tail call at ``call_at`` may reach a host function: it is looked up under the name of one, or it is
    a variable that no function of the script is assigned to."""
    register = function.code[call_at] >> 6 & 255
    for at in range(call_at - 1, -1, -1):
        operation, target, b, c = _fields(function.code[at])
        if target != register:
            continue
        if operation == OP_GETGLOBAL:
            return function.constants[function.code[at] >> 14] in host_names
        if operation in (OP_GETTABLE, OP_SELF):
            key = function.constants[c & 255] if c & _CONSTANT else None
            return key is None or key in host_names
        if operation == OP_MOVE:
            return not _holds_closure(function, b)
        if operation == OP_GETUPVAL:
            return not _upvalue_holds_closure(function, b)
        return operation != OP_CLOSURE
    return True


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk that the host can run."""

    changed: bytes | None
    """The chunk with the changes that it needed, or None if it needed none."""
    assigns_globals: bool


def prepare_chunk(chunk: bytes, host_names: frozenset[bytes] | None) -> PreparedChunk:
    """Make ``chunk`` fit for the host. With None for ``host_names``, as for the host's own files, all tail calls become
    plain calls.

    Raises BytecodeError.
    """
    if len(chunk) > CHUNK_BYTES_MAX:
        raise BytecodeError(f"chunk has more than {CHUNK_BYTES_MAX} bytes when compiled")
    return (_prepared_before if len(chunk) <= KEPT_BYTES_MAX else _prepared)(chunk, host_names)


def _prepared(chunk: bytes, host_names: frozenset[bytes] | None) -> PreparedChunk:
    if not chunk.startswith(HEADER):
        raise BytecodeError("unknown bytecode format")
    changed = bytearray(chunk)
    functions = functions_of(chunk)
    for function in functions:
        _note_captures(function)
    for function in functions:
        if function.is_vararg and function.parameters:
            slots = changed[function.stack_at] + function.parameters
            if slots > STACK_SLOTS_MAX:
                raise BytecodeError("function or expression too complex")
            changed[function.stack_at] = slots
        for at, instruction in enumerate(function.code):
            if instruction & 63 != OP_TAILCALL:
                continue
            if host_names is None or _may_be_host(function, at, host_names):
                struct.pack_into("<I", changed, function.code_at + 4 * at, instruction & ~63 | OP_CALL)
    assigns_globals = any(one & 63 == OP_SETGLOBAL for function in functions for one in function.code)
    return PreparedChunk(bytes(changed) if changed != chunk else None, assigns_globals)


_prepared_before = lru_cache(maxsize=128)(_prepared)
"""The same scripts are loaded into one store after another."""
