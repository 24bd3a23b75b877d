"""What befalls a node and its scripts from outside: conditions under which commands fail, with their errors, and abort
points.

Before every ``redis.call`` of a script ``Shard.interrupt`` is asked. It returns None (go on), an ``ErrorReply`` (the
call raises it), ``Abort.KILL`` or ``Abort.CRASH``. No exception of this module may be caught by the script's own
``pcall``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from orderlab.sim.redis.replies import ErrorReply

READ_ONLY = b"READONLY You can't write against a read only replica."
MASTER_DOWN = b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
NO_REPLICAS = b"NOREPLICAS Not enough good replicas to write."
OUT_OF_MEMORY = b"OOM command not allowed when used memory > 'maxmemory'."
BUSY_SCRIPT = b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
BUSY_FUNCTION = b"BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."


class DiskError(Enum):
    """Why the node cannot persist."""

    SNAPSHOT = "the last background save failed"
    APPEND = "the append-only file cannot be written (disk full)"

    def of_command(self) -> bytes:
        """The error of a write command."""
        if self is DiskError.APPEND:
            return b"MISCONF Errors writing to the AOF file: No space left on device"
        return (
            b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
            b"Commands that may modify the data set are disabled, because this instance is configured to report errors "
            b"during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis "
            b"logs for details about the RDB error."
        )

    def of_script(self) -> bytes:
        """The error of a script that declares flags and not ``no-writes``."""
        if self is DiskError.APPEND:
            return (
                b"MISCONF Redis is configured to persist data to AOF, but it's currently unable to persist to disk. "
                b"Writable scripts are blocked. Use 'no-writes' flag for read only scripts. "
                b"AOF error: No space left on device"
            )
        return (
            b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
            b"Writable scripts are blocked. Use 'no-writes' flag for read only scripts."
        )


class Busy(Enum):
    """A script has been running for longer than ``busy-reply-threshold``: others are refused."""

    SCRIPT = BUSY_SCRIPT
    FUNCTION = BUSY_FUNCTION


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
        by_clock = limit == "seconds"  # what no count sees: it may be this machine that is slow
        what = "processor time (the clock ended it, not a count)" if by_clock else limit
        super().__init__(f"the script did not end within its limit of {what}")
        self.limit = limit
