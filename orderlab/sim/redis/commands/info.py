"""INFO: the facts of a node, by section.

Of the process, its memory and its disk those lines are there that mean something here; a lone node (no process) has
those of its keyspace, its scripts and its conditions. `notes/serve.md` says what is not told.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence

from orderlab.sim.redis.commands.server import used_memory
from orderlab.sim.redis.conditions import DiskError
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import Reply, Verbatim
from orderlab.sim.redis.subscriptions import CHANNEL, PATTERN, SHARD_CHANNEL


def _server(node: NodeState) -> dict[str, object]:
    mode = "standalone" if node.slots is None else "cluster"
    time_us = node.now_ms * 1000 + node.now_us
    up_s = (node.now_ms - node.started_ms) // 1000
    of_process = {} if node.server is None else node.server.facts()
    number = node.version.number.decode()
    of_product = {"server_name": "valkey", "valkey_version": number} if node.version.is_valkey else {}
    return {
        "redis_version": node.version.as_redis.decode(),
        **of_product,
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_mode": mode,
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": struct.calcsize("P") * 8,
        **of_process,
        "server_time_usec": time_us,
        "uptime_in_seconds": up_s,
        "uptime_in_days": up_s // 86_400,
        "lru_clock": time_us // 1_000_000 & 0xFFFFFF,
        "executable": sys.executable,
        "config_file": "",
    }


def _clients(node: NodeState) -> dict[str, object]:
    if node.server is None:
        return {"connected_clients": 0, "blocked_clients": len(node.waits), "tracking_clients": 0}
    connections = node.server.connections.values()
    return {
        "connected_clients": len(connections),
        "maxclients": node.server.server_settings.clients_max,
        "blocked_clients": len(node.waits) + sum(each.is_postponed for each in connections),
        "tracking_clients": 0,
    }


def _commandstats(node: NodeState) -> dict[str, object]:
    return {} if node.server is None else node.server.statistics.of_commands()


def _errorstats(node: NodeState) -> dict[str, object]:
    return {} if node.server is None else node.server.statistics.of_errors()


def _memory(node: NodeState) -> dict[str, object]:
    settings = node.config
    used = used_memory(node)
    return {
        "used_memory": used,
        "used_memory_human": _bytes(used),
        "number_of_cached_scripts": 0 if node.lua_host is None else len(node.lua_host.scripts),
        "maxmemory": settings.maxmemory,
        "maxmemory_human": _bytes(settings.maxmemory),
        "maxmemory_policy": settings.maxmemory_policy,
    }


def _bytes(count: int) -> str:
    """As a server shows a size."""
    if count < 1024:
        return f"{count}B"
    power = min(5, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.2f}{'BKMGTP'[power]}"


def _persistence(node: NodeState) -> dict[str, object]:
    return {
        "loading": 0,
        "rdb_bgsave_in_progress": 0,
        "rdb_last_save_time": node.started_ms // 1000,
        "rdb_last_bgsave_status": "err" if node.disk_error is DiskError.SNAPSHOT else "ok",
        "aof_enabled": int(node.disk_error is DiskError.APPEND),
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "err" if node.disk_error is DiskError.APPEND else "ok",
    }


def _stats(node: NodeState) -> dict[str, object]:
    counted = {} if node.server is None else node.server.statistics.of_node()
    subscribed = (("pubsub_channels", CHANNEL), ("pubsub_patterns", PATTERN), ("pubsubshard_channels", SHARD_CHANNEL))
    return {
        **counted,
        "expired_keys": node.expired_keys,
        "evicted_keys": node.evicted_keys,
        **{line: len(node.subscribers.names(kind)) for line, kind in subscribed},
    }


def _replication(node: NodeState) -> dict[str, object]:
    if not node.is_replica:
        replicas = {"role": "master", "connected_slaves": node.good_replicas}
        return (
            replicas
            if node.server is None
            else replicas | {"master_failover_state": "no-failover", "master_repl_offset": 0}
        )
    link = "down" if node.master_link_down else "up"
    return {"role": "slave", "master_link_status": link, "slave_read_only": int(node.config.replica_read_only)}


def _cpu(node: NodeState) -> dict[str, object]:
    """Of the process that serves the node; this thread's is taken for the main thread's."""
    if node.server is None:
        return {}
    used = os.times()
    own, children = (("sys", used.system), ("user", used.user)), (
        ("sys", used.children_system), ("user", used.children_user),
    )  # fmt: skip
    return {
        f"used_cpu_{kind}{of}": f"{seconds:.6f}"
        for of, usage in (("", own), ("_children", children), ("_main_thread", own))
        for kind, seconds in usage
    }


def _cluster(node: NodeState) -> dict[str, object]:
    return {"cluster_enabled": int(node.slots is not None)}


def _keyspace(node: NodeState) -> dict[str, object]:
    facts: dict[str, object] = {}
    for index, database in node.databases().items():
        if database.data:
            deadlines_ms = database.deadlines_ms.values()
            mean_ms = sum(max(0, each - node.now_ms) for each in deadlines_ms) // max(1, len(deadlines_ms))
            facts[f"db{index}"] = f"keys={len(database.data)},expires={len(deadlines_ms)},avg_ttl={mean_ms}"
    return facts


_SECTIONS: dict[bytes, Callable[[NodeState], dict[str, object]]] = {
    b"server": _server,
    b"clients": _clients,
    b"memory": _memory,
    b"persistence": _persistence,
    b"stats": _stats,
    b"replication": _replication,
    b"cpu": _cpu,
    b"modules": lambda node: {},
    b"commandstats": _commandstats,
    b"errorstats": _errorstats,
    b"cluster": _cluster,
    b"keyspace": _keyspace,
}
_EVERYTHING = (b"all", b"everything")
_NOT_BY_DEFAULT = (b"commandstats",)


@command("info", -1, "loading stale")
def info(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """INFO [section ...]: the facts that the kernel has."""
    wanted = [word.lower() for word in argv[1:]]
    everything = any(word in _EVERYTHING for word in wanted)
    usual = not wanted or b"default" in wanted
    parts = []
    for name, facts_of in _SECTIONS.items():
        if everything or name in wanted or (usual and name not in _NOT_BY_DEFAULT):
            lines = "".join(f"{key}:{value}\r\n" for key, value in facts_of(node).items())
            title = "CPU" if name == b"cpu" else name.decode().capitalize()
            parts.append(f"# {title}\r\n{lines}".encode())
    return Verbatim(b"\r\n".join(parts))
