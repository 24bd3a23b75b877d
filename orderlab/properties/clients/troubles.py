"""What can befall a step of a client, by name; conditions of the node refuse a command in the words of a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from orderlab.properties.clients.nodes import keys_of
from orderlab.sim.redis.error_conditions import (
    BUSY,
    OUT_OF_MEMORY,
    READ_ONLY,
    SLOT_MIGRATES,
    Condition,
    imposed,
    migrating_slots,
    strikes,
)
from orderlab.sim.redis.hash_slots import SLOT_COUNT
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.slot_map import SlotMap

RESTART: Final = "restart"
MOVED: Final = "moved"
CLUSTER_DOWN: Final = "cluster-down"
TROUBLES: Final = {
    "reply-lost": "the command is carried out, and its connection breaks before the reply",
    "refused": "the connection breaks before the command is carried out",
    "timeout": "the command is carried out, and its client stops waiting for the reply",
    "killed": "the client dies before the command",
    "paused": "the client stands still past a key's next deadline, or for a second where it asked for the time of day "
    "or another sleeps",
    "paused-longer": "the client stands still for a second longer than that",
    "scripts-flushed": "SCRIPT FLUSH before the command",
    "failover": "the last write is lost before the command",
}
"""Those that strike where none is named."""
_CONDITIONS: Final[dict[str, Condition]] = {each.name: each for each in (READ_ONLY, OUT_OF_MEMORY, BUSY, SLOT_MIGRATES)}
ALL_TROUBLES: Final = TROUBLES | {
    READ_ONLY.name: "the node is a replica: READONLY to a write",
    OUT_OF_MEMORY.name: "the node is full: OOM to what needs memory",
    BUSY.name: "the node runs a script for long: BUSY",
    MOVED: "another node has the key: MOVED",
    SLOT_MIGRATES.name: "the key's slot is on its way: ASK, or TRYAGAIN, to keys that are not here",
    CLUSTER_DOWN: "the cluster is down: CLUSTERDOWN",
    RESTART: "the node restarts with what it had at the last whole second: connections break, scripts are gone",
}
"""The others strike where they are named by ``--fault``."""


MIGRATIONS: Final = (MOVED, SLOT_MIGRATES.name)
"""In a scenario on a cluster these are no refusal: the slot, or the command's keys of it, go to the next node."""

LATE: Final = "late"
"""No fault, and free: while those that have begun sleep or wait, a client comes after the next moment at which one of
them goes on or a key ends. Nobody has promised when it comes."""
LATE_MAX: Final = 2
"""Moments that one client lets go by before it comes."""
PAUSES: Final = {"paused": 0, "paused-longer": 1_000_000}
"""Faults in which a client stands still, and for how many microseconds past the deadline: who waits for it by asking
from time to time asks once more meanwhile."""


def can_befall(execution: Any, op: Any, trouble: str) -> bool:
    """Whether a fault can strike before a lane of ``execution`` does ``op``, and would change anything."""
    shard, is_command = execution.shard, op.kind == "command"
    if trouble in PAUSES:
        if execution.has_told_time or any(ms >= shard.now_ms for ms in shard.all_deadlines_ms()):
            return True
        return any(not lane.is_done and (lane.op.until_us or 0) > execution.now_us for lane in execution.lanes.values())
    if trouble == "failover":
        return bool(execution.last_write is not None)
    if trouble == RESTART:
        return bool(is_command and shard.dirty != execution.synced_at)
    if execution.nodes is not None and trouble in MIGRATIONS:
        return is_command and bool(keys_of(op.what if isinstance(op.what[0], tuple) else (op.what,)))
    if is_condition(trouble):
        return is_command and can_refuse(trouble, op.what if isinstance(op.what[0], tuple) else (op.what,))
    return bool(trouble == "killed" or is_command)


def is_condition(trouble: str) -> bool:
    """Whether a fault makes the node refuse the command."""
    return trouble in _CONDITIONS or trouble in (MOVED, CLUSTER_DOWN)


def can_refuse(trouble: str, part: Sequence[Sequence[bytes]]) -> bool:
    """Whether a condition can stop one of the commands."""
    if trouble in _CONDITIONS:
        return any(strikes(_CONDITIONS[trouble], argv, wrote=False) for argv in part)
    return any((command := find(argv)) is not None and command.has_keys for argv in part)


@cache
def _elsewhere(is_up: bool) -> SlotMap:
    """A cluster in which another node has every slot."""
    slots = migrating_slots()
    other = next(name for name in slots.addresses if name != slots.myself)
    return SlotMap(slots.myself, slots.addresses, [other] * SLOT_COUNT, is_up=is_up)


@contextmanager
def befallen(shard: Shard, trouble: str) -> Iterator[None]:
    """Within it the node is in the condition, if the fault is one."""
    if trouble in _CONDITIONS:
        with imposed(shard, _CONDITIONS[trouble]):
            yield
    elif trouble in (MOVED, CLUSTER_DOWN):
        slots, shard.slots = shard.slots, _elsewhere(trouble == MOVED)
        try:
            yield
        finally:
            shard.slots = slots
    else:
        yield
