"""Faults of a served node, as a client would see each: by the command ORDERLAB of any connection, or by the lines of a
file at their times.

What is in the way of the fault itself is not: ORDERLAB is carried out before the node's own conditions are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.redis.cluster import Cluster
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.keyspace import FrozenKeyspace
from orderlab.sim.redis.replies import OK, ErrorReply, Reply
from orderlab.sim.redis.shard import Shard

DURATION_MAX_MS: Final = 3_600_000


class BadFault(Exception):
    """A line that names no fault, and what would."""


class Struck(Protocol):
    """What faults know of the node that they strike (``served_node``)."""

    shard: Shard

    def stand_still(self, seconds: float) -> None:
        """Carry out nothing for so long."""
        ...

    def cut_off(self, is_cut_off: bool) -> None:
        """Let no byte pass, or let them pass again."""
        ...

    async def be_down(self, seconds: float) -> None:
        """Refuse connections for so long."""
        ...


class NodeFaults:
    """The faults of one node. What a method's docstring begins with is how it is asked for."""

    def __init__(self, node: Struck) -> None:
        self._node = node
        self.cluster: Cluster | None = None
        """The one that its shard is a master of."""
        self._lost_replies = 0
        self._lost_of = b""
        self._replica: FrozenKeyspace | None = None
        self._memory_before: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def command(self, words: Sequence[bytes]) -> Reply:
        """ORDERLAB fault [argument ...]."""
        try:
            self.strike([word.decode("utf-8", "replace").lower() for word in words])
        except BadFault as error:
            return ErrorReply(b"ERR orderlab: " + str(error).encode())
        return OK

    def strike(self, words: Sequence[str]) -> None:
        """Let a fault happen now. Raises BadFault."""
        name, arguments = (words[0], words[1:]) if words else ("", ())
        strike = FAULTS.get(name)
        if strike is None:
            raise BadFault(f"fault '{name}': there is none such; {did_you_mean(name, list(FAULTS))}")
        strike(self, arguments)

    def stall(self, arguments: Sequence[str]) -> None:
        """stall MS: nothing is carried out for so long; connections stay."""
        self._node.stand_still(_milliseconds("stall", arguments) / 1000)

    def kill(self, arguments: Sequence[str]) -> None:
        """kill MS [empty]: connections are reset and the port refuses for so long; scripts are forgotten, and with
        ``empty`` the keys as well."""
        duration_ms = _milliseconds("kill", arguments[:1])
        if arguments[1:] not in ([], ["empty"], ()):
            raise BadFault(f"kill {' '.join(arguments)}: write kill MS, or kill MS empty")
        shard = self._node.shard
        if arguments[1:]:
            shard.load(FrozenKeyspace())
        if shard.lua_host is not None:
            shard.lua_host.flush()
        self._go_down(duration_ms)

    def noscript(self, arguments: Sequence[str]) -> None:
        """noscript: all scripts are forgotten, as after a restart or a failover."""
        _none("noscript", arguments)
        if self._node.shard.lua_host is not None:
            self._node.shard.lua_host.flush()

    def lose_reply(self, arguments: Sequence[str]) -> None:
        """lose-reply [COUNT [COMMAND]]: the next commands (of that name) are carried out, and their connections are
        reset in place of the reply."""
        count = arguments[0] if arguments else "1"
        if not count.isdigit() or len(arguments) > 2:
            raise BadFault(f"lose-reply {' '.join(arguments)}: write lose-reply COUNT COMMAND")
        self._lost_replies = int(count)
        self._lost_of = arguments[1].encode() if len(arguments) == 2 else b""

    def oom(self, arguments: Sequence[str]) -> None:
        """oom on | off: memory is full and nothing may be evicted."""
        config = self._node.shard.config
        if list(arguments) == ["on"]:
            if self._memory_before is None:
                self._memory_before = config.maxmemory
            config.maxmemory, config.maxmemory_policy = 1, "noeviction"
        elif list(arguments) == ["off"]:
            config.maxmemory, self._memory_before = self._memory_before or 0, None
        else:
            raise BadFault(f"oom {' '.join(arguments)}: write oom on, or oom off")

    def partition(self, arguments: Sequence[str]) -> None:
        """partition MS: no byte passes in either direction for so long; the node itself goes on."""
        duration_ms = _milliseconds("partition", arguments)
        self._node.cut_off(True)
        asyncio.get_running_loop().call_later(duration_ms / 1000, self._node.cut_off, False)

    def lag(self, arguments: Sequence[str]) -> None:
        """lag: from now on the replica follows no longer; a failover loses what is written from here."""
        _none("lag", arguments)
        self._replica = self._node.shard.freeze()

    def failover(self, arguments: Sequence[str]) -> None:
        """failover MS: the replica takes the master's place at its address after so long: connections are reset,
        scripts are gone, and so is what was written since ``lag``."""
        duration_ms = _milliseconds("failover", arguments)
        if self._replica is not None:
            self._node.shard.load(self._replica)
            self._replica = None
        if self._node.shard.lua_host is not None:
            self._node.shard.lua_host.flush()
        self._go_down(duration_ms)

    def migrate(self, arguments: Sequence[str]) -> None:
        """migrate SLOT TARGET [begin | keys | end]: in a cluster a slot moves to the master of that number, whole or
        one step of it (open, move the keys, close)."""
        steps = arguments[2:] or ["begin", "keys", "end"]
        is_right = len(arguments) in (2, 3) and all(word.isdigit() for word in arguments[:2])
        if self.cluster is None or not is_right or not set(steps) <= {"begin", "keys", "end"}:
            raise BadFault(f"migrate {' '.join(arguments)}: write migrate SLOT TARGET, where --cluster serves several")
        slot, target, cluster = int(arguments[0]), int(arguments[1]), self.cluster
        if slot >= SLOT_COUNT or target >= len(cluster.shards):
            raise BadFault(
                f"migrate {slot} {target}: slots end at {SLOT_COUNT - 1}, masters at {len(cluster.shards) - 1}"
            )
        source = cluster.owner(slot)
        if source == target:
            return
        try:
            if "begin" in steps:
                cluster.begin_migration(slot, source, target)
            if "keys" in steps:
                keys = [key for key in cluster.shards[source].live_keys() if hash_slot(key) == slot]
                cluster.migrate_keys(source, target, *keys)
            if "end" in steps:
                cluster.end_migration(slot, source, target)
                cluster.gossip()
        except ErrorReply as error:
            raise BadFault(f"migrate {slot} {target}: {error.message.decode()}") from None

    # -- what the node asks ------------------------------------------------------------------------------------

    def loses_reply(self, name: bytes) -> bool:
        """Whether the reply to this command is to be lost."""
        if not self._lost_replies or (self._lost_of and self._lost_of != name):
            return False
        self._lost_replies -= 1
        return True

    def _go_down(self, duration_ms: int) -> None:
        task = asyncio.get_running_loop().create_task(self._node.be_down(duration_ms / 1000))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


Strike = Callable[[NodeFaults, Sequence[str]], None]
FAULTS: Final[dict[str, Strike]] = {
    "stall": NodeFaults.stall,
    "kill": NodeFaults.kill,
    "noscript": NodeFaults.noscript,
    "lose-reply": NodeFaults.lose_reply,
    "oom": NodeFaults.oom,
    "partition": NodeFaults.partition,
    "lag": NodeFaults.lag,
    "failover": NodeFaults.failover,
    "migrate": NodeFaults.migrate,
}


def _milliseconds(fault: str, arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not arguments[0].isdigit() or int(arguments[0]) > DURATION_MAX_MS:
        raise BadFault(f"{fault} {' '.join(arguments)}: write {fault} MILLISECONDS, at most {DURATION_MAX_MS}")
    return int(arguments[0])


def _none(fault: str, arguments: Sequence[str]) -> None:
    if arguments:
        raise BadFault(f"{fault} {' '.join(arguments)}: it takes no argument; leave it out")


def read_schedule(file: Path) -> list[tuple[float, list[str]]]:
    """The lines ``SECONDS fault [argument ...]`` of a file; ``#`` begins a remark. Raises InputError."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--faults {file}: {getattr(error, 'strerror', None) or error}") from None
    schedule = []
    for number, text in enumerate(lines, 1):
        words = text.partition("#")[0].lower().split()
        if not words:
            continue
        try:
            at_s = float(words[0])
        except ValueError:
            at_s = -1.0
        if not 0 <= at_s <= DURATION_MAX_MS or len(words) < 2 or words[1] not in FAULTS:
            faults = ", ".join(FAULTS)
            raise InputError(f"--faults {file}:{number}: {text.strip()[:60]}: write SECONDS FAULT, one of {faults}")
        schedule.append((at_s, words[1:]))
    return schedule


async def strike_by(
    schedule: Sequence[tuple[float, list[str]]], faults: NodeFaults, on_bad: Callable[[str], None]
) -> None:
    """Let the faults of a schedule happen at their times, from now on."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    for at_s, words in sorted(schedule, key=lambda entry: entry[0]):
        await asyncio.sleep(max(0.0, begun_s + at_s - loop.time()))
        try:
            faults.strike(words)
        except BadFault as error:
            on_bad(str(error))
