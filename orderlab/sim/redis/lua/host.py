"""The scripts of one shard: loaded, kept by their SHA1, run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from orderlab.sim.redis.lua.function_libraries import FunctionLibraries
from orderlab.sim.redis.lua.replies import error_line
from orderlab.sim.redis.lua.run import ScriptFlags, ScriptRun
from orderlab.sim.redis.lua.sandbox import Limits
from orderlab.sim.redis.lua.shared import SharedLua
from orderlab.sim.redis.lua.shebang import parse_shebang
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import ErrorReply, Reply

NO_SCRIPT = b"NOSCRIPT No matching script. Please use EVAL."


@dataclass(slots=True)
class Script:
    """A compiled script."""

    sha: bytes
    """SHA1 of its source in hexadecimal, lower case."""
    source: bytes
    flags: ScriptFlags | None
    """What its shebang declares; None without one."""
    function: Any = field(repr=False)


class LuaHost:
    """Runs scripts and functions on ``shard``; its scripts in a state of ``lua``, by default one that no other shard uses."""

    def __init__(self, shard: NodeState, limits: Limits | None = None, lua: SharedLua | None = None) -> None:
        self.shard = shard
        self.scripts: dict[bytes, Script] = {}
        self._lua = lua or SharedLua(limits)
        self._engine = self._lua.state(shard)
        self._functions: FunctionLibraries | None = None

    @property
    def functions(self) -> FunctionLibraries:
        """The function libraries; their Lua state is made when it is first needed."""
        if self._functions is None:
            self._functions = FunctionLibraries(self.shard, self._lua.limits)
        return self._functions

    def load(self, source: bytes) -> Script:
        """Compile ``source``, or find it compiled. Raises ErrorReply."""
        sha = hashlib.sha1(source).hexdigest().encode()
        script = self.scripts.get(sha)
        if script is None:
            shebang = parse_shebang(source)
            self._settle()
            try:
                function = self._engine.compile_script(sha, shebang.body)
            except ErrorReply as error:
                text = b"ERR Error compiling script (new function): " + error.message
                raise ErrorReply(error_line(text)) from None
            script = self.scripts[sha] = Script(sha, source, shebang.flags, function)
        return script

    def flush(self) -> None:
        """Forget all scripts, with the settings that they changed in the Lua state (those of cjson)."""
        self.scripts.clear()
        self._engine.compiled.clear()
        self._engine = self._lua.state(self.shard)

    def _settle(self) -> None:
        """Leave the Lua state if it has become another shard's."""
        if self._engine.owner is not None and self._engine.owner is not self.shard:
            self._engine = self._lua.state(self.shard)
            for script in self.scripts.values():
                script.function = self._engine.compile_script(script.sha, parse_shebang(script.source).body)

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
            raise ErrorReply(NO_SCRIPT)
        return script

    def run(self, script: Script, key_count: int, values: Sequence[bytes], read_only: bool) -> Reply:
        """Run a script of this host on ``values``, the keys before the arguments. Raises as ``evalsha``."""
        shard = self.shard
        if self._engine.owner is not None:
            self._settle()
        run = ScriptRun.begin(shard, script.flags, read_only, values[:key_count] if shard.slots is not None else ())
        return self._engine.run(run, script.sha, "script", script.function, key_count, values)


def host_of(shard: NodeState) -> LuaHost:
    """The host of ``shard``, started when it is first needed."""
    host = shard.lua_host
    if host is None:
        host = shard.lua_host = LuaHost(shard, lua=cast("SharedLua | None", shard.shared_lua))
    return cast(LuaHost, host)
