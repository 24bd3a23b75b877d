"""The syntax of a script, checked as a Redis server compiles it, before anything runs."""

from __future__ import annotations

import functools
from typing import Any

from lupa import lua51

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding.calls import Script

MEMORY_LIMIT_BYTES = 64 << 20


@functools.cache
def _compiler() -> Any:
    """A function (source, chunk name) -> error text or None, in a Lua of its own that never runs a script."""
    runtime = lua51.LuaRuntime(encoding=None, max_memory=MEMORY_LIMIT_BYTES)
    return runtime.eval(b"function(source, name) local _, message = loadstring(source, name) return message end")


def compiled_form(source: bytes) -> bytes:
    """``source`` as the server compiles it: the body of a function; a shebang line becomes an empty one."""
    if source.startswith(b"#!"):
        newline = source.find(b"\n")
        source = source[newline:] if newline >= 0 else b""
    return b"function script() " + source + b"\nend"


def check_syntax(script: Script) -> None:
    """Raise InputError, with file and line, when a server would not compile ``script``."""
    chunk_name = b"@" + str(script.path).encode("utf-8", "surrogateescape")[:50]
    message = _compiler()(compiled_form(script.source), chunk_name)
    if message is None:
        return
    if not script.source.startswith((b"\x1b", b"#!")):  # never a binary chunk
        message = _compiler()(script.source, chunk_name) or message  # says where a block that is left open began
    text = message.decode("utf-8", "replace")
    _, _, detail = text.rpartition(chunk_name[1:].decode("utf-8", "replace"))
    raise InputError(f"{script.path}{detail if detail.startswith(':') else ': ' + detail}; correct the script")
