"""One Lua state for the scripts of many shards.

Every server has a Lua state of its own, but what a script leaves behind in it for the next one is little: the settings of cjson and
of the collector. So shards that one thread uses share a state until a script changes a setting. From then on that state is the
shard's alone whose script did so, and the others go on in a new one. What it saves are the caches of the processor: the nodes
of a simulated cluster take turns.
"""

from __future__ import annotations

from orderlab.sim.redis.lua.engine import LuaEngine
from orderlab.sim.redis.lua.sandbox import SCRIPT_FILES, Limits
from orderlab.sim.redis.node_state import NodeState


class SharedLua:
    """Hands out Lua states with the settings of a new one. No script of a shard may run within a script of another that shares."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._state: LuaEngine | None = None

    def state(self, shard: NodeState) -> LuaEngine:
        """A state in which no script has changed a setting yet, for ``shard`` among others."""
        if self._state is None or self._state.owner is not None:
            self._state = LuaEngine(shard, self.limits, SCRIPT_FILES)
        return self._state
