"""What commands cost on a real server, measured by its own statistics; and a cost model that carries them.

How: the real scripts of a store are called through pipelines, and the differences of ``INFO commandstats`` and ``INFO
cpu`` tell what each inner command, each whole call and each read of the socket cost. A whole call less its inner
commands is the script's own time; two batch sizes separate what it costs once from what it costs per message, and two
pipeline sizes separate a command's share of parsing and replying from that of a system call.

What it cannot tell: costs of the append-only file, of a network card, of a cluster's bus; costs of commands that the
scripts do not call, which stay as they were; anything beside queues of a few messages, where sorted sets are small. The
server's own clock around a command costs about 0.1 us and is inside each number; other work on the machine or the
server is too, which the median of several rounds softens and does not take out.
"""

from __future__ import annotations

import datetime
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from orderlab.model.errors import InputError
from orderlab.model.files import read_toml
from orderlab.sim.costs.cost_model import FOLDER, costs_of
from orderlab.sim.mqtt.sessions import EPOCH_MS, StoredSessions
from orderlab.sim.redis.backends.server import ServerBackend
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.servers.requests import Request
from orderlab.sim.stores.binding import load_binding

SCRIPTS = Path(__file__).parents[2] / "lua"
STORES = {"published": SCRIPTS / "specimens" / "published", "session": SCRIPTS / "session"}
CLIENTS = 1000
PIPELINE = 500
SHORT_PIPELINE = 5
ROUNDS = 5
BATCH = 10
"""Messages of the larger save."""
SCRIPT_CALLS = frozenset(("evalsha", "eval", "fcall"))
T = TypeVar("T")
_STATISTIC = re.compile(r"cmdstat_([a-z|_-]+):calls=(\d+),usec=(\d+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters of a server, or their difference. ``calls`` and ``us`` by command; ``cpu_us`` of the main thread."""

    calls: Mapping[str, int]
    us: Mapping[str, int]
    cpu_us: float

    def since(self, before: Usage) -> Usage:
        """What came after ``before``."""
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        us = {name: spent - before.us.get(name, 0) for name, spent in self.us.items()}
        return Usage({name: count for name, count in calls.items() if count}, us, self.cpu_us - before.cpu_us)


@dataclass(frozen=True)
class Measured:
    """Microseconds. ``operations``: whole calls by operation; ``commands``: inner ones, with how often each was
    seen."""

    server: str
    commands: dict[str, tuple[float, int]]
    operations: dict[str, float]
    own_us: dict[str, float]
    """What a call costs beyond its inner commands, by operation."""
    io_us: float
    syscall_us: float


def read_usage(server: ServerBackend) -> Usage:
    """The counters as they stand."""
    statistics = _info(server, b"commandstats")
    found = _STATISTIC.findall(statistics)
    cpu = dict(line.split(":", 1) for line in _info(server, b"cpu").splitlines() if ":" in line)
    spent = sum(float(cpu.get(f"used_cpu_{kind}_main_thread", 0.0)) for kind in ("sys", "user"))
    return Usage({name: int(calls) for name, calls, _ in found}, {name: int(us) for name, _, us in found}, spent * 1e6)


def _info(server: ServerBackend, section: bytes) -> str:
    reply = server.execute(b"INFO", section)
    assert isinstance(reply, bytes), "INFO gives a text"
    return reply.decode(errors="replace")


class _Calls:
    """Calls of one store's scripts, by operation, on clients in turn."""

    def __init__(self, server: ServerBackend, name: str) -> None:
        self.server = server
        self.store = StoredSessions(load_binding(STORES[name]), 1, 10_000, 1, 62, (8, 9))
        for script in self.store.binding.scripts:
            _checked(server.execute(b"SCRIPT", b"LOAD", script.source))
        self.clients = [b"c%07d" % number for number in range(CLIENTS)]
        self.number = 0

    def prepare(self) -> None:
        """Sessions are there before anything is measured."""
        if self.store.opens_sessions:
            self._pipe([self.store.open(client, clean_start=True, epoch=1) for client in self.clients], PIPELINE)

    def saves(self, count: int, messages: int) -> Iterator[tuple[bytes, Request]]:
        """``count`` saves of so many messages each."""
        for place in range(count):
            client = self.clients[place % CLIENTS]
            self.number += messages
            first = self.number - messages
            described = [(first + one, b"p/0000001", EPOCH_MS) for one in range(messages)]
            yield client, self.store.save(client, described, 1, self.number)

    def save(self, count: int, messages: int, pipeline: int) -> list[tuple[bytes, list[tuple[int, int]]]]:
        """Save, and tell what was assigned to whom."""
        calls = list(self.saves(count, messages))
        replies = self._pipe([request for _, request in calls], pipeline)
        assigned = [self.store.assigned(reply, messages) for reply in replies]
        return [(client, given or []) for (client, _), given in zip(calls, assigned, strict=True)]

    def acknowledge(self, saved: Sequence[tuple[bytes, list[tuple[int, int]]]]) -> None:
        """Remove what was saved."""
        self._pipe(
            [self.store.acknowledge(client, packet_id, token) for client, given in saved for packet_id, token in given],
            PIPELINE,
        )

    def fetch(self, count: int) -> None:
        """Read queues."""
        self._pipe([self.store.fetch(self.clients[place % CLIENTS]) for place in range(count)], PIPELINE)

    def _pipe(self, requests: Sequence[Request], size: int) -> list[Reply]:
        replies: list[Reply] = []
        for start in range(0, len(requests), size):
            replies += map(_checked, self.server.pipeline([request.argv for request in requests[start : start + size]]))
        return replies


def _checked(reply: Reply) -> Reply:
    if isinstance(reply, ErrorReply):
        said = reply.message.decode(errors="replace")
        raise InputError(f"calibrate: the server refused a call of the scripts: {said}; use another server, or auto")
    return reply


def measure(server: ServerBackend, calls: int, on_progress: Callable[[str], None] | None = None) -> dict[str, Measured]:
    """The costs of both stores' scripts, from about ``calls`` calls of each operation. The database is emptied after
    it."""
    found: dict[str, Measured] = {}
    for name in STORES:
        if on_progress is not None:
            on_progress(name)
        found[name] = _measure_store(server, name, calls)
        server.flush()
    return found


class _Rounds:
    """The figures of several rounds: of each the median counts, as another process may have had the core in one of
    them."""

    def __init__(self, server: ServerBackend) -> None:
        self.server = server
        self.seen: dict[str, int] = defaultdict(int)
        self._figures: dict[tuple[str, str], list[float]] = defaultdict(list)

    def note(self, operation: str, run: Callable[[], T]) -> T:
        """Run something, and keep what it cost the server."""
        before = read_usage(self.server)
        result = run()
        used = read_usage(self.server).since(before)
        count = sum(used.calls.get(each, 0) for each in SCRIPT_CALLS)
        whole = sum(used.us[each] for each in SCRIPT_CALLS if each in used.calls)
        inner = [each for each in used.calls if each not in SCRIPT_CALLS and each != "info"]
        for each in inner:
            self.seen[each] += used.calls[each]
            self._figures["command", each].append(used.us[each] / used.calls[each])
        self._figures["whole", operation].append(whole / count)
        self._figures["own", operation].append((whole - sum(used.us[each] for each in inner)) / count)
        self._figures["cpu", operation].append(used.cpu_us / count)
        return result

    def medians(self, kind: str) -> dict[str, float]:
        """Medians of what was measured, by operation or by command."""
        return {name: float(np.median(values)) for (each, name), values in self._figures.items() if each == kind}


def _measure_store(server: ServerBackend, name: str, calls: int) -> Measured:
    store = _Calls(server, name)
    store.prepare()
    store.acknowledge(store.save(CLIENTS, 1, PIPELINE))  # the first calls compile, and dictionaries grow
    rounds, each = _Rounds(server), calls // ROUNDS
    larger, short = f"save of {BATCH}", f"save, pipeline of {SHORT_PIPELINE}"
    for _ in range(ROUNDS):
        saved = rounds.note("save", lambda: store.save(each, 1, PIPELINE))
        rounds.note("acknowledge", lambda saved=saved: store.acknowledge(saved))  # type: ignore[misc]
        saved = rounds.note(larger, lambda: store.save(each // 4, BATCH, PIPELINE))
        rounds.note("fetch", lambda: store.fetch(each // 4))
        store.acknowledge(saved)
        store.acknowledge(rounds.note(short, lambda: store.save(each, 1, SHORT_PIPELINE)))
    cpu, whole = rounds.medians("cpu"), rounds.medians("whole")
    syscall_us = max((cpu[short] - cpu["save"]) / (1 / SHORT_PIPELINE - 1 / PIPELINE), 0.0)
    return Measured(
        server.describe(),
        {command: (us, rounds.seen[command]) for command, us in rounds.medians("command").items()},
        whole,
        rounds.medians("own"),
        max(cpu["save"] - whole["save"] - syscall_us / PIPELINE, 0.0),
        syscall_us,
    )


def cost_model(measured: Mapping[str, Measured], base: str, calls: int, today: datetime.date) -> dict[str, Any]:
    """The cost model ``base`` with its Redis figures replaced by what was measured, each with source, date and
    server."""
    content = read_toml(FOLDER / f"{base}.toml")
    published = measured["published"]
    redis, sources = content["redis"], content["sources"]
    per_message = (published.own_us[f"save of {BATCH}"] - published.own_us["save"]) / (BATCH - 1)
    figures = {
        "evalsha_us": (published.own_us["save"] - per_message, "a whole save of one message less its inner commands"),
        "lua_per_message_us": (per_message, f"saves of {BATCH} messages against saves of one, less inner commands"),
        "io_us": (published.io_us, f"main thread's CPU less EVALSHA, pipelines of {PIPELINE} and of {SHORT_PIPELINE}"),
        "syscall_us": (published.syscall_us, f"main thread's CPU less EVALSHA, pipelines of {SHORT_PIPELINE}"),
    }
    stamp = f"{today.isoformat()}, {published.server}, orderlab calibrate --calls {calls}"
    for name, (value, how) in figures.items():
        redis[name] = round(max(value, 0.0), 3)
        sources[f"redis.{name}"] = f"measured {stamp}: {how}"
    redis["speed"] = 1.0
    sources["redis.speed"] = f"1: {published.server} is the machine itself"
    kept, told = set(redis["commands_us"]), set()
    for store in STORES:
        for name, (us, seen) in measured[store].commands.items():
            if name not in told and "|" not in name:
                told.add(name)
                redis["commands_us"][name] = round(us, 3)
                sources[f"redis.commands_us.{name}"] = (
                    f"measured {stamp}: INFO commandstats, {seen} calls, {store} scripts"
                )
                kept.discard(name)
    for name in sorted(kept):
        sources[f"redis.commands_us.{name}"] = f"not called by the scripts; kept from {base}.toml"
    costs_of(content)
    return content


def to_toml(content: Mapping[str, Any], comment: str) -> str:
    """A cost model as TOML."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for table, values in content.items():
        lines += ["", f"[{table}]"]
        nested = {}
        for name, value in values.items():
            if isinstance(value, Mapping):
                nested[name] = value
            else:
                lines.append(f"{_key(name)} = {json.dumps(value, ensure_ascii=False)}")
        for name, inner in nested.items():
            lines += ["", f"[{table}.{_key(name)}]"]
            lines += [f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in inner.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
