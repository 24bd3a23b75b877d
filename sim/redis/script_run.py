"""One run of a script: what the checks before each of its commands and the abort points need to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from sim.redis.replies import ErrorReply


class Abort(Enum):
    """What can stop a script from outside, before one of its commands."""

    KILL = "SCRIPT KILL"
    """As SCRIPT KILL: works only while the script has not written; afterwards it is ignored, as UNKILLABLE is."""
    CRASH = "crash"
    """The process dies: nothing that the script did has reached the AOF or a replica, so all of it is undone."""


Interrupt = Callable[[int, Sequence[bytes]], "ErrorReply | Abort | None"]
"""(index of the ``redis.call`` within its script from 0, its argv) -> an error that the call raises, an Abort, or None."""


class ServerCrash(Exception):
    """The server went down in the middle of a script (``Abort.CRASH``); the keyspace is as it was before it."""


class ScriptRun:
    """A script or function while it runs. The shard holds the running one in ``Shard.script``; None outside."""

    __slots__ = ("allow_cross_slot", "allow_oom", "allow_stale", "calls", "from_function", "name", "no_cluster")
    __slots__ += ("read_only", "shebang", "wrote")

    def __init__(self, name: bytes, from_function: bool = False, read_only: bool = False) -> None:
        self.name = name
        """SHA1 in hexadecimal of a script, name of a function."""
        self.from_function = from_function
        self.read_only = read_only
        """EVAL_RO, EVALSHA_RO, FCALL_RO or the flag ``no-writes``: write commands are refused."""
        self.shebang = from_function
        """True when flags were declared (``#!lua ...``, or a function): the whole run was checked before it began."""
        self.allow_oom = False
        self.allow_stale = False
        self.no_cluster = False
        self.allow_cross_slot = False
        self.wrote = False
        """True from the first write command on that passed its checks: SCRIPT KILL no longer works."""
        self.calls = 0
        """``redis.call`` and ``redis.pcall`` so far."""
