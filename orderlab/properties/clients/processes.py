"""Processes of any language in every order of their commands: the kernel is served, and a gate lets one pass at a time.

Verified: final keys, exit codes and standard output of whole processes, held against those of some order one after the
other. Not controlled: time and chance within a process. Where a process makes the scheduler wait, that is told, and
nothing is said to hold.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.program import run_asynchronously
from orderlab.properties.clients.footprints import SCRIPTS, StepFootprint, Touched, is_local
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.node_state import Effect
from orderlab.sim.redis.wire.served_client import ServedClient
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings

EXECUTIONS: Final = {"quick": 50, "normal": 400, "thorough": 4_000}
QUIET_S: Final = 5.0
"""A process that asks for nothing for so long sleeps, or computes: others go on, and real time has a say."""
LONGEST_S: Final = 60.0
"""Of one execution."""


@dataclass(frozen=True)
class ProcessesEnded:
    """What is seen of one execution."""

    ends: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]


@dataclass
class _Process:
    """A client."""

    waiting: list[tuple[Client, Sequence[bytes], asyncio.Future[None]]] = field(default_factory=list)
    connections: list[ServedClient] = field(default_factory=list)
    is_over: bool = False
    end: str = ""

    @property
    def is_blocked(self) -> bool:
        """Whether the server makes it wait, with no end of its own."""
        return any(each.client.waiting is not None for each in self.connections)


@dataclass
class ProcessRun:
    """One execution: who made each step, what it was and what it touched."""

    ended: ProcessesEnded | None = None
    choices: list[int] = field(default_factory=list)
    enabled: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    footprints: list[StepFootprint] = field(default_factory=list)
    is_stuck: bool = False
    is_timed: bool = False
    """Real time had a say."""


class ProcessExecution:
    """Processes of one command at work on a node of their own."""

    def __init__(self, command: str, clients: int) -> None:
        self.command, self.processes = command, [_Process() for _ in range(clients)]
        self.node = ServedNode(ServeSettings())
        self.node.gate = self._gate
        self.run = ProcessRun()
        self.touched, self.effects = Touched(), list[Effect]()
        self.changed = asyncio.Event()

    async def carried_out(self, choose: Callable[[int, Sequence[int]], int]) -> ProcessRun:
        """Let the processes come to their end. ``choose``: of a step's number and of those that can make it, who does.

        Raises InputError where the command cannot be started, or does not end.
        """
        await self.node.start()
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(partial(self._admitted, each), "127.0.0.1", 0) for each in self.processes]
        children = [
            asyncio.ensure_future(self._live(number, server.sockets[0].getsockname()[1]))
            for number, server in enumerate(servers)
        ]
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._schedule(choose, children)
        except TimeoutError:
            raise InputError(f"--command {self.command}: an execution takes more than {LONGEST_S:g} s") from None
        finally:
            for child in children:
                child.cancel()
            await asyncio.gather(*children, return_exceptions=True)
            for server in servers:
                server.close()
            await self.node.stop()
        return self.run

    def _admitted(self, process: _Process) -> ServedClient:
        connection = ServedClient(self.node)
        process.connections.append(connection)
        return connection

    async def _gate(self, client: Client, argv: Sequence[bytes]) -> None:
        if is_local(argv) or (client.queue is not None and argv[0].upper() not in (b"EXEC", b"DISCARD")):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process = next(each for each in self.processes if any(one.client is client for one in each.connections))
        process.waiting.append((client, argv, future))
        self.changed.set()
        await future
        if argv[0].upper() == b"EXEC":
            self.touched.note_watched(client)
        self.node.shard.effects = self.effects

    async def _live(self, number: int, port: int) -> None:
        process = self.processes[number]
        where = {
            "REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(port),
            "ORDERLAB_CLIENT": str(number),
        }
        words = [word.replace("{port}", str(port)) for word in shlex.split(self.command)]
        try:
            child = await asyncio.create_subprocess_exec(
                *words, env=os.environ | where, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"--command {self.command}: cannot be started ({error.strerror}); correct it") from None
        try:
            out, _ = await child.communicate()
        except asyncio.CancelledError:
            child.kill()
            await child.wait()
            raise
        process.end = f"exit code {child.returncode}, {out.decode(errors='replace').strip()!r}"
        process.is_over = True
        self.changed.set()

    async def _schedule(
        self, choose: Callable[[int, Sequence[int]], int], children: Sequence[asyncio.Future[None]]
    ) -> None:
        while True:
            await self._settle(children)
            enabled = [number for number, each in enumerate(self.processes) if each.waiting]
            if not enabled:
                if all(each.is_over for each in self.processes):
                    break
                is_all = all(each.is_over or each.is_blocked for each in self.processes)
                if is_all and self.node.shard.waits.next_timeout_ms() is None:
                    self.run.is_stuck = True
                    break
                self.run.is_timed = True
                await asyncio.sleep(0.01)  # who sleeps goes on some time
                continue
            self.run.enabled.append(tuple(enabled))
            chosen = choose(len(self.run.choices), enabled)
            _, argv, future = self.processes[chosen].waiting.pop(0)
            self.effects.clear()
            future.set_result(None)
            had_waits, drawn = bool(self.node.shard.waits), self.node.shard.random_state
            await asyncio.sleep(0)  # in which the command is carried out
            await asyncio.sleep(0)
            self._note_touched(argv, had_waits, drawn)
            self.run.choices.append(chosen)
            self.run.footprints.append(self.touched.taken())
            self.run.steps.append(f"client {chosen}: " + " ".join(word.decode(errors="replace")[:60] for word in argv))
        ends = tuple(each.end or "waits for ever" for each in self.processes)
        keys = tuple(
            (repr(key), repr((str(kind), value, at is not None)))
            for key, (kind, value, at) in sorted(self.node.shard.freeze().items())
        )
        self.run.ended = ProcessesEnded(ends, keys)

    def _note_touched(self, argv: Sequence[bytes], had_waits: bool, drawn: int) -> None:
        shard, touched = self.node.shard, self.touched
        touched.note(self.effects)
        if argv[0].upper() in (b"SCRIPT", b"FUNCTION", b"EVAL"):
            touched.writes.add(SCRIPTS)
        if had_waits or shard.waits or shard.random_state != drawn:
            touched.is_whole = True  # whoever waits may be served
        self.run.is_timed |= shard.waits.next_timeout_ms() is not None

    async def _settle(self, children: Sequence[asyncio.Future[None]]) -> None:
        """Wait until each process has asked for something, waits at the server, or is over."""
        while not all(each.is_over or each.waiting or each.is_blocked for each in self.processes):
            for child in children:
                if child.done() and child.exception() is not None:
                    raise child.exception() or AssertionError
            self.changed.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self.changed.wait()
            except TimeoutError:
                self.run.is_timed = True
                if any(each.waiting for each in self.processes):
                    return


@dataclass(frozen=True)
class ProcessVerdict:
    """What was decided about processes of a command."""

    outcome: Outcome
    law: str
    what: str
    how_far: str
    steps: tuple[str, ...]
    executions: int

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "outcome": str(self.outcome), "steps": list(self.steps)}


def _carried_out(command: str, clients: int, choose: Callable[[int, Sequence[int]], int]) -> ProcessRun:
    async def live() -> ProcessRun:
        return await ProcessExecution(command, clients).carried_out(choose)

    return run_asynchronously(live())


def _in_order(order: Sequence[int]) -> Callable[[int, Sequence[int]], int]:
    return lambda _, enabled: min(enabled, key=order.index)


@dataclass
class _ProcessPlace:
    enabled: tuple[int, ...]
    asleep: dict[int, StepFootprint]
    done: dict[int, StepFootprint] = field(default_factory=dict)


def race_processes(command: str, clients: int, effort: str) -> ProcessVerdict:
    """Judge ``clients`` processes of one command in every order of their commands. Raises InputError."""
    most = EXECUTIONS[effort]
    serial = [_carried_out(command, clients, _in_order(order)) for order in itertools.permutations(range(clients))]
    expected = {run.ended for run in serial}
    again = _carried_out(command, clients, _in_order(range(clients)))
    count = len(serial) + 1
    if again.ended != serial[0].ended:
        return ProcessVerdict(
            Outcome.UNKNOWN, "", "", "uncontrolled: the same order ended otherwise when run again; leave out chance, "
            "times of day and process numbers from keys and output", (), count,
        )  # fmt: skip
    is_timed = any(run.is_timed for run in serial)
    prefix: list[int] = []
    path: list[_ProcessPlace] = []
    orders = 0
    while orders < most:
        run = _carried_out(command, clients, partial(_next, tuple(prefix), path))
        orders += 1
        is_timed |= run.is_timed
        if tuple(run.choices[: len(prefix)]) != tuple(prefix):
            return ProcessVerdict(Outcome.UNKNOWN, "", "", "uncontrolled: a step could not be made again", (), count)
        if run.ended not in expected:
            law = "no-deadlock" if run.is_stuck else "serializable"
            return ProcessVerdict(
                Outcome.VIOLATED, law, _difference(run, serial[0]), f"found in {orders:,} executions",
                tuple(run.steps), count + orders,
            )  # fmt: skip
        _note(path, run)
        while path and not _open(path[-1]):
            path.pop()
        if not path:
            text = f"every order that differs of {clients} processes, in {orders:,} executions"
            if not is_timed:
                return ProcessVerdict(Outcome.HOLDS, "", "", text, (), count + orders)
            return ProcessVerdict(
                Outcome.UNKNOWN, "", "", f"{text}; uncontrolled: a process was quiet for {QUIET_S:g} s, and real time "
                "had a say", (), count + orders,
            )  # fmt: skip
        prefix = [*run.choices[: len(path) - 1]]
    text = f"not exhausted: {orders:,} orders of {clients} processes"
    return ProcessVerdict(Outcome.UNKNOWN, "", "", text, (), count + orders)


def _open(place: _ProcessPlace) -> list[int]:
    return [each for each in place.enabled if each not in place.done and each not in place.asleep]


def _next(prefix: Sequence[int], path: Sequence[_ProcessPlace], at: int, enabled: Sequence[int]) -> int:
    if at < len(prefix):
        return prefix[at] if prefix[at] in enabled else enabled[0]
    left = _open(path[at]) if at < len(path) else []
    return next((each for each in left if each in enabled), enabled[0])


def _note(path: list[_ProcessPlace], run: ProcessRun) -> None:
    """Add the places that a run came by, and what its steps touched there."""
    for at, (chosen, footprint) in enumerate(zip(run.choices, run.footprints, strict=True)):
        if at >= len(path):
            before, asleep = path[at - 1] if at else None, dict[int, StepFootprint]()
            if before is not None:
                last = run.footprints[at - 1]
                for other, touched in (*before.asleep.items(), *before.done.items()):
                    if other != run.choices[at - 1] and touched.commutes_with(last):
                        asleep[other] = touched
            path.append(_ProcessPlace(run.enabled[at], asleep))
        path[at].done[chosen] = footprint


def _difference(run: ProcessRun, serial: ProcessRun) -> str:
    assert run.ended is not None
    text = [f"client {number}: {end}" for number, end in enumerate(run.ended.ends)]
    text += [f"key {key} is {value}" for key, value in run.ended.keys]
    also = "; ".join(f"{key} is {value}" for key, value in serial.ended.keys) if serial.ended is not None else ""
    return "; ".join(text[:8]) + f"; no order one after the other ends so (one of them: {also[:200]})"
