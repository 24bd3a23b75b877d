"""Compiled Lua 5.1 chunks made fit for the host: tail calls of host functions, and a stack that is large enough.

``redis.call`` is a C function on the server and a Lua function here. A tail call of a C function keeps the caller's
frame; that of a Lua function replaces it, and with it the line number that error replies show. So a tail call that may
reach a host function becomes a plain call. Tail calls of the script's own functions stay: recursion through them is
unbounded.

Lua 5.1 reserves too little stack for a function with fixed parameters and ``...`` (CVE-2014-5461): such a function
declares a larger stack here.

The layout is that of ``ldump.c`` and ``lopcodes.h`` of Lua 5.1.5 on a 64-bit little-endian machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

HEADER = b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00"
STACK_SLOTS_MAX = 250
CHUNK_BYTES_MAX = 4 << 20

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
        self.string()
        self.at += 8  # first and last line
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
        lines = self.unpack("<i")
        self.at += 4 * lines
        for _ in range(self.unpack("<i")):
            self.string()
            self.at += 8
        for _ in range(self.unpack("<i")):
            self.string()


def _all(function: _Function) -> Iterator[_Function]:
    yield function
    for inner in function.inner:
        yield from _all(inner)


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
class Prepared:
    """A chunk that the host can run."""

    changed: bytes | None
    """The chunk with the changes that it needed, or None if it needed none."""
    assigns_globals: bool


def prepare(chunk: bytes, host_names: frozenset[bytes] | None) -> Prepared:
    """Make ``chunk`` fit for the host. With None for ``host_names``, as for the host's own files, all tail calls become
    plain calls.

    Raises BytecodeError.
    """
    if len(chunk) > CHUNK_BYTES_MAX:
        raise BytecodeError(f"chunk has more than {CHUNK_BYTES_MAX} bytes when compiled")
    if not chunk.startswith(HEADER):
        raise BytecodeError("unknown bytecode format")
    changed = bytearray(chunk)
    functions = list(_all(_Reader(chunk).function()))
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
    return Prepared(bytes(changed) if changed != chunk else None, assigns_globals)


def globals_of_inner_functions(chunk: bytes) -> Iterator[bytes]:
    """Names of the globals that functions inside of a chunk read or assign, as opposed to its main function."""
    main = _Reader(chunk).function()
    for function in _all(main):
        for instruction in function.code:
            if function is not main and instruction & 63 in (OP_GETGLOBAL, OP_SETGLOBAL):
                yield function.constants[instruction >> 14] or b"?"
