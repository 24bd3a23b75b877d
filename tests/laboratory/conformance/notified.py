"""Keyspace notifications of the kernel against those of a server, event by event, under generated commands:
``python -m tests.laboratory.conformance --notified N``.

After each command its own connection publishes a mark, so that it is known which command an event belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.registry import COMMANDS, load_commands
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.grammar import Argv
from tests.laboratory.conformance.judge import quote
from tests.laboratory.conformance.sequences import (
    DEFAULT_ENCODINGS,
    SMALL_ENCODINGS,
    CommandSequence,
    Generator,
    SeededDraw,
)
from tests.laboratory.conformance.subjects import KernelSubject

FLAGS = b"KEAnm"
MARK = b"__keymark__"
END = b"-1"
SORTED_BY = re.compile(rb"\bsort(_ro)?\b.*\b(by|get)\b", re.IGNORECASE | re.DOTALL)
"""SORT misses the keys of its patterns too, which the kernel does not tell."""
Event = tuple[bytes, bytes]
"""Channel and message."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A command after which the two tell of different events."""

    steps: tuple[Argv, ...]
    kernel: list[Event]
    server: list[Event]

    def shown(self) -> str:
        """As lines that can be typed."""
        lines = [" ".join(map(quote, step)) for step in self.steps[-12:]]
        return "\n".join([*lines, f"-> kernel {self.kernel!r}", f"   server {self.server!r}"])


def _events(pushed: Sequence[Reply]) -> dict[int, list[Event]]:
    """Events before each mark."""
    found: dict[int, list[Event]] = {}
    events: list[Event] = []
    for _, _, channel, message in pushed:
        if channel == MARK:
            found[int(message)] = events
            events = []
        else:
            events.append((channel, message))
    return found


def _on_server(
    server: Connection, watcher: Connection, sequence: CommandSequence, steps: Sequence[Argv]
) -> dict[int, list[Event]]:
    limits = SMALL_ENCODINGS if sequence.has_small_encodings else DEFAULT_ENCODINGS
    settings = [word for name, limit in limits.items() for word in (name, b"%d" % limit)]
    commands: list[Argv] = [(b"FLUSHALL",), (b"CONFIG", b"SET", *settings), (b"FUNCTION", b"FLUSH")]
    for at, step in enumerate(steps):
        commands += [step, (b"PUBLISH", MARK, b"%d" % at)]
    commands += [(b"RESET",), (b"SCRIPT", b"FLUSH"), (b"PUBLISH", MARK, END)]
    server.send(commands)
    pushed = []
    while True:
        pushed += watcher.receive(1)
        if pushed[-1][2:] == [MARK, END]:
            break
    server.receive(len(commands))
    return _events(pushed)


def _on_kernel(
    kernel: KernelSubject, watcher: Client, sequence: CommandSequence, steps: Sequence[Argv], now_ms: int
) -> dict[int, list[Event]]:
    kernel.begin(sequence, now_ms)
    for at, step in enumerate(steps):
        kernel.execute(step)
        kernel.execute((b"PUBLISH", MARK, b"%d" % at))
    kernel.execute((b"RESET",))
    kernel.execute((b"PUBLISH", MARK, END))
    pushed, watcher.pushed = watcher.pushed, []
    return _events(pushed)


def run(host: str, port: int, count: int, seed: int, length: int = 30) -> tuple[int, int, list[Parting]]:
    """Compare at least ``count`` commands; how many were, how many events they told of, and where the two part."""
    load_commands()
    server, server_watcher = Connection(host, port), Connection(host, port)
    server.demand(b"CONFIG", b"SET", b"notify-keyspace-events", FLAGS)
    server.demand(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")
    server_watcher.demand(b"PSUBSCRIBE", b"__key*__:*")
    server_watcher.send([(b"PSUBSCRIBE", MARK)])
    server_watcher.receive(1)
    kernel, watcher = KernelSubject(), Client()
    kernel.shard.execute((b"CONFIG", b"SET", b"notify-keyspace-events", FLAGS))
    kernel.shard.execute((b"PSUBSCRIBE", b"__key*__:*", MARK), watcher)
    watcher.pushed.clear()
    generator, draw = Generator(COMMANDS), SeededDraw(seed)
    compared = events = 0
    partings: list[Parting] = []
    while compared < count:
        sequence = generator.sequence(draw, length)
        steps = [step for step in sequence.steps if not isinstance(step, int)]
        seconds, _ = server.demand(b"TIME")
        theirs = _on_server(server, server_watcher, sequence, steps)
        ours = _on_kernel(kernel, watcher, sequence, steps, int(seconds) * 1000)
        compared += len(steps)
        events += sum(map(len, theirs.values()))
        for at in theirs:
            if ours.get(at) != theirs[at] and not any(SORTED_BY.search(b" ".join(step)) for step in steps[: at + 1]):
                partings.append(Parting(tuple(steps[: at + 1]), ours.get(at, []), theirs[at]))
                break
    return compared, events, partings
