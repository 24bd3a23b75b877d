"""What a served node counts for INFO: calls, errors, connections and bytes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from orderlab.sim.redis.replies import ErrorReply, Reply

_REJECTIONS: Final = tuple(
    b"NOAUTH NOPERM BUSY OOM LOADING MASTERDOWN NOREPLICAS READONLY MISCONF MOVED ASK CLUSTERDOWN CROSSSLOT "
    b"TRYAGAIN".split()
)
"""Codes of errors that a command gets before it is carried out."""
_REJECTION_TEXTS: Final = (b"ERR wrong number of arguments", b"ERR Can't execute ", b"ERR DEBUG command not")

BUCKETS: Final = 24


class Calls:
    """The calls of one command, counted."""

    __slots__ = ("buckets", "calls", "failed", "ns", "rejected")

    def __init__(self) -> None:
        self.calls = self.ns = self.rejected = self.failed = 0
        self.buckets = [0] * BUCKETS
        """Calls by the bits of their units of 1,024 ns, for LATENCY HISTOGRAM."""

    def histogram(self) -> list[tuple[int, int]]:
        """Microseconds, and how many calls took at most so many; those where there are more than before."""
        below = 0
        rows = []
        for at, count in enumerate(self.buckets):
            below += count
            if count:
                rows.append((((1032 << at) - 1) // 1000, below))  # as the server's histogram rounds
        return rows

    def line(self) -> str:
        """As INFO shows it."""
        us = self.ns // 1000
        mean = us / self.calls if self.calls else 0.0
        return (
            f"calls={self.calls},usec={us},usec_per_call={mean:.2f},"
            f"rejected_calls={self.rejected},failed_calls={self.failed}"
        )


def is_rejection(message: bytes) -> bool:
    """Whether an error says that its command was not carried out; told by its text, as nothing else says so."""
    if b" script: " in message:
        return False
    return message.split(b" ", 1)[0] in _REJECTIONS or message.startswith(_REJECTION_TEXTS)


class Statistics:
    """The counts of one node since its start, or since CONFIG RESETSTAT."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.by_command: dict[bytes, Calls] = {}
        self.errors: Counter[bytes] = Counter()
        self.connections = self.refused_connections = 0
        self.input_bytes = self.output_bytes = 0

    def count(self, name: bytes, ns: int, reply: Reply, is_tracked: bool = True) -> None:
        """A command was asked for; ``name`` as INFO shows it."""
        calls = self.by_command.get(name)
        if calls is None:
            calls = self.by_command[name] = Calls()
        if type(reply) is ErrorReply:
            self.errors[reply.message.split(b" ", 1)[0]] += 1
            if is_rejection(reply.message):
                calls.rejected += 1
                return
            calls.failed += 1
        calls.calls += 1
        calls.ns += ns
        if is_tracked:
            calls.buckets[min((ns >> 10).bit_length(), BUCKETS - 1)] += 1

    def of_node(self) -> dict[str, object]:
        """Lines of the section Stats."""
        return {
            "total_connections_received": self.connections,
            "total_commands_processed": sum(each.calls for each in self.by_command.values()),
            "total_net_input_bytes": self.input_bytes,
            "total_net_output_bytes": self.output_bytes,
            "rejected_connections": self.refused_connections,
            "total_error_replies": sum(self.errors.values()),
        }

    def of_commands(self) -> dict[str, object]:
        """Lines of the section Commandstats. What scripts call is part of their own calls alone."""
        return {f"cmdstat_{name.decode('latin1')}": calls.line() for name, calls in self.by_command.items()}

    def of_errors(self) -> dict[str, object]:
        """Lines of the section Errorstats."""
        return {f"errorstat_{code.decode('latin1')}": f"count={count}" for code, count in sorted(self.errors.items())}
