"""Limits of a script, and a Lua runtime that leads nowhere: no Python object, file, process or network can be reached.

The runtime is built from the files in ``libraries``. Python functions are known to those files alone, as C closures
in upvalues; what scripts see are Lua functions and read-only stand-ins of tables. Afterwards the global table of the
runtime is emptied (``python``, ``debug``, ``io``, ``os``, ``package`` and all) and scripts get an environment of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lupa.lua51 as lupa

from orderlab.sim.native import install as compiled
from orderlab.sim.redis.abort import ScriptTimeout
from orderlab.sim.redis.lua import bytecode as lua_bytecode

__all__ = ["Direct", "Limits", "Sandbox", "ScriptTimeout"]

LIBRARIES = Path(__file__).with_name("libraries")
SCRIPT_FILES = (
    "protection", "limits", "errors", "coroutines", "loading", "arguments", "tables", "strings", "environment", "tree", "random", "bit",
    "struct", "json_reader", "cjson", "cmsgpack", "redis", "run",
)  # fmt: skip
FUNCTION_FILES = (*SCRIPT_FILES, "functions")
"""On a server, scripts and functions live in Lua states of their own."""
RESERVE_BYTES: Final = 32 << 20
"""Memory between the scripts' limit and the runtime's: replies on their way to Lua must never find memory full."""
CALL_BYTES: Final = 100
"""For a call of redis.call, beside its arguments."""
REFERENCES: Final = 1024
"""References from Python to Lua objects for which room is made beforehand, for the same reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of a script may use before it is stopped."""

    instructions_max: int = 100_000_000
    """Instructions of the Lua machine, counted in steps of 1000; what a call of the library copies counts too."""
    work_max: int = 100_000_000
    """What its commands may do, in the units of ``work``."""
    seconds_max: float = 20.0
    """Processor time from the second thousand instructions on: the last resort, for what no count sees (comparing two strings
    of 60 MB is one instruction). Counted work ends in 5 s on a machine of 2025. Looked at after every 1000
    instructions, and more often the more memory a script holds. One call that never ends is beyond this; see ``watchdog``."""
    memory_bytes_max: int = 128 << 20
    """Memory of the Lua runtime."""
    argument_bytes_max: int = 128 << 20
    """Bytes handed to redis.call and redis.pcall in all, each call with ``CALL_BYTES`` more: what a script may leave in
    the keyspace."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A function that Lua calls without lupa where there is machine code for it (``call.c``)."""

    function: Callable[[tuple[bytes, ...], int], Any]
    """What it is given are the arguments and their bytes in all."""
    slot: list[Any]
    """Has one item: what the last call gave."""


OPEN = b"""
local json, call, f, slot, f_address, slot_address = ...
local loadlib, as_function = package.loadlib, python.as_function
local host = {python = {}, redis_constants = {}, open_json = json and loadlib(json, "orderlab_json")}
local open_call = call and loadlib(call, "orderlab_call")
host.direct_call = open_call and open_call(f, f_address, slot, slot_address)
return host, function(name, f) host.python[name] = as_function(f) end,
  function(name, value) host.redis_constants[name] = value end
"""


def _library(text: str) -> bytes | None:
    made = compiled.library(LIBRARIES / text)
    return None if made is None else os.fsencode(made)


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
        self.host_names: frozenset[bytes] = frozenset()
        """Names under which scripts find Lua functions where the server has C functions."""

    def install(
        self,
        files: Sequence[str],
        callables: Mapping[str, Callable[..., Any]],
        constants: Mapping[str, Any],
        direct: Direct,
    ) -> None:
        """Load the trusted ``files``, once. They may call ``callables``, which must not raise, and ``direct``; ``constants``
        become fields of the table ``redis``. From here on nothing else can be put in."""
        function, slot = direct.function, direct.slot
        host, add_callable, add_constant = self._runtime.execute(
            OPEN, _library("json.c"), _library("call.c"), function, slot, id(function), id(slot)
        )
        for name, function in callables.items():
            add_callable(name.encode(), function)
        for name, value in constants.items():
            add_constant(name.encode(), value)
        dump = self._runtime.eval(b"string.dump")
        for name in files:
            chunk = dump(self._runtime.compile((LIBRARIES / f"{name}.lua").read_bytes(), name=b"=host"))
            self._runtime.compile(lua_bytecode.prepare(chunk, None).changed or chunk)(host)
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
