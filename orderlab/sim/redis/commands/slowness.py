"""SLOWLOG and LATENCY: which commands took long, on a served node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from orderlab.sim.redis.arguments import integer_between
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, ErrorReply, Reply, Verbatim, mapping
from orderlab.sim.redis.unsupported import UnsupportedCommand

_BAD_COUNT: Final = b"ERR count should be greater than or equal to -1"
_DISABLED: Final = (
    b"I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use "
    b'"CONFIG SET latency-monitor-threshold <milliseconds>." in order to enable it. If we weren\'t in a deep space '
    b"mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n"
)
_NOTHING_SEEN: Final = (
    b"Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I "
    b"honestly think you ought to sit down calmly, take a stress pill, and think things over.\n"
)


def _server(node: NodeState, what: str) -> Any:
    if node.server is None:
        raise UnsupportedCommand(f"{what} where nobody serves the node to clients")
    return node.server


@command("slowlog|get", -2, "admin loading stale")
def slowlog_get(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SLOWLOG GET [count]: the last first; -1: all."""
    if len(argv) > 3:
        shown = argv[1].split(b"\0")[0][:128]
        raise ErrorReply(b"ERR unknown subcommand or wrong number of arguments for '%b'. Try SLOWLOG HELP." % shown)
    entries = _server(node, "SLOWLOG").slow.entries
    count = integer_between(argv[2], -1, (1 << 63) - 1, _BAD_COUNT) if len(argv) == 3 else 10
    return [
        [each.number, each.at_s, each.took_us, list(each.argv), each.address, each.client_name]
        for each in (entries if count < 0 else entries[:count])
    ]


@command("slowlog|len", 2, "admin loading stale")
def slowlog_len(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SLOWLOG LEN."""
    return len(_server(node, "SLOWLOG").slow.entries)


@command("slowlog|reset", 2, "admin loading stale")
def slowlog_reset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SLOWLOG RESET."""
    _server(node, "SLOWLOG").slow.entries.clear()
    return OK


@command("latency|latest", 2, "admin noscript loading stale")
def latency_latest(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY LATEST: event, when, how long, the longest, for commands (``command``, ``fast-command``) alone."""
    events = _server(node, "LATENCY").slow.events
    return [[name.encode(), *event.samples[-1], event.max_ms] for name, event in events.items()]


@command("latency|history", 3, "admin noscript loading stale")
def latency_history(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY HISTORY event."""
    event = _server(node, "LATENCY").slow.events.get(argv[2].decode("latin1"))
    return [] if event is None else [list(sample) for sample in event.samples]


@command("latency|reset", -2, "admin noscript loading stale")
def latency_reset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY RESET [event ...]: how many there were."""
    events = _server(node, "LATENCY").slow.events
    names = [name.decode("latin1") for name in argv[2:]] or list(events)
    return sum(events.pop(name, None) is not None for name in names)


@command("latency|doctor", 2, "admin noscript loading stale")
def latency_doctor(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY DOCTOR: where there is nothing to advise on."""
    server = _server(node, "LATENCY")
    if server.slow.events:
        raise UnsupportedCommand("LATENCY DOCTOR on events")
    return Verbatim(_NOTHING_SEEN if server.server_settings.latency_threshold_ms else _DISABLED)


@command("latency|graph", 3, "admin noscript loading stale")
def latency_graph(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY GRAPH event: of an event that never was."""
    if argv[2].decode("latin1") in _server(node, "LATENCY").slow.events:
        raise UnsupportedCommand("LATENCY GRAPH of an event")
    raise ErrorReply(b"ERR No samples available for event '%b'" % argv[2].split(b"\0")[0])


@command("latency|histogram", -2, "admin noscript loading stale")
def latency_histogram(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LATENCY HISTOGRAM [command ...]: calls that took at most so many microseconds, as powers of two."""
    by_command = _server(node, "LATENCY").statistics.by_command
    wanted = [name.lower() for name in argv[2:]]
    facts: list[Reply] = []
    for name, calls in by_command.items():
        is_wanted = not wanted or name in wanted or name.partition(b"|")[0] in wanted
        if is_wanted and any(calls.buckets):
            cumulated = mapping(node.resp, [part for pair in calls.histogram() for part in pair])
            of_calls = [b"calls", sum(calls.buckets), b"histogram_usec", cumulated]
            facts += [name, mapping(node.resp, of_calls)]
    return mapping(node.resp, facts)
