"""Abort points: what may happen to a script just before one of its calls, other than that the call runs.

``Shard.interrupt`` is asked before every ``redis.call``. It returns None (go on), an ``ErrorReply`` (the call raises
it), ``Abort.KILL`` or ``Abort.CRASH``. Neither exception below may be caught by the script's own ``pcall``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from orderlab.sim.redis.replies import ErrorReply


class Abort(Enum):
    """How a script ends from outside."""

    KILL = "SCRIPT KILL: the script ends, if it has called no write command yet; otherwise it cannot be killed"
    CRASH = "the node crashes: nothing of the script has reached the append-only file or a replica"


Interrupt = Callable[[int, Sequence[bytes]], ErrorReply | Abort | None]
"""``(index of the inner call from 0, its argv) -> what happens before it``."""


class ScriptKilled(Exception):
    """The script was killed before its first write."""


class NodeCrashed(Exception):
    """The node went down inside a script: the effects of the script are gone, the client gets no reply."""


class ScriptTimeout(Exception):
    """A script did not end within its limits: it was stopped in the middle, its writes stay. ``limit`` says which."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the script did not end within its limit of {limit}")
        self.limit = limit
