"""Conditions of a node under which commands fail: state of the shard, from which the errors follow by themselves."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orderlab.sim.redis.shard import Shard

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


def is_calm(shard: Shard) -> bool:
    """Whether no condition of the node, and no cluster, can refuse anything: the usual case, made quick."""
    config = shard.config
    return (
        config.maxmemory == 0
        and config.min_replicas_to_write == 0
        and shard.slots is None
        and shard.disk_error is None
        and shard.busy is None
        and not shard.is_replica
    )


def denies_writes_on_disk_error(shard: Shard) -> DiskError | None:
    """The disk error that stops writes, if one does."""
    if shard.disk_error is DiskError.SNAPSHOT and not shard.config.stop_writes_on_bgsave_error:
        return None
    return shard.disk_error


def is_read_only_replica(shard: Shard) -> bool:
    """Whether the node is a replica that refuses writes of clients."""
    return shard.is_replica and shard.config.replica_read_only


def is_stale(shard: Shard) -> bool:
    """Whether the node is a replica that has lost its master and is told not to serve old data."""
    return shard.is_replica and shard.master_link_down and not shard.config.replica_serve_stale_data


def lacks_replicas(shard: Shard) -> bool:
    """Whether fewer replicas than ``min-replicas-to-write`` are in touch. Only a master asks."""
    config = shard.config
    return (
        not shard.is_replica
        and config.min_replicas_to_write > 0
        and config.min_replicas_max_lag > 0
        and shard.good_replicas < config.min_replicas_to_write
    )


def persistence_refusal(shard: Shard) -> bytes | None:
    """The error of a write that the disk or the lack of replicas stops, in the server's order."""
    disk_error = denies_writes_on_disk_error(shard)
    if disk_error is not None:
        return disk_error.of_command()
    return NO_REPLICAS if lacks_replicas(shard) else None
