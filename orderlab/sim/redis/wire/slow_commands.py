"""What a served node remembers of commands that took long: SLOWLOG, and the events of LATENCY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.server_facts import called_row
from orderlab.sim.redis.wire.call_counts import is_rejection
from orderlab.sim.redis.wire.monitoring import redacted
from orderlab.sim.redis.wire.served_client import ServedClient
from orderlab.sim.redis.wire.server_settings import ServerSettings

ARGUMENTS_MAX: Final = 32
ARGUMENT_BYTES_MAX: Final = 128
SAMPLES_MAX: Final = 160
"""Of one event: a ring, as a server's."""


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """One entry of SLOWLOG."""

    number: int
    at_s: int
    took_us: int
    argv: tuple[bytes, ...]
    address: bytes
    client_name: bytes


@dataclass(slots=True)
class LatencyEvent:
    """Samples of one kind of command, at most one a second: (seconds, milliseconds)."""

    samples: list[tuple[int, int]] = field(default_factory=list)
    max_ms: int = 0

    def note(self, at_s: int, took_ms: int) -> None:
        """Add a sample; within a second the longest counts."""
        self.max_ms = max(self.max_ms, took_ms)
        if self.samples and self.samples[-1][0] == at_s:
            self.samples[-1] = (at_s, max(self.samples[-1][1], took_ms))
            return
        self.samples.append((at_s, took_ms))
        del self.samples[:-SAMPLES_MAX]


class SlowCommands:
    """The last that were slow, and the events."""

    def __init__(self, settings: ServerSettings) -> None:
        self.entries: list[SlowCommand] = []
        """The last first."""
        self.events: dict[str, LatencyEvent] = {}
        self._settings = settings
        self._numbers = 0

    def note(self, argv: Sequence[bytes], took_ns: int, reply: Reply, at_ms: int, connection: ServedClient) -> None:
        """A command was asked for: remember it, if it was carried out and slow."""
        settings, took_us = self._settings, took_ns // 1000
        if not (0 <= settings.slower_than_us <= took_us or settings.latency_threshold_ms):
            return
        if isinstance(reply, ErrorReply) and is_rejection(reply.message):
            return
        took_ms = took_us // 1000
        row = called_row(argv)
        flags = () if row is None else cast("list[Any]", row[2])
        if 0 < settings.latency_threshold_ms <= took_ms:
            kind = "fast-command" if b"fast" in flags else "command"
            self.events.setdefault(kind, LatencyEvent()).note(at_ms // 1000, took_ms)
        if not 0 <= settings.slower_than_us <= took_us:
            return
        if b"skip_slowlog" in flags:
            return
        address, client_name = connection.address, connection.client.name
        entry = SlowCommand(self._numbers, at_ms // 1000, took_us, _shown(argv), address, client_name)
        self._numbers += 1
        self.entries.insert(0, entry)
        del self.entries[settings.slow_commands_max :]


def _shown(argv: Sequence[bytes]) -> tuple[bytes, ...]:
    """As an entry keeps a line: without passwords, and cut."""
    words = list(redacted(argv))
    shown = [
        word if len(word) <= ARGUMENT_BYTES_MAX
        else b"%b... (%d more bytes)" % (word[:ARGUMENT_BYTES_MAX], len(word) - ARGUMENT_BYTES_MAX)
        for word in words[:ARGUMENTS_MAX]
    ]  # fmt: skip
    if len(words) > ARGUMENTS_MAX:
        shown[-1] = b"... (%d more arguments)" % (len(words) - ARGUMENTS_MAX + 1)
    return tuple(shown)
